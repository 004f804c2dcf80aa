"""Pointwise operators in rationals: which side of each knot a coordinate is on."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..network.graph import Shape
from ..ops.pointwise import Number, Pointwise
from .affine import spread
from .forms import Forms, denominators
from .integers import Rationals, Wholes, common, ratio
from .rules import Pattern, Rule, Turn


class PointwiseRule(Rule):
    """Branch 2j is the open segment j, and 2j + 1 a piece that lies on knot j throughout."""

    def __init__(self, op: Pointwise, shape: Shape) -> None:
        self.op = op
        self.shape = shape
        width = 1 if all(isinstance(n, Fraction) for n in (*op.knots, *op.slopes, op.value)) else None
        knots = [_numbers(k, shape, width) for k in op.knots]
        slopes = [_numbers(s, shape, width) for s in op.slopes]
        shifts = _shifts(knots, slopes, _numbers(op.value, shape, width))
        table = common([number for row in (*slopes, *shifts) for number in row])
        both = table.top.reshape(2, len(slopes), -1)
        self.knots = [common(k) for k in knots]  # each (units,) or (1,)
        self.slopes, self.shifts, self.bottom = both[0], both[1], table.bottom  # (segments, units or 1)

    def split(self, x: Forms, alphas: Sequence[Fraction]) -> tuple[Pattern, list[Turn]]:
        values, scale = x.at_breaks(alphas), denominators(alphas) * x.bottom
        pattern = np.zeros((len(x), x.pieces), dtype=np.int64)
        flat = np.zeros_like(pattern)
        rises: list[Turn] = []
        falls: list[Turn] = []
        for j, knot in enumerate(self.knots):
            side = sides(values, scale, knot)
            first, last = side[:, :-1], side[:, 1:]
            start = np.where(first == 0, last, first)
            pattern += 2 * (start > 0)
            flat |= start == 0
            rises += _turns(x, knot, (first < 0) & (last > 0), 2 * j + 2)
            # a falling unit meets the last knot first: the order matters where two knots are equal
            falls = _turns(x, knot, (first > 0) & (last < 0), 2 * j) + falls
        return pattern + flat, sorted(rises + falls, key=lambda turn: turn.alpha)

    def changed(self, pattern: Pattern, x: Forms) -> NDArray[np.bool_]:
        left, right = pattern[:, :-1], pattern[:, 1:]
        return (left % 2 == 0) & (right % 2 == 0) & (left != right)

    def follow(self, pattern: Pattern, x: Forms) -> Forms:
        segment = pattern >> 1  # on a knot the left branch serves: there is no slope along the line
        unit = np.zeros(1, dtype=np.int64) if self.slopes.shape[1] == 1 else np.arange(len(x))[:, None]
        top = x.top * self.slopes[segment, unit][:, None]
        if any(self.shifts.reshape(-1).tolist()):
            top[:, 0] += self.shifts[segment, unit] * x.bottom
        return Forms(top, x.bottom * self.bottom)

    def branch(self, pattern: Pattern) -> Tensor:
        segment = pattern >> 1
        if self.op.flat_slope is not None:
            segment = np.where(pattern % 2 == 1, segment + len(self.op.slopes), segment)
        return torch.from_numpy(segment.T.astype(np.int16)).reshape(-1, *self.shape)


def sides(
    values: Wholes,  # (units, n) numerators ...
    scale: Wholes,  # (n,) ... over these
    knot: Rationals,  # (units,) or (1,)
) -> NDArray[np.int8]:  # (units, n)
    """-1 for a value below a knot, 0 on it, 1 above."""
    gap = values * knot.bottom - knot.top[:, None] * scale if any(knot.top.tolist()) else values
    return (gap > 0).astype(np.int8) - (gap < 0).astype(np.int8)


def crossing(x: Forms, knot: Rationals, unit: int, piece: int) -> Fraction:
    """The alpha where a unit's line on a piece meets a knot."""
    p, q = x.top[unit, :, piece]
    level = knot.top[unit if len(knot) > 1 else 0]
    return ratio(level * x.bottom - p * knot.bottom, q * knot.bottom)


def _turns(x: Forms, knot: Rationals, crossed: NDArray[np.bool_], branch: int) -> list[Turn]:
    return [Turn(k, unit, crossing(x, knot, unit, k), branch) for unit, k in np.argwhere(crossed).tolist()]


def _shifts(knots: list[list[Fraction]], slopes: list[list[Fraction]], value: list[Fraction]) -> list[list[Fraction]]:
    """The function is slope * x + shift on each segment: the shifts, from the value at the first knot."""
    shifts = [[v - s * k for v, s, k in zip(value, slopes[0], knots[0], strict=True)]]
    for j, knot in enumerate(knots):  # both neighbours agree at a knot
        rows = zip(shifts[j], slopes[j], slopes[j + 1], knot, strict=True)
        shifts.append([shift + (left - right) * k for shift, left, right, k in rows])
    return shifts


def _numbers(value: Number, shape: Shape, width: int | None) -> list[Fraction]:
    """One number for each unit, or a single one for all."""
    if isinstance(value, Fraction):
        return [value] * (torch.Size(shape).numel() if width is None else width)
    return spread(value, shape, "a pointwise operator").fractions
