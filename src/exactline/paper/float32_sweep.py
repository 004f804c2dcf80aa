"""A sweep in float32 without any care for rounding, as the paper's tool does it: to see what that costs.

Signs of neighbouring points are compared as they come out, a break is put where the straight line between two rounded
values crosses zero, and the next layer starts from the values so interpolated. No value is doubted and no break merged.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import UnsupportedError
from ..network import Network
from ..ops.base import Affine, Input
from ..ops.pointwise import Pointwise


def plain_breaks(
    network: Network,
    start: Tensor,  # (*in,)
    end: Tensor,  # (*in,)
) -> Tensor:  # (breaks,) in float64
    """Where such a sweep breaks the line, both ends included; the network has one input and ReLU only.

    >>> from exactline.network import as_network
    >>> relu = as_network(torch.nn.ReLU(), [torch.zeros(2)])
    >>> plain_breaks(relu, torch.tensor([-1.0, 2.0]), torch.tensor([3.0, 2.0])).tolist()
    [0.0, 0.25, 1.0]
    """
    coarse = network.to(dtype=torch.float32)
    last = coarse.last_use(coarse.outputs)
    alphas = torch.tensor([0.0, 1.0])
    live = {coarse.inputs[0]: torch.stack([start, end]).float()}  # (points, *shape) each
    for i, node in enumerate(coarse.nodes):
        if i not in last or isinstance(node.op, Input):
            continue
        if isinstance(node.op, Affine):
            live[i] = node.op.evaluate(*(live[j] for j in node.inputs))
        elif isinstance(node.op, Pointwise) and node.op.title == "relu":
            alphas, live = _broken(alphas, live, node.inputs[0])
            live[i] = live[node.inputs[0]].relu()
        else:
            raise UnsupportedError(
                f"A plain sweep knows ReLU only, not {node.op.title}.",
                where=node.name,
                hint="Leave out --float32.",
            )
        for j in set(node.inputs):
            if last[j] == i:
                del live[j]
    return alphas.double()


def _broken(alphas: Tensor, live: dict[int, Tensor], source: int) -> tuple[Tensor, dict[int, Tensor]]:
    """A point at every change of sign of a tensor, and every tensor interpolated there."""
    x = live[source].flatten(1)
    above, below = x > 0, x < 0
    piece, unit = torch.nonzero((above[:-1] & below[1:]) | (below[:-1] & above[1:]), as_tuple=True)
    before, after = x[piece, unit], x[piece + 1, unit]
    part = before / (before - after)
    at = alphas[piece] + part * (alphas[piece + 1] - alphas[piece])
    merged, order = torch.cat([alphas, at]).sort(stable=True)
    first = torch.ones_like(merged, dtype=torch.bool)
    first[1:] = merged[1:] > merged[:-1]  # of equals only one is a point
    order, merged = order[first], merged[first]
    moved: dict[int, Tensor] = {}
    for j, values in live.items():
        share = part.view(-1, *[1] * (values.dim() - 1))
        between = values[piece] + share * (values[piece + 1] - values[piece])
        moved[j] = torch.cat([values, between])[order]
    return merged, moved
