"""Interval bounds: what every unit of a small network can be while each input stays in an interval of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import LineError, UnsupportedError


def interval_bounds(
    layers: Iterable[nn.Module],
    low: Tensor,  # (n, *in)
    high: Tensor,  # (n, *in)
) -> tuple[Tensor, Tensor]:  # (n, *out) each
    """Bounds of the outputs, propagated layer by layer through convolutions, linear layers and ReLUs.

    In real arithmetic no input of the box leaves them; they are exact for a single linear layer, and gradients flow
    through them, so that one can train on them.

    >>> layer = nn.Linear(2, 1)
    >>> _ = layer.load_state_dict({"weight": torch.tensor([[1.0, -2.0]]), "bias": torch.tensor([0.5])})
    >>> with torch.no_grad():
    ...     interval_bounds([layer], torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 1.0]]))
    (tensor([[-1.5000]]), tensor([[1.5000]]))

    Raises UnsupportedError for other layers, LineError where low is above high.
    """
    if low.shape != high.shape or bool((low > high).any()):
        raise LineError(
            "low must be of the shape of high, and nowhere above it.",
            where="arguments low, high",
            hint="Give the lower corner of the box first.",
        )
    for place, layer in enumerate(layers):
        low, high = _through(layer, low, high, place)
    return low, high


def rival_bounds(
    network: nn.Sequential,  # ending in a linear layer
    low: Tensor,  # (n, *in)
    high: Tensor,  # (n, *in)
    labels: Tensor,  # (n,)
) -> Tensor:  # (n, classes)
    """By how much each class can exceed the labelled one at most; 0 for the label itself.

    The differences of the last layer are bounded as such, which is tighter than to subtract bounds.
    Where all others are negative, no input of the box is classified otherwise.
    """
    *front, last = network
    if not isinstance(last, nn.Linear):
        raise UnsupportedError(
            "The network does not end in a linear layer.",
            nodes=(type(last).__name__,),
            where=f"layer {len(front)} ({type(last).__name__})",
            hint="Give a network whose scores are those of a linear layer.",
        )
    below, above = interval_bounds(front, low, high)
    middle, reach = (below + above) / 2, (above - below) / 2  # (n, units)
    weight = last.weight - last.weight[labels][:, None]  # (n, classes, units)
    spread = torch.einsum("nku,nu->nk", weight.abs(), reach)
    found = torch.einsum("nku,nu->nk", weight, middle) + spread
    return found if last.bias is None else found + last.bias - last.bias[labels][:, None]


def _through(layer: nn.Module, low: Tensor, high: Tensor, place: int) -> tuple[Tensor, Tensor]:
    if isinstance(layer, (nn.ReLU, nn.Flatten, nn.Identity)):
        return layer(low), layer(high)  # they rise with their input
    if isinstance(layer, nn.Linear):
        spread = F.linear((high - low) / 2, layer.weight.abs())
    elif isinstance(layer, nn.Conv2d) and layer.padding_mode == "zeros":
        size: Any = (layer.stride, layer.padding, layer.dilation, layer.groups)
        spread = F.conv2d((high - low) / 2, layer.weight.abs(), None, *size)
    else:
        raise UnsupportedError(
            f"No interval bounds are known for {type(layer).__name__}.",
            nodes=(type(layer).__name__,),
            where=f"layer {place}",
            hint="Linear, Conv2d with zero padding, ReLU and Flatten are.",
        )
    middle = layer((low + high) / 2)
    return middle - spread, middle + spread
