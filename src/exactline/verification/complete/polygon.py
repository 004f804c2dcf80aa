"""Convex polygons with rational corners, cut exactly by straight lines."""

from __future__ import annotations

from fractions import Fraction
from math import gcd
from typing import NamedTuple, TypeAlias


class Corner(NamedTuple):
    """The point (x / weight, y / weight), in lowest terms; the weight is positive."""

    weight: int
    x: int
    y: int

    @staticmethod
    def of(x: Fraction, y: Fraction) -> Corner:
        """Make a corner from two fractions."""
        return Corner.reduce(x.denominator * y.denominator, x.numerator * y.denominator, y.numerator * x.denominator)

    @staticmethod
    def reduce(weight: int, x: int, y: int) -> Corner:
        """Make a corner from homogeneous coordinates of either sign."""
        common = gcd(weight, x, y) if weight > 0 else -gcd(weight, x, y)
        return Corner(weight // common, x // common, y // common)

    @property
    def point(self) -> tuple[Fraction, Fraction]:
        """Both coordinates."""
        return Fraction(self.x, self.weight), Fraction(self.y, self.weight)


class CutLine(NamedTuple):
    """The line where ``constant + slope_x * x + slope_y * y`` is zero."""

    constant: int
    slope_x: int
    slope_y: int

    def value(self, corner: Corner) -> int:
        """The value at a corner times its weight."""
        return self.constant * corner.weight + self.slope_x * corner.x + self.slope_y * corner.y

    def reduce(self) -> CutLine:
        """The same line in lowest terms."""
        common = gcd(*self) or 1
        return CutLine(*(n // common for n in self))


Polygon: TypeAlias = tuple[Corner, ...]  # corners in order; two for a segment, one for a point


def make_rectangle(lower: tuple[Fraction, Fraction], upper: tuple[Fraction, Fraction]) -> Polygon:
    """Make the rectangle between two corners."""
    return (
        Corner.of(lower[0], lower[1]),
        Corner.of(upper[0], lower[1]),
        Corner.of(upper[0], upper[1]),
        Corner.of(lower[0], upper[1]),
    )


def cut_polygon(polygon: Polygon, line: CutLine) -> tuple[Polygon, Polygon]:
    """Cut a polygon: the part where the line's value is at most 0, and the part where it is at least 0."""
    values = [line.value(corner) for corner in polygon]
    below: list[Corner] = []
    above: list[Corner] = []
    for k, (corner, value) in enumerate(zip(polygon, values, strict=True)):
        if value <= 0:
            below.append(corner)
        if value >= 0:
            above.append(corner)
        follower, next_value = polygon[(k + 1) % len(polygon)], values[(k + 1) % len(polygon)]
        if value * next_value < 0:
            crossing = _intersect(corner, value, follower, next_value)
            below.append(crossing)
            above.append(crossing)
    return tuple(dict.fromkeys(below)), tuple(dict.fromkeys(above))


def _intersect(one: Corner, one_value: int, other: Corner, other_value: int) -> Corner:
    """The point between two corners where a line's value is zero."""
    mixed = [other_value * a - one_value * b for a, b in zip(one, other, strict=True)]
    return Corner.reduce(*mixed)


def find_middle(polygon: Polygon) -> tuple[Fraction, Fraction]:
    """The mean of the corners."""
    points = [corner.point for corner in polygon]
    return sum((p[0] for p in points), Fraction(0)) / len(points), sum((p[1] for p in points), Fraction(0)) / len(
        points
    )
