"""Order statistics in rational arithmetic: a break is where the line at a returned rank changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..ops.order import Order
from .forms import AffineForms
from .rules import ActivationPattern, ExactCrossing, ExactLine, ExactRule, get_line, intersect, is_same_line

WindowLines: TypeAlias = Sequence[ExactLine]  # of the elements of a window on one piece


class OrderRule(ExactRule):
    """Order statistics, whose branch is the column of the window table at each returned rank."""

    def __init__(self, op: Order) -> None:
        self.op = op
        self.elements: list[list[int]] = op.table.tolist()  # (windows, size) flat positions in the input
        self.ranks: list[int] = op.ranks.tolist()

    def find_crossings(
        self, x: AffineForms, alphas: Sequence[Fraction]
    ) -> tuple[ActivationPattern, list[ExactCrossing]]:
        pattern = np.zeros((len(self.elements), len(self.ranks), x.piece_count), dtype=np.int64)
        crossings: list[ExactCrossing] = []
        for window in range(len(self.elements)):
            for piece in range(x.piece_count):
                lines = self.window_lines(x, window, piece)
                pattern[window, :, piece] = self.find_ranked_columns(lines, alphas[piece])
                changes = self._find_rank_changes(lines, alphas[piece], alphas[piece + 1])
                crossings += [ExactCrossing(piece, window, alpha, columns) for alpha, columns in changes]
        return pattern, sorted(crossings, key=lambda crossing: crossing.alpha)

    def find_changes(self, pattern: ActivationPattern, x: AffineForms) -> NDArray[np.bool_]:
        differs = np.zeros((len(self.elements), x.piece_count - 1), dtype=np.bool_)
        for window, rank, piece in np.argwhere(pattern[..., :-1] != pattern[..., 1:]).tolist():
            left, right = int(pattern[window, rank, piece]), int(pattern[window, rank, piece + 1])
            differs[window, piece] |= not is_same_line(x, self.elements[window], piece, left, right)
        return differs

    def apply_affine(self, pattern: ActivationPattern, x: AffineForms) -> AffineForms:
        table = np.array(self.elements, dtype=np.int64)
        element = np.take_along_axis(table[:, :, None], pattern, axis=1).reshape(-1, x.piece_count)
        numerators = x.numerators[element[:, None], np.arange(2)[:, None], np.arange(x.piece_count)]
        return AffineForms(numerators, x.denominator)

    def activation_pattern(self, pattern: ActivationPattern) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(np.moveaxis(pattern, -1, 0)))

    def window_lines(self, x: AffineForms, window: int, piece: int) -> WindowLines:
        """The lines of the elements of a window on one piece."""
        return [get_line(x, element, piece) for element in self.elements[window]]

    def find_ranked_columns(self, lines: WindowLines, alpha: Fraction, *, after: bool = True) -> tuple[int, ...]:
        """The column at each returned rank just to the right of a point, or just to the left of it.

        Identical lines are ranked in the order of their columns.
        """
        n, d, sign = alpha.numerator, alpha.denominator, -1 if after else 1
        order = sorted(
            range(len(lines)), key=lambda i: (-lines[i].offset * d - lines[i].slope * n, sign * lines[i].slope, i)
        )
        return tuple(order[rank] for rank in self.ranks)

    def _find_rank_changes(
        self, lines: WindowLines, start: Fraction, end: Fraction
    ) -> Iterator[tuple[Fraction, tuple[int, ...]]]:
        """Every alpha strictly inside where the line at a returned rank changes, and the columns after it."""
        crossings = {intersect(a, b) for a, b in combinations(lines, 2) if a.slope != b.slope}
        for alpha in sorted(c for c in crossings if start < c < end):
            left, right = self.find_ranked_columns(lines, alpha, after=False), self.find_ranked_columns(lines, alpha)
            if any(lines[a] != lines[b] for a, b in zip(left, right, strict=True)):
                yield alpha, right
