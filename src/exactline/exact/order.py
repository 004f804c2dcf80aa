"""Order statistics in rationals: a break is where the line at a returned rank changes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..ops.order import Order
from .forms import Forms
from .rules import Pattern, Rule, Turn, kept, line, meet

Lines = Sequence[tuple[int, int]]  # p and q of the elements of a window on one piece


class OrderRule(Rule):
    """A branch is, for each returned rank, the column of the table that stands there."""

    def __init__(self, op: Order) -> None:
        self.op = op
        self.places: list[list[int]] = op.table.tolist()
        self.ranks: list[int] = op.ranks.tolist()

    def split(self, x: Forms, alphas: Sequence[Fraction]) -> tuple[Pattern, list[Turn]]:
        pattern = np.zeros((len(self.places), len(self.ranks), x.pieces), dtype=np.int64)
        turns: list[Turn] = []
        for window in range(len(self.places)):
            for k in range(x.pieces):
                lines = self.lines(x, window, k)
                pattern[window, :, k] = self.standing(lines, alphas[k])
                turns += [Turn(k, window, a, branch) for a, branch in self._swaps(lines, alphas[k], alphas[k + 1])]
        return pattern, sorted(turns, key=lambda turn: turn.alpha)

    def changed(self, pattern: Pattern, x: Forms) -> NDArray[np.bool_]:
        differ = np.zeros((len(self.places), x.pieces - 1), dtype=np.bool_)
        for window, rank, k in np.argwhere(pattern[..., :-1] != pattern[..., 1:]).tolist():
            left, right = int(pattern[window, rank, k]), int(pattern[window, rank, k + 1])
            differ[window, k] |= not kept(x, self.places[window], k, left, right)
        return differ

    def follow(self, pattern: Pattern, x: Forms) -> Forms:
        places = np.array(self.places, dtype=np.int64)
        place = np.take_along_axis(places[:, :, None], pattern, axis=1).reshape(-1, x.pieces)
        return Forms(x.top[place[:, None], np.arange(2)[:, None], np.arange(x.pieces)], x.bottom)

    def branch(self, pattern: Pattern) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(np.moveaxis(pattern, -1, 0)))

    def lines(self, x: Forms, window: int, piece: int) -> Lines:
        return [line(x, place, piece) for place in self.places[window]]

    def standing(self, lines: Lines, alpha: Fraction, *, after: bool = True) -> tuple[int, ...]:
        """The column at each returned rank just right of a point, or just left of it; the first of identical lines."""
        n, d, way = alpha.numerator, alpha.denominator, -1 if after else 1
        order = sorted(range(len(lines)), key=lambda i: (-lines[i][0] * d - lines[i][1] * n, way * lines[i][1], i))
        return tuple(order[rank] for rank in self.ranks)

    def _swaps(self, lines: Lines, begin: Fraction, end: Fraction) -> Iterator[tuple[Fraction, tuple[int, ...]]]:
        """Every alpha strictly inside where another line takes a returned rank, and who stands there then."""
        meets = {meet(a, b) for a, b in combinations(lines, 2) if a[1] != b[1]}
        for alpha in sorted(m for m in meets if begin < m < end):
            left, right = self.standing(lines, alpha, after=False), self.standing(lines, alpha)
            if any(lines[a] != lines[b] for a, b in zip(left, right, strict=True)):
                yield alpha, right
