"""Compiled loops over points, where numba is installed: what NumPy does in many passes through memory, in one.

Numbers are looked at as the integers their bits are: sizes compare as the numbers do, and a sign is one bit.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingTypeStubs=false
# pyright: reportUntypedFunctionDecorator=false, reportUnknownArgumentType=false, reportMissingModuleSource=false
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ...arrays import Floats, Ints

MAGNITUDE_BITS = 0x7FFFFFFFFFFFFFFF  # all bits but the sign


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled once for this machine, or for this process where nothing can be kept."""
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:
        return njit(nogil=True)(function)


@_compile
def scan_signs(bits: Ints, line: Ints, counts: Ints) -> tuple[int, int]:  # pragma: no cover - compiled
    """The smallest and the largest size of numbers (n, w), as bits; ``counts`` (n,) gets changes of sign after each."""
    n, w = bits.shape
    low, high = MAGNITUDE_BITS, 0
    for i in range(n):
        for j in range(w):
            size = bits[i, j] & MAGNITUDE_BITS
            low = min(low, size)
            high = max(high, size)
        count = 0
        if i + 1 < n and line[i] == line[i + 1]:
            for j in range(w):
                count += (bits[i, j] ^ bits[i + 1, j]) < 0
        counts[i] = count
    return low, high


@_compile
def insert_sign_changes(
    x: Floats,  # (n, w) none of them zero
    marks: Ints,  # (n, 8)
    spots: Floats,  # (n, 3)
    counts: Ints,  # (n,)
    node: int,
    doubtful: float,
    ulps: float,
    out: Floats,  # (m, w) the ReLU of old and new points is written there
    new_marks: Ints,  # (m, 8) written too
    new_spots: Floats,  # (m, 3)
) -> bool:  # pragma: no cover - compiled
    """Points at all changes of sign, in order; false where two of them, or one and an old point, are close."""
    n, w = x.shape
    units, alphas, rates = np.empty(w, np.int64), np.empty(w), np.empty(w)
    row = -1
    for i in range(n):
        row += 1
        for j in range(w):
            number = x[i, j]
            out[row, j] = number if number > 0.0 else 0.0
        for j in range(8):
            new_marks[row, j] = marks[i, j]
        for j in range(3):
            new_spots[row, j] = spots[i, j]
        if counts[i] == 0:
            continue
        left, right = spots[i, 0], spots[i + 1, 0]
        width = right - left
        found = 0
        for j in range(w):
            before, after = x[i, j], x[i + 1, j]
            if (before < 0.0) == (after < 0.0):
                continue
            before, after = abs(before), abs(after)
            both = before + after
            part = before / both
            alpha = left + part * width if part <= 0.5 else right - (after / both) * width
            slack = ulps * alpha
            if alpha - left - spots[i, 2] <= slack or right - alpha - spots[i + 1, 2] <= slack:
                return False
            at = found
            while at > 0 and alphas[at - 1] > alpha:
                alphas[at], rates[at], units[at] = alphas[at - 1], rates[at - 1], units[at - 1]
                at -= 1
            alphas[at], rates[at], units[at] = alpha, both / width, j
            found += 1
        for k in range(found):
            alpha, fuzz = alphas[k], doubtful / rates[k]
            if k > 0 and alpha - alphas[k - 1] <= fuzz + doubtful / rates[k - 1] + ulps * alpha:
                return False
            row += 1
            part = (alpha - left) / width
            near, far = (i, part) if part < 0.5 else (i + 1, part - 1.0)
            for j in range(w):
                number = x[near, j] + far * (x[i + 1, j] - x[i, j])
                out[row, j] = number if number > 0.0 else 0.0
            out[row, units[k]] = 0.0
            for j in range(2):
                new_marks[row, j] = marks[i, j]
            new_marks[row, 2], new_marks[row, 3], new_marks[row, 4] = node, units[k], 1
            new_marks[row, 5], new_marks[row, 6], new_marks[row, 7] = units[k], -1, 0
            new_spots[row, 0], new_spots[row, 1], new_spots[row, 2] = alpha, rates[k], fuzz
    return True


@_compile
def record_pattern(
    x: Floats,  # (n, w)
    counts: Ints,  # (n,)
    new_marks: Ints,  # (m, 8)
    pattern: NDArray[np.int16],  # (m - 1, w) written: 1 where a unit is on, on the piece that begins at each point
    origin: Ints,  # (m,) written: the old point that each point is or follows
) -> None:  # pragma: no cover - compiled
    """How points came in, for the way back."""
    n, w = x.shape
    row = 0
    for i in range(n):
        origin[row] = i
        if row < len(pattern):
            for j in range(w):
                pattern[row, j] = x[i, j] > 0.0
        row += 1
        for _ in range(counts[i]):
            origin[row] = i
            for j in range(w):
                pattern[row, j] = pattern[row - 1, j]
            unit = new_marks[row, 3]
            pattern[row, unit] = 1 - pattern[row, unit]
            row += 1
