"""Insertion of new breaks into a state: the merged order of old and new points, and the values at all of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from ...arrays import Ints
from ...lines import interpolate
from ...network.graph import Network
from ...numerics.point_errors import PointErrors
from ...ops.masks import is_host
from .breaks import NewBreaks
from .points import PointTable, to_device
from .state import SweepState
from .workspace import empty

BLOCK_BYTES = 1 << 21  # bytes of a tensor that are merged at a time on a CPU, so that they stay in its cache


class Insertion:
    """Rows ``start`` to ``stop`` of the merged order of old and new points.

    Arrays named ``*_rows`` are on the host; ``*_index`` are the same numbers on the device of the values.
    """

    def __init__(self, state: SweepState, breaks: NewBreaks, start: int, stop: int) -> None:
        self.state, self.breaks, self.device = state, breaks, state.device
        all_new_rows = breaks.piece + 1 + np.arange(len(breaks))
        self.whole = start == 0 and stop == len(state) + len(breaks)
        self.selected: Ints | slice = slice(None)  # the breaks in these rows
        self.new_rows, skipped = all_new_rows, 0
        if not self.whole:
            self.selected = np.flatnonzero((all_new_rows >= start) & (all_new_rows < stop))
            self.new_rows = all_new_rows[self.selected] - start
            skipped = int((all_new_rows < start).sum())
        is_old = np.ones(stop - start, dtype=np.int64)
        is_old[self.new_rows] = 0
        self.source_rows = is_old.cumsum() + (start - skipped - 1)  # the old point that each row is, or follows
        self.piece, self.alpha = breaks.piece[self.selected], breaks.alpha[self.selected]
        left, right = state.alphas[self.piece], state.alphas[self.piece + 1]
        self.source_index = to_device(self.device, self.source_rows)
        self.new_index = to_device(self.device, self.new_rows)
        self.piece_index = to_device(self.device, self.piece)
        with np.errstate(all="ignore"):
            self.fraction = to_device(self.device, (self.alpha - left) / (right - left))

    @property
    def has_new_points(self) -> bool:
        """Whether the rows differ from the old points."""
        return not self.whole or len(self.new_rows) > 0

    def interpolate(self, values: Tensor, cannot_overflow: bool = False) -> Tensor:
        """Values (n, *shape) at the old points as values at all rows; new points are interpolated."""
        if not self.has_new_points:
            return values
        fraction = self.fraction.to(values.dtype).view(-1, *[1] * (values.dim() - 1))
        merged = empty((len(self.source_index), *values.shape[1:]), values)
        for start, stop in self._blocks(values):
            block = merged[start:stop]
            torch.index_select(values, 0, self.source_index[start:stop], out=block)
            first, last = np.searchsorted(self.new_rows, (start, stop)).tolist()
            if first < last:
                piece = self.piece_index[first:last]
                left, right = values.index_select(0, piece), values.index_select(0, piece + 1)
                new = interpolate(left, right, fraction[first:last], cannot_overflow=cannot_overflow)
                block.index_copy_(0, self.new_index[first:last] - start, new)
        return merged

    def set_crossing_values(self, merged: Tensor) -> None:
        """Set every crossing element to exactly the knot or element that it crosses; modifies ``merged``."""
        if not len(self.new_rows):
            return
        breaks, crossings, row = self.breaks, self.breaks.crossings, self.new_rows
        if not (breaks.one_to_one and self.whole):
            row_of_break = np.full(len(breaks) + 1, -1)
            row_of_break[:-1][self.selected] = self.new_rows
            row = row_of_break[breaks.break_of]  # a crossing without a new break has index -1: the last entry, -1
            here = np.flatnonzero(row >= 0)
            crossings, row = crossings.select(here), row[here]
        rows, elements, levels = (to_device(self.device, a) for a in (row, crossings.element, crossings.level))
        flat = merged.view(len(merged), -1)
        if (crossings.partner >= 0).any():
            partners = to_device(self.device, crossings.partner)
            levels = torch.where(partners >= 0, flat[rows, partners.clamp(min=0)], levels)
        flat[rows, elements] = levels

    def point_table(self, network: Network) -> tuple[PointTable, None, PointErrors | None]:
        """The point table of all rows, no line ends (they are kept on devices only), and the errors, if kept."""
        state, new, errors = self.state, self._new_points(), self.state.point_errors
        if errors is not None and len(self.new_index):
            inserted = PointErrors(network, *state.points_at(new.line, self.alpha))
            errors = errors.insert(self.source_index, self.new_index, inserted)
        elif errors is not None:
            errors = errors.select(self.source_index)
        return self._merge_points(state.points, new), None, errors

    def _new_points(self) -> PointTable:
        """The table of the new points alone."""
        split = self.state.points.integers.take(self.piece, 0)  # line and candidates of the piece that is split
        new = PointTable(split, self.alpha)
        new.node[:] = self.state.node
        new.unit[:], new.count[:] = self.breaks.unit[self.selected], self.breaks.count[self.selected]
        return new

    def _merge_points(self, old: PointTable, new: PointTable) -> PointTable:
        """Old and new points in merged order."""
        if not self.has_new_points:
            return old
        merged = PointTable(old.integers.take(self.source_rows, 0), old.alpha.take(self.source_rows, 0))
        merged.integers[self.new_rows], merged.alpha[self.new_rows] = new.integers, new.alpha
        return merged

    def _blocks(self, values: Tensor) -> Iterator[tuple[int, int]]:
        """Ranges of rows to merge at a time: everything on a GPU, `BLOCK_BYTES` on a CPU."""
        count = len(self.source_index)
        bytes_per_row = max(1, values[:1].numel() * values.element_size())
        step = max(1, BLOCK_BYTES // bytes_per_row if is_host(self.device) else count)
        for start in range(0, count, step):
            yield start, min(start + step, count)
