"""Lines of the windows of a maximum: the largest, those that tie with it, and those that equal each other."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..budget import block_bytes, check_deadline
from .base import Crossings, ErrorBounds
from .masks import is_on_host

MAX_GPU_WINDOW_ELEMENTS = 1 << 22  # elements of windows gathered at a time on a GPU
BYTES_PER_WINDOW_ELEMENT = 64  # of all temporary numbers while the lines of windows are compared on a CPU
MIN_BLOCK_COLUMNS = 64  # elements per window: smaller windows are compared a column of the table at a time
EQUAL_LINES_WEIGHT = 0.618  # of the second end in the sum by which equal lines are sorted


def find_equal_lines(
    ends: tuple[Tensor, Tensor],  # (k, size) each: the lines at both ends of their pieces
    piece: Tensor,  # (k,)
    elements: Tensor,  # (k, size)
    one: Tensor,  # (k,)
    other: Tensor,  # (k,)
    compared: Tensor,  # (k,) whether the lines of a row are compared
    errors: ErrorBounds,
) -> Tensor:
    """The rows (n,) in which two lines are within their errors of each other at both ends."""
    pair = torch.stack([one, other], 1)
    distances = [(line[:, 0] - line[:, 1]).abs() for line in (end.gather(1, pair) for end in ends)]
    (rows,) = torch.nonzero(compared & (torch.maximum(*distances) <= 2 * errors.threshold), as_tuple=True)
    for step, distance in enumerate(distances):
        if len(rows):
            points, where = torch.unique(piece[rows] + step, return_inverse=True)
            crossing = elements[rows].gather(1, pair[rows])
            bounds = errors.bound(points)[where[:, None], crossing.clamp(min=0)] * (crossing >= 0)
            rows = rows[distance[rows] <= bounds.sum(1)]
    return rows


def may_tie_for_lead(
    before: Tensor,  # (k, size) the lines of windows at both ends of a piece
    after: Tensor,
    elements: Tensor,  # (k, size)
    threshold: float,
    limit: float,
) -> Tensor:
    """Windows (k,) in which several lines of at most a size may be tied for the lead on a part of the piece."""
    first, last = parts_tied_for_lead(before, after, elements, threshold, limit)
    return first < last


def parts_tied_for_lead(
    before: Tensor,  # (k, size) the lines of windows at both ends of a piece
    after: Tensor,
    elements: Tensor,  # (k, size)
    threshold: float,
    limit: float,
) -> tuple[Tensor, Tensor]:
    """Fractions (k,) of a piece between which several lines of at most a size may be tied for the lead; 1 and 0: none.

    While one line leads, the others are tied with it at both ends. Where the leader changes, lines may be tied up to
    the change, from it on, or while neither of the two leads. Lines that are tied at one end only are apart again soon.
    """
    near = [(end.amax(1, keepdim=True) - end <= 2 * threshold) & (end.abs() <= limit) for end in (before, after)]
    leaders = [end.argmax(1, keepdim=True) for end in (before, after)]
    last = have_several(near[0] & near[1], elements).to(before.dtype)
    first = 1 - last
    (rows,) = torch.nonzero((leaders[0] != leaders[1])[:, 0], as_tuple=True)
    if not len(rows):
        return first, last
    before, after, elements = before[rows], after[rows], elements[rows]
    may_lead = (before.abs() <= limit) & (after.abs() <= limit)
    for leader in leaders:
        lowest = [end.gather(1, leader[rows]) - 2 * threshold for end in (before, after)]
        may_lead &= (before >= lowest[0]) | (after >= lowest[1])
    # equal lines are neighbours in the order of a sum that differs for lines that only meet
    keys, order = (before + EQUAL_LINES_WEIGHT * after).masked_fill(~may_lead, torch.nan).sort(1)
    differ = elements.gather(1, order).diff() != 0
    equal = (keys.diff() <= 2 * threshold * (1 + EQUAL_LINES_WEIGHT)) & differ
    is_whole = equal.any(1) | (last[rows] > 0)
    at_start, at_end = (have_several(end[rows], elements) for end in near)
    from_start, from_end = (
        _reach_of_ties(end.masked_fill(~tied[rows], torch.nan), elements, threshold)
        for end, tied in zip((after, before), near, strict=True)
    )
    first[rows] = torch.where(at_end, 1 - from_end, 1.0).masked_fill_(at_start | is_whole, 0.0)
    last[rows] = torch.where(at_start, from_start, 0.0).masked_fill_(at_end | is_whole, 1.0)
    return first, last


def _reach_of_ties(far: Tensor, elements: Tensor, threshold: float) -> Tensor:
    """The share (k,) of a piece on which lines may be tied that are tied at one end; at the other they are ``far``.

    Two lines that are up to two thresholds apart at one end, and a distance g at the other, are farther apart from
    4 thresholds / (g + 2 thresholds) of the piece on. Lines that are not compared are NaN.
    """
    values, order = far.sort(1)
    differ = elements.gather(1, order).diff() != 0
    gaps = values.diff().masked_fill_(~differ, torch.nan).nan_to_num_(torch.inf)
    return (4 * threshold / (gaps.amin(1) + 2 * threshold)).clamp_(max=1.0)


def rival_leaders(
    flat: Tensor,  # (points, elements) times the sign of the maximum
    table: Tensor,  # (windows, size)
    leaders: Tensor,  # (points, windows) flat positions of the largest elements, -1 for the floor
    distance: float,
    has_floor: bool,
) -> Tensor:
    """Windows in which a line other than the leader is within a distance of it, (points, windows).

    Goes through the table a column at a time, as `window_maxima` does; large windows are taken to have such lines.
    """
    if table.shape[1] >= MIN_BLOCK_COLUMNS:
        return torch.ones_like(leaders, dtype=torch.bool)
    is_element = leaders >= 0
    least = flat.gather(1, leaders.clamp(min=0)).masked_fill_(~is_element, 0.0).sub_(distance)
    found = is_element & (least <= 0) if has_floor else torch.zeros_like(is_element)
    for column in table.unbind(1):  # a window may repeat an element
        found |= (flat.index_select(1, column) >= least) & (leaders != column)
    return found


def have_several(tied: Tensor, elements: Tensor) -> Tensor:
    """Windows (k,) with several lines that are tied, (k, size); a window may repeat an element."""
    lowest, highest = elements.masked_fill(~tied, torch.iinfo(torch.int64).max), elements.masked_fill(~tied, -2)
    return lowest.amin(1) < highest.amax(1)


def max_window_elements(like: Tensor) -> int:
    """How many elements of windows are gathered at a time on the device of a tensor."""
    return block_bytes() // BYTES_PER_WINDOW_ELEMENT if is_on_host(like) else MAX_GPU_WINDOW_ELEMENTS


def column_blocks(flat: Tensor, table: Tensor) -> Iterator[tuple[int, Tensor]]:
    """The columns of a table in blocks of bounded size for all points: the first column, and the block."""
    step = max(1, max_window_elements(flat) // max(len(flat) * len(table), 1))
    for first in range(0, table.shape[1], step):
        check_deadline()
        yield first, table[:, first : first + step]


def window_maxima(flat: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """The largest element of every window and its column in the table, (points, windows) each; ties: the first.

    Goes through the table a column or a block of columns at a time, to save memory.
    """
    if table.shape[1] >= MIN_BLOCK_COLUMNS:
        return _large_window_maxima(flat, table)
    best = flat.index_select(1, table[:, 0])
    column = torch.zeros_like(best, dtype=torch.int64)
    for k in range(1, table.shape[1]):
        candidate = flat.index_select(1, table[:, k])
        ahead = candidate > best
        best = torch.where(ahead, candidate, best)
        column.masked_fill_(ahead, k)
    return best, column


def _large_window_maxima(flat: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """`window_maxima` for large windows, in blocks of columns."""
    best, column = None, None
    for first, columns in column_blocks(flat, table):
        values, where = flat[:, columns].max(2)
        if best is None or column is None:
            best, column = values, where
            continue
        ahead = values > best
        best = torch.where(ahead, values, best)
        column = torch.where(ahead, where + first, column)
    if best is None or column is None:
        raise ValueError("a window is empty")
    return best, column


def ties_with_leader(
    ends: tuple[Tensor, ...],  # (k, size) each: values of the lines at some points
    rows: tuple[Tensor, ...],  # (k,) each: these points
    elements: Tensor,  # (k, size) flat positions, -1 for the floor
    errors: ErrorBounds,
) -> list[Tensor]:
    """Which lines are tied with the largest, up to errors, at each of the points, (k, size) each."""
    maxima = [values.max(1, keepdim=True) for values in ends]
    gaps = [best - values for values, (best, _) in zip(ends, maxima, strict=True)]
    near = [(gap > 0) & (gap <= 2 * errors.threshold) for gap in gaps]
    if not any(bool(n.any()) for n in near):
        return [gap == 0 for gap in gaps]
    leaders = [leader for _, leader in maxima]
    return [_refine_ties(g, n, r, w, elements, errors) for g, n, r, w in zip(gaps, near, rows, leaders, strict=True)]


def _refine_ties(
    gap: Tensor,  # (k, size) distance to the largest line
    near: Tensor,  # (k, size) whether the floating-point filter leaves a tie open
    rows: Tensor,  # (k,) points
    leader: Tensor,  # (k, 1) column of the largest line
    elements: Tensor,  # (k, size)
    errors: ErrorBounds,
) -> Tensor:
    """Which lines are tied with the largest at one end, (k, size), by the error bounds of both."""
    unclear = near.any(1)
    if not bool(unclear.any()):
        return gap == 0
    points, where = torch.unique(rows[unclear], return_inverse=True)
    is_element = elements[unclear] >= 0
    bound = errors.bound(points)[where[:, None], elements[unclear].clamp(min=0)] * is_element
    tied = gap == 0
    tied[unclear] |= gap[unclear] <= bound + bound.gather(1, leader[unclear])
    return tied


def make_crossings(
    piece: Tensor,  # (k,)
    window: Tensor,  # (k,)
    ends: tuple[Tensor, Tensor],  # (k, size) values of the lines at the left and the right end
    elements: Tensor,  # (k, size)
    leader: Tensor,  # (k,) columns
    challenger: Tensor,  # (k,) columns
) -> Crossings:
    """The crossings at which challengers overtake the leaders of windows."""

    def pick(table: Tensor, column: Tensor) -> Tensor:
        return table[: len(column)].gather(1, column[:, None])[:, 0]

    before, after = (pick(end, challenger) - pick(end, leader) for end in ends)
    element, partner = pick(elements, challenger), pick(elements, leader)
    # the floor is not an element: the element that meets it is set to exactly 0
    element, partner = torch.where(element < 0, partner, element), torch.where(element < 0, element, partner)
    return Crossings(piece, window, before.clamp(max=0), after, element, partner, torch.zeros_like(before))
