"""Compares a line with the exact function everywhere: both are piecewise linear, so at the breaks of both."""

from __future__ import annotations

import copy
import math
import os
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from torch import nn

import exactline as xl
from exactline import Restriction
from tests.numerics.networks import Case

FRACTION_BITS = 400  # of the numbers that stand for exact values in deep networks
WEIGHT_BITS = 1100  # every float64 of a deep network's weights is a multiple of 2**-WEIGHT_BITS
DEEP_POSITIONS = 200  # alphas at which deep networks are compared
HALF_ULP = 2.0**-53
SMALLEST_SUBNORMAL = 2.0**-1074  # the ulp of 0
DEVICE = os.environ.get("EXACTLINE_NUMERICS_DEVICE", "cpu")  # where lines are computed; "cuda" checks a GPU

ExactFunction = Callable[[Fraction], list[Fraction]]


@dataclass(frozen=True)
class Comparison:
    """How far a line is from the exact function, and how far it says that it is."""

    violation: float  # the largest true error divided by the estimate at the same alpha; above 1: the promise is broken
    true_error: float  # the largest
    estimate: float  # `Restriction.error`
    floor: float  # half an ulp of the largest value, or of an alpha times the slope there

    @property
    def is_useful(self) -> bool:
        """Whether the estimate is at most a thousand times what it estimates."""
        return self.estimate <= 1e3 * max(self.true_error, self.floor)


def compare(case: Case, engine: str) -> Comparison:
    """Restrict a case and compare it with rational arithmetic."""
    model = case.model if DEVICE == "cpu" else copy.deepcopy(case.model).to(DEVICE)
    line = xl.restrict(model, case.start.to(DEVICE), case.end.to(DEVICE), engine=engine)
    if case.family == "deep":
        positions = [Fraction(k, DEEP_POSITIONS) for k in range(DEEP_POSITIONS + 1)]
        return compare_at(line, _fixed_point_function(case), positions)
    exact = xl.exact.restrict(case.model, case.start, case.end)
    return compare_at(line, exact.value, exact.alphas)


def compare_at(line: Restriction, function: ExactFunction, positions: list[Fraction]) -> Comparison:
    """Compare a line with an exact function at its breaks and at some more positions."""
    count = len(line.alphas)
    alphas = [Fraction(a) for a in line.alphas.tolist()]
    values = [[Fraction(v) for v in row] for row in line.values.reshape(count, -1).tolist()]  # pyright: ignore
    errors = line.errors.tolist()
    violation, true_error = 0.0, 0.0
    for alpha in sorted({*alphas, *positions}):
        left = min(bisect_right(alphas, alpha) - 1, count - 2)
        share = (alpha - alphas[left]) / (alphas[left + 1] - alphas[left])
        estimate = errors[left] * float(1 - share) + errors[left + 1] * float(share)
        for a, b, exact in zip(values[left], values[left + 1], function(alpha), strict=True):
            error = _to_float(abs(a * (1 - share) + b * share - exact))
            true_error = max(true_error, error)
            if error > 0:
                violation = max(violation, error / estimate if estimate > 0 else math.inf)
    return Comparison(violation, true_error, line.error, _floor(line))


def _floor(line: Restriction) -> float:
    values = line.values.reshape(len(line.alphas), -1)  # pyright: ignore
    slopes = values.diff(dim=0).abs().amax(1) / line.alphas.diff()
    largest = max(float(values.abs().max()), float((slopes * line.alphas[1:]).max()))
    return max(HALF_ULP * largest, SMALLEST_SUBNORMAL)


def _to_float(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def _fixed_point_function(case: Case) -> ExactFunction:
    """A deep network in integers: rational numbers would grow with every layer."""
    if not isinstance(case.model, nn.Sequential):
        raise TypeError("a deep network is a sequence of layers")
    scale = np.vectorize(lambda number, bits: int(Fraction(number) * 2**bits), otypes=[object])
    layers = [
        (scale(layer.weight.detach().numpy(), WEIGHT_BITS), scale(layer.bias.detach().numpy(), FRACTION_BITS))
        for layer in case.model
        if isinstance(layer, nn.Linear)
    ]
    start, end = ([Fraction(number) for number in point.tolist()] for point in (case.start, case.end))

    def evaluate(alpha: Fraction) -> list[Fraction]:
        point = [a + alpha * (b - a) for a, b in zip(start, end, strict=True)]
        x = np.array([int(number * 2**FRACTION_BITS) for number in point], dtype=object)
        for number, (weight, bias) in enumerate(layers):
            x = np.maximum(x, 0) if number else x
            x = ((weight @ x) >> WEIGHT_BITS) + bias
        return [Fraction(int(number), 2**FRACTION_BITS) for number in x]

    return evaluate
