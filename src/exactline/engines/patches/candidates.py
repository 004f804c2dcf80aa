"""The members of max windows that can lead somewhere on a segment; all others are left out of the comparison.

A member that is below another one all along the segment never leads. The largest and smallest value of every member
along a segment cost as much as a pointwise activation. They reduce most windows to one or a few members, separately in
every channel, before values are compared at every break.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .fused import value_ranges
from .pointwise import gather_rows
from .timeline import (
    NodeInput,
    SegmentTooLarge,
    check_drift,
    correct_drift,
    cumulative_sum,
    max_straight_drift,
    to_host,
    values_at_entries,
)

if TYPE_CHECKING:
    from .maxpool import MaximumPatchRule

# By device: members of windows, in all channels, that are compared at a time.
MAX_BLOCK_NUMBERS = {"cpu": 1 << 20, "cuda": 1 << 26}


@dataclass(frozen=True, eq=False)
class Candidates:
    """The members of every window that are compared, separately in every channel."""

    members: Tensor  # (output pixels, k, channels) positions in the window, in ascending order
    can_lead: Tensor  # (output pixels, k, channels) False for members that only fill up windows with fewer candidates

    @property
    def count(self) -> int:
        """Members per window that are compared."""
        return self.members.shape[1]

    @staticmethod
    def select(can_lead: Tensor) -> Candidates | None:
        """The members that can lead, (w, window size, channels), if they are few; None if a selection does not pay."""
        count = max(1, int(can_lead.sum(1).max()))
        if 2 * count > can_lead.shape[1]:
            return None
        members = (~can_lead).to(torch.uint8).argsort(dim=1, stable=True)[:, :count].clone()
        return Candidates(members, can_lead.gather(1, members))

    @staticmethod
    def join(parts: list[Candidates]) -> Candidates:
        """The candidates of several blocks of windows; windows with fewer are filled up."""
        count = max(part.count for part in parts)
        members, can_lead = (
            torch.cat([torch.nn.functional.pad(t, (0, 0, 0, count - t.shape[1])) for t in column])
            for column in zip(*((part.members, part.can_lead) for part in parts), strict=True)
        )
        return Candidates(members, can_lead)


def find_candidates(node_input: NodeInput, rule: MaximumPatchRule) -> Candidates:
    """The members of every window that may lead, or tie with the leader, somewhere on the segment.

    Raises `SegmentTooLarge` if they are too many.
    """
    low, high = _value_ranges(node_input, rule.sign)
    size, channels = rule.windows.shape[1], node_input.map_shape.channels
    step = max(1, MAX_BLOCK_NUMBERS.get(low.device.type, 1 << 20) // (size * channels))
    # which of equal members leads matters to gradients at themselves
    repeats = rule.repeated_pixels if node_input.records_patterns else rule.repeated_members
    blocks = list(zip(rule.windows.split(step), repeats.split(step), strict=True))
    parts = [Candidates.select(_can_lead(node_input, rule, low, high, *block)) for block in blocks]
    if all(part is not None for part in parts):
        return Candidates.join([part for part in parts if part is not None])
    if rule.windows.numel() * channels > node_input.max_numbers:
        raise SegmentTooLarge  # too many members may lead: fewer do on a shorter segment
    can_lead = torch.cat([_can_lead(node_input, rule, low, high, *block) for block in blocks])
    return Candidates(torch.arange(size, device=can_lead.device)[None, :, None].expand_as(can_lead), can_lead)


def _can_lead(
    node_input: NodeInput, rule: MaximumPatchRule, low: Tensor, high: Tensor, windows: Tensor, repeats: Tensor
) -> Tensor:
    """(w, window size, channels) whether a member may lead, or tie with the leader, somewhere on the segment."""
    lowest_maximum = low[windows].amax(1)  # (w, channels)
    if rule.floor:
        lowest_maximum = lowest_maximum.clamp(min=0)
    thresholds, highest = node_input.thresholds[windows], high[windows]
    can_lead = highest >= (lowest_maximum - 4 * thresholds.amax(1))[:, None]
    return can_lead & ~repeats


def mark_repeats(windows: Tensor) -> Tensor:
    """Whether an earlier entry of the window is equal, for windows (w, size, channels)."""
    entries, order = windows.sort(dim=1, stable=True)
    repeats = torch.zeros_like(entries, dtype=torch.bool)
    repeats[:, 1:] = entries[:, 1:] == entries[:, :-1]
    return torch.zeros_like(repeats).scatter_(1, order, repeats)


def _value_ranges(node_input: NodeInput, sign: int) -> tuple[Tensor, Tensor]:
    """The smallest and the largest value of every element along the segment, times ``sign``, (pixels, channels) each.

    Between breaks values are affine, so that their ranges are found at the breaks.
    """
    if not node_input.groups:
        check_drift(node_input, float(max_straight_drift(node_input)))
        low, high = torch.aminmax(torch.stack([node_input.left, node_input.right]), dim=0)
        return (low, high) if sign > 0 else (-high, -low)
    rows, timeline, _ = gather_rows(node_input)
    if (ranges := value_ranges(node_input, rows, timeline)) is not None:
        low, high = ranges
        return (low, high) if sign > 0 else (-high, -low)
    channels = node_input.map_shape.channels
    low, high = torch.empty_like(node_input.left), torch.empty_like(node_input.left)
    drifts: list[Tensor] = []
    for block in timeline.blocks(channels):
        slopes = node_input.slope.new_empty(len(block.pixels), block.depth + 1, channels)
        slopes[:, 0] = node_input.slope[block.pixels]
        if block.depth:
            slopes[:, 1:] = rows.index_select(0, block.entries.flatten()).view(-1, block.depth, channels)
            slopes = cumulative_sum(slopes)
        values = values_at_entries(block, node_input.left[block.pixels], slopes)
        drifts.append(correct_drift(node_input, block, values, node_input.right[block.pixels]))
        low[block.pixels], high[block.pixels] = torch.aminmax(values, dim=1)
    check_drift(node_input, max(to_host(*drifts), default=0.0) if drifts else 0.0)
    return (low, high) if sign > 0 else (-high, -low)
