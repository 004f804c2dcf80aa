"""Convex polygons with rational corners: cut by a line, area, hull; nothing is ever rounded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import gcd
from typing import TypeAlias

Corner: TypeAlias = tuple[int, int, int]  # (w, s, t): the point (s / w, t / w), w > 0, no common factor
Polygon: TypeAlias = tuple[Corner, ...]  # counterclockwise
Line: TypeAlias = tuple[int, int, int]  # (c, a, b): the function c + a s + b t, or any multiple of it
Point: TypeAlias = tuple[Fraction, Fraction]


def corner(s: Fraction, t: Fraction) -> Corner:
    """A point as whole numbers."""
    return _reduced(s.denominator * t.denominator, s.numerator * t.denominator, t.numerator * s.denominator)


def point(at: Corner) -> Point:
    """A corner as two fractions."""
    w, s, t = at
    return Fraction(s, w), Fraction(t, w)


def polygon(points: Iterable[tuple[Fraction | int, Fraction | int]]) -> Polygon:
    """A convex polygon from its corners, in either sense of rotation."""
    corners = tuple(corner(Fraction(s), Fraction(t)) for s, t in points)
    return corners if area(corners) > 0 else corners[::-1]


def side(line: Line, at: Corner) -> int:
    """Something with the sign of a function at a corner."""
    return line[0] * at[0] + line[1] * at[1] + line[2] * at[2]


def halves(shape: Polygon, line: Line) -> tuple[Polygon | None, Polygon | None]:
    """The parts where a function is not positive and not negative; None for a part without interior.

    A function that is zero throughout has the whole polygon on both sides.
    """
    sides = [side(line, at) for at in shape]
    if not any(v > 0 for v in sides):
        return shape, None if any(v < 0 for v in sides) else shape
    if not any(v < 0 for v in sides):
        return None, shape
    below: list[Corner] = []
    above: list[Corner] = []
    for here, there, v, u in zip(shape, shape[1:] + shape[:1], sides, sides[1:] + sides[:1], strict=True):
        if v <= 0:
            below.append(here)
        if v >= 0:
            above.append(here)
        if (v < 0 < u) or (u < 0 < v):
            w, s, t = (abs(u) * a + abs(v) * b for a, b in zip(here, there, strict=True))
            cut = _reduced(w, s, t)
            below.append(cut)
            above.append(cut)
    return tuple(below), tuple(above)


def split(shape: Polygon, line: Line) -> list[Polygon]:
    """Both parts of a polygon on which a function has strictly opposite signs, else the polygon itself."""
    below, above = halves(shape, line)
    return [shape] if below is None or above is None or below is above else [below, above]


def area(shape: Polygon) -> Fraction:
    """The signed area in plane coordinates."""
    total = Fraction(0)
    for (w, s, t), (v, p, q) in zip(shape, shape[1:] + shape[:1], strict=True):
        total += Fraction(s * q - p * t, w * v)
    return total / 2


def centre(shape: Polygon) -> Point:
    """The mean of the corners: a point inside."""
    points = [point(at) for at in shape]
    return sum((s for s, _ in points), Fraction(0)) / len(points), sum((t for _, t in points), Fraction(0)) / len(
        points
    )


def hull(corners: Iterable[Corner]) -> Polygon:
    """The smallest convex polygon around some corners, without corners of 180 degrees."""
    ordered = sorted(set(corners), key=point)
    chains = [_chain(ordered), _chain(ordered[::-1])]
    return tuple(chains[0][:-1] + chains[1][:-1])


def _chain(ordered: Sequence[Corner]) -> list[Corner]:
    chain: list[Corner] = []
    for at in ordered:
        while len(chain) > 1 and turn(chain[-2], chain[-1], at) <= 0:
            chain.pop()
        chain.append(at)
    return chain


def turn(one: Corner, two: Corner, three: Corner) -> int:
    """Positive for a turn to the left, zero for points on one line."""
    (a, b, c), (d, e, f), (g, h, i) = one, two, three
    return a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g)


def _reduced(w: int, s: int, t: int) -> Corner:
    common = gcd(w, s, t)
    return w // common, s // common, t // common
