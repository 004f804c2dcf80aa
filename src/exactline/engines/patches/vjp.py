"""Gradients along a segment, backwards through pointwise activations.

The gradient along a segment is piecewise constant in alpha. It is stored as its value at the start and its changes at
the breaks, as patches. It changes where units of the node itself switch, and where later units do.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .patch import BreakSource, Groups, MapShape, PointPatch, as_patch_group, patch_layout, patch_pixels, regroup
from .timeline import Block, BreakAlphas, NewPatchBreaks, Timeline, cumulative_sum


@dataclass(frozen=True, eq=False)
class GradientOnSegment:
    """The gradient at the output of a pointwise activation along a segment."""

    map_shape: MapShape
    start: float  # alpha
    stop: float  # alpha
    base: Tensor  # (pixels, channels) the gradient at the start
    groups: Groups  # its changes
    break_alphas: BreakAlphas
    pattern: Tensor  # (pixels, channels) slopes of the units at the start
    slope_changes: NewPatchBreaks | None  # where units of the node switch; None: nowhere


def activation_vjp(node: int, gradient: GradientOnSegment) -> tuple[Tensor, Groups]:
    """The gradient at the node's input: its value at the start, (pixels, channels), and its changes."""
    timeline = _GradientTimeline(gradient)
    changes_at_switches = timeline.scale_changes()
    groups = regroup(timeline.rows, timeline.layouts, timeline.timeline.pixel, gradient.map_shape)
    switches = gradient.slope_changes
    if switches is not None:
        source = BreakSource(node, len(changes_at_switches))
        groups[source,] = PointPatch(switches.pixel, switches.channel, changes_at_switches)
    return gradient.base * gradient.pattern, groups


def integrate(gradient: GradientOnSegment) -> Tensor:
    """The integral over the segment of the gradient at the node's input, (pixels, channels)."""
    return _GradientTimeline(gradient).integrate()


def integrate_groups(
    base: Tensor,  # (pixels, channels) at the start
    groups: Groups,
    break_alphas: BreakAlphas,
    map_shape: MapShape,
    start: float,
    stop: float,
) -> Tensor:
    """The integral over a segment of a gradient given by its value at the start and its changes."""
    total = torch.cat([base * (stop - start), torch.zeros_like(base[:1])])  # the last row is for pixels outside
    for sources, group in groups.items():
        patches = as_patch_group(group, map_shape)
        weights = (stop - break_alphas.of(sources)).view(-1, 1, 1, 1)
        rows = (patches.jump * weights).reshape(-1, map_shape.channels)
        total.index_add_(0, patch_pixels(patches, map_shape).flatten(), rows)
    return total[:-1]


class _GradientTimeline:
    """The changes of the gradient and the switches of units at every pixel, in order of alpha.

    Entries of the timeline below ``row_count`` are changes of the gradient, the others are switches.
    """

    def __init__(self, gradient: GradientOnSegment) -> None:
        self.gradient = gradient
        map_shape, switches = gradient.map_shape, gradient.slope_changes
        groups = {sources: as_patch_group(group, map_shape) for sources, group in gradient.groups.items()}
        self.layouts = [patch_layout(sources, patches, map_shape) for sources, patches in groups.items()]
        zeros = gradient.base.new_zeros(1, map_shape.channels)
        self.rows = torch.cat([*(p.jump.reshape(-1, map_shape.channels) for p in groups.values()), zeros])
        self.row_count = len(self.rows) - 1
        parts = [(layout.pixels, gradient.break_alphas.of(layout.sources)) for layout in self.layouts]
        switch_count = 0 if switches is None else len(switches.alpha)
        self.slope_steps = gradient.base.new_zeros(switch_count + 1, map_shape.channels)  # the last row stays zero
        if switches is not None:
            index = torch.arange(switch_count, device=switches.channel.device)
            self.slope_steps[index, switches.channel] = switches.slope_change.to(self.slope_steps.dtype)
            parts.append((switches.pixel[:, None], switches.alpha))
        self.timeline = Timeline(parts, len(gradient.base), gradient.start, gradient.stop, gradient.base.device)

    def scale_changes(self) -> Tensor:
        """Multiply all changes by the slopes of their units, in place; (switches,) the changes at the switches."""
        changes = self.gradient.base.new_zeros(len(self.slope_steps))
        for block in self.timeline.blocks(2 * self.gradient.map_shape.channels):
            row, jumps, gradients, slopes = self._evaluate(block)
            if not block.depth:
                continue
            self.rows.index_copy_(0, row.flatten(), jumps.mul_(slopes[:, 1:]).flatten(0, 1))
            self.rows[-1] = 0  # padding was written there
            switches = self.gradient.slope_changes
            if switches is not None:
                at, place = (block.is_entry & (block.entries >= self.row_count)).nonzero(as_tuple=True)
                switch = block.entries[at, place] - self.row_count
                changes[switch] = gradients[at, place + 1, switches.channel[switch]] * switches.slope_change[switch]
        return changes[:-1]

    def integrate(self) -> Tensor:
        """The integral of gradient times slope over the segment, (pixels, channels)."""
        total = torch.zeros_like(self.gradient.base)
        for block in self.timeline.blocks(2 * self.gradient.map_shape.channels):
            _, _, gradients, slopes = self._evaluate(block)
            total[block.pixels] = (gradients.mul_(slopes) * block.widths[:, :, None]).sum(1)
        return total

    def _evaluate(self, block: Block) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Evaluate the entries of a block.

        Returns their rows (p, depth), their jumps (p, depth, channels), and the gradients and slopes after the start
        and after each entry, (p, depth + 1, channels) each.
        """
        gradient, shape = self.gradient, (len(block.pixels), block.depth, self.gradient.map_shape.channels)
        is_switch = block.entries >= self.row_count
        row = torch.where(block.is_entry & (block.entries < self.row_count), block.entries, self.row_count)
        switch = torch.where(block.is_entry & is_switch, block.entries - self.row_count, len(self.slope_steps) - 1)
        jumps = self.rows.index_select(0, row.flatten()).view(shape)
        steps = self.slope_steps.index_select(0, switch.flatten()).view(shape)
        gradients = cumulative_sum(torch.cat([gradient.base[block.pixels][:, None], jumps], 1))
        slopes = cumulative_sum(torch.cat([gradient.pattern[block.pixels][:, None], steps], 1))
        return row, jumps, gradients, slopes
