"""What a local sweep needs to know of a network: how patches move, how large they grow, what a break costs."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from math import prod

import torch

from ...network.graph import Network
from ...numerics.plan import plan
from ...ops.base import Affine, Breaking, Input
from .patch import Grid, Mover, grid_of
from .rules import activation_rule, affine_rule
from .timeline import Turner

_routes: weakref.WeakKeyDictionary[Network, Route] = weakref.WeakKeyDictionary()

ENTRY = 24.0  # how many multiplications one number of a patch costs at a breaking node
POINT = 30.0  # and one number of a point in the dense sweep


@dataclass(frozen=True, eq=False)
class Route:
    """How patches go through a network, as far as they can."""

    movers: dict[int, Mover]
    turners: dict[int, Turner]
    grids: dict[int, Grid]
    stop: int  # the first node that only points can pass; the number of nodes where there is none
    local: float  # multiplications for one break, on average over the units that can bear it
    dense: float  # multiplications for one point
    numbers: float  # that one break holds at the widest place

    @property
    def gain(self) -> float:
        """How many times cheaper a break is here than in the dense sweep."""
        return self.dense / max(self.local, 1.0)


def route(network: Network) -> Route:
    """The route of a network, found once."""
    if network not in _routes:
        with torch.device(network.device):
            _routes[network] = _route(network)
    return _routes[network]


def _route(network: Network) -> Route:
    last = plan(network).last
    movers: dict[int, Mover] = {}
    turners: dict[int, Turner] = {}
    grids: dict[int, Grid] = {}
    stop = len(network.nodes)
    for i, node in enumerate(network.nodes):
        if i not in last:
            continue
        if isinstance(node.op, Input):
            grids[i] = grid_of(node.shape)
        elif isinstance(node.op, Affine):
            shapes = [network.nodes[j].shape for j in node.inputs]
            movers[i] = affine_rule(node.op, [grids[j] for j in node.inputs], shapes, node.shape)
            grids[i] = movers[i].grid
        elif isinstance(node.op, Breaking):
            turner = activation_rule(node.op, grids[node.inputs[0]], network.nodes[node.inputs[0]].shape)
            if turner is None:
                stop = i
                break
            turners[i] = turner
            grids[i] = turner.grid
    local, numbers = _spread(network, movers, turners, stop)
    return Route(movers, turners, grids, stop, local, _dense(network, movers, grids, stop), numbers)


def _spread(network: Network, movers: dict[int, Mover], turners: dict[int, Turner], stop: int) -> tuple[float, float]:
    """Multiplications for one break and the most numbers it holds at a node, on average over all units."""
    total, cost = 0.0, 0.0
    widest: dict[int, float] = {}
    for birth in turners:
        units = float(prod(network.nodes[birth].shape))
        sizes = {birth: (1, 1)}
        lit = {birth}  # still sparks
        total += units
        for i in range(birth + 1, stop):
            inputs = [j for j in network.nodes[i].inputs if j in sizes]
            if not inputs:
                continue
            if i in movers:
                given = [sizes[j] for j in inputs]
                sizes[i] = movers[i].size(*given)
                area = sizes[i][0] * sizes[i][1] * movers[i].grid[0]
                cost += units * (area if set(inputs) <= lit else movers[i].products(*given))
            elif i in turners:
                sizes[i] = turners[i].size(sizes[inputs[0]])
                area = sizes[inputs[0]][0] * sizes[inputs[0]][1] * turners[i].grid[0]
                cost += units * area * ENTRY
                widest[i] = widest.get(i, 0.0) + units * area
    share = max(total, 1.0)
    return cost / share, max(widest.values(), default=1.0) / share


def _dense(network: Network, movers: dict[int, Mover], grids: dict[int, Grid], stop: int) -> float:
    cost = 0.0
    for i, node in enumerate(network.nodes[:stop]):
        if i in movers:
            cost += movers[i].products(*((grids[j][1], grids[j][2]) for j in node.inputs))
        elif isinstance(node.op, Breaking):
            cost += prod(network.nodes[node.inputs[0]].shape) * POINT
    return cost
