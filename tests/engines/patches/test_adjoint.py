"""Gradients by patches: those of autograd on every piece, summed; of inputs, layers and single units."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import exactline as xl
from exactline.attr import path_integrals
from exactline.attr.path_integrals import PathIntegral, path_integral
from exactline.engines.layer_hooks import LayerIntegral, UnitSelection
from exactline.lines import as_lines
from exactline.network import Network, as_network
from tests.engines.patches.random_graphs import random_graph
from tests.oracle.families import Apply, Concat, Residual

TOLERANCE = 1e-10  # times the largest gradient: thousands of roundings of double precision
TARGET = 1


class PatchRuns:
    """Counts how often the patch engine has integrated a gradient itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, integrate = 0, path_integrals.patch_integral

        def count(*args, **options):
            found = integrate(*args, **options)
            self.count += found is not None
            return found

        monkeypatch.setattr(path_integrals, "patch_integral", count)


@pytest.fixture
def patch_runs(monkeypatch) -> PatchRuns:
    return PatchRuns(monkeypatch)


def integrate(network: Network, start: Tensor, end: Tensor, engine: str, **options) -> PathIntegral:
    lines = as_lines(start, end, ("start", "end"), many=False)
    return path_integral(network, lines, torch.tensor([TARGET]), engine=engine, **options)


def sum_over_pieces(model: nn.Module, line: xl.Restriction, start: Tensor, end: Tensor) -> Tensor:
    """The gradient of torch in the middle of every piece, times the length of the piece."""
    total = torch.zeros_like(start)
    for left, right in pairwise(line.alphas.tolist()):
        x = (start + (left + right) / 2 * (end - start))[None].requires_grad_()
        (gradient,) = torch.autograd.grad(model(x).flatten()[TARGET], x)
        total += (right - left) * gradient[0]
    return total


def seen_again(activation: nn.Module, channels: int = 4) -> nn.Module:
    """The input beside two channels computed from its activation: units of a later one cross their knots with it."""
    return Concat(nn.Identity(), nn.Sequential(activation, nn.Conv2d(channels, 2, 3, padding=1)))


def small_network(kind: str) -> nn.Module:
    """A network with every kind of node that gradients by patches go through."""
    torch.manual_seed(5)
    first = [nn.Conv2d(2, 4, 3, padding=1), nn.ReLU()]
    middle = {
        "max pool": lambda: [nn.MaxPool2d(2)],
        "max pool before the ReLU": lambda: [nn.Conv2d(4, 4, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()],
        "overlapping pool": lambda: [nn.MaxPool2d(3, 2, 1)],
        "average pool": lambda: [nn.AvgPool2d(2)],
        "residual": lambda: [Residual(nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 1)))],
        "concatenation": lambda: [Concat(nn.Conv2d(4, 3, 1), nn.Sequential(nn.Conv2d(4, 2, 3, padding=1), nn.ReLU()))],
        "clamp": lambda: [Apply(lambda x: x.clamp(-0.25, 0.5))],
        "pool of a clamp": lambda: [Apply(lambda x: x.clamp(-0.25, 0.5)), nn.MaxPool2d(2)],
        "pool of a part of a clamp": lambda: [
            Apply(lambda x: F.pad(x.clamp(-0.1, 0.1)[:, :, :-1], (1, 0, 0, 1))),
            nn.MaxPool2d(2),
        ],
        "depthwise": lambda: [nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.BatchNorm2d(4)],
        "depthwise with a stride": lambda: [nn.Conv2d(4, 4, 3, 2, padding=1, groups=4), nn.Conv2d(4, 4, 1), nn.ReLU()],
        "groups": lambda: [nn.Conv2d(4, 6, 3, padding=1, groups=2), nn.ReLU(), nn.Conv2d(6, 4, 3, 2, groups=2)],
        "stride beyond the kernel": lambda: [nn.Conv2d(4, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 1, (3, 1)), nn.ReLU()],
        "dilated groups": lambda: [nn.Conv2d(4, 4, 3, padding=2, dilation=2, groups=2), nn.ReLU()],
        "shuffle": lambda: [nn.ChannelShuffle(2), nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.ReLU()],
        "units seen again": lambda: [nn.Conv2d(4, 4, 1), seen_again(nn.ReLU()), nn.ReLU(), nn.Conv2d(6, 4, 1)],
        "units seen again by clamps": lambda: [
            nn.Conv2d(4, 4, 1),
            seen_again(nn.Hardtanh(-0.2, 0.3)),
            seen_again(nn.Hardtanh(-0.2, 0.3), 6),
            nn.Hardtanh(-0.2, 0.3),
            nn.Conv2d(8, 4, 1),
        ],
        "split": lambda: [
            Apply(lambda x: torch.cat([x[:, :2], x[:, 2:] - x[:, 1:3]], 1)),
            nn.Conv2d(4, 4, 3),
            nn.ReLU(),
        ],
    }[kind]()
    channels = 5 if kind == "concatenation" else 4
    last = [nn.Conv2d(channels, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3)]
    model = nn.Sequential(*first, *middle, *last).eval().double()
    with torch.no_grad():
        model(torch.zeros(2, 2, 10, 10, dtype=torch.float64))
    return model


KINDS = (
    *("max pool", "max pool before the ReLU", "overlapping pool", "average pool"),
    *("residual", "concatenation", "clamp", "depthwise", "depthwise with a stride", "groups", "dilated groups"),
    *("stride beyond the kernel", "shuffle", "split"),
    *("units seen again", "units seen again by clamps"),
)
TIED_KINDS = ("pool of a clamp", "pool of a part of a clamp")  # saturated elements lead a window together: dense there


def small_case(kind: str) -> tuple[nn.Module, Network, Tensor, Tensor]:
    model = small_network(kind)
    start, end = torch.randn(2, 2, 10, 10, dtype=torch.float64)
    return model, as_network(model, [start]), start, end


def assert_close(found: Tensor, expected: Tensor) -> None:
    assert (found - expected).abs().max() <= TOLERANCE * max(float(expected.abs().max()), 1e-3)


@pytest.mark.parametrize("kind", [*KINDS, *TIED_KINDS])
def test_gradients_are_those_of_autograd_on_every_piece(kind, patch_runs):
    model, network, start, end = small_case(kind)
    line = xl.restrict(network, start, end, engine="dense")
    found = integrate(network, start, end, "patches")
    if kind in KINDS:
        assert patch_runs.count == 1
    assert found.pieces == len(line) > 20
    assert_close(found.gradients[0][0], sum_over_pieces(model, line, start, end))


@pytest.mark.parametrize("kind", KINDS)
def test_layers_get_what_the_dense_engine_gives_them(kind, patch_runs):
    """Integrals at each breaking node over alpha and over its values; the latter sum to the change of the output."""
    _, network, start, end = small_case(kind)
    breaking = [i for i, node in enumerate(network.nodes) if node.name.startswith(("relu", "max_pool2d", "clamp"))]
    for over_values in (False, True):
        totals = []
        for engine in ("dense", "patches"):
            hooks = {
                i: LayerIntegral(torch.zeros(1, *network.nodes[i].shape, dtype=torch.float64), over_values)
                for i in breaking
            }
            integrate(network, start, end, engine, hooks=hooks, with_subgradient_range=False)
            totals.append([hook.total for hook in hooks.values()])
        for dense, patches in zip(*totals, strict=True):
            assert_close(patches, dense)
        if over_values:
            values = network(torch.stack([start, end])).flatten(1)[:, TARGET]
            assert float(totals[1][-1].sum()) == pytest.approx(float(values[1] - values[0]), abs=1e-11)
    assert patch_runs.count == 2


def test_the_gradient_through_one_unit(patch_runs):
    _, network, start, end = small_case("average pool")
    last = max(i for i, node in enumerate(network.nodes) if node.name.startswith("relu"))
    sizes = []
    for channel in range(4):
        weights = torch.zeros(network.nodes[last].shape, dtype=torch.float64)
        weights[channel, 1, 1] = 2.0
        hooks = {last: UnitSelection(weights)}
        dense, patches = (integrate(network, start, end, engine, hooks=hooks) for engine in ("dense", "patches"))
        assert_close(patches.gradients[0], dense.gradients[0])
        sizes.append(float(dense.gradients[0].abs().max()))
    assert max(sizes) > 0
    assert patch_runs.count == 4


@pytest.mark.parametrize("kind", KINDS[:4])
def test_a_smooth_end(kind, patch_runs):
    model, _, start, end = small_case(kind)
    model = nn.Sequential(model, nn.Softmax(1)).eval()
    network = as_network(model, [start])
    dense, patches = (integrate(network, start, end, engine, tail=True) for engine in ("dense", "patches"))
    assert patch_runs.count == 1
    assert_close(patches.gradients[0], dense.gradients[0])
    with torch.no_grad():
        values = model(torch.stack([start, end]))[:, TARGET]
    assert float((patches.gradients[0][0] * (end - start)).sum()) == pytest.approx(
        float(values[1] - values[0]), abs=1e-11
    )


@pytest.mark.parametrize("kind", ["max pool", "overlapping pool", "residual"])
def test_flat_parts_of_an_image(kind):
    """Elements of a window that are equal all along: gradients by patches, unless one of them is a convention."""
    _, network, start, end = small_case(kind)
    start, end = torch.zeros_like(start), end.clone()
    end[:, 3:9, 2:8] = 0.75
    dense, patches = (integrate(network, start, end, engine) for engine in ("dense", "patches"))
    assert patches.pieces == dense.pieces
    assert patches.ambiguous in (0, dense.ambiguous)
    assert_close(patches.gradients[0], dense.gradients[0])


@pytest.mark.parametrize("first", [0, 8, 16, 24])
@pytest.mark.every(2)
def test_random_graphs(first, patch_runs):
    for seed in range(first, first + 8):
        model, start, end = random_graph(seed)
        network = as_network(model, [start])
        dense, patches = (integrate(network, start, end, engine) for engine in ("dense", "patches"))
        assert patches.pieces == dense.pieces
        if not dense.ambiguous:
            assert_close(patches.gradients[0], dense.gradients[0])
    assert patch_runs.count > 3
