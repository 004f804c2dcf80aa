"""A cell of a plane: what a program computes on a convex polygon, with a symbol for every ramp that stays undecided.

On a cell every element of a step is an affine form of the two free inputs and of symbols. A ramp max(t, 0) whose t has
the same sign at all corners is zero or t. Another one is ``share * t + symbol``, where the symbol lies between 0 and a
bound. Ramps of equal or opposite forms share a symbol, so that it cancels exactly where the network cancels.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...tolerances import CELL_FORM_ERROR, UNDERFLOW_ERROR
from .digits import Digits, join_digits, normalize_digits, round_digits, split_integers
from .errors import OutOfTime
from .polygon import CutLine, Polygon
from .program import AffineStep, Program, RampStep

SHARES = 4  # an undecided ramp is a multiple of t / SHARES plus a symbol
MAX_CELL_DIGITS = 1 << 26  # of one step on one cell: 512 MiB
OFF, ON, FIRST_SHARE = "0", "1", ord("a")  # the letters of a pattern


class TooManySymbols(Exception):
    """So many ramps are undecided on a cell that it is better cut at once."""


@dataclass(frozen=True, eq=False)
class Symbol:
    """A ramp that is undecided on a cell."""

    form: NDArray[np.float64]  # (columns,) of t, rounded
    line: CutLine | None  # where t is zero; None while t contains other symbols
    bound: float


@dataclass(eq=False)
class Cell:
    """What a program computes on a polygon."""

    corners: NDArray[np.float64]  # (3, corners) 1, x, y, rounded
    polygon: Polygon
    symbols: list[Symbol] = field(default_factory=list[Symbol])
    patterns: list[str] = field(default_factory=list[str])  # a letter for each element of each ramp
    rows: Digits = field(default_factory=lambda: np.zeros((0, 1, 3)))  # forms of the constraints

    @property
    def bounds(self) -> NDArray[np.float64]:  # (symbols,)
        """The largest value of each symbol; the smallest is 0."""
        return np.array([s.bound for s in self.symbols])

    def enclose(self, rounded: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bound some forms, (n, columns), on the cell; returns lower and upper bounds, (n,) each."""
        values, errors = self.evaluate(rounded)
        low, high = (values - errors).min(1), (values + errors).max(1)
        free = rounded[:, 3:]
        if free.shape[1]:
            with np.errstate(over="ignore", invalid="ignore"):
                parts = np.where(free == 0, 0.0, free * self.bounds[: free.shape[1]])
                slack = CELL_FORM_ERROR * np.abs(parts).sum(1)
                slack += UNDERFLOW_ERROR * (self.bounds[: free.shape[1]].sum() + np.abs(free).sum(1))
                low, high = low + np.minimum(parts, 0).sum(1) - slack, high + np.maximum(parts, 0).sum(1) + slack
        return np.nan_to_num(low, nan=-np.inf), np.nan_to_num(high, nan=np.inf)

    def evaluate(self, rounded: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Evaluate the parts of forms without symbols at the corners; returns values and errors, (n, corners) each."""
        with np.errstate(over="ignore", invalid="ignore"):
            sizes, corners = np.abs(rounded[:, :3]), np.abs(self.corners)
            values = rounded[:, :3] @ self.corners
            errors = CELL_FORM_ERROR * (sizes @ corners)
            errors += UNDERFLOW_ERROR * (sizes.sum(1)[:, None] + corners.sum(0)[None])
        return values, errors


class CellEvaluator:
    """Evaluates a program on cells of one plane."""

    def __init__(
        self,
        program: Program,
        start: Digits,  # (inputs, digits, 3) the inputs as forms of the two free ones
        scale: int,  # the denominator of the inputs
        deadline: float,  # of time.monotonic()
    ) -> None:
        self.program, self.start, self.scale, self.deadline = program, start, scale, deadline
        self.last_use = program.find_last_use()
        self.biases = [s.bias_digits(scale) if isinstance(s, AffineStep) else None for s in program.steps]

    def evaluate(self, polygon: Polygon, max_symbols: int) -> Cell:
        """Evaluate all steps on a polygon; raises TooManySymbols, OutOfTime."""
        points = [corner.point for corner in polygon]
        corners = np.array([[1.0, float(x), float(y)] for x, y in points]).T
        cell = Cell(corners, polygon)
        values = {0: self.start}
        for i, step in enumerate(self.program.steps):
            if time.monotonic() > self.deadline:
                raise OutOfTime
            if isinstance(step, AffineStep):
                values[i] = self._apply_affine(i, step, values)
            elif isinstance(step, RampStep):
                values[i] = self._apply_ramp(step, values[step.source], cell)
                if len(cell.symbols) > max_symbols:
                    raise TooManySymbols
            values = {j: digits for j, digits in values.items() if self.last_use[j] > i}
        cell.rows = values[self.program.output]
        return cell

    def _apply_affine(self, index: int, step: AffineStep, values: dict[int, Digits]) -> Digits:
        products = [m @ values[s] for s, m in zip(step.sources, step.matrices, strict=True)]
        bias = self.biases[index]
        length = max([p.shape[1] for p in products] + ([] if bias is None else [bias.shape[1]]))
        total = np.zeros((step.size, length, max(p.shape[2] for p in products)), dtype=np.int64)
        for product in products:
            total[:, : product.shape[1], : product.shape[2]] += product
        if bias is not None:
            total[:, : bias.shape[1], :1] += bias.astype(np.int64)
        return normalize_digits(total)

    def _apply_ramp(self, step: RampStep, forms: Digits, cell: Cell) -> Digits:
        """Decide the ramps of a step; those that stay undecided become symbols."""
        rounded = round_digits(forms, step.denominator // SHARES * self.scale)
        low, high = cell.enclose(rounded)
        is_on, is_off = low >= 0, high <= 0
        undecided: list[int] = []
        for unit, signs in self._find_open_units(forms, rounded, np.flatnonzero(~is_on & ~is_off), cell):
            is_on[unit], is_off[unit] = min(signs) >= 0, max(signs) <= 0
            if min(signs) < 0 < max(signs):
                undecided.append(unit)
        letters = np.where(is_on, ON, OFF)
        total = forms.astype(np.int64) * np.where(is_on, SHARES, 0)[:, None, None]
        if undecided:
            total = self._add_symbols(step, forms, undecided, (rounded, low, high), (total, letters), cell)
        cell.patterns.append("".join(letters.tolist()))
        return normalize_digits(total)

    def _find_open_units(
        self,
        forms: Digits,
        rounded: NDArray[np.float64],  # (units, columns)
        units: NDArray[np.int64],  # those that rounded numbers do not decide
        cell: Cell,
    ) -> Iterator[tuple[int, list[int]]]:
        """Yield some units with their exact signs at the corners; signs of both kinds stand for a form with symbols."""
        values, errors = cell.evaluate(rounded[units])
        has_symbols: NDArray[np.bool_] = np.any(forms[units][:, :, 3:], axis=(1, 2))
        is_open = has_symbols | ((values > errors).any(1) & (values < -errors).any(1))
        for unit, stays_open in zip(units.tolist(), is_open.tolist(), strict=True):
            yield unit, [-1, 1] if stays_open else _find_signs(forms[unit], cell.polygon)

    def _add_symbols(
        self,
        step: RampStep,
        forms: Digits,
        undecided: list[int],
        enclosure: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]],  # rounded, low, high
        result: tuple[NDArray[np.int64], NDArray[np.str_]],  # the output's digits and the pattern
        cell: Cell,
    ) -> NDArray[np.int64]:
        """Write undecided ramps as a share of their form plus a symbol; returns the output's digits."""
        rounded, low, high = enclosure
        total, letters = result
        known: dict[bytes, int] = {}  # the symbol of a form
        shares: list[int] = []  # of each new symbol
        first = len(cell.symbols)
        entries: list[tuple[int, int]] = []  # unit and symbol
        for unit in undecided:
            form = forms[unit]
            place, opposite = known.get(form.tobytes()), known.get((-form + 0.0).tobytes())
            if place is not None:
                share = shares[place]
            elif opposite is not None:
                place, share = opposite, SHARES - shares[opposite]  # max(-t, 0) = max(t, 0) - t
            else:
                share = _choose_share(low[unit], high[unit])
                place = known[form.tobytes()] = len(shares)
                shares.append(share)
                cell.symbols.append(_make_symbol(form, rounded[unit], share / SHARES, low[unit], high[unit]))
            letters[unit] = chr(FIRST_SHARE + share)
            total[unit] = share * form.astype(np.int64)
            entries.append((unit, first + place))
        one = split_integers(np.array([[step.denominator * self.scale]], dtype=object))[0, :, 0].astype(np.int64)
        length = max(total.shape[1], len(one))
        if len(total) * length * (3 + len(cell.symbols)) > MAX_CELL_DIGITS:
            raise TooManySymbols
        wide = np.zeros((len(total), length, 3 + len(cell.symbols)), dtype=np.int64)
        wide[:, : total.shape[1], : total.shape[2]] = total
        for unit, symbol in entries:
            wide[unit, : len(one), 3 + symbol] += one
        return wide


def _make_symbol(
    form: NDArray[np.float64],  # (digits, columns)
    rounded: NDArray[np.float64],  # (columns,)
    share: float,
    low: float,
    high: float,
) -> Symbol:
    """Make the symbol ``max(t, 0) - share * t``, which is convex in t, for t from low to high."""
    bound = max(-share * low, (1 - share) * high) * (1 + CELL_FORM_ERROR) if high - low < np.inf else np.inf
    line = None if form[:, 3:].any() else CutLine(*(join_digits(form[:, c]) for c in range(3)))
    return Symbol(rounded, line, float(bound))


def _choose_share(low: float, high: float) -> int:
    """The share of t, in parts of SHARES, for which the symbol's bound is smallest."""
    width = high - low
    return round(SHARES * high / width) if 0 < width < np.inf else 0


def _find_signs(form: NDArray[np.float64], polygon: Polygon) -> list[int]:  # form: (digits, columns)
    """The exact signs of a form without symbols at the corners."""
    line = CutLine(*(join_digits(form[:, c]) for c in range(3)))
    values = [line.value(corner) for corner in polygon]
    return [(v > 0) - (v < 0) for v in values]
