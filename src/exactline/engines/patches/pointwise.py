"""Patches through functions of each coordinate: masked by the branch taken, and newborn breaks at the knots."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .near_knots import closely
from .patch import Frame, Grid, frame_of, patches_of, regrouped
from .timeline import (
    Block,
    Born,
    Stage,
    Timeline,
    Turned,
    between,
    checked,
    least,
    lost,
    places,
    running,
    told,
    values_of,
)


@dataclass(frozen=True, eq=False)
class Turning:
    """A piecewise-linear function of each coordinate, the same for every pixel."""

    knots: tuple[float, ...]  # ascending
    slopes: tuple[float | Tensor, ...]  # one more; numbers, or (channels,)
    grid: Grid

    @property
    def _plain(self) -> bool:
        """Whether it is a ReLU, whose slopes are a mask."""
        return len(self.knots) == 1 and all(isinstance(s, float) for s in self.slopes) and self.slopes == (0.0, 1.0)

    def size(self, size: tuple[int, int]) -> tuple[int, int]:
        return size

    def turn(self, stage: Stage) -> Turned:
        """Follow every unit along the stretch."""
        rows, timeline, frames = _gathered(stage)
        slope, born = torch.empty_like(stage.slope), list[Born]()
        taken = torch.empty_like(stage.slope) if stage.traced else None
        for block in timeline.blocks(stage.grid[0]):
            self._follow(stage, block, rows, slope, born, taken)
        found = Born.join(born) if born else Born.none(slope)
        return Turned(regrouped(rows, frames, timeline.pixel, stage.grid), slope, found, taken)

    def _follow(
        self, stage: Stage, block: Block, rows: Tensor, slope: Tensor, born: list[Born], first: Tensor | None
    ) -> None:
        """One block: its jumps are masked in place, its crossings noted."""
        p, channels, deep = len(block.pixels), stage.grid[0], block.deep
        slopes = stage.slope.new_empty(p, deep + 1, channels)
        slopes[:, 0] = begin = stage.slope[block.pixels]
        if deep:
            jumps = rows.index_select(0, block.entry.flatten()).view(p, deep, channels)
            slopes[:, 1:] = jumps
            slopes = running(slopes)
        left, right = stage.left[block.pixels], stage.right[block.pixels]
        values = values_of(block, left, slopes)
        worst = lost(stage, block, values, right)
        gaps = [values - knot if knot else values for knot in self.knots]
        above = [gap > 0 for gap in gaps]
        crossed = [side[:, 1:] != side[:, :-1] for side in above]
        off, *numbers = told(worst, *(least(g.abs()) for g in gaps), *(c.sum() for c in crossed))
        checked(stage, off)
        branch: Tensor | float | None = None  # of every value that is a start or an entry
        for j, knot in enumerate(self.knots):
            count: int | None = int(numbers[len(self.knots) + j])
            side, cross = above[j], crossed[j]
            if numbers[j] <= stage.clear:
                side, cross = closely(stage, block, gaps[j], slopes, left - knot, right - knot, knot)
                count = None
            if count != 0:
                born.append(self._born(stage, block, gaps[j], slopes, places(cross, count), j))
            taken = side[:, :-1]
            if self._plain:
                branch = taken
                continue
            change = taken.to(slopes.dtype) * _minus(self.slopes[j + 1], self.slopes[j])
            branch = change + self.slopes[0] if branch is None else branch + change
        if not isinstance(branch, Tensor):
            raise TypeError("a function without knots does not break")
        slope[block.pixels] = begin * branch[:, 0]
        if first is not None:
            first[block.pixels] = branch[:, 0].to(first.dtype)
        if deep:
            masked = jumps.mul_(branch[:, 1:])  # pyright: ignore[reportPossiblyUnboundVariable]
            rows.index_copy_(0, block.entry.flatten(), masked.flatten(0, 1))
            rows[-1] = 0  # padding was written there

    def _born(
        self, stage: Stage, block: Block, gaps: Tensor, slopes: Tensor, at: tuple[Tensor, ...], knot: int
    ) -> Born:
        """Breaks on some pieces: their pixels in the block, which pieces those are, and their channels."""
        row, piece, channel = at
        signed, after = slopes[row, piece, channel], piece + 1
        rate = signed.abs()
        ends = block.times[row, piece], block.times[row, after]
        alpha = between(*ends, gaps[row, piece, channel], gaps[row, after, channel])
        step = _minus(self.slopes[knot + 1], self.slopes[knot])
        step = step[channel] if isinstance(step, Tensor) else step
        pixel = block.pixels[row]
        element = torch.add(pixel, channel, alpha=stage.grid[1] * stage.grid[2])
        alone = torch.full_like(element, -1)
        return Born(alpha, pixel, channel, rate * step, rate, element, alone, signed.sign() * step)


def _gathered(stage: Stage) -> tuple[Tensor, Timeline, list[Frame]]:
    """All patches as rows of channels with a row of zeros after them, and when each row comes to which pixel."""
    channels = stage.grid[0]
    held = {births: patches_of(group, stage.grid) for births, group in stage.groups.items()}
    frames = [frame_of(births, patches, stage.grid) for births, patches in held.items()]
    rows = stage.slope.new_empty(sum(frame.pixels.numel() for frame in frames) + 1, channels)
    at = 0
    for patches, frame in zip(held.values(), frames, strict=True):
        size = frame.pixels.numel()
        rows[at : at + size] = patches.jump.reshape(size, channels)
        at += size
    rows[-1] = 0
    parts = [(frame.pixels, stage.times.of(frame.births)) for frame in frames]
    return rows, Timeline(parts, stage.grid[1] * stage.grid[2], stage, rows.device), frames


def _minus(a: float | Tensor, b: float | Tensor) -> float | Tensor:
    return a - b
