"""Piecewise-linear functions of one coordinate, combined exactly while a model is read.

Several operators together can be one continuous activation: ``x * (x > 0)``, ``where(x > 0, x, 0.1 * x)``, or
softshrink after torch has decomposed it into comparisons, signs and masks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

from ..ops.pointwise import Number, Pointwise

ZERO, ONE = Fraction(0), Fraction(1)


class NotPiecewiseLinear(Exception):
    """Raised where a combination of functions is not piecewise linear, such as a product of two slopes."""


class AffinePiece(NamedTuple):
    """slope * x + intercept."""

    slope: Fraction
    intercept: Fraction

    def at(self, x: Fraction) -> Fraction:
        """The value at ``x``."""
        return self.slope * x + self.intercept


class SourceOperator(NamedTuple):
    """The operator in the model that a value was read from."""

    name: str = ""
    path: str = ""  # of its module, as in named_modules()


@dataclass(frozen=True)
class ScalarFunction:
    """An elementwise function of one node's output: affine between its knots, with possible jumps at them.

    >>> x = ScalarFunction.identity(0)
    >>> step = compare(x, constant(0, 0), lambda a, b: a > b)
    >>> relu = multiply(x, step)
    >>> relu.knots, relu.find_jump()
    ((Fraction(0, 1),), None)
    """

    node: int  # index of the node that it is a function of
    knots: tuple[Fraction, ...]
    pieces: tuple[AffinePiece, ...]  # one more than there are knots
    knot_values: tuple[Fraction, ...]  # the value on each knot, which can differ from both neighbouring pieces
    is_boolean: bool = False
    source: SourceOperator = field(default=SourceOperator(), compare=False)

    @staticmethod
    def identity(node: int) -> ScalarFunction:
        """The output of a node as a function of itself."""
        return ScalarFunction(node, (), (AffinePiece(ONE, ZERO),), ())

    def at(self, x: Fraction) -> Fraction:
        """The value at ``x``."""
        j = bisect_left(self.knots, x)
        if j < len(self.knots) and self.knots[j] == x:
            return self.knot_values[j]
        return self.pieces[j].at(x)

    def find_jump(self) -> Fraction | None:
        """The first knot at which the function is not continuous, or None."""
        for j, knot in enumerate(self.knots):
            if not self.pieces[j].at(knot) == self.knot_values[j] == self.pieces[j + 1].at(knot):
                return knot
        return None

    def to_operator(self) -> Pointwise | AffinePiece:
        """Convert a continuous function to a pointwise operator, or to one affine piece where it has no bend."""
        bends = [j for j in range(len(self.knots)) if self.pieces[j] != self.pieces[j + 1]]
        if not bends:
            return self.pieces[0]
        knots = tuple(self.knots[j] for j in bends)
        slopes = (self.pieces[bends[0]].slope, *(self.pieces[j + 1].slope for j in bends))
        return Pointwise(knots, slopes, self.knot_values[bends[0]], name="where")


def constant(node: int, value: float | Fraction) -> ScalarFunction:
    """A constant as a function of a node's output."""
    return ScalarFunction(node, (), (AffinePiece(ZERO, Fraction(value)),), ())


def compose(op: Pointwise, inner: ScalarFunction) -> ScalarFunction:
    """Apply a pointwise operator to a function.

    Raises NotPiecewiseLinear where a knot, slope or value of the operator is a tensor.
    """
    knots, outer = _list_pieces(op)
    levels = [AffinePiece(ZERO, knot) for knot in knots]
    cuts = [x for piece in inner.pieces for level in levels if (x := _intersect(piece, level)) is not None]

    def apply(pieces: Sequence[AffinePiece], x: Fraction) -> AffinePiece:
        (piece,) = pieces
        slope, intercept = outer[bisect_left(knots, piece.at(x))]
        return AffinePiece(slope * piece.slope, slope * piece.intercept + intercept)

    def evaluate(values: Sequence[Fraction]) -> Fraction:
        (value,) = values
        return outer[bisect_left(knots, value)].at(value)

    return _combine([inner], cuts, apply, evaluate)


def add(a: ScalarFunction, b: ScalarFunction, factor: Fraction = ONE) -> ScalarFunction:
    """a + factor * b."""
    return _combine(
        [a, b],
        [],
        lambda pieces, _: AffinePiece(*(p + factor * q for p, q in zip(*pieces, strict=True))),
        lambda values: values[0] + factor * values[1],
    )


def multiply(a: ScalarFunction, b: ScalarFunction) -> ScalarFunction:
    """a * b; raises NotPiecewiseLinear where both have a slope."""

    def apply(pieces: Sequence[AffinePiece], _: Fraction) -> AffinePiece:
        p, q = pieces
        if p.slope and q.slope:
            raise NotPiecewiseLinear
        return AffinePiece(p.slope * q.intercept + q.slope * p.intercept, p.intercept * q.intercept)

    return _combine([a, b], [], apply, lambda values: values[0] * values[1])


def compare(a: ScalarFunction, b: ScalarFunction, test: Callable[[Fraction, Fraction], bool]) -> ScalarFunction:
    """1 where ``test(a, b)`` holds, 0 elsewhere."""
    cuts = [x for p in a.pieces for q in b.pieces if (x := _intersect(p, q)) is not None]
    return _combine(
        [a, b],
        cuts,
        lambda pieces, x: AffinePiece(ZERO, Fraction(int(test(pieces[0].at(x), pieces[1].at(x))))),
        lambda values: Fraction(int(test(values[0], values[1]))),
        is_boolean=True,
    )


def where(condition: ScalarFunction, yes: ScalarFunction, no: ScalarFunction) -> ScalarFunction:
    """``yes`` where the condition is not 0, ``no`` elsewhere."""
    return _combine(
        [condition, yes, no],
        [],
        lambda pieces, x: pieces[1] if pieces[0].at(x) else pieces[2],
        lambda values: values[1] if values[0] else values[2],
        is_boolean=yes.is_boolean and no.is_boolean,
    )


def sign(a: ScalarFunction) -> ScalarFunction:
    """-1, 0 or 1."""
    positive = compare(a, constant(a.node, 0), lambda x, y: x > y)
    negative = compare(a, constant(a.node, 0), lambda x, y: x < y)
    return add(positive, negative, Fraction(-1))


def logical_not(a: ScalarFunction) -> ScalarFunction:
    """1 where ``a`` is 0, 0 elsewhere."""
    return compare(a, constant(a.node, 0), lambda x, y: x == y)


def logical_and(a: ScalarFunction, b: ScalarFunction) -> ScalarFunction:
    """The product of two conditions."""
    return _combine(
        [a, b],
        [],
        lambda pieces, x: AffinePiece(ZERO, pieces[0].at(x) * pieces[1].at(x)),
        lambda values: values[0] * values[1],
        is_boolean=True,
    )


def _combine(
    functions: Sequence[ScalarFunction],
    cuts: Sequence[Fraction],  # knots that the combination adds
    apply: Callable[[Sequence[AffinePiece], Fraction], AffinePiece],  # given one piece of each, and a point inside them
    evaluate: Callable[[Sequence[Fraction]], Fraction],  # given the value of each at a knot
    is_boolean: bool = False,
) -> ScalarFunction:
    """Combine functions of one node piece by piece, between all of their knots."""
    knots = sorted({knot for function in functions for knot in function.knots} | set(cuts))
    pieces: list[AffinePiece] = []
    for left, right in zip([None, *knots], [*knots, None], strict=True):
        x = _choose_point_between(left, right)
        pieces.append(apply([f.pieces[bisect_left(f.knots, x)] for f in functions], x))
    knot_values = tuple(evaluate([f.at(knot) for f in functions]) for knot in knots)
    return ScalarFunction(functions[0].node, tuple(knots), tuple(pieces), knot_values, is_boolean)


def _choose_point_between(left: Fraction | None, right: Fraction | None) -> Fraction:
    """A point strictly between two knots; None stands for an infinite end."""
    if left is None:
        return ZERO if right is None else right - 1
    return left + 1 if right is None else (left + right) / 2


def _intersect(p: AffinePiece, q: AffinePiece) -> Fraction | None:
    """Where two lines meet; None for parallel ones."""
    return None if p.slope == q.slope else (q.intercept - p.intercept) / (p.slope - q.slope)


def _list_pieces(op: Pointwise) -> tuple[list[Fraction], list[AffinePiece]]:
    """The knots of a pointwise operator and the affine pieces between them, from left to right."""
    knots, slopes = [_require_fraction(k) for k in op.knots], [_require_fraction(s) for s in op.slopes]
    height = _require_fraction(op.value)
    pieces = [AffinePiece(slopes[0], height - slopes[0] * knots[0])]
    for i, slope in enumerate(slopes[1:]):
        height += slopes[i] * (knots[i] - knots[i - 1]) if i else ZERO
        pieces.append(AffinePiece(slope, height - slope * knots[i]))
    return knots, pieces


def _require_fraction(value: Number) -> Fraction:
    if isinstance(value, Fraction):
        return value
    raise NotPiecewiseLinear
