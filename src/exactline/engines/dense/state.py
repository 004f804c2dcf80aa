"""The state of a dense sweep: sorted points of many lines, and the value of every live tensor at each of them.

The tensors may be on a GPU. The point table stays where it was last written: in NumPy arrays, which are faster for
many small updates, or on the device as long as nothing there is ambiguous.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ...arrays import Bools, Floats, Ints
from ...lines import Lines
from ...numerics.point_errors import PointErrors
from ...numerics.static_filter import Magnitude, StaticFilter
from .points import PointTable, to_device

if TYPE_CHECKING:
    from ..layer_record import LayerRecorder


@dataclass(frozen=True)
class PatternRecord:
    """How a breaking node changed the points, and its activation pattern; recorded for the backward sweep."""

    source_point: Tensor  # (n,) the point before the node that each point is, or follows
    points_before: int  # number of points before the node
    has_new_points: bool  # whether points were added or dropped
    pattern: Tensor  # (n - 1, ...) the activation pattern on the piece that starts at each point
    other_side: Tensor | None  # `pattern` with every unit that stays on a knot put on the other side of it


@dataclass
class SweepState:
    """All points between two nodes; the points of a line are adjacent, in order of alpha."""

    lines: Lines
    node: int  # the next node to evaluate
    table: PointTable  # on the host or on the device, wherever written last: read `points` or `device_points`
    live: dict[int, Tensor] = field(default_factory=dict)  # by node: values (n, *shape)
    bounds: dict[int, Magnitude] = field(default_factory=dict)  # by live node: worst-case size of values and errors
    filter: StaticFilter = field(default_factory=StaticFilter)
    point_errors: PointErrors | None = None  # errors at all points, kept once most points are ambiguous
    records_patterns: bool = False  # whether breaking nodes fill in `record`
    record: PatternRecord | None = None  # of the last breaking node
    recorder: LayerRecorder | None = None  # collects units that change their branch, if they are wanted
    is_unambiguous: bool = False  # whether no unit of the current node is on a knot
    continues: bool = False  # whether the first point repeats the last point of the previous part
    shared_crossings: int = 0  # crossings at that point that the previous part has counted
    line_ends: Tensor | None = None  # (lines - 1,) last point of every line but the last, if the table is on a device
    magnitudes: dict[int, float] = field(default_factory=dict)  # by live node, where known: largest absolute value
    # by node, (k, 3): knot, unit and side of the units that are on a knot at the first and at the last point
    first_on_knot: dict[int, Tensor] = field(default_factory=dict)
    last_on_knot: dict[int, Tensor] = field(default_factory=dict)

    @property
    def points(self) -> PointTable:
        """The point table on the host; it may be modified."""
        if self.table.is_on_device:
            self.table, self.line_ends = self.table.to_host(), None
        return self.table

    @property
    def device_points(self) -> PointTable:
        """The point table on the device of the values, read-only; it stays there until `points` is read."""
        if self.line_ends is None:
            same_line = self.line[:-1] == self.line[1:]
            self.line_ends = to_device(self.device, np.flatnonzero(~same_line))
            self.table = self.point_tensors()
        return self.point_tensors()

    @property
    def device_line_ends(self) -> Tensor:
        """(lines - 1,) the last point of every line but the last, on the device of the values."""
        _ = self.device_points
        if self.line_ends is None:
            raise RuntimeError("the table is not on the device")
        return self.line_ends

    def point_tensors(self) -> PointTable:
        """The point table as tensors, without changing where it is kept."""
        return self.table.to_tensors(self.lines.starts[0].device)

    @property
    def line(self) -> Ints:
        """(n,) the line of each point."""
        return self.points.line

    @property
    def alphas(self) -> Floats:
        """(n,) positions on the lines."""
        return self.points.alpha

    @property
    def dtype(self) -> torch.dtype:
        return next(iter(self.live.values())).dtype

    @property
    def device(self) -> torch.device:
        return next(iter(self.live.values())).device

    @property
    def eps(self) -> float:
        return torch.finfo(self.dtype).eps

    @property
    def same_line(self) -> Bools:
        """(n - 1,) whether a point and the next one are on the same line."""
        return self.line[:-1] == self.line[1:]

    def __len__(self) -> int:
        return len(self.table)

    def line_points(self, rows: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Input points at some rows, and their rounding errors; (rows, *in) each."""
        table = self.point_tensors()
        return self.lines.at(table.line[rows], table.alpha[rows])

    def points_at(self, line: Ints, alphas: Floats) -> tuple[list[Tensor], list[Tensor]]:
        """Input points at any positions (k,) on the lines, and their rounding errors; (k, *in) each."""
        device = self.lines.starts[0].device
        return self.lines.at(to_device(device, line), to_device(device, alphas))


def start_state(lines: Lines, first: int, last: int, input_nodes: tuple[int, ...]) -> SweepState:
    """The state before the first node: both ends of the lines ``first`` to ``last``, exclusive."""
    line = np.arange(first, last).repeat(2)
    ends = np.tile([0.0, 1.0], last - first)
    live = {
        node: torch.stack([start[first:last], end[first:last]], 1).flatten(0, 1)
        for node, start, end in zip(input_nodes, lines.starts, lines.ends, strict=True)
    }
    return SweepState(lines, 0, PointTable.without_origins(line, ends), live, input_magnitudes(live))


def line_magnitudes(lines: Lines, line: Tensor, live: dict[int, Tensor]) -> dict[int, Magnitude]:
    """`input_magnitudes` of points inside some lines (k,): a point between far ends is rounded as much as they are."""
    magnitudes = dict[int, Magnitude]()
    for (i, inside), start, end in zip(input_magnitudes(live).items(), lines.starts, lines.ends, strict=True):
        far = max(input_magnitudes({0: start[line], 1: end[line]}).values(), key=lambda magnitude: magnitude.errors)
        magnitudes[i] = inside.at_least(Magnitude(0.0, far.errors))
    return magnitudes


def input_magnitudes(live: dict[int, Tensor]) -> dict[int, Magnitude]:
    """By input node: the largest value, and its rounding error as the worst-case error."""
    largest = {i: float(x.abs().max()) if x.numel() else 0.0 for i, x in live.items()}
    return {i: Magnitude(size, size * torch.finfo(live[i].dtype).eps) for i, size in largest.items()}
