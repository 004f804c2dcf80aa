"""Compiled loops give the bits of the usual way, and step aside where anything is in doubt."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.attr import IntegratedGradients
from exactline.engines.dense import fused_relu as quick
from exactline.engines.dense import sweep as engine
from tests.oracle.families import small_integers

pytest.importorskip("numba", reason="the extra fast is not installed")


@pytest.fixture
def taken(monkeypatch) -> list[bool]:
    """Whether the shorter way was taken, layer by layer; it is tried however few points there are."""
    taken: list[bool] = []

    def watched(*args):
        found = quick.insert_relu_breaks(*args)
        taken.append(found is not None)
        return found

    quick._compiled_loops()
    monkeypatch.setattr(quick, "MIN_LAYER_NUMBERS", 0)
    monkeypatch.setattr(engine, "insert_relu_breaks", watched)
    return taken


def mlp(*widths: int) -> nn.Module:
    layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1]).double().eval()


def usual(monkeypatch, ask: Callable[[], xl.Restrictions]) -> xl.Restrictions:
    with monkeypatch.context() as patch:
        patch.setattr(quick, "_compiled_loops", cache(lambda: None))
        return ask()


def same(one: xl.Restrictions, two: xl.Restrictions) -> None:
    for a, b in zip(one, two, strict=True):
        for x, y in (
            (a.alphas, b.alphas),
            (a.origin_table, b.origin_table),
            (a.ambiguous_per_piece, b.ambiguous_per_piece),
            *zip(a.stored_values, b.stored_values, strict=True),
        ):
            assert torch.equal(x, y)


@pytest.mark.parametrize("widths", [(5, 50, 50, 50, 5), (2, 7, 3, 11, 2), (30, 200, 100, 1), (1, 64, 64, 64, 3)])
def test_the_same_bits(widths, taken, monkeypatch):
    model = mlp(*widths)
    starts, ends = torch.randn(2, 40, widths[0], dtype=torch.float64) * 3

    for memory in (None, 1 << 18):

        def ask(memory=memory):
            return xl.restrict_many(model, starts, ends, memory=memory)

        plain = usual(monkeypatch, ask)
        taken.clear()
        same(ask(), plain)
        assert any(taken)


def test_the_same_gradients(taken, monkeypatch):
    """The way back knows every piece's branches, and where its points came from."""
    model = mlp(5, 40, 40, 40, 3)
    inputs, baselines = torch.randn(2, 20, 5, dtype=torch.float64) * 3

    def ask():
        return IntegratedGradients(model).attribute(inputs, baselines, target=1)

    with monkeypatch.context() as patch:
        patch.setattr(quick, "_compiled_loops", cache(lambda: None))
        plain = ask()
    taken.clear()
    assert torch.equal(ask(), plain)
    assert all(taken)


@pytest.mark.parametrize("seed", range(6))
def test_ties_are_left_to_the_usual_way(seed, taken, monkeypatch):
    """Small integers: units that cross together, or on a break, or stay on zero."""
    g = torch.Generator().manual_seed(seed)
    model = mlp(3, 6, 6, 6, 2)
    small_integers(g, model)
    starts, ends = torch.randint(-9, 10, (2, 60, 3), generator=g).double()

    def ask():
        return xl.restrict_many(model, starts, ends)

    plain = usual(monkeypatch, ask)
    taken.clear()
    same(ask(), plain)
    assert not all(taken)


def test_other_functions_and_other_graphs_go_the_usual_way(taken):
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
    assert not any(taken)


@pytest.mark.parametrize("scale", [1e300, 1e200, 1e-300])
def test_enormous_and_tiny_values(scale, taken, monkeypatch):
    model = mlp(2, 8, 8, 2)
    starts, ends = torch.randn(2, 5, 2, dtype=torch.float64) * scale

    def ask():
        return xl.restrict_many(model, starts, ends)

    same(ask(), usual(monkeypatch, ask))


def test_what_overflows_is_an_error(taken):
    model = mlp(2, 8, 2)
    with torch.no_grad():
        model[0].weight.mul_(1e10)  # pyright: ignore
    with pytest.raises(xl.NumberError, match="overflows"):
        xl.restrict_many(model, torch.zeros(2, 2), torch.full((2, 2), 1e300, dtype=torch.float64))
    assert not any(taken)


def test_without_numba_nothing_changes(taken, monkeypatch):
    monkeypatch.setattr(quick, "_compiled_loops", cache(lambda: None))
    line = xl.restrict(mlp(2, 8, 2), torch.zeros(2), torch.ones(2))
    assert taken == [False]
    assert line.alphas[0] == 0
