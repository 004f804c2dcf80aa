"""Patches through maxima: only what the leader of a window does comes out, and breaks are born where it changes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from .channelwise import ReceptiveReach, first_and_last
from .patch import (
    MapShape,
    PatchGroup,
    PatchLayout,
    as_patch_group,
    as_whole_maps,
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
    Timeline,
    check_drift,
    cumulative_sum,
    drift,
    nonzero,
    smallest,
    to_host,
    values_at_entries,
)


@dataclass(frozen=True, eq=False)
class MaximumRule:
    """The largest of some pixels in every channel, the same pixels in all of them; with ``floor``, 0 too."""

    windows: Tensor  # (output pixels, members) input pixels; repeated ones stand for one
    source_shape: MapShape
    map_shape: MapShape
    sign: int
    floor: bool

    @cached_property
    def bounds(self) -> tuple[Tensor, Tensor]:
        """For rows, then for columns: the first and the last output that reads each input."""
        rows, columns = self.source_shape[1], self.source_shape[2]
        y, x = self.windows // columns, self.windows % columns
        by_row = torch.zeros(self.map_shape[1], rows, dtype=torch.bool, device=y.device)
        by_column = torch.zeros(self.map_shape[2], columns, dtype=torch.bool, device=y.device)
        out = torch.arange(len(self.windows), device=y.device)[:, None].expand_as(y)
        by_row[out // self.map_shape[2], y] = True
        by_column[out % self.map_shape[2], x] = True
        return first_and_last(by_row), first_and_last(by_column)

    @cached_property
    def _has_duplicates(self) -> bool:
        return bool(self.duplicates.any())

    @cached_property
    def duplicates(self) -> Tensor:
        """(output pixels, members) whether an earlier member is the same pixel."""
        same = self.windows[:, :, None] == self.windows[:, None, :]
        return torch.tril(same, -1).any(2)

    @cached_property
    def reach(self) -> ReceptiveReach:
        """How many outputs patches of a size reach."""
        return ReceptiveReach(self.bounds)

    def output_size(self, size: tuple[int, int]) -> tuple[int, int]:
        return stored_size(self.reach(size), self.map_shape)

    def apply(self, stage: NodeInput) -> ActivationOutput:
        """Follow the members of every window along the stretch."""
        rows, timeline, members, frames = self._gather(stage)
        channels = stage.map_shape[0]
        out = rows.new_zeros(len(timeline.pixel) + 1, channels)
        slope, born = stage.slope.new_empty(self.map_shape[1] * self.map_shape[2], channels), list[NewPatchBreaks]()
        for block in timeline.blocks(channels * (self.windows.shape[1] + self.floor)):
            self._follow(stage, block, rows, members, out, slope, born)
        found = NewPatchBreaks.join(born) if born else NewPatchBreaks.none(slope)
        return ActivationOutput(regroup(out, frames, timeline.pixel, self.map_shape), slope * self.sign, found)

    def _gather(self, stage: NodeInput) -> tuple[Tensor, Timeline, Tensor, list[PatchLayout]]:
        """Rows of all patches, when they come to which window, and which row each member of it has then."""
        channels, device = stage.map_shape[0], stage.slope.device
        parts, members, frames = list[Tensor](), list[Tensor](), list[PatchLayout]()
        at = 0
        for births, group in stage.groups.items():
            patches = as_patch_group(group, self.source_shape)
            reach = self.reach(patches.size)
            if covers(reach, self.map_shape):
                patches = as_whole_maps(patches, self.source_shape)
                reach, top = (self.map_shape[1], self.map_shape[2]), torch.zeros_like(patches.corner)
            else:
                firsts = [b[patches.corner[:, k].clamp(0, len(b) - 1), 0] for k, b in enumerate(self.bounds)]
                top = torch.stack(firsts, 1)
            pixel, row = self._members(patches, top, reach, at)
            parts.append(patches.jump.reshape(-1, channels))
            at += len(parts[-1])
            members.append(row)
            frames.append(PatchLayout(births, top, reach, pixel))
        rows = torch.cat([*parts, stage.slope.new_zeros(1, channels)])
        none = torch.full((1, self.windows.shape[1]), -1, device=device)
        found = torch.cat([*members, none])
        found = torch.where(found < 0, len(rows) - 1, found)
        timed = [(frame.pixels, stage.times.of(frame.sources)) for frame in frames]
        return rows * self.sign, Timeline(timed, len(self.windows), stage, device), found, frames

    def _members(self, patches: PatchGroup, top: Tensor, reach: tuple[int, int], first: int) -> tuple[Tensor, Tensor]:
        """The output pixel of every place of the new patches, and the row of each member of its window, or -1."""
        device, places = top.device, self.map_shape[1] * self.map_shape[2]
        pixel = box_pixels(top, reach, self.map_shape)
        window = self.windows[pixel.clamp(max=places - 1)]  # (n, places, members)
        rows, columns = patches.size
        v = window // self.source_shape[2] - patches.corner[:, 0, None, None]
        u = window % self.source_shape[2] - patches.corner[:, 1, None, None]
        held = (v >= 0) & (v < rows) & (u >= 0) & (u < columns)
        base = first + torch.arange(len(patches), device=device)[:, None, None] * (rows * columns)
        row = torch.where(held, base + v * columns + u, -1)
        return pixel, row.flatten(0, 1)

    def _follow(
        self,
        stage: NodeInput,
        block: Block,
        rows: Tensor,
        members: Tensor,  # (entries + 1, members)
        out: Tensor,  # (entries + 1, channels), written
        slope: Tensor,
        born: list[NewPatchBreaks],
    ) -> None:
        p, channels, deep, count = len(block.pixels), stage.map_shape[0], block.deep, self.windows.shape[1]
        entry = block.entry
        window = self.windows[block.pixels]
        slopes = stage.slope.new_zeros(p, deep + 1, count + self.floor, channels)
        slopes[:, 0, :count] = stage.slope[window] * self.sign
        jumps = None
        if deep:
            jumps = rows.index_select(0, members[entry].flatten()).view(p, deep, count, channels)
            slopes[:, 1:, :count] = jumps
            slopes = cumulative_sum(slopes)
        left = stage.left.new_zeros(p, count + self.floor, channels)
        left[:, :count] = stage.left[window] * self.sign
        right = torch.zeros_like(left)
        right[:, :count] = stage.right[window] * self.sign
        values = values_at_entries(block, left, slopes)
        off = drift(stage, block, values, right)
        if self._has_duplicates:
            values[:, :, :count].masked_fill_(self.duplicates[block.pixels][:, None, :, None], -torch.inf)
        best, leader = values.max(2)
        worst, nearest, changes = to_host(
            off, smallest(_lead_margin(values, best, leader)), _leader_changes(leader).sum()
        )
        check_drift(stage, worst)
        tied, known = None, int(changes)
        if nearest <= 2 * stage.threshold:
            (leader, tied), known = self._leaders(stage, block, values, slopes, window), None
        slope[block.pixels] = slopes[:, 0].gather(1, leader[:, :1])[:, 0]
        if jumps is not None:
            taken = leader[:, 1:-1]
            inside = taken < count
            change = jumps.gather(2, taken.clamp(max=count - 1)[:, :, None])[:, :, 0] * inside
            out.index_copy_(0, entry.flatten(), change.flatten(0, 1).mul_(self.sign))
        if known == 0:
            return
        row, piece, channel = nonzero(_leader_changes(leader), known)
        meets = tied[row, piece + 1, channel] if tied is not None else torch.zeros_like(row, dtype=torch.bool)
        born += self._follow_leader(stage, block, values, slopes, leader, window, row, piece, channel, meets)

    def _leaders(
        self, stage: NodeInput, block: Block, values: Tensor, slopes: Tensor, window: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """The leader at every value, and where it is tied with another; at the ends of the line a tie is no change."""
        self._drop_identical_members(stage, values, window)
        best, leader = values.max(2)
        gap = _lead_margin(values, best, leader)
        near = gap <= 2 * self._of_members(stage.thresholds, window).amax(1)[:, None]
        if not bool(near.any()):
            return leader, None
        before, after = stage.end_bounds
        last = block.counts
        if before is not None:
            bound = self._of_members(before, window)
            tied = values[:, 0] >= best[:, 0, None] - bound - bound.gather(1, leader[:, 0, None])
            steep = torch.where(tied, slopes[:, 0], -torch.inf)
            leader[:, 0] = steep.argmax(1)
            near[:, 0] = (steep == steep.amax(1, keepdim=True)).sum(1) > 1
        if after is not None:
            bound = self._of_members(after, window)
            rows = torch.arange(len(last), device=last.device)
            came = leader[rows, last]  # at the last entry
            kept = values[:, -1].gather(1, came[:, None])[:, 0]
            slack = bound.gather(1, came[:, None])[:, 0] + bound.gather(1, leader[:, -1, None])[:, 0]
            stays = best[:, -1] - kept <= slack
            steps = torch.arange(leader.shape[1], device=last.device)
            ends = (steps > last[:, None])[:, :, None] & stays[:, None, :]
            leader = torch.where(ends, came[:, None, :], leader)
            near &= ~ends
        if not bool(near.any()):
            return leader, None
        return self._refine_leaders(stage, block, values, leader, window, near)

    def _refine_leaders(
        self, stage: NodeInput, block: Block, values: Tensor, leader: Tensor, window: Tensor, near: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The same where the best two are close; of those that are tied the one leads that leads after it."""
        row, place, channel = near.nonzero(as_tuple=True)
        here = values[row, place, :, channel]
        first = leader[row, place, channel]
        rest = here.scatter(1, first[:, None], -torch.inf)
        second = rest.argmax(1)
        places = self.source_shape[1] * self.source_shape[2]
        one, other = self._element(window, row, first), self._element(window, row, second)
        floored = one < 0
        element = torch.where(floored, other, one) + channel * places
        partner = torch.where(floored | (other < 0), -1, other + channel * places)
        apart = stage.refine(block.times[row, place], element, partner, 0.0)[0] * self.sign
        apart = torch.where(floored, -apart, apart)
        tie = apart == 0
        third = rest.scatter(1, second[:, None], -torch.inf).amax(1)
        usual = self._of_members(stage.thresholds, window).amax(1)[row, channel]
        ends = torch.searchsorted(block.times[row], block.times[row, place][:, None], right=True)[:, 0] - 1
        after = values[row, (ends + 1).clamp(max=values.shape[1] - 1), :, channel]
        ahead = (after.gather(1, second[:, None]) - after.gather(1, first[:, None]))[:, 0]
        unclear = tie & ((place == 0) | (place > block.counts[row]) | (ahead.abs() <= 2 * usual))
        unclear |= here.gather(1, first[:, None])[:, 0] - third <= 2 * usual
        if bool(unclear.any()):
            raise NeedsDenseFallback(float(block.times[row, place][unclear][0]))
        leader[row, place, channel] = torch.where((apart < 0) | (tie & (ahead > 0)), second, first)
        tied = torch.zeros_like(near)
        tied[row, place, channel] = True
        return leader, tied

    def _drop_identical_members(self, stage: NodeInput, values: Tensor, window: Tensor) -> None:
        """Members that are never apart from one before them all along are left out, in place."""
        fuzz = self._of_members(stage.min_difference, window)
        for one in range(values.shape[2]):
            for other in range(one + 1, values.shape[2]):
                apart = (values[:, :, one] - values[:, :, other]).abs()  # not a number where both were left out
                twins = (apart <= (fuzz[:, one] + fuzz[:, other])[:, None]).all(1)
                values[:, :, other].masked_fill_(twins[:, None], -torch.inf)

    def _of_members(self, numbers: Tensor, window: Tensor) -> Tensor:
        """What belongs to pixels as (p, members, channels), none for the floor."""
        found = numbers[window]
        return torch.cat([found, torch.zeros_like(found[:, :1])], 1) if self.floor else found

    def _follow_leader(
        self, stage: NodeInput, block: Block, values: Tensor, slopes: Tensor, leader: Tensor, window: Tensor,
        row: Tensor, piece: Tensor, channel: Tensor, meets: Tensor,
    ) -> list[NewPatchBreaks]:  # fmt: skip
        """From the leader at one end of a piece to that at the other, by whoever overtakes first; some meet there."""
        start, rate = values[row, piece, :, channel], slopes[row, piece, :, channel]
        now, then = leader[row, piece, channel], leader[row, piece + 1, channel]
        begins, width = block.times[row, piece], block.widths[row, piece]
        count, area = self.windows.shape[1], self.source_shape[1] * self.source_shape[2]
        found: list[NewPatchBreaks] = []
        gone = torch.zeros_like(begins)
        for _ in range(count + self.floor):
            at = now[:, None]
            behind, faster = start.gather(1, at) - start, rate - rate.gather(1, at)
            meet = torch.where((faster > 0) & (behind < torch.inf), behind / faster, torch.inf)
            meet = torch.maximum(meet, gone[:, None])
            first = meet.amin(1, keepdim=True)
            rival = torch.where(meet == first, faster, -torch.inf).argmax(1)
            gone = first[:, 0]
            late = meets & (gone > width)
            rival, gone = torch.where(late, then, rival), torch.where(late, width, gone)
            gain = faster.gather(1, rival[:, None])[:, 0].abs()
            one, other = self._element(window, row, rival), self._element(window, row, now)
            partner = torch.where((one < 0) | (other < 0), -1, other + channel * area)
            element = torch.where(one < 0, other, one) + channel * area
            alpha = torch.where(gone == width, block.times[row, piece + 1], begins + gone)
            found.append(
                NewPatchBreaks(alpha, block.pixels[row], channel, gain * self.sign, gain, element, partner, gain, True)
            )
            going = rival != then
            left, beyond = to_host(going.sum(), (gone > width).sum())
            if beyond:
                raise NeedsDenseFallback(float(begins[gone > width][0]))
            if not left:
                return found
            (on,) = nonzero(going, int(left))
            wholes = torch.stack([row, piece, channel, then, rival]).index_select(1, on)
            reals = torch.stack([begins, width, gone]).index_select(1, on)
            row, piece, channel, then, now = wholes
            begins, width, gone = reals
            start, rate, meets = start.index_select(0, on), rate.index_select(0, on), meets.index_select(0, on)
        raise NeedsDenseFallback(float(begins[0]))

    def _element(self, window: Tensor, row: Tensor, member: Tensor) -> Tensor:
        """The input pixel of a member of some windows, -1 for the floor."""
        count = window.shape[1]
        return torch.where(member < count, window[row, member.clamp(max=count - 1)], -1)


def _leader_changes(leader: Tensor) -> Tensor:
    """Where the leader at one place is not the one at the next."""
    return leader[:, 1:] != leader[:, :-1]


def _lead_margin(values: Tensor, best: Tensor, leader: Tensor) -> Tensor:
    """How far ahead of all others leaders are, (p, deep + 2, channels)."""
    return best - values.scatter(2, leader[:, :, None], -torch.inf).amax(2)
