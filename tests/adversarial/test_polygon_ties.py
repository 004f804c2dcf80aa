"""Hard planes: regions that are not convex, polygons of area 1e-10, points aligned with corners."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import exactline as xl
from exactline.ops.functions import relu
from tests.engines.polygons import checks
from tests.engines.polygons.families import make_case
from tests.engines.polygons.test_by_hand import SQUARE, ZERO, X, Y, ranks, units
from tests.exact.networks import chain, linear
from tests.oracle.plane import restrict_plane


def rank_of_integer_units(seed: int):
    """Small integer weights, ReLU and a rank: units that are off are identical functions."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randint(-2, 3, (6, 2), generator=generator).double()
    bias = torch.randint(-1, 2, (6,), generator=generator).double()
    return chain((2,), linear(weight, bias), relu(), ranks(6, 2 + seed % 2))


@pytest.mark.parametrize("seed", [None, *range(30)])
@pytest.mark.every(8)
def test_a_rank_shared_by_identical_functions_has_convex_polygons(seed):
    network = units(ranks(4, 1), X, Y, ZERO, ZERO) if seed is None else rank_of_integer_units(seed)
    vertices = SQUARE * 3
    plane, exact = xl.restrict_plane(network, vertices), restrict_plane(network, vertices)
    generator = torch.Generator().manual_seed(0)
    checks.check_areas(plane, vertices)
    checks.check_convexity(plane)
    checks.check_edges(plane)
    checks.check_disjoint(plane, generator)
    checks.check_values(plane, network, vertices, generator, 1000)
    if exact.loose:  # a region of one source is not convex: it may be divided in any way, at most by the full order
        assert len(plane) <= len(exact)
    else:
        checks.check_against_oracle(plane, exact, vertices)


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
@pytest.mark.every(9)
def test_points_aligned_with_a_corner_are_located_in_every_direction(seed):
    case = make_case(seed)
    plane = xl.restrict_plane(case.network, case.vertices)
    extent = float((plane.outline.amax(0) - plane.outline.amin(0)).max())
    centroid = plane.outline.mean(0)
    for angle in (0.0, 0.7, math.pi / 4, math.pi / 2, math.pi / 2 - 0.7, math.pi / 2 + 0.7, 2.0, -0.7):
        direction = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
        points = torch.cat([plane.corners + step * extent * direction for step in (-0.1, -0.01, 0.01, 0.05)])
        side = plane.outline.roll(-1, 0) - plane.outline
        offset = points[:, None] - plane.outline
        points = points[(side[:, 0] * offset[..., 1] - side[:, 1] * offset[..., 0] > 1e-9 * extent**2).all(1)]
        points = torch.cat([points, centroid[None]])
        truth = case.network(plane.lift(points))
        assert isinstance(truth, Tensor)
        size = 1e-300 + float(plane.values.abs().max())
        assert float((plane.at(points) - truth).abs().max()) <= checks.VALUE_TOLERANCE * size
