"""Random networks on which rounding matters: ties, steep slopes, wild scales, spikes a few ulps wide, depth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from tests.numerics.mixed_graphs import make_mixed_graph


@dataclass(frozen=True)
class Case:
    """A network and a line."""

    family: str
    seed: int
    model: nn.Module
    start: Tensor
    end: Tensor


class Spike(nn.Module):
    """A tent of height 1 and half width 1 / slope around a centre, made of functions."""

    def __init__(self, centre: float, slope: float, kind: str) -> None:
        super().__init__()
        self.centre, self.slope, self.kind = centre, slope, kind

    def forward(self, x: Tensor) -> Tensor:
        z = (x - self.centre) * self.slope
        if self.kind == "relu":
            return torch.relu(1 - torch.relu(z) - torch.relu(-z))
        if self.kind == "abs":
            return torch.relu(1 - z.abs())
        if self.kind == "plateau":
            return torch.relu(2 - z.abs()).clamp(max=1.0)
        return z.clamp(0, 1) - (z - 1).clamp(0, 1)


class KnotsAndStep(nn.Module):
    """The mean of many shallow ReLUs plus one steep step."""

    def __init__(self, knots: Tensor, centre: float, slope: float) -> None:
        super().__init__()
        self.knots = nn.Buffer(knots)
        self.centre, self.slope = centre, slope

    def forward(self, x: Tensor) -> Tensor:
        step = (self.slope * (x - self.centre)).clamp(0, 1)
        return torch.relu(x - self.knots).mean(-1, keepdim=True) + step


class Residual(nn.Module):
    """Two convolutions with a branch around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.second(torch.relu(self.first(x))))


def make_case(family: str, seed: int) -> Case:
    """One case of a family; the same seed gives the same case."""
    random = torch.Generator().manual_seed(seed)
    model, start, end = FAMILIES[family](random)
    return Case(family, seed, model.double().eval(), start, end)


def _integer(random: torch.Generator, low: int, high: int) -> int:
    """A random integer from ``low`` to ``high``, both included."""
    return int(torch.randint(low, high + 1, (), generator=random))


def _uniform(random: torch.Generator, low: float, high: float, *shape: int) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=random, dtype=torch.float64)


def _normal(random: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=random, dtype=torch.float64)


def _fully_connected(
    random: torch.Generator,
    draw: Callable[..., Tensor],
    depth: tuple[int, int] = (1, 4),
    width: tuple[int, int] = (1, 8),
) -> nn.Sequential:
    """ReLU layers whose weights and biases are drawn by ``draw(random, *shape)``."""
    hidden = [_integer(random, *width) for _ in range(_integer(random, *depth))]
    widths = [_integer(random, 1, 5), *hidden, _integer(random, 1, 3)]
    layers = list[nn.Module]()
    for fan_in, fan_out in pairwise(widths):
        layer = nn.Linear(fan_in, fan_out, dtype=torch.float64)
        layer.weight.data = draw(random, fan_out, fan_in)
        layer.bias.data = draw(random, fan_out)
        activation = (nn.ReLU(), nn.ReLU(), nn.LeakyReLU(0.01), nn.Hardtanh())[_integer(random, 0, 3)]
        layers += [layer, activation]
    return nn.Sequential(*layers[:-1])


def _inputs(model: nn.Sequential) -> int:
    first = model[0]
    if not isinstance(first, nn.Linear):
        raise TypeError("the first layer is not linear")
    return first.in_features


def _random(random: torch.Generator) -> tuple[nn.Module, Tensor, Tensor]:
    model = _fully_connected(random, _normal)
    return model, _normal(random, _inputs(model)), _normal(random, _inputs(model))


def _ties(random: torch.Generator) -> tuple[nn.Module, Tensor, Tensor]:
    model = _fully_connected(random, lambda r, *s: torch.randint(-2, 3, s, generator=r).double())
    start, end = (torch.randint(-3, 4, (_inputs(model),), generator=random).double() for _ in range(2))
    return model, start, end


def _steep(random: torch.Generator) -> tuple[nn.Module, Tensor, Tensor]:
    power = float(_uniform(random, 0.5, 4))
    model = _fully_connected(random, lambda r, *s: _normal(r, *s) * 10**power)
    return model, _normal(random, _inputs(model)), _normal(random, _inputs(model))


def _wild(random: torch.Generator) -> tuple[nn.Module, Tensor, Tensor]:
    def draw(r: torch.Generator, *shape: int) -> Tensor:
        return _normal(r, *shape) * 10 ** _uniform(r, -12, 12, *shape)

    model = _fully_connected(random, draw, depth=(1, 3))
    return model, _normal(random, _inputs(model)), _normal(random, _inputs(model))


def _far(random: torch.Generator) -> tuple[nn.Module, Tensor, Tensor]:
    model = _fully_connected(random, _normal)
    centre = _normal(random, _inputs(model)) * 1e6
    return model, centre + _normal(random, _inputs(model)), centre + _normal(random, _inputs(model))


def _deep(random: torch.Generator) -> tuple[nn.Module, Tensor, Tensor]:
    width = _integer(random, 3, 6)
    layers = list[nn.Module]()
    for _ in range(_integer(random, 20, 200)):
        layer = nn.Linear(width, width, dtype=torch.float64)
        layer.weight.data = _normal(random, width, width) * (2 / width) ** 0.5
        layer.bias.data = _normal(random, width) * 0.1
        layers += [layer, nn.ReLU()]
    return (
        nn.Sequential(*layers[:-1]),
        _normal(random, width).round(decimals=2),
        _normal(random, width).round(decimals=2),
    )


def _spike(random: torch.Generator) -> tuple[nn.Module, Tensor, Tensor]:
    centre = float(_uniform(random, 0.05, 0.95))
    ulps = 10 ** float(_uniform(random, 0, 2))
    kind = ("relu", "abs", "plateau", "clamp")[_integer(random, 0, 3)]
    return Spike(centre, 1 / (ulps * 2.0**-53), kind), torch.zeros(1).double(), torch.ones(1).double()


def _scaled_spike(random: torch.Generator) -> tuple[nn.Module, Tensor, Tensor]:
    """The same as fully connected layers, with large inputs."""
    scale = 10 ** float(_uniform(random, 0, 8))
    slope = 10 ** float(_uniform(random, 11, 14.8)) / scale
    centre = float(_uniform(random, 0.05, 0.95)) * scale
    first, second = nn.Linear(1, 2, dtype=torch.float64), nn.Linear(2, 1, dtype=torch.float64)
    first.weight.data, first.bias.data = (
        torch.tensor([[slope], [-slope]]).double(),
        torch.tensor([-slope * centre, slope * centre]).double(),
    )
    second.weight.data, second.bias.data = torch.tensor([[-1.0, -1.0]]).double(), torch.ones(1).double()
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU()), torch.zeros(1).double(), torch.full((1,), scale).double()


def _step(random: torch.Generator) -> tuple[nn.Module, Tensor, Tensor]:
    knots = _uniform(random, 0, 1, _integer(random, 10, 200))
    model = KnotsAndStep(knots, float(_uniform(random, 0.05, 0.95)), 10 ** float(_uniform(random, 3, 14)))
    return model, torch.zeros(1).double(), torch.ones(1).double()


def _convolutional(random: torch.Generator) -> tuple[nn.Module, Tensor, Tensor]:
    channels, size = _integer(random, 1, 3), _integer(random, 4, 7)
    layers: list[nn.Module] = [nn.Conv2d(1, channels, 3, padding=1), nn.ReLU()]
    for _ in range(_integer(random, 0, 2)):
        layers.append(
            (nn.MaxPool2d(2), nn.AvgPool2d(2), Residual(channels), nn.MaxPool2d(3, 1, 1))[_integer(random, 0, 3)]
        )
        if size // 2 ** sum(isinstance(m, (nn.MaxPool2d, nn.AvgPool2d)) for m in layers) < 2:
            break
    model = nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(3)).double()
    with torch.no_grad():
        model(torch.zeros(1, 1, size, size).double())
    integers = _integer(random, 0, 2) == 0  # ties in the pools
    for p in model.parameters():
        p.data = torch.randint(-2, 3, p.shape, generator=random).double() if integers else _normal(random, *p.shape)
    draw = (
        (lambda: torch.randint(0, 4, (1, size, size), generator=random).double())
        if integers
        else (lambda: _uniform(random, 0, 1, 1, size, size))
    )
    return model, draw(), draw()


FAMILIES: dict[str, Callable[[torch.Generator], tuple[nn.Module, Tensor, Tensor]]] = {
    "random": _random,
    "ties": _ties,
    "steep": _steep,
    "wild": _wild,
    "far": _far,
    "deep": _deep,
    "spike": _spike,
    "scaled spike": _scaled_spike,
    "step": _step,
    "convolutional": _convolutional,
    "mixed graph": make_mixed_graph,
}
