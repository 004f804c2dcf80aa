"""Point location in the polygons of a plane, and points as convex combinations of three corners."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..engines.polygons.growable import count_within, expand_ranges
from ..tolerances import CELL_PADDING

MAX_CELLS_PER_POLYGON = 16  # average number of cells that a polygon overlaps; a finer grid would waste memory
MAX_CANDIDATES = 1 << 22  # pairs of a point and a polygon that are tested together


class Locator:
    """A grid of cells, each with the polygons that overlap it; built once for many points.

    Args:
        corners: Coordinates of all corners, (corners, 2), scaled to about 1.
        ends: The corners at both ends of each edge, (edges, 2).
        sides: The polygons to the left and to the right of each edge, (edges, 2), -1 outside.
        offsets: The first entry of each polygon in rings, (polygons + 1,).
        rings: Corners of all polygons, counterclockwise, concatenated.
    """

    def __init__(self, corners: Floats, ends: Ints, sides: Ints, offsets: Ints, rings: Ints) -> None:
        self.corners, self.offsets, self.rings = corners, offsets, rings
        self.low = corners.min(0)
        self.size = float(np.ptp(corners, axis=0).max()) * (1 + CELL_PADDING)
        self.grid = max(1, int((len(offsets) - 1) ** 0.5))
        while True:
            polygon, row, first, last = self._overlapped_cells(ends, sides)
            total = int((last - first + 1).sum())
            if total <= MAX_CELLS_PER_POLYGON * (len(offsets) - 1) or self.grid == 1:
                break
            self.grid = max(1, self.grid // 2)
        cell = expand_ranges(row * self.grid + first, last - first + 1)
        owner = polygon.repeat(last - first + 1)
        order = np.argsort(cell, kind="stable")
        self.polygon = owner[order]
        self.start = np.searchsorted(cell[order], np.arange(self.grid**2 + 1))

    def __call__(self, points: Floats) -> tuple[Ints, Floats]:
        """The polygon of each point (n, 2), and the point's depth in it, (n,) each; negative outside all polygons."""
        position = (points - self.low) / self.size * self.grid
        cell = self._cell(position[:, 1]) * self.grid + self._cell(position[:, 0])
        count = self.start[cell + 1] - self.start[cell]
        polygon, depth = np.zeros(len(points), dtype=np.int64), np.full(len(points), -np.inf)
        ends, at = count.cumsum(), 0
        while at < len(points):
            to = max(at + 1, int(np.searchsorted(ends, (ends[at - 1] if at else 0) + MAX_CANDIDATES, side="right")))
            point = np.arange(at, to).repeat(count[at:to])
            candidate = self.polygon[expand_ranges(self.start[cell[at:to]], count[at:to])]
            candidate_depth = self._depth(points[point], candidate)
            deepest = _first_of_each(point, -candidate_depth)
            polygon[point[deepest]], depth[point[deepest]] = candidate[deepest], candidate_depth[deepest]
            at = to
        return polygon, depth

    def _cell(self, position: Floats) -> Ints:
        return np.clip(np.floor(position), 0, self.grid - 1).astype(np.int64)

    def _overlapped_cells(self, ends: Ints, sides: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """For each polygon and each row of cells that it overlaps: polygon, row, first cell and last cell."""
        position = (self.corners - self.low) / self.size * self.grid
        lower, upper = position[ends[:, 0]], position[ends[:, 1]]
        is_down = (lower[:, 1] > upper[:, 1])[:, None]
        lower, upper = np.where(is_down, upper, lower), np.where(is_down, lower, upper)
        pad = CELL_PADDING * self.grid
        low, high = self._cell(lower[:, 1] - pad), self._cell(upper[:, 1] + pad)
        count = high - low + 1
        edge, row = np.arange(len(ends)).repeat(count), expand_ranges(low, count)
        base, step = lower[edge], (upper - lower)[edge]
        with np.errstate(all="ignore"):  # a horizontal edge divides by zero: it is in one row, or by padding in two
            part = [
                np.clip(np.nan_to_num((y - base[:, 1]) / step[:, 1], nan=k), 0, 1) for k, y in enumerate((row, row + 1))
            ]
        is_horizontal = np.abs(step[:, 1]) <= pad
        x = [base[:, 0] + np.where(is_horizontal, float(k), part[k]) * step[:, 0] for k in (0, 1)]
        left, right = np.minimum(*x) - pad, np.maximum(*x) + pad
        key = np.concatenate([sides[edge, k] * self.grid + row for k in (0, 1)])
        inside = np.flatnonzero(np.concatenate([sides[edge, k] >= 0 for k in (0, 1)]))
        key, left, right = key[inside], np.tile(left, 2)[inside], np.tile(right, 2)[inside]
        order = np.argsort(key, kind="stable")
        leads = np.flatnonzero(np.insert(key[order][1:] != key[order][:-1], 0, True))
        first = self._cell(np.minimum.reduceat(left[order], leads))
        last = self._cell(np.maximum.reduceat(right[order], leads))
        distinct = key[order][leads]
        return distinct // self.grid, distinct % self.grid, first, last

    def _depth(self, points: Floats, polygon: Ints) -> Floats:
        """The distance of each point (n, 2) to the nearest side of its polygon, (n,); negative outside."""
        first, count = self.offsets[polygon], self.offsets[polygon + 1] - self.offsets[polygon]
        if not len(count):
            return np.zeros(0)
        step, base, size = count_within(count), first.repeat(count), count.repeat(count)
        corner, successor = self.rings[base + step], self.rings[base + (step + 1) % size]
        side, offset = self.corners[successor] - self.corners[corner], points.repeat(count, 0) - self.corners[corner]
        cross = side[:, 0] * offset[:, 1] - side[:, 1] * offset[:, 0]
        with np.errstate(all="ignore"):
            distance = np.nan_to_num(cross / np.hypot(side[:, 0], side[:, 1]), nan=0.0)
        return np.minimum.reduceat(distance, count.cumsum() - count)


def polygon_area(corners: Tensor) -> float:  # (k, 2)
    """The area of a polygon whose corners are in counterclockwise order."""
    x, y = (corners - corners[0]).T
    return float((x * y.roll(-1) - y * x.roll(-1)).sum() / 2)


def enclosing_triangles(
    points: Floats,  # (n, 2)
    rings: Ints,
    first: Ints,  # (n,) first entry of each point's polygon in rings
    count: Ints,  # (n,) number of its corners
    corners: Floats,  # (corners, 2)
) -> tuple[Tensor, Tensor]:
    """The triangle around each point, out of the fan of triangles from its polygon's first corner.

    Returns the three corners (n, 3) and their weights (n, 3), which sum to 1: barycentric coordinates.
    """
    point = np.arange(len(points)).repeat(count - 2)
    step = count_within(count - 2)
    base = first[point]
    triangle = np.stack([rings[base], rings[base + step + 1], rings[base + step + 2]], 1)
    a, b, c = (corners[triangle[:, k]] for k in range(3))
    weights, depth = _barycentric(points[point], a, b, c)
    chosen = _first_of_each(point, -depth)
    inside = weights[chosen].clip(0)
    inside[inside.sum(1) == 0] = 1.0  # a polygon without width: any weights will do before they are corrected
    inside /= inside.sum(1, keepdims=True)
    return (
        torch.from_numpy(triangle[chosen]),
        torch.from_numpy(_correct_weights(points, corners[triangle[chosen]], inside)),
    )


def _first_of_each(group: Ints, key: Floats) -> Ints:
    """The index of the smallest key in each group, in the order of the groups."""
    order = np.lexsort((key, group))
    return order[np.unique(group[order], return_index=True)[1]]


def _correct_weights(points: Floats, triangles: Floats, weights: Floats) -> Floats:
    """Correct weights so that thin triangles give their point too: the residual is moved along the longest side."""
    residual = points - (weights[:, :, None] * triangles).sum(1)
    side = np.roll(triangles, -1, 1) - triangles
    length = (side**2).sum(2)
    longest, row = length.argmax(1), np.arange(len(points))
    direction, size = side[row, longest], length[row, longest]
    step = np.divide((residual * direction).sum(1), size, out=np.zeros(len(points)), where=size > 0)
    weights[row, (longest + 1) % 3] += step
    weights[row, longest] -= step
    return weights


def _barycentric(p: Floats, a: Floats, b: Floats, c: Floats) -> tuple[Floats, Floats]:
    """Barycentric coordinates (n, 3) of points in triangles, and the points' depths, (n,), negative outside.

    A triangle without area has a depth of minus infinity. Rounding moves the coordinates in a thin triangle by far more
    than a point's depth in it.
    """

    def cross(u: Floats, v: Floats) -> Floats:
        return u[:, 0] * v[:, 1] - u[:, 1] * v[:, 0]

    parts = np.stack([cross(b - p, c - p), cross(c - p, a - p), cross(a - p, b - p)], 1)
    total = parts.sum(1, keepdims=True)
    is_degenerate = total[:, 0] <= 0
    with np.errstate(all="ignore"):
        weights = parts / total
        depth = (parts / np.stack([np.hypot(*side.T) for side in (c - b, a - c, b - a)], 1)).min(1)
    weights[is_degenerate], depth[is_degenerate] = [-np.inf, 0.0, 0.0], -np.inf
    return weights, depth
