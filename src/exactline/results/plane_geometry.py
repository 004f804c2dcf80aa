"""The geometry of a plane's polygons: areas, point location, and points as convex combinations of corners."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..errors import PlaneError
from ..tolerances import OUTSIDE_TOLERANCE
from .locate import Locator, enclosing_triangles, polygon_area


@dataclass(frozen=True, eq=False)
class PlaneGeometry:
    """The polygons of a plane. Computes in coordinates of extent 1: products of huge coordinates would overflow."""

    outline: Tensor  # (k, 2) plane coordinates of the vertices
    weights: Tensor  # (corners, k) every corner as a convex combination of the vertices
    edges: Tensor  # (edges, 2) corners at both ends
    sides: Tensor  # (edges, 2) polygons to the left and to the right of an edge, -1 outside
    offsets: Tensor  # (polygons + 1,) first entry of each polygon in rings
    rings: Tensor  # corners of all polygons, counterclockwise, concatenated

    @cached_property
    def extent(self) -> float:
        """The larger side of the bounding box of the whole, in plane coordinates."""
        return float((self.outline.amax(0) - self.outline.amin(0)).max())

    @cached_property
    def unit_corners(self) -> Floats:
        """Corners (corners, 2) scaled to an extent of 1."""
        return (self.weights @ (self.outline / self.extent)).numpy()

    @cached_property
    def unit_areas(self) -> Tensor:
        """The area of each polygon at an extent of 1, (polygons,)."""
        ring, first = self.unit_corners[self.rings.numpy()], self.offsets[:-1].numpy()
        count = np.diff(self.offsets.numpy())
        base = ring - ring[first].repeat(count, 0)  # relative to a corner, so that small polygons keep their digits
        successor = np.arange(len(ring)) + 1
        successor[first + count - 1] = first
        cross = base[:, 0] * base[successor, 1] - base[:, 1] * base[successor, 0]
        return torch.from_numpy(np.add.reduceat(cross, first) / 2)

    @property
    def unit_area(self) -> float:
        """The area of the whole at an extent of 1."""
        return polygon_area(self.outline / self.extent)

    def locate(self, points: Floats) -> Ints:
        """The polygon of each point (n, 2), (n,); raises PlaneError for points outside all polygons."""
        polygon, depth = self._locator(points / self.extent)
        if (depth < -OUTSIDE_TOLERANCE).any():
            x, y = points[depth < -OUTSIDE_TOLERANCE][0].tolist()
            raise PlaneError(
                f"The point ({x:g}, {y:g}) is outside the polygon.",
                where="argument points",
                hint="Points off the polygon are not covered; plane.outline has its corners.",
            )
        return polygon

    def corner_weights(self, points: Floats) -> tuple[Tensor, Tensor]:
        """Each point (n, 2) as a convex combination of three corners of its polygon: corners, weights, (n, 3) each."""
        rings, offsets = self.rings.numpy(), self.offsets.numpy()
        polygon = self.locate(points)
        count = offsets[polygon + 1] - offsets[polygon]
        return enclosing_triangles(points / self.extent, rings, offsets[polygon], count, self.unit_corners)

    def vertex_weights(self, points: Floats) -> Tensor:
        """Each point (n, 2) as a convex combination of the vertices, (n, k); at most three weights are not 0."""
        self.locate(points)
        count = len(self.outline)
        ring, first = np.arange(count), np.zeros(len(points), dtype=np.int64)
        outline = (self.outline / self.extent).numpy()
        triangle, weight = enclosing_triangles(points / self.extent, ring, first, first + count, outline)
        weights = np.zeros((len(points), count))
        np.put_along_axis(weights, triangle.numpy(), weight.numpy(), 1)
        return torch.from_numpy(weights)

    @cached_property
    def _locator(self) -> Locator:
        return Locator(self.unit_corners, *(t.numpy() for t in (self.edges, self.sides, self.offsets, self.rings)))
