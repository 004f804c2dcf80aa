"""Gradients back through functions of each coordinate: they change where units turn, and only there and below."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .patch import BreakSource, Groups, MapShape, PointPatch, as_patch_group, patch_layout, patch_pixels, regroup
from .timeline import Block, BreakAlphas, NewPatchBreaks, Timeline, cumulative_sum


@dataclass(frozen=True, eq=False)
class GradientOnSegment:
    """The gradient at a breaking node's output along a stretch: as it is at the start, and what changes it."""

    map_shape: MapShape
    start: float
    stop: float
    base: Tensor  # (pixels, channels)
    groups: Groups
    times: BreakAlphas
    pattern: Tensor  # (pixels, channels) slopes of the units at the start
    slope_changes: NewPatchBreaks | None  # where they change


def activation_vjp(node: int, pull: GradientOnSegment) -> tuple[Tensor, Groups]:
    """The gradient at the node's input: as it is at the start, and what changes it."""
    scan = _Scan(pull)
    sparks = scan.vjp()
    groups = regroup(scan.rows, scan.frames, scan.timeline.pixel, pull.map_shape)
    if pull.slope_changes is not None:
        groups[BreakSource(node, len(sparks)),] = PointPatch(
            pull.slope_changes.pixel, pull.slope_changes.channel, sparks
        )
    return pull.base * pull.pattern, groups


def integrate(pull: GradientOnSegment) -> Tensor:
    """The gradient at the node's input, integrated over the stretch, (pixels, channels)."""
    return _Scan(pull).integral()


def integrate_groups(
    base: Tensor, groups: Groups, times: BreakAlphas, grid: MapShape, start: float, stop: float
) -> Tensor:
    """A gradient (pixels, channels) integrated over a stretch."""
    total = torch.cat([base * (stop - start), torch.zeros_like(base[:1])])  # and a row for what lies outside
    for births, group in groups.items():
        patches = as_patch_group(group, grid)
        weights = (stop - times.of(births)).view(-1, 1, 1, 1)
        rows = (patches.jump * weights).reshape(-1, grid[0])
        total.index_add_(0, patch_pixels(patches, grid).flatten(), rows)
    return total[:-1]


class _Scan:
    """Patches and turns of every pixel in order of alpha."""

    def __init__(self, pull: GradientOnSegment) -> None:
        self.pull = pull
        channels = pull.map_shape[0]
        held = {births: as_patch_group(group, pull.map_shape) for births, group in pull.groups.items()}
        self.frames = [patch_layout(births, patches, pull.map_shape) for births, patches in held.items()]
        self.rows = torch.cat(
            [*(p.jump.reshape(-1, channels) for p in held.values()), pull.base.new_zeros(1, channels)]
        )
        self.count = len(self.rows) - 1
        parts = [(frame.pixels, pull.times.of(frame.sources)) for frame in self.frames]
        turns = pull.slope_changes
        self.steps = pull.base.new_zeros((0 if turns is None else len(turns.alpha)) + 1, channels)
        if turns is not None:
            at = torch.arange(len(turns.alpha), device=turns.channel.device)
            self.steps[at, turns.channel] = turns.slope_change.to(self.steps.dtype)
            parts.append((turns.pixel[:, None], turns.alpha))
        self.timeline = Timeline(parts, len(pull.base), pull, pull.base.device)

    def _block(self, block: Block) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Rows of the block's entries, their jumps, gradients and slopes after the start and each entry."""
        pull, p, deep, channels = self.pull, len(block.pixels), block.deep, self.pull.map_shape[0]
        row = torch.where(block.here & (block.entry < self.count), block.entry, self.count)
        turn = torch.where(block.here & (block.entry >= self.count), block.entry - self.count, len(self.steps) - 1)
        jumps = self.rows.index_select(0, row.flatten()).view(p, deep, channels)
        steps = self.steps.index_select(0, turn.flatten()).view(p, deep, channels)
        grads = cumulative_sum(torch.cat([pull.base[block.pixels][:, None], jumps], 1))
        slopes = cumulative_sum(torch.cat([pull.pattern[block.pixels][:, None], steps], 1))
        return row, jumps, grads, slopes

    def vjp(self) -> Tensor:
        """Mask all patches; what each turn adds to the gradient, (turns,)."""
        sparks = self.pull.base.new_zeros(len(self.steps))
        for block in self.timeline.blocks(2 * self.pull.map_shape[0]):
            row, jumps, grads, slopes = self._block(block)
            if not block.deep:
                continue
            self.rows.index_copy_(0, row.flatten(), jumps.mul_(slopes[:, 1:]).flatten(0, 1))
            self.rows[-1] = 0  # padding was written there
            turns = self.pull.slope_changes
            if turns is not None:
                at, place = (block.here & (block.entry >= self.count)).nonzero(as_tuple=True)
                which = block.entry[at, place] - self.count
                sparks[which] = grads[at, place + 1, turns.channel[which]] * turns.slope_change[which]
        return sparks[:-1]

    def integral(self) -> Tensor:
        total = torch.zeros_like(self.pull.base)
        for block in self.timeline.blocks(2 * self.pull.map_shape[0]):
            _, _, grads, slopes = self._block(block)
            total[block.pixels] = (grads.mul_(slopes) * block.widths[:, :, None]).sum(1)
        return total
