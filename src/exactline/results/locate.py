"""Which polygon holds a point: a grid of cells, each with the polygons that reach into it."""

from __future__ import annotations

import numpy as np

from ..arrays import Floats, Ints
from ..engines.polygons.growable import count_within, expand_ranges

MAX_CELLS_PER_POLYGON = 16  # cells that a polygon reaches into on average, at most
MAX_CANDIDATES = 1 << 22  # candidates looked at together


class Locator:
    """Made once and asked often; coordinates are scaled to about 1."""

    def __init__(self, places: Floats, ends: Ints, sides: Ints, offsets: Ints, rings: Ints) -> None:
        self.places, self.offsets, self.rings = places, offsets, rings
        self.low = places.min(0)
        self.size = float(np.ptp(places, axis=0).max()) * (1 + 1e-9)
        self.grid = max(1, int((len(offsets) - 1) ** 0.5))
        while True:
            polygon, row, first, last = self._reach(ends, sides)
            total = int((last - first + 1).sum())
            if total <= MAX_CELLS_PER_POLYGON * (len(offsets) - 1) or self.grid == 1:
                break
            self.grid = max(1, self.grid // 2)
        cell = expand_ranges(row * self.grid + first, last - first + 1)
        owner = polygon.repeat(last - first + 1)
        order = np.argsort(cell, kind="stable")
        self.polygon = owner[order]
        self.start = np.searchsorted(cell[order], np.arange(self.grid**2 + 1))

    def _cell(self, along: Floats) -> Ints:
        return np.clip(np.floor(along), 0, self.grid - 1).astype(np.int64)

    def _reach(self, ends: Ints, sides: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """For every polygon and row of cells that it reaches into: the first and the last cell."""
        spot = (self.places - self.low) / self.size * self.grid
        one, two = spot[ends[:, 0]], spot[ends[:, 1]]
        one, two = (np.where((one[:, 1] > two[:, 1])[:, None], *pair) for pair in ((two, one), (one, two)))
        pad = 1e-9 * self.grid
        low, high = self._cell(one[:, 1] - pad), self._cell(two[:, 1] + pad)
        count = high - low + 1
        edge, row = np.arange(len(ends)).repeat(count), expand_ranges(low, count)
        base, step = one[edge], (two - one)[edge]
        with np.errstate(all="ignore"):  # a level edge is all in one row, or in two by the pad
            part = [
                np.clip(np.nan_to_num((y - base[:, 1]) / step[:, 1], nan=k), 0, 1) for k, y in enumerate((row, row + 1))
            ]
        level = np.abs(step[:, 1]) <= pad
        x = [base[:, 0] + np.where(level, float(k), part[k]) * step[:, 0] for k in (0, 1)]
        left, right = np.minimum(*x) - pad, np.maximum(*x) + pad
        key = np.concatenate([sides[edge, k] * self.grid + row for k in (0, 1)])
        inside = np.flatnonzero(np.concatenate([sides[edge, k] >= 0 for k in (0, 1)]))
        key, left, right = key[inside], np.tile(left, 2)[inside], np.tile(right, 2)[inside]
        order = np.argsort(key, kind="stable")
        lead = np.flatnonzero(np.insert(key[order][1:] != key[order][:-1], 0, True))
        first = self._cell(np.minimum.reduceat(left[order], lead))
        last = self._cell(np.maximum.reduceat(right[order], lead))
        found = key[order][lead]
        return found // self.grid, found % self.grid, first, last

    def __call__(self, points: Floats) -> tuple[Ints, Floats]:
        """The polygon of each point, (n,), and how far inside it the point is; negative where it is outside of all."""
        spot = (points - self.low) / self.size * self.grid
        cell = self._cell(spot[:, 1]) * self.grid + self._cell(spot[:, 0])
        count = self.start[cell + 1] - self.start[cell]
        found, depth = np.zeros(len(points), dtype=np.int64), np.full(len(points), -np.inf)
        ends, at = count.cumsum(), 0
        while at < len(points):
            to = max(at + 1, int(np.searchsorted(ends, (ends[at - 1] if at else 0) + MAX_CANDIDATES, side="right")))
            which = np.arange(at, to).repeat(count[at:to])
            candidate = self.polygon[expand_ranges(self.start[cell[at:to]], count[at:to])]
            deep = self.depth(points[which], candidate)
            order = np.lexsort((-deep, which))
            lead = order[np.unique(which[order], return_index=True)[1]]
            found[which[lead]], depth[which[lead]] = candidate[lead], deep[lead]
            at = to
        return found, depth

    def depth(self, points: Floats, polygon: Ints) -> Floats:
        """How far inside its polygon each point is, (n,); negative outside."""
        first, count = self.offsets[polygon], self.offsets[polygon + 1] - self.offsets[polygon]
        if not len(count):
            return np.zeros(0)
        step, base, size = count_within(count), first.repeat(count), count.repeat(count)
        here, there = self.rings[base + step], self.rings[base + (step + 1) % size]
        way, away = self.places[there] - self.places[here], points.repeat(count, 0) - self.places[here]
        cross = way[:, 0] * away[:, 1] - way[:, 1] * away[:, 0]
        with np.errstate(all="ignore"):
            gap = np.nan_to_num(cross / np.hypot(way[:, 0], way[:, 1]), nan=0.0)
        return np.minimum.reduceat(gap, count.cumsum() - count)
