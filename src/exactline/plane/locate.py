"""Which polygon holds a point: the edge right below it tells."""

from __future__ import annotations

import numpy as np

from .rows import Floats, Ints, spans

TURN = np.array([[np.cos(0.7), -np.sin(0.7)], [np.sin(0.7), np.cos(0.7)]])  # networks like upright edges, we do not
MOST = 8  # slabs hold each edge so often on average, at most


class Locator:
    """Edges sorted into vertical slabs, made once and asked often."""

    def __init__(self, places: Floats, ends: Ints, sides: Ints) -> None:
        places = places @ TURN
        left, right = places[ends[:, 0]], places[ends[:, 1]]
        flip = left[:, 0] > right[:, 0]
        self.left, self.right = np.where(flip[:, None], right, left), np.where(flip[:, None], left, right)
        upright = self.left[:, 0] == self.right[:, 0]
        self.above = np.where(flip, sides[:, 1], sides[:, 0])  # a polygon to the left of the way rightwards is above
        self.below = np.where(flip, sides[:, 0], sides[:, 1])
        self.low, self.high = float(places[:, 0].min()), float(places[:, 0].max())
        edges = np.flatnonzero(~upright)
        self.slabs = max(1, int(len(edges) ** 0.5))
        while True:
            first, last = self._slab(self.left[edges, 0]), self._slab(self.right[edges, 0])
            total = int((last - first + 1).sum())
            if total <= MOST * len(edges) or self.slabs == 1:
                break
            self.slabs = max(1, self.slabs // 2)
        slab = spans(first, last - first + 1)
        owner = edges.repeat(last - first + 1)
        order = np.argsort(slab, kind="stable")
        self.edge = owner[order]
        self.start = np.searchsorted(slab[order], np.arange(self.slabs + 1))

    def _slab(self, x: Floats) -> Ints:
        share = (x - self.low) / max(self.high - self.low, np.finfo(float).tiny)
        return np.clip((share * self.slabs).astype(np.int64), 0, self.slabs - 1)

    def __call__(self, points: Floats) -> Ints:
        """The polygon of each point, (n,), or -1 outside; on an edge, one of its two."""
        points = points @ TURN
        found = np.full(len(points), -1)
        inside = (points[:, 0] >= self.low) & (points[:, 0] <= self.high)
        rows = np.flatnonzero(inside)
        rows = rows[np.argsort(points[rows, 0], kind="stable")]
        slab = self._slab(points[rows, 0])
        count = self.start[slab + 1] - self.start[slab]
        ends = count.cumsum()
        at = 0
        while at < len(rows):
            to = max(at + 1, int(np.searchsorted(ends, (ends[at - 1] if at else 0) + (1 << 23))))
            found[rows[at:to]] = self._among(points[rows[at:to]], slab[at:to], count[at:to])
            at = to
        return found

    def _among(self, points: Floats, slab: Ints, count: Ints) -> Ints:
        edge = self.edge[spans(self.start[slab], count)]
        which = np.arange(len(points)).repeat(count)
        x = points[which, 0]
        left, right = self.left[edge], self.right[edge]
        last = x >= self.high  # the rightmost points belong to the edges that end there
        over = (left[:, 0] <= x) & ((x < right[:, 0]) | (last & (x <= right[:, 0])))
        edge, which, x, left, right = edge[over], which[over], x[over], left[over], right[over]
        height = left[:, 1] + (right[:, 1] - left[:, 1]) * ((x - left[:, 0]) / (right[:, 0] - left[:, 0]))
        gap = points[which, 1] - height
        found = np.full(len(points), -1)
        for under, beside in ((gap >= 0, self.above), (gap < 0, self.below)):
            # the nearest edge below; where nothing is below it or it has nothing above, the nearest edge above
            some = np.flatnonzero(under)
            order = some[np.lexsort((np.abs(gap[some]), which[some]))]
            point, lead = np.unique(which[order], return_index=True)
            polygon = beside[edge[order[lead]]]
            missing = found[point] < 0
            found[point[missing]] = polygon[missing]
        return found
