"""How far a branch pattern holds: the stretch around a midpoint on which no unit turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ..network.graph import Node, Shape
from .forms import Forms, denominators
from .maximum import MaximumRule
from .order import OrderRule
from .pointwise import PointwiseRule, crossing, sides
from .registry import rule_of
from .rules import Pattern, line, meet


@dataclass
class Reach:
    """A stretch that contains a midpoint; each end moves in to the first turn that is found on its side."""

    middle: Fraction
    left: tuple[Fraction, str]  # where it ends and which unit turns there, "" while none is known
    right: tuple[Fraction, str]
    inner: str = ""  # a unit that turns at the midpoint itself

    @staticmethod
    def around(a: Fraction, b: Fraction, margin: Fraction) -> Reach:
        """The piece from a to b and a little more: further turns do not matter."""
        return Reach((a + b) / 2, (max(a - margin, Fraction(0)), ""), (min(b + margin, Fraction(1)), ""))

    def turn(self, alpha: Fraction, cause: str) -> None:
        """Some unit turns at alpha."""
        if alpha == self.middle:
            self.inner = self.inner or cause
        elif self.left[0] < alpha < self.middle:
            self.left = alpha, cause
        elif self.middle < alpha < self.right[0]:
            self.right = alpha, cause


def reach_through(node: Node, shape: Shape, x: Forms, reaches: Sequence[Reach]) -> Forms:
    """Follow every midpoint's branches through a breaking node and note where they end.

    ``x`` has one column for each reach.
    """
    match rule := rule_of(node, shape):
        case PointwiseRule():
            pattern = _pointwise(rule, node.name, x, reaches)
        case MaximumRule():
            pattern = _maximum(rule, node.name, x, reaches)
        case OrderRule():
            pattern = _order(rule, node.name, x, reaches)
    return rule.follow(pattern, x)


def _pointwise(rule: PointwiseRule, name: str, x: Forms, reaches: Sequence[Reach]) -> Pattern:
    """A unit's branch ends where its line meets a knot that it does not lie on."""
    three = [[r.middle for r in reaches], [r.left[0] for r in reaches], [r.right[0] for r in reaches]]
    values = [x.at(alphas) for alphas in three]
    scales = [denominators(alphas) * x.bottom for alphas in three]
    pattern = np.zeros((len(x), len(reaches)), dtype=np.int64)
    for knot in rule.knots:
        here, left, right = (sides(v, s, knot) for v, s in zip(values, scales, strict=True))
        turning = (here * left < 0) | (here * right < 0) | ((here == 0) & (x.q != 0))
        for unit, k in np.argwhere(turning).tolist():
            reaches[k].turn(crossing(x, knot, unit, k), f"{name} unit {unit}")
        pattern += 2 * (here > 0)
    return pattern


def _maximum(rule: MaximumRule, name: str, x: Forms, reaches: Sequence[Reach]) -> Pattern:
    """A leader's branch ends where a rival meets it."""
    up = rule.lines(x)
    columns = np.arange(len(reaches))
    pattern = rule.lead(up.at([r.middle for r in reaches]), up.q)
    leader = rule.leaders(pattern)
    for place in rule.places.T:  # (windows,) one rival of each
        gap = up.top[leader[:, None], np.arange(2)[:, None], columns] - up.top[place]
        lead = Forms(gap, x.bottom)
        at_middle = lead.at([r.middle for r in reaches])
        ends = (lead.at([r.left[0] for r in reaches]) < 0) | (lead.at([r.right[0] for r in reaches]) < 0)
        for window, k in np.argwhere(ends | ((at_middle == 0) & (lead.q != 0))).tolist():
            reaches[k].turn(meet(line(lead, window, k), (0, 0)), f"{name} window {window}")
    return pattern


def _order(rule: OrderRule, name: str, x: Forms, reaches: Sequence[Reach]) -> Pattern:
    """A rank's branch ends where, past a meeting of lines, another line stands there."""
    pattern = np.zeros((len(rule.places), len(rule.ranks), len(reaches)), dtype=np.int64)
    for window in range(len(rule.places)):
        for k, reach in enumerate(reaches):
            lines = rule.lines(x, window, k)
            pattern[window, :, k] = standing = rule.standing(lines, reach.middle)
            held = [lines[column] for column in standing]
            meets = {meet(a, b) for a in held for b in lines if a[1] != b[1]}
            for alpha in (m for m in meets if reach.left[0] < m < reach.right[0]):
                sides_ = (True,) if alpha > reach.middle else (False,) if alpha < reach.middle else (False, True)
                if any([lines[c] for c in rule.standing(lines, alpha, after=s)] != held for s in sides_):
                    reach.turn(alpha, f"{name} window {window}")
    return pattern
