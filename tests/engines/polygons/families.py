"""Test networks and polygons: every kind of operator, and weights that are random or full of ties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from torch import Generator, Tensor, nn

from exactline.network import as_network
from exactline.network.graph import Network
from tests.oracle.families import Apply, Concat, Residual, pick, seeded, small_integers

Maker = Callable[[Generator], tuple[nn.Module, tuple[int, ...]]]


@dataclass(frozen=True, eq=False)
class Case:
    """A network and the vertices of a convex polygon."""

    name: str
    network: Network
    vertices: Tensor  # (k, *in)


def build_layers(act: Callable[[int], nn.Module], g: Generator) -> tuple[nn.Module, tuple[int, ...]]:
    """Linear layers with one activation, made by ``act`` from the number of units."""
    widths = [pick(g, 2, 4), *(pick(g, 5, 9) for _ in range(pick(g, 1, 3)))]
    body = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), act(b))]
    return nn.Sequential(*body, nn.Linear(widths[-1], 2)), (widths[0],)


def build_between_layers(
    function: Callable[[Tensor], Tensor], g: Generator, width: int = 6
) -> tuple[nn.Module, tuple[int, ...]]:
    """A function of several units between linear layers."""
    out = function(torch.zeros(1, width)).shape[1]
    middle = [nn.Linear(3, width), Apply(function), nn.Linear(out, 5), nn.ReLU(), nn.Linear(5, 2)]
    return nn.Sequential(*middle), (3,)


def pool1d(g: Generator) -> tuple[nn.Module, tuple[int, ...]]:
    """Max-pooling over overlapping windows, with padding."""
    pool = nn.MaxPool1d(3, stride=pick(g, 1, 2), padding=pick(g, 0, 1))
    body = nn.Sequential(nn.Linear(3, 8), nn.Unflatten(1, (1, 8)), pool, nn.Flatten())
    width = body(torch.zeros(1, 3)).shape[1]
    return nn.Sequential(body, nn.Linear(width, 5), nn.LeakyReLU(0.25), nn.Linear(5, 2)), (3,)


def pool2d(g: Generator) -> tuple[nn.Module, tuple[int, ...]]:
    """Convolution, ReLU and max-pooling in either order."""
    order = [nn.ReLU(), nn.MaxPool2d(2, stride=2)]
    if pick(g, 0, 1):
        order.reverse()
    body = nn.Sequential(nn.Conv2d(1, 2, 2, padding=pick(g, 0, 1)), *order, nn.Flatten())
    width = body(torch.zeros(1, 1, 4, 4)).shape[1]
    return nn.Sequential(body, nn.Linear(width, 5), nn.ReLU(), nn.Linear(5, 2)), (1, 4, 4)


def pool_alone(g: Generator) -> tuple[nn.Module, tuple[int, ...]]:
    """Max-pooling without a ReLU to fuse with, followed by average pooling."""
    body = [nn.Conv2d(1, 2, 2), nn.MaxPool2d(2, stride=1), nn.AvgPool2d(2), nn.Flatten()]
    return nn.Sequential(*body, nn.Linear(2, 2), nn.ReLU()), (1, 4, 4)


def residual(g: Generator) -> tuple[nn.Module, tuple[int, ...]]:
    """A skip connection around layers."""
    inner = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))
    return nn.Sequential(nn.Linear(2, 6), Residual(inner), nn.ReLU(), nn.Linear(6, 2)), (2,)


def concat(g: Generator) -> tuple[nn.Module, tuple[int, ...]]:
    """Concatenated branches with different breaks, and a maximum of two halves at the end."""
    left = nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(0.125))
    right = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3), nn.Hardtanh())
    halves = Apply(lambda x: torch.maximum(x[:, :3], x[:, 3:]))
    return nn.Sequential(Concat(left, right), nn.Linear(7, 6), halves), (3,)


FAMILIES: dict[str, Maker] = {
    "relu": partial(build_layers, lambda n: nn.ReLU()),
    "leaky": partial(build_layers, lambda n: nn.LeakyReLU(0.25)),
    "hardtanh": partial(build_layers, lambda n: nn.Hardtanh(-0.5, 0.75)),
    "clamp": partial(build_layers, lambda n: Apply(lambda x: x.clamp(-1, 1))),
    "abs": partial(build_layers, lambda n: Apply(torch.abs)),
    "prelu": partial(build_layers, nn.PReLU),
    "pool1d": pool1d,
    "pool2d": pool2d,
    "pool alone": pool_alone,
    "amax": partial(build_between_layers, lambda x: x.amax(1, keepdim=True)),
    "range": partial(build_between_layers, lambda x: x.amax(1, keepdim=True) - x.amin(1, keepdim=True)),
    "relu of max": partial(build_between_layers, lambda x: torch.relu(x.view(-1, 2, 3).amax(2))),
    "branches": partial(build_between_layers, lambda x: torch.maximum(x[:, :3], x[:, 3:])),
    "sort": partial(build_between_layers, lambda x: x.sort(1).values, width=4),
    "topk": partial(build_between_layers, lambda x: x.topk(3, 1).values),
    "median": partial(build_between_layers, lambda x: x.median(1, keepdim=True).values, width=5),
    "kthvalue": partial(build_between_layers, lambda x: x.kthvalue(2, 1, keepdim=True).values),
    "residual": residual,
    "concat": concat,
}


def set_integers_without_bias(g: Generator, model: nn.Module) -> nn.Module:
    """Small integer weights without biases: every cone has its apex at the origin."""
    small_integers(g, model)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.zero_()
    return model


def double_units(g: Generator, model: nn.Module) -> nn.Module:
    """The second half of every layer's units is twice the first half."""
    return _repeat_units(seeded(model, g), 2.0)


def negate_units(g: Generator, model: nn.Module) -> nn.Module:
    """The second half of every layer's units is the first half with the opposite sign."""
    return _repeat_units(seeded(model, g), -1.0)


def _repeat_units(model: nn.Module, factor: float) -> nn.Module:
    with torch.no_grad():
        for weight in model.parameters():
            half = len(weight) // 2
            weight[len(weight) - half :] = weight[:half] * factor
    return model


WEIGHT_KINDS: dict[str, Callable[[Generator, nn.Module], nn.Module]] = {
    "random": lambda g, model: seeded(model, g),
    "integers": partial(small_integers, most=2),
    "bias-free": set_integers_without_bias,
    "doubled": double_units,
    "negated": negate_units,
    "signs": partial(small_integers, most=1),
}

LATTICE_POLYGONS: dict[str, list[list[int]]] = {  # convex, in order; the first three are not on one line
    "triangle": [[0, 0], [3, 1], [1, 4]],
    "around": [[-2, -1], [3, -1], [0, 3]],  # contains the origin
    "square": [[-1, -1], [1, -1], [1, 1], [-1, 1]],
    "pentagon": [[0, -2], [2, 0], [1, 2], [-1, 2], [-2, 0]],
    "clockwise": [[-1, 2], [2, 2], [2, -1], [0, -2], [-2, -1], [-2, 1]],
}


def make_polygon(g: Generator, kind: str, shape: tuple[int, ...]) -> Tensor:  # (k, *in)
    """A random triangle, or a polygon with integer coordinates."""
    if kind == "random":
        return torch.randn(3, *shape, generator=g, dtype=torch.float64) * 2
    lattice = torch.tensor(LATTICE_POLYGONS[kind], dtype=torch.float64)
    while True:  # until the two axes are not parallel
        axes = torch.randint(-2, 3, (2, *shape), generator=g).double()
        if torch.linalg.matrix_rank(axes.flatten(1)) == 2:
            break
    origin = torch.zeros(shape, dtype=torch.float64)
    if pick(g, 0, 1):
        origin = torch.randint(-2, 3, shape, generator=g).double()
    return torch.tensordot(lattice, axes, 1) + origin


def make_case(seed: int) -> Case:
    """A reproducible case; consecutive seeds cycle through families, weights and polygons at different rates."""
    generator = torch.Generator().manual_seed(seed)
    family = list(FAMILIES)[seed % len(FAMILIES)]
    weights = list(WEIGHT_KINDS)[(seed // len(FAMILIES) + seed) % len(WEIGHT_KINDS)]
    kind = ["random", *LATTICE_POLYGONS][(seed // 3) % (1 + len(LATTICE_POLYGONS))]
    model, shape = FAMILIES[family](generator)
    WEIGHT_KINDS[weights](generator, model)
    vertices = make_polygon(generator, kind, shape)
    return Case(f"seed {seed}: {family}, {weights} weights, {kind}", as_network(model.eval(), [vertices[0]]), vertices)
