"""Convolutional graphs whose channels are multiples of one channel, up to a few roundings."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.numerics.mixed_graphs import make_convolutional, make_points

FACTORS = (1.0, 1 / 3, 0.1, 7.0, 1e3)


def make_twin_channels(seed: int) -> tuple[nn.Module, Tensor, Tensor]:
    """A network and the two ends of a line; the same seed gives the same network."""
    random = torch.Generator().manual_seed(7919 * (seed + 900_000) + 5)
    model, shape = make_convolutional(random)
    size = 10.0 ** (-16 + 3 * float(torch.rand((), generator=random)))  # of the perturbations, relative to the weights
    for layer in model.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)) and layer.bias is not None:
            weight = torch.randn(layer.weight.shape, generator=random, dtype=torch.float64)[:1]
            bias = torch.randn(1, generator=random, dtype=torch.float64)
            factors = torch.tensor(FACTORS, dtype=torch.float64)
            factors = factors[torch.randint(0, len(factors), (len(layer.weight),), generator=random)]
            perturbed = [
                1 + size * torch.randn(p.shape, generator=random, dtype=torch.float64)
                for p in (layer.weight, layer.bias)
            ]
            layer.weight.data = weight * factors.view(-1, *[1] * (weight.dim() - 1)) * perturbed[0]
            layer.bias.data = bias * factors * perturbed[1]
    return model.double().eval(), *make_points(random, shape)
