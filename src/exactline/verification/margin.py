"""Where on a line constraints are missed by the least: exactly, on all pieces of all lines at once."""

from __future__ import annotations

import torch
from torch import Tensor


def deepest(
    excess: Tensor,  # (breaks, rows) of all lines one after another
    alphas: Tensor,  # (breaks,)
    offsets: Tensor,  # (lines + 1,)
) -> tuple[Tensor, Tensor]:  # (lines,) each
    """For each line the smallest margin, that is the largest excess of any row, and the alpha where it is.

    Every row is affine on a piece, so its margin there is convex and has its minimum at an end of the piece or where
    two rows meet. A line without breaks has the margin infinity.

    >>> excess = torch.tensor([[1.0, -3.0], [-3.0, 1.0]], dtype=torch.float64)  # they meet in the middle
    >>> margin, alpha = deepest(excess, torch.tensor([0.0, 1.0]).double(), torch.tensor([0, 2]))
    >>> margin.tolist(), alpha.tolist()
    ([-1.0], [0.5])
    """
    count = len(offsets) - 1
    line = torch.repeat_interleave(torch.arange(count), offsets.diff())
    if not excess.shape[1]:
        excess = excess.new_full((len(excess), 1), -torch.inf)
    excess = excess.nan_to_num(nan=torch.inf, posinf=torch.inf, neginf=-torch.inf)
    top = excess.amax(1)
    best = top.new_full((count,), torch.inf).scatter_reduce(0, line, top, "amin")
    left = torch.nonzero(line[1:] == line[:-1]).flatten()
    least = torch.minimum(excess[left], excess[left + 1]).amax(1)  # no point of the piece is below
    left = left[least < best[line[left]]]
    part, value = lowest(excess[left], excess[left + 1])
    inside = torch.lerp(alphas[left], alphas[left + 1], part)
    return _first(torch.cat([top, value]), torch.cat([alphas, inside]), torch.cat([line, line[left]]), count)


def lowest(start: Tensor, stop: Tensor) -> tuple[Tensor, Tensor]:  # both (pieces, rows)
    """The lowest point of the maximum of straight lines on [0, 1], for each piece: where, and how low.

    Going down from both ends, the two lines at hand meet; while a third is above them there, it takes the place of
    the one that falls or rises as it does.
    """
    slope = stop - start
    rows = torch.arange(len(start))
    fall = _leader(start, slope)
    rise = _leader(stop, -slope)
    part = torch.where(stop.amax(1) < start.amax(1), 1.0, 0.0).to(start.dtype) if len(start) else start.new_zeros(0)
    value = torch.minimum(start.amax(1), stop.amax(1)) if len(start) else start.new_zeros(0)
    open_ = torch.nonzero((slope[rows, fall] < 0) & (slope[rows, rise] > 0)).flatten()
    for _ in range(start.shape[1] + 1):
        if not len(open_):
            break
        some, down, up = torch.arange(len(open_)), fall[open_], rise[open_]
        begin, steep = start[open_], slope[open_]
        gap = begin[some, down] - begin[some, up]
        at = (gap / (steep[some, up] - steep[some, down])).clamp(0, 1)
        there = torch.lerp(begin, stop[open_], at[:, None])
        high, chief = there.max(1)
        better = high < value[open_]
        value[open_] = torch.where(better, high, value[open_])
        part[open_] = torch.where(better, at, part[open_])
        tilt = steep[some, chief]
        fall[open_] = torch.where(tilt < 0, chief, down)
        rise[open_] = torch.where(tilt > 0, chief, up)
        open_ = open_[(chief != down) & (chief != up) & (tilt != 0)]
    return part, value


def _leader(values: Tensor, slope: Tensor) -> Tensor:  # (pieces, rows) -> (pieces,)
    """The largest, and of equal ones the steepest."""
    if not len(values):
        return torch.zeros(0, dtype=torch.int64)
    ties = values == values.amax(1, keepdim=True)
    return torch.where(ties, slope, -torch.inf).argmax(1)


def _first(values: Tensor, alphas: Tensor, line: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The least value of each line, and the alpha of the first that has it."""
    best = values.new_full((count,), torch.inf).scatter_reduce(0, line, values, "amin")
    never = len(values)
    place = torch.where(values == best[line], torch.arange(never), never)
    first = torch.full((count,), never).scatter_reduce(0, line, place, "amin")
    padded = torch.cat([alphas, alphas.new_zeros(1)])
    return best, padded[first]
