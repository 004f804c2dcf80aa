"""Hard places of planes: points in line with a corner, in any direction."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

import exactline as xl
from tests.plane import checks
from tests.plane.families import case


@pytest.mark.parametrize("seed", range(0, 57, 7))
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
