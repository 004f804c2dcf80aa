"""Order statistics: sort, topk, kthvalue and median, which break where a returned value changes its source."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .base import OVERFLOW_GUARD, Breaking, Crossings, ErrorBounds, SnappedInput
from .maximum import AMBIGUITY_SHARE, MAX_WINDOW_ELEMENTS


@dataclass(frozen=True, eq=False)
class Order(Breaking):
    """Chosen ranks (0 is the largest) of the elements of every window."""

    table: Tensor  # (windows, size) flat positions in the input
    ranks: Tensor  # (returned,)
    shape: tuple[int, ...]  # of the output, whose elements run over windows, then ranks
    name: str = "sort"

    @property
    def title(self) -> str:
        return self.name

    def evaluate(self, *xs: Tensor) -> Tensor:
        ordered = self._window_values(xs[0]).sort(dim=-1, descending=True, stable=True).values
        return ordered[..., self.ranks].reshape(len(xs[0]), *self.shape)

    def jvp(self, x: Tensor, errors: Tensor) -> Tensor:
        which = self._window_values(x).sort(dim=-1, descending=True, stable=True).indices[..., self.ranks]
        opened = self._window_values(errors.reshape(-1, *errors.shape[2:])).view(*errors.shape[:2], *self.table.shape)
        return opened.gather(-1, which.expand(len(errors), *which.shape)).reshape(*errors.shape[:2], *self.shape)

    def units(self, shape: tuple[int, ...]) -> int:
        return len(self.table)

    def snap_to_knots(self, x: Tensor, noise: ErrorBounds) -> SnappedInput:
        return SnappedInput(x.reshape(len(x), -1), ambiguous=self._count_ambiguous(x, noise))

    def crossings(self, settled: SnappedInput, noise: ErrorBounds) -> Crossings:
        x = settled.x
        first, second = torch.triu_indices(self.table.shape[1], self.table.shape[1], 1, device=x.device)
        step = max(1, MAX_WINDOW_ELEMENTS // max(len(first) * len(self.table), 1))
        empty = torch.zeros(0, dtype=torch.int64, device=x.device)
        none = torch.zeros(0, dtype=x.dtype, device=x.device)
        parts = [Crossings(empty, empty, none, none, empty, empty, none)]
        for at in range(0, len(x) - 1, step):
            parts.append(self._rank_swaps(x, at, min(at + step, len(x) - 1), first, second, noise))
        return Crossings.join(parts)

    def activation_pattern(self, before: Tensor, after: Tensor) -> Tensor:
        middle = self._window_values(before / 2 + after / 2)
        return middle.sort(dim=-1, descending=True, stable=True).indices[..., self.ranks]

    def apply_affine(self, pattern: Tensor, x: Tensor) -> Tensor:
        return self._window_values(x).gather(-1, pattern).reshape(len(x), *self.shape)

    def _window_values(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), -1)[:, self.table]  # (points, windows, size)

    def _count_ambiguous(self, x: Tensor, noise: ErrorBounds) -> Tensor | None:
        """Windows per piece with two lines that cannot be told apart at either end; looked for where noise is large."""
        if noise.threshold <= AMBIGUITY_SHARE * noise.magnitude or len(x) < 2:
            return None
        first, second = torch.triu_indices(self.table.shape[1], self.table.shape[1], 1, device=x.device)
        opened = self._window_values(x)
        gap = (opened[..., first] - opened[..., second]).abs()
        bound = noise.bound(torch.arange(len(x), device=x.device))[:, self.table]
        near = gap <= bound[..., first] + bound[..., second]
        both = near[:-1] & near[1:] & ((gap[:-1] > 0) | (gap[1:] > 0))
        return both.any(2).sum(1) * noise.same_line

    def _rank_swaps(self, x: Tensor, at: int, to: int, first: Tensor, second: Tensor, noise: ErrorBounds) -> Crossings:
        """Pairs that change order on the pieces ``at`` to ``to``, where a returned rank is concerned."""
        rows = torch.arange(at, to + 1, device=x.device)
        opened = x[at : to + 1][:, self.table]
        if noise.magnitude > OVERFLOW_GUARD:
            opened = opened * 0.25  # differences of huge values would overflow
        gap = opened[..., first] - opened[..., second]  # (points, windows, pairs)
        near = (gap != 0) & (gap.abs() <= 2 * noise.threshold)
        if bool(near.any()):
            look = near.flatten(1).any(1)
            bound = noise.bound(rows[look])[:, self.table]
            sure = gap[look].abs() > bound[..., first] + bound[..., second]
            gap[look] = torch.where(sure, gap[look], torch.zeros_like(gap[look]))
        crossed = ((gap[:-1] > 0) & (gap[1:] < 0)) | ((gap[:-1] < 0) & (gap[1:] > 0))
        crossed &= noise.same_line[at:to, None, None]
        piece, window, pair = torch.nonzero(crossed, as_tuple=True)
        before, after = gap[piece, window, pair], gap[piece + 1, window, pair]
        start, stop = opened[piece, window], opened[piece + 1, window]
        kept = torch.nonzero(self._changes_result(start, stop, before, after, first[pair]))[:, 0]
        piece, window, pair, before, after = (v[kept] for v in (piece, window, pair, before, after))
        places = self.table[window]
        element = places.gather(1, first[pair][:, None])[:, 0]
        partner = places.gather(1, second[pair][:, None])[:, 0]
        return Crossings(piece + at, window, before, after, element, partner, torch.zeros_like(before))

    def _changes_result(self, start: Tensor, stop: Tensor, before: Tensor, after: Tensor, who: Tensor) -> Tensor:
        """Whether the line at a returned rank changes when the tied lines reverse their order."""
        size = start.shape[1]
        if len(self.ranks) == size or not len(start):
            return torch.ones(len(start), dtype=torch.bool, device=start.device)
        part = (before.abs() / (before.abs() + after.abs()))[:, None]
        values = torch.lerp(start, stop, part)
        common = values.gather(1, who[:, None])
        slack = 32 * torch.finfo(start.dtype).eps * torch.maximum(start.abs(), stop.abs()).amax(1, keepdim=True)
        tied = (values - common).abs() <= slack
        over = ((values > common) & ~tied).sum(1, keepdim=True)
        slope = torch.where(tied, stop - start, torch.full_like(start, torch.inf)).sort(1).values
        count = tied.sum(1, keepdim=True)
        place = self.ranks[None] - over  # (k, returned) place among the tied
        inside = (place >= 0) & (place < count)
        place = place * inside
        mirrored = (count - 1 - place) * inside
        return (inside & (slope.gather(1, place) != slope.gather(1, mirrored))).any(1)
