"""Tests of linear functionals on a line: extrema and level sets, against rationals and by hand."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

import exactline as xl
from tests.decide.networks import random_case
from tests.decide.test_decisions import Pair, affine
from tests.oracle.decisions import exact_heights, wrong_extrema, wrong_level

QUICK, ALL = 20, 400


def tent() -> xl.Restriction:
    """max(0, x) and max(0, -x) from -1 to 3."""
    model = nn.Sequential(affine((0.0, 1.0), (0.0, -1.0)), nn.ReLU())
    return xl.restrict(model, [-1.0], [3.0])


def assert_agrees(seed: int) -> None:
    name, network, start, end = random_case(seed)
    line, exact = xl.restrict(network, start, end), xl.exact.restrict(network, start, end)
    g = torch.Generator().manual_seed(seed)
    outputs = line.values[0].numel()
    weights = torch.randint(-3, 4, (outputs,), generator=g).double() + torch.eye(outputs)[seed % outputs]
    ratios = [Fraction(w) for w in weights.tolist()]
    wrong = wrong_extrema(line.extrema(weights), exact, ratios)
    assert wrong is None, f"{name}: {wrong}"
    heights = exact_heights(exact, ratios)
    between = Fraction(float((2 * min(heights) + max(heights)) / 3))
    for c in (Fraction(0), heights[len(heights) // 2], between):
        level = Fraction(float(c))
        wrong = wrong_level(line.level(weights, float(c)), exact, ratios, level, sharp=c == level)
        assert wrong is None, f"{name}, level {float(c)!r}: {wrong}"


@pytest.mark.parametrize("block", range(QUICK // 20))
@pytest.mark.slow
def test_functionals_agree_with_rational_arithmetic(block):
    for seed in range(20 * block, 20 * block + 20):
        assert_agrees(seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_hundreds_of_functionals():
    for seed in range(QUICK, ALL):
        assert_agrees(seed)


def test_extrema_by_hand():
    found = tent().extrema([1.0, 2.0])
    assert (found.minimum, found.argmin, found.maximum, found.argmax) == (0.0, 0.25, 3.0, 1.0)
    assert 0 <= found.error < 1e-13
    assert "from 0 at alpha 0.25 to 3 at alpha 1" in str(found)
    assert tent().extrema(1).maximum == tent().extrema([0, 1]).maximum == 1.0


def test_several_functionals_at_once():
    found = tent().extrema(torch.tensor([[1.0, 2.0], [0.0, -1.0], [0.0, 0.0]]))
    assert found.maximum.tolist() == [3.0, 0.0, 0.0]
    assert found.argmin.tolist() == [0.25, 0.0, 0.0]
    assert found.error.shape == (3,)
    assert str(found) == "extrema of 3 functionals"


def test_levels_by_hand():
    crossed = tent().level([1.0, 1.0], 0.5)
    assert crossed.alphas.tolist() == [0.125, 0.375]
    assert crossed.signs.tolist() == [-1, 1]
    assert len(crossed) == 2
    touched = tent().level([1.0, 1.0], 0.0)
    assert (touched.alphas.tolist(), touched.signs.tolist()) == ([0.25], [0])
    along = tent().level(1, 0.0)
    assert (along.alphas.tolist(), along.intervals) == ([], ((0.25, 1.0),))
    ends = tent().level(0, 3)
    assert ends.alphas.tolist() == [1.0]
    assert tent().level([1.0, 1.0], 3.5).alphas.tolist() == []
    whole = tent().level([0.0, 0.0], 0.0)
    assert whole.intervals == ((0.0, 1.0),)
    through = tent().level([1.0, -1.0], 0.0)  # x itself crosses 0 at the break
    assert (through.alphas.tolist(), through.signs.tolist()) == ([0.25], [1])


def test_a_dip_of_a_millionth_of_the_line_is_found():
    width = 1e-6
    dip = nn.Sequential(affine((-0.37, 1.0), (0.37, -1.0)), nn.ReLU(), nn.Linear(2, 1, dtype=torch.float64))
    dip[2].weight.data, dip[2].bias.data = torch.ones(1, 2).double(), torch.tensor([-width / 2], dtype=torch.float64)
    line = xl.restrict(dip, [0.0], [1.0])  # |x - 0.37| - width / 2
    places = line.level(0, 0.0)
    assert np.allclose(places.alphas, [0.37 - width / 2, 0.37 + width / 2], atol=1e-14)
    assert line.extrema(0).minimum == pytest.approx(-width / 2, abs=1e-15)
    assert line.extrema(0).argmin == pytest.approx(0.37, abs=1e-15)


@pytest.mark.parametrize("size", [1e300, 1.7e308, 1e-300, 1e-320])
def test_values_of_any_size(size):
    line = xl.restrict(affine((0.0, size), (size / 2, 0.0)), [0.0], [1.0])
    assert line.extrema(0).maximum == size
    assert line.level(0, size / 4).alphas.tolist() == pytest.approx([0.25], rel=1e-3 if size < 1e-310 else 1e-12)
    if size > 1e300:
        with pytest.raises(xl.NumberError, match="overflows"):
            line.extrema([1e300, 1e300])


def test_one_point_and_stopped_lines():
    still = xl.restrict(affine((0.5, 1.0)), [0.5], [0.5])
    assert still.extrema(0).minimum == still.extrema(0).maximum == 1.0
    assert still.level(0, 1.0).intervals == ((0.0, 1.0),)
    first = xl.restrict(affine((0.5, 1.0)), [0.5], [1.5], max_breaks=1)
    if len(first.alphas):
        assert first.extrema(0).maximum == 1.0
        assert first.level(0, 1.0).alphas.tolist() == [0.0]


def test_saved_lines_keep_their_error(tmp_path):
    tent().save(tmp_path / "a.safetensors")
    line = xl.Restriction.load(tmp_path / "a.safetensors")
    assert line.extrema([1.0, 2.0]).argmin == 0.25
    assert line.level([1.0, 1.0], 0.0).alphas.tolist() == [0.25]


@pytest.mark.parametrize("weights", [2, -1, True, "a", [1.0], [[[1.0, 2.0]]], [1.0, float("nan")], [1j, 2], None])
@pytest.mark.every(3)
def test_invalid_weights_are_refused(weights):
    with pytest.raises(xl.ArgumentError):
        tent().extrema(weights)


@pytest.mark.parametrize("c", [float("nan"), float("inf"), "a", None, True])
def test_invalid_levels_are_refused(c):
    with pytest.raises(xl.ArgumentError):
        tent().level(0, c)


def test_one_level_at_a_time_and_one_output():
    with pytest.raises(xl.ArgumentError, match="One functional"):
        tent().level([[1.0, 2.0]], 0.0)
    line = xl.restrict(Pair(), [0.0, 1.0], [1.0, 0.0])
    with pytest.raises(xl.ArgumentError, match="2 outputs"):
        line.extrema(0)
    assert line.extrema(0, output=1).minimum == -1.0
    assert line.level(0, -0.5, output=1).alphas.tolist() == [0.5]
