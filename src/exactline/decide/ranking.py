"""Splits pieces until the best outputs keep their order along each part: the first levels of the upper envelope.

The outputs are ranked at every point first, and outputs that rounding makes indistinguishable there share a rank. All
further comparisons use ranks only: two outputs cross inside a piece if their ranks at its ends are strictly opposite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..arrays import Bools, Floats, Ints
from .errors import OutputErrors

MAX_TIE_SPAN = 8  # outputs further apart in the order are not compared; ties span others that lie between them
MAX_SELECTED_LEVELS = 4  # with more levels, sorting is faster than selecting them one by one


@dataclass(frozen=True, eq=False)
class RankedPoints:
    """Points of some lines with the values and the ranks of the outputs; larger values rank first."""

    line_index: Ints  # (points,)
    alphas: Floats  # (points,)
    values: Floats  # (points, outputs)
    ranks: Ints  # (points, outputs), 0 for the best

    def __len__(self) -> int:
        return len(self.alphas)


@dataclass(frozen=True, eq=False)
class OrderedParts:
    """Parts of pieces, sorted by line and alpha, along each of which the best outputs keep their order."""

    points: RankedPoints
    left: Ints  # (parts,) the point where each part begins
    right: Ints  # (parts,) the point where it ends
    order: Ints  # (parts, levels) the best outputs, ties by index

    def find_ties(self, output: Ints) -> Bools:  # (parts,) -> (parts, outputs)
        """Mark the outputs that share a rank with the given output at both ends of each part."""
        ranks, same = self.points.ranks, np.ones((len(self.left), self.points.ranks.shape[1]), dtype=np.bool_)
        for end in (self.left, self.right):
            here = ranks[end]
            same &= here == np.take_along_axis(here, output[:, None], 1)
        return same


def rank_outputs(
    line_index: Ints,  # (points,)
    alphas: Floats,  # (points,)
    values: Floats,  # (points, outputs)
    errors: OutputErrors,
    filter_width: float,
    meeting: Ints | None = None,  # (points, 2) outputs that are known to be equal there
) -> RankedPoints:
    """Rank the outputs at some points; outputs whose difference is within its error share a rank."""
    order = np.argsort(-values, axis=1, kind="stable")
    height = np.take_along_axis(values, order, 1)
    tied = height[:, :-1] == height[:, 1:]
    if meeting is not None:
        position = np.argsort(order, axis=1)
        ends = np.sort(np.take_along_axis(position, meeting, 1), axis=1)
        at = np.arange(tied.shape[1])
        tied |= (at >= ends[:, :1]) & (at < ends[:, 1:])
    near = (height[:, :-1] - height[:, 1:] <= filter_width) & ~tied
    rows = np.flatnonzero(near.any(1))
    if len(rows):
        estimate = partial(errors.estimate_differences, line_index[rows], alphas[rows], values[rows])
        tied[rows] |= _find_indistinguishable(height[rows], order[rows], estimate)
    ranks = np.zeros_like(order)
    np.put_along_axis(ranks, order[:, 1:], np.cumsum(~tied, axis=1), 1)
    return RankedPoints(line_index, alphas, values, ranks)


def _find_indistinguishable(
    height: Floats,  # (points, outputs) values in descending order
    order: Ints,  # (points, outputs) the outputs they belong to
    estimate: Callable[[Ints, Ints], Floats],  # errors of differences of outputs
) -> Bools:  # (points, outputs - 1)
    """Mark the neighbours in the order whose difference is within its error."""
    count = height.shape[1]
    spans = range(1, min(count - 1, MAX_TIE_SPAN) + 1)
    gap = np.concatenate([height[:, :-s] - height[:, s:] for s in spans], 1)
    first = np.concatenate([order[:, :-s] for s in spans], 1)
    second = np.concatenate([order[:, s:] for s in spans], 1)
    close = gap <= estimate(first, second)
    tied, begin = np.zeros((len(height), count - 1), dtype=np.bool_), 0
    for span in spans:
        pairs = close[:, begin : begin + count - span]
        begin += count - span
        for step in range(span):
            tied[:, step : step + count - span] |= pairs
    return tied


def order_pieces(
    points: RankedPoints,
    left: Ints,  # (pieces,) points where the pieces begin
    right: Ints,  # (pieces,) points where they end
    levels: int,
    rank: Callable[[Ints, Floats, Floats, Ints], RankedPoints],
) -> OrderedParts:
    """Split pieces where one of the first ``levels`` outputs meets the next.

    Each round splits every unfinished piece once. ``rank`` is `rank_outputs` with the errors filled in.
    """
    done: list[tuple[Ints, Ints, Ints]] = []
    rounds = 4 * points.values.shape[1] * levels + 64  # above the number of crossings; ends cycles caused by rounding
    for turn in range(rounds):
        before, after = points.ranks[left], points.ranks[right]
        first, last = _best_outputs(before, after, levels), _best_outputs(after, before, levels)
        differ = first != last
        unfinished = differ.any(1) & (turn < rounds - 1)
        done.append((left[~unfinished], right[~unfinished], first[~unfinished]))
        if not unfinished.any():
            break
        left, right = left[unfinished], right[unfinished]
        leader, challenger, part = _find_first_meeting(points, left, right, first[unfinished], differ[unfinished])
        start, stop = points.alphas[left], points.alphas[right]
        alphas = np.clip(start + part * (stop - start), start, stop)
        values = points.values[left] + part[:, None] * (points.values[right] - points.values[left])
        new = np.arange(len(points), len(points) + len(left))
        inserted = rank(points.line_index[left], alphas, values, np.stack([leader, challenger], 1))
        points = _concatenate_points([points, inserted])
        left, right = np.concatenate([left, new]), np.concatenate([new, right])
    begin, end, order = (np.concatenate(parts) for parts in zip(*done, strict=True))
    wide = points.alphas[end] > points.alphas[begin]
    begin, end, order = begin[wide], end[wide], order[wide]
    sort = np.lexsort((points.alphas[begin], points.line_index[begin]))
    return OrderedParts(points, begin[sort], end[sort], order[sort])


def concatenate_parts(blocks: list[OrderedParts]) -> OrderedParts:
    """Concatenate the parts of several blocks of pieces."""
    if len(blocks) == 1:
        return blocks[0]
    shifts = np.cumsum([0, *(len(block.points) for block in blocks[:-1])])
    return OrderedParts(
        _concatenate_points([block.points for block in blocks]),
        np.concatenate([block.left + shift for block, shift in zip(blocks, shifts, strict=True)]),
        np.concatenate([block.right + shift for block, shift in zip(blocks, shifts, strict=True)]),
        np.concatenate([block.order for block in blocks]),
    )


def _concatenate_points(parts: Sequence[RankedPoints]) -> RankedPoints:
    return RankedPoints(
        np.concatenate([part.line_index for part in parts]),
        np.concatenate([part.alphas for part in parts]),
        np.concatenate([part.values for part in parts]),
        np.concatenate([part.ranks for part in parts]),
    )


def _best_outputs(near: Ints, far: Ints, levels: int) -> Ints:  # (pieces, outputs) twice -> (pieces, levels)
    """Order the outputs near one end of each piece: by rank there, then by rank at the other end, then by index."""
    key = near * near.shape[1] + far
    if levels > MAX_SELECTED_LEVELS:
        return np.argsort(key, axis=1, kind="stable")[:, :levels]
    best = np.empty((len(key), levels), dtype=np.int64)
    for level in range(levels):
        best[:, level] = at = key.argmin(1)
        np.put_along_axis(key, at[:, None], np.iinfo(np.int64).max, 1)
    return best


def _find_first_meeting(
    points: RankedPoints,
    left: Ints,  # (pieces,)
    right: Ints,  # (pieces,)
    first: Ints,  # (pieces, levels) the order at the left end
    differ: Bools,  # (pieces, levels) where the order at the right end is another
) -> tuple[Ints, Ints, Floats]:  # (pieces,) each
    """Find the best output that loses its rank, its first challenger, and where on the piece they meet."""
    level = differ.argmax(1)
    leader = np.take_along_axis(first, level[:, None], 1)
    after = points.ranks[right]
    challengers = after < np.take_along_axis(after, leader, 1)
    above = np.arange(first.shape[1]) < level[:, None]
    piece, upper_level = np.nonzero(above)
    challengers[piece, first[piece, upper_level]] = False  # outputs above the leader keep their ranks
    start, stop = points.values[left], points.values[right]
    lead = np.take_along_axis(start, leader, 1) - start
    with np.errstate(all="ignore"):
        part = lead / (lead - (np.take_along_axis(stop, leader, 1) - stop))
    part = np.where(challengers, part, np.inf)
    challenger = part.argmin(1)
    part = np.take_along_axis(part, challenger[:, None], 1)[:, 0]
    return leader[:, 0], challenger, np.clip(np.nan_to_num(part, posinf=1.0), 0.0, 1.0)
