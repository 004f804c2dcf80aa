"""Patch rule for maxima: the output follows the leader of every window, and breaks arise where the leader changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from ...tolerances import AMBIGUITY_SHARE, MAX_SAMPLE_EXCESS, SHARED_REACH
from .candidates import Candidates, find_candidates, mark_repeats
from .channelwise import ReceptiveReach, first_readers, window_readers
from .entry_rows import EntryRows, patch_boxes
from .leader_changes import LeaderChanges, leader_changes, mark_candidates, member_pixel
from .patch import (
    MapShape,
    PatchLayout,
    as_patch_group,
    box_pixels,
    covers,
    regroup,
    stored_size,
)
from .timeline import (
    ActivationOutput,
    Block,
    NeedsDenseFallback,
    NewPatchBreaks,
    NodeInput,
    PatchSwitches,
    SegmentTooLarge,
    Timeline,
    check_drift,
    correct_drift,
    cumulative_sum,
    min_or_inf,
    to_host,
    values_at_entries,
)

MAX_COMPARED_MEMBERS = 32  # members of a window up to which all pairs are compared
MAX_TABLE_MEMBERS = 64  # pixels of a window up to which the rows of all its members are tabulated
COPIES_PER_BLOCK = 4  # of the values of a block, held in memory while its leaders are compared


@dataclass(frozen=True, eq=False)
class MaximumPatchRule:
    """The maximum over a window of pixels, separately in every channel; a minimum with ``sign`` -1.

    The members of a window are its pixels and, with ``floor``, the constant 0 as the last one.
    """

    windows: Tensor  # (output pixels, window size) input pixels; shorter windows repeat a pixel
    source_shape: MapShape
    map_shape: MapShape
    sign: int
    floor: bool
    # (2, output pixels, channels) see `Maximum.floor_elements`: their pixels
    floor_pixels: Tensor | None = None
    # (pixels, channels) labels of input elements, the same for those that are equal by structure; None: all differ
    labels: Tensor | None = None

    @property
    def window_size(self) -> int:
        """Pixels per window."""
        return self.windows.shape[1]

    @cached_property
    def readers(self) -> tuple[Tensor, Tensor]:
        """For rows and for columns: the first and the last output that reads each input, (inputs, 2)."""
        return window_readers(self.windows, self.source_shape, self.map_shape)

    @cached_property
    def repeated_pixels(self) -> Tensor:
        """(output pixels, window size, 1) whether an earlier entry of the window is the same pixel."""
        return mark_repeats(self.windows[:, :, None])

    @cached_property
    def repeated_members(self) -> Tensor:
        """(output pixels, window size, channels or 1) whether an earlier entry of the window equals the member."""
        return self.repeated_pixels if self.labels is None else mark_repeats(self.labels[self.windows])

    @cached_property
    def reach(self) -> ReceptiveReach:
        """The size of output patches, by size of input patches."""
        return ReceptiveReach(self.readers)

    def output_size(self, size: tuple[int, int]) -> tuple[int, int]:
        return stored_size(self.reach(size), self.map_shape)

    def apply(self, node_input: NodeInput) -> ActivationOutput:
        """Evaluate the maxima along a segment."""
        candidates = find_candidates(node_input, self)
        if (straight := self._apply_to_straight(node_input, candidates)) is not None:
            return straight
        rows, timeline, entry_rows, layouts = self._gather_rows(node_input)
        channels = node_input.map_shape.channels
        if timeline.max_depth * channels * candidates.count > node_input.max_numbers / COPIES_PER_BLOCK:  # one window
            raise SegmentTooLarge
        evaluation = _MaximumEvaluation(
            self,
            node_input,
            rows,
            entry_rows,
            candidates,
            out=rows.new_zeros(len(timeline.pixel) + 1, channels),
            slope=node_input.slope.new_empty(self.map_shape.pixels, channels),
            pattern=self.windows.new_empty(self.map_shape.pixels, channels) if node_input.records_patterns else None,
        )
        for block in timeline.blocks(channels * (candidates.count + self.floor)):
            evaluation.run(block)
        parts, slope = evaluation.new_breaks, evaluation.slope
        new_breaks = NewPatchBreaks.join(parts) if parts else NewPatchBreaks.empty(slope)
        groups = regroup(evaluation.out, layouts, timeline.pixel, self.map_shape)
        switches = PatchSwitches.join(evaluation.switches)
        tied = torch.cat(evaluation.tied).unique(dim=0) if evaluation.tied else None
        return ActivationOutput(groups, slope * self.sign, new_breaks, evaluation.pattern, switches, tied)

    def _apply_to_straight(self, node_input: NodeInput, candidates: Candidates) -> ActivationOutput | None:
        """Evaluate the maxima where no break reaches the node and no window has a second candidate; None otherwise."""
        if node_input.groups or candidates.count > 1:
            return None
        pixels, leads = self.windows.gather(1, candidates.members[:, 0]), candidates.can_lead[:, 0]
        left, right, slope, threshold = (
            t.gather(0, pixels) for t in (node_input.left, node_input.right, node_input.slope, node_input.thresholds)
        )
        if self.floor:
            above = torch.minimum(left * self.sign, right * self.sign) > 4 * threshold
            if bool((leads & ~above).any()):
                return None
            slope, pixels = slope * leads, pixels.masked_fill(~leads, -1)
        pattern = pixels if node_input.records_patterns else None
        return ActivationOutput({}, slope, NewPatchBreaks.empty(slope), pattern)

    def _gather_rows(self, node_input: NodeInput) -> tuple[Tensor, Timeline, EntryRows, list[PatchLayout]]:
        """All jumps as rows, the timeline of the windows they reach, and the layouts of the output patches.

        Rows are (k + 1, channels), the last one zero. The third result finds them by entry of the timeline and pixel.
        """
        channels, device = node_input.map_shape.channels, node_input.slope.device
        jumps, boxes, layouts = list[Tensor](), list[Tensor](), list[PatchLayout]()
        first_row = 0
        for sources, group in node_input.groups.items():
            patches = as_patch_group(group, self.source_shape)
            size = self.reach(patches.size)
            if covers(size, self.map_shape):
                size, corner = self.map_shape.size, torch.zeros_like(patches.corner)
            else:
                corner = first_readers(self.readers, patches.corner)
            pixel = box_pixels(corner, size, self.map_shape)
            jumps.append(patches.jump.reshape(-1, channels))
            boxes.append(patch_boxes(patches, first_row).repeat_interleave(pixel.shape[1], 0))
            first_row += len(jumps[-1])
            layouts.append(PatchLayout(sources, corner, size, pixel))
        rows = torch.cat([*jumps, node_input.slope.new_zeros(1, channels)])
        parts = [(layout.pixels, node_input.break_alphas.of(layout.sources)) for layout in layouts]
        timeline = Timeline(parts, len(self.windows), node_input.start, node_input.stop, device)
        entry_rows = EntryRows.of(boxes, self.source_shape, len(rows) - 1, device)
        if self.window_size <= MAX_TABLE_MEMBERS:
            entry_rows.tabulate(self.windows, timeline.pixel)
        return rows * self.sign, timeline, entry_rows, layouts


@dataclass(eq=False)
class _MaximumEvaluation:
    """One evaluation of a `MaximumPatchRule` along a segment; every block of windows writes its results here.

    Values, slopes and jumps are multiplied by the rule's sign, so that the leader is always the largest member.
    """

    rule: MaximumPatchRule
    node_input: NodeInput
    rows: Tensor  # (k + 1, channels) jumps of the input
    entry_rows: EntryRows
    candidates: Candidates
    out: Tensor  # (entries + 1, channels) written: jumps of the output
    slope: Tensor  # (output pixels, channels) written: slope of the leader just after the start
    pattern: Tensor | None  # (output pixels, channels) written: input pixel of that leader, -1 for the floor
    new_breaks: list[NewPatchBreaks] = field(default_factory=list[NewPatchBreaks])
    switches: list[PatchSwitches] = field(default_factory=list[PatchSwitches])
    tied: list[Tensor] = field(default_factory=list[Tensor])  # see `ActivationOutput`, if patterns are recorded

    def run(self, block: Block) -> None:
        """Evaluate the windows of one block."""
        x, rule, depth = self.node_input, self.rule, block.depth
        p, channels = len(block.pixels), x.map_shape.channels
        members = self.candidates.members[block.pixels]
        size = self.candidates.count
        window = rule.windows[block.pixels].gather(1, members.view(p, -1)).view_as(members)
        slopes = x.slope.new_zeros(p, depth + 1, size + rule.floor, channels)
        slopes[:, 0, :size] = _at_pixels(x.slope, window) * rule.sign
        jumps = None
        if depth:
            jumps = slopes[:, 1:, :size] = self._jumps(block, members, window)
            slopes = cumulative_sum(slopes)
        values, leader, tied, changes = self._leaders(block, slopes, window)
        if rule.floor and x.records_switches:
            self._record_floor(block, values, leader)
        self.slope[block.pixels] = slopes[:, 0].gather(1, leader[:, :1])[:, 0]
        if self.pattern is not None:
            first = window.gather(1, leader[:, :1].clamp(max=size - 1))[:, 0]
            self.pattern[block.pixels] = first.masked_fill(leader[:, 0] >= size, -1)
        if jumps is not None:
            leader_at_entry = leader[:, 1:-1]
            is_pixel = leader_at_entry < size
            change = jumps.gather(2, leader_at_entry.clamp(max=size - 1)[:, :, None])[:, :, 0] * is_pixel
            self.out.index_copy_(0, block.entries.flatten(), change.flatten(0, 1).mul_(rule.sign))
        if changes != 0:
            self.new_breaks += LeaderChanges(rule.sign, x, block, values, slopes, leader, window).find(tied, changes)

    def _record_floor(self, block: Block, values: Tensor, leader: Tensor) -> None:
        """Record the windows that leave the floor, or fall to it; on a piece without a positive value it leads."""
        positive = (values.amax(2) > 0) & (leader < self.candidates.count)  # (p, depth + 2, channels)
        above = positive[:, 1:] | positive[:, :-1]  # on pieces
        changes = torch.zeros_like(above)
        stays = ~leader_changes(leader)  # where the leader changes, that is a crossing
        changes[:, :-1] = (above[:, 1:] != above[:, :-1]) & stays[:, 1:] & stays[:, :-1]
        self.switches.append(PatchSwitches.find(block, changes, self.node_input.stop, self.rule.map_shape.pixels))

    def _jumps(
        self,
        block: Block,
        members: Tensor,  # (p, k, channels)
        window: Tensor,  # (p, k, channels) their pixels
    ) -> Tensor:
        """The jumps of members of windows at their entries, (p, depth, k, channels)."""
        p, size, channels = members.shape
        table = self.entry_rows.table
        if table is None:
            row = self.entry_rows.find(block.entries, window)
        else:
            rows = table[block.entries]  # (p, depth, window size)
            if size == rows.shape[2]:
                return self.rows.index_select(0, rows.flatten()).view(p, block.depth, size, channels)
            index = members.view(p, 1, -1).expand(-1, block.depth, -1)
            row = rows.gather(2, index).view(p, block.depth, size, channels)
        return self.rows.take(row.mul_(channels).add_(torch.arange(channels, device=row.device)))

    def _leaders(
        self,
        block: Block,
        slopes: Tensor,  # (p, depth + 1, members, channels)
        window: Tensor,  # (p, k, channels) the pixels of the candidates
    ) -> tuple[Tensor, Tensor, Tensor | None, int | None]:
        """Values, leaders, where leaders are tied (None: nowhere), and the number of changes, if known.

        Values are (p, depth + 2, members, channels) at the start, the entries and the stop; leaders are the largest
        member at each, (p, depth + 2, channels).
        """
        x, rule, size = self.node_input, self.rule, window.shape[1]
        left = x.left.new_zeros(len(window), size + rule.floor, x.map_shape.channels)
        left[:, :size] = _at_pixels(x.left, window) * rule.sign
        right = torch.zeros_like(left)
        right[:, :size] = _at_pixels(x.right, window) * rule.sign
        values = values_at_entries(block, left, slopes)
        max_drift = correct_drift(x, block, values, right)
        values[:, :, :size].masked_fill_(~self.candidates.can_lead[block.pixels][:, None], -torch.inf)
        best, leader = values.max(2)
        drift, min_lead, changes = to_host(
            max_drift, min_or_inf(_lead(values, best, leader)), leader_changes(leader).sum()
        )
        check_drift(x, drift)
        if min_lead <= 2 * x.threshold:
            leader, tied = self._refine_leaders(block, values, slopes, window)
            return values, leader, tied, None
        return values, leader, None, int(changes)

    def _refine_leaders(
        self, block: Block, values: Tensor, slopes: Tensor, window: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """The leader at every value, and where it is tied; a tie at an end of the line is not a change of leader.

        Identical members are dropped from ``values`` in place.
        """
        x = self.node_input
        self._mark_candidates(block, values, window)
        self._drop_identical_members(values, window)
        best, leader = values.max(2)
        near = _lead(values, best, leader) <= 2 * self._per_member(x.thresholds, window).amax(1)[:, None]
        if not bool(near.any()):
            return leader, None
        last = block.counts
        if x.start == 0.0 and bool(near[:, 0].any()):
            bound = self._per_member(x.end_bounds()[0], window)
            tied = values[:, 0] >= best[:, 0, None] - bound - bound.gather(1, leader[:, 0, None])
            tied_slopes = slopes[:, 0].masked_fill(~tied, -torch.inf)
            leader[:, 0] = tied_slopes.argmax(1)
            near[:, 0] = (tied_slopes == tied_slopes.amax(1, keepdim=True)).sum(1) > 1
        if x.stop == 1.0 and bool(near[:, -1].any()):
            bound = self._per_member(x.end_bounds()[1], window)
            rows = torch.arange(len(last), device=last.device)
            last_leader = leader[rows, last]  # at the last entry
            last_value = values[:, -1].gather(1, last_leader[:, None])[:, 0]
            slack = bound.gather(1, last_leader[:, None])[:, 0] + bound.gather(1, leader[:, -1, None])[:, 0]
            stays = best[:, -1] - last_value <= slack
            steps = torch.arange(leader.shape[1], device=last.device)
            at_end = (steps > last[:, None])[:, :, None] & stays[:, None, :]
            leader = torch.where(at_end, last_leader[:, None, :], leader)
            near &= ~at_end
        if not bool(near.any()):
            return leader, None
        return self._resolve_ties(block, values, leader, window, near)

    def _mark_candidates(self, block: Block, values: Tensor, window: Tensor) -> None:
        """Mark pieces along which several members may lead, so small that errors may hide them."""
        x = self.node_input
        thresholds = self._per_member(x.thresholds, window)
        largest = thresholds.amax(1)[:, None]  # (p, 1, channels)
        lead, leaders = values.topk(2, 2)
        row, piece, channel = leader_changes(leaders[:, :, 0]).nonzero(as_tuple=True)
        mark_candidates(x, block, (row, piece), values[row, piece, :, channel], values[row, piece + 1, :, channel])
        # how small a value must be is a matter of degree: less to spare above the errors at the sample points
        hides = lead[:, :, 0].abs() * AMBIGUITY_SHARE * (MAX_SAMPLE_EXCESS / SHARED_REACH) <= largest
        is_tied = (lead[:, :, 0] - lead[:, :, 1] <= 2 * largest) & hides
        pieces = is_tied[:, :-1] & is_tied[:, 1:]
        if not bool(pieces.any()):
            return
        near = values >= lead[:, :, :1] - 2 * largest[:, :, None]  # (p, depth + 2, members, channels)
        pieces &= (near[:, :-1] & near[:, 1:]).sum(2) > 1
        x.mark_candidates(block, pieces.any(2))

    def _resolve_ties(
        self, block: Block, values: Tensor, leader: Tensor, window: Tensor, near: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Decide between the best two members where they are near; of tied members, the one that leads afterwards.

        Returns the leaders, and where they are tied. Raises `NeedsDenseFallback` where that is undecided.
        """
        x = self.node_input
        row, place, channel = near.nonzero(as_tuple=True)
        here = values[row, place, :, channel]
        first = leader[row, place, channel]
        others = here.scatter(1, first[:, None], -torch.inf)
        second = others.argmax(1)
        area = self.rule.source_shape.pixels
        first_pixel, second_pixel = (member_pixel(window, row, m, channel) for m in (first, second))
        floor_leads = first_pixel < 0
        element = torch.where(floor_leads, second_pixel, first_pixel) + channel * area
        partner = (second_pixel + channel * area).masked_fill_(floor_leads | (second_pixel < 0), -1)
        difference = x.refine(block.alphas[row, place], element, partner, 0.0)[0] * self.rule.sign
        difference = torch.where(floor_leads, -difference, difference)
        is_tie = difference == 0
        third = others.scatter(1, second[:, None], -torch.inf).amax(1)
        threshold = self._per_member(x.thresholds, window).amax(1)[row, channel]
        last_here = torch.searchsorted(block.alphas[row], block.alphas[row, place][:, None], right=True)[:, 0] - 1
        after = values[row, (last_here + 1).clamp(max=values.shape[1] - 1), :, channel]
        lead_after = (after.gather(1, second[:, None]) - after.gather(1, first[:, None]))[:, 0]
        unclear = is_tie & ((place == 0) | (place > block.counts[row]) | (lead_after.abs() <= 2 * threshold))
        unclear |= here.gather(1, first[:, None])[:, 0] - third <= 2 * threshold
        if bool(unclear.any()):
            raise NeedsDenseFallback(float(block.alphas[row, place][unclear][0]))
        leader[row, place, channel] = torch.where((difference < 0) | (is_tie & (lead_after > 0)), second, first)
        tied = torch.zeros_like(near)
        tied[row, place, channel] = True
        return leader, tied

    def _drop_identical_members(self, values: Tensor, window: Tensor) -> None:
        """Set members that equal an earlier member all along the segment to minus infinity, in place."""
        if values.shape[2] > MAX_COMPARED_MEMBERS:
            return  # ties are left to the dense engine
        tolerance = self._per_member(self.node_input.min_difference, window)
        threshold = self._per_member(self.node_input.thresholds, window).amax(1)
        lead = values.topk(2, 2).values
        rows = (lead[:, :, 0] - lead[:, :, 1] <= 2 * threshold[:, None]).any(1).any(1).nonzero()[:, 0]
        near, tolerance = values[rows], tolerance[rows]
        for one in range(values.shape[2]):
            for other in range(one + 1, values.shape[2]):
                distance = (near[:, :, one] - near[:, :, other]).abs()  # NaN where both were dropped
                identical = (distance <= (tolerance[:, one] + tolerance[:, other])[:, None]).all(1)
                if self.pattern is not None and bool(identical.any()):
                    self._record_ties(near, identical, window[rows], one, other)
                near[:, :, other].masked_fill_(identical[:, None], -torch.inf)
        values[rows] = near

    def _record_ties(self, values: Tensor, identical: Tensor, window: Tensor, one: int, other: int) -> None:
        """Record the input elements of two members that are equal all along the segment and lead somewhere."""
        row, channel = identical.nonzero(as_tuple=True)
        here = values[row, :, :, channel]  # (k, depth + 2, members)
        leads = (here[:, :, one] >= here.amax(2)).any(1)
        row, channel = row[leads], channel[leads]
        pixels = [member_pixel(window, row, torch.full_like(row, member), channel) for member in (one, other)]
        area = self.rule.source_shape.pixels
        self.tied.append(torch.stack([(p + channel * area).masked_fill_(p < 0, -1) for p in pixels], 1))

    def _per_member(self, numbers: Tensor, window: Tensor) -> Tensor:
        """Numbers (pixels, channels) of the members of windows, (p, members, channels); 0 for the floor."""
        gathered = _at_pixels(numbers, window)
        return torch.cat([gathered, torch.zeros_like(gathered[:, :1])], 1) if self.rule.floor else gathered


def _at_pixels(numbers: Tensor, window: Tensor) -> Tensor:
    """Numbers (pixels, channels) at the pixels of windows (p, k, channels)."""
    return numbers.gather(0, window.view(-1, window.shape[2])).view(window.shape)


def _lead(values: Tensor, best: Tensor, leader: Tensor) -> Tensor:
    """How far leaders are ahead of all other members, (p, depth + 2, channels)."""
    return best - values.scatter(2, leader[:, :, None], -torch.inf).amax(2)
