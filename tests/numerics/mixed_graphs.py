"""Random graphs with branches, maxima and pools, whose weights are generic, full of ties, or nearly so."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tests.oracle.families import Apply, Concat, Residual, pick

TIED_WEIGHTS = ("integers", "thirds", "tenths", "repeated rows")
WEIGHTS = (*TIED_WEIGHTS, "normal", "steep", "nearly tied", "large biases")
Draw = torch.Generator


class Combine(nn.Module):
    """Two branches of one input, combined by a function."""

    def __init__(self, first: nn.Module, second: nn.Module, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.function = first, second, function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.first(x), self.second(x))


def make_mixed_graph(random: Draw, weights: tuple[str, ...] = WEIGHTS) -> tuple[nn.Module, Tensor, Tensor]:
    """A random network and the two ends of a line."""
    model, shape = (make_convolutional, _fully_connected)[pick(random, 0, 1)](random)
    _fill(random, model, weights[pick(random, 0, len(weights) - 1)])
    start, end = make_points(random, shape)
    return model.double().eval(), start, end


def _activation(random: Draw) -> nn.Module:
    kinds = (nn.ReLU, nn.ReLU, nn.ReLU, nn.LeakyReLU, nn.Hardtanh, nn.ReLU6, nn.PReLU)
    return (*(kind() for kind in kinds), Apply(torch.abs))[pick(random, 0, len(kinds))]


def _function(random: Draw) -> Callable[[Tensor, Tensor], Tensor]:
    return (torch.maximum, torch.minimum, torch.add, torch.sub)[pick(random, 0, 3)]


def _fully_connected(random: Draw) -> tuple[nn.Module, tuple[int, ...]]:
    inputs = width = pick(random, 1, 4)
    layers = list[nn.Module]()
    for _ in range(pick(random, 1, 4)):
        out = pick(random, 1, 6)
        kind = pick(random, 0, 4)
        if kind == 1:
            out, inner = width, nn.Sequential(nn.Linear(width, out), nn.ReLU(), nn.Linear(out, width))
            layers += [Residual(inner), _activation(random)]
        elif kind == 2:
            branch = nn.Sequential(nn.Linear(width, out), nn.ReLU())
            layers += [Concat(branch, nn.Linear(width, 2)), _activation(random)]
            out += 2
        elif kind == 3:
            layers += [nn.Linear(width, 3 * out), nn.Unflatten(1, (out, 3)), Apply(lambda x: x.amax(2))]
        elif kind == 4:
            layers += [Combine(nn.Linear(width, out), nn.Linear(width, out), _function(random)), _activation(random)]
        else:
            layers += [nn.Linear(width, out), _activation(random)]
        width = out
    return nn.Sequential(*layers, nn.Linear(width, pick(random, 1, 3))), (inputs,)


def make_convolutional(random: Draw) -> tuple[nn.Module, tuple[int, ...]]:
    channels, size = pick(random, 1, 2), pick(random, 4, 6)
    shape, layers = (channels, size, size), list[nn.Module]()
    for _ in range(pick(random, 1, 2)):
        out = pick(random, 1, 3)
        kind, wide = pick(random, 0, 4), nn.Conv2d(channels, out, 3, padding=1)
        pool = (nn.MaxPool2d(2), nn.MaxPool2d(3, 1, 1), nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2))[pick(random, 0, 3)]
        if kind == 1:
            layers += [wide, nn.ReLU(), pool] if pick(random, 0, 1) else [wide, pool, _activation(random)]
        elif kind == 2:
            back = nn.Conv2d(out, channels, 3, padding=1)
            layers += [Residual(nn.Sequential(wide, nn.ReLU(), back)), _activation(random)]
            out = channels
        elif kind == 3:
            pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(channels, 1, 1))
            layers += [Concat(nn.Sequential(wide, nn.ReLU()), pooled), _activation(random)]
            out += 1
        elif kind == 4:
            layers += [Combine(nn.Conv2d(channels, out, 1), wide, _function(random)), _activation(random)]
        else:
            layers += [wide, _activation(random)]
        channels = out
    if pick(random, 0, 2) == 0:
        layers.append(nn.AdaptiveMaxPool2d(1))
    body = nn.Sequential(*layers)
    numbers = body(torch.zeros(2, *shape))[0].numel()
    return nn.Sequential(body, nn.Flatten(), nn.Linear(numbers, pick(random, 1, 3))), shape


def _fill(random: Draw, model: nn.Module, weights: str) -> None:
    """Draw the parameters of a network."""
    power = 3 * float(torch.rand((), generator=random))
    for parameter in model.parameters():
        shape = parameter.shape
        normal = torch.randn(shape, generator=random, dtype=torch.float64)
        integers = torch.randint(-3, 4, shape, generator=random).double()
        if weights == "repeated rows" and len(shape) > 1:
            normal = normal[torch.randint(0, len(normal), (len(normal),), generator=random)]
        ulps = torch.randint(-8, 9, shape, generator=random).double()
        parameter.data = {
            "integers": integers,
            "thirds": integers / 3,
            "tenths": integers / 10,
            "steep": normal * 10**power,
            "nearly tied": integers / 3 * (1 + ulps * 2.0**-52),
            "large biases": normal if len(shape) > 1 else normal * 10 ** (3 * power),
        }.get(weights, normal)


def make_points(random: Draw, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Ends of a line: anywhere, at integers, from or through the origin, far away, close together, or in tenths."""
    a, b, centre = torch.randn(3, *shape, generator=random, dtype=torch.float64)
    if not bool((a != b).any()):
        raise ValueError("both ends are one point")
    distance = 10.0 ** pick(random, 2, 8)
    return (
        (a, b),
        ((3 * a).round(), (3 * b).round() + 1),
        (torch.zeros_like(a), b),
        (-a, 2 * a),
        (distance * centre + a, distance * centre + b),
        (centre, centre + b / distance),
        (a.round(decimals=1), b.round(decimals=1)),
    )[pick(random, 0, 6)]
