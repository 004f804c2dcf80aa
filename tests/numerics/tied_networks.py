"""Networks with ties by structure: whole numbers, copied channels, equal coordinates, lines inside hyperplanes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from tests.oracle.families import Apply, Concat, Residual, pick

Draw = torch.Generator
Network = tuple[nn.Module, tuple[int, ...]]  # and the shape of its input


class Shuffle(nn.Module):
    """Interleaves two halves of the channels."""

    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (2, -1)).transpose(1, 2).flatten(1, 2)


class UShape(nn.Module):
    """Pools, convolves, upsamples, and joins the result with what came before the pool."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.down, self.inner = nn.MaxPool2d(2), nn.Conv2d(channels, channels, 3, padding=1)
        self.up, self.join = nn.Upsample(scale_factor=2), nn.Conv2d(2 * channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.up(torch.relu(self.inner(self.down(x))))
        return torch.relu(self.join(torch.cat([x, inner], 1)))


class Inception(nn.Module):
    """Parallel branches, one of them a pool of the same input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(channels, 1, 1)
        self.three = nn.Conv2d(channels, 2, 3, padding=1)
        self.pool, self.after = nn.MaxPool2d(3, 1, 1), nn.Conv2d(channels, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(torch.cat([self.one(x), self.three(x), self.after(self.pool(x))], 1))


def make_tied_network(family: str, seed: int) -> tuple[nn.Module, Tensor, Tensor]:
    """A network of a family and the two ends of a line."""
    random = torch.Generator().manual_seed(seed)
    model, shape = FAMILIES[family](random)
    model = model.double().eval()
    _fill(random, model)
    start, end = _points(random, shape)
    return model, start, end


def _head(body: nn.Module, shape: tuple[int, ...], outputs: int) -> Network:
    """A network that ends in a linear layer."""
    with torch.no_grad():
        numbers = body(torch.zeros(2, *shape))[0].numel()
    return nn.Sequential(body, nn.Flatten(), nn.Linear(numbers, outputs)), shape


def _pools(random: Draw) -> Network:
    channels, size = pick(random, 1, 3), pick(random, 4, 6)
    pool = (nn.MaxPool2d(2), nn.MaxPool2d(3, 1, 1), nn.MaxPool2d(3, 2, 1))[pick(random, 0, 2)]
    block = nn.Sequential(
        nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, channels, 3, padding=1)
    )
    layers = [nn.Conv2d(1, channels, 3, padding=1), nn.ReLU(), pool, Residual(block), nn.ReLU()]
    if pick(random, 0, 1):
        layers.append(nn.MaxPool2d(2, ceil_mode=True))
    return _head(nn.Sequential(*layers), (1, size, size), 2)


def _dense_block(random: Draw) -> Network:
    channels, layers = pick(random, 1, 2), list[nn.Module]()
    total = channels
    for _ in range(pick(random, 2, 4)):
        inner = nn.Sequential(nn.BatchNorm2d(total), nn.ReLU(), nn.Conv2d(total, 2, 3, padding=1))
        layers.append(Concat(nn.Identity(), inner))
        total += 2
    return _head(nn.Sequential(*layers, nn.ReLU(), nn.AvgPool2d(2)), (channels, 4, 4), 2)


def _inception(random: Draw) -> Network:
    channels = pick(random, 1, 2)
    layers: list[nn.Module] = [Inception(channels), Inception(4)]
    if pick(random, 0, 1):
        layers.insert(1, nn.MaxPool2d(2))
    return _head(nn.Sequential(*layers), (channels, 4, 4), 2)


def _shuffled(random: Draw) -> Network:
    layers = [nn.Conv2d(1, 4, 1), nn.ReLU()]
    for _ in range(pick(random, 1, 3)):
        layers += [nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.Conv2d(4, 4, 1, groups=2), nn.ReLU6(), Shuffle()]
    return _head(nn.Sequential(*layers), (1, 4, 4), 2)


def _grouped(random: Draw) -> Network:
    layers = [nn.Conv2d(2, 6, 2, groups=2), nn.LeakyReLU(0.25), nn.Conv2d(6, 4, 2, stride=2, groups=2), nn.ReLU()]
    layers += [nn.MaxPool2d(2, 1)] if pick(random, 0, 1) else [nn.Hardtanh(-1, 1)]
    return _head(nn.Sequential(*layers), (2, 5, 5), 2)


def _u_shaped(random: Draw) -> Network:
    channels = pick(random, 1, 3)
    return _head(nn.Sequential(nn.Conv2d(1, channels, 3, padding=1), UShape(channels)), (1, 4, 4), 2)


def _homogeneous(random: Draw) -> Network:
    """No biases: on a line through the origin all units of a layer cross together."""
    widths = [pick(random, 1, 4), *[pick(random, 2, 9) for _ in range(pick(random, 1, 4))]]
    layers = [m for a, b in pairwise(widths) for m in (nn.Linear(a, b, bias=False), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(widths[-1], 2, bias=False)), (widths[0],)


def _wide_maximum(random: Draw) -> Network:
    """A thousand equal elements of one window, among others."""
    inner = [nn.Conv2d(1, 2, 1), nn.ReLU()] if pick(random, 0, 1) else [nn.Conv2d(1, 2, 3, padding=1)]
    return _head(nn.Sequential(*inner, nn.AdaptiveMaxPool2d(1)), (1, 23, 23), 2)


def _max_of_max(random: Draw) -> Network:
    layers: list[nn.Module] = [nn.Conv2d(1, 2, 3, padding=1)] if pick(random, 0, 1) else []
    channels = 1 + len(layers)
    layers += [nn.MaxPool2d(3, 1, 1), nn.MaxPool2d(3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(channels, 2, 2)]
    return _head(nn.Sequential(*layers), (1, 6, 6), 2)


def _bounded(random: Draw) -> Network:
    widths = [pick(random, 1, 5), pick(random, 3, 10), pick(random, 3, 8), 3]
    layers = list[nn.Module]()
    for a, b in pairwise(widths):
        layers += [
            nn.Linear(a, b),
            (nn.Hardtanh(), nn.ReLU6(), nn.LeakyReLU(2.0), Apply(torch.abs))[pick(random, 0, 3)],
        ]
    return nn.Sequential(*layers, nn.Linear(3, 2)), (widths[0],)


FAMILIES: dict[str, Callable[[Draw], Network]] = {
    "pools": _pools,
    "dense block": _dense_block,
    "inception": _inception,
    "shuffled": _shuffled,
    "grouped": _grouped,
    "u-shaped": _u_shaped,
    "homogeneous": _homogeneous,
    "wide maximum": _wide_maximum,
    "max of max": _max_of_max,
    "bounded": _bounded,
}


def _fill(random: Draw, model: nn.Module) -> None:
    """Draw the parameters: small whole numbers, whole numbers with copied channels, shares, or copied normal rows."""
    kind = pick(random, 0, 5)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d) and kind != 5:
            module.eps = 0.0
            module.running_mean = torch.randint(-1, 2, (module.num_features,), generator=random).double()
            module.running_var = torch.full((module.num_features,), 4.0).double()
    for parameter in model.parameters():
        shape = parameter.shape
        numbers = torch.randint(-2, 3, shape, generator=random).double()
        if kind == 1:
            numbers = numbers / 7
        elif kind == 2:
            numbers = numbers[torch.randint(0, len(numbers), (len(numbers),), generator=random)] * 0.1
        elif kind in (3, 5):
            normal = torch.randn(shape, generator=random, dtype=torch.float64)
            numbers = normal[torch.randint(0, len(normal), (len(normal),), generator=random)]
        if kind == 4 and len(shape) == 1:
            numbers.zero_()
        parameter.data = numbers


def _points(random: Draw, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Ends of a line: whole numbers, through the origin, equal coordinates, constant images, only a part moves."""
    a, b = torch.randn(2, *shape, generator=random, dtype=torch.float64)
    level = torch.rand((), generator=random, dtype=torch.float64)
    is_fixed = torch.rand(shape, generator=random) < 0.5
    whole, other = (2 * a).round(), (2 * b).round()
    other.view(-1)[0] += 1 + float((other == whole).all())
    row = a[..., :1].expand(shape).clone()
    start, end = (
        (whole, other),
        (-whole, 2 * whole + is_fixed),
        (torch.zeros(shape).double(), torch.full(shape, float(level)).double()),
        (row, 2 - row),
        (whole / 3, other / 3),
        (torch.where(is_fixed, whole, other), other + 1.0),
        (-a, a * level),
        (whole.abs() / 10, other.abs() / 10 + 0.1),
    )[pick(random, 0, 7)]
    return start, end
