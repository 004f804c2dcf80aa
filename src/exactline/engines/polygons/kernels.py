"""Loops over edges and polygons, compiled by numba: one pass through memory instead of NumPy's many.

Every function that decides something returns False where rounding could change the decision; NumPy then does the step.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingTypeStubs=false
# pyright: reportUntypedFunctionDecorator=false, reportUnknownArgumentType=false, reportMissingModuleSource=false
# pyright: reportMissingImports=false

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...arrays import Floats, Ints
from ...tolerances import ALPHA_RESOLUTION, CORNER_RESOLUTION
from ..jit import compile_loop
from .corners import CornerArrays
from .growable import Signs
from .mesh import MeshArrays


class CutArrays(NamedTuple):
    """One separator's differences at every corner, and how exact they are."""

    differences: Floats  # (corners, m)
    signs: Signs  # (corners, m)
    columns: Ints  # (m,) number of each difference in its separator
    units: Ints  # (m,) unit of each difference
    node: int
    separator: int  # number of the separator at its node
    threshold: float  # differences further than this from zero are unambiguous


class CrossingArrays(NamedTuple):
    """New corners in order: edge after edge, and on each edge from its first end to the second."""

    counts: Ints  # (edges,) how many corners each edge gets
    column: Ints  # (n,) the difference that is zero there
    fraction: Floats  # (n,) position on the edge
    slope: Floats  # (n,) absolute slope of the difference along the edge
    first: Ints  # (n,) written with the corner: the first end of the edge
    second: Ints  # (n,) and the second


@compile_loop
def scan_differences(
    differences: Floats,  # (n, m)
    threshold: float,
    low: Floats,  # (m,) written: the smallest difference, at most 0
    high: Floats,  # (m,) written: the largest, at least 0
) -> bool:  # pragma: no cover - compiled
    """Whether all differences are zero or certainly not; also their ranges."""
    n, m = differences.shape
    near = 0
    for i in range(n):
        for j in range(m):
            number = differences[i, j]
            low[j] = min(low[j], number)
            high[j] = max(high[j], number)
            near += (abs(number) <= threshold) & (number != 0.0)
    return near == 0


@compile_loop
def select_columns(
    differences: Floats,  # (n, all)
    columns: Ints,  # (m,)
    out: Floats,  # (n, m) written
    signs: Signs,  # (n, m) written
) -> None:  # pragma: no cover - compiled
    """Copy some columns, and take their signs."""
    for i in range(len(differences)):
        for j in range(len(columns)):
            number = differences[i, columns[j]]
            out[i, j] = number
            signs[i, j] = (number > 0.0) - (number < 0.0)


@compile_loop
def count_sign_changes(
    edge_ends: Ints,  # (edges, 2)
    signs: Signs,  # (corners, m)
    counts: Ints,  # (edges,) written: differences that change sign on an edge
) -> int:  # pragma: no cover - compiled
    """The number of sign changes on all edges."""
    m = signs.shape[1]
    total = 0
    for e in range(len(edge_ends)):
        one, two = edge_ends[e, 0], edge_ends[e, 1]
        count = 0
        for j in range(m):
            count += (signs[one, j] ^ signs[two, j]) == -2  # of 1 and -1
        counts[e] = count
        total += count
    return total


@compile_loop
def edge_length(weights: Floats, one: int, two: int) -> float:  # pragma: no cover - compiled
    """The largest difference of two corners' weights."""
    length = 0.0
    for j in range(weights.shape[1]):
        length = max(length, abs(weights[two, j] - weights[one, j]))
    return length


@compile_loop
def insert_sorted(
    found: CrossingArrays, start: int, stop: int, before: float, after: float, column: int
) -> None:  # pragma: no cover - compiled
    """Insert a crossing into those from ``start`` to ``stop``, which are in order."""
    before, after = abs(before), abs(after)
    total = before + after
    part = before / total
    fraction = part if part <= 0.5 else 1.0 - after / total
    at = stop
    while at > start and found.fraction[at - 1] > fraction:
        found.fraction[at], found.slope[at] = found.fraction[at - 1], found.slope[at - 1]
        found.column[at] = found.column[at - 1]
        at -= 1
    found.fraction[at], found.slope[at], found.column[at] = fraction, total, column


@compile_loop
def are_apart(
    found: CrossingArrays, start: int, stop: int, corners: CornerArrays, one: int, two: int, threshold: float
) -> bool:  # pragma: no cover - compiled
    """Whether the crossings of an edge are certainly apart from each other and from its ends."""
    length = edge_length(corners.weights, one, two)
    near_one = (corners.reals[one, 1] + CORNER_RESOLUTION) / length + ALPHA_RESOLUTION
    near_two = (corners.reals[two, 1] + CORNER_RESOLUTION) / length + ALPHA_RESOLUTION
    if found.fraction[start] <= near_one or 1.0 - found.fraction[stop - 1] <= near_two:
        return False
    for k in range(start + 1, stop):
        radius = threshold / min(found.slope[k], found.slope[k - 1])
        if found.fraction[k] - found.fraction[k - 1] <= radius:
            return False
    return True


@compile_loop
def find_edge_crossings(
    edge_ends: Ints, cuts: CutArrays, corners: CornerArrays, found: CrossingArrays
) -> bool:  # pragma: no cover - compiled
    """Find the crossings of all edges, whose counts are known; False if some are ambiguous."""
    m = cuts.signs.shape[1]
    start = 0
    for e in range(len(edge_ends)):
        if found.counts[e] == 0:
            continue
        one, two = edge_ends[e, 0], edge_ends[e, 1]
        stop = start
        for j in range(m):
            if (cuts.signs[one, j] ^ cuts.signs[two, j]) == -2:
                insert_sorted(found, start, stop, cuts.differences[one, j], cuts.differences[two, j], j)
                stop += 1
        if not are_apart(found, start, stop, corners, one, two, cuts.threshold):
            return False
        start = stop
    return True


@compile_loop
def write_corner(
    new: int,  # its number
    k: int,  # its number among the crossings
    one: int,
    two: int,
    length: float,
    found: CrossingArrays,
    cuts: CutArrays,
    corners: CornerArrays,
) -> None:  # pragma: no cover - compiled
    """Write a new corner on the edge between two others."""
    fraction = found.fraction[k]
    near, step = (one, fraction) if fraction < 0.5 else (two, fraction - 1.0)
    weights, differences, signs = corners.weights, cuts.differences, cuts.signs
    for j in range(weights.shape[1]):
        weights[new, j] = weights[near, j] + (weights[two, j] - weights[one, j]) * step
    for j in range(differences.shape[1]):
        number = differences[near, j] + (differences[two, j] - differences[one, j]) * step
        differences[new, j] = number
        signs[new, j] = (number > 0.0) - (number < 0.0)
    column = found.column[k]
    differences[new, column], signs[new, column] = 0.0, 0
    slope = found.slope[k] / length
    corners.reals[new, 0], corners.reals[new, 1] = slope, cuts.threshold / slope
    corners.integers[new, 0], corners.integers[new, 1] = cuts.node, cuts.separator
    corners.integers[new, 2], corners.integers[new, 3] = cuts.columns[column], 0
    found.first[k], found.second[k] = one, two


@compile_loop
def write_edges(
    mesh: MeshArrays, edge: int, new_edge: int, new_corner: int, count: int
) -> None:  # pragma: no cover - compiled
    """Split an edge at ``count`` new corners; the parts after them are new edges."""
    last = mesh.edge_ends[edge, 1]
    mesh.edge_ends[edge, 1] = new_corner
    for k in range(count):
        part = new_edge + k
        mesh.edge_ends[part, 0] = new_corner + k
        mesh.edge_ends[part, 1] = new_corner + k + 1 if k + 1 < count else last
        for j in range(3):
            mesh.edge_origins[part, j] = mesh.edge_origins[edge, j]
        for j in range(2):
            mesh.edge_sides[part, j] = mesh.edge_sides[edge, j]
        mesh.edge_seam[part] = mesh.edge_seam[edge]


@compile_loop
def split_edges(
    mesh: MeshArrays,
    cuts: CutArrays,
    corners: CornerArrays,
    found: CrossingArrays,
    first_corner: int,  # the first new corner
    first_part: Ints,  # (old edges,) scratch
    pool: int,  # where new rings start in the pools
) -> int:  # pragma: no cover - compiled
    """Split edges at their crossings and rewrite all rings; returns where the pools end."""
    edges = len(found.counts)
    k = 0
    for e in range(edges):
        count = found.counts[e]
        first_part[e] = k
        if count == 0:
            continue
        one, two = mesh.edge_ends[e, 0], mesh.edge_ends[e, 1]
        length = edge_length(corners.weights, one, two)
        for i in range(k, k + count):
            write_corner(first_corner + i, i, one, two, length, found, cuts, corners)
        write_edges(mesh, e, edges + k, first_corner + k, count)
        k += count
    for p in range(len(mesh.ring_start)):
        start, begin = mesh.ring_start[p], pool
        for i in range(start, start + mesh.ring_size[p]):
            corner, edge = mesh.ring_corners[i], mesh.ring_edges[i]
            count = found.counts[edge]
            if count == 0:
                mesh.ring_corners[pool], mesh.ring_edges[pool] = corner, edge
                pool += 1
            else:
                is_forward = mesh.edge_ends[edge, 0] == corner
                pool = write_side(mesh, pool, corner, edge, edges, first_corner, first_part[edge], count, is_forward)
        mesh.ring_start[p], mesh.ring_size[p] = begin, pool - begin
    return pool


@compile_loop
def write_side(
    mesh: MeshArrays,
    pool: int,
    corner: int,  # where the side starts
    edge: int,  # the first part of the edge
    first_edge: int,  # the first of all new parts
    first_corner: int,
    k: int,  # the first crossing of the edge
    count: int,
    is_forward: bool,
) -> int:  # pragma: no cover - compiled
    """Write a corner and all new corners of its edge into the pools; returns where the pools end."""
    mesh.ring_corners[pool] = corner
    if is_forward or count == 0:
        mesh.ring_edges[pool] = edge
        for i in range(count):
            mesh.ring_corners[pool + 1 + i], mesh.ring_edges[pool + 1 + i] = first_corner + k + i, first_edge + k + i
    else:
        mesh.ring_edges[pool] = first_edge + k + count - 1
        for i in range(count):
            part = count - 1 - i
            mesh.ring_corners[pool + 1 + i] = first_corner + k + part
            mesh.ring_edges[pool + 1 + i] = first_edge + k + part - 1 if part > 0 else edge
    return pool + 1 + count


@compile_loop
def find_cut_pairs(mesh: MeshArrays, signs: Signs) -> tuple[Ints, Ints]:  # pragma: no cover - compiled
    """All pairs of a polygon and a difference that has both signs on it, in order."""
    m, found = signs.shape[1], 0
    polygon, column = np.empty(4 * len(mesh.ring_start) + m, np.int64), np.empty(4 * len(mesh.ring_start) + m, np.int64)
    low, high = np.empty(m, np.int8), np.empty(m, np.int8)
    for p in range(len(mesh.ring_start)):
        low[:], high[:] = 0, 0
        for i in range(mesh.ring_start[p], mesh.ring_start[p] + mesh.ring_size[p]):
            corner = mesh.ring_corners[i]
            for j in range(m):
                low[j] = min(low[j], signs[corner, j])
                high[j] = max(high[j], signs[corner, j])
        if found + m > len(polygon):
            polygon = np.concatenate((polygon, np.empty_like(polygon)))
            column = np.concatenate((column, np.empty_like(column)))
        for j in range(m):
            if low[j] < high[j] - 1:
                polygon[found], column[found] = p, j
                found += 1
    return polygon[:found], column[:found]


@compile_loop
def interpolate_rows(
    values: Floats,  # (n, width); rows from ``start`` on are written
    start: int,
    first: Ints,  # (n - start,)
    second: Ints,  # (n - start,)
    fraction: Floats,  # (n - start,)
) -> None:  # pragma: no cover - compiled
    """Interpolate new rows one after another, each between two earlier ones."""
    width = values.shape[1]
    for k in range(len(first)):
        one, two = first[k], second[k]
        near, step = (one, fraction[k]) if fraction[k] < 0.5 else (two, fraction[k] - 1.0)
        for j in range(width):
            values[start + k, j] = values[near, j] + (values[two, j] - values[one, j]) * step


@compile_loop
def set_levels(
    values: Floats,  # (corners, width) written
    signs: Signs,  # (corners, m)
    units: Ints,  # (m,)
    levels: Floats,  # (m,)
) -> None:  # pragma: no cover - compiled
    """Set values to their knots where their differences are zero."""
    for i in range(len(signs)):
        for j in range(signs.shape[1]):
            if signs[i, j] == 0:
                values[i, units[j]] = levels[j]
