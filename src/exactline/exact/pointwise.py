"""Pointwise operators in rational arithmetic: on which side of each knot every unit is."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..network.graph import Shape
from ..ops.pointwise import Number, Pointwise
from .affine import expand_constant
from .forms import AffineForms, list_denominators
from .integers import IntegerArray, Rationals, make_fraction, to_common_denominator
from .rules import ActivationPattern, ExactCrossing, ExactRule


class PointwiseRule(ExactRule):
    """A pointwise operator; branch 2j is the open segment j, and branch 2j + 1 a whole piece on knot j."""

    def __init__(self, op: Pointwise, shape: Shape) -> None:
        self.op = op
        self.shape = shape
        is_uniform = all(isinstance(n, Fraction) for n in (*op.knots, *op.slopes, op.value))
        units = 1 if is_uniform else torch.Size(shape).numel()
        knots = [_expand_numbers(k, shape, units) for k in op.knots]
        slopes = [_expand_numbers(s, shape, units) for s in op.slopes]
        intercepts = _compute_intercepts(knots, slopes, _expand_numbers(op.value, shape, units))
        table = to_common_denominator([number for row in (*slopes, *intercepts) for number in row])
        self.knots = [to_common_denominator(k) for k in knots]  # each (units,) or (1,)
        # (segments, units or 1) each, over one denominator
        self.slopes, self.intercepts = table.numerators.reshape(2, len(slopes), -1)
        self.denominator = table.denominator

    def find_crossings(
        self, x: AffineForms, alphas: Sequence[Fraction]
    ) -> tuple[ActivationPattern, list[ExactCrossing]]:
        values, scale = x.numerators_at_breaks(alphas), list_denominators(alphas) * x.denominator
        pattern = np.zeros((len(x), x.piece_count), dtype=np.int64)
        is_on_knot = np.zeros_like(pattern)
        rising: list[ExactCrossing] = []
        falling: list[ExactCrossing] = []
        for j, knot in enumerate(self.knots):
            side = compare_to_knot(values, scale, knot)
            first, last = side[:, :-1], side[:, 1:]
            just_after_start = np.where(first == 0, last, first)
            pattern += 2 * (just_after_start > 0)
            is_on_knot |= just_after_start == 0
            rising += _make_crossings(x, knot, (first < 0) & (last > 0), 2 * j + 2)
            # a falling unit reaches the last knot first: the order matters where two knots are equal
            falling = _make_crossings(x, knot, (first > 0) & (last < 0), 2 * j) + falling
        return pattern + is_on_knot, sorted(rising + falling, key=lambda crossing: crossing.alpha)

    def find_changes(self, pattern: ActivationPattern, x: AffineForms) -> NDArray[np.bool_]:
        left, right = pattern[:, :-1], pattern[:, 1:]
        return (left % 2 == 0) & (right % 2 == 0) & (left != right)

    def apply_affine(self, pattern: ActivationPattern, x: AffineForms) -> AffineForms:
        segment = pattern >> 1  # on a knot the left segment will do: the unit is constant along the line
        unit = np.zeros(1, dtype=np.int64) if self.slopes.shape[1] == 1 else np.arange(len(x))[:, None]
        numerators = x.numerators * self.slopes[segment, unit][:, None]
        if any(self.intercepts.reshape(-1).tolist()):
            numerators[:, 0] += self.intercepts[segment, unit] * x.denominator
        return AffineForms(numerators, x.denominator * self.denominator)

    def activation_pattern(self, pattern: ActivationPattern) -> Tensor:
        segment = pattern >> 1
        if self.op.flat_slope is not None:
            segment = np.where(pattern % 2 == 1, segment + len(self.op.slopes), segment)
        return torch.from_numpy(segment.T.astype(np.int16)).reshape(-1, *self.shape)


def compare_to_knot(
    values: IntegerArray,  # (units, n) numerators ...
    scale: IntegerArray,  # (n,) ... over these denominators
    knot: Rationals,  # (units,) or (1,)
) -> NDArray[np.int8]:  # (units, n)
    """-1 for a value below a knot, 0 on it, 1 above."""
    is_zero = not any(knot.numerators.tolist())
    distance = values if is_zero else values * knot.denominator - knot.numerators[:, None] * scale
    return (distance > 0).astype(np.int8) - (distance < 0).astype(np.int8)


def intersect_knot(x: AffineForms, knot: Rationals, unit: int, piece: int) -> Fraction:
    """The alpha where a unit's line on a piece meets a knot."""
    offset, slope = x.numerators[unit, :, piece]
    numerator = knot.numerators[unit if len(knot) > 1 else 0]
    return make_fraction(numerator * x.denominator - offset * knot.denominator, slope * knot.denominator)


def _make_crossings(
    x: AffineForms,
    knot: Rationals,  # (units,) or (1,)
    crosses: NDArray[np.bool_],  # (units, pieces)
    branch: int,  # after the crossings
) -> list[ExactCrossing]:
    """The crossings of a knot by some units on some pieces."""
    crossed = np.argwhere(crosses).tolist()
    return [ExactCrossing(piece, unit, intersect_knot(x, knot, unit, piece), branch) for unit, piece in crossed]


def _compute_intercepts(
    knots: list[list[Fraction]],  # (knots, units)
    slopes: list[list[Fraction]],  # (segments, units)
    value: list[Fraction],  # (units,) at the first knot
) -> list[list[Fraction]]:  # (segments, units)
    """The intercepts of all segments, on which the function is slope * x + intercept."""
    intercepts = [[v - s * k for v, s, k in zip(value, slopes[0], knots[0], strict=True)]]
    for j, knot in enumerate(knots):  # the segments on both sides agree at a knot
        rows = zip(intercepts[j], slopes[j], slopes[j + 1], knot, strict=True)
        intercepts.append([intercept + (left - right) * k for intercept, left, right, k in rows])
    return intercepts


def _expand_numbers(value: Number, shape: Shape, units: int) -> list[Fraction]:  # (units,)
    """Expand a knot, slope or value to one number for each unit."""
    if isinstance(value, Fraction):
        return [value] * units
    return expand_constant(value, shape, "a pointwise operator").fractions
