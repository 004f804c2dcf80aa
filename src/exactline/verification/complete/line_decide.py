"""Decides disjuncts on the pieces of a line: most by rounded numbers with an error bound, the others by fractions."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ...tolerances import LINE_FORM_ERROR, UNDERFLOW_ERROR
from .constraints import FeasibleRegion
from .groups import ConstraintTable, Group
from .line_sweep import LinePieces


def find_regions(table: ConstraintTable, group: Group, pieces: LinePieces) -> Iterator[FeasibleRegion]:
    """Yield where disjuncts of a group hold on some pieces, whose outputs are the rows of the table."""
    disjuncts = np.array(group.disjuncts, dtype=np.int64)
    axis = group.axes[0]
    low, high = table.lower[table.box[disjuncts], axis], table.upper[table.box[disjuncts], axis]
    starts = np.array([float(a) for a, _ in pieces.ends])
    ends = np.array([float(b) for _, b in pieces.ends])
    first = np.searchsorted(np.nextafter(ends, np.inf), low)  # pieces that may overlap each box
    stop = np.searchsorted(np.nextafter(starts, -np.inf), high, side="right")
    counts = np.maximum(stop - first, 0)
    pair_disjunct = np.repeat(np.arange(len(disjuncts)), counts)
    pair_piece = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first, counts)
    is_excluded = _exclude(
        table, disjuncts[pair_disjunct], pair_piece, pieces, (low[pair_disjunct], high[pair_disjunct])
    )
    rows: dict[int, dict[int, tuple[Fraction, Fraction]]] = {}  # by piece
    for pair in np.flatnonzero(~is_excluded).tolist():
        piece, disjunct = int(pair_piece[pair]), table.make_disjunct(int(disjuncts[pair_disjunct[pair]]), (axis,))
        exact = rows.setdefault(piece, {})
        for c in disjunct.limits:
            if c.row not in exact:
                forms = (pieces.offsets[c.row, piece], pieces.slopes[c.row, piece])
                exact[c.row] = Fraction(forms[0], pieces.denominator), Fraction(forms[1], pieces.denominator)
        region = disjunct.find_interval(*pieces.ends[piece], exact)
        if region is not None:
            yield region


def _exclude(
    table: ConstraintTable,
    disjuncts: NDArray[np.int64],  # (pairs,) indices in the property
    piece: NDArray[np.int64],  # (pairs,)
    pieces: LinePieces,
    bounds: tuple[NDArray[np.float64], NDArray[np.float64]],  # (pairs,) of the boxes
) -> NDArray[np.bool_]:  # (pairs,)
    """Mark pairs of a disjunct and a piece for which rounded numbers show that some constraint holds nowhere."""
    offsets = np.array([[_divide(n, pieces.denominator) for n in row] for row in pieces.offsets.tolist()])
    slopes = np.array([[_divide(n, pieces.denominator) for n in row] for row in pieces.slopes.tolist()])
    starts = np.array([float(a) for a, _ in pieces.ends])
    ends = np.array([float(b) for _, b in pieces.ends])
    counts = table.offsets[disjuncts + 1] - table.offsets[disjuncts]
    pair = np.repeat(np.arange(len(piece)), counts)
    first = np.repeat(table.offsets[disjuncts] - np.cumsum(counts) + counts, counts)
    constraint = first + np.arange(counts.sum())
    row, at = table.row[constraint], piece[pair]
    is_violated = np.ones(len(pair), dtype=np.bool_)
    for x in (np.maximum(bounds[0], starts[piece])[pair], np.minimum(bounds[1], ends[piece])[pair]):
        with np.errstate(over="ignore", invalid="ignore"):
            a, b = offsets[row, at], slopes[row, at] * x
            error = LINE_FORM_ERROR * (np.abs(a) + np.abs(b) + np.abs(table.limit[constraint]))
            error += UNDERFLOW_ERROR * (1 + np.abs(slopes[row, at]) + np.abs(x))
            is_violated &= a + b - table.limit[constraint] > error
    excluded = np.zeros(len(piece), dtype=np.bool_)
    excluded[pair[is_violated]] = True
    return excluded


def _divide(numerator: int, denominator: int) -> float:
    try:
        return numerator / denominator
    except OverflowError:
        return float("nan")
