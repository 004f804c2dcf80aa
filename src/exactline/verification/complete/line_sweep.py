"""Restricts a program to intervals of one input in exact arithmetic: every break is a fraction."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ...tolerances import LINE_FORM_ERROR, UNDERFLOW_ERROR
from .digits import Digits, Integers, join_all, join_digits, normalize_digits, round_digits, split_integers
from .errors import OutOfTime
from .program import AffineStep, Program, RampStep

MAX_LIVE_DIGITS = 1 << 24  # of the widest step, for all pieces that are swept together


@dataclass(frozen=True, eq=False)
class LinePieces:
    """Neighbouring pieces of a line, on each of which the outputs are affine."""

    ends: list[tuple[Fraction, Fraction]]  # start and end of each
    offsets: Integers  # (outputs, pieces) numerators: an output is (offset + slope * x) / denominator
    slopes: Integers  # (outputs, pieces)
    denominator: int
    patterns: list[NDArray[np.bool_]]  # (units, pieces) for each ramp: whether it is on


@dataclass
class _State:
    """The pieces so far, and all steps that are still needed on them."""

    ends: list[tuple[Fraction, Fraction]]
    values: dict[int, Digits]  # (size, digits, 2 * pieces) by step: all offsets, then all slopes
    patterns: list[NDArray[np.bool_]]  # (units, pieces) for each ramp

    def select(self, pieces: NDArray[np.int64], ends: list[tuple[Fraction, Fraction]]) -> _State:
        """The state on some pieces; a piece that is split repeats."""
        columns = np.concatenate([pieces, pieces + len(self.ends)])
        values = {i: v[:, :, columns] for i, v in self.values.items()}
        return _State(ends, values, [p[:, pieces] for p in self.patterns])


class LineSweep:
    """Sweeps a program over intervals of one input, the others being fixed."""

    def __init__(self, program: Program, point: Sequence[Fraction], axis: int, deadline: float) -> None:
        self.program, self.deadline = program, deadline
        fixed = [Fraction(0) if i == axis else value for i, value in enumerate(point)]
        self.scale = int(np.lcm.reduce([value.denominator for value in fixed], dtype=object))
        self.constants = [int(value * self.scale) for value in fixed]
        self.axis = axis
        self.last_use = program.find_last_use()

    def run(self, intervals: Sequence[tuple[Fraction, Fraction]]) -> Iterator[LinePieces]:
        """Yield the pieces of all intervals, in order; raises OutOfTime."""
        count = len(intervals)
        numbers = np.zeros((len(self.constants), 2 * count), dtype=object)
        numbers[:, :count] = np.array(self.constants, dtype=object)[:, None]
        numbers[self.axis, count:] = self.scale
        yield from self._advance(1, _State(list(intervals), {0: split_integers(numbers)}, []))

    def _advance(self, index: int, state: _State) -> Iterator[LinePieces]:
        """Run the steps from an index on; many pieces are swept in two halves."""
        for i in range(index, len(self.program.steps)):
            if time.monotonic() > self.deadline:
                raise OutOfTime
            step = self.program.steps[i]
            width = max(v.shape[0] * v.shape[1] for v in state.values.values())
            if len(state.ends) > 1 and 2 * width * len(state.ends) > MAX_LIVE_DIGITS:
                middle = len(state.ends) // 2
                for part in (np.arange(middle), np.arange(middle, len(state.ends))):
                    yield from self._advance(i, state.select(part, [state.ends[k] for k in part.tolist()]))
                return
            if isinstance(step, RampStep):
                state = self._apply_ramp(i, step, state)
            elif isinstance(step, AffineStep):
                state.values[i] = self._apply_affine(step, state)
            state.values = {j: v for j, v in state.values.items() if self.last_use[j] > i}
        output, count = join_all(state.values[self.program.output]), len(state.ends)
        denominator = self.program.denominators[self.program.output] * self.scale
        yield LinePieces(state.ends, output[:, :count], output[:, count:], denominator, state.patterns)

    def _apply_affine(self, step: AffineStep, state: _State) -> Digits:
        products = [m @ state.values[s] for s, m in zip(step.sources, step.matrices, strict=True)]
        bias = step.bias_digits(self.scale)
        length = max([p.shape[1] for p in products] + ([] if bias is None else [bias.shape[1]]))
        total = np.zeros((step.size, length, 2 * len(state.ends)), dtype=np.int64)
        for product in products:
            total[:, : product.shape[1]] += product
        if bias is not None:
            total[:, : bias.shape[1], : len(state.ends)] += bias.astype(np.int64)
        return normalize_digits(total)

    def _apply_ramp(self, index: int, step: RampStep, state: _State) -> _State:
        """Split the pieces at the zeros of a step, and set it to zero where it is negative."""
        forms, count = state.values[step.source], len(state.ends)
        left, right = self._find_signs(forms, state, step.denominator * self.scale)
        crossings: dict[int, list[tuple[Fraction, int]]] = {}  # by piece
        for unit, piece in np.argwhere(left * right < 0).tolist():
            offset, slope = join_digits(forms[unit, :, piece]), join_digits(forms[unit, :, count + piece])
            crossings.setdefault(piece, []).append((Fraction(-offset, slope), unit))
        pattern = left + right > 0
        if crossings:
            state, pattern = _split_pieces(state, pattern, right > 0, crossings)
        state.values[index] = state.values[step.source] * np.tile(pattern, 2)[:, None]
        state.patterns.append(pattern)
        return state

    def _find_signs(
        self, forms: Digits, state: _State, denominator: int
    ) -> tuple[NDArray[np.int8], NDArray[np.int8]]:  # (units, pieces) each
        """The exact signs of all units at both ends of all pieces."""
        count, rounded = len(state.ends), round_digits(forms, denominator)
        offsets, slopes = rounded[:, :count], rounded[:, count:]
        signs: list[NDArray[np.int8]] = []
        for side in (0, 1):
            x = np.array([float(end[side]) for end in state.ends])
            with np.errstate(invalid="ignore", over="ignore"):
                value = offsets + slopes * x
                error = LINE_FORM_ERROR * (np.abs(offsets) + np.abs(slopes * x))
                error += UNDERFLOW_ERROR * (1 + np.abs(slopes) + np.abs(x))
                sign = (value > error).astype(np.int8) - (value < -error).astype(np.int8)
                unsure = ~(np.abs(value) > error)
            for unit, piece in np.argwhere(unsure).tolist():
                offset, slope = join_digits(forms[unit, :, piece]), join_digits(forms[unit, :, count + piece])
                end = state.ends[piece][side]
                exact = offset * end.denominator + slope * end.numerator
                sign[unit, piece] = (exact > 0) - (exact < 0)
            signs.append(sign)
        return signs[0], signs[1]


def _split_pieces(
    state: _State,
    pattern: NDArray[np.bool_],  # (units, pieces)
    after: NDArray[np.bool_],  # (units, pieces) whether a unit is on at the right end
    crossings: dict[int, list[tuple[Fraction, int]]],  # by piece: where each unit crosses
) -> tuple[_State, NDArray[np.bool_]]:
    """Split pieces where units cross; return the new state and the pattern on the new pieces."""
    parents: list[int] = []
    ends: list[tuple[Fraction, Fraction]] = []
    changes: list[tuple[int, int, int, bool]] = []  # unit, first and last new piece, whether it is on there
    for piece, (start, end) in enumerate(state.ends):
        first, cuts = len(ends), sorted({x for x, _ in crossings.get(piece, ())})
        ends += list(zip([start, *cuts], [*cuts, end], strict=True))
        parents += [piece] * (len(cuts) + 1)
        place = {x: first + k + 1 for k, x in enumerate(cuts)}
        for x, unit in crossings.get(piece, ()):
            is_on = bool(after[unit, piece])
            changes += [(unit, first, place[x], not is_on), (unit, place[x], len(ends), is_on)]
    parent = np.array(parents, dtype=np.int64)
    new_pattern = pattern[:, parent]
    for unit, first, stop, is_on in changes:
        new_pattern[unit, first:stop] = is_on
    return state.select(parent, ends), new_pattern
