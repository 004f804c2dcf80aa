"""Compiled loops for one round of cuts: every polygon that is cut is split along one chord."""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingTypeStubs=false
# pyright: reportUntypedFunctionDecorator=false, reportUnknownArgumentType=false, reportMissingModuleSource=false
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...arrays import Floats, Ints
from ...tolerances import MIN_RELATIVE_WIDTH
from ..jit import compile_loop
from .corners import CornerArrays
from .growable import Signs
from .kernels import (
    CrossingArrays,
    CutArrays,
    are_apart,
    edge_length,
    insert_sorted,
    write_corner,
    write_edges,
    write_side,
)
from .mesh import MeshArrays

THIN_MARGIN = 4.0  # times the least width: NumPy decides on parts thinner than that


class Pairs(NamedTuple):
    """Pairs of a polygon and a difference that cuts it, in order."""

    polygon: Ints  # (pairs,)
    column: Ints  # (pairs,)
    start: Ints  # (polygons that are cut + 1,) the first pair of each


class ChordArrays(NamedTuple):
    """One chord for each polygon that is cut."""

    first: Ints  # (n,) ring position of its first corner
    second: Ints  # (n,) and of its second


@compile_loop
def find_starts(polygon: Ints) -> Ints:  # pragma: no cover - compiled
    """Where each polygon starts in a sorted list, and the length of the list."""
    starts, found = np.empty(len(polygon) + 1, np.int64), 0
    for i in range(len(polygon)):
        if i == 0 or polygon[i] != polygon[i - 1]:
            starts[found] = i
            found += 1
    starts[found] = len(polygon)
    return starts[: found + 1]


@compile_loop
def _find_run(
    mesh: MeshArrays, cuts: CutArrays, polygon: int, column: int
) -> tuple[int, int]:  # pragma: no cover - compiled
    """The ring positions before and after the run of negative corners; -1 if there are several runs."""
    start, size = mesh.ring_start[polygon], mesh.ring_size[polygon]
    was_negative = cuts.signs[mesh.ring_corners[start + size - 1], column] < 0
    runs, first, stop = 0, 0, -1
    for i in range(size):
        is_negative = cuts.signs[mesh.ring_corners[start + i], column] < 0
        if is_negative and not was_negative:
            runs += 1
            first = i
        if was_negative and not is_negative:
            stop = i
        was_negative = is_negative
    if runs != 1:
        return -1, -1
    return (first - 1) % size, stop


@compile_loop
def _is_wide(
    mesh: MeshArrays, corners: CornerArrays, frame: Floats, polygon: int, first: int, second: int, limit: float
) -> bool:  # pragma: no cover - compiled
    """Whether both sides of a chord are certainly wider than ``limit``."""
    start, size = mesh.ring_start[polygon], mesh.ring_size[polygon]
    one, two = mesh.ring_corners[start + first], mesh.ring_corners[start + second]
    base_x = base_y = along_x = along_y = 0.0
    for j in range(len(frame)):
        base_x += corners.weights[one, j] * frame[j, 0]
        base_y += corners.weights[one, j] * frame[j, 1]
        along_x += (corners.weights[two, j] - corners.weights[one, j]) * frame[j, 0]
        along_y += (corners.weights[two, j] - corners.weights[one, j]) * frame[j, 1]
    widest_inside = widest_outside = 0.0
    inside = (second - first) % size
    for i in range(size):
        if i in (first, second):
            continue
        corner = mesh.ring_corners[start + i]
        x = y = 0.0
        for j in range(len(frame)):
            x += corners.weights[corner, j] * frame[j, 0]
            y += corners.weights[corner, j] * frame[j, 1]
        width = abs(along_x * (y - base_y) - along_y * (x - base_x))
        if (i - first) % size < inside:
            widest_inside = max(widest_inside, width)
        else:
            widest_outside = max(widest_outside, width)
    return min(widest_inside, widest_outside) > limit * np.hypot(along_x, along_y)


@compile_loop
def find_chords(
    mesh: MeshArrays,
    cuts: CutArrays,
    corners: CornerArrays,
    frame: Floats,  # (k, 2) plane coordinates of the vertices
    extent: float,
    pairs: Pairs,
    chords: ChordArrays,  # written
    found: CrossingArrays,  # written: crossings of each chord with the other differences of its polygon
) -> int:  # pragma: no cover - compiled
    """Find the chord of the middle difference of each polygon, and its crossings; their number, -1 if ambiguous."""
    limit = THIN_MARGIN * MIN_RELATIVE_WIDTH * extent
    total = 0
    for i in range(len(pairs.start) - 1):
        begin, end = pairs.start[i], pairs.start[i + 1]
        polygon, chosen = pairs.polygon[begin], begin + (end - begin) // 2
        first, second = _find_run(mesh, cuts, polygon, pairs.column[chosen])
        if first < 0 or not _is_wide(mesh, corners, frame, polygon, first, second, limit):
            return -1
        chords.first[i], chords.second[i] = first, second
        ring = mesh.ring_start[polygon]
        one, two = mesh.ring_corners[ring + first], mesh.ring_corners[ring + second]
        stop = total
        for k in range(begin, end):
            j = pairs.column[k]
            if (cuts.signs[one, j] ^ cuts.signs[two, j]) == -2:
                insert_sorted(found, total, stop, cuts.differences[one, j], cuts.differences[two, j], j)
                stop += 1
        if stop > total and not are_apart(found, total, stop, corners, one, two, cuts.threshold):
            return -1
        found.counts[i] = stop - total
        total = stop
    return total


@compile_loop
def split_polygons(
    mesh: MeshArrays,
    cuts: CutArrays,
    corners: CornerArrays,
    pairs: Pairs,
    chords: ChordArrays,
    found: CrossingArrays,
    sizes: tuple[int, int, int, int],  # corners, edges, polygons and ring entries before the round
) -> tuple[Ints, Ints, int]:  # pragma: no cover - compiled
    """Split polygons along their chords; returns the pairs that are still cut, in order, and where the pools end."""
    first_corner, first_edge, first_polygon, pool = sizes
    polygons = len(chords.first)
    first_part = first_edge + polygons  # edges between new corners follow those of the chords
    old, new = np.empty((len(pairs.polygon), 2), np.int64), np.empty((len(pairs.polygon), 2), np.int64)
    old_count = new_count = k = 0
    for i in range(polygons):
        begin, end = pairs.start[i], pairs.start[i + 1]
        polygon, chosen = pairs.polygon[begin], begin + (end - begin) // 2
        other, edge, count = first_polygon + i, first_edge + i, found.counts[i]
        start, size = mesh.ring_start[polygon], mesh.ring_size[polygon]
        first, second = chords.first[i], chords.second[i]
        one, two = mesh.ring_corners[start + first], mesh.ring_corners[start + second]
        mesh.edge_ends[edge, 0], mesh.edge_ends[edge, 1] = one, two
        mesh.edge_sides[edge, 0], mesh.edge_sides[edge, 1] = other, polygon
        mesh.edge_origins[edge, 0], mesh.edge_origins[edge, 1] = cuts.node, cuts.units[pairs.column[chosen]]
        mesh.edge_origins[edge, 2], mesh.edge_seam[edge] = 1, -1
        for at in range(begin, end):
            j = pairs.column[at]
            if at != chosen and cuts.signs[one, j] == 0 and cuts.signs[two, j] == 0:
                mesh.edge_origins[edge, 2] += 1  # the difference shares the edge
        if count > 0:
            length = edge_length(corners.weights, one, two)
            for at in range(k, k + count):
                write_corner(first_corner + at, at, one, two, length, found, cuts, corners)
            write_edges(mesh, edge, first_part + k, first_corner + k, count)
        before_start, before_size = 0, 0
        for half in range(2):
            position, last = (first, second) if half == 0 else (second, first)
            ring = pool
            while position != last:
                corner, side = mesh.ring_corners[start + position], mesh.ring_edges[start + position]
                mesh.ring_corners[pool], mesh.ring_edges[pool] = corner, side
                if half == 1:
                    mesh.edge_sides[side, 0 if mesh.edge_ends[side, 0] == corner else 1] = other
                pool += 1
                position = position + 1 if position + 1 < size else 0
            corner = two if half == 0 else one
            pool = write_side(mesh, pool, corner, edge, first_part, first_corner, k, count, half == 1)
            owner = polygon if half == 0 else other
            if half == 0:  # the old ring is still needed
                before_start, before_size = ring, pool - ring
            else:
                mesh.ring_start[other], mesh.ring_size[other] = ring, pool - ring
            for at in range(begin, end):
                j = pairs.column[at]
                if at == chosen or not _has_both_signs(mesh.ring_corners, ring, pool, cuts.signs, j):
                    continue
                if half == 0:
                    old[old_count, 0], old[old_count, 1] = owner, j
                    old_count += 1
                else:
                    new[new_count, 0], new[new_count, 1] = owner, j
                    new_count += 1
        mesh.ring_start[polygon], mesh.ring_size[polygon] = before_start, before_size
        k += count
    remaining = np.concatenate((old[:old_count], new[:new_count]))
    return remaining[:, 0].copy(), remaining[:, 1].copy(), pool


@compile_loop
def _has_both_signs(
    ring_corners: Ints, start: int, stop: int, signs: Signs, column: int
) -> bool:  # pragma: no cover - compiled
    """Whether a difference has both signs at the corners of a ring."""
    low = high = 0
    for i in range(start, stop):
        sign = signs[ring_corners[i], column]
        low, high = min(low, sign), max(high, sign)
    return low < 0 and high > 0
