"""Mean gradients of smooth tails against closed forms, quadrature in 40 digits, and the change of the probability."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from exactline.engines.dense import tail_gradients
from exactline.engines.dense.tail_gradients import (
    envelope_segments,
    mean_sigmoid_slope,
    mean_softmax_gradient,
    mean_tanh_slope,
)
from exactline.errors import NumberError

mpmath = pytest.importorskip("mpmath")
STEEPNESS = [1.0, 1e3, 1e6, 1e8, 1e12, 1e16, 1e100, 1e300]


def double(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def quadrature_40_digits(start: list[float], stop: list[float], target: int, logarithm: bool) -> list[float]:
    """The mean gradient by Gauss-Legendre quadrature on intervals graded around all crossings of two logits."""
    with mpmath.workdps(40):
        first = [mpmath.mpf(x) for x in start]
        slope = [mpmath.mpf(b) - a for a, b in zip(first, stop, strict=True)]
        cuts = {mpmath.mpf(0), mpmath.mpf(1)}
        for i, j in combinations(range(len(start)), 2):
            if (rate := abs(slope[i] - slope[j])) > 0:
                centre = (first[i] - first[j]) / (slope[j] - slope[i])
                offsets = [mpmath.mpf(2) ** (k / 2) / rate for k in range(-2, 20)]
                near = [centre, *(centre + sign * x for x in offsets for sign in (-1, 1))]
                cuts |= {x for x in near if 0 < x < 1} | {x / rate for x in range(1, 200, 4) if x < rate}
                cuts |= {1 - x / rate for x in range(1, 200, 4) if x < rate}
        nodes = [(mpmath.mpf(float(x)), mpmath.mpf(float(w))) for x, w in zip(*LEGENDRE, strict=True)]
        total = [mpmath.mpf(0)] * len(start)
        for left, right in pairwise(sorted(cuts)):
            half = (right - left) / 2
            for node, weight in nodes:
                t = left + half * (1 + node)
                logits = [a + t * s for a, s in zip(first, slope, strict=True)]
                top = max(logits)
                parts = [mpmath.exp(x - top) for x in logits]
                size = sum(parts)
                for j in range(len(start)):
                    if j != target:
                        total[j] += weight * half * parts[j] / size * (1 if logarithm else parts[target] / size)
        return [float(sum(total)) if j == target else -float(total[j]) for j in range(len(start))]


LEGENDRE = np.polynomial.legendre.leggauss(16)  # their rounding of 1e-16 is the accuracy of the comparison


@pytest.mark.parametrize("scale", STEEPNESS)
def test_two_classes_have_the_divided_difference_of_the_sigmoid(scale: float):
    start, stop = double([-0.37 * scale, 0.0]), double([0.63 * scale, 0.0])
    found = mean_softmax_gradient(start, stop, torch.tensor([0]), False)[0]
    with mpmath.workdps(40):
        ends = [1 / (1 + mpmath.exp(-mpmath.mpf(float(x[0, 0])))) for x in (start, stop)]
        want = float((ends[1] - ends[0]) / (mpmath.mpf(float(stop[0, 0])) - mpmath.mpf(float(start[0, 0]))))
    assert float(found[0]) == pytest.approx(want, rel=1e-13)
    assert float(found[1]) == -float(found[0])


@pytest.mark.parametrize("scale", STEEPNESS)
@pytest.mark.parametrize("ends", [(-0.37, 0.63), (0.0, 1.0), (-1.0, 0.0), (0.2, 0.2), (-0.5, -0.5)], ids=str)
def test_elementwise_tails_have_closed_forms(ends: tuple[float, float], scale: float):
    a, b = (torch.tensor([x * scale], dtype=torch.float64) for x in ends)
    with mpmath.workdps(60):
        x, y = mpmath.mpf(float(a)), mpmath.mpf(float(b))
        if x == y:
            want = mpmath.sech(x) ** 2, mpmath.sech(x / 2) ** 2 / 4
        else:
            want = ((mpmath.tanh(c * y) - mpmath.tanh(c * x)) / (y - x) * d for c, d in ((1, 1), (0.5, 0.5)))
        for function, value in zip((mean_tanh_slope, mean_sigmoid_slope), want, strict=True):
            assert float(function(a, b)) == pytest.approx(float(value), rel=1e-13, abs=1e-323)


def test_elementwise_tails_are_accurate_where_they_round_to_one():
    with mpmath.workdps(400):
        for a, b in [(30.0, 31.0), (300.0, 300.0 + 2.0**-40), (-200.0, -100.0), (-1e-200, 1e-200)]:
            want = (mpmath.tanh(mpmath.mpf(b)) - mpmath.tanh(mpmath.mpf(a))) / (mpmath.mpf(b) - mpmath.mpf(a))
            found = float(
                mean_tanh_slope(torch.tensor([a], dtype=torch.float64), torch.tensor([b], dtype=torch.float64))
            )
            assert found == pytest.approx(float(want), rel=1e-12)


@pytest.mark.parametrize("logarithm", [False, True], ids=["softmax", "log_softmax"])
@pytest.mark.parametrize("classes", [3, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4, 1e9])
@pytest.mark.every(2)
def test_several_classes_equal_quadrature_in_forty_digits(scale: float, classes: int, logarithm: bool):
    generator = torch.Generator().manual_seed(int(scale))
    start, stop = torch.randn(2, 1, classes, generator=generator, dtype=torch.float64) * scale
    target = int(stop.argmax())
    found = mean_softmax_gradient(start, stop, torch.tensor([target]), logarithm)[0]
    want = double(quadrature_40_digits(start[0].tolist(), stop[0].tolist(), target, logarithm))[0]
    assert float((found - want).abs().max()) <= 1e-12 * float(want.abs().max())


@pytest.mark.parametrize(
    ("start", "stop"),
    [
        ([0.0, 0.0, 0.0], [3.0, 5.0, -50.0]),  # all tied at the start
        ([3.0, 5.0, -50.0], [0.0, 0.0, 0.0]),  # and at the end
        ([-50.0, 0.0, -50.0], [50.0, 0.0, 50.0]),  # two identical lines overtake a third
        ([-100.0, 0.0, -1.0], [100.0, 0.0, 1.0]),  # three lines meet in one point with different rates
        ([-1e6, 0.0, -1.0], [1e6, 0.0, 1.0]),
        ([100.0, 0.0, 1.0], [60.0, 0.0, 30.0]),  # the target leads everywhere
        ([-100.0, 0.0, 1.0], [-60.0, 0.0, 90.0]),  # the target leads nowhere
        ([700.0, 0.0, 1.0], [650.0, 0.0, -3.0]),
        ([1e9, 1e9 + 3, 1e9 - 1], [1e9 + 1, 1e9 - 2, 1e9]),  # a common offset
    ],
)
@pytest.mark.every(2)
def test_ties_and_faint_targets_equal_quadrature_in_forty_digits(start: list[float], stop: list[float]):
    for logarithm in (False, True):
        found = mean_softmax_gradient(double(start), double(stop), torch.tensor([0]), logarithm)[0]
        want = double(quadrature_40_digits(start, stop, 0, logarithm))[0]
        assert float(want.abs().max()) > 0
        assert float((found - want).abs().max()) <= 1e-12 * float(want.abs().max())


@pytest.mark.parametrize("classes", [10, 1000])
@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6, 1e12, 1e300])
def test_many_classes_are_complete(classes: int, scale: float):
    generator = torch.Generator().manual_seed(classes)
    start, stop = torch.randn(2, 3, classes, generator=generator, dtype=torch.float64) * scale
    middle = (start + stop) / 2
    targets = torch.stack([start.argmax(1), stop.argmax(1), middle.argmax(1)]).flatten()
    start, stop = start.repeat(3, 1), stop.repeat(3, 1)
    found = mean_softmax_gradient(start, stop, targets, False)
    total = (found * (stop - start)).sum(1)
    want = torch.softmax(stop, 1) - torch.softmax(start, 1)
    want = want.gather(1, targets[:, None])[:, 0]
    # random vertices are quiet: beside them nothing depends on the roundings of the logits
    assert float((total - want).abs().max()) <= 1e-12
    rows = found.sum(1).abs() / found.abs().sum(1)
    assert float(rows.max()) <= 1e-13  # a shift of all logits changes nothing


@pytest.mark.parametrize("classes", [100, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("scale", [1e2, 1e6])
def test_classes_that_all_lead_in_turn_are_complete(classes: int, scale: float):
    x = torch.linspace(-1, 1, classes, dtype=torch.float64)
    start, stop = scale * (-2 * x - x * x)[None], scale * (2 * x - x * x)[None]  # tangents of a parabola
    target = classes // 2
    found = mean_softmax_gradient(start, stop, torch.tensor([target]), True)
    want = (torch.log_softmax(stop, 1) - torch.log_softmax(start, 1))[0, target]
    size = float((found * (stop - start)).abs().sum())
    assert abs(float((found * (stop - start)).sum() - want)) <= 1e-12 * size


def test_the_work_does_not_depend_on_the_steepness(monkeypatch: pytest.MonkeyPatch):
    generator = torch.Generator().manual_seed(5)
    start, stop = torch.randn(2, 20, 10, generator=generator, dtype=torch.float64)
    rows, original = [], tail_gradients._integrate_interval

    def count(gap: Tensor, change: Tensor, target: Tensor, logarithm: bool) -> Tensor:
        rows[-1] += len(gap)
        return original(gap, change, target, logarithm)

    monkeypatch.setattr(tail_gradients, "_integrate_interval", count)
    for scale in (1e6, 1e9, 1e12, 1e100, 1e300):
        rows.append(0)
        mean_softmax_gradient(start * scale, stop * scale, torch.arange(20) % 10, False)
    assert max(rows) <= 1.05 * min(rows)
    assert max(rows) <= 20 * 150


def test_segments_of_the_envelope_are_those_of_the_maximum():
    generator = torch.Generator().manual_seed(3)
    start, stop = torch.randint(-4, 5, (2, 200, 6), generator=generator).double()
    length, positions = torch.zeros(200, dtype=torch.float64), torch.zeros(200, dtype=torch.float64)
    for segment in envelope_segments(start, stop):
        rows = segment.pieces
        for at, gap in ((positions[rows], segment.left), (positions[rows] + segment.length, segment.right)):
            values = torch.lerp(start[rows], stop[rows], at[:, None])
            assert torch.allclose(gap, values - values.amax(1, keepdim=True), rtol=0, atol=1e-14)
        # one line leads on the whole segment
        assert bool(((segment.left == 0) & (segment.right == 0)).any(1).all())
        positions[rows] += segment.length
        length[rows] += segment.length
    assert torch.allclose(length, torch.ones(200, dtype=torch.float64), rtol=0, atol=1e-14)


def test_rows_do_not_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch):
    generator = torch.Generator().manual_seed(4)
    start, stop = torch.randn(2, 50, 7, generator=generator, dtype=torch.float64) * 40
    target = torch.arange(50) % 7
    whole = mean_softmax_gradient(start, stop, target, False)
    monkeypatch.setattr(tail_gradients, "MAX_QUADRATURE_ELEMENTS", 500)
    apart = mean_softmax_gradient(start, stop, target, False)
    assert float((whole - apart).abs().max()) <= 1e-15


def test_a_quadrature_that_fails_raises_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tail_gradients, "MAX_LOGIT_CHANGE", 400.0)
    with pytest.raises(NumberError, match="integral of a softmax is off"):
        mean_softmax_gradient(double([-370.0, 0.0]), double([630.0, 0.0]), torch.tensor([0]), False)


def test_differences_of_logits_that_overflow_raise_an_error():
    for start, stop in (([-1e308, 1e308], [0.0, 0.0]), ([0.0, 0.0], [-1e308, 1e308])):
        with pytest.raises(NumberError, match="overflow"):
            mean_softmax_gradient(double(start), double(stop), torch.tensor([0]), False)
