"""Hard places of planes: regions that are not convex, polygons of 1e-10, points in line with corners."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import exactline as xl
from exactline.ops.functions import relu
from tests.engines.polygons import checks
from tests.engines.polygons.families import case
from tests.engines.polygons.test_by_hand import SQUARE, ZERO, X, Y, ranks, units
from tests.exact.networks import chain, linear
from tests.oracle.plane import restrict_plane


def whole_order(seed: int):
    """Small whole weights, ReLU and a rank: dead units are identical functions."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randint(-2, 3, (6, 2), generator=generator).double()
    bias = torch.randint(-1, 2, (6,), generator=generator).double()
    return chain((2,), linear(weight, bias), relu(), ranks(6, 2 + seed % 2))


@pytest.mark.parametrize("seed", [None, *range(30)])
def test_a_rank_held_by_identical_functions_has_convex_pieces_too(seed):
    network = units(ranks(4, 1), X, Y, ZERO, ZERO) if seed is None else whole_order(seed)
    vertices = SQUARE * 3
    plane, exact = xl.restrict_plane(network, vertices), restrict_plane(network, vertices)
    generator = torch.Generator().manual_seed(0)
    checks.fills_the_whole(plane, vertices)
    checks.is_convex(plane)
    checks.edges_fit(plane)
    checks.is_disjoint(plane, generator)
    checks.equals_the_network(plane, network, vertices, generator, 1000)
    if exact.loose:  # a region of one source is not convex: how to divide it is free, down to the full order
        assert len(plane) <= len(exact)
    else:
        checks.equals_the_oracle(plane, exact, vertices)


def test_values_in_a_polygon_of_1e_minus_10_keep_their_digits():
    bends = linear([[3.0, 1.0], [3.0, 1.0], [100.0, -70.0]], [-1.0, -1.0 - 1e-10, 1000.0])
    network = chain((2,), bends, relu(), linear([[1.0, 1.0, 1.0]], [-1000.0]))
    plane = xl.restrict_plane(network, SQUARE)
    thin = int(plane.areas.argmin())
    assert 0 < float(plane.areas[thin]) < 1e-9
    ring = plane.polygon(thin).corners
    shares = torch.rand(2000, len(ring), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    points = (shares / shares.sum(1, keepdim=True)) @ ring
    truth = network(points - 1)
    assert isinstance(truth, Tensor)
    assert float((plane.at(points) - truth).abs().max()) <= 1e-11 * float(truth.abs().max())


@pytest.mark.parametrize("seed", range(0, 57, 3))
def test_points_in_line_with_a_corner_are_found_in_every_direction(seed):
    one = case(seed)
    plane = xl.restrict_plane(one.network, one.vertices)
    extent = float((plane.outline.amax(0) - plane.outline.amin(0)).max())
    middle = plane.outline.mean(0)
    for angle in (0.0, 0.7, math.pi / 4, math.pi / 2, math.pi / 2 - 0.7, math.pi / 2 + 0.7, 2.0, -0.7):
        way = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
        points = torch.cat([plane.corners + step * extent * way for step in (-0.1, -0.01, 0.01, 0.05)])
        side = plane.outline.roll(-1, 0) - plane.outline
        gap = points[:, None] - plane.outline
        points = points[(side[:, 0] * gap[..., 1] - side[:, 1] * gap[..., 0] > 1e-9 * extent**2).all(1)]
        points = torch.cat([points, middle[None]])
        truth = one.network(plane.lift(points))
        assert isinstance(truth, Tensor)
        size = 1e-300 + float(plane.values.abs().max())
        assert float((plane.at(points) - truth).abs().max()) <= checks.VALUE * size
