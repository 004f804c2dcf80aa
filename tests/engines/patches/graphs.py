"""Random convolutional graphs: strides, dilation, padding, pools, residuals, branches side by side, upsampling."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.oracle.families import Apply, Concat, Residual, pick


def graph(seed: int) -> tuple[nn.Module, Tensor, Tensor]:
    """A network and the ends of a line through it."""
    torch.manual_seed(seed)
    g = torch.Generator().manual_seed(seed)
    flat = pick(g, 0, 5) == 0  # one spatial dim
    channels, side = pick(g, 1, 3), pick(g, 9, 13)
    shape = (channels, side + 6) if flat else (channels, side, pick(g, 9, 13))
    layers: list[nn.Module] = []
    now = channels
    for _ in range(pick(g, 2, 4)):
        made, now = _block(g, now, flat)
        layers += made
    body = nn.Sequential(*layers).eval().double()
    _randomise(body, g)
    try:
        with torch.no_grad():
            size = body(torch.zeros(2, *shape, dtype=torch.float64))[0].numel()
    except RuntimeError:  # a window is larger than what is left of the map
        return graph(seed + 1_000_000)
    heads: list[list[nn.Module]] = [
        [nn.Flatten(), nn.Linear(size, 7), nn.ReLU(), nn.Linear(7, 3)],
        [nn.Flatten(), nn.Linear(size, 4)],
        [nn.AdaptiveAvgPool1d(1) if flat else nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(now, 3)],
        [],
    ]
    head = nn.Sequential(*heads[pick(g, 0, 3)]).double()
    _randomise(head, g)
    Q, R = torch.randn(2, *shape, generator=g, dtype=torch.float64)
    if pick(g, 0, 3) == 0:
        Q = torch.zeros_like(Q)  # black: many units are the same there
    return nn.Sequential(body, head).eval(), Q, R


def _randomise(module: nn.Module, g: torch.Generator) -> None:
    with torch.no_grad():
        for name, p in module.named_parameters():
            p.add_(torch.randn(p.shape, generator=g, dtype=p.dtype) * (0.1 if "bias" in name else 0.02))
        for name, b in module.named_buffers():
            if "running_var" in name:
                b.copy_(torch.rand(b.shape, generator=g, dtype=b.dtype) + 0.5)
            elif "running_mean" in name:
                b.copy_(torch.randn(b.shape, generator=g, dtype=b.dtype) * 0.1)


def _conv(g: torch.Generator, now: int, then: int, flat: bool, keeps: bool) -> nn.Module:
    kind: Callable[..., nn.Module] = nn.Conv1d if flat else nn.Conv2d
    if keeps:
        d = pick(g, 1, 2)
        return kind(now, then, 3, padding=d, dilation=d)
    k, s = pick(g, 1, 4), pick(g, 1, 2)
    kernel: int | tuple[int, int] = k if flat or pick(g, 0, 1) else (k, pick(g, 1, 3))
    return kind(now, then, kernel, stride=s, padding=pick(g, 0, 1 if k > 1 else 0) if k < 3 else pick(g, 0, 2))


def _pool(g: torch.Generator, flat: bool) -> nn.Module:
    k = pick(g, 2, 3)
    top = nn.MaxPool1d if flat else nn.MaxPool2d
    mean = nn.AvgPool1d if flat else nn.AvgPool2d
    settings = {"stride": pick(g, 1, 2), "padding": pick(g, 0, k // 2), "ceil_mode": bool(pick(g, 0, 1))}
    return mean(k, **settings) if pick(g, 0, 2) == 0 else top(k, **settings)


def _activation(g: torch.Generator) -> nn.Module:
    kinds = [
        nn.ReLU(),
        nn.ReLU(),
        nn.ReLU(),
        nn.LeakyReLU(0.1),
        nn.ReLU6(),
        nn.Hardtanh(-0.5, 0.75),
        Apply(torch.abs),
        nn.PReLU(),
    ]
    return kinds[pick(g, 0, len(kinds) - 1)]


def _block(g: torch.Generator, now: int, flat: bool) -> tuple[list[nn.Module], int]:
    then = pick(g, 2, 5)
    norm = (nn.BatchNorm1d if flat else nn.BatchNorm2d)(then)
    match pick(g, 0, 7):
        case 0:
            return [_conv(g, now, then, flat, True), norm, _activation(g)], then
        case 1:
            inner = nn.Sequential(_conv(g, now, then, flat, True), nn.ReLU(), _conv(g, then, now, flat, True))
            return [Residual(inner), _activation(g)], now
        case 2:
            sides = Concat(_conv(g, now, then, flat, True), nn.Sequential(_conv(g, now, 2, flat, True), nn.ReLU()))
            return [sides, _activation(g)], then + 2
        case 3:
            return [_conv(g, now, then, flat, True), _activation(g), _pool(g, flat)], then
        case 4:
            return [_conv(g, now, then, flat, True), _pool(g, flat), _activation(g)], then
        case 5 if not flat:
            return [
                nn.Upsample(scale_factor=2, mode=("nearest", "bilinear")[pick(g, 0, 1)]),
                _conv(g, now, then, flat, False),
                nn.ReLU(),
            ], then
        case 6 if not flat:
            return [
                Apply(lambda x: F.pad(x, (1, 0, 2, 1))[:, :, :-1]),
                _conv(g, now, then, flat, False),
                _activation(g),
            ], then
        case _:
            return [_conv(g, now, then, flat, False), _activation(g)], then
