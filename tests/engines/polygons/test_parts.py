"""Planes in parts: the answer does not depend on the memory budget, and a million polygons fit in 2 GiB."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

import exactline as xl
from tests.test_promises import measure_peak

SQUARE = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64) * 3


def build_relu_network(*widths: int) -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    model = nn.Sequential(*layers[:-1]).double().eval()
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.normal_(layer.bias, 0.0, 0.3)
    return model


def build_pooling_network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(2, 36),
        nn.Unflatten(1, (1, 6, 6)),
        nn.Conv2d(1, 3, 3, padding=1),
        nn.MaxPool2d(3, 2),
        nn.Flatten(),
        nn.Linear(12, 8),
        nn.ReLU(),
        nn.Linear(8, 3),
    ).double()


def assert_one_mesh(plane: xl.PlaneRestriction) -> None:
    """Euler's formula holds, and only edges on the outline have a single side."""
    assert len(plane.weights) - len(plane.edges) + len(plane) == 1
    outer_edges = plane.edges[(plane.sides < 0).any(1)]
    positions = plane.corners[outer_edges] / plane.extent
    low, high = plane.outline.amin(0) / plane.extent, plane.outline.amax(0) / plane.extent
    on_side = ((positions - low).abs() < 1e-12) | ((positions - high).abs() < 1e-12)
    assert bool(on_side.all(1).any(1).all())  # both ends on one side of the square


@pytest.mark.parametrize(
    "make", [lambda: build_relu_network(2, 24, 24, 24, 3), build_pooling_network], ids=["relu", "pooling"]
)
@pytest.mark.every(2)
def test_small_budgets_give_the_same_polygons(make):
    model = make().eval()
    whole = xl.restrict_plane(model, SQUARE)
    assert_one_mesh(whole)
    points = torch.rand(2000, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 6
    for memory in (1, 100_000, 1_000_000):
        parts = xl.restrict_plane(model, SQUARE, memory=memory)
        assert len(parts) == len(whole)
        assert len(parts.weights) == len(whole.weights)
        assert_one_mesh(parts)
        assert float((parts.areas.sort().values - whole.areas.sort().values).abs().max()) < 1e-12 * whole.area
        assert torch.allclose(parts.at(points), whole.at(points), rtol=1e-11, atol=1e-12)
        origins = [sorted(map(str, {(o.node, o.unit) for o in plane.origins if o})) for plane in (parts, whole)]
        assert origins[0] == origins[1]


def test_decisions_do_not_depend_on_the_parts():
    model = build_relu_network(2, 24, 24, 24, 3)
    one, two = (xl.restrict_plane(model, SQUARE, memory=m).decisions() for m in (None, 1))
    assert [r.label for r in one] == [r.label for r in two]
    assert [r.area for r in one] == pytest.approx([r.area for r in two], rel=1e-10, abs=1e-12)


def test_values_may_be_left_out():
    model = build_relu_network(2, 16, 16, 2)
    plane = xl.restrict_plane(model, SQUARE, values=False)
    with pytest.raises(xl.MissingError):
        _ = plane.values
    points = torch.rand(500, 2, dtype=torch.float64) * 6
    assert torch.allclose(plane.at(points), xl.restrict_plane(model, SQUARE).at(points), rtol=1e-12, atol=1e-13)
    assert plane.line([0.0, 0.0], [6.0, 6.0]).stored_values is None


def test_progress_increases_to_one():
    reports: list[tuple[float, int]] = []
    plane = xl.restrict_plane(
        build_relu_network(2, 24, 24, 24, 3),
        SQUARE,
        memory=200_000,
        progress=lambda share, count: reports.append((share, count)),
    )
    assert len(reports) > 2
    assert all(a < b for a, b in itertools.pairwise(reports))
    assert reports[-1][0] == pytest.approx(1)
    assert reports[-1][1] == len(plane)


@pytest.mark.slow
def test_a_million_polygons_in_less_than_two_gibibytes():
    peak, lines = measure_peak(
        "from tests.engines.polygons.test_parts import SQUARE, build_relu_network\n"
        "plane = xl.restrict_plane(build_relu_network(2, 512, 512, 512, 4), SQUARE, values=False)\n"
        "print(len(plane), len(plane.weights) - len(plane.edges) + len(plane), abs(float(plane.shares.sum()) - 1))"
    )
    count, euler, off = lines[-1].split()
    assert int(count) > 1_000_000
    assert int(euler) == 1
    assert float(off) < 1e-10
    assert peak < 2 << 30
