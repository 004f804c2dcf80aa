"""The patch engine where breaks nearly coincide, or memory or time is short: it agrees with the dense engine."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.engines.patches import segmentation
from exactline.engines.patches.error_oracle import ErrorOracle
from exactline.engines.patches.segment import Segment
from exactline.lines import as_lines
from exactline.network import as_network
from tests.engines.patches.random_graphs import random_graph
from tests.engines.patches.test_sweep import assert_same

GAPS = [0.0, 1e-17, 1e-16, 1e-14, 1e-13, 1e-12, 1e-11, 1e-9]  # near 1e-15 both answers are right


def random_line(side: int = 6) -> tuple[Tensor, Tensor]:
    return torch.randn(2, 1, side, side, dtype=torch.float64).unbind(0)  # pyright: ignore


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.every(3)
def test_channels_that_nearly_cross_together(gap):
    first = nn.Conv2d(1, 4, 3, padding=1).double()
    with torch.no_grad():
        first.weight[1] = first.weight[0]
        first.bias[1] = first.bias[0] + gap  # pyright: ignore
        first.weight[3] = -2 * first.weight[2]
        first.bias[3] = -2 * first.bias[2] - gap  # pyright: ignore
    model = nn.Sequential(first, nn.ReLU(), nn.Conv2d(4, 3, 3, 2).double(), nn.ReLU()).eval()
    patches, _ = assert_same(model, *random_line())
    assert (patches.origin_table[:, 2].max() > 1) == (gap < 1e-15)


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.every(4)
def test_units_that_nearly_cross_where_an_earlier_unit_breaks(gap):
    first, second = nn.Conv2d(1, 2, 3, padding=1).double(), nn.Conv2d(2, 2, 1).double()
    with torch.no_grad():
        second.weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 2.0]], dtype=torch.float64)[:, :, None, None])
        second.bias.copy_(torch.tensor([-gap, 0.3]))
    model = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Conv2d(2, 2, 3).double(), nn.ReLU()).eval()
    assert_same(model, *random_line())


def test_a_unit_that_falls_from_large_to_tiny_values():
    """The rounding error of sums over large values would displace the zero of the tiny ones."""
    first, second = nn.Conv2d(1, 2, 1).double(), nn.Conv2d(2, 1, 1).double()
    with torch.no_grad():
        first.weight.copy_(torch.tensor([-1e5, 1.0]).view(2, 1, 1, 1))
        first.bias.copy_(torch.tensor([0.3e5, 0.0]))
        second.weight.copy_(torch.tensor([1.0, 1e-2]).view(1, 2, 1, 1))
        second.bias.fill_(-0.7e-2)
    model = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Conv2d(1, 2, 3).double(), nn.ReLU()).eval()
    assert_same(model, torch.zeros(1, 6, 6, dtype=torch.float64), torch.rand(1, 6, 6, dtype=torch.float64) + 0.75)


def test_segments_with_too_many_numbers_are_halved(monkeypatch):
    monkeypatch.setattr(segmentation, "MIN_SEGMENT_BREAKS", 2)
    patches, _ = assert_same(*random_graph(3), memory=1)
    assert "segments" in patches.engine


@pytest.mark.parametrize("failures", [1, 3])
@pytest.mark.every(2)
def test_a_device_that_runs_out_of_memory(monkeypatch, failures):
    """Segments, error estimates and forecasts of segments all continue with less at a time."""
    left = {"segment": failures, "errors": failures, "forecast": failures}

    def fail_first(name, function):
        def failing(*args):
            if left[name] > 0:
                left[name] -= 1
                raise torch.cuda.OutOfMemoryError("no room")
            return function(*args)

        return failing

    monkeypatch.setattr(Segment, "run", fail_first("segment", Segment.run))
    monkeypatch.setattr(ErrorOracle, "_evaluate", fail_first("errors", ErrorOracle._evaluate))
    monkeypatch.setattr(segmentation, "_compare_patterns", fail_first("forecast", segmentation._compare_patterns))
    model, start, end = random_graph(3)
    assert_same(model, start, end)
    network, lines = as_network(model, [start]), as_lines(start, end, ("start", "end"), many=False)
    errors = ErrorOracle.sample(network, lines, 0, len(network.nodes))
    node = next(iter(errors.thresholds))
    alphas = torch.linspace(0.1, 0.9, 8, dtype=torch.float64)
    elements = torch.arange(8)
    nodes, partners = torch.full_like(elements, node), torch.full_like(elements, -1)
    left["errors"] = failures
    values, bounds = errors.refine(nodes, alphas, elements, partners)
    assert left["errors"] == 0
    expected_values, expected_bounds = errors.refine(nodes, alphas, elements, partners)
    assert torch.equal(values, expected_values)
    assert torch.equal(bounds, expected_bounds)


def test_with_a_deadline():
    model, start, end = random_graph(8)
    whole = xl.restrict(model, start, end, engine="patches")
    timed = xl.restrict(model, start, end, engine="patches", seconds=600)
    assert not timed.stopped
    assert torch.equal(timed.origin_table, whole.origin_table)
    late = xl.restrict(model, start, end, engine="patches", seconds=1e-9)
    assert late.stopped == "seconds"
