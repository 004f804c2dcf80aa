"""Finds the output that leads at every point of one or many lines.

Every output is affine on a piece. The pieces are split where the leading outputs meet (`ranking.order_pieces`), and
neighbouring parts with equal labels and ties are merged into intervals.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Bools, Floats, Ints
from ..errors import ArgumentError, MissingError
from ..humanize import count_noun
from ..tolerances import ALPHA_RESOLUTION
from .comparison import Comparison
from .intervals import Decisions, IntervalTable, ManyDecisions
from .ranking import OrderedParts, RankedPoints, concatenate_parts, order_pieces, rank_outputs
from .values import OutputValues, values_of_line, values_of_lines

if TYPE_CHECKING:
    from ..network.graph import Network
    from ..results.restriction import Restriction
    from ..results.restrictions import Restrictions

MAX_RANKED_NUMBERS = 1 << 20  # values ranked in one batch


def find_decisions(
    line: Restriction, order: str, top: Any, output: str | int | None, threshold: Any = None, rivals: Any = None
) -> Decisions:
    """Decide one line; see `Restriction.decisions`."""
    outputs = values_of_line(line, output, "line.decisions")
    comparison = _compare(line.network, outputs, threshold, rivals, "line.decisions")
    table = _build_table(outputs, comparison, order, top)
    return Decisions(table, 0, line, order, int(top), outputs.output, comparison)


def find_decisions_of_lines(
    lines: Restrictions, order: str, top: Any, output: str | int | None, threshold: Any = None, rivals: Any = None
) -> ManyDecisions:
    """Decide many lines; see `Restrictions.decisions`."""
    outputs = values_of_lines(lines, output, "lines.decisions")
    comparison = _compare(lines.network, outputs, threshold, rivals, "lines.decisions")
    table = _build_table(outputs, comparison, order, top)
    return ManyDecisions(table, lines, order, int(top), outputs.output, comparison)


def _compare(network: Network | None, outputs: OutputValues, threshold: Any, rivals: Any, where: str) -> Comparison:
    count = outputs.values.shape[1]
    if network is None and (count == 1 or threshold is not None or rivals is not None):
        raise MissingError(
            "The network is needed, because its last operator gives a threshold its meaning.",
            where=where,
            hint="Load with Restriction.load(path, model), or attach it with line.with_network(network).",
        )
    return Comparison(count) if network is None else Comparison.check(network, outputs.output, threshold, rivals, where)


def _build_table(outputs: OutputValues, comparison: Comparison, order: str, top: Any) -> IntervalTable:
    if order not in ("max", "min"):
        raise ArgumentError(f"order is {order!r}.", where="argument order", hint='Give "max" or "min".')
    outputs = outputs.compare(comparison)
    count = outputs.values.shape[1]
    whole = isinstance(top, (int, np.integer)) and not isinstance(top, bool)
    if not whole or not 1 <= top <= count:
        raise ArgumentError(
            f"top is {top!r}; the network has {count_noun(count, 'output')}.",
            where="argument top",
            hint=f"Give a whole number from 1 to {count}." if count else "Give a network with outputs.",
        )
    outputs = outputs if order == "max" else outputs.negate()
    pieces = np.flatnonzero(outputs.errors.line_index[:-1] == outputs.errors.line_index[1:])
    filter_width = outputs.errors.filter_width(float(np.abs(outputs.values).max(initial=0.0)))
    step = max(1, MAX_RANKED_NUMBERS // max(count, 1))
    levels = min(int(top) + 1, count)
    blocks = [
        order_block(outputs, pieces[at : at + step], levels, filter_width) for at in range(0, max(len(pieces), 1), step)
    ]
    table = _merge_parts(outputs, concatenate_parts(blocks), int(top))
    return replace(table, labels=comparison.map_labels(table.labels), tied=comparison.map_tied(table.tied))


def order_block(
    outputs: OutputValues,
    pieces: Ints,  # (pieces,) the break where each begins
    levels: int,
    filter_width: float,
) -> OrderedParts:
    """Split some pieces until the first ``levels`` outputs keep their order along each part."""
    errors = outputs.errors
    used = np.union1d(pieces, pieces + 1)

    def rank(line_index: Ints, alphas: Floats, values: Floats, meeting: Ints | None = None) -> RankedPoints:
        return rank_outputs(line_index, alphas, values, errors, filter_width, meeting)

    points = rank(errors.line_index[used], errors.alphas[used], outputs.values[used])
    left = np.searchsorted(used, pieces)
    return order_pieces(points, left, left + 1, levels, rank)


def _merge_parts(outputs: OutputValues, parts: OrderedParts, top: int) -> IntervalTable:
    """Merge neighbouring parts with equal labels and ties; intervals narrower than their errors are dropped."""
    while True:
        table, dropped = _build_intervals(outputs, parts, top)
        if not dropped.any():
            return table
        parts = replace(parts, left=parts.left[~dropped], right=parts.right[~dropped], order=parts.order[~dropped])


def _build_intervals(outputs: OutputValues, parts: OrderedParts, top: int) -> tuple[IntervalTable, Bools]:
    """Build the intervals, and mark the parts of intervals so narrow that rounding alone can explain them."""
    line_index, labels, tied = parts.points.line_index[parts.left], parts.order[:, :top], _find_ties(parts, top)
    is_new = np.ones(len(line_index), dtype=np.bool_)
    new_line = line_index[1:] != line_index[:-1]
    is_new[1:] = new_line | (labels[1:] != labels[:-1]).any(1) | (tied[1:] != tied[:-1]).any(1)
    first = np.flatnonzero(is_new)  # the first part of each interval
    inner = first[1:][~new_line[first[1:] - 1]]  # the parts that begin at an inner boundary
    begins_line = np.ones(len(first), dtype=np.bool_)  # (intervals,)
    begins_line[1:] = new_line[first[1:] - 1]
    ends_line = np.append(begins_line[1:], True)[: len(first)]
    alphas, breaks = parts.points.alphas, outputs.errors.alphas
    starts = np.where(begins_line, breaks[outputs.offsets[line_index[first]]], alphas[parts.left[first]])
    last_breaks = breaks[outputs.offsets[line_index[first] + 1] - 1]
    stops = np.where(ends_line, last_breaks, np.append(starts[1:], 0.0)[: len(first)])
    margins, margins_at = _find_margins(outputs, parts, top, first)
    errors = np.zeros(len(first) + 1)
    errors[:-1][~begins_line] = _estimate_boundary_errors(outputs, parts, labels, tied, inner)
    table = IntervalTable(
        offsets=np.searchsorted(line_index[first], np.arange(len(outputs.offsets))),
        starts=starts,
        stops=stops,
        labels=labels[first],
        tied=tied[first],
        margins=margins,
        margins_at=margins_at,
        start_errors=errors[:-1],
        stop_errors=np.where(ends_line, 0.0, errors[1:]),
    )
    thin = stops - starts <= table.start_errors + table.stop_errors
    removable = _select_removable(thin, stops - starts, begins_line)
    return table, np.repeat(removable, np.diff(np.append(first, len(is_new))))


def _select_removable(thin: Bools, widths: Floats, begins_line: Bools) -> Bools:  # (intervals,) each
    """Mark the thin intervals, but keep the widest one of a line that has no others."""
    if not thin.any():
        return thin
    first = np.flatnonzero(begins_line)
    counts = np.diff(np.append(first, len(thin)))
    all_thin = np.repeat(np.logical_and.reduceat(thin, first), counts)
    widest = widths == np.repeat(np.maximum.reduceat(widths, first), counts)
    return thin & ~(all_thin & widest)


def _find_ties(parts: OrderedParts, top: int) -> Bools:  # (parts, outputs)
    """Mark the outputs that share one of the first ``top`` ranks with another output along each part."""
    tied = np.zeros((len(parts.left), parts.points.values.shape[1]), dtype=np.bool_)
    for level in range(top):
        same = parts.find_ties(parts.order[:, level])
        tied |= same & (same.sum(1, keepdims=True) > 1)
    return tied


def _find_margins(
    outputs: OutputValues,
    parts: OrderedParts,
    top: int,
    first: Ints,  # (intervals,) the first part of each
) -> tuple[Floats, Floats]:  # (intervals,) each
    """Find the largest lead over the next output in each interval, and its alpha.

    The lead is affine on a part, so its maximum is at an end of a part.
    """
    points = parts.points
    if parts.order.shape[1] == top or not len(first):
        return np.full(len(first), np.inf), points.alphas[parts.left[first]]
    lead = np.zeros((2, len(parts.left)))
    alpha = np.stack([points.alphas[parts.left], points.alphas[parts.right]])
    label, challenger = parts.order[:, top - 1], parts.order[:, top]
    for end, at in enumerate((parts.left, parts.right)):
        apart = points.ranks[at, label] != points.ranks[at, challenger]
        lead[end] = np.where(apart, points.values[at, label] - points.values[at, challenger], 0.0).clip(min=0.0)
    with np.errstate(over="ignore"):
        lead /= np.abs(outputs.errors.scale_of(points.line_index[parts.left]))
    later = lead[1] > lead[0]
    lead, alpha = np.where(later, lead[1], lead[0]), np.where(later, alpha[1], alpha[0])
    best = np.maximum.reduceat(lead, first)
    counts = np.diff(np.append(first, len(lead)))
    where = np.where(lead == np.repeat(best, counts), np.arange(len(lead)), len(lead))
    return best, alpha[np.minimum.reduceat(where, first)]


def _estimate_boundary_errors(
    outputs: OutputValues,
    parts: OrderedParts,
    labels: Ints,  # (parts, top)
    tied: Bools,  # (parts, outputs)
    after: Ints,  # (boundaries,) the part that begins at each
) -> Floats:  # (boundaries,)
    """Estimate the error of each boundary: that of the difference that vanishes there, divided by its slope."""
    if not len(after):
        return np.zeros(0)
    before, points = after - 1, parts.points
    one, two = _find_deciding_pairs(parts, labels, tied, before, after)
    here = parts.left[after]
    at = points.line_index[here], points.alphas[here], points.values[here]
    error = outputs.errors.estimate_differences(*at, one[:, None], two[:, None])[:, 0]
    worst = np.zeros(len(after))
    for side in (before, after):
        left, right = parts.left[side], parts.right[side]
        ends = [points.values[end, one] - points.values[end, two] for end in (left, right)]
        apart_left = points.ranks[left, one] != points.ranks[left, two]
        apart_right = points.ranks[right, one] != points.ranks[right, two]
        with np.errstate(all="ignore"):
            radius = error * ((points.alphas[right] - points.alphas[left]) / np.abs(ends[1] - ends[0]))
        worst = np.maximum(worst, np.where(apart_left | apart_right, np.nan_to_num(radius, nan=1.0), 0.0))
    gap = points.alphas[here] - points.alphas[parts.right[before]]  # left by intervals that were dropped
    return np.minimum(worst + gap + ALPHA_RESOLUTION * points.alphas[here], 1.0)


def _find_deciding_pairs(
    parts: OrderedParts,
    labels: Ints,  # (parts, top)
    tied: Bools,  # (parts, outputs)
    before: Ints,  # (boundaries,) the part that ends at each
    after: Ints,  # (boundaries,) the part that begins there
) -> tuple[Ints, Ints]:  # (boundaries,) each
    """Find the two outputs that meet at each boundary."""
    swap = labels[before] != labels[after]
    level = swap.argmax(1)[:, None]
    one, two = (np.take_along_axis(labels[side], level, 1)[:, 0] for side in (before, after))
    only_tie = np.flatnonzero(~swap.any(1))  # a tie begins or ends and the labels stay
    if len(only_tie):
        old, new = tied[before[only_tie]], tied[after[only_tie]]
        differ = old != new
        joins = differ.shape[1] - 1 - differ[:, ::-1].argmax(1)
        side = np.where(np.take_along_axis(new, joins[:, None], 1)[:, 0], after[only_tie], before[only_tie])
        mates = replace(parts, left=parts.left[side], right=parts.right[side]).find_ties(joins)
        mates[np.arange(len(only_tie)), joins] = False
        one[only_tie], two[only_tie] = joins, mates.argmax(1)
    return one, two
