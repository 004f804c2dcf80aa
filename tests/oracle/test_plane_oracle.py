"""The oracle of planes itself: polygons solved by hand, ties of every kind, and lines against the line's oracle."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

import pytest
import torch
from torch import Tensor

from exactline import exact
from exactline.network.graph import Network
from exactline.ops.base import Op
from exactline.ops.functions import absolute, clamp, leaky_relu, relu
from exactline.ops.maximum import Maximum
from exactline.ops.order import Order
from tests.exact.networks import chain, linear, mlp, ranked, window

from . import polygons as pg
from .plane import ExactPlane, coordinates, restrict_plane

SQUARE = [[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]
QUARTER = [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]
X, Y = [1.0, 0.0], [0.0, 1.0]


def on(network: Network, vertices: list[list[float]] = SQUARE) -> ExactPlane:
    """The pieces, after the truths that hold for all."""
    tensor = torch.tensor(vertices, dtype=torch.float64)
    plane = restrict_plane(network, tensor)
    outline = pg.polygon(coordinates(tensor))
    assert sum(plane.areas) == pg.area(outline)
    for shape in plane.polygons:
        turns = zip(shape, shape[1:] + shape[:1], shape[2:] + shape[:2], strict=True)
        assert all(pg.turn(*three) > 0 for three in turns), "a corner that is not convex"
    return plane


def units(op: Op, *rows: list[float], offset: list[float] | None = None) -> Network:
    """An operator on functions of the plane, given by rows of weights."""
    return chain((2,), linear([*rows], [0.0] * len(rows) if offset is None else offset), op)


def shares(plane: ExactPlane) -> list[Fraction]:
    """Sorted areas as parts of the whole."""
    total = sum(plane.areas)
    return sorted(area / total for area in plane.areas)


def maximum(size: int, *, floor: bool = False, sign: int = 1) -> Maximum:
    return Maximum(torch.arange(size)[None], (1,), sign, floor)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_tent_maps_of_both_coordinates_make_a_chessboard(depth):
    ops: list[Op] = []
    weight, offset = torch.tensor([[2.0], [4.0]]), torch.tensor([0.0, -2.0])
    for _ in range(depth):
        ops += [linear(torch.block_diag(weight, weight), offset.repeat(2)), relu()]
        weight = torch.tensor([[2.0, -2.0], [4.0, -4.0]])
    last = torch.tensor([[1.0, -1.0]])
    plane = on(chain((2,), *ops, linear(torch.block_diag(last, last), [0.0, 0.0])), QUARTER)
    assert shares(plane) == [Fraction(1, 4**depth)] * 4**depth
    assert {v for i in range(len(plane)) for row in plane.values(i) for v in row} == {0, 1}


@pytest.mark.parametrize("seed", range(5))
def test_lines_in_general_position_make_one_piece_more_than_lines_and_crossings(seed):
    generator = torch.Generator().manual_seed(seed)
    rows, offset = torch.randn(9, 2, generator=generator), torch.randn(9, generator=generator) / 4
    triangle = [[-1.0, -1.0], [1.0, -1.0], [0.0, 1.0]]
    lines = [[Fraction(v) for v in (b, *row)] for row, b in zip(rows.tolist(), offset.tolist(), strict=True)]
    values = [[c + a * Fraction(x) + b * Fraction(y) for x, y in triangle] for c, a, b in lines]
    hitting = [line for line, v in zip(lines, values, strict=True) if min(v) < 0 < max(v)]
    crossings = 0
    for (c, a, b), (f, d, e) in combinations(hitting, 2):
        det = a * e - b * d
        x, y = (b * f - c * e) / det, (c * d - a * f) / det
        crossings += y > -1 and y < 1 - 2 * abs(x)
    plane = on(chain((2,), linear(rows.double(), offset.double()), relu()), triangle)
    assert len(plane) == 1 + len(hitting) + crossings
    assert crossings > 3


def test_a_sum_of_absolute_values_and_its_diamond():
    pyramid = [linear([X, Y], [0.0, 0.0]), absolute(), linear([[1.0, 1.0]], [-0.5])]
    assert shares(on(chain((2,), *pyramid))) == [Fraction(1, 4)] * 4
    diamond = on(chain((2,), *pyramid, absolute()))
    assert shares(diamond) == [Fraction(1, 32)] * 4 + [Fraction(7, 32)] * 4
    inside = min(range(8), key=lambda i: diamond.areas[i])
    assert sorted(v for (v,) in diamond.values(inside)) == [0, 0, Fraction(1, 2)]


def test_a_maximum_of_three_has_a_triple_point():
    plane = on(units(maximum(3), X, Y, [-1.0, -1.0]))
    assert len(plane) == 3
    common = set.intersection(*(set(shape) for shape in plane.polygons))
    assert [pg.point(at) for at in common] == [(0, Fraction(1, 2))]  # the origin: V2 - V0 is (2, 2)


def test_pooling_windows_are_laid_over_one_another():
    rows = [X, Y, [-1.0, -1.0]]
    moved = linear([*rows, *rows], [0.0, 0.0, 0.0, 0.25, 0.25, 0.0])
    both = Maximum(torch.tensor([[0, 1, 2], [3, 4, 5]]), (2,))
    # both triple points lie on x = y: one piece where -x - y leads in both, and a strip and a top on either side
    assert len(on(chain((2,), moved, both))) == 5
    twice = Maximum(torch.tensor([[0, 1, 2], [0, 1, 2]]), (2,))
    assert len(on(chain((2,), moved, twice))) == 3


def test_a_maximum_may_have_an_inner_cell():
    rows = [X, [-1.0, 0.0], Y, [0.0, -1.0], [0.0, 0.0]]
    plane = on(units(maximum(5), *rows, offset=[0.0, 0.0, 0.0, 0.0, 0.5]))
    assert shares(plane) == [Fraction(3, 16)] * 4 + [Fraction(1, 4)]
    least = on(units(maximum(5, sign=-1), *rows, offset=[0.0, 0.0, 0.0, 0.0, -0.5]))
    assert shares(least) == shares(plane)


def test_relu_fused_with_max_has_zero_as_a_rival():
    assert shares(on(units(maximum(2, floor=True), X, Y))) == [Fraction(1, 4), Fraction(3, 8), Fraction(3, 8)]
    swept_apart = chain((2,), linear([X, Y], [0.0, 0.0]), relu(), maximum(2))
    # swept apart, relu makes the quadrants first, and only where both are positive is there a lead to change
    assert len(on(swept_apart)) == 5
    other = chain((2,), linear([X, Y], [0.0, 0.0]), maximum(2), relu())
    assert len(on(other)) == 4  # x = y first, then each half where its leader is zero


def test_every_knot_cuts():
    both = units(clamp(-0.5, 0.5), X, Y)
    assert shares(on(both)) == [Fraction(1, 16)] * 4 + [Fraction(1, 8)] * 4 + [Fraction(1, 4)]
    assert len(on(both, [[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]])) == 1  # touched along every edge
    own_knots = clamp(torch.tensor([[-0.5, 0.0]]), torch.tensor([[0.5, 0.0]]))
    assert len(on(units(own_knots, X, Y))) == 6


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_concurrent_lines_and_duplicate_units_make_no_slivers(copies):
    fan = [X, Y, [1.0, 1.0], [1.0, -1.0], [1.0, 2.0], [3.0, -1.0]]
    rows = [[sign * v for v in row] for row in fan for sign in (1, -2, 4)[:copies]]
    plane = on(units(leaky_relu(0.5), *rows))
    assert len(plane) == 12
    assert len(set.intersection(*(set(shape) for shape in plane.polygons))) == 1


@pytest.mark.parametrize(
    ("row", "offset", "count"),
    [
        ([1.0, 0.0], 0.0, 1),  # zero on an edge
        ([0.0, 0.0], 0.0, 1),  # zero throughout
        ([0.0, 0.0], -1.0, 1),
        ([1.0, 1.0], 0.0, 1),  # touches one corner
        ([1.0, -1.0], 0.0, 2),  # through two corners
        ([2.0, -1.0], 0.0, 2),  # through one corner
        ([1.0, 0.0], -0.5, 2),
    ],
)
def test_touching_adds_nothing(row, offset, count):
    for op in (relu(), absolute(), leaky_relu(0.5)):
        assert len(on(units(op, row, offset=[offset]), QUARTER)) == count


def test_identical_functions_never_change_the_lead():
    assert len(on(units(maximum(4), X, X, Y, X))) == 2
    assert len(on(units(maximum(3), X, X, X))) == 1
    dead = chain((2,), linear([X, Y, Y], [-5.0, 0.0, 0.0]), relu(), maximum(3))
    assert len(on(dead)) == 2  # on the lower half all three are the constant 0


def test_a_leaky_unit_of_slope_one_cuts_though_nothing_bends():
    assert len(on(units(leaky_relu(1.0), X))) == 2


def test_sort_cuts_at_every_swap_and_ranks_only_where_a_source_changes():
    three = linear([X, Y, [0.0, 0.0]], [0.0, 0.0, 0.0])

    def count(*ranks: int) -> int:
        return len(on(chain((2,), three, Order(torch.arange(3)[None], torch.tensor(ranks), (len(ranks),)))))

    assert count(0, 1, 2) == 6
    assert count(0) == count(2) == 3  # as the maximum and the minimum
    assert count(0, 1) == count(1) == 6  # the median has one source in two opposite wedges
    assert count(1, 0) == 6


def test_a_median_between_a_function_and_its_negative_is_one_piece():
    rows = [X, [-1.0, 0.0], [0.0, 0.0], Y, [0.0, -1.0]]
    middle = Order(torch.arange(5)[None], torch.tensor([2]), (1,))
    plane = on(units(middle, *rows))
    assert len(plane) == 1
    assert plane.affine(0) == [(0, 0, 0)]
    assert not plane.loose


def test_regions_of_a_rank_that_are_not_convex_are_told():
    rows = [X, Y, [0.0, 0.0], [0.0, 0.0]]
    second = Order(torch.arange(4)[None], torch.tensor([1]), (1,))
    plane = on(units(second, *rows))  # 0 in three quadrants, the smaller of x and y in the fourth
    assert plane.loose


def test_several_vertices_must_lie_in_one_plane():
    with pytest.raises(ValueError, match="plane"):
        coordinates(torch.tensor([[0.0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0.5]]))
    with pytest.raises(ValueError, match="line"):
        coordinates(torch.tensor([[0.0, 0, 0], [1, 1, 0], [2, 2, 0]]))


def place(vertices: Tensor, s: int, t: int) -> Tensor:
    """The input at plane coordinates s / 64 and t / 64; exact for vertices that are small whole numbers."""
    return vertices[0] + (vertices[1] - vertices[0]) * s / 64 + (vertices[2] - vertices[0]) * t / 64


def network(kind: int) -> Network:
    lines = linear(torch.randn(4, 3, dtype=torch.float64), torch.randn(4, dtype=torch.float64))
    match kind % 4:
        case 0:
            return mlp([3, 4, 3, 2], integer_weights=kind % 8 == 0)
        case 1:
            return chain((3,), lines, maximum(4, floor=kind % 8 == 1), linear([[1.0], [-2.0]], [0.5, 0.0]), absolute())
        case 2:
            return chain((3,), lines, Order(torch.arange(4)[None], torch.tensor([1, 2][: 1 + kind % 3]), (-1,)), relu())
        case _:
            return chain((3,), lines, clamp(-0.5, 0.5), ranked(4, [0, 1, 2, 3]).nodes[1].op, window(4).nodes[1].op)


@pytest.mark.parametrize("kind", range(16))
def test_lines_in_the_plane_have_the_breaks_of_the_line_oracle(kind):
    torch.manual_seed(kind)
    net = network(kind)
    vertices = torch.tensor([[-2.0, 1, 0], [2, 0, -1], [0, -2, 3]], dtype=torch.float64)
    plane = restrict_plane(net, vertices)
    assert sum(plane.areas) == Fraction(1, 2)
    for a, b in [((1, 2), (37, 23)), ((60, 1), (3, 50)), ((5, 41), (31, 32)), ((13, 0), (0, 61))]:
        ends = [(Fraction(s, 64), Fraction(t, 64)) for s, t in (a, b)]
        line = exact.restrict(net, place(vertices, *a), place(vertices, *b))
        assert plane.breaks(*ends) == line.alphas
        for alpha in line.alphas:
            s, t = (p + alpha * (q - p) for p, q in zip(*ends, strict=True))
            found = [
                [c + d * s + e * t for c, d, e in plane.affine(i)]
                for i, shape in enumerate(plane.polygons)
                if all(pg.turn(u, v, pg.corner(s, t)) >= 0 for u, v in zip(shape, shape[1:] + shape[:1], strict=True))
            ]
            assert found
            assert all(value == line.value(alpha) for value in found)
