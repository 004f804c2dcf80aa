"""Order statistics: sort, topk, kthvalue and median. They break where a returned value changes its source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ..budget import check_deadline
from ..tolerances import AMBIGUITY_SHARE, HUGE_VALUE_SCALE, OVERFLOW_GUARD, RANK_TIE_ROUNDINGS
from .base import Breaking, Crossings, ErrorBounds, SnappedInput, flatten_units
from .maximum import max_window_elements


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
        return SnappedInput(flatten_units(x), ambiguous=self._count_ambiguous(x, errors))

    def crossings(self, snapped: SnappedInput, errors: ErrorBounds) -> Crossings:
        x = snapped.x
        no_indices = torch.zeros(0, dtype=torch.int64, device=x.device)
        no_values = torch.zeros(0, dtype=x.dtype, device=x.device)
        parts = [Crossings(no_indices, no_indices, no_values, no_values, no_indices, no_indices, no_values)]
        for pairs in self._pair_blocks(x):
            step = max(1, max_window_elements(x) // max(pairs.shape[1] * len(self.table), 1))
            for first in range(0, len(x) - 1, step):
                check_deadline()
                parts.append(self._rank_swaps(x, first, min(first + step, len(x) - 1), pairs, errors))
        return Crossings.join(parts)

    def activation_pattern(self, before: Tensor, after: Tensor) -> Tensor:
        middle = self._window_values(before / 2 + after / 2)
        return middle.sort(dim=-1, descending=True, stable=True).indices[..., self.ranks]

    def is_flat(self, pattern: Tensor) -> Tensor:
        return torch.zeros(pattern.shape[:2], dtype=torch.bool, device=pattern.device)

    def apply_affine(self, pattern: Tensor, x: Tensor) -> Tensor:
        return self._window_values(x).gather(-1, pattern).reshape(len(x), *self.shape)

    def _pair_blocks(self, like: Tensor) -> Iterator[Tensor]:
        """All pairs of columns of a window, (2, pairs) at a time."""
        size = self.table.shape[1]
        step = max(1, max_window_elements(like) // max(size * len(self.table), 1))
        for first in range(0, size - 1, step):
            yield first + torch.triu_indices(min(step, size - first), size - first, 1, device=like.device)

    def _window_values(self, x: Tensor) -> Tensor:
        return flatten_units(x)[:, self.table]  # (points, windows, size)

    def _count_ambiguous(self, x: Tensor, errors: ErrorBounds) -> Tensor | None:
        """Windows per piece, (points - 1,), with two lines that are equal up to errors at both ends.

        Only where errors are so large a share of their values that a whole line can hide in them. None where they are
        so nowhere.
        """
        if len(x) < 2:
            return None
        values = self._window_values(x)
        small = (values.abs() <= errors.threshold / AMBIGUITY_SHARE).sum(2) > 1
        pieces = torch.nonzero((small[:-1] & small[1:]).any(1) & errors.same_line)[:, 0]
        if not len(pieces):
            return None
        is_ambiguous = torch.zeros(len(x) - 1, len(self.table), dtype=torch.bool, device=x.device)
        for one, two in self._pair_blocks(x):
            step = max(1, max_window_elements(x) // max(len(one) * len(self.table), 1))
            for part in pieces.split(step):
                check_deadline()
                ends = torch.stack([part, part + 1])
                pair = values[ends]  # (2, pieces, windows, size)
                bound = errors.bound(ends.flatten())[:, self.table].view_as(pair)
                gap = (pair[..., one] - pair[..., two]).abs()
                near = (gap <= bound[..., one] + bound[..., two]).all(0) & (gap > 0).any(0)
                hides = (bound[..., one] > AMBIGUITY_SHARE * pair[..., one].abs()).all(0)
                is_ambiguous[part] |= (near & hides).any(2)
        return is_ambiguous.sum(1)

    def _rank_swaps(
        self,
        x: Tensor,  # (points, elements)
        first: int,
        last: int,
        pairs: Tensor,  # (2, pairs)
        errors: ErrorBounds,
    ) -> Crossings:
        """Pairs of lines that swap ranks between the points ``first`` and ``last`` and so change a returned value."""
        rows = torch.arange(first, last + 1, device=x.device)
        values = x[first : last + 1][:, self.table]
        if errors.magnitude > OVERFLOW_GUARD:
            values = values * HUGE_VALUE_SCALE
        one, two = pairs
        gap = values[..., one] - values[..., two]  # (points, windows, pairs)
        near = (gap != 0) & (gap.abs() <= 2 * errors.threshold)
        if bool(near.any()):
            unclear = near.flatten(1).any(1)
            bound = errors.bound(rows[unclear])[:, self.table]
            apart = gap[unclear].abs() > bound[..., one] + bound[..., two]
            gap[unclear] = torch.where(apart, gap[unclear], torch.zeros_like(gap[unclear]))
        crossed = ((gap[:-1] > 0) & (gap[1:] < 0)) | ((gap[:-1] < 0) & (gap[1:] > 0))
        crossed &= errors.same_line[first:last, None, None]
        piece, window, pair = torch.nonzero(crossed, as_tuple=True)
        before, after = gap[piece, window, pair], gap[piece + 1, window, pair]
        start, stop = values[piece, window], values[piece + 1, window]
        rows = torch.nonzero(self._changes_result(start, stop, (before, after), one[pair]))[:, 0]
        piece, window, pair, before, after = (v[rows] for v in (piece, window, pair, before, after))
        elements = self.table[window]
        element = elements.gather(1, one[pair][:, None])[:, 0]
        partner = elements.gather(1, two[pair][:, None])[:, 0]
        return Crossings(piece + first, window, before, after, element, partner, torch.zeros_like(before))

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
        slack = (
            RANK_TIE_ROUNDINGS
            * torch.finfo(start.dtype).eps
            * torch.maximum(start.abs(), stop.abs()).amax(1, keepdim=True)
        )
        tied = (values - common).abs() <= slack
        larger = ((values > common) & ~tied).sum(1, keepdim=True)
        slope = torch.where(tied, stop - start, torch.full_like(start, torch.inf)).sort(1).values
        count = tied.sum(1, keepdim=True)
        rank = self.ranks[None] - larger  # (k, returned) rank among the tied lines
        is_tied = (rank >= 0) & (rank < count)
        rank = rank * is_tied
        mirrored = (count - 1 - rank) * is_tied
        return (is_tied & (slope.gather(1, rank) != slope.gather(1, mirrored))).any(1)
