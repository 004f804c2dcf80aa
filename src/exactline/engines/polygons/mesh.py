"""The topology of a mesh of convex polygons: which corners and edges each polygon has, without coordinates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...arrays import Bools, Ints
from .growable import GrowableArray, connected_components, count_within, expand_ranges

OUTSIDE = -1  # in place of a polygon, on the outer side of the outline


class MeshArrays(NamedTuple):
    """The columns of a mesh: see the properties of `Mesh`."""

    edge_ends: Ints  # (edges, 2)
    edge_sides: Ints  # (edges, 2)
    edge_origins: Ints  # (edges, 3)
    edge_seam: Ints  # (edges,)
    ring_start: Ints  # (polygons,)
    ring_size: Ints  # (polygons,)
    ring_corners: Ints  # (pool,)
    ring_edges: Ints  # (pool,)


class Mesh:
    """Convex polygons that share corners and edges.

    A polygon is a ring: its corners in counterclockwise order, and for each corner the edge to the next one. The rings
    of all polygons are stored in two pools, `ring_corners` and `ring_edges`. A ring in the pools is never changed: a
    polygon that changes gets a new one, and `pack` removes the unused ones.
    """

    def __init__(
        self,
        edge_ends: Ints,  # (edges, 2)
        edge_origins: Ints,  # (edges, 3)
        edge_sides: Ints,  # (edges, 2)
        ring_start: Ints,  # (polygons,)
        ring_size: Ints,  # (polygons,)
        ring_corners: Ints,  # (pool,)
        ring_edges: Ints,  # (pool,)
        edge_seam: Ints | None = None,  # (edges,)
    ) -> None:
        edges = len(edge_ends)
        self._edge_ends, self._edge_sides = GrowableArray(edge_ends), GrowableArray(edge_sides)
        self._edge_origins = GrowableArray(edge_origins)
        self._edge_seam = GrowableArray(np.full(edges, -1) if edge_seam is None else edge_seam)
        self._ring_start, self._ring_size = GrowableArray(ring_start), GrowableArray(ring_size)
        self._ring_corners, self._ring_edges = GrowableArray(ring_corners), GrowableArray(ring_edges)
        # scratch arrays of `insert_corners`, so that its cost does not grow with the number of edges
        self._inserted = GrowableArray(np.zeros(edges, dtype=np.int64))  # all zero between calls
        self._first_inserted = GrowableArray(np.zeros(edges, dtype=np.int64))

    @staticmethod
    def polygon(corners: int) -> Mesh:
        """A mesh of a single polygon."""
        ring = np.arange(corners)
        return Mesh(
            edge_ends=np.stack([ring, np.roll(ring, -1)], 1),
            edge_origins=np.tile(np.array([-1, 0, 0]), (corners, 1)),
            edge_sides=np.stack([np.zeros_like(ring), np.full_like(ring, OUTSIDE)], 1),
            ring_start=np.array([0]),
            ring_size=np.array([corners]),
            ring_corners=ring,
            ring_edges=ring.copy(),
        )

    def __len__(self) -> int:
        return len(self._ring_start)

    @property
    def edge_ends(self) -> Ints:
        """(edges, 2) the corners at the two ends of an edge."""
        return self._edge_ends.array

    @property
    def edge_origins(self) -> Ints:
        """(edges, 3) node or -1, unit, and number of differences that vanish along the edge."""
        return self._edge_origins.array

    @property
    def edge_sides(self) -> Ints:
        """(edges, 2) the polygons to the left and to the right of an edge, seen from its first end."""
        return self._edge_sides.array

    @property
    def edge_seam(self) -> Ints:
        """(edges,) the seam between two parts that an edge belongs to, or -1."""
        return self._edge_seam.array

    @property
    def ring_start(self) -> Ints:
        """(polygons,) where the ring of a polygon starts in the pools."""
        return self._ring_start.array

    @property
    def ring_size(self) -> Ints:
        """(polygons,) number of corners of a polygon."""
        return self._ring_size.array

    @property
    def ring_corners(self) -> Ints:
        """(pool,) the corners of all rings."""
        return self._ring_corners.array

    @property
    def ring_edges(self) -> Ints:
        """(pool,) the edges of all rings; each joins the corner at its position to the next one of the ring."""
        return self._ring_edges.array

    def ring_indices(self, polygons: Ints) -> tuple[Ints, Ints]:
        """The pool indices of the rings of some polygons, one ring after another, and the size of each ring."""
        size = self.ring_size[polygons]
        return expand_ranges(self.ring_start[polygons], size), size

    @property
    def arrays(self) -> MeshArrays:
        """All columns."""
        edges = self.edge_ends, self.edge_sides, self.edge_origins, self.edge_seam
        return MeshArrays(*edges, self.ring_start, self.ring_size, self.ring_corners, self.ring_edges)

    def extend(self, edges: int, polygons: int, ring_entries: int) -> None:
        """Append edges, polygons and entries of the pools that the caller will write."""
        for column in (self._edge_ends, self._edge_sides, self._edge_origins, self._edge_seam):
            column.extend(edges)
        for column in (self._ring_start, self._ring_size):
            column.extend(polygons)
        for column in (self._ring_corners, self._ring_edges):
            column.extend(ring_entries)
        self._grow_scratch(edges)

    def truncate_pools(self, size: int) -> None:
        """Remove the entries of the pools after the first ``size``, which no ring uses."""
        for column in (self._ring_corners, self._ring_edges):
            column.truncate(size)

    def insert_corners(self, edges: Ints, count: Ints, corners: Ints) -> None:
        """Split edges at new corners.

        Args:
            edges: (k,) the edges to split, each once.
            count: (k,) how many corners to insert on each.
            corners: (sum of count,) the new corners, edge after edge, each from the first end to the second.
        """
        start, total = count.cumsum() - count, len(corners)
        new_edges = len(self.edge_ends) + np.arange(
            total
        )  # edge after each new corner; the first part keeps its number
        next_corner = np.empty_like(corners)
        next_corner[:-1] = corners[1:]
        next_corner[start + count - 1] = self.edge_ends[edges, 1]
        polygons = np.unique(self.edge_sides[edges])
        polygons = polygons[polygons != OUTSIDE]
        for column in (self._edge_origins, self._edge_sides, self._edge_seam):
            column.append(column.array[edges].repeat(count, 0))
        self._edge_ends.append(np.stack([corners, next_corner], 1))
        self.edge_ends[edges, 1] = corners[start]
        self._grow_scratch(total)
        inserted, first_inserted = self._inserted.array, self._first_inserted.array
        inserted[edges], first_inserted[edges] = count, start
        index, size = self.ring_indices(polygons)
        corner, edge = self.ring_corners[index], self.ring_edges[index]
        forward = corner == self.edge_ends[edge, 0]
        copies = 1 + inserted[edge]
        of = np.arange(len(index)).repeat(copies)
        step, inserted_here, edge = count_within(copies), inserted[edge][of], edge[of]
        part = np.where(forward[of], step, inserted_here - step)  # which part of the old edge, from its first end
        base = first_inserted[edge]
        new_corners, ring_edges, is_new = corner[of], edge.copy(), step > 0
        new_corners[is_new] = corners[(base + part - forward[of])[is_new]]
        is_later = part > 0
        ring_edges[is_later] = new_edges[(base + part - 1)[is_later]]
        self._replace_rings(polygons, new_corners, ring_edges, np.add.reduceat(copies, size.cumsum() - size))
        inserted[edges] = 0

    def split(self, polygons: Ints, one: Ints, two: Ints, origins: Ints) -> tuple[Ints, Ints]:
        """Split polygons along chords between two of their corners.

        The part from the first corner on to the second keeps the polygon's number. A chord runs from the first corner
        to the second. Returns the numbers of the new polygons and of the chords, (k,) each.

        Args:
            polygons: (k,) the polygons to split, each once.
            one: (k,) position of the chord's first corner in the ring.
            two: (k,) position of its second corner.
            origins: (k, 3) origins of the chords.
        """
        size, base = self.ring_size[polygons], self.ring_start[polygons]
        size_before, size_after = (two - one) % size + 1, (one - two) % size + 1
        chords = len(self.edge_ends) + np.arange(len(polygons))
        new_polygons = len(self) + np.arange(len(polygons))
        self._edge_ends.append(np.stack([self.ring_corners[base + one], self.ring_corners[base + two]], 1))
        self._edge_sides.append(np.stack([new_polygons, polygons], 1))
        self._edge_origins.append(origins)
        self._edge_seam.append(np.full(len(chords), -1))
        self._grow_scratch(len(chords))
        halves = []
        for start, count in ((one, size_before), (two, size_after)):
            index = (start.repeat(count) + count_within(count)) % size.repeat(count) + base.repeat(count)
            corner, edge = self.ring_corners[index], self.ring_edges[index]
            edge[count.cumsum() - 1] = chords
            halves.append((corner, edge, count))
        corner, edge, count = halves[1]
        is_old = np.ones(len(edge), dtype=bool)
        is_old[count.cumsum() - 1] = False
        side = (corner != self.edge_ends[edge, 0]).astype(np.int64)
        self.edge_sides[edge[is_old], side[is_old]] = new_polygons.repeat(count - 1)
        self._ring_start.append(np.zeros_like(new_polygons))
        self._ring_size.append(count)
        self._replace_rings(polygons, *halves[0])
        self._replace_rings(new_polygons, *halves[1])
        return new_polygons, chords

    def _grow_scratch(self, count: int) -> None:
        for scratch in (self._inserted, self._first_inserted):
            scratch.append(np.zeros(count, dtype=np.int64))

    def _replace_rings(self, polygons: Ints, corners: Ints, edges: Ints, size: Ints) -> None:
        """Give polygons new rings, of these sizes, one after another."""
        first = self._ring_corners.append(corners)
        self._ring_edges.append(edges)
        self.ring_start[polygons] = first + size.cumsum() - size
        self.ring_size[polygons] = size

    def dissolve(self, edges: Bools, movable: Bools) -> tuple[Mesh, Ints]:
        """Merge the polygons on both sides of some edges; every union must be convex.

        Returns the new mesh, and for each of its polygons an old polygon that it contains.

        Args:
            edges: (edges,) which edges to remove.
            movable: (corners,) which corners to remove if only two edges are left there.
        """
        label = connected_components(len(self), self.edge_sides[edges, 0], self.edge_sides[edges, 1])
        kept, owner = np.unique(label, return_inverse=True)
        index, sizes = self.ring_indices(np.arange(len(self)))
        corner, edge = self.ring_corners[index], self.ring_edges[index]
        polygon = owner[np.arange(len(self)).repeat(sizes)]
        stays = ~edges[edge]
        corner, edge, polygon = corner[stays], edge[stays], polygon[stays]
        order = ring_order(polygon, _successors(polygon, corner, self._other_end(corner, edge)))
        corner, edge, polygon = corner[order], edge[order], polygon[order]
        used = ~edges
        degree = np.bincount(self.edge_ends[used].ravel(), minlength=len(movable))
        straight = movable & (degree == 2)
        edge_label = self._label_joined_edges(used, straight)
        corner_stays = ~straight[corner]
        corner, edge, polygon = corner[corner_stays], edge_label[edge[corner_stays]], polygon[corner_stays]
        return self._renumber(corner, edge, np.bincount(polygon, minlength=len(kept))), kept

    def _other_end(self, corner: Ints, edge: Ints) -> Ints:
        """The other ends of edges that end at some corners."""
        return self.edge_ends[edge].sum(1) - corner

    def _label_joined_edges(self, used: Bools, straight: Bools) -> Ints:
        """(edges,) one label for all used edges that become one when straight corners are removed."""
        edge = np.flatnonzero(used)
        pair = np.concatenate([np.stack([self.edge_ends[edge, k], edge], 1) for k in (0, 1)])
        pair = pair[straight[pair[:, 0]]]
        pair = pair[np.argsort(pair[:, 0], kind="stable")]  # the two edges of each straight corner are adjacent
        return connected_components(len(used), pair[0::2, 1], pair[1::2, 1])

    def _renumber(self, corner: Ints, edge: Ints, size: Ints) -> Mesh:
        """A mesh of adjacent rings of these sizes, in which edges still have their old numbers."""
        old, edge = np.unique(edge, return_inverse=True)
        start = size.cumsum() - size
        after = np.arange(len(corner)) + 1
        after[start + size - 1] = start
        next_corner = corner[after]
        polygon = np.arange(len(size)).repeat(size)
        ends = np.zeros((len(old), 2), dtype=np.int64)
        sides = np.full((len(old), 2), OUTSIDE)
        first_use = np.empty(len(old), dtype=np.int64)
        first_use[edge[::-1]] = np.arange(len(edge))[::-1]
        ends[:, 0], ends[:, 1] = corner[first_use], next_corner[first_use]
        forward = corner == ends[edge, 0]
        sides[edge, np.where(forward, 0, 1)] = polygon
        return Mesh(ends, self.edge_origins[old], sides, start, size, corner, edge, self.edge_seam[old])

    def pack(self) -> None:
        """Remove unused rings from the pools."""
        index, size = self.ring_indices(np.arange(len(self)))
        self._ring_corners = GrowableArray(self.ring_corners[index])
        self._ring_edges = GrowableArray(self.ring_edges[index])
        self.ring_start[:] = size.cumsum() - size

    def select(self, polygons: Ints) -> tuple[Mesh, Ints]:
        """A mesh of some polygons, and the old numbers of its corners; all other polygons become outside."""
        index, size = self.ring_indices(polygons)
        kept, corners = np.unique(self.ring_corners[index], return_inverse=True)
        old, edges = np.unique(self.ring_edges[index], return_inverse=True)
        new_polygon = np.full(len(self) + 1, OUTSIDE)  # the last entry is for OUTSIDE itself, which is -1
        new_polygon[polygons] = np.arange(len(polygons))
        new_corner = np.zeros(int(kept[-1]) + 1, dtype=np.int64)
        new_corner[kept] = np.arange(len(kept))
        ends, sides = new_corner[self.edge_ends[old]], new_polygon[self.edge_sides[old]]
        start = size.cumsum() - size
        return Mesh(ends, self.edge_origins[old], sides, start, size, corners, edges, self.edge_seam[old]), kept

    def inner_edges(self) -> Ints:
        """The edges with a polygon on both sides."""
        return np.flatnonzero((self.edge_sides != OUTSIDE).all(1))


def _successors(owner: Ints, start: Ints, stop: Ints) -> Ints:
    """For each half-edge, the one half-edge of its owner that starts where it stops."""
    order = np.lexsort((start, owner))
    width = int(max(start.max(initial=0), stop.max(initial=0))) + 1
    return order[np.searchsorted(owner[order] * width + start[order], owner * width + stop)]


def ring_order(owner: Ints, successor: Ints) -> Ints:
    """The order that sorts half-edges into closed rings, one owner after another; each owner has one ring."""
    heads = np.unique(owner, return_index=True)[1]
    is_last = np.isin(successor, heads)
    step = np.where(is_last, np.arange(len(owner)), successor)
    remaining = np.where(is_last, 0, 1)  # steps to the end of the ring, computed by pointer doubling
    while (more := remaining[step]).any():
        remaining, step = remaining + more, step[step]
    return np.lexsort((-remaining, owner))
