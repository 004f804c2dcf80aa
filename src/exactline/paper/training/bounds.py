"""Interval bounds: the range of every unit of a small network while each input stays in an interval."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import LineError, UnsupportedError


def propagate_intervals(
    layers: Iterable[nn.Module],
    low: Tensor,  # (n, *in)
    high: Tensor,  # (n, *in)
) -> tuple[Tensor, Tensor]:  # (n, *out) each
    """Bound the outputs of a network on a box of inputs, layer by layer.

    In real arithmetic the bounds hold for every input of the box. They are exact for a single linear layer. Gradients
    flow through them, so a network can be trained on them.

    Args:
        layers: Convolutions, linear layers, ReLUs and flattening.
        low: The lower corners of the boxes, (n, *in).
        high: The upper corners of the boxes, (n, *in).

    >>> layer = nn.Linear(2, 1)
    >>> _ = layer.load_state_dict({"weight": torch.tensor([[1.0, -2.0]]), "bias": torch.tensor([0.5])})
    >>> with torch.no_grad():
    ...     propagate_intervals([layer], torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 1.0]]))
    (tensor([[-1.5000]]), tensor([[1.5000]]))

    Raises UnsupportedError for other layers, LineError if low exceeds high.
    """
    if low.shape != high.shape or bool((low > high).any()):
        raise LineError(
            "low must have the shape of high and must not exceed it.",
            where="arguments low, high",
            hint="Give the lower corner of the box first.",
        )
    for index, layer in enumerate(layers):
        low, high = _propagate_layer(layer, low, high, index)
    return low, high


def compute_margin_bounds(
    network: nn.Sequential,  # ending in a linear layer
    low: Tensor,  # (n, *in)
    high: Tensor,  # (n, *in)
    labels: Tensor,  # (n,)
) -> Tensor:  # (n, classes)
    """Bound by how much each class can exceed the label on a box of inputs; 0 for the label itself.

    The differences of the last layer are bounded directly, which is tighter than subtracting bounds. If the bounds of
    all other classes are negative, the whole box is classified as the label.

    Raises UnsupportedError for a network that does not end in a linear layer.
    """
    *front, last = network
    if not isinstance(last, nn.Linear):
        raise UnsupportedError(
            "The network does not end in a linear layer.",
            nodes=(type(last).__name__,),
            where=f"layer {len(front)} ({type(last).__name__})",
            hint="Give a network that ends in a linear layer.",
        )
    below, above = propagate_intervals(front, low, high)
    middle, half_width = (below + above) / 2, (above - below) / 2  # (n, units)
    weight = last.weight - last.weight[labels][:, None]  # (n, classes, units)
    spread = torch.einsum("nku,nu->nk", weight.abs(), half_width)
    bounds = torch.einsum("nku,nu->nk", weight, middle) + spread
    return bounds if last.bias is None else bounds + last.bias - last.bias[labels][:, None]


def _propagate_layer(layer: nn.Module, low: Tensor, high: Tensor, index: int) -> tuple[Tensor, Tensor]:
    if isinstance(layer, (nn.ReLU, nn.Flatten, nn.Identity)):
        return layer(low), layer(high)  # monotonic
    if isinstance(layer, nn.Linear):
        spread = F.linear((high - low) / 2, layer.weight.abs())
    elif isinstance(layer, nn.Conv2d) and layer.padding_mode == "zeros":
        size: Any = (layer.stride, layer.padding, layer.dilation, layer.groups)
        spread = F.conv2d((high - low) / 2, layer.weight.abs(), None, *size)
    else:
        raise UnsupportedError(
            f"Interval bounds are not supported for {type(layer).__name__}.",
            nodes=(type(layer).__name__,),
            where=f"layer {index}",
            hint="Use Linear, Conv2d with zero padding, ReLU and Flatten.",
        )
    middle = layer((low + high) / 2)
    return middle - spread, middle + spread
