"""Order statistics: sort, topk, kthvalue and median. They break where a returned value changes its source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..budget import check_deadline
from ..tolerances import AMBIGUITY_SHARE, HUGE_VALUE_SCALE, OVERFLOW_GUARD, RANK_TIE_ROUNDINGS
from .base import Breaking, Crossings, ErrorBounds, PieceEnds, SnappedInput, flatten_units
from .window_lines import max_window_elements


@dataclass(frozen=True, eq=False)
class Order(Breaking):
    """The elements of some ranks in every window; rank 0 is the largest element."""

    table: Tensor  # (windows, size) flat positions in the input
    ranks: Tensor  # (returned,)
    shape: tuple[int, ...]  # shape of the output; its elements run over windows, then ranks
    name: str = "sort"

    @property
    def title(self) -> str:
        return self.name

    def evaluate(self, *xs: Tensor) -> Tensor:
        ordered = self._window_values(xs[0]).sort(dim=-1, descending=True, stable=True).values
        return ordered[..., self.ranks].reshape(len(xs[0]), *self.shape)

    def propagate_errors(self, low: Tensor, high: Tensor, errors: Tensor) -> Tensor:
        candidates = errors.flatten(2)[:, :, self.table]  # (k, points, windows, size)
        largest = candidates.gather(3, candidates.abs().argmax(3, keepdim=True))
        return largest.expand(*largest.shape[:3], len(self.ranks)).reshape(*errors.shape[:2], *self.shape)

    def units(self, shape: tuple[int, ...]) -> int:
        return len(self.table)

    def snap_to_knots(self, x: Tensor, errors: ErrorBounds) -> SnappedInput:
        return SnappedInput(flatten_units(x), ambiguous=self._find_ambiguous(x, errors))

    def crossings(self, snapped: SnappedInput, errors: ErrorBounds) -> Crossings:
        x = snapped.x
        no_indices = torch.zeros(0, dtype=torch.int64, device=x.device)
        no_values = torch.zeros(0, dtype=x.dtype, device=x.device)
        found = [Crossings(no_indices, no_indices, no_values, no_values, no_indices, no_indices, no_values)]
        step = max(1, max_window_elements(x) // max(self.table.numel(), 1))
        for first in range(0, len(x) - 1, step):
            for lines in self._candidates(x, first, min(first + step, len(x) - 1), errors):
                for pairs in _pair_blocks(lines.columns.shape[1], len(lines.piece), x):
                    check_deadline()
                    found.append(self._rank_swaps(lines, pairs, errors))
        return Crossings.join(found)

    def activation_pattern(self, before: Tensor, after: Tensor) -> Tensor:
        middle = self._window_values(before / 2 + after / 2)
        return middle.sort(dim=-1, descending=True, stable=True).indices[..., self.ranks]

    def is_flat(self, pattern: Tensor) -> Tensor:
        return torch.zeros(pattern.shape[:2], dtype=torch.bool, device=pattern.device)

    def apply_affine(self, pattern: Tensor, x: Tensor) -> Tensor:
        return self._window_values(x).gather(-1, pattern).reshape(len(x), *self.shape)

    def _window_values(self, x: Tensor) -> Tensor:
        return flatten_units(x)[:, self.table]  # (points, windows, size)

    def count_ambiguous(self, ends: PieceEnds) -> Tensor:
        size, counts = self.table.shape[1], torch.zeros_like(ends.widths, dtype=torch.int64)
        values = torch.stack([self._window_values(v) for v in ends.values])  # (2, pieces, windows, size)
        bounds = torch.stack([self._window_values(b) for b in ends.bounds])
        is_counted = self._window_values(ends.is_counted)
        for first in range(len(self.table)):
            is_ambiguous = torch.zeros_like(ends.widths, dtype=torch.bool)
            value, bound, elements = values[:, :, first], bounds[:, :, first], self.table[first]
            hides = bound > AMBIGUITY_SHARE * value.abs()
            for one, two in _pair_blocks(size, 2 * len(counts), values):
                check_deadline()
                gap = (value[..., one] - value[..., two]).abs()
                near = (gap <= bound[..., one] + bound[..., two]) & (hides[..., one] | hides[..., two])
                rounded = is_counted[:, first, one] | is_counted[:, first, two]
                is_ambiguous |= (near.all(0) & rounded & (elements[one] != elements[two])).any(1)
            counts += is_ambiguous
        return counts

    def _find_ambiguous(self, x: Tensor, errors: ErrorBounds) -> Tensor | None:
        """Pieces (points - 1,) on which a window may be ambiguous; None if there are none."""
        if len(x) < 2:
            return None
        is_near = self._has_near_lines(flatten_units(x), errors)
        found = (is_near[:-1] & is_near[1:]).any(1) & errors.same_line
        return found if bool(found.any()) else None

    def _has_near_lines(self, x: Tensor, errors: ErrorBounds) -> Tensor:
        """Windows with two lines that are near each other and so small that errors may hide them, (points, windows)."""
        found = [torch.zeros(0, len(self.table), dtype=torch.bool, device=x.device)]
        for part in x.split(max(1, max_window_elements(x) // max(self.table.numel(), 1))):
            check_deadline()
            values = self._window_values(part).sort(2).values
            is_small = values.abs() <= errors.threshold / AMBIGUITY_SHARE
            near = values.diff(dim=2) <= 2 * errors.threshold
            found.append((near & (is_small[..., 1:] | is_small[..., :-1])).any(2))
        return torch.cat(found)

    def _candidates(self, x: Tensor, first: int, last: int, errors: ErrorBounds) -> Iterator[_WindowLines]:
        """Lines that may have a returned rank somewhere on the pieces ``first`` to ``last``; windows with two or more.

        A returned value is at least as large as that many lines are everywhere, and at most as large as that many are
        anywhere; lines that stay below or above it are left out.
        """
        values = self._window_values(x[first : last + 1])
        if errors.magnitude > OVERFLOW_GUARD:
            values = values * HUGE_VALUE_SCALE
        low, high = torch.minimum(values[:-1], values[1:]), torch.maximum(values[:-1], values[1:])
        slack = 2 * _tie_slack(torch.maximum(-low, high))
        least = low.topk(int(self.ranks.max()) + 1, 2).values[..., -1:] - slack
        most = high.topk(int(self.ranks.min()) + 1, 2).values[..., -1:] + slack
        may_return = (high >= least) & (low <= most) & errors.same_line[first:last, None, None]
        count = may_return.sum(2)
        width, size = 2, self.table.shape[1]
        while width < 2 * size:  # windows with similarly many lines together
            cells = torch.nonzero((count > width // 2) & (count <= width))
            for piece, window in (part.T for part in cells.split(max(1, max_window_elements(x) // (2 * size)))):
                order = may_return[piece, window].to(torch.int8).sort(dim=1, descending=True, stable=True)
                yield _WindowLines(
                    piece + first,
                    window,
                    order.indices[:, :width],
                    order.values[:, :width] > 0,
                    values[piece, window],
                    values[piece + 1, window],
                )
            width *= 2

    def _rank_swaps(self, lines: _WindowLines, pairs: Tensor, errors: ErrorBounds) -> Crossings:
        """Pairs of lines, (2, pairs) of their columns, that swap ranks on a piece and so change a returned value."""
        elements = self.table[lines.window].gather(1, lines.columns)
        one, two = pairs
        before, after = (
            _clear_gaps(values.gather(1, lines.columns), lines.piece + side, elements, pairs, errors)
            for side, values in enumerate((lines.start, lines.stop))
        )
        crossed = ((before > 0) & (after < 0)) | ((before < 0) & (after > 0))
        cell, pair = torch.nonzero(crossed & lines.is_candidate[:, one] & lines.is_candidate[:, two], as_tuple=True)
        before, after = before[cell, pair], after[cell, pair]
        column = lines.columns[cell, one[pair]]
        step = max(1, max_window_elements(before) // lines.start.shape[1])
        changes = [
            self._changes_result(
                lines.start[cell[some]], lines.stop[cell[some]], (before[some], after[some]), column[some]
            )
            for some in torch.arange(len(cell), device=cell.device).split(step)
        ]
        rows = torch.nonzero(torch.cat(changes))[:, 0]
        cell, pair, before, after = (v[rows] for v in (cell, pair, before, after))
        element, partner = elements[cell, one[pair]], elements[cell, two[pair]]
        return Crossings(
            lines.piece[cell], lines.window[cell], before, after, element, partner, torch.zeros_like(before)
        )

    def _changes_result(
        self,
        start: Tensor,  # (k, size) values of the window's lines at the left end
        stop: Tensor,  # (k, size) and at the right end
        gaps: tuple[Tensor, Tensor],  # (k,) difference of the pair that crosses, at both ends
        column: Tensor,  # (k,) one line of the pair
    ) -> Tensor:
        """Whether a swap changes a returned value, (k,): all lines tied at the crossing reverse their order there."""
        size = start.shape[1]
        if len(self.ranks) == size or not len(start):
            return torch.ones(len(start), dtype=torch.bool, device=start.device)
        before, after = gaps
        part = (before.abs() / (before.abs() + after.abs()))[:, None]
        values = torch.lerp(start, stop, part)
        common = values.gather(1, column[:, None])
        slack = _tie_slack(torch.maximum(start.abs(), stop.abs()))
        tied = (values - common).abs() <= slack
        larger = ((values > common) & ~tied).sum(1, keepdim=True)
        slope = torch.where(tied, stop - start, torch.full_like(start, torch.inf)).sort(1).values
        count = tied.sum(1, keepdim=True)
        rank = self.ranks[None] - larger  # (k, returned) rank among the tied lines
        is_tied = (rank >= 0) & (rank < count)
        rank = rank * is_tied
        mirrored = (count - 1 - rank) * is_tied
        return (is_tied & (slope.gather(1, rank) != slope.gather(1, mirrored))).any(1)


@dataclass(frozen=True)
class _WindowLines:
    """The lines of one window on one piece, for several such cells."""

    piece: Tensor  # (cells,)
    window: Tensor  # (cells,)
    columns: Tensor  # (cells, width) positions in the window of those that may be returned, and others
    is_candidate: Tensor  # (cells, width) which of them may be returned
    start: Tensor  # (cells, size) values of all lines at the left end
    stop: Tensor  # (cells, size) and at the right end


def _pair_blocks(count: int, cells: int, like: Tensor) -> Iterator[Tensor]:
    """All pairs of ``count`` columns, (2, pairs) at a time, as many as memory allows for so many cells."""
    step = max(1, max_window_elements(like) // max(count * cells, 1))
    for first in range(0, count - 1, step):
        yield first + torch.triu_indices(min(step, count - first), count - first, 1, device=like.device)


def _clear_gaps(
    values: Tensor,  # (cells, width)
    point: Tensor,  # (cells,)
    elements: Tensor,  # (cells, width) positions in the input
    pairs: Tensor,  # (2, pairs) of columns
    errors: ErrorBounds,
) -> Tensor:
    """Differences of pairs, (cells, pairs), zero where they are within their errors."""
    one, two = pairs
    gap = values[:, one] - values[:, two]
    unclear = torch.nonzero(((gap != 0) & (gap.abs() <= 2 * errors.threshold)).any(1))[:, 0]
    if len(unclear):
        rows, place = point[unclear].unique(return_inverse=True)
        bound = errors.bound(rows)[place[:, None], elements[unclear]]
        is_apart = gap[unclear].abs() > bound[:, one] + bound[:, two]
        gap[unclear] = torch.where(is_apart, gap[unclear], torch.zeros_like(is_apart, dtype=gap.dtype))
    return gap


def _tie_slack(sizes: Tensor) -> Tensor:
    """The distance below which lines of these sizes, (..., lines), are tied at a crossing; (..., 1)."""
    return RANK_TIE_ROUNDINGS * torch.finfo(sizes.dtype).eps * sizes.amax(-1, keepdim=True)
