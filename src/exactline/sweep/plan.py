"""What a sweep needs to know of a network beforehand: who is read last, and how wide points are."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ..network.graph import Network
from ..ops.base import Breaking

NUMBER = 8  # bytes
_plans: weakref.WeakKeyDictionary[Network, Plan] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Plan:
    """Facts about a network, found once."""

    last: dict[int, int]  # last reader of every node
    bytes_held: int  # of one point at all breaking nodes together
    bytes_working: int  # of one point at the widest place between them
    levels: dict[Any, dict[int, float]] = field(default_factory=dict)  # sizes of errors, by size of the lines

    def points(self, memory: int) -> int:
        """How many points a part may hold so that every level of the sweep fits at once."""
        return max(2, memory // max(1, self.bytes_held + self.bytes_working))


def plan(network: Network) -> Plan:
    """The plan of a network, made on first use."""
    if network not in _plans:
        last = network.last_use(network.outputs)
        held, working = _widths(network, last)
        _plans[network] = Plan(last, held * NUMBER, working * NUMBER)
    return _plans[network]


def _widths(network: Network, last: dict[int, int]) -> tuple[int, int]:
    """Numbers per point: held at the breaking nodes, and at work at the widest place."""
    held, working = 0, 1
    sizes = [prod(node.shape) for node in network.nodes]
    live: set[int] = set(network.inputs)
    for i, node in enumerate(network.nodes):
        if i not in last:
            live.discard(i)
            continue
        live.add(i)
        now = sum(sizes[j] for j in live)
        if isinstance(node.op, Breaking):
            held += now
            now += 3 * sizes[node.inputs[0]]  # the settled copy, its sides, and the merged copy
        working = max(working, now + sizes[i])
        live -= {j for j in live if last.get(j) == i}
    return held, working
