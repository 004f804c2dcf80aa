"""Planes in parts: the answer does not depend on how much is held at once, and a million polygons fit."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

import exactline as xl
from tests.test_promises import peak_of

SQUARE = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64) * 3


def bent(*widths: int) -> nn.Module:
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


def pooled() -> nn.Module:
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
    """Corners, edges and polygons of a disc, every inner edge with two sides; the outline is all that is open."""
    assert len(plane.weights) - len(plane.edges) + len(plane) == 1
    open_edges = plane.edges[(plane.sides < 0).any(1)]
    spots = plane.corners[open_edges] / plane.extent
    low, high = plane.outline.amin(0) / plane.extent, plane.outline.amax(0) / plane.extent
    along = ((spots - low).abs() < 1e-12) | ((spots - high).abs() < 1e-12)
    assert bool(along.all(1).any(1).all())  # both ends on one side of the square


@pytest.mark.parametrize("make", [lambda: bent(2, 24, 24, 24, 3), pooled], ids=["relu", "pooling"])
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
        births = [sorted(map(str, {(b.node, b.unit) for b in plane.origins if b})) for plane in (parts, whole)]
        assert births[0] == births[1]


def test_parts_are_classes_of_one_plane():
    model = bent(2, 24, 24, 24, 3)
    one, two = (xl.restrict_plane(model, SQUARE, memory=m).decisions() for m in (None, 1))
    assert [r.label for r in one] == [r.label for r in two]
    assert [r.area for r in one] == pytest.approx([r.area for r in two], rel=1e-10, abs=1e-12)


def test_values_may_be_left_out():
    model = bent(2, 16, 16, 2)
    plane = xl.restrict_plane(model, SQUARE, values=False)
    with pytest.raises(xl.MissingError):
        _ = plane.values
    points = torch.rand(500, 2, dtype=torch.float64) * 6
    assert torch.allclose(plane.at(points), xl.restrict_plane(model, SQUARE).at(points), rtol=1e-12, atol=1e-13)
    assert plane.line([0.0, 0.0], [6.0, 6.0]).stored_values is None


def test_progress_rises_to_the_end():
    told: list[tuple[float, int]] = []
    plane = xl.restrict_plane(
        bent(2, 24, 24, 24, 3), SQUARE, memory=200_000, progress=lambda share, count: told.append((share, count))
    )
    assert len(told) > 2
    assert all(a < b for a, b in itertools.pairwise(told))
    assert told[-1][0] == pytest.approx(1)
    assert told[-1][1] == len(plane)


@pytest.mark.slow
def test_a_million_polygons_in_less_than_two_gibibytes():
    peak, lines = peak_of(
        "from tests.engines.polygons.test_parts import SQUARE, bent\n"
        "plane = xl.restrict_plane(bent(2, 512, 512, 512, 4), SQUARE, values=False)\n"
        "print(len(plane), len(plane.weights) - len(plane.edges) + len(plane), abs(float(plane.shares.sum()) - 1))"
    )
    count, euler, off = lines[-1].split()
    assert int(count) > 1_000_000
    assert int(euler) == 1
    assert float(off) < 1e-10
    assert peak < 2 << 30
