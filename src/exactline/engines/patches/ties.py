"""Whether breaks are apart: those that cannot be told from one another are one, as in the dense sweep."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from ...arrays import Floats, Ints
from ...numerics.roundoff_probes import PROBE_COUNT
from ...ops.base import Op
from ...ops.pointwise import Pointwise
from ..dense.breaks import group_ties
from .error_oracle import AMBIGUITY_MARGIN, ErrorOracle
from .timeline import NeedsDenseFallback, NewPatchBreaks, to_host

ALPHA_RESOLUTION = 4 * torch.finfo(torch.float64).eps  # alphas closer than this, relative to themselves, are one
MAX_UNCHECKED_ALPHA_ERROR = (
    2.5e-9  # in alpha: breaks that sums along a stretch may have moved are looked at where they may be off by more
)
MAX_ALPHA_SHIFT = 1e-11  # in alpha: how far a break may be from where it should be before points must tell
MAX_REFINED_BREAKS = 4096  # breaks that are looked at closely; more are in doubt at once


def merge_equal_pairs(born: NewPatchBreaks, clear: float) -> tuple[NewPatchBreaks, Tensor]:
    """Crossings of the same two lines in windows that overlap get one alpha; and a number for each such set."""
    numbers = torch.arange(len(born.alpha), device=born.alpha.device)
    if (
        not born.has_partners
    ):  # a unit that is at two knots at once is not one crossing: values go from one to the other
        return born, numbers
    key = born.element * (1 << 31) + torch.maximum(born.partner, torch.full_like(born.partner, -1)) + 1
    other = born.partner * (1 << 31) + born.element + 1
    key = torch.where((born.partner > born.element), other, key)  # the same pair, whoever overtakes
    order = torch.argsort(born.alpha)
    order = order[torch.sort(key[order], stable=True).indices]
    alpha, fuzz = born.alpha[order], (clear / born.slope)[order]
    same = (key[order[1:]] == key[order[:-1]]) & (
        alpha[1:] - alpha[:-1] <= fuzz[1:] + fuzz[:-1] + ALPHA_RESOLUTION * alpha[1:]
    )
    if not bool(same.any()):
        return born, numbers
    first = torch.ones_like(order, dtype=torch.bool)
    first[1:] = ~same
    leader = order[first][first.cumsum(0) - 1]  # the earliest of each set
    tie = torch.empty_like(order)
    tie[order] = leader
    return replace(born, alpha=born.alpha[tie]), tie


@dataclass(frozen=True, eq=False)
class _BreakErrors:
    """Breaks in order of alpha, and how far off each may be."""

    reals: Tensor  # (6, m) see the properties
    wholes: Tensor  # (3, m)

    @property
    def alpha(self) -> Tensor:
        """(m,) where it is."""
        return self.reals[0]

    @property
    def slope(self) -> Tensor:
        """(m,) how fast what crosses changes there."""
        return self.reals[1]

    @property
    def upper(self) -> Tensor:
        """(m,) in alpha: no closer look is due beyond."""
        return self.reals[2]

    @property
    def lower(self) -> Tensor:
        """(m,) nor within."""
        return self.reals[3]

    @property
    def alpha_error(self) -> Tensor:
        """(m,) after a closer look; below 0 before."""
        return self.reals[4]

    @property
    def drift(self) -> Tensor:
        """(m,) after a closer look: how far from its place sums along the stretch have put it, 0 before."""
        return self.reals[5]

    @property
    def node(self) -> Tensor:
        """(m,) that bore it."""
        return self.wholes[0]

    @property
    def element(self) -> Tensor:
        """(m,) that crosses."""
        return self.wholes[1]

    @property
    def partner(self) -> Tensor:
        """(m,) or -1."""
        return self.wholes[2]

    def __len__(self) -> int:
        return self.reals.shape[1]

    @staticmethod
    def of(looks: ErrorOracle, node: int, born: NewPatchBreaks) -> _BreakErrors:
        """New breaks of one node, in the order they are in."""
        errors = looks.margins[node].index_select(1, born.element)
        if born.has_partners:
            errors += looks.margins[node].index_select(1, born.partner.clamp(min=0)) * (born.partner >= 0)
        reals = errors.new_full((6, len(born.alpha)), -1.0)
        reals[0], reals[1], reals[5] = born.alpha, born.slope, 0.0
        torch.div(errors, born.slope, out=reals[2:4])
        return _BreakErrors(reals, torch.stack([torch.full_like(born.element, node), born.element, born.partner]))

    def select(self, which: Tensor) -> _BreakErrors:
        """Some of them, in that order."""
        return _BreakErrors(self.reals.index_select(1, which), self.wholes.index_select(1, which))

    def at(self, alpha: Tensor) -> _BreakErrors:
        """The same breaks at other places."""
        reals = self.reals.clone()
        reals[0] = alpha
        return _BreakErrors(reals, self.wholes)

    def merge(self, more: _BreakErrors) -> tuple[_BreakErrors, Tensor]:
        """These and others in order, and which those are."""
        every = _BreakErrors(torch.cat([self.reals, more.reals], 1), torch.cat([self.wholes, more.wholes], 1))
        order = torch.argsort(every.alpha)
        return every.select(order), order >= len(self)

    def refine(self, looks: ErrorOracle, which: Tensor, light: bool) -> None:
        """Find out how far off some breaks may be; those of ``light`` sums are anyhow."""
        which = torch.unique(which)
        which = which[self.alpha_error[which] < 0]
        if len(which) > MAX_REFINED_BREAKS:
            raise NeedsDenseFallback(float(self.alpha[which[len(which) // 2]]))
        if len(which):
            gap, bound = knot_distances(looks, self.select(which), PROBE_COUNT)
            self.alpha_error[which] = bound / self.slope[which]
            if not light:
                self.drift[which] = gap / self.slope[which]


def knot_distances(looks: ErrorOracle, marks: _BreakErrors, probes: int) -> tuple[Tensor, Tensor]:
    """How far what crosses is from its knot or its partner, at the place of its break, and error bounds."""
    values, bounds = looks.refine(marks.node, marks.alpha, marks.element, marks.partner, probes)
    found = values.abs()
    for node in looks.margins:
        knots = _knots(looks.network.nodes[node].op)
        if knots != [0.0]:
            here = (marks.node == node) & (marks.partner < 0)
            found = torch.where(here, (values[:, None] - values.new_tensor(knots)).abs().amin(1), found)
    return found, bounds


class TieResolver:
    """The breaks of a stretch so far. A new crossing joins one of them, shares a break with others, or has its own."""

    def __init__(self, looks: ErrorOracle, start: float, stop: float, light: bool = False) -> None:
        self.errors, self.start, self.stop, self.float32 = looks, start, stop, light
        like = looks.lines.starts[0]
        self.known = _BreakErrors(like.new_zeros(6, 0, dtype=torch.float64), like.new_zeros(3, 0, dtype=torch.int64))

    def place(self, node: int, born: NewPatchBreaks) -> NewPatchBreaks:
        """The crossings of a node with the alphas of their breaks; Doubt where only points can tell."""
        every, fresh = self.known.merge(_BreakErrors.of(self.errors, node, born))
        if not self._are_apart(node, every, fresh):
            return self._place_closely(node, born)
        self.known = every
        return born

    def _are_apart(self, node: int, every: _BreakErrors, fresh: Tensor) -> bool:
        """Whether fresh breaks are so far from all others, and so sure, that none need be looked at."""
        alpha, wide = every.alpha, every.upper
        reach = (
            torch.where(fresh, torch.maximum(wide, self.errors.thresholds[node] / every.slope), wide)
            + ALPHA_RESOLUTION * alpha
        )
        ends = alpha + reach
        latest = ends.cummax(0).values[:-1], torch.where(fresh, ends, -1.0).cummax(0).values[:-1]
        close = torch.where(fresh[1:], *latest) >= (alpha - reach)[1:]
        near, first, last = to_host(close.sum(), alpha[0], alpha[-1])
        return not near and first > self.start and last < self.stop

    def _place_closely(self, node: int, born: NewPatchBreaks) -> NewPatchBreaks:
        """The same where some may be close."""
        born, tie = merge_equal_pairs(born, self.errors.thresholds[node])
        outside = (born.alpha <= self.start) | (born.alpha >= self.stop)
        if bool(outside.any()):
            raise NeedsDenseFallback(float(born.alpha[outside][0]))
        alone = (tie == torch.arange(len(tie), device=tie.device)).nonzero()[:, 0]
        alone = alone[torch.argsort(born.alpha[alone])]
        new = _BreakErrors.of(self.errors, node, born).select(alone)
        alpha, own = new.alpha.clone(), torch.ones_like(alone, dtype=torch.bool)
        piece = torch.zeros_like(alone)
        if len(self.known):
            piece = torch.searchsorted(self.known.alpha, new.alpha)
            own = self._match_known(self.known, new, piece, alpha)
        own = self._group_new(new, piece, own, alpha, born.channel[alone], born.pixel[alone])
        self.known, _ = self.known.merge(new.at(alpha).select(own.nonzero()[:, 0]))
        settled = born.alpha.clone()
        settled[alone] = alpha
        return replace(born, alpha=settled[tie])

    def check_drift(self) -> None:
        """Doubt where what sums have lost, as where a value falls from large to tiny, has moved a break."""
        if self.float32 or not len(self.known):
            return
        slow = self.known.select((self.known.upper > MAX_UNCHECKED_ALPHA_ERROR).nonzero()[:, 0])
        if len(slow) > MAX_REFINED_BREAKS:
            raise NeedsDenseFallback(float(slow.alpha[len(slow) // 2]))
        if not len(slow):
            return
        sure = (
            torch.maximum(slow.lower, torch.full_like(slow.lower, MAX_ALPHA_SHIFT)) * slow.slope
        )  # as near as can be told
        gap, _ = knot_distances(self.errors, slow, 0)
        rest = slow.select((gap > sure).nonzero()[:, 0])
        if len(rest):
            gap, bounds = knot_distances(self.errors, rest, PROBE_COUNT)
            _require((gap <= bounds) | (gap <= MAX_ALPHA_SHIFT * rest.slope), rest.alpha)

    def _match_known(self, known: _BreakErrors, new: _BreakErrors, piece: Tensor, alpha: Tensor) -> Tensor:
        """Which crossings have breaks that were not there; ``alpha`` is written for all others."""
        free = torch.ones_like(piece, dtype=torch.bool)
        for place in (piece - 1, piece):
            at = place.clamp(0, len(known) - 1)
            gap = (new.alpha - known.alpha[at]).abs()
            slack = ALPHA_RESOLUTION * new.alpha
            near = (gap <= known.upper[at] + new.upper + slack) & (at == place) & free
            sure = near & (gap <= known.lower[at] + slack)
            asked = (near & ~sure).nonzero()[:, 0]
            if len(asked):
                known.refine(self.errors, at[asked], self.float32)
                same = gap[asked] <= known.alpha_error[at[asked]] + slack[asked]
                sure[asked[same]] = True
                rest = asked[~same]
                new.refine(self.errors, rest, self.float32)
                reach = known.alpha_error[at[rest]] + AMBIGUITY_MARGIN * new.alpha_error[rest] + slack[rest]
                reach += known.drift[at[rest]] + new.drift[rest]
                _require(gap[rest] > reach, new.alpha[rest])
            alpha[sure] = known.alpha[at[sure]]
            free &= ~sure
        return free

    def _group_new(
        self, new: _BreakErrors, piece: Tensor, own: Tensor, alpha: Tensor, channel: Tensor, pixel: Tensor
    ) -> Tensor:
        """Which of the crossings that are left stand for the break they share; ``alpha`` is written for the others."""
        free = own.nonzero()[:, 0]
        a, b = free[:-1], free[1:]
        gap, slack = new.alpha[b] - new.alpha[a], ALPHA_RESOLUTION * new.alpha[b]
        near = (piece[a] == piece[b]) & (gap <= new.upper[a] + new.upper[b] + slack)
        if not bool(near.any()):
            return own
        sure = near & (gap <= new.lower[a] + new.lower[b] + slack)
        asked = (near & ~sure).nonzero()[:, 0]
        if len(asked):
            new.refine(self.errors, torch.cat([a[asked], b[asked]]), self.float32)
            reach = new.alpha_error[a[asked]] + new.alpha_error[b[asked]]
            same = gap[asked] <= reach + slack[asked]
            sure[asked[same]] = True
            reach = (1 + AMBIGUITY_MARGIN) * reach + new.drift[a[asked]] + new.drift[b[asked]]
            _require((gap[asked] > reach + slack[asked]) | same, new.alpha[a[asked]])
        if not bool(sure.any()):
            return own
        linked = torch.zeros_like(free, dtype=torch.bool)
        linked[1:] |= sure
        linked[:-1] |= sure
        some = free[linked]  # chains of crossings, each within reach of the next
        chain = torch.zeros_like(free)
        chain[1:] = (~sure).cumsum(0)
        reach = torch.maximum(new.alpha_error, new.lower)[some]
        columns = (t.cpu().numpy() for t in (chain[linked], new.alpha[some], reach))
        group, chief = group_ties(*columns)
        _require_distinct_units(group, *(t[some].cpu().numpy() for t in (channel, pixel, new.partner, new.alpha)))
        leader = some[torch.from_numpy(chief[group]).to(some.device)]
        alpha[some] = new.alpha[leader]
        own = own.clone()
        own[some] = leader == some
        return own


def _knots(op: Op) -> list[float]:
    """Where a function of each coordinate breaks; zero for all others."""
    knots = op.knots if isinstance(op, Pointwise) else ()
    return [float(k) for k in knots if isinstance(k, Fraction)] or [0.0]


def _require(clear: Tensor, alpha: Tensor) -> None:
    if not bool(clear.all()):
        raise NeedsDenseFallback(float(alpha[~clear][0]))


def _require_distinct_units(group: Ints, channel: Ints, pixel: Ints, partner: Ints, alpha: Floats) -> None:
    """One unit at several knots takes them in turn, which only points can tell."""
    alone = partner < 0
    _, first, times = np.unique(
        np.stack([group, channel, pixel], 1)[alone], axis=0, return_index=True, return_counts=True
    )
    if (times > 1).any():
        raise NeedsDenseFallback(float(alpha[alone][first[times > 1][0]]))
