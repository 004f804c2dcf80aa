"""Planes solved by hand: known counts and areas, all kinds of ties, lines along edges and through corners."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

import exactline as xl
from exactline.network.graph import Network
from exactline.ops.base import Op
from exactline.ops.functions import absolute, clamp, leaky_relu, relu
from exactline.ops.maximum import Maximum
from exactline.ops.order import Order
from tests.engines.polygons import checks
from tests.exact.networks import chain, linear

SQUARE = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64)
X, Y, ZERO = [1.0, 0.0], [0.0, 1.0], [0.0, 0.0]
MINUS_X, MINUS_Y = [-1.0, 0.0], [0.0, -1.0]


def units(op: Op, *rows: list[float], offset: list[float] | None = None) -> Network:
    return chain((2,), linear([*rows], [0.0] * len(rows) if offset is None else offset), op)


def largest(size: int, *, floor: bool = False) -> Maximum:
    return Maximum(torch.arange(size)[None], (1,), 1, floor)


def ranks(size: int, *chosen: int) -> Order:
    return Order(torch.arange(size)[None], torch.tensor(chosen), (len(chosen),))


FAN = [X, Y, [1.0, 1.0], [1.0, -1.0], [1.0, 2.0], [3.0, -1.0]]
CASES = {
    "quadrants": (units(relu(), X, Y), [1.0] * 4),
    "a diagonal through two corners": (units(relu(), [1.0, -1.0]), [2.0, 2.0]),
    "one corner touched": (units(relu(), [1.0, 1.0], offset=[-2.0]), [4.0]),
    "an edge touched": (units(relu(), X, offset=[1.0]), [4.0]),
    "zero throughout": (units(absolute(), ZERO), [4.0]),
    "six lines through one point": (units(leaky_relu(0.5), *FAN), None),
    "the same six, each three times": (
        units(leaky_relu(0.5), *([k * v for v in row] for row in FAN for k in (1, -2, 3))),
        None,
    ),
    "knots": (units(clamp(-0.5, 0.5), X, Y), [0.25] * 4 + [0.5] * 4 + [1.0]),
    "a triple point": (units(largest(3), X, Y, [-1.0, -1.0]), None),
    "an inner cell": (units(largest(5), X, MINUS_X, Y, MINUS_Y, ZERO, offset=[0.0] * 4 + [0.5]), [0.75] * 4 + [1.0]),
    "zero as a challenger": (units(largest(2, floor=True), X, Y), [1.0, 1.5, 1.5]),
    "identical functions": (units(largest(4), X, X, Y, X), [2.0, 2.0]),
    "sort": (units(ranks(3, 0, 1, 2), X, Y, ZERO), [0.5] * 4 + [1.0] * 2),
    "the largest by rank": (units(ranks(3, 0), X, Y, ZERO), [1.0, 1.5, 1.5]),
    "a median that never moves": (units(ranks(5, 2), X, MINUS_X, ZERO, Y, MINUS_Y), [4.0]),
    "a diamond": (
        chain((2,), linear([X, Y], [0.0, 0.0]), absolute(), linear([[1.0, 1.0]], [-0.5]), absolute()),
        [0.125] * 4 + [0.875] * 4,
    ),
}
COUNTS = {"six lines through one point": 12, "the same six, each three times": 12, "a triple point": 3}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.every(2)
def test_polygons_are_those_found_by_hand(name):
    network, areas = CASES[name]
    plane = xl.restrict_plane(network, SQUARE)
    assert len(plane) == (COUNTS[name] if areas is None else len(areas))
    if areas is not None:
        assert sorted(plane.areas.tolist()) == pytest.approx(sorted(areas), abs=1e-14)
    generator = torch.Generator().manual_seed(0)
    checks.check_areas(plane, SQUARE)
    checks.check_convexity(plane)
    checks.check_edges(plane)
    checks.check_values(plane, network, SQUARE, generator, 1000)
    checks.check_lines(plane, network, SQUARE, generator, 20)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.every(2)
def test_lines_along_edges_and_through_corners_have_the_breaks_of_the_line(name):
    network, _ = CASES[name]
    plane = xl.restrict_plane(network, SQUARE)
    for a, b in [((-1, 0), (1, 0)), ((0, 1), (0, -1)), ((-1, -1), (1, 1)), ((1, -1), (-1, 1)), ((-1, -1), (1, -1))]:
        start, end = torch.tensor([a, b], dtype=torch.float64)
        truth, line = xl.restrict(network, start, end), plane.line(start + 1, end + 1)
        assert line.alphas.tolist() == pytest.approx(truth.alphas.tolist(), abs=1e-14), f"{a} to {b}"
        assert float((line.values - truth.values).abs().max()) <= 1e-14


@pytest.mark.parametrize("name", CASES)
def test_points_aligned_with_a_corner_are_located(name):
    network, _ = CASES[name]
    plane = xl.restrict_plane(network, SQUARE)
    steps = torch.linspace(0, 2, 17, dtype=torch.float64)
    grid = torch.cartesian_prod(steps, steps)
    truth = network(grid - 1)
    assert isinstance(truth, Tensor)
    assert float((plane.at(grid) - truth).abs().max()) <= 1e-14
    assert float((plane.at(plane.corners) - plane.values).abs().max()) <= 1e-14


@pytest.mark.parametrize("depth", [2, 4])
def test_tent_maps_make_a_chessboard(depth):
    ops: list[Op] = []
    weight = torch.tensor([[2.0], [4.0]])
    for _ in range(depth):
        ops += [linear(torch.block_diag(weight, weight), torch.tensor([0.0, -2.0, 0.0, -2.0])), relu()]
        weight = torch.tensor([[2.0, -2.0], [4.0, -4.0]])
    last = torch.tensor([[1.0, -1.0]])
    network = chain((2,), *ops, linear(torch.block_diag(last, last), [0.0, 0.0]))
    plane = xl.restrict_plane(network, (SQUARE + 1) / 2)
    assert len(plane) == 4**depth
    assert plane.areas.tolist() == pytest.approx([4.0**-depth] * 4**depth, rel=1e-12)
    side = 2**depth
    assert len(plane.corners) == (side + 1) ** 2


@pytest.mark.parametrize("widths", [(5, 20, 20, 20, 3), (100, 40, 40, 40, 40, 5)], ids=str)
def test_networks_without_biases_have_only_wedges(widths):
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        ops: list[Op] = []
        for a, b in pairwise(widths):
            weight = torch.randn(b, a, generator=generator, dtype=torch.float64) / a**0.5
            ops += [linear(weight, torch.zeros(b)), relu()]
        one, two = torch.randn(2, widths[0], generator=generator, dtype=torch.float64)
        vertices = torch.stack([one, two, -0.7 * (one + two)])
        plane = xl.restrict_plane(chain((widths[0],), *ops[:-1]), vertices)
        origin = checks.coordinates(vertices, torch.zeros(1, widths[0], dtype=torch.float64))
        for ring in checks.rings(plane):
            assert float((ring - origin).norm(dim=1).min()) <= 1e-12, "a polygon that is not a wedge"
        assert len(plane) > 50
