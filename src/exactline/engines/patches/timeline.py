"""What happens at every pixel of a map along a stretch of a line: the patches that reach it, in order of alpha."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from .patch import BreakSource, Groups, MapShape

BLOCK_NUMBERS = {"cpu": 1 << 18, "cuda": 1 << 27}  # numbers looked at together: on a CPU they stay in its cache

MAX_FLAT_SUM, SUM_STRIDE = 2048, 256  # sums of more numbers are made in stretches of so many

# alphas, elements, partners or -1, a knot: the differences at a closer look, zero where there is none, and their error
# bounds; may raise Doubt
RefineDifferences = Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]


class BreakAlphas(dict[int, Tensor]):
    """By node: the alphas of its breaks."""

    def of(self, births: tuple[BreakSource, ...]) -> Tensor:
        """The alphas of all breaks of a group."""
        some = [self[birth.node] for birth in births]
        return some[0] if len(some) == 1 else torch.cat(some)


class ValueOverflow(Exception):
    """A value overflows or is not a number."""


class NeedsDenseFallback(Exception):
    """Something near this alpha cannot be told without points on both sides of it."""

    def __init__(self, alpha: float, everywhere: bool = False) -> None:
        super().__init__(f"doubt near {alpha!r}")
        self.alpha, self.everywhere = alpha, everywhere  # or it is about the stretch as a whole


@dataclass(frozen=True, eq=False)
class NodeInput:
    """The input of a breaking node along a stretch: values at both ends, slope at the start, and what changes it."""

    map_shape: MapShape
    start: float
    stop: float
    left: Tensor  # (pixels, channels) values where the stretch starts
    right: Tensor  # (pixels, channels) and where it stops
    slope: Tensor  # (pixels, channels) just after the start
    groups: Groups
    times: BreakAlphas
    threshold: float  # values further than this from a knot are clear
    thresholds: Tensor  # (pixels, channels) the same for each of them
    min_difference: Tensor  # (pixels, channels) differences smaller than this are none
    max_drift: float  # how far sums may be from the values themselves where the stretch stops
    refine: RefineDifferences
    records_patterns: bool  # whether the branches are wanted afterwards: then units that stay on a knot are in doubt
    end_bounds: tuple[
        Tensor | None, Tensor | None
    ]  # error bounds (pixels, channels) where an end is the line's own end


@dataclass(frozen=True, eq=False)
class NewPatchBreaks:
    """New breaks, in no order."""

    alpha: Tensor  # (n,)
    pixel: Tensor  # (n,) of the output
    channel: Tensor  # (n,)
    jump: Tensor  # (n,) by how much the output's slope changes
    slope: Tensor  # (n,) how fast the crossing difference changes with alpha
    element: Tensor  # (n,) flat place in the input
    partner: Tensor  # (n,) the element it meets, or -1
    slope_change: Tensor  # (n,) by how much the unit's own slope changes, where it has one
    has_partners: bool = False  # whether some have partners

    @staticmethod
    def join(parts: list[NewPatchBreaks]) -> NewPatchBreaks:
        """Several sets of breaks as one."""
        names = ("alpha", "pixel", "channel", "jump", "slope", "element", "partner", "slope_change")
        if len(parts) == 1:
            return parts[0]
        alpha, pixel, channel, jump, rate, element, partner, turn = (
            torch.cat([getattr(p, n) for p in parts]) for n in names
        )
        paired = any(p.has_partners for p in parts)
        return NewPatchBreaks(alpha, pixel, channel, jump, rate, element, partner, turn, paired)

    @staticmethod
    def none(like: Tensor) -> NewPatchBreaks:
        """No breaks at all."""
        reals, whole = like.new_zeros(0, dtype=torch.float64), like.new_zeros(0, dtype=torch.int64)
        return NewPatchBreaks(reals, whole, whole, reals, reals, whole, whole, reals)


@dataclass(frozen=True, eq=False)
class ActivationOutput:
    """What a breaking node makes of a stage."""

    groups: Groups  # of the breaks that there were
    slope: Tensor  # (pixels, channels) of the output, just after the start
    new_breaks: NewPatchBreaks
    pattern: Tensor | None = None  # (pixels, channels) the slope of every unit just after the start, where it has one


class ActivationPatchRule(Protocol):
    """What a breaking operator does to patches."""

    @property
    def map_shape(self) -> MapShape:
        """The map of the operator's output."""
        ...

    def output_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """How large a patch becomes."""
        ...

    def apply(self, stage: NodeInput) -> ActivationOutput:
        """Follow every unit along a stretch."""
        ...


class HasEnds(Protocol):
    """Anything that starts and stops."""

    @property
    def start(self) -> float: ...
    @property
    def stop(self) -> float: ...


class Timeline:
    """Entries (a break reaches a pixel) sorted by pixel, then by alpha."""

    def __init__(self, parts: list[tuple[Tensor, Tensor]], pixels: int, stage: HasEnds, device: torch.device) -> None:
        """Parts are the pixels (n, places) that n breaks reach, one past the last where it counts not, and alphas."""
        self.stage, self.device = stage, device
        none = torch.zeros(0, dtype=torch.int64, device=device)
        reached, alphas = [where for where, _ in parts], [alphas for _, alphas in parts]
        moments = _concatenate(alphas, none.to(torch.float64))
        total = len(moments)
        rank = torch.empty(total, dtype=torch.int64, device=device)
        rank[moments.sort(stable=True).indices] = torch.arange(total, device=device)
        ranks = rank.split([len(a) for a in alphas]) if parts else ()
        found = [torch.add(r[:, None], where, alpha=total).view(-1) for r, where in zip(ranks, reached, strict=True)]
        keys, order = _concatenate(found, none).sort()  # distinct, but for what counts not
        self.pixel = _concatenate([where.reshape(-1) for where in reached], none)
        each = [a[:, None].expand_as(where).reshape(-1) for a, where in zip(alphas, reached, strict=True)]
        self.alpha = torch.cat([*each, moments.new_full((1,), stage.stop)])  # and one for padding
        self.order = torch.cat([order, order.new_full((1,), len(order))])
        edges = torch.searchsorted(keys, torch.arange(0, pixels + 1, device=device) * total)
        self.starts, self.counts = edges[:-1], edges[1:] - edges[:-1]

    def blocks(self, width: int) -> Iterator[Block]:
        """Pixels with about as many entries each, ``width`` numbers to an entry, in blocks of bounded size."""
        counts, pixels = torch.sort(self.counts, descending=True)
        most = counts.tolist()
        limit = BLOCK_NUMBERS.get(self.device.type, 1 << 18)
        at = 0
        while at < len(most):
            deep = most[at]
            stop = at + max(1, limit // ((deep + 2) * width))
            if deep > 8:  # far fewer entries go to another block: padding is work as well
                while stop > at + 1 and stop <= len(most) and most[min(stop, len(most)) - 1] < deep // 2:
                    stop = at + max(1, (stop - at) // 2)
            stop = min(stop, len(most))
            yield self._block(pixels[at:stop], counts[at:stop], deep)
            at = stop

    def _block(self, pixels: Tensor, counts: Tensor, deep: int) -> Block:
        steps = torch.arange(deep, device=self.device)
        here = steps < counts[:, None]
        place = (self.starts[pixels, None] + steps).clamp_(max=len(self.order) - 1)
        entry = torch.where(here, self.order[place], len(self.order) - 1)
        times = self.alpha.new_full((len(pixels), deep + 2), self.stage.stop)
        times[:, 0] = self.stage.start
        times[:, 1:-1] = self.alpha[entry]
        return Block(pixels, entry, here, times, counts)


def _concatenate(parts: list[Tensor], none: Tensor) -> Tensor:
    return (parts[0] if len(parts) == 1 else torch.cat(parts)) if parts else none


@dataclass(frozen=True, eq=False)
class Block:
    """Some pixels and the entries of each; where a pixel has fewer than others, the rest is padding."""

    pixels: Tensor  # (p,)
    entry: Tensor  # (p, deep) or the number of all entries: padding
    here: Tensor  # (p, deep) whether it is an entry, not padding
    times: Tensor  # (p, deep + 2) the start, the entries, the stop
    counts: Tensor  # (p,) entries of each

    @property
    def deep(self) -> int:
        return self.entry.shape[1]

    @cached_property
    def widths(self) -> Tensor:
        return self.times[:, 1:] - self.times[:, :-1]


def cumulative_sum(x: Tensor) -> Tensor:
    """Sums along the second dim, in place where it is short; else in two levels, for many cores and few roundings."""
    deep = x.shape[1]
    if deep <= MAX_FLAT_SUM:
        return torch.cumsum(x, 1, out=x)
    levels = -(-deep // SUM_STRIDE)
    wide = x.new_zeros(len(x), levels * SUM_STRIDE, *x.shape[2:])
    wide[:, :deep] = x
    parts = wide.view(len(x), levels, SUM_STRIDE, *x.shape[2:])
    torch.cumsum(parts, 2, out=parts)
    before = cumulative_sum(parts[:, :-1, -1].contiguous())
    parts[:, 1:] += before[:, :, None]
    return wide[:, :deep]


def values_at_entries(block: Block, left: Tensor, slopes: Tensor) -> Tensor:
    """Values (p, deep + 2, ...) where pieces meet, from those at the start and the slopes (p, deep + 1, ...)."""
    out = slopes.new_empty(slopes.shape[0], slopes.shape[1] + 1, *slopes.shape[2:])
    out[:, 0] = left
    widths = block.widths.view(*block.widths.shape, *[1] * (slopes.dim() - 2))
    torch.mul(slopes, widths, out=out[:, 1:])
    return cumulative_sum(out)


def drift(stage: NodeInput, block: Block, values: Tensor, right: Tensor) -> Tensor:
    """The most that sums have lost on the way; patches in single precision get it back in proportion, in place."""
    off = right - values[:, -1]
    if stage.max_drift > stage.threshold:
        part = (block.times - stage.start) / (stage.stop - stage.start)
        values += part.view(*part.shape, *[1] * (values.dim() - 2)) * off[:, None]
    return off.abs().amax() if off.numel() else off.new_zeros(())


def check_drift(stage: NodeInput, worst: float) -> None:
    """Refuse what was lost where that is too much."""
    if worst <= stage.max_drift:
        return
    if not bool(torch.isfinite(stage.left.sum() + stage.right.sum() + stage.slope.sum())):
        raise ValueOverflow
    raise NeedsDenseFallback(0.5 * (stage.start + stage.stop), everywhere=True)


def smallest(numbers: Tensor) -> Tensor:
    """The smallest of some numbers."""
    return numbers.amin() if numbers.numel() else numbers.new_full((), torch.inf)


def to_host(*numbers: Tensor) -> list[float]:
    """Numbers of a device, asked for at once."""
    return torch.stack([n.to(torch.float64) for n in numbers]).tolist()


def nonzero(mask: Tensor, count: int | None) -> tuple[Tensor, ...]:
    """Where a mask holds, (count,) for each of its dims; a device is not asked for the count where that is known."""
    if count is None or not mask.is_cuda:
        return mask.nonzero(as_tuple=True)
    return torch.nonzero_static(mask, size=count).unbind(1)


def zero_crossing(left: Tensor, right: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """Where differences that go from ``before`` to ``after`` on pieces are zero, measured from the nearer ends."""
    before, after, width = before.abs(), after.abs(), right - left
    total = before + after
    return torch.where(before <= after, left + width * (before / total), right - width * (after / total))
