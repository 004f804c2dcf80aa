"""Large max windows: their members are reduced to candidates, and the breaks are those of the dense engine."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import exactline as xl
from exactline.engines.patches import candidates, maxpool


class _Amin(nn.Module):
    def forward(self, x):
        return x.amin((-1, -2))


POOLS = {
    "global": lambda: nn.AdaptiveMaxPool2d(1),
    "overlapping": lambda: nn.MaxPool2d(7, 3),
    "padded": lambda: nn.MaxPool2d(8, 4, padding=3),
    "minimum": _Amin,
}


def _lines(kind, size):
    start, end = torch.randn(2, 2, size, size, dtype=torch.float64)
    if kind == "integers":
        return (start * 2).round(), (end * 2).round()
    if kind == "constant":  # all pixels of a map are equal: members are copies of each other
        return start.mean((1, 2), keepdim=True).expand_as(start), end.mean((1, 2), keepdim=True).expand_as(end)
    return start, end


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("kind", ["noise", "integers", "constant"])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.every(5)
def test_large_windows_have_the_breaks_of_the_dense_engine(pool, kind, relu):
    torch.manual_seed(3)
    middle = [nn.ReLU()] if relu else []
    layers = (nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 3, 3), *middle, POOLS[pool](), nn.Flatten(), nn.LazyLinear(2))
    model = nn.Sequential(*layers).double().eval()
    start, end = _lines(kind, 14)
    model(start[None])
    dense, patches = (xl.restrict(model, start, end, engine=engine) for engine in ("dense", "patches"))
    assert len(dense.alphas) == len(patches.alphas)
    assert (dense.alphas - patches.alphas).abs().max() < 1e-11
    assert (dense.values - patches.values).abs().max() < 1e-11


def test_the_members_of_a_large_window_are_reduced(monkeypatch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveMaxPool2d(1), nn.Flatten()).double().eval()
    compared = []
    find = candidates.find_candidates

    def spy(*args):
        compared.append(find(*args).count)
        return find(*args)

    monkeypatch.setattr(maxpool, "find_candidates", spy)
    start = torch.randn(1, 40, 40, dtype=torch.float64)
    xl.restrict(model, start, start + 0.1 * torch.randn_like(start), engine="patches")
    assert compared
    assert max(compared) < 100  # of 38 * 38
