"""Maxima of several elements: pooling, max over dims, maximum of branches, with or without ReLU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .base import Breaking, Crossings, ErrorBounds, SnappedInput

Native = Callable[[Tensor], tuple[Tensor, Tensor]]
MAX_WINDOW_ELEMENTS = 1 << 22  # elements of windows opened at a time
TIE_TOLERANCE = 64 * 2.0**-52  # lines this close to one another at both ends, relative to them, may be one
SUBTRACTION_GUARD = 1e300  # values beyond this are scaled before they are subtracted
AMBIGUITY_SHARE = 1e-6  # noise of this share of the largest value may hide a whole line


@dataclass(frozen=True, eq=False)
class Maximum(Breaking):
    """The largest (or smallest) element of every window, and 0 too where ``floor`` is set.

    Windows of fewer elements repeat one: an identical line never takes the lead.
    """

    table: Tensor  # (windows, size) flat positions in the input
    shape: tuple[int, ...]  # of the output
    sign: int = 1  # -1: the minimum
    floor: bool = False  # fused with a ReLU: the constant 0 is a rival
    native: Native | None = None  # (points, *in) -> values, flat positions; both (points, windows)
    name: str = "max"

    def __post_init__(self) -> None:
        if self.floor and self.sign < 0:
            raise ValueError("only a maximum has a floor")

    @property
    def title(self) -> str:
        return f"{self.name}+relu" if self.floor else self.name

    def evaluate(self, *xs: Tensor) -> Tensor:
        values, _ = self._leaders(xs[0])
        return values.view(len(xs[0]), *self.shape)

    def jvp(self, x: Tensor, errors: Tensor) -> Tensor:
        best, where = _window_maxima(self.sign * x.reshape(len(x), -1), self.table)
        position = self.table.gather(1, where.T).T.expand(len(errors), *best.shape)
        carried = errors.reshape(*errors.shape[:2], -1).gather(2, position)
        if self.floor:
            carried = carried * (best + 8 * carried.abs().amax(0) > 0)
        return carried.view(*errors.shape[:2], *self.shape)

    def units(self, shape: tuple[int, ...]) -> int:
        return len(self.table)

    def snap_to_knots(self, x: Tensor, noise: ErrorBounds) -> SnappedInput:
        return SnappedInput(x, ambiguous=self._count_ambiguous(x.reshape(len(x), -1), noise))

    def crossings(self, settled: SnappedInput, noise: ErrorBounds) -> Crossings:
        _, leader = self._leaders(settled.x)
        differ = (leader[:-1] != leader[1:]) & noise.same_line[:, None]
        piece, window = torch.nonzero(differ, as_tuple=True)
        flat = settled.x.reshape(len(settled.x), -1)
        step = max(1, MAX_WINDOW_ELEMENTS // max(self.table.shape[1], 1))
        parts = [
            crossing
            for at in range(0, max(len(piece), 1), step)
            for crossing in self._follow_leader(flat, piece[at : at + step], window[at : at + step], noise)
        ]
        return Crossings.join(parts)

    def activation_pattern(self, before: Tensor, after: Tensor) -> Tensor:
        # halves, because the sum of two huge ends would overflow
        middle = self.sign * (before / 2 + after / 2).reshape(len(before), -1)
        best, pattern = _window_maxima(middle, self.table)
        if self.floor:
            pattern = torch.where(best > 0, pattern, torch.full_like(pattern, self.table.shape[1]))
        return pattern

    def apply_affine(self, pattern: Tensor, x: Tensor) -> Tensor:
        flat = x.reshape(len(x), -1)
        inside = pattern < self.table.shape[1]
        position = self.table.gather(1, (pattern * inside).T).T
        return (flat.gather(1, position) * inside).view(len(x), *self.shape)

    def other_side(self, before: Tensor, after: Tensor) -> Tensor | None:
        pattern = self.activation_pattern(before, after)
        ends = [self.sign * end.reshape(len(end), -1) for end in (before, after)]
        tied = None
        for flat in ends:  # a column at a time: windows are not opened
            best, _ = _window_maxima(flat, self.table)
            best = best.clamp(min=0) if self.floor else best
            slack = TIE_TOLERANCE * best.abs()
            near = torch.stack([best - flat.index_select(1, c) <= slack for c in self.table.T], 2)
            if self.floor:
                near = torch.cat([near, (best <= slack)[..., None]], 2)
            tied = near if tied is None else tied & near
        if tied is None or not bool((tied.sum(2) > 1).any()):
            return None
        last = tied.shape[2] - 1 - tied.flip(2).to(torch.int8).argmax(2)
        same = self._same_element(last, pattern)
        return torch.where((tied.sum(2) > 1) & ~same, last, pattern)

    def _same_element(self, one: Tensor, two: Tensor) -> Tensor:
        """Whether two places of each window are one and the same element."""
        wide = torch.cat([self.table, torch.full_like(self.table[:, :1], -1)], 1)
        return wide.gather(1, one.T).T == wide.gather(1, two.T).T

    def _leaders(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The value of every window and the flat position that leads it, -1 for the floor."""
        if self.native is not None:
            values, position = self.native(x)
        else:
            flat = self.sign * x.reshape(len(x), -1)
            values, where = _window_maxima(flat, self.table)
            values, position = self.sign * values, self.table.gather(1, where.T).T
        if self.floor:
            position = torch.where(values > 0, position, torch.full_like(position, -1))
            values = values.clamp(min=0)
        return values, position

    def _count_ambiguous(self, flat: Tensor, noise: ErrorBounds) -> Tensor | None:
        """Windows per piece whose leader cannot be told from a rival at either end; looked for where noise is large."""
        if noise.threshold <= AMBIGUITY_SHARE * noise.magnitude or len(flat) < 2:
            return None
        opened = self.sign * flat[:, self.table]  # (points, windows, size)
        gap = opened.amax(2, keepdim=True) - opened
        rows = torch.arange(len(flat), device=flat.device)
        bound = noise.bound(rows)[:, self.table]
        top = bound.gather(2, gap.argmin(2, keepdim=True))
        near = gap <= bound + top
        both = near[:-1] & near[1:] & ((gap[:-1] > 0) | (gap[1:] > 0))
        return both.any(2).sum(1) * noise.same_line

    def _follow_leader(self, flat: Tensor, piece: Tensor, window: Tensor, noise: ErrorBounds) -> Iterator[Crossings]:
        """Follow the leading line of each window from one end of its piece to the other."""
        places = self.table[window]  # (k, size)
        start, stop = flat[piece[:, None], places], flat[piece[:, None] + 1, places]
        if self.sign < 0:
            start, stop = -start, -stop
        if self.floor:
            zero = start.new_zeros(len(start), 1)
            start, stop = torch.cat([start, zero], 1), torch.cat([stop, zero], 1)
            places = torch.cat([places, torch.full_like(places[:, :1], -1)], 1)
        huge = len(start) and noise.magnitude > SUBTRACTION_GUARD
        if huge and max(float(start.abs().max()), float(stop.abs().max())) > SUBTRACTION_GUARD:
            start, stop = start * 2.0**-12, stop * 2.0**-12
        tied, level = _tied_with_leader((start, stop), (piece, piece + 1), places, noise)
        going = ~(tied & level).any(1)
        steep = torch.where(tied, stop - start, torch.full_like(start, -torch.inf))
        leader = steep.argmax(1)
        yield _make_crossings(piece[:0], window[:0], start, stop, places, leader[:0], leader[:0])
        while len(piece):
            s, t = start.gather(1, leader[:, None]), stop.gather(1, leader[:, None])
            behind, ahead = (s - start).clamp(min=0), stop - t
            meet = torch.where(ahead > 0, behind / (behind + ahead), torch.full_like(start, torch.inf))
            first = meet.amin(1, keepdim=True)
            rival = torch.where(meet == first, ahead, torch.full_like(ahead, -torch.inf)).argmax(1)
            going = going & torch.isfinite(first[:, 0]) & ~level.gather(1, leader[:, None])[:, 0]
            kept = torch.nonzero(going)[:, 0]  # asked once: on a device each mask would be counted anew
            piece, window, places = piece[kept], window[kept], places[kept]
            start, stop, level = start[kept], stop[kept], level[kept]
            leader, rival, going = leader[kept], rival[kept], going[kept]
            yield _make_crossings(piece, window, start, stop, places, leader, rival)
            leader = rival


def _window_maxima(flat: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Largest element of every window and its place there, the first of equals, a column at a time."""
    best = flat.index_select(1, table[:, 0])
    where = torch.zeros_like(best, dtype=torch.int64)
    for k in range(1, table.shape[1]):
        rival = flat.index_select(1, table[:, k])
        ahead = rival > best
        best = torch.where(ahead, rival, best)
        where.masked_fill_(ahead, k)
    return best, where


def _tied_with_leader(
    ends: tuple[Tensor, Tensor], rows: tuple[Tensor, Tensor], places: Tensor, noise: ErrorBounds
) -> list[Tensor]:
    """Which lines cannot be told from the largest at either end, (k, size) each."""
    tops = [values.max(1, keepdim=True) for values in ends]
    gaps = [top - values for values, (top, _) in zip(ends, tops, strict=True)]
    near = [(gap > 0) & (gap <= 2 * noise.threshold) for gap in gaps]
    if not bool((near[0] | near[1]).any()):
        return [gap == 0 for gap in gaps]
    who = [place for _, place in tops]
    return [_refine_ties(g, n, r, w, places, noise) for g, n, r, w in zip(gaps, near, rows, who, strict=True)]


def _refine_ties(gap: Tensor, near: Tensor, rows: Tensor, who: Tensor, places: Tensor, noise: ErrorBounds) -> Tensor:
    """The same at one end, where some lines are near the largest."""
    look = near.any(1)
    if not bool(look.any()):
        return gap == 0
    points, where = torch.unique(rows[look], return_inverse=True)
    bound = noise.bound(points)[where[:, None], places[look].clamp(min=0)] * (places[look] >= 0)
    tied = gap == 0
    tied[look] |= gap[look] <= bound + bound.gather(1, who[look])
    return tied


def _make_crossings(
    piece: Tensor, window: Tensor, start: Tensor, stop: Tensor, places: Tensor, leader: Tensor, rival: Tensor
) -> Crossings:
    def at(table: Tensor, column: Tensor) -> Tensor:
        return table[: len(column)].gather(1, column[:, None])[:, 0]

    before, after = at(start, rival) - at(start, leader), at(stop, rival) - at(stop, leader)
    element, partner = at(places, rival), at(places, leader)
    # the floor is no element: whoever meets it is set to exactly 0
    element, partner = torch.where(element < 0, partner, element), torch.where(element < 0, element, partner)
    return Crossings(piece, window, before.clamp(max=0), after, element, partner, torch.zeros_like(before))
