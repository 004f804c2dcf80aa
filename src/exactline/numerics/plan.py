"""Facts about a network that a sweep needs in advance: last uses, memory per point, growth of values and errors."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, replace
from math import prod

import torch
from torch import Tensor

from ..network.graph import Network
from ..ops.base import Affine, Breaking, Input
from ..tolerances import ERROR_SHARE_SLACK

BYTES_PER_NUMBER = 8  # float64
POINTS_DIVISOR = 2  # the points of a part take one part in so many of the memory; the rest is for blocks of work
MIN_PART_POINTS = 2  # points per part, however little memory there is
MAX_NARROW_WIDTH = 4096  # numbers per point: wider networks do not sample their errors
_plans: weakref.WeakKeyDictionary[Network, SweepPlan] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class SweepPlan:
    """Facts about a network, computed once; see `sweep_plan`."""

    last_use: dict[int, int]  # by node: the last node that reads it; unused nodes are missing
    bytes_held: int  # per point: live tensors at all breaking nodes together
    bytes_working: int  # per point: the peak between two breaking nodes
    bytes_live: int  # per point: the live tensors at the widest node
    error_gain: tuple[float, ...]  # by node: the factor by which it can amplify independent errors
    value_gain: tuple[float, ...]  # by node: the factor by which it can amplify values
    offset: tuple[float, ...]  # by node: the largest constant it adds
    error_shares: dict[int, Tensor]  # by node, (elements,): upper bound on an element's error relative to the node's

    @property
    def is_narrow(self) -> bool:
        """Whether points are so small that sampling the errors at a few of them costs next to nothing."""
        return self.bytes_working <= MAX_NARROW_WIDTH * BYTES_PER_NUMBER

    @property
    def bytes_per_point(self) -> int:
        """Bytes of one point of a part: its tensors at all breaking nodes, and the peak between two of them."""
        return max(1, self.bytes_held + self.bytes_working)

    def max_points(self, memory: int) -> int:
        """The number of points a part of the sweep may hold in a budget of ``memory`` bytes."""
        return max(MIN_PART_POINTS, memory // POINTS_DIVISOR // self.bytes_per_point)


def sweep_plan(network: Network) -> SweepPlan:
    """Return the plan of a network, computed on first use and cached."""
    if network not in _plans:
        last_use = network.last_use(network.outputs)
        held, working, live = _numbers_per_point(network, last_use)
        is_narrow = working <= MAX_NARROW_WIDTH
        needs_shares = (
            set[int]() if is_narrow else {network.nodes[j].inputs[0] for j in network.breaking_nodes if j in last_use}
        )
        growth = [
            _node_growth(network, i, is_narrow, i in needs_shares) if i in last_use else NodeGrowth()
            for i in range(len(network.nodes))
        ]
        _plans[network] = SweepPlan(
            last_use=last_use,
            bytes_held=held * BYTES_PER_NUMBER,
            bytes_working=working * BYTES_PER_NUMBER,
            bytes_live=live * BYTES_PER_NUMBER,
            error_gain=tuple(g.error_gain for g in growth),
            value_gain=tuple(g.value_gain for g in growth),
            offset=tuple(g.offset for g in growth),
            error_shares={i: g.error_share for i, g in enumerate(growth) if g.error_share is not None},
        )
    return _plans[network]


def share_plan(network: Network, copy: Network) -> None:
    """Use the plan of a network for a copy of it in another precision, which may need fewer nodes."""
    _plans[copy] = replace(sweep_plan(network), last_use=copy.last_use(copy.outputs))


@dataclass(frozen=True)
class NodeGrowth:
    """How one node amplifies values and errors; see the fields of `SweepPlan`."""

    error_gain: float = 1.0
    value_gain: float = 1.0
    offset: float = 0.0
    error_share: Tensor | None = None


def _node_growth(network: Network, i: int, is_narrow: bool, needs_share: bool) -> NodeGrowth:
    """The growth at one node; with ``needs_share`` also the error share of each of its elements.

    A narrow network uses the gain of the worst unit. A wide one, where errors average out and refinement is
    expensive, uses the root mean square over its units.
    """
    node = network.nodes[i]
    if isinstance(node.op, Input):
        return NodeGrowth()
    if isinstance(node.op, Breaking):
        return NodeGrowth(node.op.max_slope, node.op.max_slope)
    if not isinstance(node.op, Affine):
        raise TypeError(f"{node.name} is neither affine nor breaking")
    zeros = [torch.zeros(1, *network.nodes[j].shape, device=network.device, dtype=network.dtype) for j in node.inputs]
    spread = node.op.error_spread(*(torch.ones_like(z) for z in zeros))
    if not spread.numel():
        return NodeGrowth()
    constant = node.op.constant_part(*zeros).abs()
    worst, offset = float(spread.max()), float(constant.max())
    typical = worst * float((spread / worst).square().mean().sqrt()) if worst > 0 else 0.0
    gain = worst if is_narrow else typical
    share = (
        _error_share(spread / gain, constant / offset if offset > 0 else constant) if needs_share and gain > 0 else None
    )
    return NodeGrowth(gain, worst, offset, share)


def _error_share(spread: Tensor, constant: Tensor) -> Tensor | None:
    """Relative error bounds (elements,) of units with hardly any weight; None if no unit's bound is below 1."""
    share = ERROR_SHARE_SLACK * torch.maximum(spread.abs(), constant).flatten()
    return share.clamp(max=1.0) if bool((share < 1).any()) else None


def _numbers_per_point(network: Network, last_use: dict[int, int]) -> tuple[int, int, int]:
    """Numbers per point: held at all breaking nodes together, peak in use, and peak live."""
    held, peak_working, peak_live = 0, 1, 1
    sizes = [prod(node.shape) for node in network.nodes]
    live: set[int] = set(network.inputs)
    for i, node in enumerate(network.nodes):
        if i not in last_use:
            live.discard(i)
            continue
        live.add(i)
        working = sum(sizes[j] for j in live)
        peak_live = max(peak_live, working)
        if isinstance(node.op, Breaking):
            held += working
            working += 3 * sizes[node.inputs[0]]  # the snapped input, its sides, and the merged input
        peak_working = max(peak_working, working + sizes[i])
        live -= {j for j in live if last_use.get(j) == i}
    return held, peak_working, peak_live
