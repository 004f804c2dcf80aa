"""Patches through functions of each coordinate: masked by the branch taken, and newborn breaks at the knots."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .nearby import closely
from .patch import Grid, patches_of, pixels, regrouped
from .scan import Block, Born, Stage, Timeline, Turned, anchored, between, running, values_of


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
        rows, timeline, shapes = _gathered(stage)
        channels = stage.grid[0]
        slope, born = torch.empty_like(stage.slope), list[Born]()
        taken = torch.empty_like(stage.slope) if stage.traced else None
        for block in timeline.blocks(channels):
            self._follow(stage, block, rows, slope, born, taken)
        return Turned(regrouped(rows, shapes), slope, Born.join(born), taken)

    def _follow(
        self, stage: Stage, block: Block, rows: Tensor, slope: Tensor, born: list[Born], first: Tensor | None
    ) -> None:
        """One block: its jumps are masked in place, its crossings noted."""
        p, channels, deep = len(block.pixels), stage.grid[0], block.deep
        entry = torch.where(block.here, block.entry, len(rows) - 1)
        slopes = stage.slope.new_empty(p, deep + 1, channels)
        slopes[:, 0] = stage.slope[block.pixels]
        if deep:
            jumps = rows.index_select(0, entry.flatten()).view(p, deep, channels)
            slopes[:, 1:] = jumps
            slopes = running(slopes)
        left, right = stage.left[block.pixels], stage.right[block.pixels]
        values = anchored(stage, block, values_of(block, left, slopes), right)
        branch: Tensor | float | None = None  # of every value that is a start or an entry
        for j, knot in enumerate(self.knots):
            gaps = values - knot if knot else values
            above = gaps > 0
            if bool((gaps.abs() <= stage.clear).any()):
                above, crossed = closely(stage, block, gaps, slopes, left - knot, right - knot, knot)
            else:
                crossed = above[:, 1:] != above[:, :-1]
            born.append(self._born(stage, block, gaps, slopes, crossed, j))
            step = _minus(self.slopes[j + 1], self.slopes[j])
            taken = above[:, :-1]
            if self._plain:
                branch = taken
                continue
            change = taken.to(slopes.dtype) * step
            branch = change + self.slopes[0] if branch is None else branch + change
        if not isinstance(branch, Tensor):
            raise TypeError("a function without knots does not break")
        slope[block.pixels] = stage.slope[block.pixels] * branch[:, 0]
        if first is not None:
            first[block.pixels] = branch[:, 0].to(first.dtype)
        if deep:
            masked = jumps.mul_(branch[:, 1:])  # pyright: ignore[reportPossiblyUnboundVariable]
            rows.index_copy_(0, entry.flatten(), masked.flatten(0, 1))
            rows[-1] = 0  # padding was written there

    def _born(self, stage: Stage, block: Block, gaps: Tensor, slopes: Tensor, crossed: Tensor, knot: int) -> Born:
        row, piece, channel = crossed.nonzero(as_tuple=True)
        signed = slopes[row, piece, channel]
        rate = signed.abs()
        alpha = between(block, row, piece, gaps[row, piece, channel], gaps[row, piece + 1, channel])
        step = _minus(self.slopes[knot + 1], self.slopes[knot])
        step = step[channel] if isinstance(step, Tensor) else step
        jump, turn = rate * step, signed.sign() * step
        pixel = block.pixels[row]
        element = channel * (stage.grid[1] * stage.grid[2]) + pixel
        return Born(alpha, pixel, channel, jump, rate, element, torch.full_like(element, -1), turn)


def _gathered(stage: Stage) -> tuple[Tensor, Timeline, dict[int, tuple[Tensor, tuple[int, int]]]]:
    """All patches as rows of channels with a row of zeros after them, and when each row comes to which pixel."""
    channels, places = stage.grid[0], stage.grid[1] * stage.grid[2]
    held = {node: patches_of(group, stage.grid) for node, group in stage.groups.items()}
    sizes = [p.jump.numel() // channels if channels else 0 for p in held.values()]
    rows = stage.slope.new_empty(sum(sizes) + 1, channels)
    at, where, alphas = 0, list[Tensor](), list[Tensor]()
    for (node, patches), size in zip(held.items(), sizes, strict=True):
        rows[at : at + size] = patches.jump.reshape(size, channels)
        at += size
        where.append(pixels(patches, stage.grid).flatten())
        alphas.append(stage.times[node].repeat_interleave(patches.size[0] * patches.size[1]))
    rows[-1] = 0
    device = stage.slope.device
    pixel = torch.cat(where) if where else torch.zeros(0, dtype=torch.int64, device=device)
    alpha = torch.cat(alphas) if alphas else torch.zeros(0, dtype=torch.float64, device=device)
    shapes = {node: (patches.top, patches.size) for node, patches in held.items()}
    return rows, Timeline(pixel, alpha, places, stage), shapes


def _minus(a: float | Tensor, b: float | Tensor) -> float | Tensor:
    return a - b
