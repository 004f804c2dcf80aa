"""Where the leader of a max window changes: the breaks that a maximum adds."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...ops.window_lines import parts_tied_for_lead
from ...tolerances import AMBIGUITY_SHARE
from .timeline import Block, NeedsDenseFallback, NewPatchBreaks, NodeInput, nonzero, to_host


@dataclass(frozen=True, eq=False)
class LeaderChanges:
    """The breaks inside the pieces of a block whose leader differs at their two ends."""

    sign: int  # -1 for the minimum
    node_input: NodeInput
    block: Block
    values: Tensor  # (p, depth + 2, members, channels)
    slopes: Tensor  # (p, depth + 1, members, channels)
    leader: Tensor  # (p, depth + 2, channels)
    window: Tensor  # (p, k, channels) the pixels of the candidates

    def find(
        self,
        tied: Tensor | None,  # (p, depth + 2, channels) where leaders are tied
        count: int | None,  # number of pieces, if known
    ) -> list[NewPatchBreaks]:
        """Walk from the leader at the start of each piece to the one at its end, from overtaking to overtaking.

        A tie overtakes at the end of the piece, if not before. A member that equals the leader all along the segment
        does not overtake it: rounding alone decides when it would.
        """
        block, sign, area = self.block, self.sign, self.node_input.map_shape.pixels
        row, piece, channel = nonzero(leader_changes(self.leader), count)
        ends_tied = tied[row, piece + 1, channel] if tied is not None else torch.zeros_like(row, dtype=torch.bool)
        value, slope = self.values[row, piece, :, channel], self.slopes[row, piece, :, channel]
        leader, last_leader = self.leader[row, piece, channel], self.leader[row, piece + 1, channel]
        piece_start, width = block.alphas[row, piece], block.widths[row, piece]
        mark_candidates(self.node_input, block, (row, piece), value, value + slope * width[:, None])
        breaks: list[NewPatchBreaks] = []
        position = torch.zeros_like(piece_start)  # of the current leader change, relative to piece_start
        for _ in range(2 * self.values.shape[2]):
            index = leader[:, None]
            behind, faster = value.gather(1, index) - value, slope - slope.gather(1, index)
            meets = (behind / faster).masked_fill_(~((faster > 0) & (behind < torch.inf)), torch.inf)
            meets = torch.maximum(meets, position[:, None])
            earliest = meets.amin(1, keepdim=True)
            challenger = faster.masked_fill(meets != earliest, -torch.inf).argmax(1)
            gain = faster.gather(1, challenger[:, None])[:, 0].abs()
            is_slow = (gain * width <= 2 * self.node_input.threshold) & (challenger != last_leader)
            if bool(is_slow.any()):
                equal = is_slow.nonzero()[:, 0]
                equal = equal[self._are_equal(row[equal], leader[equal], challenger[equal], channel[equal])]
                if len(equal):
                    value[equal, challenger[equal]] = -torch.inf
                    continue
            position = earliest[:, 0]
            late = ends_tied & (position > width)
            challenger, position = torch.where(late, last_leader, challenger), torch.where(late, width, position)
            gain = faster.gather(1, challenger[:, None])[:, 0].abs()
            new_pixel, old_pixel = (member_pixel(self.window, row, m, channel) for m in (challenger, leader))
            partner = (old_pixel + channel * area).masked_fill_((new_pixel < 0) | (old_pixel < 0), -1)
            element = torch.where(new_pixel < 0, old_pixel, new_pixel) + channel * area
            alpha = torch.where(position == width, block.alphas[row, piece + 1], piece_start + position)
            step = torch.ones_like(gain).masked_fill_(new_pixel < 0, -1.0)  # of the element: it loses or takes the lead
            jump, pixel = gain * sign, block.pixels[row]
            breaks.append(
                NewPatchBreaks(alpha, pixel, channel, jump, jump * step, element, partner, step, has_partners=True)
            )
            unfinished = challenger != last_leader
            remaining, beyond = to_host(unfinished.sum(), (position > width).sum())
            if beyond:
                raise NeedsDenseFallback(float(piece_start[position > width][0]))
            if not remaining:
                return breaks
            (keep,) = nonzero(unfinished, int(remaining))
            integers = torch.stack([row, piece, channel, last_leader, challenger]).index_select(1, keep)
            reals = torch.stack([piece_start, width, position]).index_select(1, keep)
            row, piece, channel, last_leader, leader = integers
            piece_start, width, position = reals
            value, slope, ends_tied = (t.index_select(0, keep) for t in (value, slope, ends_tied))
        raise NeedsDenseFallback(float(piece_start[0]))

    def _are_equal(self, row: Tensor, one: Tensor, other: Tensor, channel: Tensor) -> Tensor:
        """(n,) whether two members of some windows are equal all along the segment; may raise `NeedsDenseFallback`."""
        distance = (self.values[row, :, one, channel] - self.values[row, :, other, channel]).abs().amax(1)
        tolerance = torch.zeros_like(distance)
        for member in (one, other):
            pixel = member_pixel(self.window, row, member, channel)
            tolerance += self.node_input.min_difference[pixel.clamp(min=0), channel] * (pixel >= 0)
        unclear = (distance > tolerance) & (distance <= 2 * self.node_input.threshold)
        if bool(unclear.any()):
            raise NeedsDenseFallback(float(self.block.alphas[row[unclear][0]].mean()))
        return distance <= tolerance


def member_pixel(window: Tensor, row: Tensor, member: Tensor, channel: Tensor) -> Tensor:
    """The input pixel of a member of some windows, (n,); -1 for the floor."""
    size = window.shape[1]
    return window[row, member.clamp(max=size - 1), channel].masked_fill_(member >= size, -1)


def mark_candidates(
    node_input: NodeInput,
    block: Block,
    pieces: tuple[Tensor, Tensor],  # (n,) each: row and piece in the block
    before: Tensor,  # (n, members) values at both ends
    after: Tensor,
) -> None:
    """Mark the parts of pieces on which several members may lead, so small that errors may hide them."""
    members = torch.arange(before.shape[1], device=before.device).expand_as(before)
    limit = node_input.threshold / AMBIGUITY_SHARE
    first, last = parts_tied_for_lead(before, after, members, node_input.threshold, limit)
    (several,) = (first < last).nonzero(as_tuple=True)
    if len(several):
        row, piece = (t[several] for t in pieces)
        ends = block.alphas[row, piece], block.alphas[row, piece + 1]
        node_input.candidates.append(torch.stack([torch.lerp(*ends, part[several]) for part in (first, last)]))


def leader_changes(leader: Tensor) -> Tensor:
    """(p, depth + 1, channels) whether the leaders at the two ends of a piece differ."""
    return leader[:, 1:] != leader[:, :-1]
