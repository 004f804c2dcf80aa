"""Convex polygons with rational corners for the checker of proofs."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

Point: TypeAlias = tuple[Fraction, ...]
Polygon: TypeAlias = list[Point]  # corners in order


def rectangle(lower: Sequence[Fraction], upper: Sequence[Fraction]) -> Polygon:
    """The rectangle between two corners."""
    return [(lower[0], lower[1]), (upper[0], lower[1]), (upper[0], upper[1]), (lower[0], upper[1])]


def clip(points: Polygon, line: Sequence[int | Fraction]) -> Polygon:
    """The part of a polygon, or of an interval, where ``line[0] + line[1] * x + ...`` is at most 0."""
    values = [evaluate(line, p) for p in points]
    kept: Polygon = []
    for k, (point, value) in enumerate(zip(points, values, strict=True)):
        if value <= 0:
            kept.append(point)
        other, other_value = points[(k + 1) % len(points)], values[(k + 1) % len(points)]
        if (value < 0 < other_value) or (other_value < 0 < value):
            share = value / (value - other_value)
            kept.append(tuple(a + share * (b - a) for a, b in zip(point, other, strict=True)))
    return list(dict.fromkeys(kept))


def evaluate(line: Sequence[int | Fraction], point: Point) -> Fraction:
    """The value of ``line[0] + line[1] * x + ...`` at a point."""
    return sum((a * x for a, x in zip(line[1:], point, strict=True)), Fraction(line[0]))


def measure_area(polygon: Polygon) -> Fraction:
    """The area of a polygon."""
    pairs = zip(polygon, [*polygon[1:], *polygon[:1]], strict=True)
    return abs(sum((a[0] * b[1] - a[1] * b[0] for a, b in pairs), Fraction(0))) / 2
