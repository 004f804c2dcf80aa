"""A naive sweep in float32, as the paper's tool computes it, to compare with the exact one.

The signs of neighbouring values are compared as they are, a break is placed where the line through two rounded values
crosses zero, and the next layer continues with values interpolated there. Rounding errors are ignored and breaks are
not merged.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import UnsupportedError
from ...network import Network
from ...ops.base import Affine, Input
from ...ops.pointwise import Pointwise


def find_float32_breaks(
    network: Network,
    start: Tensor,  # (*in,)
    end: Tensor,  # (*in,)
) -> Tensor:  # (breaks,) alphas, as float64
    """Find the breaks of a line by a naive float32 sweep, both ends included.

    Args:
        network: A network with one input whose only breaking operator is ReLU.
        start: Where the line starts.
        end: Where the line ends.

    >>> from exactline.network import as_network
    >>> relu = as_network(torch.nn.ReLU(), [torch.zeros(2)])
    >>> find_float32_breaks(relu, torch.tensor([-1.0, 2.0]), torch.tensor([3.0, 2.0])).tolist()
    [0.0, 0.25, 1.0]

    Raises UnsupportedError for other breaking operators.
    """
    single = network.to(dtype=torch.float32)
    last = single.last_use(single.outputs)
    alphas = torch.tensor([0.0, 1.0])
    live = {single.inputs[0]: torch.stack([start, end]).float()}  # (points, *shape) each
    for i, node in enumerate(single.nodes):
        if i not in last or isinstance(node.op, Input):
            continue
        if isinstance(node.op, Affine):
            live[i] = node.op.evaluate(*(live[j] for j in node.inputs))
        elif isinstance(node.op, Pointwise) and node.op.title == "relu":
            alphas, live = _insert_breaks(alphas, live, node.inputs[0])
            live[i] = live[node.inputs[0]].relu()
        else:
            raise UnsupportedError(
                f"The naive float32 sweep supports ReLU only, not {node.op.title}.",
                where=node.name,
                hint="Omit --float32.",
            )
        for j in set(node.inputs):
            if last[j] == i:
                del live[j]
    return alphas.double()


def _insert_breaks(alphas: Tensor, live: dict[int, Tensor], source: int) -> tuple[Tensor, dict[int, Tensor]]:
    """Insert a point at every sign change of one tensor, and interpolate all tensors there."""
    x = live[source].flatten(1)
    above, below = x > 0, x < 0
    piece, unit = torch.nonzero((above[:-1] & below[1:]) | (below[:-1] & above[1:]), as_tuple=True)
    before, after = x[piece, unit], x[piece + 1, unit]
    fraction = before / (before - after)
    at = alphas[piece] + fraction * (alphas[piece + 1] - alphas[piece])
    merged, order = torch.cat([alphas, at]).sort(stable=True)
    first = torch.ones_like(merged, dtype=torch.bool)
    first[1:] = merged[1:] > merged[:-1]  # equal alphas become one point
    order, merged = order[first], merged[first]
    interpolated: dict[int, Tensor] = {}
    for j, values in live.items():
        weight = fraction.view(-1, *[1] * (values.dim() - 1))
        between = values[piece] + weight * (values[piece + 1] - values[piece])
        interpolated[j] = torch.cat([values, between])[order]
    return merged, interpolated
