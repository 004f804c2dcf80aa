"""Polytopes of the legacy protocol: vertices in float32, some of them equal or slightly off their plane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays import Floats, Ints
from ...errors import PlaneError
from ...tolerances import MAX_LINE_THICKNESS, MAX_SHARE_ERROR
from .layers import read_floats, request_error

MAX_VERTICES = 1024  # of one polytope
FLOAT32_ERROR = 4 * 2.0**-24  # by how much rounding to float32 may move a vertex, relative to the largest coordinate
SMALLEST_LENGTH = 1e-300  # keeps a division by a length of 0 finite


@dataclass(frozen=True)
class Polytope:
    """The corners of a point, a line or a polygon without duplicates, and the vertices as the client sent them."""

    corners: Floats  # (k, in): one point, the two ends of a line, or the corners of a polygon in order
    corner_combinations: Floats  # (k, originals) of the vertices that the client's combinations refer to
    vertices: Floats  # (n, in) as sent, including duplicates and vertices inside a side
    vertex_combinations: Floats  # (n, originals)
    line_positions: Floats  # (n,) of the vertices on the line, from 0 to 1; empty unless it is a line

    def cut_strip(self, low: float, high: float) -> tuple[Floats, Floats]:
        """Cut a polygon that is degenerate to a line between two positions.

        Returns the positions (m,) of the corners of the strip on the line, and their combinations (m, originals).

        >>> line = Polytope(np.eye(2), np.eye(2), np.eye(3), np.eye(3), np.array([0.0, 1.0, 0.5]))
        >>> line.cut_strip(0.0, 0.5)[0]
        array([0. , 0.5, 0.5])
        """
        count = len(self.line_positions)
        sides = [(i, (i + 1) % count) for i in range(count)] if count > 2 else [(0, 1)]
        positions: list[float] = []
        combinations: list[Floats] = []
        for i, j in sides:
            first, last = float(self.line_positions[i]), float(self.line_positions[j])
            start, stop = np.clip([first, last], low, high).tolist()
            outside = max(first, last) < low or min(first, last) > high
            for position in () if outside else (start, stop):
                share = (position - first) / (last - first) if last != first else 0.0
                combination = (1 - share) * self.vertex_combinations[i] + share * self.vertex_combinations[j]
                if not any(np.array_equal(combination, known) for known in combinations):
                    positions.append(position)
                    combinations.append(combination)
        return np.array(positions), np.stack(combinations)


@dataclass(frozen=True)
class Vertices:
    """The vertices of a polytope as the client sent them."""

    points: Floats  # (n, in)
    combinations: Floats  # (n, originals) of the vertices that the client's combinations refer to
    where: str  # the position in the request, for error messages


def read_polytopes(message: Any, where: str) -> list[Vertices]:
    """Read the vertices of all polytopes of a UPolytope message.

    Raises ArgumentError.
    """
    if not message.polytopes or not message.space_dimensions:
        raise request_error(
            "The message has no polytope or no dimensions.", where, "Give polytopes and space_dimensions."
        )
    several = len(message.polytopes) > 1
    return [
        _read_vertices(polytope, message.space_dimensions, f"{where}, part {number}" if several else where)
        for number, polytope in enumerate(message.polytopes, 1)
    ]


def find_corners(given: Vertices) -> Polytope:
    """Merge equal vertices, project them onto one plane, and drop corners that rounding moved inside.

    Raises PlaneError.
    """
    sent = vertices, combinations = given.points, given.combinations
    no_positions = np.zeros(0)
    distinct = np.sort(np.unique(vertices, axis=0, return_index=True)[1])
    corners, corner_combinations = vertices[distinct], combinations[distinct]
    steps = corners - corners[0]
    extent = float(np.abs(steps).max())
    if extent == 0:
        return Polytope(corners, corner_combinations, *sent, no_positions)
    first = _longest_direction(steps)
    along = steps @ first
    off_line = steps - np.outer(along, first)
    if np.linalg.norm(off_line, axis=1).max() <= MAX_LINE_THICKNESS * extent:
        ends = [int(along.argmin()), int(along.argmax())]
        positions = ((vertices - corners[0]) @ first - along.min()) / (along.max() - along.min())
        return Polytope(corners[ends], corner_combinations[ends], *sent, positions.clip(0, 1))
    second = _longest_direction(off_line - np.outer(off_line @ first, first))
    coordinates = np.stack([along, steps @ second], 1)  # (k, 2) in the plane
    projected = coordinates @ np.stack([first, second])
    slack = FLOAT32_ERROR * float(np.abs(corners).max())
    off_plane = float(np.abs(steps - projected).max())
    if off_plane > slack + MAX_LINE_THICKNESS * extent:
        raise PlaneError(
            f"The vertices do not lie in one plane: one is off it by {off_plane / extent:.1e} of their extent.",
            where=given.where,
            hint="Give polytopes of at most two dimensions.",
        )
    if off_plane > MAX_LINE_THICKNESS / 4 * extent:
        corners = corners[0] + projected
    kept = _drop_inner_corners(coordinates, slack)
    return Polytope(corners[kept], corner_combinations[kept], *sent, no_positions)


def _read_vertices(message: Any, dims: int, where: str) -> Vertices:
    """Read the vertices (n, dims) and their combinations (n, originals), by default the identity."""
    count = message.num_vertices
    if not 1 <= count <= MAX_VERTICES or len(message.vertices) != count * dims:
        raise request_error(
            f"There are {len(message.vertices):,} numbers for {count:,} vertices of {dims:,} dimensions.",
            where,
            f"Give 1 to {MAX_VERTICES:,} vertices, and as many numbers as they need.",
        )
    vertices = read_floats(message.vertices, "vertices", where).astype(np.float64).reshape(count, dims)
    if not len(message.combinations):
        return Vertices(vertices, np.eye(count), where)
    if len(message.combinations) % count or len(message.combinations) > count * MAX_VERTICES:
        raise request_error(
            f"There are {len(message.combinations):,} shares for {count:,} vertices.",
            where,
            "Give the identity, or for each vertex its shares of the vertices it came from.",
        )
    combinations = read_floats(message.combinations, "combinations", where).astype(np.float64).reshape(count, -1)
    if combinations.min() < -MAX_SHARE_ERROR or np.abs(combinations.sum(1) - 1).max() > MAX_SHARE_ERROR:
        raise request_error("The combinations are not convex.", where, "Shares must be at least 0 and sum to 1.")
    return Vertices(vertices, combinations, where)


def _longest_direction(
    steps: Floats,  # (k, in)
) -> Floats:
    """Return the direction (in,) of the longest step."""
    longest = steps[int(np.linalg.norm(steps, axis=1).argmax())]
    return longest / np.linalg.norm(longest)


def _drop_inner_corners(
    coordinates: Floats,  # (k, 2)
    slack: float,
) -> Ints:
    """Return the corners to keep: all but those that lie inside the polygon of the others by no more than rounding."""
    kept = np.arange(len(coordinates))
    sign = 1.0 if _triangle_areas(coordinates).sum() >= 0 else -1.0
    while len(kept) > 3:
        ring = coordinates[kept]
        bases = np.linalg.norm(np.roll(ring, -1, 0) - np.roll(ring, 1, 0), axis=1).clip(SMALLEST_LENGTH)
        depths = -sign * _triangle_areas(ring) / bases  # by how much each corner lies inside
        droppable = np.where(depths <= slack, depths, -1.0)
        if droppable.max() <= 0:
            break
        kept = np.delete(kept, int(droppable.argmax()))
    return kept


def _triangle_areas(
    ring: Floats,  # (k, 2)
) -> Floats:
    """Return twice the signed area (k,) of the triangle of each corner and its neighbours."""
    back, forward = ring - np.roll(ring, 1, 0), np.roll(ring, -1, 0) - ring
    return back[:, 0] * forward[:, 1] - back[:, 1] * forward[:, 0]
