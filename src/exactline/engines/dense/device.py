"""A breaking node without the host: crossings are placed and points merged where the tensors are.

Every answer a device is waited for costs more than the work it is about. So a node asks three times at the most: how
large the values are and how near to a knot, how many crossings there are, and whether any of them is near another or
near a point that is there already. Where one is, the host places them all, see `place`; else the bits are the same.
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
from ...ops.base import OVERFLOW_GUARD, Breaking, Crossings
from .breaks import ALPHA_RESOLUTION, CrossingErrors
from .state import DevicePoints, SweepState


@dataclass(frozen=True)
class InputSummary:
    """What is asked of the input of a breaking node before all else."""

    low: float
    high: float
    knot_distances: tuple[float, ...] | None  # to each knot, the distance of the nearest value


def summarize_input(state: SweepState, op: Breaking, source: int) -> InputSummary | None:
    """One look at the input, and at the live tensors that were not looked at before; None where there are no values."""
    x = state.live[source]
    if not x.numel():
        return None
    others = [j for j, t in state.live.items() if j not in state.magnitudes and j != source and t.numel()]
    nearest = op.knot_distances(x)
    asked = [torch.stack(torch.aminmax(t)) for t in (x, *(state.live[j] for j in others))]
    answers: list[float] = torch.cat(asked if nearest is None else [*asked, nearest]).tolist()
    for place, j in enumerate(others, 1):
        state.magnitudes[j] = max(-answers[2 * place], answers[2 * place + 1])
    known = tuple(answers[2 * len(asked) :])
    return InputSummary(answers[0], answers[1], known or None)


@dataclass(frozen=True)
class DeviceBreaks:
    """New points in order, each of one crossing."""

    piece: Tensor  # (k,) the point to the left
    alpha: Tensor  # (k,)
    part: Tensor  # (k,) how far along the piece
    slope: Tensor  # (k,)
    unit: Tensor  # (k,)
    element: Tensor  # (k,)
    partner: Tensor  # (k,) or -1
    level: Tensor  # (k,)

    def __len__(self) -> int:
        return len(self.piece)


def place_on_device(crossings: Crossings, noise: CrossingErrors, rows: DevicePoints) -> DeviceBreaks | None:
    """A break for every crossing, as `place` would have it; None where some are not told from others."""
    before, after = (t.to(torch.float64).abs() for t in (crossings.before, crossings.after))
    if noise.magnitude > OVERFLOW_GUARD:
        before, after = before / 2, after / 2
    total = before + after
    part, rest = before / total, after / total
    order = torch.argsort(crossings.piece + part)
    piece, part, rest, total = (t[order] for t in (crossings.piece, part, rest, total))
    left, right = rows.spots[piece], rows.spots[piece + 1]
    start, stop = left[:, 0], right[:, 0]
    width = stop - start
    alpha = torch.where(part <= 0.5, start + part * width, stop - rest * width)
    rate = total / width
    if len(piece) and not bool(_are_apart(piece, alpha, rate, left, right, noise.threshold)):
        return None
    columns = (t[order] for t in (crossings.unit, crossings.element, crossings.partner, crossings.level))
    return DeviceBreaks(piece, alpha, (alpha - start) / width, rate, *columns)


def _are_apart(piece: Tensor, alpha: Tensor, rate: Tensor, left: Tensor, right: Tensor, doubtful: float) -> Tensor:
    """Whether crossings are in order, and far from one another and from the points that are there already."""
    slack = ALPHA_RESOLUTION * alpha
    inside = (alpha - left[:, 0] - left[:, 2] > slack) & (right[:, 0] - alpha - right[:, 2] > slack)
    reach = divide(doubtful, rate)
    clear = alpha[1:] - alpha[:-1] > reach[1:] + reach[:-1] + slack[1:]
    ahead = (piece[1:] > piece[:-1]) | ((piece[1:] == piece[:-1]) & clear)
    return inside.all() & ahead.all()


def divide(number: float, tensor: Tensor) -> Tensor:
    """A quotient rounded once; torch's own multiplies by a reciprocal."""
    return torch.full_like(tensor, number) / tensor


class DeviceInsertion:
    """Old and new points in one order, as a whole or in parts; `Merge` is the same for points that the host placed."""

    def __init__(self, state: SweepState, fresh: DeviceBreaks, doubtful: float) -> None:
        self.state, self.breaks, self.threshold = state, fresh, doubtful
        self.at = fresh.piece + torch.arange(1, len(fresh) + 1, device=fresh.piece.device)
        old = torch.ones(len(state) + len(fresh), dtype=torch.int64, device=self.at.device)
        self.left = old.index_fill_(0, self.at, 0).cumsum(0) - 1  # the old point at or before each place

    def __len__(self) -> int:
        return len(self.breaks)

    def part(self, start: int, stop: int) -> DeviceInsertionPart:
        """The points ``start`` to ``stop``; for less than all of them the device is asked once."""
        if start == 0 and stop == len(self.left):
            return DeviceInsertionPart(
                self, slice(start, stop), slice(0, len(self.breaks)), slice(0, len(self.points.gaps))
            )
        line, _, left = self.order
        births = np.searchsorted(np.flatnonzero(left[1:] == left[:-1]) + 1, (start, stop)).tolist()
        gaps = np.searchsorted(np.flatnonzero(line[1:] != line[:-1]), (start, stop - 1)).tolist()
        return DeviceInsertionPart(self, slice(start, stop), slice(*births), slice(*gaps))

    @cached_property
    def order(self) -> tuple[Ints, Ints, Ints]:
        """For every point, on the host: its line, the crossings counted there, and the old point at or before it."""
        marks = self.points.marks
        line, counts, left = torch.stack([marks[:, 0], marks[:, 4], self.left]).cpu().numpy()
        return line, counts, left

    @cached_property
    def points(self) -> DevicePoints:
        """What is known of all points."""
        fresh, rows = self.breaks, self.state.device_points
        if not len(fresh):
            return rows
        line, doubts = rows.marks[fresh.piece, :2].T  # of the piece that is split
        node, none, one = (torch.full_like(line, n) for n in (self.state.node, 0, 1))
        marks = torch.stack([line, doubts, node, fresh.unit, one, fresh.element, fresh.partner, none], 1)
        spots = torch.stack([fresh.alpha, fresh.slope, divide(self.threshold, fresh.slope)], 1)
        gaps = rows.gaps + torch.searchsorted(fresh.piece, rows.gaps)  # as many as came in before
        return DevicePoints(self._merge(rows.marks, marks), self._merge(rows.spots, spots), gaps)

    def _merge(self, old: Tensor, new: Tensor) -> Tensor:
        return old.index_select(0, self.left).index_copy_(0, self.at, new)


class DeviceInsertionPart:
    """A stretch of the order of old and new points."""

    def __init__(self, merge: DeviceInsertion, points: slice, births: slice, gaps: slice) -> None:
        self.insertion, self.points, self.breaks, self.line_ends = merge, points, births, gaps
        self.left, self.at = merge.left[points], merge.at[births] - points.start
        self.whole = len(self.left) == len(merge.left)
        self.has_new_points = not self.whole or len(merge) > 0  # whether the points are others than before

    def interpolate(self, values: Tensor, tame: bool = False) -> Tensor:
        """Values at old points, and between them at new ones; ``tame`` values are so small that nothing overflows."""
        if not self.has_new_points:
            return values
        merged = values.index_select(0, self.left)
        if not len(self.at):
            return merged
        piece, part = self.insertion.breaks.piece[self.breaks], self.insertion.breaks.part[self.breaks]
        part = part.to(values.dtype).view(-1, *[1] * (values.dim() - 1))
        left, right = values.index_select(0, piece), values.index_select(0, piece + 1)
        return merged.index_copy_(0, self.at, interpolate(left, right, part, tame=tame))

    def set_crossing_values(self, merged: Tensor) -> None:
        """At its break a crossing element is exactly what it crosses."""
        if not len(self.at):
            return
        fresh, flat = self.insertion.breaks, merged.view(len(merged), -1)
        element, partner, level = (t[self.breaks] for t in (fresh.element, fresh.partner, fresh.level))
        met = flat[self.at, partner.clamp(min=0)]
        flat[self.at, element] = torch.where(partner >= 0, met, level)

    def point_table(self, network: Network, source: int, doubtful: float) -> tuple[Tensor, Tensor, Tensor, None]:
        """Marks and spots of these points, the gaps between lines, and no trail."""
        rows = self.insertion.points
        gaps = rows.gaps[self.line_ends] - self.points.start
        return rows.marks[self.points], rows.spots[self.points], gaps, None
