"""Tests of path integrals with hostile numbers: complete within the estimated error of the line."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

import exactline as xl
from exactline.attr import path_integral
from exactline.lines import as_lines
from exactline.network import as_network


def mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1]).double().eval()


def scaled(model: nn.Sequential, first: float, last: float) -> nn.Sequential:
    with torch.no_grad():
        model[0].weight *= first
        model[-1].weight *= last
    return model


def twins() -> nn.Sequential:
    """Duplicated and dead units."""
    model = mlp(3, 8, 2)
    with torch.no_grad():
        model[0].weight[4:] = model[0].weight[:4]
        model[0].bias[4:] = model[0].bias[:4]
        model[0].weight[0] = 0.0
        model[0].bias[0] = -1.0
    return model


class Twice(nn.Module):
    """One module used twice, and a ReLU in place after a fork."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        once = self.inner(x)
        return self.inner(torch.relu_(once.clone())) + once


class Slopes(nn.Module):
    """One slope for each channel, between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 6), nn.PReLU(6), nn.Linear(6, 2)).double()
        with torch.no_grad():
            self.body[1].weight.uniform_(-1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "duplicated and dead units": twins,
    "a module twice": Twice,
    "a slope for each channel": Slopes,
    "a hundred layers": lambda: mlp(3, *[8] * 100, 2),
    "huge weights": lambda: scaled(mlp(3, 16, 2), 1e150, 1e150),
    "tiny weights": lambda: scaled(mlp(3, 16, 2), 1e-160, 1e-150),
    "huge, then tiny": lambda: scaled(mlp(3, 16, 16, 2), 1e200, 1e-200),
    "no bias": lambda: nn.Sequential(nn.Linear(3, 16, bias=False), nn.ReLU(), nn.Linear(16, 2, bias=False)).double(),
}
ENDS = {
    "plain": ([-1.0, 2.0, 0.5], [2.0, -1.5, 1.0]),
    "one point": ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),
    "one ulp": ([1.0, 1.0, 1.0], [1.0, 1.0 + 2.0**-52, 1.0]),
    "through the origin": ([-1.0, -2.0, -0.5], [2.0, 4.0, 1.0]),
    "an axis": ([0.0, 0.0, 0.0], [0.0, 3.0, 0.0]),
    "far away": ([1e8, 0.0, 0.0], [-1e8, 1.0, 1.0]),
    "subnormal": ([0.0, 5e-324, 0.0], [1e-310, 0.0, 1e-320]),
}


@cache
def network_of(name: str) -> xl.Network:
    torch.manual_seed(5)
    return as_network(MODELS[name]().eval(), [torch.zeros(3, dtype=torch.float64)])


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.every(20)
def test_the_sum_is_the_change_within_the_estimate(name: str, ends: str):
    start, end = (torch.tensor(e, dtype=torch.float64) for e in ENDS[ends])
    network = network_of(name)
    line = xl.restrict(network, start, end)
    found = path_integral(network, as_lines(start[None], end[None], ("start", "end"), many=True), torch.tensor([1]))
    attributions = found.gradients[0][0] * (end - start)
    change = line.values[-1, 1] - line.values[0, 1]  # type: ignore[index]
    size = attributions.abs().sum() + line.values[[0, -1], 1].abs().sum()  # type: ignore[index]
    assert bool(torch.isfinite(attributions).all())
    assert found.pieces == len(line)
    assert abs(float(attributions.sum() - change)) <= 1e-12 * float(size) + line.error
