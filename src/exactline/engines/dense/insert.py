"""Old and new points of a sweep in one order: what is known of each, and the values at them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...arrays import Floats, Ints
from ...lines import interpolate
from ...network.graph import Network
from ...numerics.roundoff_probes import RoundoffProbes
from .breaks import NewBreaks
from .error_model import alpha_errors
from .state import SweepState, to_device
from .workspace import empty

BLOCK_BYTES = 1 << 21  # bytes of a tensor that are merged at a time on a processor
Number = TypeVar("Number", np.int64, np.float64)


class Insertion:
    """Old and new points in one order, or a stretch of it."""

    def __init__(self, state: SweepState, births: NewBreaks, start: int, stop: int) -> None:
        position = births.piece + 1 + np.arange(len(births))
        self.state, self.breaks, self.device = state, births, state.device
        self.whole = start == 0 and stop == len(state) + len(births)
        self.selected: Ints | slice = slice(None)  # all of them
        self.places, passed = position, 0
        if not self.whole:
            self.selected = np.flatnonzero((position >= start) & (position < stop))
            self.places = position[self.selected] - start
            passed = int((position < start).sum())
        old = np.ones(stop - start, dtype=np.int64)
        old[self.places] = 0
        self.source_point = old.cumsum() + (start - passed - 1)  # the old point at or before each place
        self.piece, self.alpha = births.piece[self.selected], births.alpha[self.selected]
        left, right = state.alphas[self.piece], state.alphas[self.piece + 1]
        self.left, self.at = to_device(self.device, self.source_point), to_device(self.device, self.places)
        self.before = to_device(self.device, self.piece)
        with np.errstate(all="ignore"):
            self.part = to_device(self.device, (self.alpha - left) / (right - left))

    @property
    def has_new_points(self) -> bool:
        """Whether the points are others than before."""
        return not self.whole or len(self.places) > 0

    def interpolate(self, values: Tensor, tame: bool = False) -> Tensor:
        """Values at old points, and between them at new ones; ``tame`` values are so small that nothing overflows."""
        if not self.has_new_points:
            return values
        part = self.part.to(values.dtype).view(-1, *[1] * (values.dim() - 1))
        merged = empty((len(self.left), *values.shape[1:]), values)
        for start, stop in self._blocks(values):
            block = merged[start:stop]
            torch.index_select(values, 0, self.left[start:stop], out=block)
            first, last = np.searchsorted(self.places, (start, stop)).tolist()
            if first < last:
                before = self.before[first:last]
                left, right = values.index_select(0, before), values.index_select(0, before + 1)
                new = interpolate(left, right, part[first:last], tame=tame)
                block.index_copy_(0, self.at[first:last] - start, new)
        return merged

    def set_crossing_values(self, merged: Tensor) -> None:
        """At its break a crossing element is exactly what it crosses."""
        if not len(self.places):
            return
        births, found, row = self.breaks, self.breaks.crossings, self.places
        if not (births.one_to_one and self.whole):
            inverse = np.full(len(births) + 1, -1)
            inverse[:-1][self.selected] = self.places
            row = inverse[births.break_of]  # crossings that own no birth read the last place, which is -1
            here = np.flatnonzero(row >= 0)
            found, row = found.select(here), row[here]
        rows, elements, levels = (to_device(self.device, a) for a in (row, found.element, found.level))
        flat = merged.view(len(merged), -1)
        if (found.partner >= 0).any():
            partners = to_device(self.device, found.partner)
            levels = torch.where(partners >= 0, flat[rows, partners.clamp(min=0)], levels)
        flat[rows, elements] = levels

    def point_table(
        self, network: Network, source: int, doubtful: float
    ) -> tuple[Ints, Floats, None, RoundoffProbes | None]:
        """Marks and spots of all points, no gaps on a device, and the trail."""
        state = self.state
        marks, spots = self._new_rows(doubtful)
        trail = state.probes
        if trail is not None and len(self.at):
            newborn = RoundoffProbes(network, *state.points_at(marks[:, 0], self.alpha))
            trail = trail.insert(self.left, self.at, newborn)
            spots[:, 2] = alpha_errors(newborn.advance_to(source), marks[:, 5], marks[:, 6], spots[:, 1])
            marks[:, 7] = 1
        elif trail is not None:
            trail = trail.select(self.left)
        return self._merge_rows(state.marks, marks), self._merge_rows(state.spots, spots), None, trail

    def _new_rows(self, doubtful: float) -> tuple[Ints, Floats]:
        """Marks and spots of the new points, (g, 8) and (g, 3)."""
        state, births, found = self.state, self.breaks, self.breaks.crossings
        chief = births.representative[self.selected]
        marks = state.marks.take(self.piece, 0)  # the line and the doubts of the piece that is split
        marks[:, 2], marks[:, 7] = state.node, 0
        columns = (births.unit[self.selected], births.count[self.selected], found.element[chief], found.partner[chief])
        for k, column in enumerate(columns):
            marks[:, 3 + k] = column
        spots = np.empty((len(marks), 3))
        spots[:, 0], spots[:, 1] = self.alpha, births.slope[self.selected]
        with np.errstate(all="ignore"):
            spots[:, 2] = doubtful / spots[:, 1]
        return marks, spots

    def _merge_rows(self, old: NDArray[Number], new: NDArray[Number]) -> NDArray[Number]:
        """Old rows in their places and new rows in theirs."""
        if not self.has_new_points:
            return old
        merged = old.take(self.source_point, 0)
        merged[self.places] = new
        return merged

    def _blocks(self, values: Tensor) -> Iterator[tuple[int, int]]:
        """Rows that are merged at a time: so few that a processor's cache holds them."""
        count = len(self.left)
        step = (
            max(1, BLOCK_BYTES // max(1, values[:1].numel() * values.element_size()))
            if self.device.type == "cpu"
            else count
        )
        for start in range(0, count, max(step, 1)):
            yield start, min(start + step, count)
