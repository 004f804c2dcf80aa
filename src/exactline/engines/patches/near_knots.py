"""Units near a knot: which of them are on it, and on which side of it they are before and after."""

from __future__ import annotations

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


def refine_sides(
    node_input: NodeInput,
    block: Block,
    distances: Tensor,  # (p, depth + 2, channels) to the knot; written
    slopes: Tensor,  # (p, depth + 1, channels)
    left: Tensor,  # (p, channels) distances at the start
    right: Tensor,  # (p, channels) distances at the stop
    knot: float,
) -> tuple[Tensor, Tensor]:
    """Whether values are above the knot, and which pieces cross it, where some values are near it."""
    x, bounds = node_input, torch.zeros_like(distances)  # error bounds of values that are set to the knot
    thresholds = x.thresholds[block.pixels][:, None]
    # error bounds of values near the knot, 0 elsewhere; at the points of the segment, rounding may move values off it
    near_bounds = thresholds * (distances == 0)
    _snap_ends(x, block, distances, left, right, bounds)
    # sums drift by shares of the largest value of a unit, which may be far larger than at the sample points
    drift = MAX_DRIFT_ROUNDINGS * FLOAT64_EPS * distances.abs().amax(1)
    near = distances.abs() <= torch.maximum(thresholds, drift[:, None])
    stays = distances == 0
    stays[:, 1:-1] &= (slopes[:, :-1] == 0) | ~block.is_entry[:, :, None]
    near &= ~stays
    on_knot = _find_certain(x, block, distances, near)  # as in later layers that read the same channel
    if bool(on_knot.any()):
        near_bounds = torch.where(on_knot, thresholds, near_bounds)
        bounds = torch.where(on_knot & (distances != 0), x.min_difference[block.pixels][:, None], bounds)
        distances.masked_fill_(on_knot, 0.0)
        near &= ~on_knot
    if bool(near.any()):
        row, place, channel = near.nonzero(as_tuple=True)
        element = channel * x.map_shape.pixels + block.pixels[row]
        refined, errors = x.refine(block.alphas[row, place], element, torch.full_like(element, -1), knot)
        is_rounded = errors > SMALLEST_NORMAL  # otherwise the unit is exactly on the knot and may stay there
        snapped = (
            (refined == 0)
            & is_rounded
            & (distances[row, place, channel] != 0)
            & ~_is_constant_at_cut(x, block, slopes, row, place, channel)
        )
        bounds[row[snapped], place[snapped], channel[snapped]] = errors[snapped]
        near_bounds[row, place, channel] = errors * (refined.abs() <= AMBIGUITY_WIDTH / CANDIDATE_SHARE * errors)
        distances[row, place, channel] = refined
        inside = (refined == 0) & is_rounded & (place > 0) & (place <= block.counts[row])
        on_knot[row[inside], place[inside], channel[inside]] = True
    _check_resolved(block, distances, slopes, bounds)
    _mark_candidates(x, block, near_bounds, slopes)
    if bool(on_knot.any()):
        _set_sides_at_entries(block, distances, *on_knot.nonzero(as_tuple=True))
    _check_cuts(x, distances, slopes)
    inner = distances[:, 1:-1]
    if x.records_patterns and bool(
        ((inner == 0) & block.is_entry[:, :, None]).any() | ((distances[:, 0] == 0) & (distances[:, 1] == 0)).any()
    ):
        raise NeedsDenseFallback(0.5 * (x.start + x.stop))
    above, below = distances > 0, distances < 0
    crossed = (above[:, :-1] & below[:, 1:]) | (below[:, :-1] & above[:, 1:])
    above_after = above.clone()  # a unit that leaves the knot is on the side it goes to
    above_after[:, :-1] |= (distances[:, :-1] == 0) & above[:, 1:]
    return above_after, crossed


def _mark_candidates(
    node_input: NodeInput,
    block: Block,
    near_bounds: Tensor,  # (p, depth + 2, channels) error bounds of values near the knot, 0 elsewhere
    slopes: Tensor,  # (p, depth + 1, channels)
) -> None:
    """Mark pieces at both ends of which a unit is near the knot, or at one end if it leaves the knot slowly.

    Then the part next to that end is marked: beyond it the unit is farther from the knot than any error.
    """
    is_near = near_bounds > 0
    if node_input.repeated is not None:
        is_near &= ~node_input.repeated[block.pixels][:, None]
    before, after = is_near[:, :-1], is_near[:, 1:]
    node_input.mark_candidates(block, (before & after).any(2))
    bounds = near_bounds[:, :-1] + near_bounds[:, 1:]  # one of the two is 0
    is_slow = bounds > CANDIDATE_SHARE * MAX_ALPHA_ERROR * slopes.abs()
    leaves = (before ^ after) & is_slow & (block.widths > 0)[:, :, None]
    row, piece, channel = leaves.nonzero(as_tuple=True)
    if not len(row):
        return
    first, last = block.alphas[row, piece], block.alphas[row, piece + 1]
    # near an end are up to AMBIGUITY_WIDTH / CANDIDATE_SHARE errors, and less than as many again beside it
    length = 2 * AMBIGUITY_WIDTH / CANDIDATE_SHARE * bounds[row, piece, channel] / slopes[row, piece, channel].abs()
    starts = before[row, piece, channel]
    node_input.candidates.append(
        torch.stack(
            [
                torch.where(starts, first, torch.maximum(first, last - length)),
                torch.where(starts, torch.minimum(last, first + length), last),
            ]
        )
    )


def _find_certain(node_input: NodeInput, block: Block, distances: Tensor, near: Tensor) -> Tensor:
    """Which values at entries, of those near the knot, are so near it that they are on it without an estimate."""
    is_certain = torch.zeros_like(near)
    row, place, channel = (near[:, 1:-1] & block.is_entry[:, :, None]).nonzero(as_tuple=True)
    place = place + 1
    element = channel * node_input.map_shape.pixels + block.pixels[row]
    least = node_input.least_errors(block.alphas[row, place], element)
    is_certain[row, place, channel] = distances[row, place, channel].abs() <= CERTAIN_SHARE * least
    return is_certain


def _is_constant_at_cut(
    node_input: NodeInput, block: Block, slopes: Tensor, row: Tensor, place: Tensor, channel: Tensor
) -> Tensor:
    """(k,) whether values are at an end of the segment inside the line, on units of slope zero."""
    at_cut = torch.zeros_like(place, dtype=torch.bool)
    if node_input.start > 0.0:
        at_cut |= place == 0
    if node_input.stop < 1.0:
        at_cut |= place > block.counts[row]
    return at_cut & (slopes[row, (place - 1).clamp(min=0), channel] == 0)


def _set_sides_at_entries(block: Block, distances: Tensor, row: Tensor, place: Tensor, channel: Tensor) -> None:
    """Move units on a knot at an entry to the side they are on after the last entry of that alpha, in place."""
    alphas = block.alphas[row, place]
    last = torch.searchsorted(block.alphas[row], alphas[:, None], right=True)[:, 0] - 1
    after = distances[row, last + 1, channel]
    stays = after == 0
    if bool(stays.any()):
        raise NeedsDenseFallback(float(alphas[stays][0]))
    distances[row, place, channel] = torch.copysign(torch.full_like(after, SMALLEST_SUBNORMAL), after)


def _check_resolved(block: Block, distances: Tensor, slopes: Tensor, bounds: Tensor) -> None:
    """Raise `NeedsDenseFallback` if a unit stays on a knot, or leaves it so slowly that rounding hides where.

    It names the end of the piece that is on the knot: a short part around it is enough for the dense engine.
    """
    bound = torch.maximum(bounds[:, :-1], bounds[:, 1:])
    flat = (bound > 0) & (distances[:, :-1] == 0) & (distances[:, 1:] == 0)
    unresolved = (flat | (bound > MAX_ALPHA_ERROR * slopes.abs())) & (block.widths > 0)[:, :, None]
    if bool(unresolved.any()):
        row, piece, channel = unresolved.nonzero()[0].tolist()
        ends, (first, last) = block.alphas[row, piece : piece + 2], bounds[row, piece : piece + 2, channel]
        if bool(flat[row, piece, channel]):
            raise NeedsDenseFallback(float(ends.mean()))
        raise NeedsDenseFallback(float(ends[0] if first >= last else ends[1]))


def _check_cuts(node_input: NodeInput, distances: Tensor, slopes: Tensor) -> None:
    """Raise `NeedsDenseFallback` if a unit crosses a knot exactly where the line is cut: neither side would see it."""
    if node_input.start > 0.0 and bool(((distances[:, 0] == 0) & (slopes[:, 0] != 0)).any()):
        raise NeedsDenseFallback(node_input.start)
    if node_input.stop < 1.0 and bool(((distances[:, -1] == 0) & (slopes[:, -1] != 0)).any()):
        raise NeedsDenseFallback(node_input.stop)


def _snap_ends(
    node_input: NodeInput, block: Block, distances: Tensor, left: Tensor, right: Tensor, bounds: Tensor
) -> None:
    """Set values within their error of the knot at the ends of the line to the knot; writes distances and bounds."""
    threshold = node_input.thresholds[block.pixels]
    if node_input.start == 0.0 and bool((left.abs() <= threshold).any()):
        bound = node_input.end_bounds()[0][block.pixels]
        on_knot = (left.abs() <= bound) & (left != 0)
        distances[:, 0].masked_fill_(on_knot, 0.0)
        bounds[:, 0] = bound * on_knot
    if node_input.stop == 1.0 and bool((right.abs() <= threshold).any()):
        bound = node_input.end_bounds()[1][block.pixels]
        on_knot = right.abs() <= bound
        last = block.counts  # padding follows the last entry and is at the stop too
        steps = torch.arange(1, distances.shape[1], device=distances.device)
        at_end = (steps > last[:, None])[:, :, None] & on_knot[:, None, :]
        distances[:, 1:].masked_fill_(at_end, 0.0)
        bounds[:, 1:] += at_end * (bound * (right != 0))[:, None, :]
