"""Networks whose crossings lie within a few to a few thousand ulps of each other, by controlled distances."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from tests.numerics.draws import Draw, draw_normal, draw_uniform, make_linear
from tests.oracle.families import pick

GAPS = (0.0, 0.5, 1.0, 2.0, 5.0, 20.0, 100.0, 1000.0)  # between crossings, in ulps of the position
UNIT_LINE = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
Built = tuple[nn.Sequential, Tensor, Tensor]  # layers, each breaking one with an affine one before it; ends of a line


def make_near_ties(family: str, seed: int) -> Built:
    """A network of a family and a line; the same seed gives the same network."""
    random = torch.Generator().manual_seed(6007 * seed + 11)
    model, start, end = FAMILIES[family](random)
    return model.double().eval(), start, end


def _offsets(random: Draw, count: int, position: float) -> Tensor:
    """Distances (count,) of crossings from a position, at one of `GAPS` from each other, in any order."""
    ulp = 2.0**-52 * 2.0 ** float(torch.tensor(position).log2().floor())
    gaps = torch.tensor([GAPS[pick(random, 0, len(GAPS) - 1)] for _ in range(count)], dtype=torch.float64)
    return ulp * gaps.cumsum(0)[torch.randperm(count, generator=random)]


def _slopes(random: Draw, count: int, low: float = -3, high: float = 15) -> Tensor:
    signs = torch.randint(0, 2, (count,), generator=random) * 2.0 - 1
    return signs * 10 ** draw_uniform(random, low, high, count)


def _head(random: Draw, inputs: int, slopes: Tensor) -> list[nn.Module]:
    """Layers that read every unit in proportion to its slope, with or without a further breaking one."""
    weight = draw_normal(random, 3, inputs) / slopes.abs().clamp(min=1)
    if pick(random, 0, 1):
        return [make_linear(weight, 0.1 * draw_normal(random, 3))]
    return [make_linear(weight), nn.ReLU(), make_linear(draw_normal(random, 2, 3))]


def _tied_units(random: Draw, position: float) -> tuple[list[nn.Module], Tensor]:
    """Units of a number that cross 0 near a position; every distance is a difference without rounding."""
    count = pick(random, 2, 5)
    slopes, offsets = _slopes(random, count), _offsets(random, count, position)
    shift = make_linear(torch.ones(1, 1, dtype=torch.float64), -torch.full((1,), position, dtype=torch.float64))
    return [shift, make_linear(slopes[:, None], -slopes * offsets), nn.ReLU()], slopes


def _direct(random: Draw) -> Built:
    tied, slopes = _tied_units(random, float(draw_uniform(random, 0.05, 0.95)))
    return nn.Sequential(*tied, *_head(random, len(slopes), slopes)), *UNIT_LINE


def _formulae(random: Draw) -> Built:
    """One position as several sums in each of two layers: the products of position and slope are rounded."""
    position, count = (1 / 3, 0.1, 0.7)[pick(random, 0, 2)], pick(random, 2, 4)
    first, second = _slopes(random, count, -1, 6), _slopes(random, count, -1, 6)
    rows = torch.cat([first, torch.tensor([1.0, -1.0]).double()])
    layers: list[nn.Module] = [make_linear(rows[:, None], torch.cat([-first * position, torch.zeros(2).double()]))]
    pair = torch.zeros(count, count + 2, dtype=torch.float64)  # reads x = relu(x) - relu(-x), and units that are 0
    pair[:, -2], pair[:, -1] = second, -second
    pair[:, :count] = draw_normal(random, count, count) / first.abs()
    layers += [nn.ReLU(), make_linear(pair, -second * position), nn.ReLU()]
    return nn.Sequential(*layers, *_head(random, count, second)), *UNIT_LINE


def _behind(random: Draw, body: list[nn.Module], inputs: int, width: int) -> Built:
    """Units of one sum behind other layers, or of one sum each, that cross near a random position."""
    start, end = draw_normal(random, 2, inputs)
    position, count = float(draw_uniform(random, 0.1, 0.9)), pick(random, 2, 4)
    row = draw_normal(random, 1, width)
    sums = nn.Sequential(*body, make_linear(row))
    with torch.no_grad():
        steps = torch.tensor([0.0, 1e-6]).double()[:, None] + position
        before, after = sums(start + steps * (end - start))[:, 0].tolist()
    slopes = _slopes(random, count, -3, 12)
    biases = before + _offsets(random, count, position) * (after - before) / 1e-6
    if pick(random, 0, 1):
        tied = [make_linear(row), make_linear(slopes[:, None], -slopes * biases), nn.ReLU()]
    else:
        tied = [make_linear(slopes[:, None] * row, -slopes * biases), nn.ReLU()]
    return nn.Sequential(*body, *tied, *_head(random, count, slopes)), start, end


def _deep(random: Draw) -> Built:
    widths = [pick(random, 1, 3), *[pick(random, 2, 4) for _ in range(pick(random, 2, 6))]]
    body = list[nn.Module]()
    for a, b in pairwise(widths):
        body += [
            make_linear(draw_normal(random, b, a), draw_normal(random, b)),
            (nn.ReLU(), nn.LeakyReLU(0.1))[pick(random, 0, 1)],
        ]
    return _behind(random, body, widths[0], widths[-1])


def _cancelling(random: Draw) -> Built:
    """Differences of large, almost equal sums."""
    inputs, size = pick(random, 1, 3), float(10 ** draw_uniform(random, 2, 8))
    weight = (draw_normal(random, 1, inputs) + draw_normal(random, 3, inputs) / size) * size
    minus = torch.tensor([[-1.0, 1.0, 0.0], [-1.0, 0.0, 1.0]]).double()
    body: list[nn.Module] = [
        make_linear(weight, draw_normal(random, 3) + size),
        nn.LeakyReLU(0.5),
        make_linear(minus),
        nn.LeakyReLU(0.25),
    ]
    return _behind(random, body, inputs, 2)


def _tied_image(random: Draw, channels: int, size: int) -> tuple[Tensor, Tensor]:
    """Ends of a line on which the pixels of an image cross 0 near one position, (channels, size, size) each."""
    position, count = float(draw_uniform(random, 0.1, 0.9)), channels * size * size
    speeds, offsets = _slopes(random, count, -1, 2), _offsets(random, count, position)
    start, end = -speeds * (position + offsets), speeds * (1 - position - offsets)
    return start.view(channels, size, size), end.view(channels, size, size)


def _pooled(random: Draw) -> Built:
    """Windows of pixels that change their leader near one position."""
    start, end = _tied_image(random, 1, 4)
    pool = (nn.MaxPool2d(2), nn.MaxPool2d(3, 1, 1), nn.MaxPool2d(2, 1))[pick(random, 0, 2)]
    numbers = pool(start).numel()
    conv = nn.Conv2d(1, 1, 1, bias=False, dtype=torch.float64)
    conv.weight.data.fill_(10 ** float(draw_uniform(random, 0, 6)))
    return nn.Sequential(conv, pool, nn.Flatten(), make_linear(draw_normal(random, 2, numbers))), start, end


def _convolutional(random: Draw) -> Built:
    """Convolutions without constants: near one position all units of all layers cross 0."""
    start, end = _tied_image(random, 1, 3)
    first = nn.Conv2d(1, 2, 2, padding=1, bias=False, dtype=torch.float64)
    second = nn.Conv2d(2, 1, 2, bias=False, dtype=torch.float64)
    for conv in (first, second):
        conv.weight.data = draw_normal(random, *conv.weight.shape)
    layers: list[nn.Module] = [first, nn.ReLU(), second, nn.ReLU()]
    if pick(random, 0, 1):
        layers[1] = nn.LeakyReLU(0.1)
    return nn.Sequential(*layers, nn.Flatten(), make_linear(draw_normal(random, 2, 9))), start, end


FAMILIES: dict[str, Callable[[Draw], Built]] = {
    "direct": _direct,
    "formulae": _formulae,
    "deep": _deep,
    "cancelling": _cancelling,
    "pooled": _pooled,
    "convolutional": _convolutional,
}
