"""Breaking nodes entirely on a GPU: crossings are placed and points merged without the host.

Each synchronization with the device costs more than the work it waits for. So a breaking node reads at most three
results: the range of its input and its distances to the knots, the number of crossings, and whether any crossing is
near another one or near an existing point. If one is, the host places all crossings (`breaks.place_breaks`). Otherwise
the results agree with the host's bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from ...arrays import Ints
from ...lines import interpolate
from ...network.graph import Network
from ...ops.base import Breaking, Crossings
from ...tolerances import OVERFLOW_GUARD
from .breaks import CrossingErrors
from .points import NODE, PointTable, stack_columns
from .state import SweepState


@dataclass(frozen=True)
class InputSummary:
    """The range of a breaking node's input, read from the device at once."""

    low: float
    high: float
    knot_distances: tuple[float, ...] | None  # to each knot, from the value nearest to it


def summarize_input(state: SweepState, op: Breaking, source: int) -> InputSummary | None:
    """Read the range of the node's input; None if it is empty.

    The same read also fills in the state's missing `magnitudes`.
    """
    x = state.live[source]
    if not x.numel():
        return None
    others = [j for j, t in state.live.items() if j not in state.magnitudes and j != source and t.numel()]
    distances = op.knot_distances(x)
    ranges = [torch.stack(torch.aminmax(t)) for t in (x, *(state.live[j] for j in others))]
    numbers: list[float] = torch.cat(ranges if distances is None else [*ranges, distances]).tolist()
    for k, j in enumerate(others, 1):
        state.magnitudes[j] = max(-numbers[2 * k], numbers[2 * k + 1])
    knot_distances = tuple(numbers[2 * len(ranges) :])
    return InputSummary(numbers[0], numbers[1], knot_distances or None)


@dataclass(frozen=True)
class DeviceBreaks:
    """New breaks in order, one per crossing."""

    piece: Tensor  # (k,) the point to the left
    alpha: Tensor  # (k,)
    fraction: Tensor  # (k,) position within the piece, 0..1
    unit: Tensor  # (k,)
    element: Tensor  # (k,)
    partner: Tensor  # (k,) or -1
    level: Tensor  # (k,)

    def __len__(self) -> int:
        return len(self.piece)


def place_on_device(crossings: Crossings, errors: CrossingErrors, points: PointTable) -> DeviceBreaks | None:
    """Give every crossing a break of its own, as `place_breaks` would; None if some may be ties."""
    before, after = (t.to(torch.float64).abs() for t in (crossings.before, crossings.after))
    if errors.magnitude > OVERFLOW_GUARD:
        before, after = before / 2, after / 2
    total = before + after
    from_left, from_right = before / total, after / total
    order = torch.argsort(crossings.piece + from_left)
    piece, from_left, from_right, total = (t[order] for t in (crossings.piece, from_left, from_right, total))
    start, stop = points.alpha[piece], points.alpha[piece + 1]
    width = stop - start
    alpha = torch.where(from_left <= 0.5, start + from_left * width, stop - from_right * width)
    slope = total / width
    if len(piece) and not bool(_are_distinct(piece, alpha, slope, start, stop, errors.threshold)):
        return None
    columns = (t[order] for t in (crossings.unit, crossings.element, crossings.partner, crossings.level))
    return DeviceBreaks(piece, alpha, (alpha - start) / width, *columns)


def _are_distinct(
    piece: Tensor,  # (k,)
    alpha: Tensor,  # (k,)
    slope: Tensor,  # (k,)
    start: Tensor,  # (k,) alpha of the point to the left
    stop: Tensor,  # (k,) and of the point to the right
    threshold: float,
) -> Tensor:
    """Whether crossings are sorted, inside their pieces, and certainly distinct from each other."""
    inside = (alpha > start) & (alpha < stop)
    distinct = (alpha[1:] - alpha[:-1]) * torch.minimum(slope[1:], slope[:-1]) > threshold
    increasing = (piece[1:] > piece[:-1]) | ((piece[1:] == piece[:-1]) & distinct)
    return inside.all() & increasing.all()


class DeviceInsertion:
    """The merged order of old and new points on a device; the counterpart of `insert.Insertion`."""

    def __init__(self, state: SweepState, breaks: DeviceBreaks) -> None:
        self.state, self.breaks = state, breaks
        self.new_index = breaks.piece + torch.arange(1, len(breaks) + 1, device=breaks.piece.device)
        is_old = torch.ones(len(state) + len(breaks), dtype=torch.int64, device=self.new_index.device)
        # the old point that each row is, or follows
        self.source_index = is_old.index_fill_(0, self.new_index, 0).cumsum(0) - 1

    def __len__(self) -> int:
        return len(self.breaks)

    def part(self, start: int, stop: int) -> DeviceInsertionPart:
        """Rows ``start`` to ``stop``; the first proper part copies `order` to the host."""
        if start == 0 and stop == len(self.source_index):
            return DeviceInsertionPart(
                self, slice(start, stop), slice(0, len(self.breaks)), slice(0, len(self.line_ends))
            )
        line, _, source = self.order
        breaks = np.searchsorted(np.flatnonzero(source[1:] == source[:-1]) + 1, (start, stop)).tolist()
        line_ends = np.searchsorted(np.flatnonzero(line[1:] != line[:-1]), (start, stop - 1)).tolist()
        return DeviceInsertionPart(self, slice(start, stop), slice(*breaks), slice(*line_ends))

    @cached_property
    def order(self) -> tuple[Ints, Ints, Ints]:
        """On the host, (rows,) each: the line, the number of crossings, and the source point."""
        line, counts, source = torch.stack([self.points.line, self.points.count, self.source_index]).cpu().numpy()
        return line, counts, source

    @cached_property
    def points(self) -> PointTable:
        """The point table of all rows."""
        breaks, old = self.breaks, self.state.device_points
        if not len(breaks):
            return old
        line, ambiguous = old.integers[breaks.piece, :NODE].T  # of the piece that is split
        node, one = (torch.full_like(line, n) for n in (self.state.node, 1))
        integers = stack_columns((line, ambiguous, node, breaks.unit, one))
        return PointTable(self._merge(old.integers, integers), self._merge(old.alpha, breaks.alpha))

    @cached_property
    def line_ends(self) -> Tensor:
        """(lines - 1,) the last row of every line but the last."""
        ends = self.state.device_line_ends
        return ends + torch.searchsorted(self.breaks.piece, ends) if len(self.breaks) else ends

    def _merge(self, old: Tensor, new: Tensor) -> Tensor:
        return old.index_select(0, self.source_index).index_copy_(0, self.new_index, new)


class DeviceInsertionPart:
    """Consecutive rows of a `DeviceInsertion`, with the breaks and line ends among them."""

    def __init__(self, insertion: DeviceInsertion, rows: slice, breaks: slice, line_ends: slice) -> None:
        self.insertion, self.rows, self.breaks, self.line_ends = insertion, rows, breaks, line_ends
        self.source_index, self.new_index = insertion.source_index[rows], insertion.new_index[breaks] - rows.start
        self.whole = len(self.source_index) == len(insertion.source_index)
        self.has_new_points = not self.whole or len(insertion) > 0  # whether the rows differ from the old points

    def interpolate(self, values: Tensor, cannot_overflow: bool = False) -> Tensor:
        """Values (n, *shape) at the old points as values at all rows; new points are interpolated."""
        if not self.has_new_points:
            return values
        merged = values.index_select(0, self.source_index)
        if not len(self.new_index):
            return merged
        piece, fraction = self.insertion.breaks.piece[self.breaks], self.insertion.breaks.fraction[self.breaks]
        fraction = fraction.to(values.dtype).view(-1, *[1] * (values.dim() - 1))
        left, right = values.index_select(0, piece), values.index_select(0, piece + 1)
        new = interpolate(left, right, fraction, cannot_overflow=cannot_overflow)
        return merged.index_copy_(0, self.new_index, new)

    def set_crossing_values(self, merged: Tensor) -> None:
        """Set every crossing element to exactly the knot or element that it crosses; modifies ``merged``."""
        if not len(self.new_index):
            return
        breaks, flat = self.insertion.breaks, merged.view(len(merged), -1)
        element, partner, level = (t[self.breaks] for t in (breaks.element, breaks.partner, breaks.level))
        partner_value = flat[self.new_index, partner.clamp(min=0)]
        flat[self.new_index, element] = torch.where(partner >= 0, partner_value, level)

    def point_table(self, network: Network) -> tuple[PointTable, Tensor, None]:
        """The point table of these rows, the line ends among them, and no errors (devices keep none)."""
        table = self.insertion.points
        ends = self.insertion.line_ends[self.line_ends] - self.rows.start
        return PointTable(table.integers[self.rows], table.alpha[self.rows]), ends, None
