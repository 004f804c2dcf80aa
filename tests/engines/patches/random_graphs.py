"""Random convolutional networks, with pooling, upsampling, residual and concatenated branches."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.oracle.families import Apply, Concat, Residual, pick


def random_graph(seed: int) -> tuple[nn.Module, Tensor, Tensor]:
    """A random network, and the two ends of a line in its input space."""
    torch.manual_seed(seed)
    g = torch.Generator().manual_seed(seed)
    is_1d = pick(g, 0, 5) == 0
    channels, side = pick(g, 1, 3), pick(g, 9, 13)
    shape = (channels, side + 6) if is_1d else (channels, side, pick(g, 9, 13))
    layers: list[nn.Module] = []
    for _ in range(pick(g, 2, 4)):
        block, channels = _block(g, channels, is_1d)
        layers += block
    body = nn.Sequential(*layers).eval().double()
    _randomize(body, g)
    try:
        with torch.no_grad():
            size = body(torch.zeros(2, *shape, dtype=torch.float64))[0].numel()
    except RuntimeError:  # a window is larger than the map
        return random_graph(seed + 1_000_000)
    heads: list[list[nn.Module]] = [
        [nn.Flatten(), nn.Linear(size, 7), nn.ReLU(), nn.Linear(7, 3)],
        [nn.Flatten(), nn.Linear(size, 4)],
        [nn.AdaptiveAvgPool1d(1) if is_1d else nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 3)],
        [],
    ]
    head = nn.Sequential(*heads[pick(g, 0, 3)]).double()
    _randomize(head, g)
    start, end = torch.randn(2, *shape, generator=g, dtype=torch.float64)
    if pick(g, 0, 3) == 0:
        start = torch.zeros_like(start)  # many units have equal values there
    return nn.Sequential(body, head).eval(), start, end


def _randomize(module: nn.Module, g: torch.Generator) -> None:
    with torch.no_grad():
        for name, p in module.named_parameters():
            p.add_(torch.randn(p.shape, generator=g, dtype=p.dtype) * (0.1 if "bias" in name else 0.02))
        for name, b in module.named_buffers():
            if "running_var" in name:
                b.copy_(torch.rand(b.shape, generator=g, dtype=b.dtype) + 0.5)
            elif "running_mean" in name:
                b.copy_(torch.randn(b.shape, generator=g, dtype=b.dtype) * 0.1)


def _conv(g: torch.Generator, inputs: int, outputs: int, is_1d: bool, same_size: bool) -> nn.Module:
    conv: Callable[..., nn.Module] = nn.Conv1d if is_1d else nn.Conv2d
    if same_size:
        d = pick(g, 1, 2)
        return conv(inputs, outputs, 3, padding=d, dilation=d)
    k, s = pick(g, 1, 4), pick(g, 1, 2)
    kernel: int | tuple[int, int] = k if is_1d or pick(g, 0, 1) else (k, pick(g, 1, 3))
    return conv(inputs, outputs, kernel, stride=s, padding=pick(g, 0, 1 if k > 1 else 0) if k < 3 else pick(g, 0, 2))


def _pool(g: torch.Generator, is_1d: bool) -> nn.Module:
    k = pick(g, 2, 3)
    maximum = nn.MaxPool1d if is_1d else nn.MaxPool2d
    average = nn.AvgPool1d if is_1d else nn.AvgPool2d
    settings = {"stride": pick(g, 1, 2), "padding": pick(g, 0, k // 2), "ceil_mode": bool(pick(g, 0, 1))}
    return average(k, **settings) if pick(g, 0, 2) == 0 else maximum(k, **settings)


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


def _block(g: torch.Generator, inputs: int, is_1d: bool) -> tuple[list[nn.Module], int]:
    """Some layers, and the number of their output channels."""
    outputs = pick(g, 2, 5)
    norm = (nn.BatchNorm1d if is_1d else nn.BatchNorm2d)(outputs)
    match pick(g, 0, 7):
        case 0:
            return [_conv(g, inputs, outputs, is_1d, True), norm, _activation(g)], outputs
        case 1:
            inner = nn.Sequential(
                _conv(g, inputs, outputs, is_1d, True), nn.ReLU(), _conv(g, outputs, inputs, is_1d, True)
            )
            return [Residual(inner), _activation(g)], inputs
        case 2:
            branches = Concat(
                _conv(g, inputs, outputs, is_1d, True), nn.Sequential(_conv(g, inputs, 2, is_1d, True), nn.ReLU())
            )
            return [branches, _activation(g)], outputs + 2
        case 3:
            return [_conv(g, inputs, outputs, is_1d, True), _activation(g), _pool(g, is_1d)], outputs
        case 4:
            return [_conv(g, inputs, outputs, is_1d, True), _pool(g, is_1d), _activation(g)], outputs
        case 5 if not is_1d:
            return [
                nn.Upsample(scale_factor=2, mode=("nearest", "bilinear")[pick(g, 0, 1)]),
                _conv(g, inputs, outputs, is_1d, False),
                nn.ReLU(),
            ], outputs
        case 6 if not is_1d:
            return [
                Apply(lambda x: F.pad(x, (1, 0, 2, 1))[:, :, :-1]),
                _conv(g, inputs, outputs, is_1d, False),
                _activation(g),
            ], outputs
        case _:
            return [_conv(g, inputs, outputs, is_1d, False), _activation(g)], outputs
