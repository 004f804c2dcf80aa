"""A polytope as old clients send it: corners in float32, some of them equal or barely off the plane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...arrays import Floats, Ints
from ...errors import PlaneError
from .layers import bad, numbers

CORNERS = 1024  # of one polytope
ROUNDED = 4 * 2.0**-24  # how far float32 may move a corner, as a share of the largest coordinate
FLAT = 2e-9  # what is thinner than this, as a share of its extent, is a line
SUM = 1e-4  # how far the shares of a combination may be from 1


@dataclass(frozen=True)
class Corners:
    """What is to be cut: one point, the two ends of a line, or a polygon's corners in order; and all that was sent."""

    points: Floats  # (k, in)
    mixing: Floats  # (k, vertices) each as a combination of the vertices that the client means
    ring: Floats  # (n, in) all vertices as they came, also those that are the same point or on one line
    combinations: Floats  # (n, vertices) of these
    along: Floats  # (n,) where each lies on the line, from 0 to 1; nothing where it is none

    def strip(self, low: float, high: float) -> tuple[Floats, Floats]:
        """The part of a polygon without width between two places of its line: where its corners lie, and what they are.

        >>> line = Corners(np.eye(2), np.eye(2), np.eye(3), np.eye(3), np.array([0.0, 1.0, 0.5]))
        >>> line.strip(0.0, 0.5)[0]
        array([0. , 0.5, 0.5])
        """
        count = len(self.along)
        sides = [(i, (i + 1) % count) for i in range(count)] if count > 2 else [(0, 1)]
        found: list[tuple[float, Floats]] = []
        for i, j in sides:
            first, last = float(self.along[i]), float(self.along[j])
            start, stop = np.clip([first, last], low, high).tolist()
            outside = max(first, last) < low or min(first, last) > high
            for place in () if outside else (start, stop):
                share = (place - first) / (last - first) if last != first else 0.0
                mixed = (1 - share) * self.combinations[i] + share * self.combinations[j]
                if not any(np.array_equal(mixed, known) for _, known in found):
                    found.append((place, mixed))
        return np.array([place for place, _ in found]), np.stack([mixed for _, mixed in found])


def polytopes_of(message: Any, where: str) -> list[Corners]:
    """All polytopes of a UPolytope.

    Raises ArgumentError, PlaneError.
    """
    if not message.polytopes or not message.space_dimensions:
        raise bad("There is no polytope, or it has no dimensions.", where, "Give polytopes and space_dimensions.")
    several = len(message.polytopes) > 1
    return [
        corners_of(polytope, message.space_dimensions, f"{where}, part {number}" if several else where)
        for number, polytope in enumerate(message.polytopes, 1)
    ]


def corners_of(message: Any, dims: int, where: str) -> Corners:
    """The corners that span a VPolytope: each once, in one plane and without those that rounding moved inside.

    Raises ArgumentError, PlaneError.
    """
    ring, combinations = _read(message, dims, where)
    sent, nowhere = (ring, combinations), np.zeros(0)
    points, mixing = sent
    once = np.sort(np.unique(points, axis=0, return_index=True)[1])
    points, mixing = points[once], mixing[once]
    steps = points - points[0]
    size = float(np.abs(steps).max())
    if size == 0:
        return Corners(points, mixing, *sent, nowhere)
    first = _unit(steps)
    along = steps @ first
    off = steps - np.outer(along, first)
    if np.linalg.norm(off, axis=1).max() <= FLAT * size:
        ends = [int(along.argmin()), int(along.argmax())]
        places = (ring - points[0]) @ first
        along = (places - along.min()) / (along.max() - along.min())
        return Corners(points[ends], mixing[ends], *sent, along.clip(0, 1))
    second = _unit(off - np.outer(off @ first, first))
    places = np.stack([along, steps @ second], 1)
    flat = places @ np.stack([first, second])
    slack, astray = ROUNDED * float(np.abs(points).max()), float(np.abs(steps - flat).max())
    if astray > slack + FLAT * size:
        raise PlaneError(
            f"The vertices do not lie in one plane: one is off it by {astray / size:.1e} of their extent.",
            where=where,
            hint="Give polytopes of at most two dimensions.",
        )
    if astray > FLAT / 4 * size:
        points = points[0] + flat
    kept = _outer(places, slack)
    return Corners(points[kept], mixing[kept], *sent, nowhere)


def _read(message: Any, dims: int, where: str) -> tuple[Floats, Floats]:
    count = message.num_vertices
    if not 1 <= count <= CORNERS or len(message.vertices) != count * dims:
        raise bad(
            f"There are {len(message.vertices):,} numbers for {count:,} vertices of {dims:,} dimensions.",
            where,
            f"Give 1 to {CORNERS:,} vertices, and as many numbers as they need.",
        )
    points = numbers(message.vertices, "vertices", where).astype(np.float64).reshape(count, dims)
    if not message.combinations:
        return points, np.eye(count)
    if len(message.combinations) % count or len(message.combinations) > count * CORNERS:
        raise bad(
            f"There are {len(message.combinations):,} shares for {count:,} vertices.",
            where,
            "Give the identity, or for each vertex its shares of the vertices it came from.",
        )
    mixing = numbers(message.combinations, "combinations", where).astype(np.float64).reshape(count, -1)
    if mixing.min() < -SUM or np.abs(mixing.sum(1) - 1).max() > SUM:
        raise bad("The combinations are not convex.", where, "Shares are at least 0 and add up to 1: the identity.")
    return points, mixing


def _unit(steps: Floats) -> Floats:
    """The direction of the longest."""
    far = steps[int(np.linalg.norm(steps, axis=1).argmax())]
    return far / np.linalg.norm(far)


def _outer(places: Floats, slack: float) -> Ints:
    """The corners but for those that lie inside of the side that leaves them out, by no more than rounding."""
    kept = np.arange(len(places))
    sign = 1.0 if _turns(places).sum() >= 0 else -1.0
    while len(kept) > 3:
        ring = places[kept]
        inside = -sign * _turns(ring) / np.linalg.norm(np.roll(ring, -1, 0) - np.roll(ring, 1, 0), axis=1).clip(1e-300)
        worst = np.where(inside <= slack, inside, -1.0)
        if worst.max() <= 0:
            break
        kept = np.delete(kept, int(worst.argmax()))
    return kept


def _turns(ring: Floats) -> Floats:
    """Twice the area of the triangle that each corner makes with its neighbours."""
    back, on = ring - np.roll(ring, 1, 0), np.roll(ring, -1, 0) - ring
    return back[:, 0] * on[:, 1] - back[:, 1] * on[:, 0]
