"""The local sweep where breaks nearly coincide, and where memory or time is short: as the dense one all the same."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.engines.patches import error_oracle as look
from exactline.engines.patches import segmentation as journey
from exactline.engines.patches.segment import Segment
from tests.engines.patches.graphs import graph
from tests.engines.patches.test_sweep import same

GAPS = [0.0, 1e-17, 1e-16, 1e-15, 1e-13, 1e-12, 1e-11, 1e-9]  # near 1e-14 either answer is right


def line(side: int = 6) -> tuple[Tensor, Tensor]:
    return torch.randn(2, 1, side, side, dtype=torch.float64).unbind(0)  # pyright: ignore


@pytest.mark.parametrize("gap", GAPS)
def test_channels_that_nearly_cross_together(gap):
    first = nn.Conv2d(1, 4, 3, padding=1).double()
    with torch.no_grad():
        first.weight[1] = first.weight[0]
        first.bias[1] = first.bias[0] + gap  # pyright: ignore
        first.weight[3] = -2 * first.weight[2]
        first.bias[3] = -2 * first.bias[2] - gap  # pyright: ignore
    model = nn.Sequential(first, nn.ReLU(), nn.Conv2d(4, 3, 3, 2).double(), nn.ReLU()).eval()
    local, _ = same(model, *line())
    assert (local.origin_table[:, 2].max() > 1) == (gap < 1e-14)


@pytest.mark.parametrize("gap", GAPS)
def test_units_that_nearly_cross_where_one_before_them_breaks(gap):
    first, second = nn.Conv2d(1, 2, 3, padding=1).double(), nn.Conv2d(2, 2, 1).double()
    with torch.no_grad():
        second.weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 2.0]], dtype=torch.float64)[:, :, None, None])
        second.bias.copy_(torch.tensor([-gap, 0.3]))
    model = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Conv2d(2, 2, 3).double(), nn.ReLU()).eval()
    same(model, *line())


def test_a_unit_that_falls_from_large_to_tiny():
    """What sums lose on the large part would move where the tiny part crosses zero."""
    first, second = nn.Conv2d(1, 2, 1).double(), nn.Conv2d(2, 1, 1).double()
    with torch.no_grad():
        first.weight.copy_(torch.tensor([-1e5, 1.0]).view(2, 1, 1, 1))
        first.bias.copy_(torch.tensor([0.3e5, 0.0]))
        second.weight.copy_(torch.tensor([1.0, 1e-2]).view(1, 2, 1, 1))
        second.bias.fill_(-0.7e-2)
    model = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Conv2d(1, 2, 3).double(), nn.ReLU()).eval()
    same(model, torch.zeros(1, 6, 6, dtype=torch.float64), torch.rand(1, 6, 6, dtype=torch.float64) + 0.75)


def test_stretches_that_hold_too_much_are_halved(monkeypatch):
    monkeypatch.setattr(journey, "MIN_SEGMENT_BREAKS", 2)
    local, _ = same(*graph(3), memory=1)
    assert "stretches" in local.engine


@pytest.mark.parametrize("times", [1, 3])
def test_a_device_without_memory(monkeypatch, times):
    """Stretches, closer looks and what foretells stretches all go on with less at a time."""
    left = {"run": times, "walked": times, "compared": times}

    def short(name, function):
        def asked(*args):
            if left[name] > 0:
                left[name] -= 1
                raise torch.cuda.OutOfMemoryError("no room")
            return function(*args)

        return asked

    monkeypatch.setattr(Segment, "run", short("run", Segment.run))
    monkeypatch.setattr(look.ErrorOracle, "_run_probes", short("walked", look.ErrorOracle._run_probes))
    monkeypatch.setattr(journey, "_compare_patterns", short("compared", journey._compare_patterns))
    model, Q, R = graph(3)
    same(model, Q, R)
    looks = look.ErrorOracle.along(*_parts(model, Q, R))
    node = next(iter(looks.thresholds))
    alphas = torch.linspace(0.1, 0.9, 8, dtype=torch.float64)
    elements = torch.arange(8)
    nodes, alone = torch.full_like(elements, node), torch.full_like(elements, -1)
    left["walked"] = times
    values, bounds = looks.refine(nodes, alphas, elements, alone)
    assert left["walked"] == 0
    again = looks.refine(nodes, alphas, elements, alone)
    assert torch.equal(values, again[0])
    assert torch.equal(bounds, again[1])


def test_with_a_deadline():
    model, Q, R = graph(8)
    whole = xl.restrict(model, Q, R, engine="patches")
    timed = xl.restrict(model, Q, R, engine="patches", seconds=600)
    assert not timed.stopped
    assert torch.equal(timed.origin_table, whole.origin_table)
    late = xl.restrict(model, Q, R, engine="patches", seconds=1e-9)
    assert late.stopped == "seconds"


def _parts(model: nn.Module, Q: Tensor, R: Tensor):
    from exactline.lines import as_lines
    from exactline.network import as_network

    network = as_network(model, [Q])
    return network, as_lines(Q, R, ("Q", "R"), many=False), 0, len(network.nodes)
