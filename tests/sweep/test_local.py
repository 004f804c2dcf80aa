"""The local sweep finds what the dense one finds: the same births, the same alphas, the same values."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from tests.sweep.graphs import graph


def same(model: nn.Module, Q: Tensor, R: Tensor, **options) -> tuple[xl.Restriction, xl.Restriction]:
    dense = xl.restrict(model, Q, R, engine="dense")
    local = xl.restrict(model, Q, R, engine="local", **options)
    assert len(local) == len(dense)
    assert (local.births == dense.births).all()
    assert (local.doubts == dense.doubts).all()
    close = (local.alphas - dense.alphas).abs()
    assert close.max() <= 1e-11
    for a, b in zip(local.kept, dense.kept, strict=True):
        assert (a - b).abs().max() <= max(local.error, dense.error) * 16 + 1e-13
    return local, dense


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(seed):
    same(*graph(seed))


@pytest.mark.slow
def test_500_random_graphs():
    by_points = 0
    for seed in range(40, 540):
        local, _ = same(*graph(seed))
        by_points += "by points" in local.engine
    assert by_points < 250


@pytest.mark.parametrize("memory", [1, 1 << 12, 1 << 15, 1 << 20])
def test_every_stretch_size(memory):
    for seed in (3, 8, 12, 21):
        same(*graph(seed), memory=memory)


def test_says_which_engine_ran_and_why():
    model, Q, R = graph(3)
    assert xl.restrict(model, Q, R, engine="dense").engine == "dense (asked for)"
    assert xl.restrict(model, Q, R, engine="local").engine.startswith("local (asked for")
    assert xl.restrict(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), torch.zeros(3), torch.ones(3)).engine.startswith(
        "dense (no maps"
    )
    with pytest.raises(xl.ArgumentError, match="no engine 'quick'"):
        xl.restrict(model, Q, R, engine="quick")
