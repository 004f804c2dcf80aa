"""What a sweep needs to know of a network beforehand: who is read last, how errors grow, how wide points are."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from ..network.graph import Network
from ..ops.base import Affine, Breaking, Input

NUMBER = 8  # bytes
NARROW = 4096  # numbers of one point at the widest place
SLACK = 256.0  # errors of an element may be so much larger than its weights tell
_plans: weakref.WeakKeyDictionary[Network, Plan] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Plan:
    """Facts about a network, found once."""

    last: dict[int, int]  # last reader of every node
    bytes_held: int  # of one point at all breaking nodes together
    bytes_working: int  # of one point at the widest place between them
    bytes_live: int  # of one point in the tensors that are live at the widest place
    gain: tuple[float, ...]  # how much a node can enlarge independent errors
    reach: tuple[float, ...]  # how much it can enlarge values
    offset: tuple[float, ...]  # the largest constant it adds
    shares: dict[int, Tensor]  # by node, (elements,): how much smaller than those an element's errors are at most

    @property
    def narrow(self) -> bool:
        """Whether a point is so small that looking at a few costs nothing; worst cases are then far off."""
        return self.bytes_working <= NARROW * NUMBER

    def points(self, memory: int) -> int:
        """How many points a part may hold so that every level of the sweep fits at once."""
        return max(2, memory // max(1, self.bytes_held + self.bytes_working))


def plan(network: Network) -> Plan:
    """The plan of a network, made on first use."""
    if network not in _plans:
        last = network.last_use(network.outputs)
        held, working, live = _widths(network, last)
        read = {network.nodes[j].inputs[0] for j in network.breaking if j in last} if working > NARROW else set[int]()
        growth = [
            _growth(network, i, working <= NARROW, i in read) if i in last else Growth()
            for i in range(len(network.nodes))
        ]
        gain, reach, offset = (tuple(getattr(g, name) for g in growth) for name in ("gain", "reach", "offset"))
        shares = {i: g.share for i, g in enumerate(growth) if g.share is not None}
        _plans[network] = Plan(last, held * NUMBER, working * NUMBER, live * NUMBER, gain, reach, offset, shares)
    return _plans[network]


@dataclass(frozen=True)
class Growth:
    """What a node makes of values and of their errors; the fields are those of a plan."""

    gain: float = 1.0
    reach: float = 1.0
    offset: float = 0.0
    share: Tensor | None = None


def _growth(network: Network, i: int, narrow: bool, read: bool) -> Growth:
    """The growth at one node, and where a breaking one reads it, the shares of its elements.

    In a narrow network the gain is that of the worst unit; in a wide one, where looking closer is dear and errors
    spread out, it is that of a typical unit.
    """
    node = network.nodes[i]
    if isinstance(node.op, Input):
        return Growth()
    if isinstance(node.op, Breaking):
        return Growth(node.op.steepness, node.op.steepness)
    if not isinstance(node.op, Affine):
        raise TypeError(f"{node.name} is neither affine nor breaking")
    zeros = [torch.zeros(1, *network.nodes[j].shape, device=network.device, dtype=network.dtype) for j in node.inputs]
    size = node.op.spread(*(torch.ones_like(z) for z in zeros))  # by how much each element enlarges independent errors
    if not size.numel():
        return Growth()
    constant = node.op.added(*zeros).abs()
    worst, offset = float(size.max()), float(constant.max())
    typical = worst * float((size / worst).square().mean().sqrt()) if worst > 0 else 0.0
    gain = worst if narrow else typical
    share = _share(size / gain, constant / offset if offset > 0 else constant) if read and gain > 0 else None
    return Growth(gain, worst, offset, share)


def _share(size: Tensor, constant: Tensor) -> Tensor | None:
    """How much smaller errors are where training left elements with hardly any weight; None where it left none."""
    share = SLACK * torch.maximum(size.abs(), constant).flatten()
    return share.clamp(max=1.0) if bool((share < 1).any()) else None


def _widths(network: Network, last: dict[int, int]) -> tuple[int, int, int]:
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
