"""Pieces cut until the best outputs keep their order along each: the upper envelope, a few levels deep.

Outputs are ranked at every point first; those that cannot be told apart there share a rank. From then on only ranks
are compared: two outputs cross inside a piece where their ranks at its ends are strictly opposite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from ..arrays import Bools, Floats, Ints
from .errors import Trust

SPANS = 8  # neighbours in order that are compared: a third output between two tied ones must not part them
FEW = 4  # levels that are found one by one rather than by sorting


@dataclass(frozen=True, eq=False)
class Rows:
    """Points of some lines, the outputs there (the larger the better) and their ranks."""

    owner: Ints  # (points,) the line
    alphas: Floats  # (points,)
    values: Floats  # (points, outputs)
    ranks: Ints  # (points, outputs), 0 for the best

    def __len__(self) -> int:
        return len(self.alphas)

    def and_then(self, more: Rows) -> Rows:
        """These points, then some more."""
        if not len(more):
            return self
        return Rows(
            np.concatenate([self.owner, more.owner]),
            np.concatenate([self.alphas, more.alphas]),
            np.concatenate([self.values, more.values]),
            np.concatenate([self.ranks, more.ranks]),
        )


@dataclass(frozen=True, eq=False)
class Ordered:
    """Parts of pieces in order of line and alpha; along each the best outputs keep their order."""

    rows: Rows
    left: Ints  # (parts,) the row where each begins
    right: Ints  # (parts,) the row where it ends
    order: Ints  # (parts, levels) the best outputs, ties by index

    def together(self, one: Ints) -> Bools:  # (parts, outputs)
        """Which outputs share their place with one given output along each part."""
        ranks, same = self.rows.ranks, np.ones((len(self.left), self.rows.ranks.shape[1]), dtype=np.bool_)
        for end in (self.left, self.right):
            here = ranks[end]
            same &= here == np.take_along_axis(here, one[:, None], 1)
        return same


def ranked(
    owner: Ints,  # (points,)
    alphas: Floats,  # (points,)
    values: Floats,  # (points, outputs)
    trust: Trust,
    doubtful: float,
    meeting: Ints | None = None,  # (points, 2) outputs that are known to be equal there
) -> Rows:
    """Rank the outputs at some points; those that their errors do not tell apart share a rank."""
    order = np.argsort(-values, axis=1, kind="stable")
    height = np.take_along_axis(values, order, 1)
    tied = height[:, :-1] == height[:, 1:]
    if meeting is not None:
        place = np.argsort(order, axis=1)
        ends = np.sort(np.take_along_axis(place, meeting, 1), axis=1)
        at = np.arange(tied.shape[1])
        tied |= (at >= ends[:, :1]) & (at < ends[:, 1:])
    near = (height[:, :-1] - height[:, 1:] <= doubtful) & ~tied
    rows = np.flatnonzero(near.any(1))
    if len(rows):
        bounds = partial(trust.differences, owner[rows], alphas[rows], values[rows])
        tied[rows] |= _alike(height[rows], order[rows], bounds)
    ranks = np.zeros_like(order)
    np.put_along_axis(ranks, order[:, 1:], np.cumsum(~tied, axis=1), 1)
    return Rows(owner, alphas, values, ranks)


def _alike(height: Floats, order: Ints, bounds: Callable[[Ints, Ints], Floats]) -> Bools:  # (points, outputs - 1)
    """Which neighbours in order cannot be told apart."""
    count = height.shape[1]
    spans = range(1, min(count - 1, SPANS) + 1)
    gap = np.concatenate([height[:, :-s] - height[:, s:] for s in spans], 1)
    first = np.concatenate([order[:, :-s] for s in spans], 1)
    second = np.concatenate([order[:, s:] for s in spans], 1)
    close = gap <= bounds(first, second)
    tied, begin = np.zeros((len(height), count - 1), dtype=np.bool_), 0
    for span in spans:
        found = close[:, begin : begin + count - span]
        begin += count - span
        for step in range(span):
            tied[:, step : step + count - span] |= found
    return tied


def ordered(
    rows: Rows,
    left: Ints,  # (pieces,) rows where pieces begin
    right: Ints,  # (pieces,)
    levels: int,
    rank: Callable[[Ints, Floats, Floats, Ints], Rows],
) -> Ordered:
    """Cut pieces where one of the best outputs meets the next; each round cuts every unfinished piece once."""
    done: list[tuple[Ints, Ints, Ints]] = []
    rounds = 4 * rows.values.shape[1] * levels + 64  # more than crossings can ask for, unless rounding goes in circles
    for turn in range(rounds):
        before, after = rows.ranks[left], rows.ranks[right]
        first, last = _best(before, after, levels), _best(after, before, levels)
        differ = first != last
        moving = differ.any(1) & (turn < rounds - 1)
        done.append((left[~moving], right[~moving], first[~moving]))
        if not moving.any():
            break
        left, right = left[moving], right[moving]
        leader, rival, part = _meeting(rows, left, right, first[moving], differ[moving])
        start, stop = rows.alphas[left], rows.alphas[right]
        alphas = np.clip(start + part * (stop - start), start, stop)
        values = rows.values[left] + part[:, None] * (rows.values[right] - rows.values[left])
        new = np.arange(len(rows), len(rows) + len(left))
        rows = rows.and_then(rank(rows.owner[left], alphas, values, np.stack([leader, rival], 1)))
        left, right = np.concatenate([left, new]), np.concatenate([new, right])
    begin, end, order = (np.concatenate(parts) for parts in zip(*done, strict=True))
    wide = rows.alphas[end] > rows.alphas[begin]
    begin, end, order = begin[wide], end[wide], order[wide]
    sort = np.lexsort((rows.alphas[begin], rows.owner[begin]))
    return Ordered(rows, begin[sort], end[sort], order[sort])


def joined(blocks: list[Ordered]) -> Ordered:
    """The parts of several blocks of pieces, one after another."""
    if len(blocks) == 1:
        return blocks[0]
    shifts = np.cumsum([0, *(len(block.rows) for block in blocks[:-1])])
    names = ("owner", "alphas", "values", "ranks")
    rows = Rows(*(np.concatenate([getattr(block.rows, name) for block in blocks]) for name in names))
    left, right = (
        np.concatenate([getattr(block, end) + shift for block, shift in zip(blocks, shifts, strict=True)])
        for end in ("left", "right")
    )
    return Ordered(rows, left, right, np.concatenate([block.order for block in blocks]))


def _best(near: Ints, far: Ints, levels: int) -> Ints:  # (pieces, levels)
    """The best outputs as one leaves an end of a piece: by rank there, then at the other end, then by index."""
    key = near * near.shape[1] + far
    if levels > FEW:
        return np.argsort(key, axis=1, kind="stable")[:, :levels]
    best = np.empty((len(key), levels), dtype=np.int64)
    for level in range(levels):
        best[:, level] = at = key.argmin(1)
        np.put_along_axis(key, at[:, None], np.iinfo(np.int64).max, 1)
    return best


def _meeting(rows: Rows, left: Ints, right: Ints, first: Ints, differ: Bools) -> tuple[Ints, Ints, Floats]:
    """The first output of each piece that loses its place, who takes it first, and where on the piece."""
    level = differ.argmax(1)
    leader = np.take_along_axis(first, level[:, None], 1)
    after = rows.ranks[right]
    rivals = after < np.take_along_axis(after, leader, 1)
    above = np.arange(first.shape[1]) < level[:, None]
    piece, place = np.nonzero(above)
    rivals[piece, first[piece, place]] = False  # those above keep their places
    start, stop = rows.values[left], rows.values[right]
    lead = np.take_along_axis(start, leader, 1) - start
    with np.errstate(all="ignore"):
        part = lead / (lead - (np.take_along_axis(stop, leader, 1) - stop))
    part = np.where(rivals, part, np.inf)
    rival = part.argmin(1)
    part = np.take_along_axis(part, rival[:, None], 1)[:, 0]
    return leader[:, 0], rival, np.clip(np.nan_to_num(part, posinf=1.0), 0.0, 1.0)
