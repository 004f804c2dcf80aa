"""Tests of exact integer arrays: products, sums and splits against Python's integers, and the bound on rounding."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

from exactline.tolerances import UNDERFLOW_ERROR
from exactline.verification.complete import digits as module
from exactline.verification.complete.digits import (
    DigitMatrix,
    find_exponent,
    join_all,
    normalize_digits,
    round_digits,
    split_floats,
    split_integers,
)


def draw(rows: int, columns: int, bits: int) -> np.ndarray:
    """Random integers of up to so many bits, many of them zero, powers of two or their neighbours."""
    generator = random.Random(bits)
    out = np.zeros((rows, columns), dtype=object)
    for at in np.ndindex(rows, columns):
        size = generator.randrange(bits + 1)
        kinds = [
            0,
            1 << size,
            (1 << size) - 1,
            -(1 << size),
            generator.getrandbits(size + 1),
            -generator.getrandbits(size + 1),
        ]
        out[at] = generator.choice(kinds)
    return out


@pytest.mark.parametrize("bits", [1, 21, 22, 23, 43, 44, 100, 900])
def test_integers_are_split_and_joined(bits):
    numbers = draw(5, 7, bits)
    digits = split_integers(numbers)
    assert np.abs(digits).max() <= 1 << (module.DIGIT_BITS - 1)
    assert (join_all(digits) == numbers).all()


@pytest.mark.parametrize("width", [1, 3, 13, 64, 2100])
@pytest.mark.parametrize("bits", [3, 60, 200])
def test_products_are_exact(width, bits):
    weights, x = draw(4, width, bits), draw(width, 3, 2 * bits)
    rows, columns = np.nonzero(weights)
    entries = split_integers(weights[rows, columns][:, None])[:, :, 0] if len(rows) else np.zeros((0, 1))
    matrix = DigitMatrix(weights.shape, rows, columns, entries)
    assert (join_all(normalize_digits(matrix @ split_integers(x))) == weights @ x).all()


def test_large_sparse_matrices_are_gathered(monkeypatch):
    monkeypatch.setattr(module, "MAX_DENSE_ENTRIES", 8)
    weights, x = draw(6, 200, 50), draw(200, 2, 50)
    weights[:, ::2] = 0
    weights[:, 60:] = 0
    rows, columns = np.nonzero(weights)
    matrix = DigitMatrix(weights.shape, rows, columns, split_integers(weights[rows, columns][:, None])[:, :, 0])
    assert matrix.is_gathered
    assert (join_all(normalize_digits(matrix @ split_integers(x))) == weights @ x).all()


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30, 5e-324, 1e300])
def test_floats_are_split_exactly(scale):
    values = np.random.default_rng(0).standard_normal((4, 3)) * scale
    exponent = find_exponent(values)
    exact = [Fraction(v) * 2**exponent for v in values.reshape(-1).tolist()]
    assert all(v.denominator == 1 for v in exact)
    assert join_all(split_floats(values, exponent)).reshape(-1).tolist() == [v.numerator for v in exact]


@pytest.mark.parametrize("bits", [5, 50, 300, 1500])
@pytest.mark.parametrize("denominator", [1, 3**20, 1 << 200, (1 << 1400) + 1])
def test_rounding_stays_within_its_bound(bits, denominator):
    numbers = draw(6, 6, bits)
    rounded = round_digits(split_integers(numbers), denominator)
    for number, value in zip(numbers.reshape(-1).tolist(), rounded.reshape(-1).tolist(), strict=True):
        exact = Fraction(number, denominator)
        if abs(exact) < Fraction(2) ** 1000:
            assert abs(Fraction(value) - exact) <= abs(exact) / 2**49 + Fraction(UNDERFLOW_ERROR)
