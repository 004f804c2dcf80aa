"""Units that repeat a unit of an earlier node: the same element, times and plus the same numbers, at the same knots.

If nothing is added, and the knot is zero, the factors may differ.

A layer that reads all channels before it, as in a DenseNet, sees the zero of a channel again wherever an equal batch
norm comes first. Such a unit changes sign exactly where the earlier one does, whatever rounding makes of either.
"""

from __future__ import annotations

import weakref
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from math import prod

import torch
from torch import Tensor

from ..network.graph import Network
from ..ops.affine import Rearrange, Reshape, Scale
from ..ops.pointwise import Pointwise
from .plan import sweep_plan

_known: weakref.WeakKeyDictionary[Network, dict[int, Tensor]] = weakref.WeakKeyDictionary()


def repeated_units(network: Network) -> dict[int, Tensor]:
    """By breaking node: which of its units repeat one of an earlier node, (elements,); nodes without are missing."""
    if network not in _known:
        _known[network] = _find_repeated(network)
    return _known[network]


def _find_repeated(network: Network) -> dict[int, Tensor]:
    last_use = sweep_plan(network).last_use
    knots_by_node = {i: knots for i in network.breaking_nodes if i in last_use and (knots := _shared_knots(network, i))}
    origins = _find_origins(network)
    readers = Counter(origin for i in knots_by_node for origin in origins[network.nodes[i].inputs[0]])
    first, total = dict[int, int](), 0  # by node that several read: the index of its first element
    for origin in (origin for origin, count in readers.items() if count > 1):
        first[origin], total = total, total + prod(network.nodes[origin].shape)
    found, live = dict[int, Tensor](), dict[int, _Elements]()
    latest = dict[tuple[Fraction, ...], Tensor]()  # by knots, (3, total): the numbers of the last unit that reads each
    for i in sorted(last_use) if first else ():
        inputs = network.nodes[i].inputs
        if i in knots_by_node and inputs[0] in live:
            numbers = latest.setdefault(knots_by_node[i], _undefined_numbers(network, total))
            elements = live[inputs[0]]
            elements = elements.drop_factors() if knots_by_node[i] == (0,) else elements
            is_repeated = elements.compare_and_store(numbers)
            if bool(is_repeated.any()):
                found[i] = is_repeated
        if i in first or any(origin in first for origin in origins[i]):
            live[i] = _trace(network, i, first, live)
        for j in inputs:
            if last_use.get(j) == i:
                live.pop(j, None)
    return found


def _shared_knots(network: Network, i: int) -> tuple[Fraction, ...]:
    """The knots of a breaking node, if it is pointwise and all of its units have the same ones; otherwise empty."""
    op = network.nodes[i].op
    knots = op.knots if isinstance(op, Pointwise) else ()
    shared = tuple(k for k in knots if isinstance(k, Fraction))
    return shared if len(shared) == len(knots) else ()


def _find_origins(network: Network) -> list[frozenset[int]]:
    """By node: the nodes that its elements come from, through operators that move or scale elements."""
    origins = list[frozenset[int]]()
    for i, node in enumerate(network.nodes):
        moves = isinstance(node.op, Reshape | Rearrange) or _is_scale(network, i)
        origins.append(frozenset[int]().union(*(origins[j] for j in node.inputs)) if moves else frozenset([i]))
    return origins


def _is_scale(network: Network, i: int) -> bool:
    """Whether a node scales the elements of its input and keeps its shape."""
    node = network.nodes[i]
    return isinstance(node.op, Scale) and network.nodes[node.inputs[0]].shape == node.shape


@dataclass(frozen=True)
class _Elements:
    """The elements of a tensor as elements of earlier nodes, multiplied, divided and shifted by numbers."""

    index: Tensor  # (elements,) which element of which node; -1 if several nodes do not read it
    numbers: Tensor  # (3, elements) factors, divisors and offsets
    is_scaled: bool = False

    def drop_factors(self) -> _Elements:
        """The elements without factors and divisors where nothing is added: these do not move a zero."""
        factor, divisor, offset = self.numbers
        is_zero_kept = (offset == 0) & (factor != 0) & (divisor != 0)
        factor, divisor = (torch.where(is_zero_kept, 1.0, number) for number in (factor, divisor))
        return _Elements(self.index, torch.stack([factor, divisor, offset]), self.is_scaled)

    def compare_and_store(self, latest: Tensor) -> Tensor:
        """(elements,) whether the numbers are those in ``latest`` (3, total), which they replace."""
        (units,) = (self.index >= 0).nonzero(as_tuple=True)
        index, numbers = self.index[units], self.numbers[:, units]
        is_equal = torch.zeros_like(self.index, dtype=torch.bool)
        is_equal[units] = (latest[:, index] == numbers).all(0)
        latest[:, index] = numbers
        return is_equal


def _trace(network: Network, i: int, first: dict[int, int], live: dict[int, _Elements]) -> _Elements:
    """The origins of the elements of node ``i``, from those of its inputs."""
    node = network.nodes[i]
    if i in first:
        index = torch.arange(prod(node.shape), device=network.device) + first[i]
        return _Elements(index, _unscaled_numbers(network, i))
    parts = [live.get(j) or _make_unknown(network, j) for j in node.inputs]
    if isinstance(node.op, Rearrange):
        index, numbers = torch.cat([p.index for p in parts]), torch.cat([p.numbers for p in parts], 1)
        source, is_input = node.op.index.clamp(min=0), node.op.index >= 0
        is_scaled = any(p.is_scaled for p in parts)
        return _Elements(torch.where(is_input, index[source], -1), numbers[:, source], is_scaled)
    if not isinstance(node.op, Scale):
        return parts[0]
    if parts[0].is_scaled:  # twice: such numbers are not compared
        return _make_unknown(network, i)
    return _Elements(parts[0].index, _scale_numbers(network, node.op, node.shape), is_scaled=True)


def _make_unknown(network: Network, i: int) -> _Elements:
    """The elements of a node whose origins are not compared."""
    numbers = _unscaled_numbers(network, i)
    return _Elements(torch.full(numbers.shape[1:], -1, device=numbers.device), numbers)


def _unscaled_numbers(network: Network, i: int) -> Tensor:
    one = torch.ones((), dtype=network.dtype, device=network.device)
    return torch.stack([one, one, one * 0])[:, None].expand(3, prod(network.nodes[i].shape))


def _undefined_numbers(network: Network, total: int) -> Tensor:
    return torch.full((3, total), torch.nan, dtype=network.dtype, device=network.device)


def _scale_numbers(network: Network, op: Scale, shape: tuple[int, ...]) -> Tensor:
    """(3, elements) the numbers of an operator."""
    one = torch.ones((), dtype=network.dtype, device=network.device)
    columns = zip((op.weight, op.divisor, op.offset), (one, one, one * 0), strict=True)
    expanded = (default if number is None else number.to(one) for number, default in columns)
    return torch.stack([number.expand(1, *shape).reshape(-1) for number in expanded])
