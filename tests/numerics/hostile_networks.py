"""Networks that amplify rounding: spikes behind layers, mixed scales, cancellation, near ties, subnormal weights."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from tests.numerics.draws import Draw, draw_normal, draw_uniform, make_linear
from tests.numerics.networks import Case, Spike
from tests.oracle.families import Apply, Residual, pick

Built = tuple[nn.Module, Tensor, Tensor]  # a network and the ends of a line


def make_hostile_case(family: str, seed: int) -> Case:
    """One case of a family; the same seed gives the same case."""
    random = torch.Generator().manual_seed(7919 * seed + 13)
    model, start, end = FAMILIES[family](random)
    return Case(family, seed, model.double().eval(), start, end)


def _number(random: Draw, low: float, high: float) -> float:
    return float(draw_uniform(random, low, high))


def _dense(random: Draw, widths: list[int], activation: Callable[[], nn.Module] = nn.ReLU) -> list[nn.Module]:
    """Layers with normal weights, each followed by an activation."""
    return [
        module
        for a, b in pairwise(widths)
        for module in (make_linear(draw_normal(random, b, a), draw_normal(random, b)), activation())
    ]


def _widths(random: Draw, layers: int, width: int = 6) -> list[int]:
    return [pick(random, 1, width) for _ in range(layers + 1)]


def _spike_behind_layers(random: Draw) -> Built:
    widths = [*_widths(random, pick(random, 1, 3)), 1]
    kind = ("relu", "abs", "plateau", "clamp")[pick(random, 0, 3)]
    body = _dense(random, widths)[:-1]
    start, end = draw_normal(random, 2, widths[0])
    with torch.no_grad():
        centre = float(nn.Sequential(*body)((start + _number(random, 0.1, 0.9) * (end - start))[None]))
    spike = Spike(centre, 10 ** _number(random, 3, 14), kind)
    return nn.Sequential(*body, spike, *_dense(random, [1, 3, 2])[:-1]), start, end


def _mixed_scales(random: Draw) -> Built:
    """Scales of 1e-12 to 1e12 within a layer, which the next layer undoes."""
    widths = [pick(random, 1, 4), *[pick(random, 2, 6) for _ in range(pick(random, 1, 3))], 2]
    layers = list[nn.Module]()
    scale = torch.ones(widths[0], dtype=torch.float64)
    power = _number(random, 1, 12)
    for a, b in pairwise(widths):
        inverse, scale = 1 / scale, 10 ** draw_uniform(random, -power, power, b)
        layers += [
            make_linear(draw_normal(random, b, a) * inverse * scale[:, None], draw_normal(random, b) * scale),
            nn.ReLU(),
        ]
    return nn.Sequential(*layers[:-1]), draw_normal(random, widths[0]), draw_normal(random, widths[0])


def _cancellation(random: Draw) -> Built:
    """Differences of large, almost equal sums, several times."""
    inputs, layers = pick(random, 1, 3), list[nn.Module]()
    width = inputs
    for _ in range(pick(random, 1, 3)):
        size, row = 10 ** _number(random, 2, 9), draw_normal(random, 1, width)
        copies = pick(random, 2, 4)
        weight = (row + draw_normal(random, copies, width) / size) * size
        layers += [make_linear(weight, draw_normal(random, copies) + size * _number(random, 0, 3)), nn.ReLU()]
        minus = torch.zeros(copies - 1, copies, dtype=torch.float64)
        minus[:, 0] = -1
        minus[:, 1:] += torch.eye(copies - 1)
        layers += [make_linear(minus, 0.1 * draw_normal(random, copies - 1)), nn.ReLU()]
        width = copies - 1
    return nn.Sequential(*layers, make_linear(draw_normal(random, 2, width))), *draw_normal(random, 2, inputs)


def _far_offset(random: Draw) -> Built:
    """A short line far away, and biases that bring the values back."""
    inputs, far = pick(random, 1, 4), 10 ** _number(random, 3, 9)
    centre = far * draw_normal(random, inputs)
    widths = [inputs, *_widths(random, pick(random, 1, 2)), 2]
    layers = _dense(random, widths)[:-1]
    first = layers[0]
    first.bias.data = (draw_normal(random, widths[1]) - (first.weight.data @ centre)).detach()  # pyright: ignore
    length = 10 ** _number(random, -3, 1)
    return nn.Sequential(*layers), centre, centre + length * draw_normal(random, inputs)


def _near_tied_pool(random: Draw) -> Built:
    """Windows whose elements differ by a few ulps."""
    channels, size = pick(random, 1, 2), pick(random, 3, 5)
    pool = (nn.MaxPool2d(2), nn.MaxPool2d(3, 1, 1), nn.AdaptiveMaxPool2d(1), nn.MaxPool2d(2, 1))[pick(random, 0, 3)]
    conv = nn.Conv2d(1, channels, 3, padding=1, dtype=torch.float64)
    conv.weight.data, conv.bias.data = draw_normal(random, channels, 1, 3, 3), draw_normal(random, channels)
    after = [nn.ReLU()] if pick(random, 0, 1) else []
    body = nn.Sequential(conv, *after, pool, nn.Flatten())
    numbers = body(torch.zeros(1, 1, size, size, dtype=torch.float64)).numel()
    head = make_linear(draw_normal(random, 2, numbers) * 10 ** _number(random, 0, 8), draw_normal(random, 2))
    ulps = torch.randint(-9, 10, (2, 1, size, size), generator=random) * 2.0 ** -pick(random, 40, 53)
    start, end = draw_normal(random, 2)[:, None, None, None] * (1 + ulps)
    return nn.Sequential(body, head), start, end


def _odd_activations(random: Draw) -> Built:
    """Slopes above 1 and below 0, narrow bounds, absolute values."""
    kinds: tuple[Callable[[], nn.Module], ...] = (
        lambda: nn.LeakyReLU(_number(random, 1.1, 8)),
        lambda: nn.LeakyReLU(-_number(random, 0.1, 8)),
        lambda: nn.Hardtanh(-1e-3, 10 ** _number(random, -3, 3)),
        lambda: Apply(torch.abs),
        nn.ReLU6,
        lambda: nn.PReLU(init=1e4),
        lambda: nn.Threshold(0.0, 0.0),
    )
    widths = [*_widths(random, pick(random, 2, 4)), 2]
    layers = _dense(random, widths, lambda: kinds[pick(random, 0, len(kinds) - 1)]())[:-1]
    power = _number(random, 0, 3)
    for layer in layers:
        if isinstance(layer, nn.Linear):
            layer.weight.data *= 10**power
    return nn.Sequential(*layers), *draw_normal(random, 2, widths[0])


def _residuals(random: Draw) -> Built:
    width, layers = pick(random, 2, 4), list[nn.Module]()
    gain = 10 ** _number(random, -1, 1)
    for _ in range(pick(random, 3, 10)):
        inner = _dense(random, [width, width])
        inner.append(make_linear(gain * draw_normal(random, width, width)))
        layers += [Residual(nn.Sequential(*inner)), *([nn.ReLU()] if pick(random, 0, 1) else [])]
    return nn.Sequential(*layers, make_linear(draw_normal(random, 2, width))), *draw_normal(random, 2, width)


def _mean_then_steep(random: Draw) -> Built:
    """Averages of many numbers, of which steep layers take what little is left."""
    size = (4, 6, 8)[pick(random, 0, 2)]
    conv = nn.Conv2d(1, 2, 3, padding=1, dtype=torch.float64)
    conv.weight.data, conv.bias.data = draw_normal(random, 2, 1, 3, 3), draw_normal(random, 2)
    pool = (nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1), nn.AvgPool2d(3, 1, 1))[pick(random, 0, 2)]
    body = nn.Sequential(conv, nn.ReLU(), pool, nn.Flatten())
    start, end = draw_normal(random, 2, 1, size, size)
    if pick(random, 0, 1):
        end = start + 1e-3 * end
    with torch.no_grad():
        middle = body((start + _number(random, 0, 1) * (end - start))[None])[0]
    steep = 10 ** _number(random, 2, 10) * draw_normal(random, 3, len(middle))
    head = [
        make_linear(steep, -(steep @ middle)),
        nn.ReLU(),
        make_linear(draw_normal(random, 3, 3), draw_normal(random, 3)),
    ]
    return nn.Sequential(body, *head, nn.Hardtanh(), make_linear(draw_normal(random, 1, 3))), start, end


def _extreme_exponents(random: Draw) -> Built:
    """Weights near and below the smallest normal number, and large ones that undo them."""
    widths = [pick(random, 1, 3), pick(random, 1, 5), pick(random, 1, 5), 2]
    small = 10.0 ** -pick(random, 290, 318)
    first, second, third = (draw_normal(random, b, a) for a, b in pairwise(widths))
    large = 10.0 ** pick(random, 200, 300)
    layers = [make_linear(first * small, small * draw_normal(random, widths[1])), nn.ReLU()]
    layers += [
        make_linear(second * large, draw_normal(random, widths[2]) * large * small),
        nn.ReLU(),
        make_linear(third),
    ]
    return nn.Sequential(*layers), *draw_normal(random, 2, widths[0])


def _balanced_depth(random: Draw) -> Built:
    """Alternating large and small layers with nearly equal rows."""
    width, layers = pick(random, 2, 4), list[nn.Module]()
    for k in range(2 * pick(random, 2, 6)):
        size = 10.0 ** (8 if k % 2 else -8)
        weight = draw_normal(random, 1, width) + 10 ** -_number(random, 0, 6) * draw_normal(random, width, width)
        layers += [make_linear(size * weight, size * 0.3 * draw_normal(random, width)), nn.LeakyReLU(0.1)]
    return nn.Sequential(*layers, make_linear(draw_normal(random, 1, width))), *draw_normal(random, 2, width)


def _tents(random: Draw) -> Built:
    """Tent maps of a number, on a line with few of their pieces."""
    depth, layers = pick(random, 5, 40), list[nn.Module]()
    for _ in range(depth):
        layers += [make_linear(torch.tensor([[2.0], [4.0]]).double(), torch.tensor([0.0, -2.0]).double()), nn.ReLU()]
        layers.append(make_linear(torch.tensor([[1.0, -1.0]]).double()))
    start = draw_uniform(random, 0, 1, 1)
    return nn.Sequential(*layers), start, start + 8 * 2.0**-depth * _number(random, 0.1, 1)


def _near_tied_rows(random: Draw) -> Built:
    """Maxima of lines that are equal up to a few ulps, behind a layer and before a steep one."""
    inputs, groups, members = pick(random, 1, 3), pick(random, 1, 3), pick(random, 2, 5)
    row = draw_normal(random, groups, 1, 4)
    ulps = torch.randint(-5, 6, (groups, members, 4), generator=random)
    weight = row * (1 + ulps * 2.0 ** -pick(random, 45, 52))
    bias = draw_normal(random, groups).repeat_interleave(members)
    layers = [*_dense(random, [inputs, 4]), make_linear(weight.flatten(0, 1), bias)]
    layers += [nn.Unflatten(1, (groups, members)), Apply(lambda x: x.amax(2))]
    steep = 10 ** _number(random, 0, 8)
    head = [
        make_linear(steep * draw_normal(random, 3, groups), draw_normal(random, 3)),
        nn.ReLU(),
        make_linear(draw_normal(random, 1, 3)),
    ]
    return nn.Sequential(*layers, *head), *draw_normal(random, 2, inputs)


def _small_slopes(random: Draw) -> Built:
    """Units that leave their knots slowly, and that a steep layer reads."""
    inputs, width = pick(random, 1, 3), pick(random, 2, 6)
    slow = 10 ** -_number(random, 6, 15)
    base = draw_normal(random, inputs)
    direction = draw_normal(random, inputs)
    first = draw_normal(random, width, inputs)
    across = first - (first @ direction)[:, None] * direction / direction.square().sum()
    first = across + slow * draw_normal(random, width, inputs)
    layers = [
        make_linear(first, -(first @ base)),
        nn.ReLU(),
        make_linear(draw_normal(random, 3, width) / slow, draw_normal(random, 3)),
    ]
    return nn.Sequential(*layers, nn.ReLU(), make_linear(draw_normal(random, 2, 3))), base - direction, base + direction


FAMILIES: dict[str, Callable[[Draw], Built]] = {
    "spike behind layers": _spike_behind_layers,
    "mixed scales": _mixed_scales,
    "cancellation": _cancellation,
    "far offset": _far_offset,
    "near-tied pool": _near_tied_pool,
    "odd activations": _odd_activations,
    "residuals": _residuals,
    "mean then steep": _mean_then_steep,
    "extreme exponents": _extreme_exponents,
    "balanced depth": _balanced_depth,
    "tents": _tents,
    "near-tied rows": _near_tied_rows,
    "small slopes": _small_slopes,
}
