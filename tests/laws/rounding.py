"""How far a float64 evaluation of a network on a line can be from the truth, derived from the network itself."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod

import torch
from torch import Tensor

from exactline.network.graph import Network
from exactline.ops.affine import Affine
from exactline.ops.maximum import Maximum
from exactline.ops.order import Order
from exactline.ops.pointwise import Number, Pointwise

EPS = torch.finfo(torch.float64).eps
EXTRA = 8  # roundings of one operator besides those of its sum: coefficients, products, knots, interpolation


def error_bound(
    network: Network,
    ends: Sequence[tuple[Tensor, Tensor]],  # for each input: start and end, both (*in)
) -> tuple[Tensor, ...]:
    """For every output (*out): a first-order bound on the error of a value anywhere on the line.

    Every node gets a size: what it would be if no two terms cancelled. A rounding at a node is at most EPS
    of its size, and grows downstream no faster than the sizes do. So the error of an output is at most EPS
    times its size times the number of roundings on the way.
    """
    sizes = {i: torch.maximum(q.abs(), r.abs()) for i, (q, r) in zip(network.inputs, ends, strict=True)}
    roundings = float(EXTRA)
    for i, node in enumerate(network.nodes):
        if i in sizes:
            continue
        given, terms = [sizes[j] for j in node.inputs], 1
        match node.op:
            case Affine() as op:
                sizes[i], terms = _through(op, given)
            case Pointwise() as op:
                sizes[i] = _pointwise(op, given[0])
            case Maximum() as op:
                sizes[i] = given[0].flatten()[op.table].amax(1)
            case Order() as op:
                sizes[i] = given[0].flatten()[op.table].amax(1, keepdim=True).expand(-1, len(op.ranks))
            case op:
                raise TypeError(f"no bound is known for {op.title}")
        sizes[i] = sizes[i].reshape(node.shape)
        roundings += terms + EXTRA
    return tuple(sizes[i] * EPS * roundings for i in network.outputs)


def _through(op: Affine, given: list[Tensor]) -> tuple[Tensor, int]:
    """|A| times the sizes plus the size of the constant, and the number of terms in the longest sum."""
    zeros = [torch.zeros(1, *size.shape, dtype=torch.float64) for size in given]
    total = op.evaluate(*zeros)[0].abs().flatten()
    terms = 0
    for k, size in enumerate(given):
        count = prod(size.shape)
        hot = torch.eye(count, dtype=torch.float64).view(count, *size.shape)
        one = [z.expand(count, *z.shape[1:]) for z in zeros]
        one[k] = hot
        matrix = op.linear(*one).reshape(count, -1).abs()  # (in, out)
        total = total + size.flatten() @ matrix
        terms += int((matrix > 0).sum(0).amax()) if matrix.numel() else 0
    return total, terms


def _pointwise(op: Pointwise, size: Tensor) -> Tensor:
    total = _size(op.value)
    for j, slope in enumerate(op.slopes):
        total = total + _size(slope) * (size + _size(op.knots[min(j, len(op.knots) - 1)]))
    return torch.as_tensor(total).expand(1, *size.shape)[0]


def _size(number: Number) -> float | Tensor:
    return abs(float(number)) if isinstance(number, Fraction) else number.abs()
