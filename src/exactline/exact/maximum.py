"""Maxima in rational arithmetic: the upper envelope of the lines of every window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..ops.maximum import Maximum
from .forms import AffineForms
from .integers import IntegerArray, make_zeros
from .rules import ActivationPattern, ExactCrossing, ExactRule, get_line, intersect, is_same_line


class MaximumRule(ExactRule):
    """A maximum, whose branch is the leader's column in the window table.

    Where the operator includes the constant 0, that is one more column at the end.
    """

    def __init__(self, op: Maximum) -> None:
        self.op = op
        table = op.table.cpu().numpy()
        size = table.shape[1]
        zero_column = np.full((len(table), 1), -1, dtype=table.dtype)
        # (windows, columns) flat positions in the input; -1 is the constant 0
        self.elements = np.concatenate([table, zero_column], axis=1) if op.floor else table
        # among identical lines the first in this order leads
        self.column_order = [size, *range(size)] if op.floor else list(range(size))

    def find_crossings(
        self, x: AffineForms, alphas: Sequence[Fraction]
    ) -> tuple[ActivationPattern, list[ExactCrossing]]:
        lines = self.signed_lines(x)
        values = lines.numerators_at_breaks(alphas)
        pattern = self.find_leaders(values[:, :-1], lines.slopes)
        leader_values = values[self.leader_elements(pattern), np.arange(x.piece_count) + 1]
        is_overtaken = self.find_maxima(values[:, 1:]) > leader_values
        crossings = [
            crossing
            for window, piece in np.argwhere(is_overtaken).tolist()
            for crossing in self._walk_envelope(lines, window, piece, int(pattern[window, piece]), alphas[piece + 1])
        ]
        return pattern, sorted(crossings, key=lambda crossing: crossing.alpha)

    def find_changes(self, pattern: ActivationPattern, x: AffineForms) -> NDArray[np.bool_]:
        differs = pattern[:, :-1] != pattern[:, 1:]
        for window, piece in np.argwhere(differs).tolist():
            left, right = int(pattern[window, piece]), int(pattern[window, piece + 1])
            differs[window, piece] = not is_same_line(x, self.elements[window].tolist(), piece, left, right)
        return differs

    def apply_affine(self, pattern: ActivationPattern, x: AffineForms) -> AffineForms:
        leader, pieces = self.leader_elements(pattern), np.arange(x.piece_count)
        numerators = self.signed_lines(x).numerators[leader[:, None], np.arange(2)[:, None], pieces]
        return AffineForms(numerators if self.op.sign > 0 else -numerators, x.denominator)

    def activation_pattern(self, pattern: ActivationPattern) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(pattern.T))

    def signed_lines(self, x: AffineForms) -> AffineForms:
        """The lines whose maximum is the output, negated for a minimum, with the constant 0 at index -1."""
        numerators = x.numerators if self.op.sign > 0 else -x.numerators
        return AffineForms(np.concatenate([numerators, make_zeros(1, *x.numerators.shape[1:])]), x.denominator)

    def leader_elements(self, pattern: ActivationPattern) -> ActivationPattern:  # (windows, pieces)
        """Flat positions of the leaders in the input, -1 for the constant 0."""
        return np.take_along_axis(self.elements, pattern, axis=1)

    def find_leaders(
        self,
        values: IntegerArray,  # (elements + 1, pieces) at one point of each piece
        slopes: IntegerArray,  # (elements + 1, pieces)
    ) -> ActivationPattern:
        """The leading column of each window just to the right of a point: the steepest of the largest."""
        first, *others = self.column_order
        best_value, best_slope = values[self.elements[:, first]], slopes[self.elements[:, first]]
        leader = np.full(best_value.shape, first, dtype=np.int64)
        for column in others:
            value, slope = values[self.elements[:, column]], slopes[self.elements[:, column]]
            leads = (value > best_value) | ((value == best_value) & (slope > best_slope))
            best_value, best_slope = np.where(leads, value, best_value), np.where(leads, slope, best_slope)
            leader[leads] = column
        return leader

    def find_maxima(self, values: IntegerArray) -> IntegerArray:  # (elements + 1, n) -> (windows, n)
        """The largest value of each window."""
        best = values[self.elements[:, self.column_order[0]]]
        for column in self.column_order[1:]:
            best = np.maximum(best, values[self.elements[:, column]])
        return best

    def _walk_envelope(
        self, forms: AffineForms, window: int, piece: int, leader: int, end: Fraction
    ) -> Iterator[ExactCrossing]:
        """Every change of the leader of a window on a piece, before its end."""
        lines = {column: get_line(forms, int(self.elements[window, column]), piece) for column in self.column_order}
        while challengers := [c for c in self.column_order if lines[c].slope > lines[leader].slope]:
            crossings = {c: intersect(lines[leader], lines[c]) for c in challengers}
            alpha = min(crossings.values())
            if alpha >= end:
                return
            leader = max((c for c in challengers if crossings[c] == alpha), key=lambda c: lines[c].slope)
            yield ExactCrossing(piece, window, alpha, leader)
