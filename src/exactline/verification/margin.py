"""The smallest margin on a line: exact, on all pieces of all lines at once."""

from __future__ import annotations

import torch
from torch import Tensor


def minimize_margin(
    excess: Tensor,  # (breaks, rows) of all lines, line after line
    alphas: Tensor,  # (breaks,)
    offsets: Tensor,  # (lines + 1,)
) -> tuple[Tensor, Tensor]:  # (lines,) each
    """Find the smallest margin of each line, that is the largest excess of any row, and its alpha.

    Every row is affine on a piece, so the margin is convex there, and its minimum is at an end of the piece or where
    two rows meet. The margin of a line without breaks is infinite.

    >>> excess = torch.tensor([[1.0, -3.0], [-3.0, 1.0]], dtype=torch.float64)  # both rows meet in the middle
    >>> margin, alpha = minimize_margin(excess, torch.tensor([0.0, 1.0]).double(), torch.tensor([0, 2]))
    >>> margin.tolist(), alpha.tolist()
    ([-1.0], [0.5])
    """
    count = len(offsets) - 1
    line = torch.repeat_interleave(torch.arange(count), offsets.diff())
    if not excess.shape[1]:
        excess = excess.new_full((len(excess), 1), -torch.inf)
    excess = excess.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
    margin = excess.amax(1)
    best = margin.new_full((count,), torch.inf).scatter_reduce(0, line, margin, "amin")
    left = torch.nonzero(line[1:] == line[:-1]).flatten()
    lower_bound = torch.minimum(excess[left], excess[left + 1]).amax(1)  # of the margin on the piece
    left = left[lower_bound < best[line[left]]]
    part, value = minimize_maximum(excess[left], excess[left + 1])
    inside = torch.lerp(alphas[left], alphas[left + 1], part)
    return _first_minimum(torch.cat([margin, value]), torch.cat([alphas, inside]), torch.cat([line, line[left]]), count)


def minimize_maximum(start: Tensor, stop: Tensor) -> tuple[Tensor, Tensor]:  # (pieces, rows) twice -> (pieces,) twice
    """Find the minimum of the maximum of affine functions on [0, 1], for each piece: the argument and the value.

    Row ``i`` runs from ``start[:, i]`` to ``stop[:, i]``. The search keeps one falling and one rising row. While a
    third row is above their meeting point, it replaces the one whose sign of slope it shares.
    """
    slope = stop - start
    rows = torch.arange(len(start))
    falling = _find_leader(start, slope)
    rising = _find_leader(stop, -slope)
    part = torch.where(stop.amax(1) < start.amax(1), 1.0, 0.0).to(start.dtype) if len(start) else start.new_zeros(0)
    value = torch.minimum(start.amax(1), stop.amax(1)) if len(start) else start.new_zeros(0)
    active = torch.nonzero((slope[rows, falling] < 0) & (slope[rows, rising] > 0)).flatten()
    for _ in range(start.shape[1] + 1):
        if not len(active):
            break
        each, down, up = torch.arange(len(active)), falling[active], rising[active]
        begin, slopes = start[active], slope[active]
        gap = begin[each, down] - begin[each, up]
        meeting = (gap / (slopes[each, up] - slopes[each, down])).clamp(0, 1)
        values = torch.lerp(begin, stop[active], meeting[:, None])
        highest, leader = values.max(1)
        better = highest < value[active]
        value[active] = torch.where(better, highest, value[active])
        part[active] = torch.where(better, meeting, part[active])
        leader_slope = slopes[each, leader]
        falling[active] = torch.where(leader_slope < 0, leader, down)
        rising[active] = torch.where(leader_slope > 0, leader, up)
        active = active[(leader != down) & (leader != up) & (leader_slope != 0)]
    return part, value


def _find_leader(values: Tensor, slope: Tensor) -> Tensor:  # (pieces, rows) twice -> (pieces,)
    """Find the row with the largest value; among equals, the one with the largest slope."""
    if not len(values):
        return torch.zeros(0, dtype=torch.int64)
    ties = values == values.amax(1, keepdim=True)
    return torch.where(ties, slope, -torch.inf).argmax(1)


def _first_minimum(
    values: Tensor,  # (points,)
    alphas: Tensor,  # (points,)
    line: Tensor,  # (points,) the line of each
    count: int,  # of lines
) -> tuple[Tensor, Tensor]:  # (lines,) each
    """Find the smallest value of each line, and the alpha of the first point that has it."""
    best = values.new_full((count,), torch.inf).scatter_reduce(0, line, values, "amin")
    never = len(values)
    index = torch.where(values == best[line], torch.arange(never), never)
    first = torch.full((count,), never).scatter_reduce(0, line, index, "amin")
    padded = torch.cat([alphas, alphas.new_zeros(1)])
    return best, padded[first]
