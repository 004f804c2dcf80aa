"""The promise of `Restriction.error_at` on networks that amplify rounding, by both engines."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import exactline as xl
from tests.numerics.compare import Comparison, compare_at
from tests.numerics.hostile_networks import FAMILIES, make_hostile_case
from tests.numerics.test_errors import CASES, USEFUL_SHARE

QUICK = 1  # cases of every family in `make test`
# Families whose values are much better than their condition: differences of numbers up to 1e27 times as large, and
# points that are rounded at the depth at which the tent map doubles the error again.
ILL_CONDITIONED = ("cancellation", "tents")


def check(family: str, seeds: range) -> list[Comparison]:
    """Compare both engines with rational arithmetic; no error may exceed its estimate."""
    results = []
    for seed in seeds:
        case = make_hostile_case(family, seed)
        exact = xl.exact.restrict(case.model, case.start, case.end)
        for engine in ("dense", "patches"):
            line = xl.restrict(case.model, case.start, case.end, engine=engine)
            results.append(compare_at(line, exact.value, exact.alphas))
            assert results[-1].violation <= 1, (family, seed, engine)
    return results


@pytest.mark.filterwarnings("ignore:The values of start are")
def test_a_sample_of_hostile_networks():
    for family in FAMILIES:
        check(family, range(QUICK))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The values of start are")
@pytest.mark.parametrize("family", FAMILIES)
def test_hostile_networks(family):
    check(family, range(max(1, CASES // 3)))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The values of start are")
def test_estimates_are_useful_where_values_are_not_far_better_than_their_condition():
    families = [family for family in FAMILIES if family not in ILL_CONDITIONED]
    results = [result for family in families for result in check(family, range(max(1, CASES // 30)))]
    assert sum(result.is_useful for result in results) >= USEFUL_SHARE * len(results)


@pytest.mark.parametrize("seed", [31, 53, 78])
def test_a_bias_that_cancels_a_single_product_counts(seed):
    check("far offset", range(seed, seed + 1))


def test_the_rounding_of_a_single_product_is_not_that_of_its_sum_with_a_bias():
    model = nn.Linear(1, 1).double()
    model.weight.data, model.bias.data = torch.tensor([[1 / 3]]).double(), torch.tensor([-1e8 / 3]).double()
    end = torch.tensor([1e8], dtype=torch.float64)
    line = xl.restrict(model, end - 1, end)
    exact = xl.exact.restrict(model, end - 1, end)
    assert float(line.errors[-1]) >= 2.0**-53 * 1e8 / 3  # the product is rounded, although its sum is small
    assert compare_at(line, exact.value, exact.alphas).violation <= 1


def test_the_factors_of_a_combination_are_rounded():
    class Difference(nn.Module):
        def forward(self, x):
            return torch.add(x[:, :1], x[:, 1:], alpha=-1 / 3)

    start, end = torch.tensor([1e8 / 3, 1e8]).double(), torch.tensor([1e8 / 3 + 1, 1e8 + 3]).double()
    line, exact = xl.restrict(Difference(), start, end), xl.exact.restrict(Difference(), start, end)
    assert float(line.errors[-1]) >= 2.0**-53 * 1e8 / 3
    assert compare_at(line, exact.value, exact.alphas).violation <= 1
