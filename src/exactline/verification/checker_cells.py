"""What a network computes on one piece or cell of a proof, by its activation pattern."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import lcm
from typing import TypeAlias

import numpy as np

from .checker_geometry import Point
from .checker_network import IntegerArray, Ramp, RationalNetwork

SHARES = 4  # the letters a to e of a pattern stand for 0, 1, ... 4 quarters
BOUND_BITS = 512  # bounds of symbols are rounded up to multiples of 2**-BOUND_BITS
Weights: TypeAlias = tuple[tuple[Fraction, ...], tuple[Fraction, ...]]  # of outputs and inputs


class ProofRejected(Exception):
    """A proof does not hold, and why."""


@dataclass(frozen=True)
class RowForm:
    """A weighted sum of outputs and inputs on a cell: an affine form of the free inputs, plus symbols."""

    line: tuple[Fraction, ...]  # constant and slopes
    least_of_symbols: Fraction
    has_symbols: bool


@dataclass(frozen=True, eq=False)
class CellForms:
    """The outputs and inputs of a network on a cell."""

    outputs: IntegerArray  # (outputs, columns): constant, slopes, symbols
    output_denominator: int
    inputs: IntegerArray  # (inputs, columns)
    input_denominator: int
    bounds: list[Fraction]  # largest value of each symbol; the smallest is 0
    rows: dict[Weights, RowForm] = field(default_factory=dict[Weights, RowForm])  # computed so far

    def combine(self, outputs: tuple[Fraction, ...], inputs: tuple[Fraction, ...]) -> RowForm:
        """The weighted sum of outputs and inputs."""
        if (outputs, inputs) not in self.rows:
            self.rows[outputs, inputs] = self._combine(outputs, inputs)
        return self.rows[outputs, inputs]

    def _combine(self, outputs: tuple[Fraction, ...], inputs: tuple[Fraction, ...]) -> RowForm:
        free = self.outputs.shape[1] - len(self.bounds)
        total = [Fraction(0)] * self.outputs.shape[1]
        for weights, forms, denominator in (
            (outputs, self.outputs, self.output_denominator),
            (inputs, self.inputs, self.input_denominator),
        ):
            for weight, form in zip(weights, forms.tolist(), strict=True):
                if weight:
                    for k, n in enumerate(form):
                        total[k] += weight * Fraction(n, denominator) if n else 0
        symbols = total[free:]
        least = sum((c * b for c, b in zip(symbols, self.bounds, strict=True) if c < 0), Fraction(0))
        return RowForm(tuple(total[:free]), least, any(symbols))


class RationalCells:
    """Evaluates a network on cells of one line or plane of inputs."""

    def __init__(self, network: RationalNetwork, inputs: Sequence[int], point: Sequence[Fraction]) -> None:
        self.network = network
        fixed = [Fraction(0) if i in inputs else value for i, value in enumerate(point)]
        self.denominator = lcm(*(value.denominator for value in fixed))
        self.start = np.zeros((len(fixed), 1 + len(inputs)), dtype=object)
        self.start[:, 0] = [int(value * self.denominator) for value in fixed]
        for column, i in enumerate(inputs):
            self.start[i, column + 1] = self.denominator

    def evaluate(self, corners: Sequence[Point], pattern: str, where: str) -> CellForms:
        """Compute the outputs by a pattern, and check that the pattern holds; raises ProofRejected."""
        cell = _ProofCell(self, corners, where)
        if len(pattern) != self.network.ramp_count:
            raise ProofRejected(f"{where}: the pattern has {len(pattern)} letters, not {self.network.ramp_count}")
        tensors: list[tuple[IntegerArray, int]] = [(self.start, self.denominator)]
        read = 0
        for operation in self.network.operations:
            if isinstance(operation, Ramp):
                forms, denominator = tensors[operation.source]
                letters, read = pattern[read : read + len(forms)], read + len(forms)
                tensors.append(cell.apply_ramp(forms, denominator, letters))
                continue
            parts = [(*tensors[source], matrix) for source, matrix in operation.terms]
            denominator = lcm(
                *(d * matrix.denominator for _, d, matrix in parts), *(b.denominator for b in operation.bias)
            )
            width = max(forms.shape[1] for forms, _, _ in parts)
            total = np.zeros((len(operation.bias), width), dtype=object)
            for forms, d, matrix in parts:
                total[:, : forms.shape[1]] += (matrix @ forms) * (denominator // (d * matrix.denominator))
            total[:, 0] += np.array([int(b * denominator) for b in operation.bias], dtype=object)
            tensors.append((total, denominator))
        return cell.collect([tensors[i] for i in self.network.outputs], tensors[0])


class _ProofCell:
    """The symbols of one cell: undecided ramps, each with a bound."""

    def __init__(self, cells: RationalCells, corners: Sequence[Point], where: str) -> None:
        self.where = where
        self.free = 1 + len(corners[0])
        weights = [lcm(*(x.denominator for x in corner)) for corner in corners]
        rows = [[w, *(int(x * w) for x in corner)] for w, corner in zip(weights, corners, strict=True)]
        self.corners = np.array(rows, dtype=object).T  # (1 + inputs, corners): numerators over the first row
        self.bounds: list[int] = []  # in units of 2**-BOUND_BITS

    def apply_ramp(self, forms: IntegerArray, denominator: int, letters: str) -> tuple[IntegerArray, int]:
        """Check the signs of all forms, and return max(t, 0) for each: 0, t, or a share of t plus a symbol."""
        low, high = self._bound(forms)
        known: dict[tuple[int, ...], int] = {}  # the symbol of a form and its share
        shares, symbols = np.zeros(len(forms), dtype=object), [-1] * len(forms)
        for unit, letter in enumerate(letters):
            if letter == "0":
                is_right = max(high[unit]) <= 0
            elif letter == "1":
                is_right, shares[unit] = min(low[unit]) >= 0, SHARES
            else:
                share = ord(letter) - ord("a")
                is_right, shares[unit] = 0 <= share <= SHARES, share
                form = tuple(forms[unit].tolist())
                opposite = (SHARES - share, *(-n for n in form))  # max(-t, 0) = max(t, 0) - t
                if opposite in known:
                    symbols[unit] = known[opposite]
                else:
                    if (share, *form) not in known:
                        known[share, *form] = self._add_symbol(share, low[unit], high[unit], denominator)
                    symbols[unit] = known[share, *form]
            if not is_right:
                raise ProofRejected(
                    f"{self.where}: the pattern does not hold: letter {letter!r} of unit {unit} of a ramp"
                )
        out = np.zeros((len(forms), self.free + len(self.bounds)), dtype=object)
        out[:, : forms.shape[1]] = forms * shares[:, None]
        for unit, symbol in enumerate(symbols):
            if symbol >= 0:
                out[unit, self.free + symbol] += SHARES * denominator
        return out, SHARES * denominator

    def _bound(self, forms: IntegerArray) -> tuple[list[list[int]], list[list[int]]]:
        """Bound forms at every corner over all values of the symbols, times 2**BOUND_BITS and the corner's weight."""
        values = (forms[:, : self.free] @ self.corners) * (1 << BOUND_BITS)  # (units, corners)
        symbols = forms[:, self.free :]
        if not symbols.shape[1]:
            return values.tolist(), values.tolist()
        bounds = np.array(self.bounds[: symbols.shape[1]], dtype=object)
        least = np.where(symbols < 0, symbols, 0) @ bounds
        most = np.where(symbols > 0, symbols, 0) @ bounds
        weights = self.corners[0][None]
        return (values + least[:, None] * weights).tolist(), (values + most[:, None] * weights).tolist()

    def _add_symbol(self, share: int, low: list[int], high: list[int], denominator: int) -> int:
        """Add the symbol max(t, 0) - share * t, which is convex in t, and so largest at an end of the range of t."""
        weights = self.corners[0].tolist()
        least = min(Fraction(n, w * denominator) for n, w in zip(low, weights, strict=True))
        most = max(Fraction(n, w * denominator) for n, w in zip(high, weights, strict=True))
        part = Fraction(share, SHARES)
        bound = max(max(t, Fraction(0)) - part * t for t in (least, most))
        self.bounds.append(-int(-bound // 1))
        return len(self.bounds) - 1

    def collect(self, outputs: list[tuple[IntegerArray, int]], inputs: tuple[IntegerArray, int]) -> CellForms:
        """Join the outputs over one denominator."""
        width = self.free + len(self.bounds)
        denominator = lcm(*(d for _, d in outputs))
        rows = [_widen(forms, width) * (denominator // d) for forms, d in outputs]
        bounds = [Fraction(b, 1 << BOUND_BITS) for b in self.bounds]
        return CellForms(np.concatenate(rows), denominator, _widen(inputs[0], width), inputs[1], bounds)


def _widen(forms: IntegerArray, width: int) -> IntegerArray:
    wide = np.zeros((len(forms), width), dtype=object)
    wide[:, : forms.shape[1]] = forms
    return wide
