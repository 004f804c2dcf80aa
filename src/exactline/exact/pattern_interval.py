"""The interval around a point of a line on which the activation pattern stays the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from torch import Tensor

from ..network.graph import Node, Shape
from .forms import AffineForms, list_denominators
from .maximum import MaximumRule
from .order import OrderRule
from .pointwise import PointwiseRule, compare_to_knot, intersect_knot
from .registry import make_rule
from .rules import ZERO_LINE, ActivationPattern, get_line, intersect


class IntervalEnd(NamedTuple):
    """Where an interval ends, and the unit that changes its branch there."""

    alpha: Fraction
    unit: str = ""  # empty while no unit is known to change


@dataclass
class PatternInterval:
    """An interval around a midpoint; each end moves inwards to the nearest crossing found on its side."""

    midpoint: Fraction
    left: IntervalEnd
    right: IntervalEnd
    midpoint_unit: str = ""  # a unit that changes at the midpoint itself

    @staticmethod
    def from_piece(start: Fraction, end: Fraction, margin: Fraction) -> PatternInterval:
        """The interval of a piece, wider by a margin on both sides."""
        left, right = max(start - margin, Fraction(0)), min(end + margin, Fraction(1))
        return PatternInterval((start + end) / 2, IntervalEnd(left), IntervalEnd(right))

    def shrink(self, alpha: Fraction, unit: str) -> None:
        """Exclude the other side of a crossing."""
        if alpha == self.midpoint:
            self.midpoint_unit = self.midpoint_unit or unit
        elif self.left.alpha < alpha < self.midpoint:
            self.left = IntervalEnd(alpha, unit)
        elif self.midpoint < alpha < self.right.alpha:
            self.right = IntervalEnd(alpha, unit)


def apply_breaking_node(
    node: Node,
    shape: Shape,  # of the node's input
    x: AffineForms,  # one piece for each interval
    intervals: Sequence[PatternInterval],
) -> tuple[AffineForms, Tensor]:
    """Apply a node with the activation pattern of each midpoint, and shrink the intervals to where it holds.

    Returns the output and the pattern, (pieces, ...) as the float operator takes it.
    """
    match rule := make_rule(node, shape):
        case PointwiseRule():
            pattern = _shrink_pointwise(rule, node.name, x, intervals)
        case MaximumRule():
            pattern = _shrink_maximum(rule, node.name, x, intervals)
        case OrderRule():
            pattern = _shrink_order(rule, node.name, x, intervals)
    return rule.apply_affine(pattern, x), rule.activation_pattern(pattern)


def _shrink_pointwise(
    rule: PointwiseRule, name: str, x: AffineForms, intervals: Sequence[PatternInterval]
) -> ActivationPattern:
    """Shrink each interval to where no unit crosses a knot."""
    positions = _list_positions(intervals)
    values = [x.numerators_at(alphas) for alphas in positions]
    scales = [list_denominators(alphas) * x.denominator for alphas in positions]
    pattern = np.zeros((len(x), len(intervals)), dtype=np.int64)
    for knot in rule.knots:
        middle, left, right = (compare_to_knot(v, s, knot) for v, s in zip(values, scales, strict=True))
        crosses = (middle * left < 0) | (middle * right < 0) | ((middle == 0) & (x.slopes != 0))
        for unit, k in np.argwhere(crosses).tolist():
            intervals[k].shrink(intersect_knot(x, knot, unit, k), f"{name} unit {unit}")
        pattern += 2 * (middle > 0)
    return pattern


def _shrink_maximum(
    rule: MaximumRule, name: str, x: AffineForms, intervals: Sequence[PatternInterval]
) -> ActivationPattern:
    """Shrink each interval to where no challenger meets the leader of a window."""
    lines = rule.signed_lines(x)
    pieces = np.arange(len(intervals))
    midpoints = [interval.midpoint for interval in intervals]
    pattern = rule.find_leaders(lines.numerators_at(midpoints), lines.slopes)
    leader = rule.leader_elements(pattern)
    for challenger in rule.elements.T:  # (windows,)
        lead = lines.numerators[leader[:, None], np.arange(2)[:, None], pieces] - lines.numerators[challenger]
        lead = AffineForms(lead, x.denominator)
        # the intervals shrink in this loop
        middle, left, right = (lead.numerators_at(alphas) for alphas in _list_positions(intervals))
        meets = (left < 0) | (right < 0) | ((middle == 0) & (lead.slopes != 0))
        for window, k in np.argwhere(meets).tolist():
            intervals[k].shrink(intersect(get_line(lead, window, k), ZERO_LINE), f"{name} window {window}")
    return pattern


def _shrink_order(
    rule: OrderRule, name: str, x: AffineForms, intervals: Sequence[PatternInterval]
) -> ActivationPattern:
    """Shrink each interval to where the lines at all returned ranks stay the same."""
    pattern = np.zeros((len(rule.elements), len(rule.ranks), len(intervals)), dtype=np.int64)
    for window in range(len(rule.elements)):
        for k, interval in enumerate(intervals):
            lines = rule.window_lines(x, window, k)
            pattern[window, :, k] = columns = rule.find_ranked_columns(lines, interval.midpoint)
            ranked = [lines[column] for column in columns]
            crossings = {intersect(a, b) for a in ranked for b in lines if a.slope != b.slope}
            for alpha in (c for c in crossings if interval.left.alpha < c < interval.right.alpha):
                # the side of the crossing that is away from the midpoint, or both
                sides = (False, True) if alpha == interval.midpoint else (alpha > interval.midpoint,)
                if any([lines[c] for c in rule.find_ranked_columns(lines, alpha, after=s)] != ranked for s in sides):
                    interval.shrink(alpha, f"{name} window {window}")
    return pattern


def _list_positions(intervals: Sequence[PatternInterval]) -> tuple[list[Fraction], list[Fraction], list[Fraction]]:
    """The midpoints, left ends and right ends of intervals."""
    midpoints = [interval.midpoint for interval in intervals]
    return midpoints, [i.left.alpha for i in intervals], [i.right.alpha for i in intervals]
