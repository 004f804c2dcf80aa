"""The fused ReLU path gives the general path's results bit for bit, and is not used where anything is ambiguous."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.attr import IntegratedGradients
from exactline.engines.dense import fused_product, fused_relu
from exactline.engines.dense import sweep as engine
from exactline.engines.loops import CompiledLoops
from tests.oracle.families import small_integers

pytest.importorskip("numba", reason="the extra fast is not installed")

NO_LOOPS = CompiledLoops(lambda: import_module("no_such_module"), ())


@pytest.fixture
def used_fused_path(monkeypatch) -> list[bool]:
    """Whether the fused path was used, layer by layer; it is tried however few points there are."""
    used_fused_path: list[bool] = []

    def recording_insert(*args):
        after = fused_relu.insert_relu_breaks(*args)
        used_fused_path.append(after is not None)
        return after

    fused_relu.RELU_LOOPS.load()
    fused_relu.PATTERN_LOOPS.load()
    monkeypatch.setattr(fused_relu, "MIN_LAYER_NUMBERS", 0)
    monkeypatch.setattr(fused_product, "MIN_WEIGHTS", 1 << 60)  # values of new points by products have the same bits
    monkeypatch.setattr(engine, "insert_relu_breaks", recording_insert)
    return used_fused_path


def build_mlp(*widths: int) -> nn.Module:
    layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1]).double().eval()


def without_fused_path(monkeypatch, run: Callable[[], xl.Restrictions]) -> xl.Restrictions:
    with monkeypatch.context() as patch:
        patch.setattr(fused_relu, "RELU_LOOPS", NO_LOOPS)
        return run()


def assert_same(one: xl.Restrictions, two: xl.Restrictions) -> None:
    for a, b in zip(one, two, strict=True):
        for x, y in (
            (a.alphas, b.alphas),
            (a.origin_table, b.origin_table),
            (a.ambiguous_per_piece, b.ambiguous_per_piece),
            *zip(a.stored_values, b.stored_values, strict=True),
        ):
            assert torch.equal(x, y)


@pytest.mark.parametrize("widths", [(5, 50, 50, 50, 5), (2, 7, 3, 11, 2), (30, 200, 100, 1), (1, 64, 64, 64, 3)])
@pytest.mark.every(4)
def test_the_same_bits(widths, used_fused_path, monkeypatch):
    model = build_mlp(*widths)
    starts, ends = torch.randn(2, 40, widths[0], dtype=torch.float64) * 3

    for memory in (None, 1 << 18):

        def run(memory=memory):
            return xl.restrict_many(model, starts, ends, memory=memory)

        expected = without_fused_path(monkeypatch, run)
        used_fused_path.clear()
        assert_same(run(), expected)
        assert any(used_fused_path)


def test_the_same_gradients(used_fused_path, monkeypatch):
    """The backward sweep needs the activation patterns and source points that the loops record."""
    model = build_mlp(5, 40, 40, 40, 3)
    inputs, baselines = torch.randn(2, 20, 5, dtype=torch.float64) * 3

    def run():
        return IntegratedGradients(model).attribute(inputs, baselines, target=1)

    with monkeypatch.context() as patch:
        patch.setattr(fused_relu, "RELU_LOOPS", NO_LOOPS)
        expected = run()
    used_fused_path.clear()
    assert torch.equal(run(), expected)
    assert all(used_fused_path)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.every(3)
def test_ties_are_left_to_the_general_path(seed, used_fused_path, monkeypatch):
    """Small integers: units that cross together, or on a break, or stay on zero."""
    g = torch.Generator().manual_seed(seed)
    model = build_mlp(3, 6, 6, 6, 2)
    small_integers(g, model)
    starts, ends = torch.randint(-9, 10, (2, 60, 3), generator=g).double()

    def run():
        return xl.restrict_many(model, starts, ends)

    expected = without_fused_path(monkeypatch, run)
    used_fused_path.clear()
    assert_same(run(), expected)
    assert not all(used_fused_path)


def test_other_functions_and_other_graphs_take_the_general_path(used_fused_path):
    class Residual(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            y = self.one(x)
            return self.two(torch.relu(y)) + y

    starts, ends = torch.randn(2, 10, 4)
    for model in (Residual(), nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU(), nn.Linear(4, 2))):
        xl.restrict_many(model.eval(), starts, ends)
        xl.restrict_many(nn.Sequential(nn.Linear(4, 4), nn.ReLU()).eval(), starts, ends, dtype=torch.float32)
    assert not any(used_fused_path)


@pytest.mark.parametrize("scale", [1e300, 1e200, 1e-300])
def test_enormous_and_tiny_values(scale, used_fused_path, monkeypatch):
    model = build_mlp(2, 8, 8, 2)
    starts, ends = torch.randn(2, 5, 2, dtype=torch.float64) * scale

    def run():
        return xl.restrict_many(model, starts, ends)

    assert_same(run(), without_fused_path(monkeypatch, run))


def test_overflow_is_an_error(used_fused_path):
    model = build_mlp(2, 8, 2)
    with torch.no_grad():
        model[0].weight.mul_(1e10)  # pyright: ignore
    with pytest.raises(xl.NumberError, match="overflows"):
        xl.restrict_many(model, torch.zeros(2, 2), torch.full((2, 2), 1e300, dtype=torch.float64))
    assert not any(used_fused_path)


def test_without_numba_nothing_changes(used_fused_path, monkeypatch):
    monkeypatch.setattr(fused_relu, "RELU_LOOPS", NO_LOOPS)
    line = xl.restrict(build_mlp(2, 8, 2), torch.zeros(2), torch.ones(2))
    assert used_fused_path == [False]
    assert line.alphas[0] == 0
