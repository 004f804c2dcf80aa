"""Ties between breaks of the patch engine: breaks that rounding cannot separate are one, as in the dense engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from ...arrays import Floats, Ints
from ...ops.base import Op
from ...ops.pointwise import Pointwise
from ...tolerances import (
    ALPHA_RESOLUTION,
    AMBIGUITY_MARGIN,
    ERROR_SAMPLES,
    MAX_DRIFT_ROUNDINGS,
    MAX_PATCH_ALPHA_SHIFT,
    MAX_SAMPLE_DEFICIT,
    MAX_SAMPLE_EXCESS,
    MAX_UNCHECKED_ALPHA_ERROR,
    ROUNDINGS_PER_CROSSING,
)
from ..dense.breaks import group_ties, position_rounding
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
    alpha, alpha_error = breaks.alpha[order], (threshold / breaks.slope)[order]
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

    reals: Tensor  # (6, m) see the properties
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
        """(m,) radius in alpha within which two breaks are certainly one."""
        return self.lower + position_rounding(self.alpha)

    @property
    def alpha_error(self) -> Tensor:
        """(m,) refined alpha error; negative before refinement."""
        return self.reals[4]

    @property
    def drift(self) -> Tensor:
        """(m,) distance in alpha by which cumulative sums displaced the break; 0 before refinement."""
        return self.reals[5]

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
        reals = margins.new_full((6, len(breaks.alpha)), -1.0)
        reals[0], reals[1], reals[5] = breaks.alpha, breaks.slope, 0.0
        torch.div(margins, breaks.slope, out=reals[2:4])
        return _BreakErrors(reals, torch.stack([torch.full_like(breaks.element, node), breaks.element, breaks.partner]))

    def select(self, rows: Tensor) -> _BreakErrors:
        """The breaks at some rows."""
        return _BreakErrors(self.reals.index_select(1, rows), self.integers.index_select(1, rows))

    def at(self, alpha: Tensor) -> _BreakErrors:
        """The breaks moved to other alphas."""
        reals = self.reals.clone()
        reals[0] = alpha
        return _BreakErrors(reals, self.integers)

    def merge(self, other: _BreakErrors) -> tuple[_BreakErrors, Tensor]:
        """The breaks of both in order of alpha, and which of them are from ``other``."""
        both = _BreakErrors(torch.cat([self.reals, other.reals], 1), torch.cat([self.integers, other.integers], 1))
        order = torch.argsort(both.alpha)
        return both.select(order), order >= len(self)

    def refine(self, errors: ErrorOracle, rows: Tensor, float32: bool) -> None:
        """Refine the errors at some rows, in place; the drift of float32 patches is expected and not recorded."""
        rows = torch.unique(rows)
        rows = rows[self.alpha_error[rows] < 0]
        if len(rows) > MAX_REFINED_BREAKS:
            raise NeedsDenseFallback(float(self.alpha[rows[len(rows) // 2]]))
        if len(rows):
            distance, bound = knot_distances(errors, self.select(rows), ERROR_SAMPLES)
            self.alpha_error[rows] = bound / self.slope[rows] + position_rounding(self.alpha[rows])
            if not float32:
                self.drift[rows] = distance / self.slope[rows]


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
        self.known = _BreakErrors(like.new_zeros(6, 0, dtype=torch.float64), like.new_zeros(3, 0, dtype=torch.int64))

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
        tolerance = torch.maximum(slow.lower, torch.full_like(slow.lower, MAX_PATCH_ALPHA_SHIFT)) * slow.slope
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
                new.refine(self.errors, undecided, self.float32)
                known.refine(self.errors, at[undecided], self.float32)
                gap, radius = distance[undecided], new.alpha_error[undecided]
                slack = AMBIGUITY_MARGIN * radius + new.drift[undecided] + known.drift[at[undecided]]
                joins = gap <= radius
                _require(joins | (gap > radius + slack), new.alpha[undecided])
                same[undecided[joins]] = True
            torch.where(same, known.alpha[at], alpha, out=alpha)
            free &= ~same
        return free

    def _group_new(
        self, new: _BreakErrors, piece: Tensor, has_own: Tensor, alpha: Tensor, channel: Tensor, pixel: Tensor
    ) -> Tensor:
        """Which of the remaining crossings represent the break they share; writes the alphas of the others."""
        free = has_own.nonzero()[:, 0]
        a, b, certain = free[:-1], free[1:], new.certain
        distance = new.alpha[b] - new.alpha[a]
        upper = torch.maximum(new.upper[a], new.upper[b]) + ALPHA_RESOLUTION * new.alpha[b]
        near = (piece[a] == piece[b]) & (distance <= upper)
        if not bool(near.any()):
            return has_own
        same = near & (distance <= torch.maximum(certain[a], certain[b]))
        undecided = (near & ~same).nonzero()[:, 0]
        if len(undecided):
            new.refine(self.errors, torch.cat([a[undecided], b[undecided]]), self.float32)
            first, second, gap = a[undecided], b[undecided], distance[undecided]
            radius = torch.maximum(new.alpha_error[first], new.alpha_error[second])
            slack = AMBIGUITY_MARGIN * radius + new.drift[first] + new.drift[second]
            joins = gap <= radius
            _require(joins | (gap > radius + slack), new.alpha[first])
            same[undecided[joins]] = True
        if not bool(same.any()):
            return has_own
        linked = torch.zeros_like(free, dtype=torch.bool)
        linked[1:] |= same
        linked[:-1] |= same
        rows = free[linked]  # chains of crossings, each within the radius of the next
        chain = torch.zeros_like(free)
        chain[1:] = (~same).cumsum(0)
        group, representative = self._group_chains(new, rows, chain[linked])
        _require_distinct_units(group, *(t[rows].cpu().numpy() for t in (channel, pixel, new.partner, new.alpha)))
        owner = rows[torch.from_numpy(representative[group]).to(rows.device)]
        alpha[rows] = new.alpha[owner]
        has_own = has_own.clone()
        has_own[rows] = owner == rows
        return has_own

    def _group_chains(self, new: _BreakErrors, rows: Tensor, chain: Tensor) -> tuple[Ints, Ints]:
        """`group_ties` of the crossings ``rows`` (k,); those that do not certainly join their chain are refined."""
        radius = torch.where(new.alpha_error >= 0, new.alpha_error, new.certain)[rows]
        groups = _group_ties(chain, new.alpha[rows], radius)
        is_outside = _find_outsiders(chain, radius, *groups)
        if not bool(is_outside.any()):
            return groups
        new.refine(self.errors, rows[is_outside], self.float32)
        radius = torch.where(new.alpha_error >= 0, new.alpha_error, new.certain)[rows]
        groups = _group_ties(chain, new.alpha[rows], radius)
        # linked to a neighbour, but not to the most certain crossing of its chain: patches do not split chains
        _require(~_find_outsiders(chain, radius, *groups), new.alpha[rows])
        return groups


def _group_ties(chain: Tensor, alpha: Tensor, radius: Tensor) -> tuple[Ints, Ints]:
    """`group_ties` of tensors (k,)."""
    return group_ties(*(t.cpu().numpy() for t in (chain, alpha, radius)))


def _find_outsiders(chain: Tensor, radius: Tensor, group: Ints, representative: Ints) -> Tensor:
    """The members of chains (k,) that the most certain one of their chain does not represent."""
    own, positions = torch.from_numpy(representative[group]).to(chain.device), torch.arange(len(chain)).to(chain.device)
    _, number = torch.unique_consecutive(chain, return_inverse=True)
    chains = int(number[-1]) + 1
    least = radius.new_full((chains,), torch.inf).scatter_reduce_(0, number, radius, "amin")
    positions = positions.masked_fill(radius != least[number], len(chain))
    first = positions.new_full((chains,), len(chain)).scatter_reduce_(0, number, positions, "amin")
    return own != first[number]


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
