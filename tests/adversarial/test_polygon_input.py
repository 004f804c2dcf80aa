"""Invalid polygons: each is refused with a typed error that names the problem."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import exactline as xl
from exactline.ops.functions import relu
from tests.exact.networks import chain, linear
from tests.oracle.families import seeded

NET = seeded(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), torch.Generator().manual_seed(0))
SQUARE = [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
TRIANGLE = SQUARE[:3]


def assert_refused(vertices: Any, word: str) -> None:
    with pytest.raises(xl.PlaneError, match=word) as error:
        xl.restrict_plane(NET, vertices)
    assert error.value.where
    assert error.value.hint


def star() -> list[list[float]]:
    """A pentagram: every turn is to the left, and the corners go around twice."""
    return [[math.cos(0.8 * math.pi * k), math.sin(0.8 * math.pi * k), 0.0] for k in range(5)]


@pytest.mark.parametrize(
    ("vertices", "word"),
    [
        ([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [2.0, 4.0, 6.0]], "line"),
        ([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [2.0, 1e-13, 0.0]], "line"),
        ([[0.1 * k, 0.3 * k, -0.7 * k] for k in range(5)], "line"),
        ([*TRIANGLE, [0.0, 1.0, 0.5]], "plane"),
        ([*TRIANGLE, [0.0, 1.0, 1e-6]], "plane"),
        ([SQUARE[0], SQUARE[2], SQUARE[1], SQUARE[3]], "convex"),  # a bow tie
        ([*SQUARE[:3], [0.75, 0.5, 0.0]], "convex"),  # a dent
        (star(), "convex"),
        ([*TRIANGLE, SQUARE[0]], "same"),  # the first corner repeated, as in other tools
        ([SQUARE[0], SQUARE[0], SQUARE[2]], "same"),
        ([SQUARE[0], SQUARE[0], SQUARE[0]], "same"),
        ([*SQUARE, SQUARE[1]], "same"),
    ],
)
def test_corners_of_no_convex_polygon_are_refused(vertices, word):
    assert_refused(vertices, word)
    assert_refused([[1e6 * v for v in row] for row in vertices], word)  # whatever the scale
    assert_refused([[1e-9 * v for v in row] for row in vertices], word)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_points_that_are_not_finite_are_refused(bad):
    assert_refused([*TRIANGLE[:2], [1.0, bad, 0.0]], "NaN|finite|infinit")


@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_than_three_corners_are_refused(count):
    assert_refused(torch.tensor(SQUARE)[:count], "corner")


@pytest.mark.parametrize(
    "vertices",
    [
        torch.zeros(()),
        torch.zeros(3),
        [[0.0, 0.0, 0.0], [1.0, 0.0], [1.0, 1.0, 0.0]],  # ragged
        "a triangle",
        None,
        [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1j, 1.0, 0.0]],
        np.array([["a", "b", "c"]] * 3),
    ],
)
def test_values_that_are_not_corners_are_refused(vertices):
    assert_refused(vertices, "corners|array|type|empty")


@pytest.mark.parametrize("shape", [(3, 4), (3, 2, 3), (3, 2)])
def test_corners_of_another_shape_than_the_inputs_are_refused(shape):
    network = chain((3,), linear(torch.eye(3), torch.zeros(3)), relu())
    vertices = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    with pytest.raises(xl.PlaneError, match="shape"):
        xl.restrict_plane(network, vertices)
    if shape[-1] != 3:  # a module is only traced, and this one takes any number of rows
        with pytest.raises(xl.ExactlineError):
            xl.restrict_plane(NET, vertices)


def test_both_orientations_and_straight_corners_are_accepted():
    orders = [SQUARE, SQUARE[::-1], SQUARE[1:] + SQUARE[:1], [SQUARE[0], [0.5, 0.0, 0.0], *SQUARE[1:]]]
    planes = [xl.restrict_plane(NET, order) for order in orders]
    assert len({len(plane) for plane in planes}) == 1
    for plane in planes:
        assert float(plane.areas.sum()) == pytest.approx(1.0, rel=1e-12)


@pytest.mark.parametrize("point", [[2.0, 0.5], [0.5, -0.1], [math.nan, 0.5], [0.5], [0.1, 0.2, 0.3], "here"])
def test_points_outside_the_polygon_are_refused(point):
    plane = xl.restrict_plane(NET, SQUARE)
    for call in (lambda: plane.at([point]), lambda: plane.locate([point]), lambda: plane.line(point, [0.5, 0.5])):
        with pytest.raises(xl.PlaneError) as error:
            call()
        assert error.value.hint


@pytest.mark.parametrize("index", [-100, 100, 1.5, None])
def test_polygons_that_do_not_exist_are_refused(index):
    plane = xl.restrict_plane(NET, SQUARE)
    with pytest.raises(xl.ExactlineError, match="polygons"):
        plane.polygon(index)
