"""`seconds=` and `memory=`: the deadline is noticed wherever it passes, and blocks of work keep to the memory."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
import torch
from torch import nn

import exactline as xl
from exactline.api import restrict_parts
from exactline.budget import Budget, enforce_budget
from exactline.engines.dense import fused_relu
from exactline.engines.loops import CompiledLoops
from exactline.errors import ArgumentError
from exactline.network import as_network
from exactline.numerics.point_errors import PointErrors, bytes_per_estimate, points_per_estimate
from exactline.results.restriction import Restriction

from .peak_memory import PeakMemory

MIB = 1 << 20


class TopThree(nn.Module):
    """The three largest values of every channel."""

    def forward(self, x):
        return x.flatten(2).topk(3, 2).values.flatten(1)


def _mlp(*widths):
    layers = [m for a, b in pairwise(widths) for m in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def _conv_net(*end):
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), *end)


NETWORKS = {
    "vectors": (lambda: _mlp(6, 30, 30, 3), (6,)),
    "maps": (lambda: _conv_net(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 3)), (2, 8, 8)),
    "global maximum": (lambda: _conv_net(nn.AdaptiveMaxPool2d(1), nn.Flatten()), (2, 12, 12)),
    "order": (lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), TopThree(), nn.Linear(9, 2)), (2, 6, 6)),
    "image": (lambda: _conv_net(nn.Conv2d(4, 2, 3, padding=1)), (2, 8, 8)),
}


def _case(name, whole_numbers=False):
    torch.manual_seed(1)
    build, shape = NETWORKS[name]
    model = build().double().eval()
    start, end = 2 * torch.randn(2, *shape, dtype=torch.float64)
    if whole_numbers:  # many ties, which need error estimates
        start, end = start.round(), end.round()
        for parameter in model.parameters():
            parameter.data = (3 * parameter.data).round()
    return model, start, end


class CountingClock:
    """A clock that stands still until it has been read so many times, and then is far ahead."""

    def __init__(self, reads: float) -> None:
        self.reads, self.count = reads, 0

    def __call__(self) -> float:
        self.count += 1
        return 0.0 if self.count <= self.reads else 1e9


def _assert_prefix(part: Restriction, whole: Restriction) -> None:
    count = len(part.alphas)
    assert part.alphas.shape[0] <= whole.alphas.shape[0]
    assert (part.alphas - whole.alphas[:count]).abs().max() < 1e-11 if count else True
    assert torch.equal(part.origin_table[: count - 1, :2], whole.origin_table[: count - 1, :2]) if count > 1 else True
    assert (part.values - whole.values[:count]).abs().max() < 1e-11 if count else True


@pytest.mark.parametrize("engine", ["dense", "patches"])
@pytest.mark.parametrize("whole_numbers", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.every(2)
def test_a_deadline_anywhere_leaves_a_prefix(name, whole_numbers, engine, monkeypatch):
    """The clock passes the deadline at each of many readings, in every loop that asks for the time."""
    model, start, end = _case(name, whole_numbers)
    whole = xl.restrict(model, start, end, engine=engine)
    clock = CountingClock(float("inf"))
    monkeypatch.setattr(time, "monotonic", clock)
    timed = xl.restrict(model, start, end, engine=engine, seconds=1000.0)
    assert timed.complete
    _assert_prefix(timed, whole)
    total, stopped = clock.count, 0
    for k in range(12):
        clock.count, clock.reads = 0, 1 + k * total // 12
        part = xl.restrict(model, start, end, engine=engine, seconds=1000.0)
        assert part.stopped == "seconds" or (part.complete and k > 0)  # the last readings follow the last part
        stopped += not part.complete
        assert clock.count - clock.reads <= 8, "work goes on after the deadline was seen"
        _assert_prefix(part, whole)
    assert stopped >= 6


@pytest.mark.parametrize("engine", ["dense", "patches"])
def test_the_time_is_asked_for_at_every_node_of_an_error_estimate(engine, monkeypatch):
    model, start, end = _case("maps", whole_numbers=True)
    network = as_network(model, [start])
    clock = CountingClock(float("inf"))
    monkeypatch.setattr(time, "monotonic", clock)
    with enforce_budget(Budget(deadline=1000.0)):
        PointErrors(network, [start[None]], [start[None].abs() * 1e-16]).advance_to(network.outputs[0])
    assert clock.count >= len(network.nodes) - 1
    clock.count = 0
    xl.restrict(model, start, end, engine=engine, seconds=1000.0)
    assert clock.count >= len(network.nodes)


def test_compiled_loops_are_not_loaded_before_a_deadline(monkeypatch):
    monkeypatch.setattr(fused_relu, "RELU_LOOPS", CompiledLoops(lambda: object(), ()))  # nothing is left to compile
    model = _mlp(100, 400, 400, 3).double().eval()
    xl.restrict(model, torch.zeros(100), torch.ones(100), seconds=10.0)
    assert not fused_relu.RELU_LOOPS.is_ready


def test_parts_grow_while_there_is_time():
    """Many short lines with a deadline are swept in large parts, not line by line."""
    model = _mlp(5, 20, 20, 2).double().eval()
    starts, ends = torch.randn(2, 400, 5, dtype=torch.float64)
    choice, parts = restrict_parts(model, starts, ends, seconds=1000.0)
    sizes = [len(part.alphas) for part in parts]
    assert not choice.limits.stopped
    assert max(sizes) > 20 * sizes[0]


def test_estimates_follow_the_memory():
    network = as_network(_mlp(100, 1000, 3).double().eval(), [torch.zeros(100)])
    for memory in (64 * MIB, 256 * MIB, 1024 * MIB):
        with enforce_budget(Budget(memory=memory)):
            assert points_per_estimate(network) * bytes_per_estimate(network) <= memory // 4


LARGE = {
    "maximum over 200 x 200": (
        lambda: nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten()),
        (1, 202, 202),
        1.0,
    ),
    "maximum over the input": (lambda: nn.Sequential(nn.AdaptiveMaxPool2d(1), nn.Flatten()), (3, 320, 320), 1.0),
    "50,000 outputs": (lambda: _mlp(20, 300, 50_000), (20,), 1.0),
    "image to image": (lambda: _conv_net(nn.Conv2d(4, 3, 3, padding=1)), (2, 96, 96), 0.002),
    "mean of a large map": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
        (2, 130, 130),
        0.002,
    ),
    "top three of 1,024": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), TopThree(), nn.Linear(12, 2)),
        (2, 32, 32),
        1.0,
    ),
}


@pytest.mark.parametrize("engine", ["dense", "patches"])
@pytest.mark.parametrize("name", LARGE)
@pytest.mark.every(2)
def test_tensors_keep_to_the_memory(name, engine):
    torch.manual_seed(0)
    build, shape, length = LARGE[name]
    model = build().double().eval()
    start, end = torch.randn(2, *shape, dtype=torch.float64)
    end = start + length * (end - start)
    as_network(model, [start])
    with PeakMemory() as memory:
        line = xl.restrict(model, start, end, engine=engine, memory=256 * MIB)
    assert line.complete
    result = line.values.nbytes
    assert memory.peak - result <= 256 * MIB, f"{(memory.peak - result) / MIB:.0f} MiB"


def test_too_little_memory_for_one_point_is_an_error():
    model = nn.Sequential(nn.Conv2d(1, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 1, 3)).double().eval()
    start, end = torch.zeros(1, 400, 400), torch.ones(1, 400, 400)
    with pytest.raises(ArgumentError, match="memory"):
        xl.restrict(model, start, end, memory=256 * MIB)
