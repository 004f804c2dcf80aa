"""Units near a knot: which of them are on it, and on which side of it they are before and after."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ...tolerances import (
    AMBIGUITY_WIDTH,
    CANDIDATE_SHARE,
    CERTAIN_SHARE,
    FLOAT64_EPS,
    MAX_ALPHA_ERROR,
    MAX_DRIFT_ROUNDINGS,
    SMALLEST_NORMAL,
    SMALLEST_SUBNORMAL,
)
from .timeline import Block, NeedsDenseFallback, NodeInput


@dataclass(frozen=True, eq=False)
class UnitSides:
    """The sides of a knot that some units of a block are on."""

    row: Tensor  # (u,) of the unit's pixel in the block
    channel: Tensor  # (u,)
    above: Tensor  # (u, depth + 2) whether they are above the knot just after each point
    crossed: Tensor  # (u, depth + 1) pieces inside or at the last point of which they cross it
    at_entry: Tensor  # (u, depth + 1) pieces at whose last entry they cross it, with the break of that entry

    @property
    def switches(self) -> Tensor:
        """(u, depth + 1) pieces at whose end they change their side without a crossing."""
        return (self.above[:, 1:] != self.above[:, :-1]) & ~self.crossed & ~self.at_entry


@dataclass(frozen=True, eq=False)
class _Units:
    """Units of a block that are near a knot somewhere, with all points of their pixels."""

    node_input: NodeInput
    block: Block
    row: Tensor  # (u,) of the unit's pixel in the block
    channel: Tensor  # (u,)
    slopes: Tensor  # (u, depth + 1)

    @cached_property
    def pixel(self) -> Tensor:
        """(u,) the pixel on the map."""
        return self.block.pixels[self.row]

    @cached_property
    def element(self) -> Tensor:
        """(u,) the flat index."""
        return self.channel * self.node_input.map_shape.pixels + self.pixel

    @cached_property
    def alphas(self) -> Tensor:
        """(u, depth + 2) of the start, the entries and the stop."""
        return self.block.alphas[self.row]

    @cached_property
    def is_entry(self) -> Tensor:
        """(u, depth) False for padding."""
        return self.block.is_entry[self.row]

    @cached_property
    def has_width(self) -> Tensor:
        """(u, depth + 1) whether a piece is longer than 0."""
        return self.alphas[:, 1:] > self.alphas[:, :-1]

    def of(self, values: Tensor) -> Tensor:
        """(u,) the units' numbers among those of all pixels and channels."""
        return values[self.pixel, self.channel]


def refine_sides(
    node_input: NodeInput,
    block: Block,
    distances: Tensor,  # (p, depth + 2, channels) to the knot; written
    slopes: Tensor,  # (p, depth + 1, channels)
    left: Tensor,  # (p, channels) distances at the start
    right: Tensor,  # (p, channels) distances at the stop
    knot: float,
) -> UnitSides:
    """The sides of all units that are near the knot somewhere."""
    row, channel = _find_near(node_input, block, distances, left, right).nonzero(as_tuple=True)
    units = _Units(node_input, block, row, channel, slopes[row, :, channel])
    refined, on_knot = _refine(units, distances[row, :, channel], left[row, channel], right[row, channel], knot)
    distances[row, :, channel] = refined
    above, below = refined > 0, refined < 0
    crossed = (above[:, :-1] & below[:, 1:]) | (below[:, :-1] & above[:, 1:])
    above_after = above.clone()  # a unit that leaves the knot is on the side it goes to
    above_after[:, :-1] |= (refined[:, :-1] == 0) & above[:, 1:]
    at_entry = crossed & on_knot[:, 1:]
    return UnitSides(row, channel, above_after, crossed & ~at_entry, at_entry)


def _find_near(node_input: NodeInput, block: Block, distances: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """(p, channels) whether a unit is so near the knot at some point that rounding may hide its side."""
    sizes = distances.abs()
    thresholds = node_input.thresholds[block.pixels]
    # sums drift by shares of the largest value of a unit, which may be far larger than at the sample points
    reach = torch.maximum(thresholds, MAX_DRIFT_ROUNDINGS * FLOAT64_EPS * sizes.amax(1))
    return (sizes.amin(1) <= reach) | (torch.minimum(left.abs(), right.abs()) <= thresholds)


def _refine(units: _Units, distances: Tensor, left: Tensor, right: Tensor, knot: float) -> tuple[Tensor, Tensor]:
    """Refined distances (u, depth + 2), and which of them are those of units on the knot at an entry.

    The latter are moved to the side that the unit goes to.
    """
    x, block = units.node_input, units.block
    bounds = torch.zeros_like(distances)  # error bounds of values that are set to the knot
    thresholds = units.of(x.thresholds)[:, None]
    # error bounds of values near the knot, 0 elsewhere; at the points of the segment, rounding may move values off it
    near_bounds = thresholds * (distances == 0)
    _snap_ends(units, distances, left, right, bounds)
    drift = MAX_DRIFT_ROUNDINGS * FLOAT64_EPS * distances.abs().amax(1, keepdim=True)
    near = distances.abs() <= torch.maximum(thresholds, drift)
    stays = distances == 0
    stays[:, 1:-1] &= (units.slopes[:, :-1] == 0) | ~units.is_entry
    near &= ~stays
    on_knot = _find_certain(units, distances, near)  # as in later layers that read the same channel
    near_bounds = torch.where(on_knot, thresholds, near_bounds)
    bounds = torch.where(on_knot & (distances != 0), units.of(x.min_difference)[:, None], bounds)
    distances.masked_fill_(on_knot, 0.0)
    unit, place = (near & ~on_knot).nonzero(as_tuple=True)
    if len(unit):
        refined, errors = x.refine(units.alphas[unit, place], units.element[unit], torch.full_like(unit, -1), knot)
        is_rounded = errors > SMALLEST_NORMAL  # otherwise the unit is exactly on the knot and may stay there
        snapped = (refined == 0) & is_rounded & (distances[unit, place] != 0) & ~_is_constant_at_cut(units, unit, place)
        bounds[unit[snapped], place[snapped]] = errors[snapped]
        near_bounds[unit, place] = errors * (refined.abs() <= AMBIGUITY_WIDTH / CANDIDATE_SHARE * errors)
        distances[unit, place] = refined
        inside = (refined == 0) & is_rounded & (place > 0) & (place <= block.counts[units.row[unit]])
        on_knot[unit[inside], place[inside]] = True
    _check_resolved(units, distances, bounds)
    _mark_candidates(units, near_bounds)
    _set_sides_at_entries(units, distances, *on_knot.nonzero(as_tuple=True))
    _check_cuts(units, distances)
    is_zero = distances == 0
    if x.records_patterns and bool((is_zero[:, 1:-1] & units.is_entry).any() | (is_zero[:, 0] & is_zero[:, 1]).any()):
        raise NeedsDenseFallback(0.5 * (x.start + x.stop))
    return distances, on_knot


def _mark_candidates(units: _Units, near_bounds: Tensor) -> None:
    """Mark pieces at both ends of which a unit is near the knot, or at one end if it leaves the knot slowly.

    Then the part next to that end is marked: beyond it the unit is farther from the knot than any error.
    ``near_bounds`` (u, depth + 2) are error bounds of values near the knot, 0 elsewhere.
    """
    x, block = units.node_input, units.block
    is_near = near_bounds > 0
    if x.repeated is not None:
        is_near &= ~units.of(x.repeated)[:, None]
    before, after = is_near[:, :-1], is_near[:, 1:]
    counts = torch.zeros_like(block.alphas[:, 1:], dtype=torch.int32)
    x.mark_candidates(block, counts.index_add_(0, units.row, (before & after).to(torch.int32)) > 0)
    bounds = near_bounds[:, :-1] + near_bounds[:, 1:]  # one of the two is 0
    is_slow = bounds > CANDIDATE_SHARE * MAX_ALPHA_ERROR * units.slopes.abs()
    unit, piece = ((before ^ after) & is_slow & units.has_width).nonzero(as_tuple=True)
    if not len(unit):
        return
    first, last = units.alphas[unit, piece], units.alphas[unit, piece + 1]
    # near an end are up to AMBIGUITY_WIDTH / CANDIDATE_SHARE errors, and less than as many again beside it
    length = 2 * AMBIGUITY_WIDTH / CANDIDATE_SHARE * bounds[unit, piece] / units.slopes[unit, piece].abs()
    starts = before[unit, piece]
    x.candidates.append(
        torch.stack(
            [
                torch.where(starts, first, torch.maximum(first, last - length)),
                torch.where(starts, torch.minimum(last, first + length), last),
            ]
        )
    )


def _find_certain(units: _Units, distances: Tensor, near: Tensor) -> Tensor:
    """Which values at entries, of those near the knot, are so near it that they are on it without an estimate."""
    is_certain = torch.zeros_like(near)
    unit, place = (near[:, 1:-1] & units.is_entry).nonzero(as_tuple=True)
    place = place + 1
    x = units.node_input
    least = x.least_errors(units.alphas[unit, place], units.element[unit])
    # float32 patches displace a break by more than errors in float64, so that an estimate there decides nothing
    share = 1.0 if x.max_drift > x.threshold else CERTAIN_SHARE
    is_certain[unit, place] = distances[unit, place].abs() <= share * least
    return is_certain


def _is_constant_at_cut(units: _Units, unit: Tensor, place: Tensor) -> Tensor:
    """(k,) whether values are at an end of the segment inside the line, on units of slope zero."""
    at_cut = torch.zeros_like(place, dtype=torch.bool)
    if units.node_input.start > 0.0:
        at_cut |= place == 0
    if units.node_input.stop < 1.0:
        at_cut |= place > units.block.counts[units.row[unit]]
    return at_cut & (units.slopes[unit, (place - 1).clamp(min=0)] == 0)


def _set_sides_at_entries(units: _Units, distances: Tensor, unit: Tensor, place: Tensor) -> None:
    """Move units on a knot at an entry to the side they are on after the last entry of that alpha, in place."""
    alphas = units.alphas[unit, place]
    last = torch.searchsorted(units.alphas[unit], alphas[:, None], right=True)[:, 0] - 1
    after = distances[unit, last + 1]
    stays = after == 0
    if bool(stays.any()):
        raise NeedsDenseFallback(float(alphas[stays][0]))
    distances[unit, place] = torch.copysign(torch.full_like(after, SMALLEST_SUBNORMAL), after)


def _check_resolved(units: _Units, distances: Tensor, bounds: Tensor) -> None:
    """Raise `NeedsDenseFallback` if a unit stays on a knot, or leaves it so slowly that rounding hides where.

    It names the end of the piece that is on the knot: a short part around it is enough for the dense engine.
    """
    bound = torch.maximum(bounds[:, :-1], bounds[:, 1:])
    flat = (bound > 0) & (distances[:, :-1] == 0) & (distances[:, 1:] == 0)
    unresolved = (flat | (bound > MAX_ALPHA_ERROR * units.slopes.abs())) & units.has_width
    if bool(unresolved.any()):
        unit, piece = unresolved.nonzero()[0].tolist()
        ends, (first, last) = units.alphas[unit, piece : piece + 2], bounds[unit, piece : piece + 2]
        if bool(flat[unit, piece]):
            raise NeedsDenseFallback(float(ends.mean()))
        raise NeedsDenseFallback(float(ends[0] if first >= last else ends[1]))


def _check_cuts(units: _Units, distances: Tensor) -> None:
    """Raise `NeedsDenseFallback` if a unit crosses a knot exactly where the line is cut: neither side would see it."""
    start, stop, slopes = units.node_input.start, units.node_input.stop, units.slopes
    if start > 0.0 and bool(((distances[:, 0] == 0) & (slopes[:, 0] != 0)).any()):
        raise NeedsDenseFallback(start)
    if stop < 1.0 and bool(((distances[:, -1] == 0) & (slopes[:, -1] != 0)).any()):
        raise NeedsDenseFallback(stop)


def _snap_ends(units: _Units, distances: Tensor, left: Tensor, right: Tensor, bounds: Tensor) -> None:
    """Set values within their error of the knot at the ends of the line to the knot; writes distances and bounds."""
    x = units.node_input
    threshold = units.of(x.thresholds)
    if x.start == 0.0 and bool((left.abs() <= threshold).any()):
        bound = units.of(x.end_bounds()[0])
        on_knot = (left.abs() <= bound) & (left != 0)
        distances[:, 0].masked_fill_(on_knot, 0.0)
        bounds[:, 0] = bound * on_knot
    if x.stop == 1.0 and bool((right.abs() <= threshold).any()):
        bound = units.of(x.end_bounds()[1])
        on_knot = right.abs() <= bound
        last = units.block.counts[units.row]  # padding follows the last entry and is at the stop too
        steps = torch.arange(1, distances.shape[1], device=distances.device)
        at_end = (steps > last[:, None]) & on_knot[:, None]
        distances[:, 1:].masked_fill_(at_end, 0.0)
        bounds[:, 1:] += at_end * (bound * (right != 0))[:, None]
