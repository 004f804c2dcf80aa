"""The compiled loops give the answer of NumPy bit for bit, and NumPy does the steps where rounding decides."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import exactline as xl
from exactline.engines.loops import CompiledLoops
from exactline.engines.polygons import compiled
from exactline.engines.polygons.subdivide import Subdivision
from tests.engines.polygons.test_parts import SQUARE, build_relu_network

pytest.importorskip("numba", reason="the extra fast is not installed")

ARRAYS = ("weights", "edges", "origin_table", "sides", "offsets", "rings")


class Residual(nn.Module):
    """A sum around a layer: two tensors are live while it is subdivided."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second, self.third = nn.Linear(2, 12), nn.Linear(12, 12), nn.Linear(12, 2)

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.third(torch.relu(self.second(x)) + x)


def build_integer_network() -> nn.Module:
    """Small integers: most crossings are ties."""
    model = build_relu_network(2, 10, 8, 2)
    for parameter in model.parameters():
        parameter.data = (parameter.data * 2).round().clamp(-3, 3)
    return model


def build_knots_network() -> nn.Module:
    """Units with two knots, neither of them at zero."""
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(2, 12), nn.Hardtanh(-0.5, 0.7), nn.Linear(12, 8), nn.LeakyReLU(0.1)).double()


def build_pooling_network() -> nn.Module:
    """Polygons are merged after the maximum."""
    torch.manual_seed(1)
    pool = nn.Linear(2, 16), nn.Unflatten(1, (1, 4, 4)), nn.MaxPool2d(2), nn.Flatten()
    return nn.Sequential(*pool, nn.Linear(4, 4), nn.ReLU()).double()


MODELS = {
    "relu": lambda: build_relu_network(2, 20, 20, 3),
    "ties": build_integer_network,
    "knots": build_knots_network,
    "pooling": build_pooling_network,
    "residual": lambda: Residual().double(),
}


def restrict(model: nn.Module, memory: int, loops: object, monkeypatch) -> xl.PlaneRestriction:
    given = CompiledLoops(lambda: loops, ())
    given.load()
    monkeypatch.setattr(compiled, "CUT_LOOPS", given)
    return xl.restrict_plane(model, SQUARE, memory=memory)


@pytest.mark.parametrize("memory", [1 << 28, 100_000], ids=["one part", "several parts"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.every(2)
def test_both_ways_agree_bit_for_bit(name, memory, monkeypatch):
    model = MODELS[name]().eval()
    loops = compiled.CUT_LOOPS.load()
    assert loops is not None
    rounds: list[bool] = []
    plain_round = Subdivision._split_round
    compiled_round = compiled.CompiledSubdivision._split_round
    monkeypatch.setattr(Subdivision, "_split_round", lambda *a: (rounds.append(False), plain_round(*a))[1])
    monkeypatch.setattr(
        compiled.CompiledSubdivision, "_split_round", lambda *a: (rounds.append(True), compiled_round(*a))[1]
    )
    fast = restrict(model, memory, loops, monkeypatch)
    fallbacks, tries = rounds.count(False), rounds.count(True)
    plain = restrict(model, memory, None, monkeypatch)
    assert rounds.count(True) == tries > fallbacks  # the loops ran, and only in the first sweep
    for array in ARRAYS:
        assert torch.equal(getattr(fast, array), getattr(plain, array)), array
    for one, two in zip(fast.stored_values or (), plain.stored_values or (), strict=True):
        assert torch.equal(one, two)
    assert fast.ambiguous == plain.ambiguous
    if name == "ties":
        assert fallbacks > 0


def test_huge_values_are_left_to_numpy(monkeypatch):
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU()).double()
    with torch.no_grad():
        model[0].weight.copy_(torch.from_numpy(np.array([[1.0, 2.0], [-1.0, 1.0], [2.0, -1.0]]) * 2.0**1020))
        model[0].bias.zero_()
    loops = compiled.CUT_LOOPS.load()
    one, two = (restrict(model.eval(), 1 << 28, given, monkeypatch) for given in (loops, None))
    assert len(one) == len(two)
    assert torch.equal(one.weights, two.weights)
