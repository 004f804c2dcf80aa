"""Convex polygons that share corners and edges: only who meets whom, no coordinates."""

from __future__ import annotations

import numpy as np

from ...arrays import Ints
from .growable import GrowableArray, Mask, connected_components, count_within, expand_ranges

OUTSIDE = -1


class Mesh:
    """Polygons as closed lists of corners, counterclockwise, and of the edges that follow them.

    A list is never changed: a polygon gets a new one, and what is left behind goes when the mesh is packed.
    """

    def __init__(
        self,
        ends: Ints,
        born: Ints,
        sides: Ints,
        first: Ints,
        count: Ints,
        corners: Ints,
        rims: Ints,
        seam: Ints | None = None,
    ) -> None:
        self._ends, self._born, self._sides = GrowableArray(ends), GrowableArray(born), GrowableArray(sides)
        self._first, self._count = GrowableArray(first), GrowableArray(count)
        self._corners, self._rims = GrowableArray(corners), GrowableArray(rims)
        self._seam = GrowableArray(np.full(len(ends), -1) if seam is None else seam)
        self._extra = GrowableArray(np.zeros(len(ends), dtype=np.int64))  # scratch, all zero between calls
        self._begin = GrowableArray(np.zeros(len(ends), dtype=np.int64))  # scratch

    @staticmethod
    def polygon(corners: int) -> Mesh:
        """A single polygon."""
        ring = np.arange(corners)
        ends = np.stack([ring, np.roll(ring, -1)], 1)
        sides = np.stack([np.zeros_like(ring), np.full_like(ring, OUTSIDE)], 1)
        born = np.tile(np.array([-1, 0, 0]), (corners, 1))
        return Mesh(ends, born, sides, np.array([0]), np.array([corners]), ring, ring.copy())

    def __len__(self) -> int:
        return len(self._first)

    @property
    def ends(self) -> Ints:
        """(edges, 2) corners."""
        return self._ends.all

    @property
    def origins(self) -> Ints:
        """(edges, 3) node or -1, unit, count."""
        return self._born.all

    @property
    def sides(self) -> Ints:
        """(edges, 2) the polygon to the left of the way from the first end to the second, and the one to the right."""
        return self._sides.all

    @property
    def seam(self) -> Ints:
        """(edges,) the seam between two parts that an edge belongs to, or -1."""
        return self._seam.all

    @property
    def first(self) -> Ints:
        """(polygons,) where the lists of each begin."""
        return self._first.all

    @property
    def count(self) -> Ints:
        """(polygons,) corners of each."""
        return self._count.all

    @property
    def corners(self) -> Ints:
        """The pool of corner lists."""
        return self._corners.all

    @property
    def edges(self) -> Ints:
        """The pool of edge lists; an edge joins its corner to the next of the list."""
        return self._rims.all

    def places(self, polygons: Ints) -> tuple[Ints, Ints]:
        """Places in the pools of the lists of some polygons, one after another, and how many each has."""
        count = self.count[polygons]
        return expand_ranges(self.first[polygons], count), count

    def insert(self, edges: Ints, count: Ints, corners: Ints) -> None:
        """Put new corners on edges: so many on each, in order from its first end to its second."""
        start, total = count.cumsum() - count, len(corners)
        fresh = len(self.ends) + np.arange(total)  # the stretch after each new corner; the first keeps its number
        following = np.empty_like(corners)
        following[:-1] = corners[1:]
        following[start + count - 1] = self.ends[edges, 1]
        touched = np.unique(self.sides[edges])
        touched = touched[touched != OUTSIDE]
        for rows in (self._born, self._sides, self._seam):
            rows.add(rows.all[edges].repeat(count, 0))
        self._ends.add(np.stack([corners, following], 1))
        self.ends[edges, 1] = corners[start]
        for scratch in (self._extra, self._begin):
            scratch.add(np.zeros(total, dtype=np.int64))
        extra, begin = self._extra.all, self._begin.all
        extra[edges], begin[edges] = count, start
        places, sizes = self.places(touched)
        corner, edge = self.corners[places], self.edges[places]
        onwards = corner == self.ends[edge, 0]
        copies = 1 + extra[edge]
        of = np.arange(len(places)).repeat(copies)
        step, more, edge = count_within(copies), extra[edge][of], edge[of]
        stretch = np.where(onwards[of], step, more - step)  # of the old edge, counted from its first end
        base = begin[edge]
        made, rims, inner = corner[of], edge.copy(), step > 0
        made[inner] = corners[(base + stretch - onwards[of])[inner]]
        later = stretch > 0
        rims[later] = fresh[(base + stretch - 1)[later]]
        self._relist(touched, made, rims, np.add.reduceat(copies, sizes.cumsum() - sizes))
        extra[edges] = 0

    def split(self, polygons: Ints, one: Ints, two: Ints, born: Ints) -> tuple[Ints, Ints]:
        """Cut polygons along chords between two of their corners, named by their places in the lists.

        What follows the first corner up to the second keeps the polygon's number; the numbers of the others, and of
        the chords. A chord runs from the first corner to the second.
        """
        size, base = self.count[polygons], self.first[polygons]
        near, far = (two - one) % size + 1, (one - two) % size + 1
        chords = len(self.ends) + np.arange(len(polygons))
        made = len(self) + np.arange(len(polygons))
        self._ends.add(np.stack([self.corners[base + one], self.corners[base + two]], 1))
        self._sides.add(np.stack([made, polygons], 1))
        self._born.add(born)
        self._seam.add(np.full(len(chords), -1))
        for scratch in (self._extra, self._begin):
            scratch.add(np.zeros(len(chords), dtype=np.int64))
        halves = []
        for start, count in ((one, near), (two, far)):
            place = (start.repeat(count) + count_within(count)) % size.repeat(count) + base.repeat(count)
            corner, edge = self.corners[place], self.edges[place]
            edge[count.cumsum() - 1] = chords
            halves.append((corner, edge, count))
        corner, edge, count = halves[1]
        kept = np.ones(len(edge), dtype=bool)
        kept[count.cumsum() - 1] = False
        side = (corner != self.ends[edge, 0]).astype(np.int64)
        self.sides[edge[kept], side[kept]] = made.repeat(count - 1)
        self._first.add(np.zeros_like(made))
        self._count.add(count)
        self._relist(polygons, *halves[0])
        self._relist(made, *halves[1])
        return made, chords

    def _relist(self, polygons: Ints, corners: Ints, rims: Ints, count: Ints) -> None:
        first = self._corners.add(corners)
        self._rims.add(rims)
        self.first[polygons] = first + count.cumsum() - count
        self.count[polygons] = count

    def dissolve(self, edges: Mask, movable: Mask) -> tuple[Mesh, Ints]:
        """The polygons on both sides of some edges joined; corners that then lie amid an edge go, where movable.

        Each union must be convex. The new mesh, and the old polygon that stands for each of its own.
        """
        label = connected_components(len(self), self.sides[edges, 0], self.sides[edges, 1])
        kept, owner = np.unique(label, return_inverse=True)
        places, sizes = self.places(np.arange(len(self)))
        corner, edge = self.corners[places], self.edges[places]
        polygon = owner[np.arange(len(self)).repeat(sizes)]
        rim = ~edges[edge]
        corner, edge, polygon = corner[rim], edge[rim], polygon[rim]
        order = ring_order(polygon, _successors(polygon, corner, self._other(corner, edge)))
        corner, edge, polygon = corner[order], edge[order], polygon[order]
        used = ~edges
        degree = np.bincount(self.ends[used].ravel(), minlength=len(movable))
        amid = movable & (degree == 2)
        edge_label = self._drop_straight_corners(used, amid)
        corner_kept = ~amid[corner]
        corner, edge, polygon = corner[corner_kept], edge_label[edge[corner_kept]], polygon[corner_kept]
        return self._renumber(corner, edge, np.bincount(polygon, minlength=len(kept))), kept

    def _other(self, corner: Ints, edge: Ints) -> Ints:
        """The other end of edges."""
        return self.ends[edge].sum(1) - corner

    def _drop_straight_corners(self, used: Mask, amid: Mask) -> Ints:
        """One number for all edges that are joined through corners amid them, (edges,)."""
        edge = np.flatnonzero(used)
        pair = np.concatenate([np.stack([self.ends[edge, k], edge], 1) for k in (0, 1)])
        pair = pair[amid[pair[:, 0]]]
        pair = pair[np.argsort(pair[:, 0], kind="stable")]
        return connected_components(len(used), pair[0::2, 1], pair[1::2, 1])

    def _renumber(self, corner: Ints, edge: Ints, count: Ints) -> Mesh:
        """A mesh of closed lists one after another, in which edges still have their old numbers."""
        old, edge = np.unique(edge, return_inverse=True)
        first = count.cumsum() - count
        after = np.arange(len(corner)) + 1
        after[first + count - 1] = first
        following = corner[after]
        polygon = np.arange(len(count)).repeat(count)
        ends = np.zeros((len(old), 2), dtype=np.int64)
        sides = np.full((len(old), 2), OUTSIDE)
        place = np.empty(len(old), dtype=np.int64)
        place[edge[::-1]] = np.arange(len(edge))[::-1]  # where an edge is met first
        ends[:, 0], ends[:, 1] = corner[place], following[place]
        onwards = corner == ends[edge, 0]
        sides[edge, np.where(onwards, 0, 1)] = polygon
        return Mesh(ends, self.origins[old], sides, first, count, corner, edge, self.seam[old])

    def pack(self) -> None:
        """Drop lists that were left behind."""
        places, count = self.places(np.arange(len(self)))
        self._corners, self._rims = GrowableArray(self.corners[places]), GrowableArray(self.edges[places])
        self.first[:] = count.cumsum() - count

    def select(self, polygons: Ints) -> tuple[Mesh, Ints]:
        """Some polygons as a mesh of their own, and the old numbers of its corners; the rest is outside."""
        places, count = self.places(polygons)
        kept, corners = np.unique(self.corners[places], return_inverse=True)
        old, rims = np.unique(self.edges[places], return_inverse=True)
        number = np.full(len(self) + 1, OUTSIDE)  # the last stands for what was outside before
        number[polygons] = np.arange(len(polygons))
        back = np.zeros(int(kept[-1]) + 1, dtype=np.int64)
        back[kept] = np.arange(len(kept))
        ends, sides = back[self.ends[old]], number[self.sides[old]]
        first = count.cumsum() - count
        return Mesh(ends, self.origins[old], sides, first, count, corners, rims, self.seam[old]), kept

    def inner_edges(self) -> Ints:
        """Edges with a polygon on both sides."""
        return np.flatnonzero((self.sides != OUTSIDE).all(1))


def _successors(owner: Ints, start: Ints, stop: Ints) -> Ints:
    """The half-edge that begins where each one ends, among those of the same owner; there is one."""
    key = np.lexsort((start, owner))
    width = int(max(start.max(initial=0), stop.max(initial=0))) + 1
    return key[np.searchsorted(owner[key] * width + start[key], owner * width + stop)]


def ring_order(owner: Ints, following: Ints) -> Ints:
    """Half-edges, in any order, as closed rings one owner after another; each owner has one ring."""
    heads = np.unique(owner, return_index=True)[1]
    last = np.isin(following, heads)
    step = np.where(last, np.arange(len(owner)), following)
    left = np.where(last, 0, 1)  # steps to the end of the ring, found by doubling
    while (more := left[step]).any():
        left, step = left + more, step[step]
    return np.lexsort((-left, owner))
