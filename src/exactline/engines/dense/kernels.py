"""Loops over points, compiled by numba: one pass through memory instead of NumPy's many.

Absolute values are compared as integers: the bits of a float64 without its sign bit are ordered like the numbers.
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingTypeStubs=false
# pyright: reportUntypedFunctionDecorator=false, reportUnknownArgumentType=false, reportMissingModuleSource=false
# pyright: reportMissingImports=false

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...arrays import Floats, Ints
from ..jit import compile_loop
from .points import COUNT, LINE, NODE, UNIT

MAGNITUDE_BITS = 0x7FFFFFFFFFFFFFFF  # all bits but the sign


@compile_loop
def scan_signs(
    bits: Ints,  # (n, w) the bits of float64 values at n points
    line: Ints,  # (n,)
    counts: Ints,  # (n,) written: the number of sign changes between a point and the next one of its line
) -> tuple[int, int]:  # pragma: no cover - compiled
    """The bits of the smallest and of the largest absolute value."""
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


@compile_loop
def insert_sign_changes(
    x: Floats,  # (n, w) values without zeros
    integers: Ints,  # (n, 5) columns of the point table
    old_alphas: Floats,  # (n,)
    counts: Ints,  # (n,) from `scan_signs`
    node: int,
    threshold: float,
    out: Floats,  # (m, w) written: the ReLU of x at old and new points
    new_integers: Ints,  # (m, 5) written: columns of the new point table
    new_alphas: Floats,  # (m,) written
) -> bool:  # pragma: no cover - compiled
    """Insert a point at every sign change; False if two of them may be ties, or one falls on an old point."""
    n, w = x.shape
    units, alphas, slopes = np.empty(w, np.int64), np.empty(w), np.empty(w)
    row = -1
    for i in range(n):
        row += 1
        for j in range(w):
            number = x[i, j]
            out[row, j] = number if number > 0.0 else 0.0
        for j in range(COUNT + 1):
            new_integers[row, j] = integers[i, j]
        new_alphas[row] = old_alphas[i]
        if counts[i] == 0:
            continue
        left, right = old_alphas[i], old_alphas[i + 1]
        width = right - left
        found = 0
        for j in range(w):
            before, after = x[i, j], x[i + 1, j]
            if (before < 0.0) == (after < 0.0):
                continue
            before, after = abs(before), abs(after)
            total = before + after
            fraction = before / total
            alpha = left + fraction * width if fraction <= 0.5 else right - (after / total) * width
            if alpha <= left or alpha >= right:
                return False
            at = found  # insertion sort by alpha
            while at > 0 and alphas[at - 1] > alpha:
                alphas[at], slopes[at], units[at] = alphas[at - 1], slopes[at - 1], units[at - 1]
                at -= 1
            alphas[at], slopes[at], units[at] = alpha, total / width, j
            found += 1
        for k in range(found):
            alpha = alphas[k]
            if k > 0 and (alpha - alphas[k - 1]) * min(slopes[k], slopes[k - 1]) <= threshold:
                return False
            row += 1
            fraction = (alpha - left) / width
            near, step = (i, fraction) if fraction < 0.5 else (i + 1, fraction - 1.0)
            for j in range(w):
                number = x[near, j] + step * (x[i + 1, j] - x[i, j])
                out[row, j] = number if number > 0.0 else 0.0
            out[row, units[k]] = 0.0
            for j in range(LINE, NODE):  # line and candidates of the piece that is split
                new_integers[row, j] = integers[i, j]
            new_integers[row, NODE], new_integers[row, UNIT], new_integers[row, COUNT] = node, units[k], 1
            new_alphas[row] = alpha
    return True


@compile_loop
def place_sign_changes(
    x: Floats,  # (n, w) values without zeros
    integers: Ints,  # (n, 5) columns of the point table
    old_alphas: Floats,  # (n,)
    counts: Ints,  # (n,) from `scan_signs`
    node: int,
    threshold: float,
    max_shrinkage: float,
    new_integers: Ints,  # (m, 5) written: columns of the new point table
    new_alphas: Floats,  # (m,) written
    hats: Floats,  # (m, 3) written for new points: position in the piece, weights right and left of the crossing
) -> int:  # pragma: no cover - compiled
    """Place a point at every sign change without values; the number of points whose values interpolation may not give.

    The position of these points is negated. A result of -1 means that two crossings may be ties, or that one falls on
    an old point.

    The ReLU of a crossing unit lies below its chord over the piece, by a hat with its tip at the crossing. The weights
    are the slopes of the hat, per unit of the piece. The sum of all hats is subtracted from the chord of the sum of
    all units, which shows by how much the values of a point are smaller than those at the ends of the piece: rounding
    errors of an interpolation are relative to the ends.
    """
    n, w = x.shape
    sums = np.zeros(n)
    for i in range(n):
        total = 0.0
        for j in range(w):
            total += x[i, j] if x[i, j] > 0.0 else 0.0
        sums[i] = total
    units, alphas, slopes = np.empty(w, np.int64), np.empty(w), np.empty(w)
    row, shrunken = -1, 0
    for i in range(n):
        row += 1
        for j in range(COUNT + 1):
            new_integers[row, j] = integers[i, j]
        new_alphas[row] = old_alphas[i]
        if counts[i] == 0:
            continue
        left, right = old_alphas[i], old_alphas[i + 1]
        width = right - left
        found = 0
        for j in range(w):
            before, after = x[i, j], x[i + 1, j]
            if (before < 0.0) == (after < 0.0):
                continue
            before, after = abs(before), abs(after)
            total = before + after
            fraction = before / total
            alpha = left + fraction * width if fraction <= 0.5 else right - (after / total) * width
            if alpha <= left or alpha >= right:
                return -1
            at = found  # insertion sort by alpha
            while at > 0 and alphas[at - 1] > alpha:
                alphas[at], slopes[at], units[at] = alphas[at - 1], slopes[at - 1], units[at - 1]
                at -= 1
            alphas[at], slopes[at], units[at] = alpha, total / width, j
            found += 1
        after_sum = 0.0  # of the weights of crossings to the right of a point
        for k in range(found):
            alpha, unit = alphas[k], units[k]
            if k > 0 and (alpha - alphas[k - 1]) * min(slopes[k], slopes[k - 1]) <= threshold:
                return -1
            fraction = (alpha - left) / width
            if fraction <= 0.0 or fraction >= 1.0:
                return -1
            row += 1
            for j in range(LINE, NODE):  # line and candidates of the piece that is split
                new_integers[row, j] = integers[i, j]
            new_integers[row, NODE], new_integers[row, UNIT], new_integers[row, COUNT] = node, unit, 1
            new_alphas[row] = alpha
            start, end = max(x[i, unit], 0.0), max(x[i + 1, unit], 0.0)  # one of them is 0
            hats[row, 0] = fraction
            hats[row, 1] = start + end * (fraction / (1.0 - fraction))
            hats[row, 2] = end + start * ((1.0 - fraction) / fraction)
            after_sum += hats[row, 2]
        before_sum = 0.0
        for k in range(found):
            at = row - found + 1 + k
            fraction = hats[at, 0]
            before_sum += hats[at, 1]
            after_sum -= hats[at, 2]
            chord = (1.0 - fraction) * (sums[i] - before_sum) + fraction * (sums[i + 1] - after_sum)
            if not chord * max_shrinkage >= max(sums[i], sums[i + 1]):
                hats[at, 0] = -fraction
                shrunken += 1
    return shrunken


@compile_loop
def interpolate_products(
    z: Floats,  # (n, v) the affine layer after the ReLU, at old points
    columns: Floats,  # (c, b) its weights to a block of outputs, one row for each of some units of the ReLU
    first_output: int,  # of the block
    column: Ints,  # (m,) the row of `columns` for the unit of each new point
    counts: Ints,  # (n,) from `scan_signs`
    hats: Floats,  # (m, 3) from `place_sign_changes`
    out: Floats,  # (m, v) written in the block: the affine layer at old and new points
) -> None:  # pragma: no cover - compiled
    """Values of the layer after a ReLU: its chord over the piece less the hat of every unit that crosses there."""
    n, v = len(z), columns.shape[1]
    start, stop = first_output, first_output + v
    running = np.empty(v)
    row = -1
    for i in range(n):
        row += 1
        out[row, start:stop] = z[i, start:stop]
        if counts[i] == 0:
            continue
        first, last = row + 1, row + counts[i]
        out[last, start:stop] = 0.0
        for k in range(last, first, -1):  # what crossings to the right of a point subtract there
            weight, weights, target, source = hats[k, 2], columns[column[k]], out[k - 1, start:stop], out[k, start:stop]
            for j in range(v):
                target[j] = source[j] + weight * weights[j]
        running[:] = 0.0
        left, right = z[i, start:stop], z[i + 1, start:stop]
        for k in range(first, last + 1):
            weight, weights, target = hats[k, 1], columns[column[k]], out[k, start:stop]
            fraction = abs(hats[k, 0])
            rest = 1.0 - fraction
            for j in range(v):
                running[j] += weight * weights[j]
                target[j] = rest * (left[j] - running[j]) + fraction * (right[j] - target[j])
        row = last


@compile_loop
def relu_at_new_points(
    x: Floats,  # (n, w)
    counts: Ints,  # (n,) from `scan_signs`
    new_integers: Ints,  # (m, 5) columns of the new point table
    hats: Floats,  # (m, 3) from `place_sign_changes`
    rows: Ints,  # (k,) written: the new points whose position is negated
    out: Floats,  # (k, w) written: the ReLU of x there
) -> None:  # pragma: no cover - compiled
    """The ReLU of x at the new points that `place_sign_changes` has marked."""
    n, w = x.shape
    row, found = -1, 0
    for i in range(n):
        row += 1
        for _ in range(counts[i]):
            row += 1
            fraction = -hats[row, 0]
            if fraction < 0.0:
                continue
            near, step = (i, fraction) if fraction < 0.5 else (i + 1, fraction - 1.0)
            for j in range(w):
                number = x[near, j] + step * (x[i + 1, j] - x[i, j])
                out[found, j] = number if number > 0.0 else 0.0
            out[found, new_integers[row, UNIT]] = 0.0
            rows[found] = row
            found += 1


@compile_loop
def record_pattern(
    x: Floats,  # (n, w)
    counts: Ints,  # (n,) from `scan_signs`
    new_integers: Ints,  # (m, 5) columns of the new point table
    pattern: NDArray[np.int16],  # (m - 1, w) written: 1 where a unit is on, on the piece that starts at each point
    source_point: Ints,  # (m,) written: the old point that each point is, or follows
) -> None:  # pragma: no cover - compiled
    """Record the activation pattern and the source points for the backward sweep."""
    n, w = x.shape
    row = 0
    for i in range(n):
        source_point[row] = i
        if row < len(pattern):
            for j in range(w):
                pattern[row, j] = x[i, j] > 0.0
        row += 1
        for _ in range(counts[i]):
            source_point[row] = i
            for j in range(w):
                pattern[row, j] = pattern[row - 1, j]
            unit = new_integers[row, UNIT]
            pattern[row, unit] = 1 - pattern[row, unit]
            row += 1
