"""Which output leads on every point of a line, or of many lines together."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError
from .given import Given, of_line, of_lines
from .intervals import Decisions, ManyDecisions, Table
from .ranking import Bools, Ordered, Rows, joined, ordered, ranked
from .trust import Floats, Ints

if TYPE_CHECKING:
    from ..restriction import Restriction
    from ..restrictions import Restrictions

AT_ONCE = 1 << 22  # numbers that are ranked together
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
            f"top is {top!r}; the network has {count} output{'' if count == 1 else 's'}.",
            where="argument top",
            hint=f"Give a whole number from 1 to {count}." if count else "Give a network with outputs.",
        )
    better = given.values if order == "max" else -given.values
    pieces = np.flatnonzero(given.trust.owner[:-1] == given.trust.owner[1:])
    doubtful = given.trust.doubtful(float(np.abs(given.values).max(initial=0.0)))
    step = max(1, AT_ONCE // max(count, 1))
    levels = min(int(top) + 1, count)
    blocks = [
        _parts(given, better, pieces[at : at + step], levels, doubtful) for at in range(0, max(len(pieces), 1), step)
    ]
    return _merged(given, joined(blocks), int(top))


def _parts(given: Given, better: Floats, pieces: Ints, levels: int, doubtful: float) -> Ordered:
    """Some pieces, cut until the best outputs keep their order along each part."""
    trust = given.trust
    used = np.union1d(pieces, pieces + 1)

    def rank(owner: Ints, alphas: Floats, values: Floats, meeting: Ints | None = None) -> Rows:
        return ranked(owner, alphas, values, trust, given.scale, doubtful, meeting)

    rows = rank(trust.owner[used], trust.alphas[used], better[used])
    left = np.searchsorted(used, pieces)
    return ordered(rows, left, left + 1, levels, rank)


def _merged(given: Given, parts: Ordered, top: int) -> Table:
    """Neighbouring parts with the same labels and the same ties are one interval."""
    owner, labels, tied = parts.rows.owner[parts.left], parts.order[:, :top], _tied(parts, top)
    new = np.ones(len(owner), dtype=np.bool_)
    line = owner[1:] != owner[:-1]
    new[1:] = line | (labels[1:] != labels[:-1]).any(1) | (tied[1:] != tied[:-1]).any(1)
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(new)) - 1 if len(first) else first
    inner = first[1:][~line[first[1:] - 1]]  # boundaries, by the part that begins there
    margins, places = _margins(given, parts, top, first)
    errors = np.zeros(len(new) + 1)
    errors[inner] = _errors(given, parts, labels, tied, inner)
    return Table(
        np.searchsorted(owner[first], np.arange(len(given.offsets))),
        parts.rows.alphas[parts.left[first]],
        parts.rows.alphas[parts.right[last]],
        labels[first],
        tied[first],
        margins,
        places,
        errors[first],
        errors[last + 1],
    )


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
        lead /= given.scale(rows.owner[parts.left])
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
    size = given.trust.differences(rows.owner[here], rows.alphas[here], one[:, None], two[:, None])[:, 0]
    size *= given.scale(rows.owner[here])
    worst = np.zeros(len(after))
    for side in (before, after):
        left, right = parts.left[side], parts.right[side]
        ends = [rows.values[end, one] - rows.values[end, two] for end in (left, right)]
        apart = (rows.ranks[left, one] != rows.ranks[left, two]) | (rows.ranks[right, one] != rows.ranks[right, two])
        with np.errstate(all="ignore"):
            reach = size * ((rows.alphas[right] - rows.alphas[left]) / np.abs(ends[1] - ends[0]))
        worst = np.maximum(worst, np.where(apart, np.nan_to_num(reach, nan=1.0), 0.0))
    return np.minimum(worst + ROUNDING * rows.alphas[here], 1.0)


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
