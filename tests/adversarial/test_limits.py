"""Limits and options: partial results are correct as far as they go, and invalid limits are refused."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
import torch

import exactline as xl
from tests.adversarial.truth import (
    assert_refused,
    breaks,
    mlp,
    tent,
    vector,
)

START, END = vector(-2.0, 1.5, 0.5), vector(2.5, -1.0, -3.0)


@pytest.mark.parametrize(("depth", "max_breaks"), [(60, 2), (40, 101), (30, 3000)])
@pytest.mark.every(4)
def test_max_breaks_stops_a_deep_tent_with_a_correct_partial_result(depth, max_breaks):
    line = xl.restrict(tent(depth), [0.0], [1.0], max_breaks=max_breaks)
    assert not line.complete
    assert line.stopped == "max_breaks"
    assert len(line.alphas) == max_breaks
    assert "max_breaks" in str(line)
    # a piece has the width 2^-depth: alphas are its multiples in order, and values alternate between 0 and 1
    steps = line.alphas * 2.0**depth
    assert torch.equal(steps, torch.arange(max_breaks, dtype=torch.float64))
    assert torch.equal(line.values.flatten(), (torch.arange(max_breaks) % 2).double())
    assert line.reached == breaks(line)[-1]
    assert float(line.at(line.reached / 2)) == (0.0 if max_breaks % 4 == 1 else 1.0 if max_breaks % 4 == 3 else 0.5)


def test_a_limit_of_two_breaks_on_a_deep_network_is_fast():
    model = tent(60)
    xl.restrict(model, [0.0], [2.0**-70])  # the capture is not timed
    began = time.process_time()
    line = xl.restrict(model, [0.0], [1.0], max_breaks=2)
    assert len(line.alphas) == 2
    assert time.process_time() - began < 4  # sixty layers of two points are milliseconds


def test_max_breaks_of_one_and_of_all_breaks():
    line = xl.restrict(tent(3), [0.0], [1.0], max_breaks=1)
    assert breaks(line) == [0.0]
    assert len(line) == 0
    assert not line.complete
    assert str(line).startswith("0 pieces")
    assert line.at(0.0).tolist() == [0.0]
    assert_refused(xl.ArgumentError, line.at, 0.1)
    whole = xl.restrict(tent(3), [0.0], [1.0], max_breaks=9)
    assert whole.complete
    assert whole.stopped == ""
    almost = xl.restrict(tent(3), [0.0], [1.0], max_breaks=8)
    assert not almost.complete
    assert breaks(almost) == [k / 8 for k in range(8)]


def test_seconds_stop_a_tent_of_depth_60_with_a_correct_partial_result():
    model = tent(60)
    xl.restrict(model, [0.0], [2.0**-70])  # the capture is not timed
    for seconds in (2.0, 8.0, 32.0):  # on a busy machine two seconds may not be enough
        began = time.perf_counter()
        line = xl.restrict(model, [0.0], [1.0], seconds=seconds)
        assert time.perf_counter() - began < seconds + 60  # all breaks would take years
        if len(line.alphas) > 2:
            break
    assert not line.complete
    assert line.stopped == "seconds"
    assert "stopped by seconds at alpha" in str(line)
    count = len(line.alphas)
    assert count > 2
    assert torch.equal(line.alphas * 2.0**60, torch.arange(count, dtype=torch.float64))
    assert torch.equal(line.values.flatten(), (torch.arange(count) % 2).double())


def test_a_partial_result_of_a_random_network_is_a_prefix_of_the_whole():
    model = mlp(4, 40, 40, 40, 3)
    start, end = torch.randn(4) * 3, torch.randn(4) * 3
    whole = xl.restrict(model, start, end)
    for max_breaks in (2, 7, len(whole) // 2):
        part = xl.restrict(model, start, end, max_breaks=max_breaks)
        assert (part.alphas - whole.alphas[:max_breaks]).abs().max() <= 1e-12
        assert torch.allclose(part.values, whole.values[:max_breaks], atol=1e-12)
        assert [b and b.node for b in part.origins] == [b and b.node for b in whole.origins[:max_breaks]]
        part.piece(0).affine()
        assert part.check(samples=20).worst <= 1e-12
        part.minimal()
        assert_refused(xl.ArgumentError, part.at, 1.0)


def test_a_limit_of_zero_seconds_gives_an_empty_result_whose_properties_work():
    line = xl.restrict(tent(60), [0.0], [1.0], seconds=0)
    assert not line.complete
    assert line.stopped == "seconds"
    assert line.reached == 0.0
    assert len(line) == 0
    assert "0 pieces" in str(line)
    assert "stopped by seconds" in str(line)
    assert "stopped by seconds" in repr(line)
    assert len(line.origins) == len(line.alphas)
    assert len(line.points) == len(line.alphas)
    assert len(line.values) == len(line.alphas)


@pytest.mark.parametrize("method", ["at", "piece", "minimal", "check", "certify"])
def test_methods_of_an_empty_result_raise_only_typed_errors(method):
    line = xl.restrict(tent(60), [0.0], [1.0], seconds=0)
    argument = (0.0,) if method in ("at", "piece") else ()
    if method == "piece":
        argument = (0,)
    try:
        getattr(line, method)(*argument)
    except xl.ExactlineError as error:
        assert error.problem  # noqa: PT017


def test_a_partial_result_cannot_be_certified_as_a_whole():
    line = xl.restrict(tent(12), [0.0], [1.0], max_breaks=9)
    try:
        proof = line.certify()
    except xl.ExactlineError as error:
        assert error.hint  # noqa: PT017
    else:
        assert not proof.covers_whole_line


def test_with_a_limit_over_many_lines_each_says_whether_it_is_complete():
    starts, ends = torch.zeros(4, 1), torch.ones(4, 1)
    lines = xl.restrict_many(tent(4), starts, ends, max_breaks=40)
    assert [line.complete for line in lines] == [True, True, False, False]
    assert [len(line.alphas) for line in lines] == [17, 17, 6, 0]
    assert lines[2].stopped == "max_breaks"
    assert lines[3].stopped == "max_breaks"
    assert "stopped by max_breaks" in repr(lines)
    assert lines.pieces.tolist() == [16, 16, 5, 0]


def test_a_stream_that_runs_out_of_time_says_so():
    last = None
    for seconds in (0.5, 4.0, 32.0):  # on a busy machine half a second may not be enough
        for part in xl.sweep(tent(25), [0.0], [1.0], seconds=seconds, memory=1 << 12):
            last = part
        if last is not None:
            break
    assert last is not None
    assert float(last.alphas[-1]) < 1.0
    assert not last.complete  # the caller's only sign that the stream ended early


@pytest.mark.parametrize(
    "options",
    [
        {"max_breaks": 0},
        {"max_breaks": -1},
        {"max_breaks": 2.5},
        {"max_breaks": "many"},
        {"max_breaks": float("nan")},
        {"memory": 0},
        {"memory": -5},
        {"memory": "1GB"},
        {"memory": float("nan")},
        {"seconds": -1.0},
        {"seconds": float("nan")},
        {"seconds": "soon"},
        {"dtype": torch.int64},
        {"dtype": "float64"},
        {"until": 3},
    ],
    ids=str,
)
def test_invalid_options_are_refused(options):
    assert_refused(xl.ArgumentError, xl.restrict, mlp(3, 4, 2), START, END, **options)


def test_whole_numbers_given_as_floats_are_read_or_refused():
    for options in ({"memory": 1e6}, {"max_breaks": 1e6}, {"memory": float("inf")}, {"seconds": float("inf")}):
        try:
            line = xl.restrict(mlp(3, 4, 2), START, END, **options)
        except xl.ArgumentError as error:
            assert error.hint  # noqa: PT017
        else:
            assert line.complete


def test_the_sweep_of_a_wide_layer_stays_within_its_memory():
    # 3,000 units with distinct crossings: all points at once would be 3,000 x 3,000 numbers, 72 MB a copy
    code = """
import resource, torch, exactline as xl
torch.set_num_threads(1)
torch.manual_seed(0)
from torch import nn
model = nn.Sequential(nn.Linear(1, 3000), nn.ReLU(), nn.Linear(3000, 1)).double()
model[0].weight.data.fill_(1.0)
model[0].bias.data.copy_(-torch.linspace(0.001, 0.999, 3000))
xl.restrict(model, [0.0], [1e-9])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
line = xl.restrict(model, [0.0], [1.0], memory=4 << 20)
print(len(line), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""
    # glibc returns blocks above this size to the system at once: what its heap keeps is no memory of the sweep
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True, env=environment
    )
    pieces, growth = map(int, run.stdout.split())
    assert pieces == 3001
    assert growth < 48 << 20


@pytest.mark.parametrize("alpha", [-0.1, 1.1, float("nan"), float("inf"), [0.5, 2.0], -5e-324, 1 + 2**-52])
@pytest.mark.every(2)
def test_alphas_off_the_line_are_refused(alpha):
    assert_refused(xl.ArgumentError, xl.restrict(mlp(3, 4, 2), START, END).at, alpha)


@pytest.mark.parametrize(
    "alpha", ["half", None, [[0.1], [0.2, 0.3]], 1j, object()], ids=["text", "none", "ragged", "complex", "object"]
)
def test_alphas_that_are_not_numbers_are_refused(alpha):
    assert_refused(xl.ArgumentError, xl.restrict(mlp(3, 4, 2), START, END).at, alpha)


def test_values_have_the_shape_of_the_alphas():
    line = xl.restrict(mlp(3, 4, 2), START, END)
    assert line.at([]).shape == (0, 2)
    assert line.at(torch.rand(2, 3, 4)).shape == (2, 3, 4, 2)
    assert line.at(1).shape == (2,)
    assert torch.equal(line.at(line.alphas), line.values)
    assert torch.equal(line.at(torch.tensor([0.0, 1.0], dtype=torch.float16)), line.values[[0, -1]])


@pytest.mark.parametrize("index", [10**6, -(10**6), 1.5, "first", None], ids=str)
def test_pieces_that_do_not_exist_are_refused(index):
    assert_refused(xl.ArgumentError, xl.restrict(mlp(3, 4, 2), START, END).piece, index)
