"""Measurements behind the promises of the documentation."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import pytest
import torch
from torch import nn

import exactline as xl
from exactline.network import as_network
from exactline.zoo import loan_line, loan_network, tent_network
from tests.oracle.families import FAMILIES, seeded, small_integers

MEASURED_SCRIPT = """
import resource, sys, torch
import exactline as xl
{body}
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
print("peak", peak)
"""


def measure_peak(body: str) -> tuple[int, list[str]]:
    """Run code in a process of its own; returns its peak memory in bytes and its printed lines."""
    command = [sys.executable, "-c", MEASURED_SCRIPT.format(body=body)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    *lines, last = run.stdout.splitlines()
    return int(last.split()[1]), lines


def test_the_loan_example_has_the_three_affine_maps_of_the_paper():
    line = xl.restrict(loan_network(), *loan_line())
    assert line.alphas.tolist() == pytest.approx([0, 1 / 3, 2 / 3, 1], abs=1e-15)
    top, bottom = [-1.7, 1.0], [2.0, -1.3]
    maps = [([[0, 0], bottom], [0, 3]), ([top, bottom], [3, 3]), ([top, [0, 0]], [3, 0])]
    for i, (matrix, constant) in enumerate(maps):
        A, b = line.piece(i).affine()
        assert A.tolist() == matrix
        assert b.tolist() == constant
    assert line.values.tolist() == [pytest.approx(v, abs=1e-14) for v in ([0, 4], [0, 2], [1, 0], [2, 0])]


def test_a_tent_of_depth_14_breaks_at_every_multiple_exactly():
    line = xl.restrict(tent_network(14), [0.0], [1.0])
    assert torch.equal(line.alphas, torch.arange(2**14 + 1, dtype=torch.float64) / 2**14)
    assert torch.equal(line.values[:, 0], (torch.arange(2**14 + 1) % 2).double())
    assert line.ambiguous == 0


@pytest.mark.slow
def test_a_tent_of_depth_20_is_exact_in_less_than_a_gibibyte():
    peak, lines = measure_peak(
        "from exactline.zoo import tent_network\n"
        "line = xl.restrict(tent_network(20), [0.0], [1.0])\n"
        "print(len(line.alphas), torch.equal(line.alphas, torch.arange(2**20 + 1, dtype=torch.float64) / 2**20))"
    )
    print(f"tent of depth 20: {lines[0]}, peak {peak / 2**20:.0f} MiB")
    assert lines == ["1048577 True"]
    assert peak < 2**30


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_shape_of_convbig_fits_in_two_gibibytes():
    peak, lines = measure_peak(
        "from torch import nn\n"
        "torch.manual_seed(0)\n"
        "convs = [nn.Conv2d(3, 32, 3, 1, 1), nn.Conv2d(32, 32, 4, 2, 1), nn.Conv2d(32, 64, 3, 1, 1),"
        " nn.Conv2d(64, 64, 4, 2, 1)]\n"
        "dense = [nn.Linear(4096, 512), nn.Linear(512, 512)]\n"
        "body = [m for c in convs for m in (c, nn.ReLU())] + [nn.Flatten()]\n"
        "body += [m for d in dense for m in (d, nn.ReLU())]\n"
        "line = xl.restrict(nn.Sequential(*body, nn.Linear(512, 10)), *torch.randn(2, 3, 32, 32))\n"
        "print(len(line), sum(line.units.values()), line.ambiguous)"
    )
    pieces, units, _ = map(int, lines[0].split())
    print(f"convBig: {pieces} pieces, peak {peak / 2**20:.0f} MiB")
    assert units == 62_464
    assert pieces > 20_000
    assert peak < 2 * 2**30


def assert_same(a: xl.Restriction, b: xl.Restriction) -> None:
    assert len(a) == len(b)
    assert float((a.alphas - b.alphas).abs().max()) <= 1e-12
    assert a.ambiguous == b.ambiguous
    assert [vars(x) if x else x for x in a.origins] == [vars(x) if x else x for x in b.origins]
    scale = 1 + float(a.values.abs().max())
    assert float((a.values - b.values).abs().max()) <= 1e-12 * scale


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.every(14)
def test_the_answer_does_not_depend_on_memory_or_other_lines(family, tied):
    for seed in range(3):
        generator = torch.Generator().manual_seed(100 + seed)
        model, shape = FAMILIES[family](generator)
        small_integers(generator, model) if tied else seeded(model, generator)
        starts, ends = torch.randint(-9, 10, (2, 100, *shape), generator=generator).double() / (1 if tied else 3.7)
        network = as_network(model, [starts[0]])
        alone = [xl.restrict(network, starts[i], ends[i]) for i in (0, 57, 99)]
        together = xl.restrict_many(network, starts, ends)
        for line, i in zip(alone, (0, 57, 99), strict=True):
            assert_same(line, together[i])
            for memory in (1, 3_000, 20_000):
                assert_same(line, xl.restrict(network, starts[i], ends[i], memory=memory))
        tight = xl.restrict_many(network, starts, ends, memory=30_000)
        assert torch.equal(tight.offsets, together.offsets)


@pytest.mark.parametrize("family", ["mlp", "mixed", "residual", "normed"])
@pytest.mark.every(4)
def test_origins_equal_those_of_the_oracle_under_ties(family):
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        model, shape = FAMILIES[family](generator)
        small_integers(generator, model)
        start, end = torch.randint(-3, 4, (2, *shape), generator=generator).double()
        network = as_network(model, [start])
        exact = [b and (b.node, b.unit, b.count) for b in xl.exact.restrict(network, start, end).origins]
        for memory in (None, 1):
            line = xl.restrict(network, start, end, memory=memory)
            assert [b and (b.node, b.unit, b.count) for b in line.origins] == exact


def test_repeated_calls_do_not_capture_again(monkeypatch):
    import exactline.network as network

    calls = []
    original = network.capture_module
    monkeypatch.setattr(network, "capture_module", lambda *a: calls.append(a) or original(*a))
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    for _ in range(3):
        xl.restrict(model, torch.zeros(3), torch.ones(3))
    assert len(calls) == 1
    with torch.no_grad():
        model[0].weight.data[0, 0] += 1  # does not change the tensor's version counter
    line = xl.restrict(model, torch.zeros(3), torch.ones(3))
    assert len(calls) == 2
    assert line.check().worst < 1e-14


def test_the_lines_of_a_path_meet_at_its_corners():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))
    corners = torch.randn(5, 2)
    lines = xl.restrict_path(model, corners)
    assert len(lines) == 4
    for before, after in pairwise(lines):
        assert torch.equal(before.points[-1], after.points[0])
        assert torch.allclose(before.values[-1], after.values[0], atol=1e-14)
