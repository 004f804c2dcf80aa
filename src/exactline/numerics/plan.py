"""What a sweep needs to know of a network beforehand: who is read last, how errors grow, how wide points are."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from ..network.graph import Network
from ..ops.base import Affine, Breaking, Input

BYTES_PER_NUMBER = 8  # bytes
MAX_NARROW_WIDTH = 4096  # numbers of one point at the widest place
ERROR_SHARE_SLACK = 256.0  # errors of an element may be so much larger than its weights tell
_plans: weakref.WeakKeyDictionary[Network, SweepPlan] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class SweepPlan:
    """Facts about a network, found once."""

    last_use: dict[int, int]  # last reader of every node
    bytes_held: int  # of one point at all breaking nodes together
    bytes_working: int  # of one point at the widest place between them
    bytes_live: int  # of one point in the tensors that are live at the widest place
    error_gain: tuple[float, ...]  # how much a node can enlarge independent errors
    value_gain: tuple[float, ...]  # how much it can enlarge values
    offset: tuple[float, ...]  # the largest constant it adds
    error_shares: dict[int, Tensor]  # by node, (elements,): how much smaller than those an element's errors are at most

    @property
    def is_narrow(self) -> bool:
        """Whether a point is so small that looking at a few costs nothing; worst cases are then far off."""
        return self.bytes_working <= MAX_NARROW_WIDTH * BYTES_PER_NUMBER

    def max_points(self, memory: int) -> int:
        """How many points a part may hold so that every level of the sweep fits at once."""
        return max(2, memory // max(1, self.bytes_held + self.bytes_working))


def sweep_plan(network: Network) -> SweepPlan:
    """The plan of a network, made on first use."""
    if network not in _plans:
        last = network.last_use(network.outputs)
        held, working, live = _numbers_per_point(network, last)
        read = (
            {network.nodes[j].inputs[0] for j in network.breaking if j in last}
            if working > MAX_NARROW_WIDTH
            else set[int]()
        )
        growth = [
            _node_growth(network, i, working <= MAX_NARROW_WIDTH, i in read) if i in last else NodeGrowth()
            for i in range(len(network.nodes))
        ]
        gain, reach, offset = (
            tuple(getattr(g, name) for g in growth) for name in ("error_gain", "value_gain", "offset")
        )
        shares = {i: g.error_share for i, g in enumerate(growth) if g.error_share is not None}
        _plans[network] = SweepPlan(
            last,
            held * BYTES_PER_NUMBER,
            working * BYTES_PER_NUMBER,
            live * BYTES_PER_NUMBER,
            gain,
            reach,
            offset,
            shares,
        )
    return _plans[network]


@dataclass(frozen=True)
class NodeGrowth:
    """What a node makes of values and of their errors; the fields are those of a plan."""

    error_gain: float = 1.0
    value_gain: float = 1.0
    offset: float = 0.0
    error_share: Tensor | None = None


def _node_growth(network: Network, i: int, narrow: bool, read: bool) -> NodeGrowth:
    """The growth at one node, and where a breaking one reads it, the shares of its elements.

    In a narrow network the gain is that of the worst unit; in a wide one, where looking closer is dear and errors
    spread out, it is that of a typical unit.
    """
    node = network.nodes[i]
    if isinstance(node.op, Input):
        return NodeGrowth()
    if isinstance(node.op, Breaking):
        return NodeGrowth(node.op.max_slope, node.op.max_slope)
    if not isinstance(node.op, Affine):
        raise TypeError(f"{node.name} is neither affine nor breaking")
    zeros = [torch.zeros(1, *network.nodes[j].shape, device=network.device, dtype=network.dtype) for j in node.inputs]
    size = node.op.error_spread(
        *(torch.ones_like(z) for z in zeros)
    )  # by how much each element enlarges independent errors
    if not size.numel():
        return NodeGrowth()
    constant = node.op.constant_part(*zeros).abs()
    worst, offset = float(size.max()), float(constant.max())
    typical = worst * float((size / worst).square().mean().sqrt()) if worst > 0 else 0.0
    gain = worst if narrow else typical
    share = _error_share(size / gain, constant / offset if offset > 0 else constant) if read and gain > 0 else None
    return NodeGrowth(gain, worst, offset, share)


def _error_share(size: Tensor, constant: Tensor) -> Tensor | None:
    """How much smaller errors are where training left elements with hardly any weight; None where it left none."""
    share = ERROR_SHARE_SLACK * torch.maximum(size.abs(), constant).flatten()
    return share.clamp(max=1.0) if bool((share < 1).any()) else None


def _numbers_per_point(network: Network, last: dict[int, int]) -> tuple[int, int, int]:
    """Numbers per point: held at the breaking nodes, at work at the widest place, and live there."""
    held, working, most = 0, 1, 1
    sizes = [prod(node.shape) for node in network.nodes]
    live: set[int] = set(network.inputs)
    for i, node in enumerate(network.nodes):
        if i not in last:
            live.discard(i)
            continue
        live.add(i)
        now = sum(sizes[j] for j in live)
        most = max(most, now)
        if isinstance(node.op, Breaking):
            held += now
            now += 3 * sizes[node.inputs[0]]  # the settled copy, its sides, and the merged copy
        working = max(working, now + sizes[i])
        live -= {j for j in live if last.get(j) == i}
    return held, working, most
