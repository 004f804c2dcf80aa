"""Maxima in rationals: follow the leading line of every window; a tie goes to the steepest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..ops.maximum import Maximum
from .forms import Forms
from .integers import Wholes, zeros
from .rules import Pattern, Rule, Turn, kept, line, meet


class MaximumRule(Rule):
    """A branch is the leader's column in the table; the floor's is one past the last."""

    def __init__(self, op: Maximum) -> None:
        self.op = op
        places = op.table.cpu().numpy()
        size = places.shape[1]
        floor = np.full((len(places), 1), -1, dtype=places.dtype)
        self.places = np.concatenate([places, floor], axis=1) if op.floor else places  # -1 is the constant 0
        # the first of identical lines leads, and the floor comes before all
        self.columns = [size, *range(size)] if op.floor else list(range(size))

    def split(self, x: Forms, alphas: Sequence[Fraction]) -> tuple[Pattern, list[Turn]]:
        up = self.lines(x)
        values = up.at_breaks(alphas)
        pattern = self.lead(values[:, :-1], up.q)
        pieces = np.arange(x.pieces)
        held = values[self.leaders(pattern), pieces + 1]
        overtaken = self.top(values[:, 1:]) > held
        turns = [
            Turn(k, window, alpha, column)
            for window, k in np.argwhere(overtaken).tolist()
            for alpha, column in self._march(up, window, k, int(pattern[window, k]), alphas[k + 1])
        ]
        return pattern, sorted(turns, key=lambda turn: turn.alpha)

    def changed(self, pattern: Pattern, x: Forms) -> NDArray[np.bool_]:
        differ = pattern[:, :-1] != pattern[:, 1:]
        for window, k in np.argwhere(differ).tolist():
            left, right = int(pattern[window, k]), int(pattern[window, k + 1])
            differ[window, k] = not kept(x, self.places[window].tolist(), k, left, right)
        return differ

    def follow(self, pattern: Pattern, x: Forms) -> Forms:
        place, pieces = self.leaders(pattern), np.arange(x.pieces)
        top = self.lines(x).top[place[:, None], np.arange(2)[:, None], pieces]
        return Forms(top if self.op.sign > 0 else -top, x.bottom)

    def branch(self, pattern: Pattern) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(pattern.T))

    def lines(self, x: Forms) -> Forms:
        """The lines whose maximum is sought, and the constant 0 at place -1."""
        top = x.top if self.op.sign > 0 else -x.top
        return Forms(np.concatenate([top, zeros(1, *x.top.shape[1:])]), x.bottom)

    def leaders(self, pattern: Pattern) -> Pattern:  # (windows, pieces)
        """Flat places of the leaders, -1 for the floor."""
        return np.take_along_axis(self.places, pattern, axis=1)

    def lead(
        self,
        values: Wholes,  # (elements + 1, pieces) at one point of each piece
        slopes: Wholes,  # (elements + 1, pieces)
    ) -> Pattern:
        """The leading column of each window just right of a point: the steepest of the largest."""
        first, *others = self.columns
        best, steep = values[self.places[:, first]], slopes[self.places[:, first]]
        leader = np.full(best.shape, first, dtype=np.int64)
        for column in others:
            value, slope = values[self.places[:, column]], slopes[self.places[:, column]]
            ahead = (value > best) | ((value == best) & (slope > steep))
            best, steep = np.where(ahead, value, best), np.where(ahead, slope, steep)
            leader[ahead] = column
        return leader

    def top(self, values: Wholes) -> Wholes:  # (elements + 1, n) -> (windows, n)
        """The largest value of each window."""
        best = values[self.places[:, self.columns[0]]]
        for column in self.columns[1:]:
            best = np.maximum(best, values[self.places[:, column]])
        return best

    def _march(self, up: Forms, window: int, k: int, leader: int, end: Fraction) -> Iterator[tuple[Fraction, int]]:
        """Every alpha before the end where the lead changes, and who takes it."""
        lines = {column: line(up, int(self.places[window, column]), k) for column in self.columns}
        while rivals := [c for c in self.columns if lines[c][1] > lines[leader][1]]:
            meets = {c: meet(lines[leader], lines[c]) for c in rivals}
            alpha = min(meets.values())
            if alpha >= end:
                return
            leader = max((c for c in rivals if meets[c] == alpha), key=lambda c: lines[c][1])
            yield alpha, leader
