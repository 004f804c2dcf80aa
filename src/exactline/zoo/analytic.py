"""Networks whose breaks can be computed by hand."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ..errors import ArgumentError


def loan_network() -> nn.Sequential:
    """A loan score and a premium from age and income, the running example of the paper.

    >>> loan_network()(torch.tensor([[25.0, 40.0]], dtype=torch.float64))
    tensor([[0.5000, 1.0000]], dtype=torch.float64, grad_fn=<ReluBackward0>)
    """
    return nn.Sequential(_linear([[-1.7, 1.0], [2.0, -1.3]], [3.0, 3.0]), nn.ReLU()).eval()


def loan_line() -> tuple[Tensor, Tensor]:
    """The start and end of a line for `loan_network`: from age 20 and income 30 to age 30 and income 50.

    The network breaks at 1/3 and 2/3.

    >>> loan_line()
    (tensor([20., 30.], dtype=torch.float64), tensor([30., 50.], dtype=torch.float64))
    """
    return torch.tensor([20.0, 30.0], dtype=torch.float64), torch.tensor([30.0, 50.0], dtype=torch.float64)


def tent_network(depth: int) -> nn.Sequential:
    """The tent map composed with itself ``depth`` times: 2**depth pieces from 0 to 1, with breaks at k / 2**depth.

    One tent is ``2 relu(x) - 4 relu(x - 1/2)``. All weights are dyadic, so that every value at a break is exact in
    float64. The first unit of each layer only touches zero, at breaks of earlier layers.

    Args:
        depth: number of tents, at least 1.

    >>> tent_network(2)(torch.tensor([[0.0], [0.25], [0.5], [0.75], [1.0]], dtype=torch.float64)).flatten().tolist()
    [0.0, 1.0, 0.0, 1.0, 0.0]

    Raises ArgumentError for a depth below one.
    """
    if depth < 1:
        raise ArgumentError(
            f"A tent network cannot have depth {depth}.", where="tent_network", hint="Give a depth of 1 or more."
        )
    tent, halves = [2.0, -4.0], [0.0, -0.5]
    layers: list[nn.Module] = [_linear([[1.0], [1.0]], halves), nn.ReLU()]
    for _ in range(depth - 1):
        layers += [_linear([tent, tent], halves), nn.ReLU()]
    return nn.Sequential(*layers, _linear([tent], [0.0])).eval()


def _linear(weight: Sequence[Sequence[float]], bias: Sequence[float]) -> nn.Linear:
    layer = nn.Linear(len(weight[0]), len(weight), device="meta")  # no random initialization
    layer.weight = nn.Parameter(torch.tensor(weight, dtype=torch.float64))
    layer.bias = nn.Parameter(torch.tensor(bias, dtype=torch.float64))
    return layer
