"""The promise of `Restriction.error_at`: the exact function is never further away, and the estimate is useful."""

from __future__ import annotations

import os
from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from tests.numerics.compare import Comparison, compare, compare_at
from tests.numerics.networks import FAMILIES, KnotsAndStep, Spike, make_case

QUICK, SLOW = 2, 30  # cases of every family in `make test` and in `make test-all`
CASES = int(os.environ.get("EXACTLINE_NUMERICS_CASES", SLOW))  # of every family in the slow test
COSTLY = {"deep": 5, "step": 2, "spike": 2}  # families of which fewer cases are compared, and the divisor
USEFUL_SHARE = 0.9  # of all cases
UNIT_LINE = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)


def check(families: list[str], cases: int, engine: str) -> None:
    results: dict[tuple[str, int], Comparison] = {}
    for family in families:
        for seed in range(max(1, cases // COSTLY.get(family, 1))):
            results[family, seed] = compare(make_case(family, seed), engine)
    violations = {case: result for case, result in results.items() if result.violation > 1}
    assert not violations
    assert sum(result.is_useful for result in results.values()) >= USEFUL_SHARE * len(results)


def test_a_sample_of_all_families():
    check([family for family in FAMILIES if family != "deep"], QUICK, "dense")
    check(["convolutional", "mixed graph"], QUICK, "patches")


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_exact_function_is_never_further_away(family):
    check([family], CASES, "dense")


@pytest.mark.slow
@pytest.mark.parametrize("family", ["convolutional", "mixed graph"])
def test_the_patch_engine_keeps_the_promise_too(family):
    check([family], CASES, "patches")


def test_falling_branches_keep_error_estimates():
    model = nn.Sequential(nn.Linear(1, 2), nn.LeakyReLU(-0.5), nn.Linear(2, 1, bias=False)).double()
    model[0].weight.data, model[0].bias.data = torch.tensor([[1.0], [2.0]]) / 3, torch.tensor([-4.0, -5.0]) / 3
    model[2].weight.data = torch.tensor([[0.7, 0.0]]).double()
    model.double()
    line = xl.restrict(model, *UNIT_LINE)  # all units stay below 0, where their slope is negative
    assert 0 < line.error < 1e-12
    exact = xl.exact.restrict(model, *UNIT_LINE)
    assert compare_at(line, exact.value, exact.alphas).violation <= 1


@pytest.mark.parametrize("kind", ["relu", "abs", "clamp"])
def test_a_spike_a_few_ulps_wide_is_a_spike(kind):
    line = xl.restrict(Spike(0.3, 5e14, kind).double(), *UNIT_LINE)
    assert float(line.at(0.15)) == 0  # pyright: ignore[reportArgumentType]
    assert abs(line.extrema([1.0]).maximum - 1) <= line.error
    level = line.level([1.0], 0.5).alphas
    assert 1 <= len(level) <= 2  # both are within their errors of the centre
    assert float((level - 0.3).abs().max()) < 1e-14


def test_a_spike_far_from_the_origin():
    for scale, slope in ((1e4, 1e10), (1e6, 1e8), (1e8, 1e6)):
        first, second = nn.Linear(1, 2, dtype=torch.float64), nn.Linear(2, 1, dtype=torch.float64)
        first.weight.data = torch.tensor([[slope], [-slope]], dtype=torch.float64)
        first.bias.data = torch.tensor([-0.3 * scale * slope, 0.3 * scale * slope], dtype=torch.float64)
        second.weight.data = torch.tensor([[-1.0, -1.0]], dtype=torch.float64)
        second.bias.data = torch.ones(1, dtype=torch.float64)
        model = nn.Sequential(first, nn.ReLU(), second, nn.ReLU())
        line = xl.restrict(model, UNIT_LINE[0], UNIT_LINE[1] * scale)
        assert float(line.at(0.15)) == 0  # pyright: ignore[reportArgumentType]
        exact = xl.exact.restrict(model, UNIT_LINE[0], UNIT_LINE[1] * scale)
        assert compare_at(line, exact.value, exact.alphas).violation <= 1


def test_the_estimate_finds_one_steep_step_among_many_knots():
    random = torch.Generator().manual_seed(0)
    model = KnotsAndStep(torch.rand(400, generator=random, dtype=torch.float64), 0.33337, 1e12)
    line = xl.restrict(model, *UNIT_LINE)
    exact = xl.exact.restrict(model, *UNIT_LINE)
    near = [Fraction(a) for a in line.alphas.tolist() if abs(a - 0.33337) < 1e-6]
    steep = [a for a in exact.alphas if abs(a - Fraction(0.33337)) < Fraction(1, 10**6)]
    true_error = max(abs(float(exact.value(a)[0]) - float(line.at(float(a)))) for a in near)  # pyright: ignore
    assert line.error > 1e-8
    assert line.error >= true_error
    assert compare_at(line, exact.value, steep).violation <= 1
    assert float(line.error_at(0.9)) < 1e-12  # far from the step the line is as good as any


def test_error_at_interpolates_and_its_maximum_is_the_error():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 20), nn.ReLU(), nn.Linear(20, 2)).double()
    line = xl.restrict(model, torch.randn(3), torch.randn(3))
    assert torch.equal(line.error_at(line.alphas), line.errors)
    middle = (line.alphas[1:] + line.alphas[:-1]) / 2
    assert line.error_at(middle.reshape(1, -1)).shape == (1, len(line))
    assert float(line.error_at(middle).max()) <= line.error == float(line.errors.max())
    with pytest.raises(xl.ArgumentError):
        line.error_at(1.5)


def test_errors_are_kept_in_files(tmp_path):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 20), nn.ReLU(), nn.Linear(20, 2)).double()
    line = xl.restrict(model, torch.randn(3), torch.randn(3))
    line.save(tmp_path / "line.safetensors")
    loaded = xl.Restriction.load(tmp_path / "line.safetensors")
    assert torch.equal(loaded.errors, line.errors)
    assert loaded.error == line.error


def test_many_lines_have_the_errors_they_have_alone():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 20), nn.ReLU(), nn.Linear(20, 2)).double()
    starts, ends = torch.randn(2, 5, 3, dtype=torch.float64)
    lines = xl.restrict_many(model, starts, ends)
    alone: list[Tensor] = [line.errors for line in lines]
    torch.testing.assert_close(lines.errors, torch.cat(alone), rtol=1, atol=0)  # batches round in other ways
    assert lines.error == float(lines.errors.max())


def test_wide_networks_estimate_some_breaks_and_the_steepest(monkeypatch):
    monkeypatch.setattr("exactline.results.errors.MAX_ESTIMATED_NUMBERS", 0)
    monkeypatch.setattr("exactline.results.errors.MIN_ESTIMATED_BREAKS", 20)
    random = torch.Generator().manual_seed(0)
    model = KnotsAndStep(torch.rand(300, generator=random, dtype=torch.float64), 0.33337, 1e12)
    line = xl.restrict(model, *UNIT_LINE)
    exact = xl.exact.restrict(model, *UNIT_LINE)
    steep = [a for a in exact.alphas if abs(a - Fraction(0.33337)) < Fraction(1, 10**6)]
    assert compare_at(line, exact.value, steep).violation <= 1


def check_plane_at_points(model: nn.Module, vertices: Tensor, samples: int) -> None:
    """Compare a plane with exact values at corners, at means of corners and at random points."""
    plane = xl.restrict_plane(model, vertices)
    random = torch.Generator().manual_seed(0)
    mixed = torch.rand(samples, len(vertices), generator=random, dtype=torch.float64)
    weights = torch.cat([plane.weights, mixed / mixed.sum(1, keepdim=True)])
    points = plane.input_points(weights)[0]
    coordinates = plane.coordinates(points)
    errors, values = plane.error_at(coordinates), plane.at(coordinates)
    for point, value, error in zip(points, values, errors.tolist(), strict=True):
        exact = xl.exact.restrict(model, point, point).value(0)
        assert max(abs(float(e) - float(v)) for e, v in zip(exact, value.flatten(), strict=True)) <= error


@pytest.mark.parametrize("family", ["random", "ties", "steep"])
def test_planes_keep_the_promise_too(family):
    checked = 0
    for seed in range(400):
        case = make_case(family, seed)
        if case.start.numel() != 2 or len(case.model) > 6:  # pyright: ignore[reportArgumentType]
            continue
        corner = torch.stack([case.start, case.end, case.start + torch.tensor([0.5, -1.5], dtype=torch.float64)])
        if abs(float(torch.linalg.det(corner[1:] - corner[0]))) < 1e-3:
            continue
        check_plane_at_points(case.model, corner, 10)
        checked += 1
        if checked == 3:
            break
    assert checked == 3
