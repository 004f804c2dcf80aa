"""Networks whose outputs tie: along pieces, at single points, three at a time, and up to rounding."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from exactline.network import Network, as_network
from tests.oracle.families import FAMILIES, Apply, Concat, Family, pick, seeded, small_integers


def layers(g: torch.Generator, outputs: int) -> tuple[nn.Sequential, int]:
    """A small ReLU network, and its number of inputs."""
    widths = [pick(g, 2, 4), *(pick(g, 4, 8) for _ in range(pick(g, 1, 2))), outputs]
    made: list[nn.Module] = []
    for a, b in pairwise(widths):
        made += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*made[:-1]), widths[0]


def wide(g: torch.Generator) -> tuple[nn.Module, tuple[int, ...]]:
    """Many outputs: with small integers, several often meet at one point."""
    model, width = layers(g, pick(g, 4, 7))
    return model, (width,)


def clipped(g: torch.Generator) -> tuple[nn.Module, tuple[int, ...]]:
    """A ReLU or a clamp at the end: outputs are equal along whole pieces."""
    model, width = layers(g, pick(g, 3, 5))
    return nn.Sequential(model, nn.ReLU() if pick(g, 0, 1) else nn.Hardtanh(-0.25, 0.5)), (width,)


def plain_maximum(g: torch.Generator) -> tuple[nn.Module, tuple[int, ...]]:
    """Outputs that are maxima over shared elements: they are equal wherever a shared one leads."""
    model, width = layers(g, 5)
    pairs = Apply(lambda x: torch.stack([x[:, :3].amax(1), x[:, 1:4].amax(1), x[:, 2:].amax(1), x[:, 0]], 1))
    return nn.Sequential(model, pairs), (width,)


def flat_offsets(g: torch.Generator) -> tuple[nn.Module, tuple[int, ...]]:
    """Outputs with the same slope: they never meet, or are equal throughout."""
    model, width = layers(g, 1)
    return nn.Sequential(model, nn.Linear(1, 4)), (width,)


TIED: dict[str, Family] = {"wide": wide, "clipped": clipped, "maximum": plain_maximum, "offsets": flat_offsets}


class Twins(nn.Module):
    """A network beside a copy with permuted hidden units: equal outputs that round differently."""

    def __init__(self, model: nn.Sequential, generator: torch.Generator) -> None:
        super().__init__()
        made: list[nn.Module] = []
        before: Tensor | None = None
        linear = [m for m in model if isinstance(m, nn.Linear)]
        for k, layer in enumerate(linear):
            last = k == len(linear) - 1
            after = torch.arange(layer.out_features)
            if not last:
                after = torch.randperm(layer.out_features, generator=generator)
            twin = nn.Linear(layer.in_features, layer.out_features)
            weight = layer.weight if before is None else layer.weight[:, before]
            twin.weight.data, twin.bias.data = weight[after].detach().clone(), layer.bias[after].detach().clone()
            made += [twin, nn.ReLU()]
            before = after
        self.both = Concat(model, nn.Sequential(*made[:-1]))

    def forward(self, x: Tensor) -> Tensor:
        return self.both(x)


def random_case(seed: int) -> tuple[str, Network, Tensor, Tensor]:
    """A name, a network, and the start and end of a line."""
    g = torch.Generator().manual_seed(77_000 + seed)
    kinds: list[Callable[[], tuple[str, nn.Module, tuple[int, ...]]]] = [
        lambda: ("random", *_random(g, seed)),
        lambda: ("integers", *_integers(g, FAMILIES, seed)),
        lambda: ("ties", *_integers(g, TIED, seed)),
        lambda: ("twins", *_twins(g)),
    ]
    name, model, shape = kinds[seed % 4]()
    if name in ("integers", "ties"):
        start, end = torch.randint(-3, 4, (2, *shape), generator=g).double()
    else:
        start, end = torch.randn(2, *shape, generator=g, dtype=torch.float64) * 2
    return f"{name}, seed {seed}", as_network(model, [start]), start, end


def _random(g: torch.Generator, seed: int) -> tuple[nn.Module, tuple[int, ...]]:
    families = {**FAMILIES, **TIED}
    model, shape = list(families.values())[seed // 4 % len(families)](g)
    return seeded(model, g), shape


def _integers(g: torch.Generator, families: dict[str, Family], seed: int) -> tuple[nn.Module, tuple[int, ...]]:
    model, shape = list(families.values())[seed // 4 % len(families)](g)
    return small_integers(g, model, most=1 + seed // 4 % 3), shape


def _twins(g: torch.Generator) -> tuple[nn.Module, tuple[int, ...]]:
    model, width = layers(g, pick(g, 2, 3))
    seeded(model, g)
    return Twins(model, g).eval(), (width,)
