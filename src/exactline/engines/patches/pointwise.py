"""Patches through functions of each coordinate: masked by the branch taken, and newborn breaks at the knots."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .near_knots import refine_sides
from .patch import MapShape, PatchLayout, as_patch_group, patch_layout, regroup
from .timeline import (
    ActivationOutput,
    Block,
    NewPatchBreaks,
    NodeInput,
    Timeline,
    check_drift,
    cumulative_sum,
    drift,
    nonzero,
    smallest,
    to_host,
    values_at_entries,
    zero_crossing,
)


@dataclass(frozen=True, eq=False)
class PointwiseRule:
    """A piecewise-linear function of each coordinate, the same for every pixel."""

    knots: tuple[float, ...]  # ascending
    slopes: tuple[float | Tensor, ...]  # one more; numbers, or (channels,)
    map_shape: MapShape

    @property
    def _is_relu(self) -> bool:
        """Whether it is a ReLU, whose slopes are a mask."""
        return len(self.knots) == 1 and all(isinstance(s, float) for s in self.slopes) and self.slopes == (0.0, 1.0)

    def output_size(self, size: tuple[int, int]) -> tuple[int, int]:
        return size

    def apply(self, stage: NodeInput) -> ActivationOutput:
        """Follow every unit along the stretch."""
        rows, timeline, frames = _gather(stage)
        slope, born = torch.empty_like(stage.slope), list[NewPatchBreaks]()
        taken = torch.empty_like(stage.slope) if stage.records_patterns else None
        for block in timeline.blocks(stage.map_shape[0]):
            self._follow(stage, block, rows, slope, born, taken)
        found = NewPatchBreaks.join(born) if born else NewPatchBreaks.none(slope)
        return ActivationOutput(regroup(rows, frames, timeline.pixel, stage.map_shape), slope, found, taken)

    def _follow(
        self,
        stage: NodeInput,
        block: Block,
        rows: Tensor,
        slope: Tensor,
        born: list[NewPatchBreaks],
        first: Tensor | None,
    ) -> None:
        """One block: its jumps are masked in place, its crossings noted."""
        p, channels, deep = len(block.pixels), stage.map_shape[0], block.deep
        slopes = stage.slope.new_empty(p, deep + 1, channels)
        slopes[:, 0] = begin = stage.slope[block.pixels]
        if deep:
            jumps = rows.index_select(0, block.entry.flatten()).view(p, deep, channels)
            slopes[:, 1:] = jumps
            slopes = cumulative_sum(slopes)
        left, right = stage.left[block.pixels], stage.right[block.pixels]
        values = values_at_entries(block, left, slopes)
        worst = drift(stage, block, values, right)
        gaps = [values - knot if knot else values for knot in self.knots]
        above = [gap > 0 for gap in gaps]
        crossed = [side[:, 1:] != side[:, :-1] for side in above]
        off, *numbers = to_host(worst, *(smallest(g.abs()) for g in gaps), *(c.sum() for c in crossed))
        check_drift(stage, off)
        branch: Tensor | float | None = None  # of every value that is a start or an entry
        for j, knot in enumerate(self.knots):
            count: int | None = int(numbers[len(self.knots) + j])
            side, cross = above[j], crossed[j]
            if numbers[j] <= stage.threshold:
                side, cross = refine_sides(stage, block, gaps[j], slopes, left - knot, right - knot, knot)
                count = None
            if count != 0:
                born.append(self._new_breaks(stage, block, gaps[j], slopes, nonzero(cross, count), j))
            taken = side[:, :-1]
            if self._is_relu:
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

    def _new_breaks(
        self, stage: NodeInput, block: Block, gaps: Tensor, slopes: Tensor, at: tuple[Tensor, ...], knot: int
    ) -> NewPatchBreaks:
        """Breaks on some pieces: their pixels in the block, which pieces those are, and their channels."""
        row, piece, channel = at
        signed, after = slopes[row, piece, channel], piece + 1
        rate = signed.abs()
        ends = block.times[row, piece], block.times[row, after]
        alpha = zero_crossing(*ends, gaps[row, piece, channel], gaps[row, after, channel])
        step = _minus(self.slopes[knot + 1], self.slopes[knot])
        step = step[channel] if isinstance(step, Tensor) else step
        pixel = block.pixels[row]
        element = torch.add(pixel, channel, alpha=stage.map_shape[1] * stage.map_shape[2])
        alone = torch.full_like(element, -1)
        return NewPatchBreaks(alpha, pixel, channel, rate * step, rate, element, alone, signed.sign() * step)


def _gather(stage: NodeInput) -> tuple[Tensor, Timeline, list[PatchLayout]]:
    """All patches as rows of channels with a row of zeros after them, and when each row comes to which pixel."""
    channels = stage.map_shape[0]
    held = {births: as_patch_group(group, stage.map_shape) for births, group in stage.groups.items()}
    frames = [patch_layout(births, patches, stage.map_shape) for births, patches in held.items()]
    rows = stage.slope.new_empty(sum(frame.pixels.numel() for frame in frames) + 1, channels)
    at = 0
    for patches, frame in zip(held.values(), frames, strict=True):
        size = frame.pixels.numel()
        rows[at : at + size] = patches.jump.reshape(size, channels)
        at += size
    rows[-1] = 0
    parts = [(frame.pixels, stage.times.of(frame.sources)) for frame in frames]
    return rows, Timeline(parts, stage.map_shape[1] * stage.map_shape[2], stage, rows.device), frames


def _minus(a: float | Tensor, b: float | Tensor) -> float | Tensor:
    return a - b
