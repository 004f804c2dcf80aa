"""Whether breaks are apart: those that cannot be told from one another are one, as in the dense sweep."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from ...arrays import Floats, Ints
from ...numerics.roundoff_probes import PROBES
from ...ops.base import Op
from ...ops.pointwise import Pointwise
from ..dense.breaks import settled_groups
from .error_oracle import MARGIN, Looks
from .timeline import Born, Doubt, told

ULPS = 4 * torch.finfo(torch.float64).eps  # alphas closer than this, relative to themselves, are one
SLOW = 2.5e-9  # in alpha: breaks that sums along a stretch may have moved are looked at where they may be off by more
FAR = 1e-11  # in alpha: how far a break may be from where it should be before points must tell
MANY = 4096  # breaks that are looked at closely; more are in doubt at once


def joined(born: Born, clear: float) -> tuple[Born, Tensor]:
    """Crossings of the same two lines in windows that overlap get one alpha; and a number for each such set."""
    numbers = torch.arange(len(born.alpha), device=born.alpha.device)
    if not born.paired:  # a unit that is at two knots at once is not one crossing: values go from one to the other
        return born, numbers
    key = born.element * (1 << 31) + torch.maximum(born.partner, torch.full_like(born.partner, -1)) + 1
    other = born.partner * (1 << 31) + born.element + 1
    key = torch.where((born.partner > born.element), other, key)  # the same pair, whoever overtakes
    order = torch.argsort(born.alpha)
    order = order[torch.sort(key[order], stable=True).indices]
    alpha, fuzz = born.alpha[order], (clear / born.rate)[order]
    same = (key[order[1:]] == key[order[:-1]]) & (alpha[1:] - alpha[:-1] <= fuzz[1:] + fuzz[:-1] + ULPS * alpha[1:])
    if not bool(same.any()):
        return born, numbers
    first = torch.ones_like(order, dtype=torch.bool)
    first[1:] = ~same
    leader = order[first][first.cumsum(0) - 1]  # the earliest of each set
    tie = torch.empty_like(order)
    tie[order] = leader
    return replace(born, alpha=born.alpha[tie]), tie


@dataclass(frozen=True, eq=False)
class _Marks:
    """Breaks in order of alpha, and how far off each may be."""

    reals: Tensor  # (6, m) see the properties
    wholes: Tensor  # (3, m)

    @property
    def alpha(self) -> Tensor:
        """(m,) where it is."""
        return self.reals[0]

    @property
    def rate(self) -> Tensor:
        """(m,) how fast what crosses changes there."""
        return self.reals[1]

    @property
    def widest(self) -> Tensor:
        """(m,) in alpha: no closer look is due beyond."""
        return self.reals[2]

    @property
    def surest(self) -> Tensor:
        """(m,) nor within."""
        return self.reals[3]

    @property
    def fuzz(self) -> Tensor:
        """(m,) after a closer look; below 0 before."""
        return self.reals[4]

    @property
    def moved(self) -> Tensor:
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
    def of(looks: Looks, node: int, born: Born) -> _Marks:
        """New breaks of one node, in the order they are in."""
        errors = looks.margins[node].index_select(1, born.element)
        if born.paired:
            errors += looks.margins[node].index_select(1, born.partner.clamp(min=0)) * (born.partner >= 0)
        reals = errors.new_full((6, len(born.alpha)), -1.0)
        reals[0], reals[1], reals[5] = born.alpha, born.rate, 0.0
        torch.div(errors, born.rate, out=reals[2:4])
        return _Marks(reals, torch.stack([torch.full_like(born.element, node), born.element, born.partner]))

    def pick(self, which: Tensor) -> _Marks:
        """Some of them, in that order."""
        return _Marks(self.reals.index_select(1, which), self.wholes.index_select(1, which))

    def at(self, alpha: Tensor) -> _Marks:
        """The same breaks at other places."""
        reals = self.reals.clone()
        reals[0] = alpha
        return _Marks(reals, self.wholes)

    def with_more(self, more: _Marks) -> tuple[_Marks, Tensor]:
        """These and others in order, and which those are."""
        every = _Marks(torch.cat([self.reals, more.reals], 1), torch.cat([self.wholes, more.wholes], 1))
        order = torch.argsort(every.alpha)
        return every.pick(order), order >= len(self)

    def look(self, looks: Looks, which: Tensor, light: bool) -> None:
        """Find out how far off some breaks may be; those of ``light`` sums are anyhow."""
        which = torch.unique(which)
        which = which[self.fuzz[which] < 0]
        if len(which) > MANY:
            raise Doubt(float(self.alpha[which[len(which) // 2]]))
        if len(which):
            gap, bound = gaps(looks, self.pick(which), PROBES)
            self.fuzz[which] = bound / self.rate[which]
            if not light:
                self.moved[which] = gap / self.rate[which]


def gaps(looks: Looks, marks: _Marks, probes: int) -> tuple[Tensor, Tensor]:
    """How far what crosses is from its knot or its partner, at the place of its break, and error bounds."""
    values, bounds = looks.closely(marks.node, marks.alpha, marks.element, marks.partner, probes)
    found = values.abs()
    for node in looks.margins:
        knots = _knots(looks.network.nodes[node].op)
        if knots != [0.0]:
            here = (marks.node == node) & (marks.partner < 0)
            found = torch.where(here, (values[:, None] - values.new_tensor(knots)).abs().amin(1), found)
    return found, bounds


class Apart:
    """The breaks of a stretch so far. A new crossing joins one of them, shares a break with others, or has its own."""

    def __init__(self, looks: Looks, start: float, stop: float, light: bool = False) -> None:
        self.looks, self.start, self.stop, self.light = looks, start, stop, light
        like = looks.lines.starts[0]
        self.known = _Marks(like.new_zeros(6, 0, dtype=torch.float64), like.new_zeros(3, 0, dtype=torch.int64))

    def settle(self, node: int, born: Born) -> Born:
        """The crossings of a node with the alphas of their breaks; Doubt where only points can tell."""
        every, fresh = self.known.with_more(_Marks.of(self.looks, node, born))
        if not self._far(node, every, fresh):
            return self._settle_closely(node, born)
        self.known = every
        return born

    def _far(self, node: int, every: _Marks, fresh: Tensor) -> bool:
        """Whether fresh breaks are so far from all others, and so sure, that none need be looked at."""
        alpha, wide = every.alpha, every.widest
        reach = torch.where(fresh, torch.maximum(wide, self.looks.clear[node] / every.rate), wide) + ULPS * alpha
        ends = alpha + reach
        latest = ends.cummax(0).values[:-1], torch.where(fresh, ends, -1.0).cummax(0).values[:-1]
        close = torch.where(fresh[1:], *latest) >= (alpha - reach)[1:]
        near, first, last = told(close.sum(), alpha[0], alpha[-1])
        return not near and first > self.start and last < self.stop

    def _settle_closely(self, node: int, born: Born) -> Born:
        """The same where some may be close."""
        born, tie = joined(born, self.looks.clear[node])
        outside = (born.alpha <= self.start) | (born.alpha >= self.stop)
        if bool(outside.any()):
            raise Doubt(float(born.alpha[outside][0]))
        alone = (tie == torch.arange(len(tie), device=tie.device)).nonzero()[:, 0]
        alone = alone[torch.argsort(born.alpha[alone])]
        new = _Marks.of(self.looks, node, born).pick(alone)
        alpha, own = new.alpha.clone(), torch.ones_like(alone, dtype=torch.bool)
        piece = torch.zeros_like(alone)
        if len(self.known):
            piece = torch.searchsorted(self.known.alpha, new.alpha)
            own = self._on_known(self.known, new, piece, alpha)
        own = self._together(new, piece, own, alpha, born.channel[alone], born.pixel[alone])
        self.known, _ = self.known.with_more(new.at(alpha).pick(own.nonzero()[:, 0]))
        settled = born.alpha.clone()
        settled[alone] = alpha
        return replace(born, alpha=settled[tie])

    def confirm(self) -> None:
        """Doubt where what sums have lost, as where a value falls from large to tiny, has moved a break."""
        if self.light or not len(self.known):
            return
        slow = self.known.pick((self.known.widest > SLOW).nonzero()[:, 0])
        if len(slow) > MANY:
            raise Doubt(float(slow.alpha[len(slow) // 2]))
        if not len(slow):
            return
        sure = torch.maximum(slow.surest, torch.full_like(slow.surest, FAR)) * slow.rate  # as near as can be told
        gap, _ = gaps(self.looks, slow, 0)
        rest = slow.pick((gap > sure).nonzero()[:, 0])
        if len(rest):
            gap, bounds = gaps(self.looks, rest, PROBES)
            _clear((gap <= bounds) | (gap <= FAR * rest.rate), rest.alpha)

    def _on_known(self, known: _Marks, new: _Marks, piece: Tensor, alpha: Tensor) -> Tensor:
        """Which crossings have breaks that were not there; ``alpha`` is written for all others."""
        free = torch.ones_like(piece, dtype=torch.bool)
        for place in (piece - 1, piece):
            at = place.clamp(0, len(known) - 1)
            gap = (new.alpha - known.alpha[at]).abs()
            slack = ULPS * new.alpha
            near = (gap <= known.widest[at] + new.widest + slack) & (at == place) & free
            sure = near & (gap <= known.surest[at] + slack)
            asked = (near & ~sure).nonzero()[:, 0]
            if len(asked):
                known.look(self.looks, at[asked], self.light)
                same = gap[asked] <= known.fuzz[at[asked]] + slack[asked]
                sure[asked[same]] = True
                rest = asked[~same]
                new.look(self.looks, rest, self.light)
                reach = known.fuzz[at[rest]] + MARGIN * new.fuzz[rest] + slack[rest]
                reach += known.moved[at[rest]] + new.moved[rest]
                _clear(gap[rest] > reach, new.alpha[rest])
            alpha[sure] = known.alpha[at[sure]]
            free &= ~sure
        return free

    def _together(
        self, new: _Marks, piece: Tensor, own: Tensor, alpha: Tensor, channel: Tensor, pixel: Tensor
    ) -> Tensor:
        """Which of the crossings that are left stand for the break they share; ``alpha`` is written for the others."""
        free = own.nonzero()[:, 0]
        a, b = free[:-1], free[1:]
        gap, slack = new.alpha[b] - new.alpha[a], ULPS * new.alpha[b]
        near = (piece[a] == piece[b]) & (gap <= new.widest[a] + new.widest[b] + slack)
        if not bool(near.any()):
            return own
        sure = near & (gap <= new.surest[a] + new.surest[b] + slack)
        asked = (near & ~sure).nonzero()[:, 0]
        if len(asked):
            new.look(self.looks, torch.cat([a[asked], b[asked]]), self.light)
            reach = new.fuzz[a[asked]] + new.fuzz[b[asked]]
            same = gap[asked] <= reach + slack[asked]
            sure[asked[same]] = True
            reach = (1 + MARGIN) * reach + new.moved[a[asked]] + new.moved[b[asked]]
            _clear((gap[asked] > reach + slack[asked]) | same, new.alpha[a[asked]])
        if not bool(sure.any()):
            return own
        linked = torch.zeros_like(free, dtype=torch.bool)
        linked[1:] |= sure
        linked[:-1] |= sure
        some = free[linked]  # chains of crossings, each within reach of the next
        chain = torch.zeros_like(free)
        chain[1:] = (~sure).cumsum(0)
        reach = torch.maximum(new.fuzz, new.surest)[some]
        columns = (t.cpu().numpy() for t in (chain[linked], new.alpha[some], reach))
        group, chief = settled_groups(*columns)
        _once(group, *(t[some].cpu().numpy() for t in (channel, pixel, new.partner, new.alpha)))
        leader = some[torch.from_numpy(chief[group]).to(some.device)]
        alpha[some] = new.alpha[leader]
        own = own.clone()
        own[some] = leader == some
        return own


def _knots(op: Op) -> list[float]:
    """Where a function of each coordinate breaks; zero for all others."""
    knots = op.knots if isinstance(op, Pointwise) else ()
    return [float(k) for k in knots if isinstance(k, Fraction)] or [0.0]


def _clear(clear: Tensor, alpha: Tensor) -> None:
    if not bool(clear.all()):
        raise Doubt(float(alpha[~clear][0]))


def _once(group: Ints, channel: Ints, pixel: Ints, partner: Ints, alpha: Floats) -> None:
    """One unit at several knots takes them in turn, which only points can tell."""
    alone = partner < 0
    _, first, times = np.unique(
        np.stack([group, channel, pixel], 1)[alone], axis=0, return_index=True, return_counts=True
    )
    if (times > 1).any():
        raise Doubt(float(alpha[alone][first[times > 1][0]]))
