"""A network in single precision, in which errors of a few digits are estimated in half the time.

The estimates of `PointErrors` are proportional to the unit roundoff. So those of the network in single precision are
`ROUNDOFF_RATIO` times as large as in double precision; units nearer to a knot than single precision resolves count as
being on either side, which makes their errors larger, never smaller.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections import Counter
from math import isfinite

import torch
from torch import Tensor

from ..budget import block_bytes
from ..network.graph import Network
from ..ops.affine import Product, Scale
from ..ops.base import Op
from ..ops.masks import is_host
from .plan import share_plan, sweep_plan

ROUNDOFF_RATIO = 2.0**29  # of the unit roundoffs of float32 and float64
# Weights, inputs and errors outside this range would underflow or overflow in a product or a square.
MIN_SIZE, MAX_SIZE = 2.0**-50, 2.0**50
MAX_WEIGHTS = 1 << 24  # of all layers that are copied: 64 MiB
WEIGHTS_DIVISOR = 8  # copied weights may take one part in so many of the memory
_copies: weakref.WeakKeyDictionary[Network, Network | None] = weakref.WeakKeyDictionary()


def single_precision(network: Network) -> Network | None:
    """The network in single precision; None where its numbers do not suit, or it is not one of float64 on a CPU."""
    if not is_host(network.device) or network.dtype != torch.float64:
        return None
    if network not in _copies:
        _copies[network] = _copy(network) if _suits(network) else None
    return _copies[network]


def _copy(network: Network) -> Network | None:
    fused = _fuse_scales(network)
    if not all(is_ordinary(t) for node in fused.nodes for t in _constants(node.op)):
        return None
    copy = fused.to(fused.device, torch.float32)
    share_plan(network, copy)
    return copy


def _fuse_scales(network: Network) -> Network:
    """The network with convolutions and the batch norms behind them in one product, under the numbers of the latter.

    The product rounds less than both apart, by up to `FUSED_ROUNDING_FACTOR`.
    """
    nodes, last_use = list(network.nodes), sweep_plan(network).last_use
    readers = Counter(j for i, node in enumerate(nodes) if i in last_use for j in node.inputs)
    for i, node in enumerate(nodes):
        if isinstance(node.op, Scale) and readers[node.inputs[0]] == 1 and node.inputs[0] not in network.outputs:
            product = nodes[node.inputs[0]]
            fused = _fuse(product.op, node.op) if isinstance(product.op, Product) else None
            if fused is not None:
                nodes[i] = dataclasses.replace(node, op=fused, inputs=product.inputs)
    return dataclasses.replace(network, nodes=tuple(nodes), device_copies={})


def _fuse(product: Product, scale: Scale) -> Product | None:
    """A convolution that is scaled by output channel as one product; None for all other products and scales."""
    weight, channels = product.weight, product.weight.shape[0]
    if "stride" not in product.settings or product.settings["transposed"] or weight.dim() < 3:
        return None
    by_channel, ones = (1, channels, *[1] * (weight.dim() - 2)), weight.new_ones(())
    constants = [scale.weight, scale.divisor, scale.offset, product.offset]
    if any(t is not None and t.shape != by_channel for t in constants[:3]):
        return None
    factor = (ones if scale.weight is None else scale.weight) / (ones if scale.divisor is None else scale.divisor)
    offsets = [scale.offset, None if product.offset is None else product.offset * factor]
    known = [t for t in offsets if t is not None]
    if any(t.shape != by_channel for t in known):
        return None
    factors = factor.expand(by_channel).flatten().view(-1, *[1] * (weight.dim() - 1))
    return dataclasses.replace(product, weight=weight * factors, offset=torch.stack(known).sum(0) if known else None)


def _suits(network: Network) -> bool:
    """Whether the constants of all operators are of ordinary size, and not too many to be copied."""
    constants = [t for node in network.nodes for t in _constants(node.op)]
    count = sum(t.numel() for t in constants)
    return count <= min(MAX_WEIGHTS, block_bytes(WEIGHTS_DIVISOR) // 4) and all(is_ordinary(t) for t in constants)


def is_ordinary(x: Tensor) -> bool:
    """Whether numbers are 0 or of a size that single precision can multiply and square."""
    if not x.numel():
        return True
    size = x.abs()
    smallest = float(torch.where(size > 0, size, MAX_SIZE).amin())
    return smallest >= MIN_SIZE and float(size.amax()) <= MAX_SIZE


def are_ordinary_errors(errors: dict[int, float]) -> bool:
    """Whether the largest errors of tensors in single precision are of a size that it can square."""
    return all(isfinite(e) and MIN_SIZE <= e <= MAX_SIZE for e in errors.values())


def _constants(op: Op) -> list[Tensor]:
    """The tensors of numbers that an operator holds."""
    values = (getattr(op, field.name) for field in dataclasses.fields(op))
    tensors = (t for v in values for t in (v if isinstance(v, tuple) else (v,)) if isinstance(t, Tensor))
    return [t for t in tensors if t.is_floating_point()]
