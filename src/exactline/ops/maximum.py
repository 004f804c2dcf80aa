"""Maxima of several elements: max pooling, max over dims, maximum of branches, each with or without a fused ReLU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..budget import check_deadline
from ..tolerances import AMBIGUITY_SHARE, HUGE_LINE_SCALE, SUBTRACTION_GUARD, TIE_TOLERANCE
from .base import (
    Breaking,
    Crossings,
    ErrorBounds,
    KnotPasses,
    PieceEnds,
    SnappedInput,
    flatten_units,
)
from .masks import nonzero
from .window_lines import (
    column_blocks,
    find_equal_lines,
    have_several,
    make_crossings,
    max_window_elements,
    may_tie_for_lead,
    rival_leaders,
    ties_with_leader,
    window_maxima,
)

Native = Callable[[Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class Maximum(Breaking):
    """The largest (or smallest) element of every window; with ``floor`` at least 0.

    Smaller windows repeat one of their elements: a duplicate line never takes the lead.
    """

    table: Tensor  # (windows, size) flat positions in the input
    shape: tuple[int, ...]  # shape of the output
    sign: int = 1  # -1 for the minimum
    floor: bool = False  # fused with a ReLU: the constant 0 is one more line of the maximum
    native: Native | None = None  # torch's kernel: (points, *in) -> values and flat positions, (points, windows) each
    name: str = "max"
    # (windows, 2) elements that get the gradient where the floor leads, and those that get it on the other side; -1:
    # none. For the gradient at ReLUs in front of a maximum that reads their inputs: units that are off tie.
    floor_elements: Tensor | None = None

    def __post_init__(self) -> None:
        if self.floor and self.sign < 0:
            raise ValueError("only a maximum has a floor")

    @property
    def title(self) -> str:
        return f"{self.name}+relu" if self.floor else self.name

    def evaluate(self, *xs: Tensor) -> Tensor:
        values, _ = self._leaders(xs[0])
        return values.view(len(xs[0]), *self.shape)

    def propagate_errors(self, low: Tensor, high: Tensor, errors: Tensor) -> Tensor:
        lowest, highest = (low, high) if self.sign > 0 else (-high, -low)
        highest, errors = flatten_units(highest), errors.flatten(2)
        least, leader = self._leaders(self.sign * lowest)  # of the least possible maxima
        out = errors.gather(2, leader.clamp(min=0).expand(len(errors), -1, -1))
        if self.floor:
            out *= leader >= 0
        max_windows = max_window_elements(errors) // max(len(errors) * self.table.shape[1], 1)  # times points
        point_step = max(1, min(len(high), max_windows))
        window_step = max(1, max_windows // point_step)
        for first in range(0, len(self.table), window_step):
            window, columns = self.table[first : first + window_step], slice(first, first + window_step)
            for start in range(0, len(high), point_step):
                check_deadline()
                rows = slice(start, start + point_step)
                some = highest[rows].index_select(1, window.flatten()).view(-1, *window.shape)
                can_lead = some >= (self.sign * least[rows, columns])[:, :, None]  # (points, windows, size)
                has_rivals = can_lead.sum(2) > (leader[rows, columns] >= 0)
                point, row = has_rivals.nonzero(as_tuple=True)
                candidates = errors[:, start + point[:, None], window[row]] * can_lead[point, row]
                largest = candidates.abs().argmax(2, keepdim=True)
                out[:, start + point, first + row] = candidates.gather(2, largest)[..., 0]
        return out.view(*errors.shape[:2], *self.shape)

    def units(self, shape: tuple[int, ...]) -> int:
        return len(self.table)

    def snap_to_knots(self, x: Tensor, errors: ErrorBounds) -> SnappedInput:
        highest, position = self._highest_members(x)
        leaders = self._leaders_of(highest, position)
        ambiguous = self._find_ambiguous(flatten_units(x), highest, leaders, errors)
        return SnappedInput(x, ambiguous=ambiguous, leaders=leaders)

    def crossings(self, snapped: SnappedInput, errors: ErrorBounds) -> Crossings:
        piece, window = torch.nonzero(_leader_differs(snapped, errors), as_tuple=True)
        flat = flatten_units(snapped.x)
        step = max(1, max_window_elements(flat) // max(self.table.shape[1], 1))
        parts = [
            crossing
            for at in range(0, max(len(piece), 1), step)
            for crossing in self._trace_leaders(flat, piece[at : at + step], window[at : at + step], errors)
        ]
        return Crossings.join(parts)

    def knot_passes(
        self, snapped: SnappedInput, errors: ErrorBounds, *, with_switches: bool = False
    ) -> KnotPasses | None:
        if len(snapped.x) < 2:
            return None
        flat, last, windows = flatten_units(snapped.x), len(snapped.x) - 1, len(self.table)
        differs, same_line = _leader_differs(snapped, errors), errors.same_line
        may_pass = torch.empty(len(flat), windows, dtype=torch.bool, device=flat.device)
        for row, is_inside in zip((0, last), errors.ends_inside, strict=True):
            if is_inside:  # the sweep continues there: all windows
                end = slice(row, row + 1)
                may_pass[end] = self._have_rivals(flat[end], _leaders_in(snapped)[end], 2 * errors.threshold)
            else:
                may_pass[row] = False
        may_pass[1:-1] = (differs[:-1] | differs[1:]) & (same_line[:-1] & same_line[1:])[:, None]
        row, window = nonzero(may_pass)
        row, window, tied = self._find_ties(flat, row, window, errors)
        if not len(row):
            return None
        before = self._leads_beside(flat, row, window, -1, tied, errors)
        after = self._leads_beside(flat, row, window, 1, tied, errors)
        is_inner = (row > 0) & (row < last)
        counts = torch.zeros(len(flat), dtype=torch.int64, device=flat.device)
        passes = (is_inner & ~(before & after).any(1)).to(torch.int64)
        counts.index_add_(0, row, passes)
        ends = list[Tensor]()
        for members, side in (((row == 0)[:, None] & after, 1), ((row == last)[:, None] & tied & ~before, -1)):
            which, member = torch.nonzero(members, as_tuple=True)
            no_knot, sides = torch.zeros_like(member), torch.full_like(member, side)
            ends.append(torch.stack([no_knot, window[which], member, sides], 1))
        if not with_switches:
            return KnotPasses(counts, *ends)
        switches = passes > 0
        if self.floor:  # along a piece on which no element is positive, the floor leads
            switches |= is_inner & (before[:, -1] != after[:, -1])
            above = [(~side[:, -1]).to(torch.int64) for side in (after, before)]
            for end, (at, side) in enumerate(zip((row == 0, row == last), above, strict=True)):
                minus_one = torch.full_like(window, -1)
                floor = torch.stack([minus_one, window, minus_one, side], 1)[at]
                ends[end] = torch.cat([ends[end], floor])
        return KnotPasses(counts, ends[0], ends[1], torch.stack([row, window, passes], 1)[switches])

    def _find_ties(
        self, flat: Tensor, row: Tensor, window: Tensor, errors: ErrorBounds
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Of some windows (k,) at points (k,), those with several largest members, and which they are, (n, size)."""
        rows, windows, ties = [row[:0]], [window[:0]], [row.new_zeros(0, self._size, dtype=torch.bool)]
        step = max(1, max_window_elements(flat) // self._size)
        for at in range(0, len(row), step):
            part = slice(at, at + step)
            values, elements = self._members(flat, row[part], window[part])
            tied = ties_with_leader((values,), (row[part],), elements, errors)[0]
            lowest, highest = torch.where(tied, elements, torch.inf), torch.where(tied, elements, -torch.inf)
            several = torch.nonzero(lowest.amin(1) < highest.amax(1))[:, 0]  # a window may repeat an element
            rows.append(row[part][several])
            windows.append(window[part][several])
            ties.append(tied[several])
        return torch.cat(rows), torch.cat(windows), torch.cat(ties)

    def _leads_beside(
        self, flat: Tensor, row: Tensor, window: Tensor, step: int, tied: Tensor, errors: ErrorBounds
    ) -> Tensor:
        """Which of the members (n, size) that are tied at points (n,) lead on the piece before or after the point."""
        beside = (row + step).clamp(0, len(flat) - 1)
        values, elements = self._members(flat, beside, window)
        values = values.masked_fill(~tied, -torch.inf)
        return tied & ties_with_leader((values,), (beside,), elements, errors)[0]

    @property
    def _size(self) -> int:
        """The number of lines of every window."""
        return self.table.shape[1] + self.floor

    def _members(self, flat: Tensor, row: Tensor, window: Tensor) -> tuple[Tensor, Tensor]:
        """Values of the lines of windows (k,) at points (k,), times the sign, and their elements; (k, size) each."""
        elements = self.table[window]
        values = self.sign * flat[row[:, None], elements]
        if not self.floor:
            return values, elements
        zero = values.new_zeros(len(values), 1)
        return torch.cat([values, zero], 1), torch.cat([elements, torch.full_like(elements[:, :1], -1)], 1)

    def activation_pattern(self, before: Tensor, after: Tensor) -> Tensor:
        # halves, because the sum of two huge values would overflow
        middle = self.sign * flatten_units(before / 2 + after / 2)
        best, pattern = window_maxima(middle, self.table)
        if self.floor:
            pattern = torch.where(best > 0, pattern, torch.full_like(pattern, self.table.shape[1]))
        return pattern

    def vjp(self, pattern: Tensor, grad: Tensor, shape: Sequence[int]) -> Tensor:
        out = super().vjp(pattern, grad, shape)
        if self.floor_elements is not None:
            flat, columns = flatten_units(out), self.table.shape[1]
            for k, elements in enumerate(self.floor_elements.unbind(1)):
                row, window = torch.nonzero((pattern == columns + k) & (elements >= 0), as_tuple=True)
                flat.index_put_((row, elements[window]), flatten_units(grad)[row, window], accumulate=True)
            out = flat.view(out.shape)
        return out

    def is_flat(self, pattern: Tensor) -> Tensor:
        return pattern == self.table.shape[1]  # only the floor is constant

    def branch_at(self, x: Tensor) -> Tensor:
        return self._leaders(x)[1]

    def apply_affine(self, pattern: Tensor, x: Tensor) -> Tensor:
        flat = flatten_units(x)
        inside = pattern < self.table.shape[1]
        position = self.table.gather(1, (pattern * inside).T).T
        return (flat.gather(1, position) * inside).view(len(x), *self.shape)

    def other_side(self, before: Tensor, after: Tensor) -> Tensor | None:
        pattern = self.activation_pattern(before, after)
        flats = [self.sign * flatten_units(end) for end in (before, after)]
        maxima = [window_maxima(flat, self.table)[0] for flat in flats]
        maxima = [best.clamp(min=0) if self.floor else best for best in maxima]
        slacks = [TIE_TOLERANCE * best.abs() for best in maxima]
        tied_count, last, largest = torch.zeros_like(pattern), torch.zeros_like(pattern), torch.full_like(pattern, -1)
        for first, columns in column_blocks(flats[0], self.table):
            near = [
                best[..., None] - flat[:, columns] <= slack[..., None]
                for flat, best, slack in zip(flats, maxima, slacks, strict=True)
            ]
            tied = near[0] & near[1]  # (pieces, windows, columns)
            tied_count += tied.sum(2)
            element, column = torch.where(tied, columns, -1).max(2)  # not the last column, which may repeat the first
            last, largest = torch.where(element > largest, first + column, last), torch.maximum(element, largest)
        at_floor = (maxima[0] <= slacks[0]) & (maxima[1] <= slacks[1]) if self.floor else None
        if at_floor is not None:
            tied_count += at_floor
            last = last.masked_fill(at_floor, self.table.shape[1])
        if at_floor is not None and self.floor_elements is not None:
            differs = self.floor_elements[:, 0] != self.floor_elements[:, 1]
            shares_floor = differs & (pattern == self.table.shape[1])
            tied_count, last = tied_count + 2 * shares_floor, last.masked_fill(shares_floor, self.table.shape[1] + 1)
        if not bool((tied_count > 1).any()):
            return None
        same = self._same_element(last, pattern)
        return torch.where((tied_count > 1) & ~same, last, pattern)

    def _same_element(self, first: Tensor, second: Tensor) -> Tensor:
        """Whether two columns of each window, (pieces, windows) each, hold the same element."""
        floors = torch.tensor([-1, -2], device=self.table.device).expand(len(self.table), -1)  # and on its other side
        with_floor = torch.cat([self.table, floors], 1)
        return with_floor.gather(1, first.T).T == with_floor.gather(1, second.T).T

    def _leaders(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The maximum of every window and the flat position of its leader, -1 for the floor; (points, windows) each."""
        values, position = self._highest_members(x)
        leaders = self._leaders_of(values, position)
        return (values.clamp(min=0) if self.floor else values), leaders

    def _highest_members(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`_leaders` among the elements of every window, without the floor."""
        if self.native is not None:
            return self.native(x)
        values, where = window_maxima(self.sign * flatten_units(x), self.table)
        return self.sign * values, self.table.gather(1, where.T).T

    def _leaders_of(self, highest: Tensor, position: Tensor) -> Tensor:
        """The flat positions of leaders, -1 for the floor, given those of `_highest_members`; (points, windows)."""
        return position.masked_fill(~(highest > 0), -1) if self.floor else position

    def count_ambiguous(self, ends: PieceEnds) -> Tensor:
        counts = torch.zeros_like(ends.widths, dtype=torch.int64)
        if not ends.bounds[0].numel():
            return counts
        largest = [bounds.amax(1, keepdim=True) for bounds in ends.bounds]
        small = torch.ones(1, 1, dtype=torch.bool, device=largest[0].device)
        for values, error in zip(ends.values, largest, strict=True):
            highest = self._highest_members(values)[0]
            small = small & ((highest if self.floor else highest.abs()) * AMBIGUITY_SHARE <= error)
            if self.floor:  # it leads by more than any error: no line is tied with it
                small &= highest >= -error
        piece, window = nonzero(small)
        step = max(1, max_window_elements(largest[0]) // (2 * self._size))
        for at in range(0, len(piece), step):
            check_deadline()
            some, rows = window[at : at + step], piece[at : at + step]
            tied, size, error = torch.ones(len(rows), self._size, dtype=torch.bool, device=rows.device), [], []
            for values, bounds in zip(ends.values, ends.bounds, strict=True):
                lines, elements = self._members(flatten_units(values), rows, some)
                bound = bounds[rows[:, None], elements.clamp(min=0)] * (elements >= 0)
                leading, leader = lines.max(1, keepdim=True)
                tied &= leading - lines <= bound + bound.gather(1, leader)
                size.append(leading.abs()[:, 0])
                error.append(bound)
            is_counted = ends.is_counted[rows[:, None], elements.clamp(min=0)] & (elements >= 0)  # pyright: ignore
            several = have_several(tied, elements) & (tied & is_counted).any(1)  # pyright: ignore
            hides = [(e * tied).amax(1) > AMBIGUITY_SHARE * s for e, s in zip(error, size, strict=True)]
            counts += torch.bincount(rows[several & hides[0] & hides[1]], minlength=len(counts))
        return counts

    def _find_ambiguous(self, flat: Tensor, highest: Tensor, leaders: Tensor, errors: ErrorBounds) -> Tensor | None:
        """Pieces (points - 1,) on which a window may be ambiguous; None if there are none.

        The others certainly have none, at whichever points of the line the values were computed. Where the leader of a
        window changes, others may lead in between.
        """
        if len(flat) < 2:
            return None
        highest, leaders = highest.view(len(flat), -1), leaders.view(len(flat), -1)
        limit = errors.threshold / AMBIGUITY_SHARE
        small = (highest if self.floor else highest.abs()) <= limit
        may_be = small[:-1] & small[1:]
        if self.floor:  # where it leads by far at one end, no line is tied with it all along
            is_below, is_far = highest < 0, highest < -2 * errors.threshold
            may_be &= ~(is_below[:-1] & is_below[1:] & (is_far[:-1] | is_far[1:]))
        (windows,) = may_be.any(0).nonzero(as_tuple=True)
        if len(windows):  # while one line leads, others are tied with it at both ends
            has_rivals = self._have_rivals(flat, leaders, 2 * errors.threshold, windows)
            may_be[:, windows] &= has_rivals[:-1] & has_rivals[1:]
        may_be |= leaders[:-1] != leaders[1:]
        piece, window = nonzero(may_be & errors.same_line[:, None])
        if not len(piece):
            return None
        counts = torch.zeros(len(flat) - 1, dtype=torch.int64, device=flat.device)
        step = max(1, max_window_elements(flat) // (2 * self._size))
        for at in range(0, len(piece), step):
            check_deadline()
            some = slice(at, at + step)
            before, elements = self._members(flat, piece[some], window[some])
            after, _ = self._members(flat, piece[some] + 1, window[some])
            tied = may_tie_for_lead(before, after, elements, errors.threshold, limit)
            counts.index_add_(0, piece[some], tied.to(torch.int64))
        return counts > 0 if bool(counts.any()) else None

    def _have_rivals(
        self, flat: Tensor, leaders: Tensor, distance: float, windows: Tensor | slice = slice(None)
    ) -> Tensor:
        """Whether lines other than the leader are within a distance of it, (points, windows), in some windows."""
        table, leaders = self.table[windows], leaders.view(len(flat), -1)[:, windows]
        return rival_leaders(self.sign * flat, table, leaders, distance, self.floor)

    def _trace_leaders(
        self,
        flat: Tensor,  # (points, elements)
        piece: Tensor,  # (k,)
        window: Tensor,  # (k,)
        errors: ErrorBounds,
    ) -> Iterator[Crossings]:
        """Trace the leading line of each window from the left end of its piece to the right end.

        Yields the crossings with the first challengers of all windows, then with the second, and so on.
        """
        start, elements = self._members(flat, piece, window)
        stop, _ = self._members(flat, piece + 1, window)
        is_huge = len(start) and errors.magnitude > SUBTRACTION_GUARD
        if is_huge and max(float(start.abs().max()), float(stop.abs().max())) > SUBTRACTION_GUARD:
            start, stop = start * HUGE_LINE_SCALE, stop * HUGE_LINE_SCALE
        tied_at_start, tied_at_stop = ties_with_leader((start, stop), (piece, piece + 1), elements, errors)
        active = ~(tied_at_start & tied_at_stop).any(1)
        steepness = torch.where(tied_at_start, stop - start, torch.full_like(start, -torch.inf))
        leader = steepness.argmax(1)
        yield make_crossings(piece[:0], window[:0], (start, stop), elements, leader[:0], leader[:0])
        while len(piece):
            check_deadline()
            leader_start, leader_stop = start.gather(1, leader[:, None]), stop.gather(1, leader[:, None])
            behind, ahead = (leader_start - start).clamp(min=0), stop - leader_stop
            meeting = torch.where(ahead > 0, behind / (behind + ahead), torch.full_like(start, torch.inf))
            first = meeting.amin(1, keepdim=True)
            challenger = torch.where(meeting == first, ahead, torch.full_like(ahead, -torch.inf)).argmax(1)
            active = active & torch.isfinite(first[:, 0])
            equal = find_equal_lines((start, stop), piece, elements, leader, challenger, active, errors)
            if len(equal) and not is_huge:  # rounding alone decides when such a line would overtake the leader
                start[equal, challenger[equal]] = stop[equal, challenger[equal]] = -torch.inf
                continue
            active = active & ~tied_at_stop.gather(1, leader[:, None])[:, 0]
            # indices, because a device synchronises once for each mask it indexes by
            rows = torch.nonzero(active)[:, 0]
            piece, window, elements = piece[rows], window[rows], elements[rows]
            start, stop, tied_at_stop = start[rows], stop[rows], tied_at_stop[rows]
            leader, challenger, active = leader[rows], challenger[rows], active[rows]
            yield make_crossings(piece, window, (start, stop), elements, leader, challenger)
            leader = challenger


def _leader_differs(snapped: SnappedInput, errors: ErrorBounds) -> Tensor:
    """(points - 1, windows) whether the leader differs between neighbouring points of the same line."""
    leaders = _leaders_in(snapped)
    return (leaders[:-1] != leaders[1:]) & errors.same_line[:, None]


def _leaders_in(snapped: SnappedInput) -> Tensor:
    """(points, windows) the leaders, see `SnappedInput`."""
    if snapped.leaders is None:
        raise TypeError("leaders are found by snap_to_knots")
    return snapped.leaders
