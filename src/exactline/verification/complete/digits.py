"""Exact integer arrays for matrix products by BLAS: balanced digits of base 2**22, stored as float64.

A product of two digits has at most 42 bits, so a sum of 2,048 of them is exact in float64 in any order.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .errors import NetworkTooLarge

DIGIT_BITS = 22
MAX_EXACT_TERMS = 1 << (53 - 2 * (DIGIT_BITS - 1))  # products of two digits whose sum is exact in float64
MAX_GATHERED_TERMS = 12  # nonzero weights of a row, up to which gathering them beats a dense product (empirical)
MAX_DENSE_ENTRIES = 1 << 22  # of a matrix that is stored densely although few of its entries are not zero
MAX_MATRIX_DIGITS = 1 << 27  # of one matrix: 1 GiB
Digits: TypeAlias = NDArray[np.float64]  # (elements, digits, columns), lowest digit first
Integers: TypeAlias = NDArray[Any]  # of Python integers


def normalize_digits(sums: NDArray[np.int64]) -> Digits:  # (elements, digits, columns), overwritten
    """Carry until every digit is at most half of the base in size; digits that are zero everywhere at the top go."""
    half, parts = 1 << (DIGIT_BITS - 1), [sums[:, k] for k in range(sums.shape[1])]
    carry = np.zeros_like(parts[0]) if parts else np.zeros((len(sums), sums.shape[2]), dtype=np.int64)
    digits: list[NDArray[np.int64]] = []
    for part in parts:
        total = part + carry
        carry = (total + half) >> DIGIT_BITS
        digits.append(total - (carry << DIGIT_BITS))
    while carry.any():
        total, carry = carry, (carry + half) >> DIGIT_BITS
        digits.append(total - (carry << DIGIT_BITS))
    while len(digits) > 1 and not digits[-1].any():
        digits.pop()
    return np.stack(digits, axis=1).astype(np.float64)


def split_integers(numbers: Integers) -> Digits:  # (elements, columns)
    """Split integers of any size into digits."""
    flat = [int(n) for n in numbers.reshape(-1).tolist()]
    count = max((abs(n).bit_length() for n in flat), default=0) // DIGIT_BITS + 1
    mask = (1 << DIGIT_BITS) - 1
    rows = [[(abs(n) >> (DIGIT_BITS * k)) & mask for k in range(count)] for n in flat]
    sizes = np.array(rows, dtype=np.int64).reshape(*numbers.shape, count)
    signs = np.array([-1 if n < 0 else 1 for n in flat], dtype=np.int64).reshape(*numbers.shape, 1)
    return normalize_digits(np.moveaxis(sizes * signs, -1, 1))


def split_floats(values: NDArray[np.float64], exponent: int) -> Digits:  # (elements, columns)
    """Split the integers ``values * 2**exponent`` into digits."""
    size = float(np.abs(values).max(initial=0.0))
    if not size:
        return np.zeros((len(values), 1, values.shape[1]))
    count = max((int(np.frexp(size)[1]) + exponent) // DIGIT_BITS + 1, 1)
    rest, digits = values.copy(), np.zeros((len(values), count, values.shape[1]))
    for k in range(count - 1, -1, -1):
        digits[:, k] = np.trunc(np.ldexp(rest, exponent - DIGIT_BITS * k))
        rest -= np.ldexp(digits[:, k], DIGIT_BITS * k - exponent)
    return normalize_digits(digits.astype(np.int64))


def find_exponent(values: NDArray[np.float64]) -> int:
    """Find the smallest power of two, at least 0, whose product with every value is an integer."""
    mantissa, exponent = np.frexp(values[values != 0])
    if not len(mantissa):
        return 0
    integer = np.ldexp(mantissa, 53).astype(np.int64)
    trailing_zeros = np.frexp((integer & -integer).astype(np.float64))[1] - 1
    return max(int((53 - exponent - trailing_zeros).max()), 0)


def join_digits(digits: NDArray[np.float64]) -> int:  # (digits,)
    """Return the integer that some digits stand for."""
    total = 0
    for digit in digits[::-1].tolist():
        total = (total << DIGIT_BITS) + int(digit)
    return total


def join_all(digits: Digits) -> Integers:  # (elements, columns)
    """Return all integers of an array."""
    out = np.zeros((len(digits), digits.shape[2]), dtype=object)
    for k in range(digits.shape[1] - 1, -1, -1):
        out = out * (1 << DIGIT_BITS) + digits[:, k].astype(np.int64).astype(object)
    return out


def add_digits(one: Digits, other: Digits) -> Digits:
    """Add two arrays; missing digits and missing columns at the end count as zero."""
    shape = (len(one), max(one.shape[1], other.shape[1]), max(one.shape[2], other.shape[2]))
    sums = np.zeros(shape, dtype=np.int64)
    for part in (one, other):
        sums[:, : part.shape[1], : part.shape[2]] += part.astype(np.int64)
    return normalize_digits(sums)


def round_digits(digits: Digits, denominator: int) -> NDArray[np.float64]:  # (elements, columns)
    """Round the numbers ``digits / denominator`` to float64: a relative error below 2**-49 plus `UNDERFLOW_ERROR`.

    Numbers beyond float64's range become infinite or NaN.
    """
    shift = denominator.bit_length() - 1
    total = np.zeros((len(digits), digits.shape[2]))
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        for k in range(digits.shape[1]):  # small ones first: all errors together are those of the last two sums
            total += np.ldexp(digits[:, k], DIGIT_BITS * k - shift)
        return total / (denominator / (1 << shift))


class DigitMatrix:
    """A matrix of integers that is multiplied with digits; sparse rows are gathered, others multiplied by BLAS."""

    def __init__(
        self,
        shape: tuple[int, int],
        rows: NDArray[np.int64],  # (n,) sorted
        columns: NDArray[np.int64],  # (n,)
        digits: NDArray[np.float64],  # (n, digits)
    ) -> None:
        self.shape = shape
        counts = np.bincount(rows, minlength=shape[0])
        self.width = int(counts.max(initial=0))
        is_large = shape[0] * shape[1] > MAX_DENSE_ENTRIES
        self.is_gathered = self.width <= (shape[1] // 4 if is_large else min(MAX_GATHERED_TERMS, shape[1]))
        entries = digits.shape[1] * shape[0] * (self.width if self.is_gathered else shape[1])
        if entries > MAX_MATRIX_DIGITS:
            raise NetworkTooLarge
        if self.is_gathered:
            place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
            self.index = np.zeros((shape[0], self.width), dtype=np.int64)
            self.index[rows, place] = columns
            self.weights = np.zeros((digits.shape[1], shape[0], self.width))
            self.weights[:, rows, place] = digits.T
        else:
            self.weights = np.zeros((digits.shape[1], *shape))
            self.weights[:, rows, columns] = digits.T

    def __matmul__(self, x: Digits) -> NDArray[np.int64]:  # (columns, digits, n) -> (rows, more digits, n)
        """Return the product as sums of digits that are not carried yet."""
        out = np.zeros((self.shape[0], x.shape[1] + len(self.weights) - 1, x.shape[2]), dtype=np.int64)
        for k, weights in enumerate(self.weights):
            out[:, k : k + x.shape[1]] += self._multiply(weights, x)
        return out

    def _multiply(self, weights: NDArray[np.float64], x: Digits) -> NDArray[np.int64]:
        if self.is_gathered:
            out = np.zeros((self.shape[0], *x.shape[1:]), dtype=np.int64)
            for first in range(0, self.width, MAX_EXACT_TERMS):
                total = np.zeros(out.shape)
                for k in range(first, min(first + MAX_EXACT_TERMS, self.width)):
                    total += weights[:, k, None, None] * x[self.index[:, k]]
                out += total.astype(np.int64)
            return out
        flat, out = x.reshape(len(x), -1), np.zeros((self.shape[0], *x.shape[1:]), dtype=np.int64)
        for first in range(0, len(x), MAX_EXACT_TERMS):
            part = weights[:, first : first + MAX_EXACT_TERMS] @ flat[first : first + MAX_EXACT_TERMS]
            out += part.reshape(out.shape).astype(np.int64)
        return out
