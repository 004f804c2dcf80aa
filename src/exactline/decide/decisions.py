"""Which output leads on every point of a line, or of many lines together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Bools, Floats, Ints
from ..errors import ArgumentError
from ..humanize import count_noun
from .intervals import Decisions, ManyDecisions, Table
from .ranking import Ordered, Rows, joined, ordered, ranked
from .values import Given, of_line, of_lines

if TYPE_CHECKING:
    from ..results.restriction import Restriction
    from ..results.restrictions import Restrictions

AT_ONCE = 1 << 20  # numbers that are ranked together
ROUNDING = 4 * 2.0**-52  # of an alpha


def decisions_of_line(line: Restriction, order: str, top: Any, output: int | None) -> Decisions:
    """See `Restriction.decisions`."""
    given = of_line(line, output, "line.decisions")
    return Decisions(_table(given, order, top), 0, line, order, int(top), given.output)


def decisions_of_lines(lines: Restrictions, order: str, top: Any, output: int | None) -> ManyDecisions:
    """See `Restrictions.decisions`."""
    given = of_lines(lines, output, "lines.decisions")
    return ManyDecisions(_table(given, order, top), lines, order, int(top), given.output)


def _table(given: Given, order: str, top: Any) -> Table:
    if order not in ("max", "min"):
        raise ArgumentError(f"order is {order!r}.", where="argument order", hint='Give "max" or "min".')
    count = given.values.shape[1]
    whole = isinstance(top, (int, np.integer)) and not isinstance(top, bool)
    if not whole or not 1 <= top <= count:
        raise ArgumentError(
            f"top is {top!r}; the network has {count_noun(count, 'output')}.",
            where="argument top",
            hint=f"Give a whole number from 1 to {count}." if count else "Give a network with outputs.",
        )
    given = given if order == "max" else given.turned()
    pieces = np.flatnonzero(given.trust.owner[:-1] == given.trust.owner[1:])
    doubtful = given.trust.doubtful(float(np.abs(given.values).max(initial=0.0)))
    step = max(1, AT_ONCE // max(count, 1))
    levels = min(int(top) + 1, count)
    blocks = [_parts(given, pieces[at : at + step], levels, doubtful) for at in range(0, max(len(pieces), 1), step)]
    return _merged(given, joined(blocks), int(top))


def _parts(given: Given, pieces: Ints, levels: int, doubtful: float) -> Ordered:
    """Some pieces, cut until the best outputs keep their order along each part."""
    trust = given.trust
    used = np.union1d(pieces, pieces + 1)

    def rank(owner: Ints, alphas: Floats, values: Floats, meeting: Ints | None = None) -> Rows:
        return ranked(owner, alphas, values, trust, doubtful, meeting)

    rows = rank(trust.owner[used], trust.alphas[used], given.values[used])
    left = np.searchsorted(used, pieces)
    return ordered(rows, left, left + 1, levels, rank)


def _merged(given: Given, parts: Ordered, top: int) -> Table:
    """Neighbouring parts with the same labels and the same ties are one interval."""
    while True:
        table, thin = _intervals(given, parts, top)
        if not thin.any():
            return table
        parts = replace(parts, left=parts.left[~thin], right=parts.right[~thin], order=parts.order[~thin])


def _intervals(given: Given, parts: Ordered, top: int) -> tuple[Table, Bools]:
    """Intervals, and which parts belong to one so narrow that rounding alone may have made it."""
    owner, labels, tied = parts.rows.owner[parts.left], parts.order[:, :top], _tied(parts, top)
    new = np.ones(len(owner), dtype=np.bool_)
    line = owner[1:] != owner[:-1]
    new[1:] = line | (labels[1:] != labels[:-1]).any(1) | (tied[1:] != tied[:-1]).any(1)
    first = np.flatnonzero(new)
    inner = first[1:][~line[first[1:] - 1]]  # boundaries, by the part that begins there
    begins = np.ones(len(first), dtype=np.bool_)  # which intervals begin a line
    begins[1:] = line[first[1:] - 1]
    ends = np.append(begins[1:], True)[: len(first)]
    alphas, breaks = parts.rows.alphas, given.trust.alphas
    starts = np.where(begins, breaks[given.offsets[owner[first]]], alphas[parts.left[first]])
    stops = np.where(ends, breaks[given.offsets[owner[first] + 1] - 1], np.append(starts[1:], 0.0)[: len(first)])
    margins, places = _margins(given, parts, top, first)
    errors = np.zeros(len(first) + 1)
    errors[:-1][~begins] = _errors(given, parts, labels, tied, inner)
    table = Table(
        np.searchsorted(owner[first], np.arange(len(given.offsets))),
        starts,
        stops,
        labels[first],
        tied[first],
        margins,
        places,
        errors[:-1],
        np.where(ends, 0.0, errors[1:]),
    )
    thin = stops - starts <= table.start_errors + table.stop_errors
    return table, np.repeat(_not_all(thin, stops - starts, begins), np.diff(np.append(first, len(new))))


def _not_all(thin: Bools, widths: Floats, begins: Bools) -> Bools:
    """The thin intervals, but of lines that have no others all but the widest."""
    if not thin.any():
        return thin
    first = np.flatnonzero(begins)
    counts = np.diff(np.append(first, len(thin)))
    hopeless = np.repeat(np.logical_and.reduceat(thin, first), counts)
    widest = widths == np.repeat(np.maximum.reduceat(widths, first), counts)
    return thin & ~(hopeless & widest)


def _tied(parts: Ordered, top: int) -> Bools:  # (parts, outputs)
    """Which outputs share one of the places that count, with each other, along each part."""
    tied = np.zeros((len(parts.left), parts.rows.values.shape[1]), dtype=np.bool_)
    for place in range(top):
        same = parts.together(parts.order[:, place])
        tied |= same & (same.sum(1, keepdims=True) > 1)
    return tied


def _margins(given: Given, parts: Ordered, top: int, first: Ints) -> tuple[Floats, Floats]:
    """The largest lead over the next output in each interval, and where; on a part it is at one of its ends."""
    rows = parts.rows
    if parts.order.shape[1] == top or not len(first):
        return np.full(len(first), np.inf), rows.alphas[parts.left[first]]
    lead, place = np.zeros((2, len(parts.left))), np.stack([rows.alphas[parts.left], rows.alphas[parts.right]])
    label, rival = parts.order[:, top - 1], parts.order[:, top]
    for end, at in enumerate((parts.left, parts.right)):
        apart = rows.ranks[at, label] != rows.ranks[at, rival]
        lead[end] = np.where(apart, rows.values[at, label] - rows.values[at, rival], 0.0).clip(min=0.0)
    with np.errstate(over="ignore"):
        lead /= np.abs(given.trust.scale(rows.owner[parts.left]))
    later = lead[1] > lead[0]
    lead, place = np.where(later, lead[1], lead[0]), np.where(later, place[1], place[0])
    best = np.maximum.reduceat(lead, first)
    counts = np.diff(np.append(first, len(lead)))
    where = np.where(lead == np.repeat(best, counts), np.arange(len(lead)), len(lead))
    return best, place[np.minimum.reduceat(where, first)]


def _errors(given: Given, parts: Ordered, labels: Ints, tied: Bools, after: Ints) -> Floats:
    """How far boundaries may be off: the error of the difference that vanishes there, over how fast it does."""
    if not len(after):
        return np.zeros(0)
    before, rows = after - 1, parts.rows
    one, two = _deciding(parts, labels, tied, before, after)
    here = parts.left[after]
    at = rows.owner[here], rows.alphas[here], rows.values[here]
    size = given.trust.differences(*at, one[:, None], two[:, None])[:, 0]
    worst = np.zeros(len(after))
    for side in (before, after):
        left, right = parts.left[side], parts.right[side]
        ends = [rows.values[end, one] - rows.values[end, two] for end in (left, right)]
        apart = (rows.ranks[left, one] != rows.ranks[left, two]) | (rows.ranks[right, one] != rows.ranks[right, two])
        with np.errstate(all="ignore"):
            reach = size * ((rows.alphas[right] - rows.alphas[left]) / np.abs(ends[1] - ends[0]))
        worst = np.maximum(worst, np.where(apart, np.nan_to_num(reach, nan=1.0), 0.0))
    hole = rows.alphas[here] - rows.alphas[parts.right[before]]  # left by intervals too narrow to be sure of
    return np.minimum(worst + hole + ROUNDING * rows.alphas[here], 1.0)


def _deciding(parts: Ordered, labels: Ints, tied: Bools, before: Ints, after: Ints) -> tuple[Ints, Ints]:
    """The two outputs whose difference makes each boundary."""
    swap = labels[before] != labels[after]
    place = swap.argmax(1)[:, None]
    one, two = (np.take_along_axis(labels[side], place, 1)[:, 0] for side in (before, after))
    only = np.flatnonzero(~swap.any(1))  # a tie begins or ends, the labels stay
    if len(only):
        old, new = tied[before[only]], tied[after[only]]
        differ = old != new
        joins = differ.shape[1] - 1 - differ[:, ::-1].argmax(1)
        side = np.where(np.take_along_axis(new, joins[:, None], 1)[:, 0], after[only], before[only])
        mates = replace(parts, left=parts.left[side], right=parts.right[side]).together(joins)
        mates[np.arange(len(only)), joins] = False
        one[only], two[only] = joins, mates.argmax(1)
    return one, two
