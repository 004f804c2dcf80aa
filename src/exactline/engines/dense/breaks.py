"""From crossings to breaks: where each lies, which of them are one, and which lie on a break that exists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from ...arrays import Bools, Floats, Ints
from ...ops.base import OVERFLOW_GUARD, Crossings
from .state import to_device

ALPHA_RESOLUTION = 4 * float(np.finfo(np.float64).eps)  # alphas closer than this, relative to themselves, are one


@dataclass(frozen=True)
class NewBreaks:
    """New points in order, and which crossings they stand for."""

    piece: Ints  # (g,) the point to the left
    alpha: Floats  # (g,)
    unit: Ints  # (g,) the lowest of those that cross here
    count: Ints  # (g,) how many
    representative: Ints  # (g,) the crossing that says where the break is
    slope: Floats  # (g,) of that crossing
    crossings: SortedCrossings
    break_of: Ints  # (k,) which birth a crossing belongs to, or -1
    old_point: Ints  # (k,) the old point it lies on, or -1
    one_to_one: bool  # whether every crossing has a birth of its own

    def __len__(self) -> int:
        return len(self.piece)


@dataclass(frozen=True)
class SortedCrossings:
    """Crossings in order of piece and alpha, as far as placing them needs."""

    piece: Ints  # (k,)
    unit: Ints  # (k,)
    element: Ints  # (k,)
    partner: Ints  # (k,) or -1
    level: Floats  # (k,) in the precision of the sweep
    rising: Bools  # (k,) whether the element comes from below

    def select(self, which: Ints) -> SortedCrossings:
        """Some of the crossings."""
        piece, unit, element, partner = (a[which] for a in (self.piece, self.unit, self.element, self.partner))
        return SortedCrossings(piece, unit, element, partner, self.level[which], self.rising[which])


@dataclass(frozen=True)
class _CrossingPositions:
    """Where crossings lie, and the points to their left and right."""

    piece: Ints  # (k,)
    left: Floats  # (k, 3) alpha, rate and fuzz of the point before
    right: Floats  # (k, 3) and of the one after
    width: Floats  # (k,)
    alpha: Floats  # (k,)

    def is_sorted(self) -> bool:
        """Whether they stand in order of piece, then of alpha."""
        ahead, same = self.piece[1:] > self.piece[:-1], self.piece[1:] == self.piece[:-1]
        return bool((ahead | (same & (self.alpha[1:] >= self.alpha[:-1]))).all())


class PointPositions(Protocol):
    """Points in order, and how far each may be off."""

    @property
    def spots(self) -> Floats:
        """(n, 3) alpha, rate and fuzz."""
        ...

    @property
    def device(self) -> torch.device: ...


class CrossingErrors(Protocol):
    """What placing crossings needs to know of the points they lie between."""

    threshold: float  # values further than this from a knot are clear without a closer look
    magnitude: float  # the size of the largest value

    @property
    def state(self) -> PointPositions: ...

    def bound(self, rows: torch.Tensor) -> torch.Tensor:
        """Error bounds (rows, elements) of the values that cross."""
        ...

    def alpha_errors(self, rows: Ints) -> Floats:
        """How far in alpha some points may be from the truth."""
        ...


def place_breaks(crossings: Crossings, noise: CrossingErrors) -> NewBreaks:
    """Every crossing gets a break: its own, one it shares, or one that is there already."""
    with np.errstate(all="ignore"):  # what is hardly a crossing may lie hardly anywhere
        return _place(crossings, noise)


def _place(crossings: Crossings, noise: CrossingErrors) -> NewBreaks:
    before, after = (_to_numpy(t.to(torch.float64)) for t in (crossings.before, crossings.after))
    rising = before < after
    before, after = np.abs(before), np.abs(after)
    if noise.magnitude > OVERFLOW_GUARD:
        before, after = before / 2, after / 2
    total = before + after
    part, rest = before / total, after / total
    piece = _to_numpy(crossings.piece)
    order = np.argsort(piece + part)
    spots = _positions(piece[order], part[order], rest[order], noise.state)
    if not spots.is_sorted():  # one number cannot tell them apart
        order = np.lexsort((_positions(piece, part, rest, noise.state).alpha, piece))
        spots = _positions(piece[order], part[order], rest[order], noise.state)
    unit = _to_numpy(crossings.unit)
    element = unit if crossings.element is crossings.unit else _to_numpy(crossings.element)
    found = SortedCrossings(
        piece, unit, element, _to_numpy(crossings.partner), _to_numpy(crossings.level), rising
    ).select(order)
    alpha, rate = spots.alpha, total[order] / spots.width
    joins = _match_old_points(spots, noise)
    free = np.arange(len(alpha)) if joins is None else np.flatnonzero(joins < 0)
    group, chief = _group_crossings(found if joins is None else found.select(free), alpha[free], rate[free], noise)
    simple = joins is None and group is chief
    joins = np.full(len(alpha), -1) if joins is None else joins
    chief = free[chief]
    raised = _strictly_increasing(found.piece[chief], alpha[chief])
    room = raised < spots.right[chief, 0]
    if not room.all():  # more breaks than floats: the rest lie on the point that follows
        kept = room[group]
        joins[free[~kept]] = found.piece[free[~kept]] + 1
        free, group = free[kept], (room.cumsum() - 1)[group[kept]]
        chief, raised, simple = chief[room], raised[room], False
    if simple:
        return NewBreaks(found.piece, raised, found.unit, np.ones_like(free), free, rate, found, free, joins, True)
    owner = np.full(len(alpha), -1)
    owner[free] = group
    count = np.bincount(group, minlength=len(chief))
    lowest = np.full(len(chief), np.iinfo(np.int64).max)
    np.minimum.at(lowest, group, found.unit[free])
    return NewBreaks(found.piece[chief], raised, lowest, count, chief, rate[chief], found, owner, joins, False)


def _to_numpy(tensor: torch.Tensor) -> Any:
    return tensor.cpu().numpy()


def _positions(piece: Ints, part: Floats, rest: Floats, state: PointPositions) -> _CrossingPositions:
    left, right = state.spots.take(piece, 0), state.spots.take(piece + 1, 0)
    width = right[:, 0] - left[:, 0]
    # measured from the nearer end, so that a break close to one keeps its digits
    alpha = np.where(part <= 0.5, left[:, 0] + part * width, right[:, 0] - rest * width)
    return _CrossingPositions(piece, left, right, width, alpha)


def _match_old_points(spots: _CrossingPositions, noise: CrossingErrors) -> Ints | None:
    """The old point a crossing cannot be told from, or -1; None where no crossing is near any."""
    slack = ALPHA_RESOLUTION * spots.alpha
    from_left, from_right = spots.alpha - spots.left[:, 0], spots.right[:, 0] - spots.alpha
    near = (from_left - spots.left[:, 2] <= slack) | (from_right - spots.right[:, 2] <= slack)
    if not near.any():
        return None
    joins = np.full_like(spots.piece, -1)
    for point, gap in ((spots.piece, from_left), (spots.piece + 1, from_right)):
        rows, where = np.unique(point[near], return_inverse=True)
        same = gap[near] <= noise.alpha_errors(rows)[where] + slack[near]
        joins[near] = np.where(same & (joins[near] < 0), point[near], joins[near])
    return joins


def _group_crossings(found: SortedCrossings, alpha: Floats, rate: Floats, noise: CrossingErrors) -> tuple[Ints, Ints]:
    """Group crossings that share a break: a group for each crossing, and each group's chief crossing."""
    numbers = np.arange(len(alpha))
    if len(alpha) < 2:
        return numbers, numbers
    slack = ALPHA_RESOLUTION * alpha[1:]
    reach = noise.threshold / rate
    gap = alpha[1:] - alpha[:-1]
    linked = (found.piece[1:] == found.piece[:-1]) & (gap <= reach[1:] + reach[:-1] + slack)
    if not linked.any():
        return numbers, numbers
    look = np.zeros(len(alpha), dtype=bool)
    look[1:] |= linked
    look[:-1] |= linked
    some = np.flatnonzero(look)
    reach = np.zeros_like(alpha)
    reach[some] = _alpha_radius(found.select(some), rate[some], noise)
    linked &= gap <= reach[1:] + reach[:-1] + slack
    chain = np.zeros_like(numbers)
    chain[1:] = (~linked).cumsum()
    return _split_by_knot(found, reach, *group_ties(chain, alpha, reach))


def group_ties(chain: Ints, alpha: Floats, reach: Floats) -> tuple[Ints, Ints]:
    """Split chains until every member is within reach of its group's most certain crossing."""
    chiefs = np.full_like(chain, -1)
    key = chain * 2 + 1
    while len(here := np.flatnonzero(chiefs < 0)):
        order = np.lexsort((reach[here], key[here]))  # stable: of equals the first
        ahead = np.ones(len(order), dtype=bool)
        ahead[1:] = key[here[order[1:]]] != key[here[order[:-1]]]
        group = np.empty_like(here)
        group[order] = ahead.cumsum() - 1
        chief = here[order[ahead]][group]
        apart = np.abs(alpha[here] - alpha[chief])
        inside = (apart <= reach[here] + reach[chief] + ALPHA_RESOLUTION * alpha[here]) | (here == chief)
        chiefs[here[inside]] = chief[inside]
        key[here] = group * 2 + (alpha[here] >= alpha[chief])
    chief, group = np.unique(chiefs, return_inverse=True)  # crossings are sorted, so chiefs are too
    return group, chief


def _split_by_knot(found: SortedCrossings, reach: Floats, group: Ints, chief: Ints) -> tuple[Ints, Ints]:
    """Split groups that hold one unit at several knots, where no single break is right: each knot in its turn."""
    along = np.where(found.rising, found.level, -found.level)
    order = np.lexsort((along, found.unit, group))
    same = (np.diff(group[order]) == 0) & (np.diff(found.unit[order]) == 0) & (found.partner[order[1:]] < 0)
    steps = np.zeros_like(order)
    steps[1:] = (same & (np.diff(along[order]) != 0)).cumsum()
    if not steps.any():
        return group, chief
    turn = np.empty_like(order)
    turn[order] = steps - np.maximum.accumulate(np.where(np.insert(~same, 0, True), steps, 0))
    order = np.lexsort((reach, turn, group))  # stable: of equals the first
    ahead = np.insert((np.diff(group[order]) != 0) | (np.diff(turn[order]) != 0), 0, True)
    split = np.empty_like(order)
    split[order] = ahead.cumsum() - 1
    return split, order[ahead]


def _strictly_increasing(piece: Ints, alpha: Floats) -> Floats:
    """Breaks of one piece in order, each at least one float after the one before."""
    while (level := (alpha[1:] <= alpha[:-1]) & (piece[1:] == piece[:-1])).any():
        alpha = alpha.copy()
        alpha[1:][level] = np.nextafter(alpha[:-1][level], np.inf)
    return alpha


def _alpha_radius(found: SortedCrossings, rate: Floats, noise: CrossingErrors) -> Floats:
    """How far in alpha each crossing may be from the truth."""
    rows, where = np.unique(found.piece, return_inverse=True)
    device = noise.state.device
    left = to_device(device, rows)
    bound = torch.maximum(noise.bound(left), noise.bound(left + 1))
    at, element, partner = (to_device(device, a) for a in (where, found.element, found.partner))
    size = bound[at, element] + bound[at, partner.clamp(min=0)] * (partner >= 0)
    return np.nan_to_num(_to_numpy(size.to(torch.float64)) / rate, nan=0.0, posinf=np.inf)
