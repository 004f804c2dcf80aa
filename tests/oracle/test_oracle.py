"""The sweep against rational arithmetic: random networks of every kind, and small-integer ones full of ties."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

import exactline as xl
from exactline.network import as_network
from tests.oracle.compare import mismatch
from tests.oracle.families import FAMILIES, seeded, small_integers

QUICK, ALL = 100, 2000
QUICK_TIES, ALL_TIES = 90, 1000


def random_case(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    family = list(FAMILIES)[seed % len(FAMILIES)]
    model, shape = FAMILIES[family](generator)
    seeded(model, generator)
    start, end = torch.randn(2, *shape, generator=generator, dtype=torch.float64) * 2
    network = as_network(model, [start])
    line, exact = xl.restrict(network, start, end), xl.exact.restrict(network, start, end)
    wrong = mismatch(line.alphas, exact, tolerance=1e-10)
    assert wrong is None, f"{family}, seed {seed}: {wrong}"
    truth = exact.round_values()
    if len(truth) == len(line.alphas):
        assert float((truth - line.values).abs().max()) <= 1e-11 * (1 + float(truth.abs().max()))


def tied_case(seed: int) -> None:
    generator = torch.Generator().manual_seed(10_000 + seed)
    family = list(FAMILIES)[seed % len(FAMILIES)]
    model, shape = FAMILIES[family](generator)
    small_integers(generator, model, most=1 + seed % 3)
    start, end = torch.randint(-3, 4, (2, *shape), generator=generator).double()
    network = as_network(model, [start])
    line, exact = xl.restrict(network, start, end), xl.exact.restrict(network, start, end)
    assert len(line) == len(exact), f"{family}, seed {seed}: {mismatch(line.alphas, exact)}"
    assert mismatch(line.alphas, exact) is None, f"{family}, seed {seed}"


@pytest.mark.parametrize("block", range(QUICK // 20))
@pytest.mark.every(5)
def test_no_break_of_a_random_network_is_missed_and_none_is_invented(block):
    for seed in range(20 * block, 20 * block + 20):
        random_case(seed)


@pytest.mark.parametrize("block", range(QUICK_TIES // 15))
@pytest.mark.every(6)
def test_small_integer_networks_have_as_many_breaks_as_the_oracle_says(block):
    for seed in range(15 * block, 15 * block + 15):
        tied_case(seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_thousand_random_networks():
    for seed in range(QUICK, ALL):
        random_case(seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_thousand_small_integer_networks():
    for seed in range(QUICK_TIES, ALL_TIES):
        tied_case(seed)


@pytest.mark.parametrize("widths", [(784, 256, 256, 256, 256, 10), (5, 50, 50, 50, 50, 50, 50, 5)], ids=str)
@pytest.mark.every(2)
def test_bias_free_networks_through_the_origin_have_three_breaks(widths):
    for seed in range(5):
        torch.manual_seed(seed)
        layers = [torch.nn.Linear(a, b, bias=False) for a, b in pairwise(widths)]
        body = [m for layer in layers for m in (layer, torch.nn.ReLU())][:-1]
        x = torch.randn(widths[0])
        line = xl.restrict(torch.nn.Sequential(*body), -x, 2 * x)
        assert len(line.alphas) == 3
        assert float(line.alphas[1]) == pytest.approx(1 / 3, abs=1e-15)


@pytest.mark.slow
def test_the_sweep_and_the_certificate_agree():
    for seed in range(0, 40, 2):
        generator = torch.Generator().manual_seed(seed)
        model, shape = list(FAMILIES.values())[seed % len(FAMILIES)](generator)
        seeded(model, generator)
        start, end = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
        line = xl.restrict(model, start, end)
        proof = line.certify()
        assert proof.complete, str(proof)
        assert proof.proved == len(line)
