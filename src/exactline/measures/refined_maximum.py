"""Maxima of estimates with known errors, where only the few rows that could hold a maximum are computed precisely."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..arrays import Floats, Ints
from ..tolerances import MAX_SLOPE_ERROR

MAX_BATCH_ROWS = 512  # rows computed precisely at a time


def refined_maximum(
    estimates: Floats,  # (rows, columns)
    errors: Floats,  # (rows,) largest error of an estimate, possibly infinite
    compute: Callable[[Ints], Floats],  # (k,) rows -> (k, columns) precise values
) -> Floats:  # (columns,)
    """The maximum of each column, as precise values give it.

    >>> precise = np.array([[3.0], [5.0], [4.0]])
    >>> refined_maximum(np.array([[3.0], [5.1], [9.0]]), np.array([0.0, 0.5, 8.0]), precise.__getitem__)
    array([5.])
    """
    is_clear = errors <= MAX_SLOPE_ERROR * np.where(np.isfinite(estimates), estimates, 0.0).max(0, initial=0.0).min()
    found = estimates[is_clear].max(0, initial=0.0)
    with np.errstate(invalid="ignore"):
        lower = np.nan_to_num(estimates - errors[:, None], nan=0.0).max(0, initial=0.0)
        upper = np.nan_to_num(estimates + errors[:, None], nan=np.inf)
    rows = np.flatnonzero(~is_clear & (upper >= np.maximum(found, lower)).any(1))
    rows = rows[np.argsort(-(upper[rows] / np.maximum(lower, np.finfo(np.float64).tiny)).max(1), kind="stable")]
    while len(rows):
        batch, rows = rows[:MAX_BATCH_ROWS], rows[MAX_BATCH_ROWS:]
        found = np.maximum(found, compute(batch).max(0))
        rows = rows[(upper[rows] > found).any(1)]
    return found
