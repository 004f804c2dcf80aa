"""Patch rule for pointwise activations: jumps are scaled by the branch taken, and new breaks arise at the knots."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from .fused import apply_pointwise
from .near_knots import UnitSides, refine_sides
from .patch import MapShape, PatchLayout, as_patch_group, patch_layout, regroup
from .timeline import (
    ActivationOutput,
    Block,
    CrossingsAtEntries,
    NewPatchBreaks,
    NodeInput,
    PatchSwitches,
    Timeline,
    check_drift,
    correct_drift,
    cumulative_sum,
    max_straight_drift,
    min_or_inf,
    nonzero,
    to_host,
    values_at_entries,
    zero_crossing,
)


@dataclass(frozen=True, eq=False)
class PointwisePatchRule:
    """A piecewise-linear function of each element, the same for all pixels of a channel."""

    knots: tuple[float, ...]  # ascending
    slopes: tuple[float | Tensor, ...]  # one more than knots; numbers, or (channels,)
    map_shape: MapShape

    @property
    def is_relu(self) -> bool:
        """Whether it is a ReLU, whose slopes are a mask."""
        return len(self.knots) == 1 and all(isinstance(s, float) for s in self.slopes) and self.slopes == (0.0, 1.0)

    def slope_step(self, knot: int) -> float | Tensor:
        """The change of slope at a knot; a number, or (channels,)."""
        return self.slopes[knot + 1] - self.slopes[knot]

    def output_size(self, size: tuple[int, int]) -> tuple[int, int]:
        return size

    def apply(self, node_input: NodeInput) -> ActivationOutput:
        """Evaluate the function along a segment."""
        if (straight := self._apply_to_straight(node_input)) is not None:
            return straight
        rows, timeline, layouts = gather_rows(node_input)
        if (fused := apply_pointwise(self, node_input, rows, timeline)) is not None:
            slope, new_breaks = fused
            groups = regroup(rows, layouts, timeline.pixel, node_input.map_shape)
            pattern = self.slopes_at(node_input.left) if node_input.records_patterns else None
            return ActivationOutput(groups, slope, NewPatchBreaks.join(new_breaks), pattern)
        slope = torch.empty_like(node_input.slope)
        pattern = torch.empty_like(node_input.slope) if node_input.records_patterns else None
        evaluation = _PointwiseEvaluation(self, node_input, rows, slope, pattern)
        for block in timeline.blocks(node_input.map_shape.channels):
            evaluation.run(block)
        groups = regroup(rows, layouts, timeline.pixel, node_input.map_shape)
        parts = evaluation.new_breaks
        new_breaks = NewPatchBreaks.join(parts) if parts else NewPatchBreaks.empty(slope)
        switches = PatchSwitches.join(evaluation.switches)
        at_entries = CrossingsAtEntries.join(evaluation.at_entries)
        return ActivationOutput(groups, slope, new_breaks, pattern, switches, at_entries=at_entries)

    def _apply_to_straight(self, node_input: NodeInput) -> ActivationOutput | None:
        """Evaluate the function where no break reaches the node and none arises; None otherwise."""
        if node_input.groups:
            return None
        left, right = node_input.left, node_input.right
        drift = max_straight_drift(node_input)
        sides = [(left > knot, right > knot) for knot in self.knots]
        distances = (min_or_inf((side - knot).abs()) for knot in self.knots for side in (left, right))
        crossed = ((before != after).any() for before, after in sides)
        drift, *numbers = to_host(drift, *distances, *crossed)
        distance, crossings = min(numbers[: 2 * len(sides)]), sum(numbers[2 * len(sides) :])
        if crossings or not distance > node_input.threshold or not drift <= node_input.max_drift:
            return None
        unit_slopes = self.slopes_at(left)
        pattern = unit_slopes if node_input.records_patterns else None
        return ActivationOutput({}, node_input.slope * unit_slopes, NewPatchBreaks.empty(left), pattern)

    def slopes_at(self, values: Tensor) -> Tensor:
        """The slopes (pixels, channels) of the function at values that are not on a knot."""
        slopes = torch.zeros_like(values) + self.slopes[0]
        for k, knot in enumerate(self.knots):
            slopes += (values > knot).to(values.dtype) * self.slope_step(k)
        return slopes

    def breaks_at(self, alpha: Tensor, pixel: Tensor, channel: Tensor, slope: Tensor, knot: int) -> NewPatchBreaks:
        """The breaks (n,) where units cross a knot with some slope."""
        step = self.slope_step(knot)
        step = step[channel] if isinstance(step, Tensor) else step
        element = torch.add(pixel, channel, alpha=self.map_shape.pixels)
        return NewPatchBreaks(
            alpha=alpha,
            pixel=pixel,
            channel=channel,
            jump=slope.abs() * step,
            slope=slope,
            element=element,
            partner=torch.full_like(element, -1),
            slope_change=slope.sign() * step,
        )


def gather_rows(node_input: NodeInput) -> tuple[Tensor, Timeline, list[PatchLayout]]:
    """All jumps as rows (entries + 1, channels) with a last row of zeros, their timeline, and their layouts."""
    map_shape = node_input.map_shape
    groups = {sources: as_patch_group(group, map_shape) for sources, group in node_input.groups.items()}
    layouts = [patch_layout(sources, patches, map_shape) for sources, patches in groups.items()]
    rows = node_input.slope.new_empty(sum(layout.pixels.numel() for layout in layouts) + 1, map_shape.channels)
    at = 0
    for patches, layout in zip(groups.values(), layouts, strict=True):
        count = layout.pixels.numel()
        rows[at : at + count] = patches.jump.reshape(count, map_shape.channels)
        at += count
    rows[-1] = 0
    parts = [(layout.pixels, node_input.break_alphas.of(layout.sources)) for layout in layouts]
    timeline = Timeline(parts, map_shape.pixels, node_input.start, node_input.stop, rows.device)
    return rows, timeline, layouts


@dataclass(eq=False)
class _PointwiseEvaluation:
    """One evaluation of a `PointwisePatchRule` along a segment; every block of pixels writes its results here."""

    rule: PointwisePatchRule
    node_input: NodeInput
    rows: Tensor  # (entries + 1, channels) jumps of the input, replaced by those of the output
    slope: Tensor  # (pixels, channels) written: slope of the output just after the start
    pattern: Tensor | None  # (pixels, channels) written: slope of every unit just after the start
    new_breaks: list[NewPatchBreaks] = field(default_factory=list[NewPatchBreaks])
    at_entries: list[CrossingsAtEntries] = field(default_factory=list[CrossingsAtEntries])
    switches: list[PatchSwitches] = field(default_factory=list[PatchSwitches])

    def run(self, block: Block) -> None:
        """Evaluate the pixels of one block."""
        x, p, channels, depth = self.node_input, len(block.pixels), self.node_input.map_shape.channels, block.depth
        slopes = x.slope.new_empty(p, depth + 1, channels)
        slopes[:, 0] = first_slope = x.slope[block.pixels]
        if depth:
            jumps = self.rows.index_select(0, block.entries.flatten()).view(p, depth, channels)
            slopes[:, 1:] = jumps
            slopes = cumulative_sum(slopes)
        known = len(self.at_entries)
        unit_slopes = self._unit_slopes(block, slopes)
        self.slope[block.pixels] = first_slope * unit_slopes[:, 0]
        if self.pattern is not None:
            self.pattern[block.pixels] = unit_slopes[:, 0].to(self.pattern.dtype)
        if depth:
            scaled = jumps.mul_(unit_slopes[:, 1:])  # pyright: ignore[reportPossiblyUnboundVariable]
            self.rows.index_copy_(0, block.entries.flatten(), scaled.flatten(0, 1))
            for crossings in self.at_entries[known:]:
                self.rows[crossings.entry, crossings.channel] += crossings.jump
            self.rows[-1] = 0  # padding was written there

    def _unit_slopes(self, block: Block, slopes: Tensor) -> Tensor:
        """(p, depth + 1, channels) slopes of the function after the start and after each entry.

        Collects the new breaks and the crossings at entries on the way. For a ReLU the slopes are a mask.
        """
        x, knots = self.node_input, self.rule.knots
        left, right = x.left[block.pixels], x.right[block.pixels]
        values = values_at_entries(block, left, slopes)
        max_drift = correct_drift(x, block, values, right)
        distances = [values - knot if knot else values for knot in knots]
        above = [d > 0 for d in distances]
        crossed = [a[:, 1:] != a[:, :-1] for a in above]
        drift, *numbers = to_host(max_drift, *(min_or_inf(d.abs()) for d in distances), *(c.sum() for c in crossed))
        min_distances, counts = numbers[: len(knots)], numbers[len(knots) :]
        check_drift(x, drift)
        unit_slopes: Tensor | float | None = None
        for k, knot in enumerate(knots):
            side, crossing, count = above[k], crossed[k], int(counts[k])
            if min_distances[k] <= x.threshold:
                near = refine_sides(x, block, distances[k], slopes, left - knot, right - knot, knot)
                side[near.row, :, near.channel], crossing[near.row, :, near.channel] = near.above, near.crossed
                count = None
                self._add_at_entries(block, slopes, near, k)
                if x.records_switches:
                    changes = torch.zeros_like(crossing)
                    changes[near.row, :, near.channel] = near.switches
                    self.switches.append(PatchSwitches.find(block, changes, x.stop, x.map_shape.pixels))
            if count != 0:
                self.new_breaks.append(self._new_breaks(block, distances[k], slopes, nonzero(crossing, count), k))
            is_above = side[:, :-1]
            if self.rule.is_relu:
                unit_slopes = is_above
                continue
            step = is_above.to(slopes.dtype) * self.rule.slope_step(k)
            unit_slopes = step + self.rule.slopes[0] if unit_slopes is None else unit_slopes + step
        if not isinstance(unit_slopes, Tensor):
            raise TypeError("a function without knots does not break")
        return unit_slopes

    def _add_at_entries(self, block: Block, slopes: Tensor, near: UnitSides, knot: int) -> None:
        """Collect the crossings at entries."""
        unit, piece = near.at_entry.nonzero(as_tuple=True)
        if not len(unit):
            return
        row, channel = near.row[unit], near.channel[unit]
        alpha, slope, entry = block.alphas[row, piece + 1], slopes[row, piece, channel], block.entries[row, piece]
        new = self.rule.breaks_at(alpha, block.pixels[row], channel, slope, knot)
        self.at_entries.append(CrossingsAtEntries(alpha, new.pixel, channel, new.jump, new.slope_change, entry))

    def _new_breaks(
        self,
        block: Block,
        distances: Tensor,  # (p, depth + 2, channels) to the knot
        slopes: Tensor,  # (p, depth + 1, channels)
        crossed: tuple[Tensor, ...],  # (n,) each: row, piece and channel of the crossings
        knot: int,
    ) -> NewPatchBreaks:
        """The breaks on pieces that cross a knot."""
        row, piece, channel = crossed
        ends = block.alphas[row, piece], block.alphas[row, piece + 1]
        alpha = zero_crossing(*ends, distances[row, piece, channel], distances[row, piece + 1, channel])
        return self.rule.breaks_at(alpha, block.pixels[row], channel, slopes[row, piece, channel], knot)
