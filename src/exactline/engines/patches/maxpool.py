"""Patches through maxima: only what the leader of a window does comes out, and breaks are born where it changes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from .channelwise import Reach, bounds_of
from .patch import Frame, Grid, Patches, covers, kept, patches_of, pixels_of, regrouped, whole
from .timeline import (
    Block,
    Born,
    Doubt,
    Stage,
    Timeline,
    Turned,
    checked,
    least,
    lost,
    places,
    running,
    told,
    values_of,
)


@dataclass(frozen=True, eq=False)
class Leading:
    """The largest of some pixels in every channel, the same pixels in all of them; with ``floor``, 0 too."""

    windows: Tensor  # (output pixels, members) input pixels; repeated ones stand for one
    source: Grid
    grid: Grid
    sign: int
    floor: bool

    @cached_property
    def bounds(self) -> tuple[Tensor, Tensor]:
        """For rows, then for columns: the first and the last output that reads each input."""
        rows, columns = self.source[1], self.source[2]
        y, x = self.windows // columns, self.windows % columns
        by_row = torch.zeros(self.grid[1], rows, dtype=torch.bool, device=y.device)
        by_column = torch.zeros(self.grid[2], columns, dtype=torch.bool, device=y.device)
        out = torch.arange(len(self.windows), device=y.device)[:, None].expand_as(y)
        by_row[out // self.grid[2], y] = True
        by_column[out % self.grid[2], x] = True
        return bounds_of(by_row), bounds_of(by_column)

    @cached_property
    def _repeats(self) -> bool:
        return bool(self.repeated.any())

    @cached_property
    def repeated(self) -> Tensor:
        """(output pixels, members) whether an earlier member is the same pixel."""
        same = self.windows[:, :, None] == self.windows[:, None, :]
        return torch.tril(same, -1).any(2)

    @cached_property
    def reach(self) -> Reach:
        """How many outputs patches of a size reach."""
        return Reach(self.bounds)

    def size(self, size: tuple[int, int]) -> tuple[int, int]:
        return kept(self.reach(size), self.grid)

    def turn(self, stage: Stage) -> Turned:
        """Follow the members of every window along the stretch."""
        rows, timeline, members, frames = self._gathered(stage)
        channels = stage.grid[0]
        out = rows.new_zeros(len(timeline.pixel) + 1, channels)
        slope, born = stage.slope.new_empty(self.grid[1] * self.grid[2], channels), list[Born]()
        for block in timeline.blocks(channels * (self.windows.shape[1] + self.floor)):
            self._follow(stage, block, rows, members, out, slope, born)
        found = Born.join(born) if born else Born.none(slope)
        return Turned(regrouped(out, frames, timeline.pixel, self.grid), slope * self.sign, found)

    def _gathered(self, stage: Stage) -> tuple[Tensor, Timeline, Tensor, list[Frame]]:
        """Rows of all patches, when they come to which window, and which row each member of it has then."""
        channels, device = stage.grid[0], stage.slope.device
        parts, members, frames = list[Tensor](), list[Tensor](), list[Frame]()
        at = 0
        for births, group in stage.groups.items():
            patches = patches_of(group, self.source)
            reach = self.reach(patches.size)
            if covers(reach, self.grid):
                patches = whole(patches, self.source)
                reach, top = (self.grid[1], self.grid[2]), torch.zeros_like(patches.top)
            else:
                firsts = [b[patches.top[:, k].clamp(0, len(b) - 1), 0] for k, b in enumerate(self.bounds)]
                top = torch.stack(firsts, 1)
            pixel, row = self._members(patches, top, reach, at)
            parts.append(patches.jump.reshape(-1, channels))
            at += len(parts[-1])
            members.append(row)
            frames.append(Frame(births, top, reach, pixel))
        rows = torch.cat([*parts, stage.slope.new_zeros(1, channels)])
        none = torch.full((1, self.windows.shape[1]), -1, device=device)
        found = torch.cat([*members, none])
        found = torch.where(found < 0, len(rows) - 1, found)
        timed = [(frame.pixels, stage.times.of(frame.births)) for frame in frames]
        return rows * self.sign, Timeline(timed, len(self.windows), stage, device), found, frames

    def _members(self, patches: Patches, top: Tensor, reach: tuple[int, int], first: int) -> tuple[Tensor, Tensor]:
        """The output pixel of every place of the new patches, and the row of each member of its window, or -1."""
        device, places = top.device, self.grid[1] * self.grid[2]
        pixel = pixels_of(top, reach, self.grid)
        window = self.windows[pixel.clamp(max=places - 1)]  # (n, places, members)
        rows, columns = patches.size
        v = window // self.source[2] - patches.top[:, 0, None, None]
        u = window % self.source[2] - patches.top[:, 1, None, None]
        held = (v >= 0) & (v < rows) & (u >= 0) & (u < columns)
        base = first + torch.arange(len(patches), device=device)[:, None, None] * (rows * columns)
        row = torch.where(held, base + v * columns + u, -1)
        return pixel, row.flatten(0, 1)

    def _follow(
        self,
        stage: Stage,
        block: Block,
        rows: Tensor,
        members: Tensor,  # (entries + 1, members)
        out: Tensor,  # (entries + 1, channels), written
        slope: Tensor,
        born: list[Born],
    ) -> None:
        p, channels, deep, count = len(block.pixels), stage.grid[0], block.deep, self.windows.shape[1]
        entry = block.entry
        window = self.windows[block.pixels]
        slopes = stage.slope.new_zeros(p, deep + 1, count + self.floor, channels)
        slopes[:, 0, :count] = stage.slope[window] * self.sign
        jumps = None
        if deep:
            jumps = rows.index_select(0, members[entry].flatten()).view(p, deep, count, channels)
            slopes[:, 1:, :count] = jumps
            slopes = running(slopes)
        left = stage.left.new_zeros(p, count + self.floor, channels)
        left[:, :count] = stage.left[window] * self.sign
        right = torch.zeros_like(left)
        right[:, :count] = stage.right[window] * self.sign
        values = values_of(block, left, slopes)
        off = lost(stage, block, values, right)
        if self._repeats:
            values[:, :, :count].masked_fill_(self.repeated[block.pixels][:, None, :, None], -torch.inf)
        best, leader = values.max(2)
        worst, nearest, changes = told(off, least(_ahead(values, best, leader)), _changed(leader).sum())
        checked(stage, worst)
        tied, known = None, int(changes)
        if nearest <= 2 * stage.clear:
            (leader, tied), known = self._told(stage, block, values, slopes, window), None
        slope[block.pixels] = slopes[:, 0].gather(1, leader[:, :1])[:, 0]
        if jumps is not None:
            taken = leader[:, 1:-1]
            inside = taken < count
            change = jumps.gather(2, taken.clamp(max=count - 1)[:, :, None])[:, :, 0] * inside
            out.index_copy_(0, entry.flatten(), change.flatten(0, 1).mul_(self.sign))
        if known == 0:
            return
        row, piece, channel = places(_changed(leader), known)
        meets = tied[row, piece + 1, channel] if tied is not None else torch.zeros_like(row, dtype=torch.bool)
        born += self._march(stage, block, values, slopes, leader, window, row, piece, channel, meets)

    def _told(
        self, stage: Stage, block: Block, values: Tensor, slopes: Tensor, window: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """The leader at every value, and where it is tied with another; at the ends of the line a tie is no change."""
        self._leave_out_twins(stage, values, window)
        best, leader = values.max(2)
        gap = _ahead(values, best, leader)
        near = gap <= 2 * self._of_members(stage.usual, window).amax(1)[:, None]
        if not bool(near.any()):
            return leader, None
        before, after = stage.closed
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
        return self._closely(stage, block, values, leader, window, near)

    def _closely(
        self, stage: Stage, block: Block, values: Tensor, leader: Tensor, window: Tensor, near: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The same where the best two are close; of those that are tied the one leads that leads after it."""
        row, place, channel = near.nonzero(as_tuple=True)
        here = values[row, place, :, channel]
        first = leader[row, place, channel]
        rest = here.scatter(1, first[:, None], -torch.inf)
        second = rest.argmax(1)
        places = self.source[1] * self.source[2]
        one, other = self._element(window, row, first), self._element(window, row, second)
        floored = one < 0
        element = torch.where(floored, other, one) + channel * places
        partner = torch.where(floored | (other < 0), -1, other + channel * places)
        apart = stage.judge(block.times[row, place], element, partner, 0.0)[0] * self.sign
        apart = torch.where(floored, -apart, apart)
        tie = apart == 0
        third = rest.scatter(1, second[:, None], -torch.inf).amax(1)
        usual = self._of_members(stage.usual, window).amax(1)[row, channel]
        ends = torch.searchsorted(block.times[row], block.times[row, place][:, None], right=True)[:, 0] - 1
        after = values[row, (ends + 1).clamp(max=values.shape[1] - 1), :, channel]
        ahead = (after.gather(1, second[:, None]) - after.gather(1, first[:, None]))[:, 0]
        unclear = tie & ((place == 0) | (place > block.counts[row]) | (ahead.abs() <= 2 * usual))
        unclear |= here.gather(1, first[:, None])[:, 0] - third <= 2 * usual
        if bool(unclear.any()):
            raise Doubt(float(block.times[row, place][unclear][0]))
        leader[row, place, channel] = torch.where((apart < 0) | (tie & (ahead > 0)), second, first)
        tied = torch.zeros_like(near)
        tied[row, place, channel] = True
        return leader, tied

    def _leave_out_twins(self, stage: Stage, values: Tensor, window: Tensor) -> None:
        """Members that are never apart from one before them all along are left out, in place."""
        fuzz = self._of_members(stage.least, window)
        for one in range(values.shape[2]):
            for other in range(one + 1, values.shape[2]):
                apart = (values[:, :, one] - values[:, :, other]).abs()  # not a number where both were left out
                twins = (apart <= (fuzz[:, one] + fuzz[:, other])[:, None]).all(1)
                values[:, :, other].masked_fill_(twins[:, None], -torch.inf)

    def _of_members(self, numbers: Tensor, window: Tensor) -> Tensor:
        """What belongs to pixels as (p, members, channels), none for the floor."""
        found = numbers[window]
        return torch.cat([found, torch.zeros_like(found[:, :1])], 1) if self.floor else found

    def _march(
        self, stage: Stage, block: Block, values: Tensor, slopes: Tensor, leader: Tensor, window: Tensor,
        row: Tensor, piece: Tensor, channel: Tensor, meets: Tensor,
    ) -> list[Born]:  # fmt: skip
        """From the leader at one end of a piece to that at the other, by whoever overtakes first; some meet there."""
        start, rate = values[row, piece, :, channel], slopes[row, piece, :, channel]
        now, then = leader[row, piece, channel], leader[row, piece + 1, channel]
        begins, width = block.times[row, piece], block.widths[row, piece]
        count, area = self.windows.shape[1], self.source[1] * self.source[2]
        found: list[Born] = []
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
            found.append(Born(alpha, block.pixels[row], channel, gain * self.sign, gain, element, partner, gain, True))
            going = rival != then
            left, beyond = told(going.sum(), (gone > width).sum())
            if beyond:
                raise Doubt(float(begins[gone > width][0]))
            if not left:
                return found
            (on,) = places(going, int(left))
            wholes = torch.stack([row, piece, channel, then, rival]).index_select(1, on)
            reals = torch.stack([begins, width, gone]).index_select(1, on)
            row, piece, channel, then, now = wholes
            begins, width, gone = reals
            start, rate, meets = start.index_select(0, on), rate.index_select(0, on), meets.index_select(0, on)
        raise Doubt(float(begins[0]))

    def _element(self, window: Tensor, row: Tensor, member: Tensor) -> Tensor:
        """The input pixel of a member of some windows, -1 for the floor."""
        count = window.shape[1]
        return torch.where(member < count, window[row, member.clamp(max=count - 1)], -1)


def _changed(leader: Tensor) -> Tensor:
    """Where the leader at one place is not the one at the next."""
    return leader[:, 1:] != leader[:, :-1]


def _ahead(values: Tensor, best: Tensor, leader: Tensor) -> Tensor:
    """How far ahead of all others leaders are, (p, deep + 2, channels)."""
    return best - values.scatter(2, leader[:, :, None], -torch.inf).amax(2)
