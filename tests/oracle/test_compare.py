"""The comparison itself: fair where floats cannot resolve, strict everywhere else."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import pytest
import torch

from exactline import exact
from exactline.exact import ExactRestriction
from exactline.ops.functions import relu
from tests.exact.networks import chain, linear

from .compare import mismatch


def crossing_at(*alphas: Fraction) -> ExactRestriction:
    """An exact restriction with these breaks: whole weights that cross zero just there."""
    weights = [[float(a.denominator)] for a in alphas]
    net = chain((1,), linear(weights, [-float(a.numerator) for a in alphas]), relu())
    found = exact.restrict(net, [0.0], [1.0])
    assert found.alphas == [0, *sorted(alphas), 1]
    return found


def floats(*alphas: float) -> torch.Tensor:
    return torch.tensor([0.0, *alphas, 1.0], dtype=torch.float64)


THIRD, ULP = 1 / 3, 2.0**-54


@pytest.mark.parametrize("off", [0.0, 1e-16, -9e-11, 9e-11])
def test_breaks_within_the_tolerance_match(off):
    assert mismatch(floats(THIRD + off), crossing_at(Fraction(1, 3))) is None


@pytest.mark.parametrize(
    ("alphas", "word"),
    [
        ((), "missed 0.333"),
        ((THIRD + 1.1e-10,), "missed 0.333"),
        ((0.2, THIRD), "invented 0.2"),
        ((THIRD, THIRD + ULP), "invented a break near 0.333"),  # a sliver of one ulp
        ((THIRD - 1e-12, THIRD), "invented a break near 0.333"),
        ((THIRD, 1 - 1e-12), "invented a break near"),
    ],
)
def test_a_missed_invented_or_distant_break_is_told(alphas, word):
    told = mismatch(floats(*alphas), crossing_at(Fraction(1, 3)))
    assert told is not None
    assert told.startswith(word)


def test_breaks_that_floats_cannot_resolve_may_merge_but_not_multiply():
    near = 2**52
    pair = crossing_at(Fraction(near // 3, near), Fraction(near // 3 + 1, near))  # 2.2e-16 apart
    a, b = (float(alpha) for alpha in pair.alphas[1:3])
    assert mismatch(floats(a), pair) is None
    assert mismatch(floats(a, b), pair) is None
    assert mismatch(floats(a, b, b + ULP * 4), pair) is not None


def test_close_breaks_that_floats_do_resolve_must_all_be_there():
    near = 10**12
    pair = crossing_at(Fraction(near // 3, near), Fraction(near // 3 + 1, near))  # 1e-12 apart
    a, b = (float(alpha) for alpha in pair.alphas[1:3])
    assert mismatch(floats(a, b), pair) is None
    told = mismatch(floats(a), pair)
    assert told is not None
    assert told.startswith("missed a break near 0.333")
    assert mismatch(floats(a), pair, resolution=1e-11) is None


def test_a_chain_of_close_breaks_does_not_collapse_into_one():
    near = 2**52
    chained = crossing_at(*(Fraction(near // 3 + 32 * k, near) for k in range(8)))  # 7e-15 apart, 5e-14 in all
    alphas = [float(alpha) for alpha in chained.alphas[1:-1]]
    assert all(b - a < 1e-14 for a, b in pairwise(alphas))
    assert mismatch(floats(*alphas), chained) is None
    assert mismatch(floats(*alphas[::2]), chained) is None
    assert mismatch(floats(alphas[3]), chained) is not None


def test_one_missed_and_one_invented_do_not_cancel():
    pair = crossing_at(Fraction(1, 4), Fraction(1, 2))
    assert mismatch(floats(0.25, 0.25 + 5e-11), pair) is not None
    told = mismatch(floats(0.25, 0.75), pair)
    assert told is not None
    assert told.startswith("missed 0.5, ExactOrigin(node='relu_1', unit=1, count=1)")


@pytest.mark.parametrize(
    "alphas",
    [
        torch.tensor([0.0, 1.0]),
        torch.tensor([0.0, 0.5], dtype=torch.float64),
        torch.tensor([0.0, 0.5, 0.5, 1.0], dtype=torch.float64),
        torch.tensor([0.0, float("nan"), 1.0], dtype=torch.float64),
    ],
)
def test_malformed_breaks_are_told(alphas):
    assert mismatch(alphas, crossing_at(Fraction(1, 2))) is not None
