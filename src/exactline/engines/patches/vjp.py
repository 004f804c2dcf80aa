"""Gradients back through functions of each coordinate: they change where units turn, and only there and below."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .patch import Birth, Grid, Groups, Sparks, frame_of, patches_of, pixels, regrouped
from .timeline import Block, Born, Timeline, Times, running


@dataclass(frozen=True, eq=False)
class Pull:
    """The gradient at a breaking node's output along a stretch: as it is at the start, and what changes it."""

    grid: Grid
    start: float
    stop: float
    base: Tensor  # (pixels, channels)
    groups: Groups
    times: Times
    branch: Tensor  # (pixels, channels) slopes of the units at the start
    turns: Born | None  # where they change


def pulled(node: int, pull: Pull) -> tuple[Tensor, Groups]:
    """The gradient at the node's input: as it is at the start, and what changes it."""
    scan = _Scan(pull)
    sparks = scan.turned()
    groups = regrouped(scan.rows, scan.frames, scan.timeline.pixel, pull.grid)
    if pull.turns is not None:
        groups[Birth(node, len(sparks)),] = Sparks(pull.turns.pixel, pull.turns.channel, sparks)
    return pull.base * pull.branch, groups


def integrated(pull: Pull) -> Tensor:
    """The gradient at the node's input, integrated over the stretch, (pixels, channels)."""
    return _Scan(pull).integral()


def summed(base: Tensor, groups: Groups, times: Times, grid: Grid, start: float, stop: float) -> Tensor:
    """A gradient (pixels, channels) integrated over a stretch."""
    total = torch.cat([base * (stop - start), torch.zeros_like(base[:1])])  # and a row for what lies outside
    for births, group in groups.items():
        patches = patches_of(group, grid)
        weights = (stop - times.of(births)).view(-1, 1, 1, 1)
        rows = (patches.jump * weights).reshape(-1, grid[0])
        total.index_add_(0, pixels(patches, grid).flatten(), rows)
    return total[:-1]


class _Scan:
    """Patches and turns of every pixel in order of alpha."""

    def __init__(self, pull: Pull) -> None:
        self.pull = pull
        channels = pull.grid[0]
        held = {births: patches_of(group, pull.grid) for births, group in pull.groups.items()}
        self.frames = [frame_of(births, patches, pull.grid) for births, patches in held.items()]
        self.rows = torch.cat(
            [*(p.jump.reshape(-1, channels) for p in held.values()), pull.base.new_zeros(1, channels)]
        )
        self.count = len(self.rows) - 1
        parts = [(frame.pixels, pull.times.of(frame.births)) for frame in self.frames]
        turns = pull.turns
        self.steps = pull.base.new_zeros((0 if turns is None else len(turns.alpha)) + 1, channels)
        if turns is not None:
            at = torch.arange(len(turns.alpha), device=turns.channel.device)
            self.steps[at, turns.channel] = turns.turn.to(self.steps.dtype)
            parts.append((turns.pixel[:, None], turns.alpha))
        self.timeline = Timeline(parts, len(pull.base), pull, pull.base.device)

    def _block(self, block: Block) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Rows of the block's entries, their jumps, gradients and slopes after the start and each entry."""
        pull, p, deep, channels = self.pull, len(block.pixels), block.deep, self.pull.grid[0]
        row = torch.where(block.here & (block.entry < self.count), block.entry, self.count)
        turn = torch.where(block.here & (block.entry >= self.count), block.entry - self.count, len(self.steps) - 1)
        jumps = self.rows.index_select(0, row.flatten()).view(p, deep, channels)
        steps = self.steps.index_select(0, turn.flatten()).view(p, deep, channels)
        grads = running(torch.cat([pull.base[block.pixels][:, None], jumps], 1))
        slopes = running(torch.cat([pull.branch[block.pixels][:, None], steps], 1))
        return row, jumps, grads, slopes

    def turned(self) -> Tensor:
        """Mask all patches; what each turn adds to the gradient, (turns,)."""
        sparks = self.pull.base.new_zeros(len(self.steps))
        for block in self.timeline.blocks(2 * self.pull.grid[0]):
            row, jumps, grads, slopes = self._block(block)
            if not block.deep:
                continue
            self.rows.index_copy_(0, row.flatten(), jumps.mul_(slopes[:, 1:]).flatten(0, 1))
            self.rows[-1] = 0  # padding was written there
            turns = self.pull.turns
            if turns is not None:
                at, place = (block.here & (block.entry >= self.count)).nonzero(as_tuple=True)
                which = block.entry[at, place] - self.count
                sparks[which] = grads[at, place + 1, turns.channel[which]] * turns.turn[which]
        return sparks[:-1]

    def integral(self) -> Tensor:
        total = torch.zeros_like(self.pull.base)
        for block in self.timeline.blocks(2 * self.pull.grid[0]):
            _, _, grads, slopes = self._block(block)
            total[block.pixels] = (grads.mul_(slopes) * block.widths[:, :, None]).sum(1)
        return total
