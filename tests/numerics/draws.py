"""Random numbers and layers of which test networks are made."""

from __future__ import annotations

import torch
from torch import Tensor, nn

Draw = torch.Generator


def draw_uniform(random: Draw, low: float, high: float, *shape: int) -> Tensor:
    """Numbers between two bounds."""
    return low + (high - low) * torch.rand(shape, generator=random, dtype=torch.float64)


def draw_normal(random: Draw, *shape: int) -> Tensor:
    """Normal numbers of mean 0 and deviation 1."""
    return torch.randn(shape, generator=random, dtype=torch.float64)


def make_linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """A linear layer with a weight (out, in) and a bias (out,)."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=torch.float64)
    layer.weight.data = weight
    if bias is not None:
        layer.bias.data = bias
    return layer
