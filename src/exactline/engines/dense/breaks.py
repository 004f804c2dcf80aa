"""From crossings to breaks: the position of each crossing, ties between crossings, and ties with existing points."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Protocol, TypeVar

import numpy as np
import torch

from ...arrays import Bools, Floats, Ints
from ...ops.base import Crossings
from ...tolerances import FLOAT64_EPS, OVERFLOW_GUARD, POSITION_ERROR
from .points import PointTable, to_device

RADIUS_STEPS = 2.0**12  # by power of two: radii that differ by less are compared by their positions

FloatArray = TypeVar("FloatArray", Floats, torch.Tensor)


@dataclass(frozen=True)
class NewBreaks:
    """New breaks in order, and the crossings that share each of them."""

    piece: Ints  # (g,) the point to the left
    alpha: Floats  # (g,)
    unit: Ints  # (g,) the lowest unit that crosses here
    count: Ints  # (g,) number of units that cross here
    representative: Ints  # (g,) the crossing that determines alpha
    slope: Floats  # (g,) of the representative
    crossings: SortedCrossings
    break_of: Ints  # (k,) the new break of each crossing, or -1
    old_point: Ints  # (k,) the existing point that each crossing falls on, or -1
    one_to_one: bool  # whether every crossing has a new break of its own

    def __len__(self) -> int:
        return len(self.piece)


@dataclass(frozen=True)
class SortedCrossings:
    """Crossings in order of piece and alpha; see `Crossings` for the fields."""

    piece: Ints  # (k,)
    unit: Ints  # (k,)
    element: Ints  # (k,)
    partner: Ints  # (k,) or -1
    level: Floats  # (k,) in the precision of the sweep
    rising: Bools  # (k,) whether the difference goes from negative to positive

    def select(self, rows: Ints) -> SortedCrossings:
        """The crossings at some rows."""
        piece, unit, element, partner = (a[rows] for a in (self.piece, self.unit, self.element, self.partner))
        return SortedCrossings(piece, unit, element, partner, self.level[rows], self.rising[rows])


@dataclass(frozen=True)
class _CrossingPositions:
    """The alphas of crossings, and the points to their left and right."""

    piece: Ints  # (k,)
    left: Floats  # (k,) alpha of the point to the left
    right: Floats  # (k,) and of the point to the right
    width: Floats  # (k,) of the piece, in alpha
    alpha: Floats  # (k,)

    def select(self, rows: Ints) -> _CrossingPositions:
        """The positions at some rows."""
        return _CrossingPositions(*(getattr(self, field.name)[rows] for field in fields(self)))

    def is_sorted(self) -> bool:
        """Whether the crossings are in order of piece, then of alpha."""
        next_piece, same_piece = self.piece[1:] > self.piece[:-1], self.piece[1:] == self.piece[:-1]
        return bool((next_piece | (same_piece & (self.alpha[1:] >= self.alpha[:-1]))).all())


class CrossingErrors(Protocol):
    """The errors of points and values that `place_breaks` needs; lines and polygon edges each implement it."""

    threshold: float  # values further than this from a knot are unambiguous
    magnitude: float  # the largest absolute value

    @property
    def points(self) -> PointTable:
        """The points."""
        ...

    @property
    def device(self) -> torch.device:
        """The device of the rows that `bound` takes."""
        ...

    def bound(self, rows: torch.Tensor) -> torch.Tensor:
        """Error bounds (rows, elements) of the values that cross."""
        ...

    def locate(self, found: SortedCrossings, alpha: Floats) -> tuple[Floats, Floats] | None:
        """The alphas (k,) of crossings, evaluated again, and error bounds (k,) there; None if `bound` serves there."""
        ...

    def coinciding_points(self, piece: Ints, from_left: Floats, from_right: Floats) -> Ints | None:
        """The existing point that each crossing coincides with, (k,), or -1; None if there are none.

        Args:
            piece: (k,) the point to the left of each crossing.
            from_left: (k,) its distance from that point, in alpha.
            from_right: (k,) its distance from the next point.
        """
        ...


def place_breaks(crossings: Crossings, errors: CrossingErrors) -> NewBreaks:
    """Assign every crossing to a break of its own, a break it shares with others, or an existing point."""
    with np.errstate(all="ignore"):  # a crossing with tiny differences may have no finite position
        return _place_breaks(crossings, errors)


def _place_breaks(crossings: Crossings, errors: CrossingErrors) -> NewBreaks:
    found, positions, slope = _sort_crossings(crossings, errors)
    found, positions, slope, radius = _refine_close_crossings(found, positions, slope, errors)
    alpha = positions.alpha
    old_point = errors.coinciding_points(found.piece, alpha - positions.left, positions.right - alpha)
    free = np.arange(len(alpha)) if old_point is None else np.flatnonzero(old_point < 0)
    group, representative = _group_crossings(
        found if old_point is None else found.select(free), alpha[free], None if radius is None else radius[free]
    )
    one_to_one = old_point is None and group is representative
    old_point = np.full(len(alpha), -1) if old_point is None else old_point
    representative = free[representative]
    break_alpha = _strictly_increasing(found.piece[representative], alpha[representative])
    fits = break_alpha < positions.right[representative]
    if not fits.all():  # more breaks than floats in a piece: the rest fall on the point to the right
        kept = fits[group]
        old_point[free[~kept]] = found.piece[free[~kept]] + 1
        free, group = free[kept], (fits.cumsum() - 1)[group[kept]]
        representative, break_alpha, one_to_one = representative[fits], break_alpha[fits], False
    if one_to_one:
        return NewBreaks(
            piece=found.piece,
            alpha=break_alpha,
            unit=found.unit,
            count=np.ones_like(free),
            representative=free,
            slope=slope,
            crossings=found,
            break_of=free,
            old_point=old_point,
            one_to_one=True,
        )
    break_of = np.full(len(alpha), -1)
    break_of[free] = group
    lowest_unit = np.full(len(representative), np.iinfo(np.int64).max)
    np.minimum.at(lowest_unit, group, found.unit[free])
    return NewBreaks(
        piece=found.piece[representative],
        alpha=break_alpha,
        unit=lowest_unit,
        count=count_units(break_of, found.unit, len(representative)),
        representative=representative,
        slope=slope[representative],
        crossings=found,
        break_of=break_of,
        old_point=old_point,
        one_to_one=False,
    )


def count_units(place: Ints, unit: Ints, places: int) -> Ints:
    """How many units cross at each place, (places,): a window whose leader changes several times there counts once.

    Args:
        place: (k,) the place of each crossing, or -1.
        unit: (k,) the unit that crosses.
        places: The number of places.
    """
    place, unit = place[place >= 0], unit[place >= 0]
    counts = np.bincount(place, minlength=places)
    several = np.flatnonzero(counts[place] > 1)
    if len(several):
        order = several[np.lexsort((unit[several], place[several]))]
        is_repeated = (np.diff(place[order]) == 0) & (np.diff(unit[order]) == 0)
        np.subtract.at(counts, place[order[1:][is_repeated]], 1)
    return counts


def _sort_crossings(crossings: Crossings, errors: CrossingErrors) -> tuple[SortedCrossings, _CrossingPositions, Floats]:
    """The crossings in order of piece and alpha, their positions, and their slopes (k,)."""
    before, after = (_to_numpy(t.to(torch.float64)) for t in (crossings.before, crossings.after))
    rising = before < after
    before, after = np.abs(before), np.abs(after)
    if errors.magnitude > OVERFLOW_GUARD:
        before, after = before / 2, after / 2
    total = before + after
    from_left, from_right = before / total, after / total
    piece = _to_numpy(crossings.piece)
    order = np.argsort(piece + from_left)
    positions = _positions(piece[order], from_left[order], from_right[order], errors.points)
    if not positions.is_sorted():  # the sum of piece and fraction was rounded: sort by two keys
        order = np.lexsort((_positions(piece, from_left, from_right, errors.points).alpha, piece))
        positions = _positions(piece[order], from_left[order], from_right[order], errors.points)
    unit = _to_numpy(crossings.unit)
    element = unit if crossings.element is crossings.unit else _to_numpy(crossings.element)
    found = SortedCrossings(
        piece, unit, element, _to_numpy(crossings.partner), _to_numpy(crossings.level), rising
    ).select(order)
    return found, positions, total[order] / positions.width


def _to_numpy(tensor: torch.Tensor) -> Any:
    return tensor.cpu().numpy()


def _positions(piece: Ints, from_left: Floats, from_right: Floats, points: PointTable) -> _CrossingPositions:
    """Positions of crossings at some fractions of their pieces, measured from the left and from the right end."""
    left, right = points.alpha.take(piece), points.alpha.take(piece + 1)
    width = right - left
    # measured from the nearer end, so that a break close to it keeps its digits
    alpha = np.where(from_left <= 0.5, left + from_left * width, right - from_right * width)
    return _CrossingPositions(piece, left, right, width, alpha)


def _refine_close_crossings(
    found: SortedCrossings, positions: _CrossingPositions, slope: Floats, errors: CrossingErrors
) -> tuple[SortedCrossings, _CrossingPositions, Floats, Floats | None]:
    """Evaluate crossings that may share a break again: all crossings in order, and their alpha errors (k,).

    The alpha errors of all others are 0. They are None if no crossings are close to each other.
    """
    alpha = positions.alpha
    if len(alpha) < 2:
        return found, positions, slope, None
    rounding = position_rounding(alpha)
    radius = errors.threshold / slope + rounding
    distance = alpha[1:] - alpha[:-1]
    linked = (found.piece[1:] == found.piece[:-1]) & (distance <= np.maximum(radius[1:], radius[:-1]))
    if not linked.any():
        return found, positions, slope, None
    chain = np.zeros(len(alpha), dtype=np.int64)
    chain[1:] = (~linked).cumsum()
    radius = np.zeros_like(alpha)
    # crossings of one alpha, such as those of one pair of elements in overlapping windows, need no estimate
    rows = np.flatnonzero(np.isin(chain, chain[1:][linked & (distance > 0)]))
    if not len(rows):
        return found, positions, slope, radius
    some = found.select(rows)
    located = errors.locate(some, alpha[rows])
    if located is None:
        radius[rows] = _alpha_radius(some, alpha[rows], slope[rows], errors) + rounding[rows]
        return found, positions, slope, radius
    alpha = alpha.copy()
    alpha[rows], bound = located
    radius[rows] = np.nan_to_num(bound / slope[rows], nan=0.0, posinf=np.inf) + rounding[rows]
    order = np.lexsort((alpha, found.piece))
    return found.select(order), replace(positions, alpha=alpha).select(order), slope[order], radius[order]


def _group_crossings(found: SortedCrossings, alpha: Floats, radius: Floats | None) -> tuple[Ints, Ints]:
    """Group crossings that share a break: the group (k,) of each crossing, and each group's representative."""
    numbers = np.arange(len(alpha))
    if radius is None or not len(alpha):
        return numbers, numbers
    chain = chain_ties(found.piece, alpha, radius)
    if chain[-1] == len(chain) - 1:
        return numbers, numbers
    return _split_by_knot(found, radius, *group_ties(chain, alpha, radius))


def position_rounding(alpha: FloatArray) -> FloatArray:
    """The rounding errors of computed positions (k,) of crossings, beside those of the values that cross."""
    return POSITION_ERROR * (0.5 - abs(alpha - 0.5)) + FLOAT64_EPS / 2 * alpha


def chain_ties(piece: Ints, alpha: Floats, radius: Floats) -> Ints:
    """The chain (k,) of each crossing, in order of piece and alpha.

    Two neighbours belong to one chain if the radius of a crossing, one of them or another one, reaches both.
    """
    starts = np.flatnonzero(np.insert((np.diff(piece) != 0) | (np.diff(alpha) != 0), 0, True))
    places, at, reach = piece[starts], alpha[starts], np.maximum.reduceat(radius, starts)
    linked = np.zeros(len(starts) - 1, dtype=bool)
    for lag in range(1, len(starts)):  # what reaches a crossing reaches all crossings in between
        distance, same = at[lag:] - at[:-lag], places[lag:] == places[:-lag]
        after, before = same & (distance <= reach[:-lag]), same & (distance <= reach[lag:])
        if not (after | before).any():
            break
        linked[lag - 1 :] |= after
        linked[: len(before)] |= before
    chain = np.insert((~linked).cumsum(), 0, 0)
    return chain.repeat(np.diff(starts, append=len(alpha)))


def group_ties(chain: Ints, alpha: Floats, radius: Floats) -> tuple[Ints, Ints]:
    """Split chains until every member is within its radius of its group's most certain crossing.

    Of crossings whose radii are equal up to rounding, the first is the most certain one.
    """
    representatives, rank = np.full_like(chain, -1), _round_radii(radius)
    key = chain * 2 + 1
    while len(pending := np.flatnonzero(representatives < 0)):
        order = np.lexsort((rank[pending], key[pending]))  # stable: of equals the first
        starts_group = np.ones(len(order), dtype=bool)
        starts_group[1:] = key[pending[order[1:]]] != key[pending[order[:-1]]]
        group = np.empty_like(pending)
        group[order] = starts_group.cumsum() - 1
        best = pending[order[starts_group]][group]
        distance = np.abs(alpha[pending] - alpha[best])
        inside = (distance <= radius[pending]) | (pending == best)
        representatives[pending[inside]] = best[inside]
        key[pending] = group * 2 + (alpha[pending] >= alpha[best])
    representative, group = np.unique(representatives, return_inverse=True)  # sorted, as the crossings are
    return group, representative


def _round_radii(radius: Floats) -> Floats:
    """Radii (k,) rounded to a few digits."""
    mantissa, exponent = np.frexp(radius)
    return np.ldexp(np.rint(mantissa * RADIUS_STEPS), exponent)


def _split_by_knot(found: SortedCrossings, radius: Floats, group: Ints, representative: Ints) -> tuple[Ints, Ints]:
    """Split groups that hold one unit at several knots: the unit passes its knots one after another."""
    directed_level = np.where(found.rising, found.level, -found.level)
    order = np.lexsort((directed_level, found.unit, group))
    same = (np.diff(group[order]) == 0) & (np.diff(found.unit[order]) == 0) & (found.partner[order[1:]] < 0)
    steps = np.zeros_like(order)
    steps[1:] = (same & (np.diff(directed_level[order]) != 0)).cumsum()
    if not steps.any():
        return group, representative
    rank = np.empty_like(order)  # of a crossing's knot among the knots of its unit
    rank[order] = steps - np.maximum.accumulate(np.where(np.insert(~same, 0, True), steps, 0))
    order = np.lexsort((_round_radii(radius), rank, group))  # stable: of equals the first
    starts_group = np.insert((np.diff(group[order]) != 0) | (np.diff(rank[order]) != 0), 0, True)
    split = np.empty_like(order)
    split[order] = starts_group.cumsum() - 1
    return split, order[starts_group]


def _strictly_increasing(piece: Ints, alpha: Floats) -> Floats:
    """Sorted alphas, moved so that each is at least one float after the previous one of its piece."""
    while (equal := (alpha[1:] <= alpha[:-1]) & (piece[1:] == piece[:-1])).any():
        alpha = alpha.copy()
        alpha[1:][equal] = np.nextafter(alpha[:-1][equal], np.inf)
    return alpha


def _alpha_radius(found: SortedCrossings, alpha: Floats, slope: Floats, errors: CrossingErrors) -> Floats:
    """(k,) alpha errors of crossings, from the error bounds at both ends of their pieces.

    A crossing is computed as a mean of the ends in which one counts less the farther it is: so do the errors.
    """
    device = errors.device
    rows, where = np.unique(np.stack([found.piece, found.piece + 1]), return_inverse=True)
    bound = errors.bound(to_device(device, rows))
    ends, element, partner = (to_device(device, a) for a in (where.reshape(2, -1), found.element, found.partner))
    left, right = bound[ends, element] + bound[ends, partner.clamp(min=0)] * (partner >= 0)
    starts, stops = errors.points.alpha.take(found.piece), errors.points.alpha.take(found.piece + 1)
    fraction = to_device(device, (alpha - starts) / (stops - starts)).to(left.dtype)
    size = left * (1 - fraction) + right * fraction
    return np.nan_to_num(_to_numpy(size.to(torch.float64)) / slope, nan=0.0, posinf=np.inf)
