"""Tests of decisions: against rationals, networks solved by hand, and at the limits of floats."""

from __future__ import annotations

from fractions import Fraction
from math import inf, pi
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import exactline as xl
from tests.decide.networks import Twins, layers, random_case
from tests.oracle.decisions import boundaries_hold, disagreement, exact_decisions
from tests.oracle.families import Apply, seeded

QUICK, ALL = 40, 1000
COMBINATIONS = [("max", 1), ("min", 1), ("max", 2), ("min", 3), ("max", 9)]


def affine(*rows: tuple[float, float]) -> nn.Module:
    """Outputs a + b x of one input x."""
    model = nn.Linear(1, len(rows), dtype=torch.float64)
    model.weight.data = torch.tensor([[b] for _, b in rows], dtype=torch.float64)
    model.bias.data = torch.tensor([a for a, _ in rows], dtype=torch.float64)
    return model.eval()


def decide(model: nn.Module, start=(0.0,), end=(1.0,), **options):
    return xl.restrict(model, list(start), list(end)).decisions(**options)


def assert_agrees(seed: int, combinations: list[tuple[str, int]]) -> None:
    name, network, start, end = random_case(seed)
    line, exact = xl.restrict(network, start, end), xl.exact.restrict(network, start, end)
    outputs = line.values[0].numel()
    slack = 1e-11 * (1 + float(line.values.abs().max()))
    for order, top in combinations:
        top = min(top, outputs)
        truth = exact_decisions(exact, order, top)
        assert boundaries_hold(exact, truth, order), f"{name}: the oracle itself, {order}, {top}"
        wrong = disagreement(line.decisions(order, top), truth, slack)
        assert wrong is None, f"{name}, {order}, top {top}: {wrong}"


@pytest.mark.parametrize("block", range(QUICK // 20))
@pytest.mark.every(2)
def test_intervals_agree_with_rational_arithmetic(block):
    for seed in range(20 * block, 20 * block + 20):
        assert_agrees(seed, [COMBINATIONS[0], COMBINATIONS[1 + seed % 4]])


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_thousand_networks():
    for seed in range(QUICK, ALL):
        assert_agrees(seed, COMBINATIONS)


def test_two_outputs_that_meet():
    found = decide(affine((0.0, 1.0), (0.5, 0.0)))
    assert [(i.start, i.stop, i.label, i.tied) for i in found] == [(0, 0.5, 1, ()), (0.5, 1, 0, ())]
    assert [(i.margin, i.margin_at) for i in found] == [(0.5, 0.0), (0.5, 1.0)]
    assert found[0].start_error == found[1].stop_error == 0
    assert 0 < found[0].stop_error == found[1].start_error < 1e-13
    assert found.boundaries.tolist() == [0.5]
    assert found.labels == [1, 0]


def test_three_outputs_that_meet_at_one_point_make_no_interval_of_zero_width():
    third = 1 / 3  # not a float: the crossings of the three pairs round differently
    for shift in (0.0, 1e-3, 7.0, 1e5):
        rows = [(shift - s * third, s) for s in (-2.0, 0.5, 3.0)]
        found = decide(affine(*rows))
        truth = exact_decisions(xl.exact.restrict(affine(*rows), [0.0], [1.0]))
        assert [i.label for i in found] == [0, 2], f"{found}"
        assert len(truth) <= 3  # the offsets are rounded: the middle one may lead along a sliver
        assert abs(float(found.boundaries[0]) - third) <= found[0].stop_error + 1e-15


def test_a_tie_at_one_point_is_no_interval():
    touching = nn.Sequential(affine((-0.5, 1.0), (0.5, -1.0), (0.0, 0.0)), nn.ReLU(), nn.Linear(3, 2, bias=False))
    touching[2].weight.data = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    found = decide(touching.double())  # |x - 1/2| and 0
    assert [(i.start, i.stop, i.label, i.tied) for i in found] == [(0, 1, 0, ())]


def test_ties_along_pieces_are_intervals_of_their_own():
    model = nn.Sequential(affine((-0.25, 1.0), (-0.5, 1.0), (-1.0, 0.5)), nn.ReLU())
    found = decide(model)
    assert [(i.start, i.stop, i.label, i.tied) for i in found] == [(0, 0.25, 0, (0, 1, 2)), (0.25, 1, 0, ())]
    assert found[0].margin == 0
    least = decide(model, order="min")
    assert [(i.stop, i.label, i.tied) for i in least] == [(0.25, 0, (0, 1, 2)), (0.5, 1, (1, 2)), (1, 2, ())]
    assert all(i.stop_error < 1e-12 for i in found)


def test_a_boundary_at_a_break_is_the_break():
    bend = nn.Sequential(affine((-1 / 3, 1.0), (1 / 3, -1.0)), nn.ReLU())
    line = xl.restrict(bend, [0.0], [1.0])
    assert line.decisions().boundaries.tolist() == line.alphas[1:-1].tolist()


def test_several_labels_in_order():
    found = decide(affine((0.0, 1.0), (0.5, 0.0), (0.25, 0.0)), top=2)
    assert [(i.stop, i.label) for i in found] == [(0.25, (1, 2)), (0.5, (1, 0)), (1.0, (0, 1))]
    assert found.at(0.3).label == (1, 0)
    assert found.at(0.3).best == 1
    whole = decide(affine((0.0, 1.0), (0.5, 0.0)), top=2)
    assert [i.margin for i in whole] == [inf, inf]


def test_one_point():
    still = decide(affine((0.0, 1.0), (1.0, 0.0)), [0.5], [0.5])
    assert [(i.start, i.stop, i.label, i.margin) for i in still] == [(0, 1, 1, 0.5)]


@pytest.mark.parametrize("size", [1e300, 1.7e308, 1e-300, 5e-321])
def test_the_size_of_values_does_not_matter(size):
    found = decide(affine((0.0, size), (size / 2, 0.0)))
    assert found.labels == [1, 0]
    assert float(found.boundaries[0]) == pytest.approx(Fraction(size / 2) / Fraction(size), abs=found[0].stop_error)


def test_huge_values_of_opposite_signs_do_not_overflow():
    found = decide(affine((1.7e308, -1.7e308), (-1.7e308, 1.7e308)), [0.0], [2.0])
    assert found.labels == [0, 1]
    assert found.boundaries.tolist() == [0.5]


@pytest.mark.parametrize("offset", [2.0**25, 2.0**50])
def test_differences_lost_in_rounding_are_ties_or_true(offset):
    found = decide(affine((offset, 1.0), (offset + 0.5, 0.0)))
    truth = exact_decisions(xl.exact.restrict(affine((offset, 1.0), (offset + 0.5, 0.0)), [0.0], [1.0]))
    if offset < 2.0**40:
        assert disagreement(found, truth, 1e-6) is None
    else:
        assert {0, 1} >= {i.label for i in found}


@pytest.mark.slow
def test_equal_outputs_that_round_differently_are_tied_everywhere():
    for seed in range(12):
        g = torch.Generator().manual_seed(seed)
        model, width = layers(g, 3)
        twins = Twins(seeded(model, g), g).eval()
        start, end = torch.randn(2, width, generator=g, dtype=torch.float64) * 3
        for interval in xl.restrict(twins, start, end).decisions():
            assert interval.tied == (interval.label, interval.label + 3)


def test_many_lines_agree_with_each_line_alone():
    model, width = layers(torch.Generator().manual_seed(5), 4)
    starts, ends = torch.randn(2, 40, width, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    lines = xl.restrict_many(seeded(model, torch.Generator().manual_seed(7)), starts, ends)
    many = lines.decisions(top=2)
    assert len(many) == 40
    for line, found in zip(lines, many, strict=True):
        alone = line.decisions(top=2)
        assert alone.labels == found.labels
        assert alone.boundaries.tolist() == found.boundaries.tolist()
        assert np.allclose([i.margin for i in alone], [i.margin for i in found], rtol=1e-12)
    assert len(many[-1]) == len(many[39])
    assert len(many[3:5]) == 2
    with pytest.raises(IndexError):
        many[40]


def test_batches_do_not_change_the_answer(monkeypatch):
    name, network, start, end = random_case(2)
    line = xl.restrict(network, start, end)
    whole = list(line.decisions(top=2))
    monkeypatch.setattr("exactline.decide.decisions.MAX_RANKED_NUMBERS", 1)
    assert list(line.decisions(top=2)) == whole, name


def test_lines_without_values_stopped_or_minimal_or_saved(tmp_path):
    g = torch.Generator().manual_seed(2)
    model, width = layers(g, 4)
    seeded(model, g)
    start, end = torch.randn(2, width, generator=g, dtype=torch.float64) * 3
    line = xl.restrict(model, start, end)
    truth = line.decisions()
    assert len(truth) > 1
    line.save(tmp_path / "a.safetensors")
    bare = xl.restrict(model, start, end, values=False)
    for other in (bare, line.minimal(), xl.Restriction.load(tmp_path / "a.safetensors")):
        found = other.decisions()
        assert found.labels == truth.labels
        assert np.allclose(found.boundaries, truth.boundaries, atol=1e-12)
    bare.save(tmp_path / "b.safetensors")
    with pytest.raises(xl.MissingError):
        xl.Restriction.load(tmp_path / "b.safetensors").decisions()
    many = xl.restrict_many(model, start[None], end[None], values=False).decisions()
    assert many[0].labels == truth.labels
    part = xl.restrict(model, start, end, max_breaks=3)
    assert part.decisions()[-1].stop == part.reached < 1
    with pytest.raises(xl.ArgumentError, match="the decided range is"):
        part.decisions().at(1.0)
    parts = list(xl.sweep(model, start, end, memory=1))
    assert next(i.label for p in parts for i in p.decisions()) == truth.labels[0]


def test_a_line_stopped_before_its_first_piece():
    line = xl.restrict(affine((0.0, 1.0), (1.0, 0.0)), [0.0], [1.0], max_breaks=1)
    found = line.decisions()
    assert list(found) == []
    assert found.boundaries.tolist() == []
    assert "0 intervals" in str(found)
    with pytest.raises(xl.ArgumentError):
        found.at(0.0)


def test_float32_sweeps_have_larger_errors():
    line = xl.restrict(affine((0.0, 1.0), (0.5, 0.0)), [0.0], [1.0], dtype=torch.float32)
    (first, second) = line.decisions()
    assert (first.label, second.label) == (1, 0)
    assert 1e-8 < first.stop_error < 1e-4


class Pair(nn.Module):
    def forward(self, x):
        return x, -x


def test_one_of_several_outputs_is_selected():
    line = xl.restrict(Pair(), [0.0, 1.0], [1.0, 0.0])
    with pytest.raises(xl.ArgumentError, match="has 2 outputs"):
        line.decisions()
    assert line.decisions(output=0).labels == [1, 0]
    assert line.decisions(output=1).labels == [0, 1]
    for bad in (2, -1, True, "none"):
        with pytest.raises(xl.ArgumentError, match="There is no output"):
            line.decisions(output=bad)


@pytest.mark.parametrize("options", [{"order": "least"}, {"top": 0}, {"top": 3}, {"top": True}, {"top": 1.5}])
def test_invalid_options_are_refused(options):
    with pytest.raises(xl.ArgumentError):
        decide(affine((0.0, 1.0), (1.0, 0.0)), **options)


def test_indexing_and_printing():
    found = decide(affine((0.0, 1.0), (0.5, 0.0)))
    assert found.at(0.5).label == 0  # a boundary belongs to the interval that begins there
    assert found.at(1.0).label == 0
    assert found[-1] == found[1]
    assert found[:1] == [found[0]]
    for bad in (-0.1, 1.1, float("nan")):
        with pytest.raises(xl.ArgumentError):
            found.at(bad)
    with pytest.raises(IndexError):
        found[2]
    assert repr(found) == "<Decisions: 2 intervals; shares of the line {1: 0.5, 0: 0.5}>"
    assert str(found).splitlines()[1] == "  0 to 0.5: 1, margin 0.5"
    twice = decide(affine((0.0, 1.0), (0.0, 1.0)))
    assert "0 and 1 tied" in str(twice)


def test_outputs_of_any_shape_are_taken_flat():
    found = decide(nn.Sequential(affine((0.0, 1.0), (0.5, 0.0), (-1.0, 0.0), (-1.0, 0.0)), nn.Unflatten(1, (2, 2))))
    assert found.labels == [1, 0]


def assert_advisories_agree(data: Path, number: str, count: int) -> None:
    network = xl.load(next((data / "acasxu" / "nnet").glob(f"*_{number}_*.nnet")))
    thetas = torch.linspace(-3.1, 3.1, count, dtype=torch.float64).tolist()
    starts = torch.tensor([[0.0, theta, -pi, 150.0, 150.0] for theta in thetas], dtype=torch.float64)
    ends = starts.clone()
    ends[:, 0] = 12_000.0
    found = xl.restrict_many(network, starts, ends).decisions(order="min", top=2)
    for start, end, theta, ours in zip(starts, ends, thetas, found, strict=True):
        truth = exact_decisions(xl.exact.restrict(network, start, end), "min", 2)
        wrong = disagreement(ours, truth, 1e-9)
        assert wrong is None, f"network {number}, theta {theta}: {wrong}"


def test_advisories_of_a_published_network(data):
    assert_advisories_agree(data, "1_1", 5)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("number", ["1_1", "2_3"])
def test_advisories_of_published_networks_on_a_hundred_lines(data, number):
    assert_advisories_agree(data, number, 100)


def test_no_lines_and_no_outputs():
    model = affine((0.0, 1.0), (0.5, 0.0))
    none = xl.restrict_many(model, torch.zeros(0, 1), torch.zeros(0, 1)).decisions()
    assert list(none) == []
    assert repr(none) == "<ManyDecisions: 0 lines, 0 intervals>"
    empty = nn.Sequential(nn.Linear(1, 3), Apply(lambda x: x[:, :0]))
    with pytest.raises(xl.ExactlineError):
        decide(empty.eval())


def test_breaks_near_a_crossing_make_no_slivers():
    near = torch.tensor([0.0, 1e-16, -1e-16, 3e-16, 1e-15, -4e-15, 1e-13, 1e-11, -1e-9], dtype=torch.float64)
    for seed in range(10):
        g = torch.Generator().manual_seed(seed)
        c = float(torch.rand((), generator=g, dtype=torch.float64))
        first, last = nn.Linear(1, 10, dtype=torch.float64), nn.Linear(10, 3, dtype=torch.float64)
        first.weight.data[:], first.bias.data[:] = 1.0, torch.cat([-(c + near), torch.tensor([5.0])])
        last.weight.data = torch.randn(3, 10, generator=g, dtype=torch.float64)
        last.weight.data[:, :9] *= 0.1
        last.bias.data = -last.weight.data[:, 9] * (c + 5)  # all three meet at about c, where nine units turn
        model = nn.Sequential(first, nn.ReLU(), last).eval()
        wide = [i.label[0] for i in exact_decisions(xl.exact.restrict(model, [0.0], [1.0])) if i.stop - i.start > 1e-12]
        assert decide(model).labels == wide, f"seed {seed}"
