"""Ties between breaks of the patch engine: breaks that rounding cannot separate are one, as in the dense engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from ...arrays import Floats, Ints
from ...numerics.crossing_positions import CloseCrossings
from ...ops.base import Op
from ...ops.pointwise import Pointwise
from ...tolerances import (
    ALPHA_RESOLUTION,
    CERTAIN_SHARE,
    ERROR_SAMPLES,
    MAX_DRIFT_ROUNDINGS,
    MAX_PATCH_ALPHA_SHIFT,
    MAX_SAMPLE_DEFICIT,
    MAX_SAMPLE_EXCESS,
    MAX_UNCHECKED_ALPHA_ERROR,
    ROUNDINGS_PER_CROSSING,
)
from ..dense.breaks import chain_ties, group_ties, position_rounding
from .error_oracle import ErrorOracle
from .patch import real_tensor
from .timeline import NeedsDenseFallback, NewPatchBreaks, to_host

MAX_REFINED_BREAKS = 4096  # breaks refined at a time; more need the dense fallback


def merge_equal_pairs(breaks: NewPatchBreaks, threshold: float) -> tuple[NewPatchBreaks, Tensor]:
    """Give crossings of the same two elements in overlapping windows one alpha; also the representative of each."""
    numbers = torch.arange(len(breaks.alpha), device=breaks.alpha.device)
    if not breaks.has_partners:  # knots of one unit are crossed one after another: never merged here
        return breaks, numbers
    key = breaks.element * (1 << 31) + torch.maximum(breaks.partner, torch.full_like(breaks.partner, -1)) + 1
    swapped_key = breaks.partner * (1 << 31) + breaks.element + 1
    key = torch.where((breaks.partner > breaks.element), swapped_key, key)  # the same for both directions
    order = torch.argsort(breaks.alpha)
    order = order[torch.sort(key[order], stable=True).indices]
    alpha, alpha_error = breaks.alpha[order], (threshold / breaks.slope.abs())[order]
    same = (key[order[1:]] == key[order[:-1]]) & (
        alpha[1:] - alpha[:-1] <= alpha_error[1:] + alpha_error[:-1] + ALPHA_RESOLUTION * alpha[1:]
    )
    first = numbers.clone()  # where each run of equal pairs starts
    first[1:].masked_fill_(same, 0)
    representative = torch.empty_like(order)
    representative[order] = order[first.cummax(0).values]
    return replace(breaks, alpha=breaks.alpha[representative]), representative


@dataclass(frozen=True, eq=False)
class _BreakErrors:
    """Breaks in order of alpha, with their alpha errors."""

    reals: Tensor  # (5, m) see the properties
    integers: Tensor  # (3, m)

    @property
    def alpha(self) -> Tensor:
        """(m,) position."""
        return self.reals[0]

    @property
    def slope(self) -> Tensor:
        """(m,) absolute slope of the difference that crosses zero."""
        return self.reals[1]

    @property
    def upper(self) -> Tensor:
        """(m,) radius in alpha beyond which two breaks are certainly distinct."""
        return self.reals[2]

    @property
    def lower(self) -> Tensor:
        """(m,) radius in alpha within which two breaks are one, by the errors of the values that cross alone."""
        return self.reals[3]

    @property
    def certain(self) -> Tensor:
        """(m,) radius in alpha within which a crossing is certainly on its knot at a break."""
        return CERTAIN_SHARE * self.lower

    @property
    def signed_slope(self) -> Tensor:
        """(m,) slope of the difference that crosses zero: of the element minus its partner or the knot."""
        return self.reals[4]

    @property
    def node(self) -> Tensor:
        """(m,) the node that the break originates from."""
        return self.integers[0]

    @property
    def element(self) -> Tensor:
        """(m,) the input element that crosses."""
        return self.integers[1]

    @property
    def partner(self) -> Tensor:
        """(m,) the element it crosses, or -1."""
        return self.integers[2]

    def __len__(self) -> int:
        return self.reals.shape[1]

    @staticmethod
    def of(errors: ErrorOracle, node: int, breaks: NewPatchBreaks) -> _BreakErrors:
        """The new breaks of one node, in their own order."""

        def find_margins(elements: Tensor) -> Tensor:
            largest = errors.margins[node][0].index_select(0, elements)
            return torch.stack([largest, errors.least_errors(node, breaks.alpha, elements)])

        margins = find_margins(breaks.element)
        if breaks.has_partners:
            margins += find_margins(breaks.partner.clamp(min=0)) * (breaks.partner >= 0)
        reals = margins.new_empty(5, len(breaks.alpha))
        reals[0], reals[1], reals[4] = breaks.alpha, breaks.slope.abs(), breaks.slope
        torch.div(margins, reals[1], out=reals[2:4])
        return _BreakErrors(reals, torch.stack([torch.full_like(breaks.element, node), breaks.element, breaks.partner]))

    def select(self, rows: Tensor) -> _BreakErrors:
        """The breaks at some rows."""
        return _BreakErrors(self.reals.index_select(1, rows), self.integers.index_select(1, rows))

    def at(self, alpha: Tensor) -> _BreakErrors:
        """The breaks moved to other alphas."""
        reals = self.reals.clone()
        reals[0] = alpha
        return _BreakErrors(reals, self.integers)

    def join(self, other: _BreakErrors) -> _BreakErrors:
        """The breaks of both, one after the other."""
        return _BreakErrors(torch.cat([self.reals, other.reals], 1), torch.cat([self.integers, other.integers], 1))

    def merge(self, other: _BreakErrors) -> tuple[_BreakErrors, Tensor]:
        """The breaks of both in order of alpha, and which of them are from ``other``."""
        both = self.join(other)
        order = torch.argsort(both.alpha)
        return both.select(order), order >= len(self)


def knot_distances(errors: ErrorOracle, breaks: _BreakErrors, samples: int) -> tuple[Tensor, Tensor]:
    """Distances (m,) of crossing values from their knot or partner at the alphas of breaks, and error bounds."""
    values, bounds = errors.refine(breaks.node, breaks.alpha, breaks.element, breaks.partner, samples)
    distances = values.abs()
    for node in errors.margins:
        knots = _knots(errors.network.nodes[node].op)
        if knots != [0.0]:
            here = (breaks.node == node) & (breaks.partner < 0)
            distances = torch.where(
                here, (values[:, None] - real_tensor(tuple(knots), values.device)).abs().amin(1), distances
            )
    return distances, bounds


class TieResolver:
    """The breaks of a segment so far; a new crossing joins one of them, shares a new break, or has its own."""

    def __init__(self, errors: ErrorOracle, start: float, stop: float, float32: bool = False) -> None:
        self.errors, self.start, self.stop, self.float32 = errors, start, stop, float32
        self.crossings = 0
        like = errors.lines.starts[0]
        self.known = _BreakErrors(like.new_zeros(5, 0, dtype=torch.float64), like.new_zeros(3, 0, dtype=torch.int64))

    def place(self, node: int, breaks: NewPatchBreaks) -> NewPatchBreaks:
        """The crossings of a node with the alphas of their breaks; may raise `NeedsDenseFallback`."""
        self.crossings += len(breaks.alpha)
        merged, is_new = self.known.merge(_BreakErrors.of(self.errors, node, breaks))
        if not self._are_distinct(node, merged, is_new):
            return self._place_ties(node, breaks)
        self.known = merged
        return breaks

    def _are_distinct(self, node: int, breaks: _BreakErrors, is_new: Tensor) -> bool:
        """Whether new breaks are certainly distinct from all others and inside the segment."""
        alpha, upper = breaks.alpha, breaks.upper
        radius = (
            torch.where(is_new, torch.maximum(upper, self.errors.thresholds[node] / breaks.slope), upper)
            + ALPHA_RESOLUTION * alpha
        )
        ends = alpha + radius
        latest = ends.cummax(0).values[:-1], ends.masked_fill(~is_new, -1.0).cummax(0).values[:-1]
        close = torch.where(is_new[1:], *latest) >= (alpha - radius)[1:]
        close_count, first, last = to_host(close.sum(), alpha[0], alpha[-1])
        return not close_count and first > self.start and last < self.stop

    def _place_ties(self, node: int, breaks: NewPatchBreaks) -> NewPatchBreaks:
        """`place` where some breaks may be ties."""
        breaks, representative = merge_equal_pairs(breaks, self.errors.thresholds[node])
        outside = (breaks.alpha <= self.start) | (breaks.alpha >= self.stop)
        if bool(outside.any()):
            raise NeedsDenseFallback(float(breaks.alpha[outside][0]))
        rows = (representative == torch.arange(len(representative), device=representative.device)).nonzero()[:, 0]
        rows = rows[torch.argsort(breaks.alpha[rows])]
        new = _BreakErrors.of(self.errors, node, breaks).select(rows)
        alpha, has_own = new.alpha.clone(), torch.ones_like(rows, dtype=torch.bool)
        piece = torch.zeros_like(rows)
        if len(self.known):
            piece = torch.searchsorted(self.known.alpha, new.alpha)
            has_own = self._match_known(self.known, new, piece, alpha)
        has_own = self._group_new(new, piece, has_own, alpha, breaks.channel[rows], breaks.pixel[rows])
        self.known, _ = self.known.merge(new.at(alpha).select(has_own.nonzero()[:, 0]))
        placed = breaks.alpha.clone()
        placed[rows] = alpha
        return replace(breaks, alpha=placed[representative])

    def check_drift(self) -> None:
        """Raise `NeedsDenseFallback` if cancellation error has displaced a break."""
        if self.float32 or not len(self.known):
            return
        slow = self.known.select(self._may_have_drifted().nonzero()[:, 0])
        if len(slow) > MAX_REFINED_BREAKS:
            raise NeedsDenseFallback(float(slow.alpha[len(slow) // 2]))
        if not len(slow):
            return
        error = slow.lower
        if self.errors.is_shared:  # the points inside a short line are rounded alike; only its ends may be exact
            error = error / (1 - (2 * slow.alpha - 1).abs())
        tolerance = error.clamp(min=MAX_PATCH_ALPHA_SHIFT) * slow.slope
        distance, _ = knot_distances(self.errors, slow, 0)
        displaced = slow.select((distance > tolerance).nonzero()[:, 0])
        if len(displaced):
            distance, bounds = knot_distances(self.errors, displaced, ERROR_SAMPLES)
            _require(
                (distance <= bounds) | (distance <= MAX_PATCH_ALPHA_SHIFT * displaced.slope),
                displaced.alpha,
            )

    def _may_have_drifted(self) -> Tensor:
        """(m,) whether cumulative sums may have displaced a break by more than its error."""
        error = MAX_SAMPLE_EXCESS * MAX_SAMPLE_DEFICIT * self.known.lower
        # `upper` allows for as many roundings as in a segment of many breaks
        drift = (self.known.upper - error) * min(1.0, ROUNDINGS_PER_CROSSING * self.crossings / MAX_DRIFT_ROUNDINGS)
        return (error + drift > MAX_UNCHECKED_ALPHA_ERROR) & (drift > self.known.lower)

    def _match_known(self, known: _BreakErrors, new: _BreakErrors, piece: Tensor, alpha: Tensor) -> Tensor:
        """Which crossings do not join a known break; writes the alphas of those that do."""
        free = torch.ones_like(piece, dtype=torch.bool)
        for neighbour in (piece - 1, piece):
            at = neighbour.clamp(0, len(known) - 1)
            distance = (new.alpha - known.alpha[at]).abs()
            near = (distance <= new.upper + ALPHA_RESOLUTION * new.alpha) & (at == neighbour) & free
            same = near & (distance <= new.certain)
            undecided = (near & ~same).nonzero()[:, 0]
            if len(undecided):
                same[undecided] = self._are_near(new.select(undecided), known.select(at[undecided]))
            torch.where(same, known.alpha[at], alpha, out=alpha)
            free &= ~same
        return free

    def _are_near(self, new: _BreakErrors, known: _BreakErrors) -> Tensor:
        """Which crossings (k,) are within their error of their knots at the breaks beside them."""
        if len(new) > MAX_REFINED_BREAKS:
            raise NeedsDenseFallback(float(new.alpha[len(new) // 2]))
        both = new.at(known.alpha).join(known)
        distances, bounds = knot_distances(self.errors, both, ERROR_SAMPLES)
        (distance, displaced), bound = distances.view(2, -1), bounds[: len(new)]
        # a break that sums have displaced would decide otherwise where it should be
        slack = displaced / known.slope * new.slope
        if not self.float32:
            _require((distance - bound).abs() >= slack, new.alpha)
        return distance <= bound

    def _group_new(
        self, new: _BreakErrors, piece: Tensor, has_own: Tensor, alpha: Tensor, channel: Tensor, pixel: Tensor
    ) -> Tensor:
        """Which of the remaining crossings represent the break they share; writes the alphas of the others."""
        free = has_own.nonzero()[:, 0]
        a, b = free[:-1], free[1:]
        upper = torch.maximum(new.upper[a], new.upper[b]) + ALPHA_RESOLUTION * new.alpha[b]
        near = (piece[a] == piece[b]) & (new.alpha[b] - new.alpha[a] <= upper)
        if not bool(near.any()):
            return has_own
        is_linked = torch.zeros_like(free, dtype=torch.bool)
        is_linked[1:] |= near
        is_linked[:-1] |= near
        chain = torch.zeros_like(free)
        chain[1:] = (~near).cumsum(0)
        rows, chain = free[is_linked], chain[is_linked]
        radius = self._locate_chains(new, rows, chain, piece)
        order = torch.argsort(new.alpha[rows])
        order = order[torch.sort(chain[order], stable=True).indices]
        rows, chain, radius = rows[order], chain[order], radius[order]
        pieces, alphas, radii = (t.cpu().numpy() for t in (chain, new.alpha[rows], radius))
        group, representative = group_ties(chain_ties(pieces, alphas, radii), alphas, radii)
        _require_distinct_units(group, *(t[rows].cpu().numpy() for t in (channel, pixel, new.partner, new.alpha)))
        owner = rows[torch.from_numpy(representative[group]).to(rows.device)]
        alpha[rows] = new.alpha[owner]
        has_own = has_own.clone()
        has_own[rows] = owner == rows
        return has_own

    def _locate_chains(self, new: _BreakErrors, rows: Tensor, chain: Tensor, piece: Tensor) -> Tensor:
        """Evaluate the crossings ``rows`` (k,) of chains again, unless all of a chain are one: their radii (k,).

        Writes their alphas.
        """
        radius, alpha = new.certain[rows] + position_rounding(new.alpha[rows]), new.alpha[rows]
        _, number = torch.unique_consecutive(chain, return_inverse=True)
        chains = int(number[-1]) + 1
        least = radius.new_full((chains,), torch.inf).scatter_reduce_(0, number, radius, "amin")
        first = radius.new_full((chains,), torch.inf).scatter_reduce_(0, number, alpha, "amin")
        last = radius.new_zeros(chains).scatter_reduce_(0, number, alpha, "amax")
        undecided = (last - first > least)[number].nonzero()[:, 0]
        if not len(undecided):
            return radius
        if len(undecided) > MAX_REFINED_BREAKS:
            raise NeedsDenseFallback(float(alpha[undecided[len(undecided) // 2]]))
        some, at = new.select(rows[undecided]), piece[rows[undecided]]
        ends = torch.cat([self.known.alpha, self.known.alpha.new_tensor([self.start, self.stop])])
        count = len(self.known)
        node = int(some.node[0])
        knots = real_tensor(tuple(_knots(self.errors.network.nodes[node].op)), at.device)
        crossings = CloseCrossings(
            line=torch.full_like(at, self.errors.line),
            alpha=some.alpha,
            left=ends[torch.where(at > 0, at - 1, count)],
            right=ends[torch.where(at < count, at, count + 1)],
            element=some.element,
            partner=some.partner,
            levels=knots.expand(len(at), -1),
            slope=some.signed_slope,
        )
        located, bounds = self.errors.locate(node, crossings)
        if not self.float32:
            new.alpha[rows[undecided]] = located
        radius[undecided] = bounds / some.slope + position_rounding(located)
        return radius


def _knots(op: Op) -> list[float]:
    """The knots of a pointwise function; 0 for all other operators."""
    knots = op.knots if isinstance(op, Pointwise) else ()
    return [float(k) for k in knots if isinstance(k, Fraction)] or [0.0]


def _require(clear: Tensor, alpha: Tensor) -> None:
    """Raise `NeedsDenseFallback` at the first alpha that is not clear."""
    if not bool(clear.all()):
        raise NeedsDenseFallback(float(alpha[~clear][0]))


def _require_distinct_units(group: Ints, channel: Ints, pixel: Ints, partner: Ints, alpha: Floats) -> None:
    """Raise `NeedsDenseFallback` if a group holds one unit at several knots, which it crosses one after another."""
    at_knot = partner < 0
    _, first, counts = np.unique(
        np.stack([group, channel, pixel], 1)[at_knot], axis=0, return_index=True, return_counts=True
    )
    if (counts > 1).any():
        raise NeedsDenseFallback(float(alpha[at_knot][first[counts > 1][0]]))
