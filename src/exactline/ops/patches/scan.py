"""What happens at every pixel of a map along a stretch of a line: the patches that reach it, in order of alpha."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from .patch import Grid, Groups

BLOCK = {"cpu": 1 << 18, "cuda": 1 << 27}  # numbers looked at together: on a CPU they stay in its cache

LONG, STRIDE = 2048, 256  # sums of more numbers are made in stretches of so many

# alphas, elements, partners or -1, a knot: the differences at a closer look, zero where there is none, and their error
# bounds; may raise Doubt
Judge = Callable[[Tensor, Tensor, Tensor, float], tuple[Tensor, Tensor]]


class Doubt(Exception):
    """Something near this alpha cannot be told without points on both sides of it."""

    def __init__(self, alpha: float, everywhere: bool = False) -> None:
        super().__init__(f"doubt near {alpha!r}")
        self.alpha, self.everywhere = alpha, everywhere  # or it is about the stretch as a whole


@dataclass(frozen=True, eq=False)
class Stage:
    """The input of a breaking node along a stretch: values at both ends, slope at the start, and what changes it."""

    grid: Grid
    start: float
    stop: float
    left: Tensor  # (pixels, channels) values where the stretch starts
    right: Tensor  # (pixels, channels) and where it stops
    slope: Tensor  # (pixels, channels) just after the start
    groups: Groups
    times: dict[int, Tensor]  # by node: alphas of its breaks
    clear: float  # values further than this from a knot are clear
    usual: Tensor  # (pixels, channels) the same for each of them
    least: Tensor  # (pixels, channels) differences smaller than this are none
    drift: float  # how far sums may be from the values themselves where the stretch stops
    judge: Judge
    traced: bool  # whether the branches are wanted afterwards: then units that stay on a knot are in doubt
    closed: tuple[Tensor | None, Tensor | None]  # error bounds (pixels, channels) where an end is the line's own end


@dataclass(frozen=True, eq=False)
class Born:
    """New breaks, in no order."""

    alpha: Tensor  # (n,)
    pixel: Tensor  # (n,) of the output
    channel: Tensor  # (n,)
    jump: Tensor  # (n,) by how much the output's slope changes
    rate: Tensor  # (n,) how fast the crossing difference changes with alpha
    element: Tensor  # (n,) flat place in the input
    partner: Tensor  # (n,) the element it meets, or -1
    turn: Tensor  # (n,) by how much the unit's own slope changes, where it has one

    @staticmethod
    def join(parts: list[Born]) -> Born:
        """Several sets of breaks as one."""
        names = ("alpha", "pixel", "channel", "jump", "rate", "element", "partner", "turn")
        return Born(*(torch.cat([getattr(p, n) for p in parts]) for n in names))


@dataclass(frozen=True, eq=False)
class Turned:
    """What a breaking node makes of a stage."""

    groups: Groups  # of the breaks that there were
    slope: Tensor  # (pixels, channels) of the output, just after the start
    born: Born
    branch: Tensor | None = None  # (pixels, channels) the slope of every unit just after the start, where it has one


class Turner(Protocol):
    """What a breaking operator does to patches."""

    @property
    def grid(self) -> Grid:
        """The map of the operator's output."""
        ...

    def size(self, size: tuple[int, int]) -> tuple[int, int]:
        """How large a patch becomes."""
        ...

    def turn(self, stage: Stage) -> Turned:
        """Follow every unit along a stretch."""
        ...


class Ends(Protocol):
    """Anything that starts and stops."""

    @property
    def start(self) -> float: ...
    @property
    def stop(self) -> float: ...


@dataclass(eq=False)
class Timeline:
    """Entries (a break reaches a pixel) sorted by pixel, then by alpha."""

    pixel: Tensor  # (entries,) or one past the last pixel: then it is left out
    alpha: Tensor  # (entries,)
    pixels: int
    stage: Ends
    order: Tensor = field(init=False)
    counts: Tensor = field(init=False)
    starts: Tensor = field(init=False)

    def __post_init__(self) -> None:
        by_time = torch.argsort(self.alpha)
        by_pixel = torch.sort(self.pixel[by_time], stable=True).indices
        self.order = by_time[by_pixel]
        self.counts = torch.bincount(self.pixel, minlength=self.pixels + 1)[: self.pixels]
        self.starts = self.counts.cumsum(0) - self.counts

    def blocks(self, width: int) -> Iterator[Block]:
        """Pixels with about as many entries each, ``width`` numbers to an entry, in blocks of bounded size."""
        counts, pixels = torch.sort(self.counts, descending=True)
        most = counts.tolist()
        limit = BLOCK.get(self.pixel.device.type, 1 << 18)
        at = 0
        while at < len(most):
            deep = most[at]
            stop = at + max(1, limit // ((deep + 2) * width))
            if deep > 8:  # far fewer entries go to another block: padding is work as well
                while stop > at + 1 and stop <= len(most) and most[min(stop, len(most)) - 1] < deep // 2:
                    stop = at + max(1, (stop - at) // 2)
            stop = min(stop, len(most))
            yield self._block(pixels[at:stop], deep)
            at = stop

    def _block(self, pixels: Tensor, deep: int) -> Block:
        device = self.pixel.device
        steps = torch.arange(deep, device=device)
        here = steps < self.counts[pixels, None]
        place = torch.where(here, self.starts[pixels, None] + steps, 0)
        entry = self.order[place] if deep else place
        stage = self.stage
        times = torch.full((len(pixels), deep + 2), stage.stop, dtype=torch.float64, device=device)
        times[:, 0] = stage.start
        if deep:
            times[:, 1:-1] = torch.where(here, self.alpha[entry], stage.stop)
        return Block(pixels, entry, here, times)


@dataclass(frozen=True, eq=False)
class Block:
    """Some pixels and the entries of each; where a pixel has fewer than others, the rest is padding."""

    pixels: Tensor  # (p,)
    entry: Tensor  # (p, deep)
    here: Tensor  # (p, deep) whether it is an entry, not padding
    times: Tensor  # (p, deep + 2) the start, the entries, the stop

    @property
    def deep(self) -> int:
        return self.entry.shape[1]

    @property
    def widths(self) -> Tensor:
        return self.times[:, 1:] - self.times[:, :-1]


def running(x: Tensor) -> Tensor:
    """Sums along the second dim, in place where it is short; else in two levels, for many cores and few roundings."""
    deep = x.shape[1]
    if deep <= LONG:
        return torch.cumsum(x, 1, out=x)
    levels = -(-deep // STRIDE)
    wide = x.new_zeros(len(x), levels * STRIDE, *x.shape[2:])
    wide[:, :deep] = x
    parts = wide.view(len(x), levels, STRIDE, *x.shape[2:])
    torch.cumsum(parts, 2, out=parts)
    before = running(parts[:, :-1, -1].contiguous())
    parts[:, 1:] += before[:, :, None]
    return wide[:, :deep]


def values_of(block: Block, left: Tensor, slopes: Tensor) -> Tensor:
    """Values (p, deep + 2, ...) where pieces meet, from those at the start and the slopes (p, deep + 1, ...)."""
    out = slopes.new_empty(slopes.shape[0], slopes.shape[1] + 1, *slopes.shape[2:])
    out[:, 0] = left
    widths = block.widths.view(*block.widths.shape, *[1] * (slopes.dim() - 2))
    torch.mul(slopes, widths, out=out[:, 1:])
    return running(out)


def anchored(stage: Stage, block: Block, values: Tensor, right: Tensor) -> Tensor:
    """Values that also end where they should: what sums have lost on the way is given back in proportion."""
    lost = right - values[:, -1]
    worst = float(lost.abs().max()) if lost.numel() else 0.0
    if worst > stage.drift:
        raise Doubt(0.5 * (stage.start + stage.stop), everywhere=True)
    if worst > stage.clear:  # patches in single precision
        part = (block.times - stage.start) / (stage.stop - stage.start)
        values += part.view(*part.shape, *[1] * (values.dim() - 2)) * lost[:, None]
    return values


def between(block: Block, row: Tensor, piece: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """Where a difference that goes from ``before`` to ``after`` on a piece is zero, measured from the nearer end."""
    left, right = block.times[row, piece], block.times[row, piece + 1]
    before, after = before.abs(), after.abs()
    total = before + after
    return torch.where(
        before <= after, left + (right - left) * (before / total), right - (right - left) * (after / total)
    )
