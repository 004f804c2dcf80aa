"""Scalar functions of one unit while a model is read.

Comparisons, signs and masks may add up to a continuous piecewise-linear function: softshrink, ``x * (x > 0)``,
``where(x > 0, x, 0.1 * x)``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from ..ops.pointwise import Number, Pointwise

Straight: TypeAlias = tuple[Fraction, Fraction]  # slope and intercept
ZERO, ONE = Fraction(0), Fraction(1)


class NotLinear(Exception):
    """A combination of curves that is no longer made of straight pieces."""


@dataclass(frozen=True)
class Curve:
    """A function of one coordinate, straight between its knots, free to jump at them.

    >>> x = Curve.identity(0)
    >>> step = compare(x, constant(0, 0), lambda a, b: a > b)
    >>> relu = multiply(x, step)
    >>> relu.knots, relu.jump()
    ((Fraction(0, 1),), None)
    """

    root: int  # the node it is a function of
    knots: tuple[Fraction, ...]
    straights: tuple[Straight, ...]  # one more than knots
    at_knots: tuple[Fraction, ...]  # the values on the knots themselves
    boolean: bool = False
    origin: tuple[str, str] = field(default=("", ""), compare=False)  # operator and module it was read from

    @staticmethod
    def identity(root: int) -> Curve:
        return Curve(root, (), ((ONE, ZERO),), ())

    def jump(self) -> Fraction | None:
        """Where it is not continuous, if anywhere."""
        for j, knot in enumerate(self.knots):
            left, right = _at(self.straights[j], knot), _at(self.straights[j + 1], knot)
            if not left == self.at_knots[j] == right:
                return knot
        return None

    def pointwise(self) -> Pointwise | Straight:
        """The continuous curve as an operator, or as one straight line."""
        kept = [j for j in range(len(self.knots)) if self.straights[j] != self.straights[j + 1]]
        if not kept:
            return self.straights[0]
        knots = tuple(self.knots[j] for j in kept)
        slopes = (self.straights[kept[0]][0], *(self.straights[j + 1][0] for j in kept))
        return Pointwise(knots, slopes, self.at_knots[kept[0]], name="where")


def constant(root: int, value: float | Fraction) -> Curve:
    return Curve(root, (), ((ZERO, Fraction(value)),), ())


def through(op: Pointwise, curve: Curve) -> Curve:
    """A pointwise operator, whose numbers are all exact, applied to a curve."""
    knots, segments = _segments(op)
    cuts = [k for line in curve.straights for level in knots if (k := _meets(line, (ZERO, level))) is not None]

    def apply(lines: Sequence[Straight], x: Fraction) -> Straight:
        slope, shift = segments[bisect_left(knots, _at(lines[0], x))]
        return slope * lines[0][0], slope * lines[0][1] + shift

    return _merge([curve], cuts, apply, lambda values: _at(segments[bisect_left(knots, values[0])], values[0]))


def add(a: Curve, b: Curve, factor: Fraction = ONE) -> Curve:
    return _merge(
        [a, b],
        [],
        lambda lines, _: (lines[0][0] + factor * lines[1][0], lines[0][1] + factor * lines[1][1]),
        lambda values: values[0] + factor * values[1],
    )


def multiply(a: Curve, b: Curve) -> Curve:
    def apply(lines: Sequence[Straight], _: Fraction) -> Straight:
        (s, c), (t, d) = lines
        if s and t:
            raise NotLinear
        return s * d + t * c, c * d

    return _merge([a, b], [], apply, lambda values: values[0] * values[1])


def compare(a: Curve, b: Curve, test: Callable[[Fraction, Fraction], bool]) -> Curve:
    cuts = [k for p in a.straights for q in b.straights if (k := _meets(p, q)) is not None]
    return _merge(
        [a, b],
        cuts,
        lambda lines, x: (ZERO, Fraction(int(test(_at(lines[0], x), _at(lines[1], x))))),
        lambda values: Fraction(int(test(values[0], values[1]))),
        boolean=True,
    )


def where(condition: Curve, yes: Curve, no: Curve) -> Curve:
    return _merge(
        [condition, yes, no],
        [],
        lambda lines, x: lines[1] if _at(lines[0], x) else lines[2],
        lambda values: values[1] if values[0] else values[2],
        boolean=yes.boolean and no.boolean,
    )


def sign(a: Curve) -> Curve:
    positive = compare(a, constant(a.root, 0), lambda x, y: x > y)
    negative = compare(a, constant(a.root, 0), lambda x, y: x < y)
    return add(positive, negative, Fraction(-1))


def negate(a: Curve) -> Curve:
    """The opposite of a condition."""
    return compare(a, constant(a.root, 0), lambda x, y: x == y)


def both(a: Curve, b: Curve) -> Curve:
    return _merge([a, b], [], lambda lines, x: (ZERO, _at(lines[0], x) * _at(lines[1], x)), lambda v: v[0] * v[1], True)


def _merge(
    curves: Sequence[Curve],
    cuts: Sequence[Fraction],
    apply: Callable[[Sequence[Straight], Fraction], Straight],
    value: Callable[[Sequence[Fraction]], Fraction],
    boolean: bool = False,
) -> Curve:
    """Combine curves piece by piece; ``apply`` gets the straight lines and a point inside the piece."""
    knots = sorted({k for c in curves for k in c.knots} | set(cuts))
    inner = [*(k for k in knots), None]
    straights: list[Straight] = []
    for j, right in enumerate(inner):
        left = knots[j - 1] if j else None
        x = _between(left, right)
        straights.append(apply([c.straights[bisect_left(c.knots, x)] for c in curves], x))
    at_knots = tuple(value([_curve_at(c, k) for c in curves]) for k in knots)
    return Curve(curves[0].root, tuple(knots), tuple(straights), at_knots, boolean)


def _between(left: Fraction | None, right: Fraction | None) -> Fraction:
    if left is None:
        return ZERO if right is None else right - 1
    return left + 1 if right is None else (left + right) / 2


def _curve_at(curve: Curve, x: Fraction) -> Fraction:
    j = bisect_left(curve.knots, x)
    if j < len(curve.knots) and curve.knots[j] == x:
        return curve.at_knots[j]
    return _at(curve.straights[j], x)


def _at(line: Straight, x: Fraction) -> Fraction:
    return line[0] * x + line[1]


def _meets(p: Straight, q: Straight) -> Fraction | None:
    return None if p[0] == q[0] else (q[1] - p[1]) / (p[0] - q[0])


def _segments(op: Pointwise) -> tuple[list[Fraction], list[Straight]]:
    """Knots of an exact pointwise operator, and slope and intercept between them."""
    knots, slopes = [_exact(k) for k in op.knots], [_exact(k) for k in op.slopes]
    height, straights = _exact(op.value), [(slopes[0], _exact(op.value) - slopes[0] * knots[0])]
    for i, slope in enumerate(slopes[1:]):
        height += slopes[i] * (knots[i] - knots[i - 1]) if i else ZERO
        straights.append((slope, height - slope * knots[i]))
    return knots, straights


def _exact(value: Number) -> Fraction:
    if isinstance(value, Fraction):
        return value
    raise NotLinear
