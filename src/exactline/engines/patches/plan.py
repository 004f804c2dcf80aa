"""What a local sweep needs to know of a network: how patches move, how large they grow, what a break costs."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from math import prod

import torch

from ...network.graph import Network
from ...numerics.plan import sweep_plan
from ...ops.base import Affine, Breaking, Input
from .patch import AffinePatchRule, MapShape, map_shape_of
from .rules import activation_rule, affine_rule
from .timeline import ActivationPatchRule

_plans: weakref.WeakKeyDictionary[Network, PatchPlan] = weakref.WeakKeyDictionary()

PATCH_NUMBER_COST = 24.0  # how many multiplications one number of a patch costs at a breaking node
POINT_NUMBER_COST = 30.0  # and one number of a point in the dense sweep


@dataclass(frozen=True, eq=False)
class PatchPlan:
    """How patches go through a network, as far as they can."""

    affine_rules: dict[int, AffinePatchRule]
    activation_rules: dict[int, ActivationPatchRule]
    map_shapes: dict[int, MapShape]
    stop: int  # the first node that only points can pass; the number of nodes where there is none
    break_cost: float  # multiplications for one break, on average over the units that can bear it
    point_cost: float  # multiplications for one point
    numbers_per_break: float  # that one break holds at the widest place

    @property
    def gain(self) -> float:
        """How many times cheaper a break is here than in the dense sweep."""
        return self.point_cost / max(self.break_cost, 1.0)


def patch_plan(network: Network) -> PatchPlan:
    """The route of a network, found once."""
    if network not in _plans:
        with torch.device(network.device):
            _plans[network] = _make_plan(network)
    return _plans[network]


def _make_plan(network: Network) -> PatchPlan:
    last = sweep_plan(network).last_use
    movers: dict[int, AffinePatchRule] = {}
    turners: dict[int, ActivationPatchRule] = {}
    grids: dict[int, MapShape] = {}
    stop = len(network.nodes)
    for i, node in enumerate(network.nodes):
        if i not in last:
            continue
        if isinstance(node.op, Input):
            grids[i] = map_shape_of(node.shape)
        elif isinstance(node.op, Affine):
            shapes = [network.nodes[j].shape for j in node.inputs]
            movers[i] = affine_rule(node.op, [grids[j] for j in node.inputs], shapes, node.shape)
            grids[i] = movers[i].map_shape
        elif isinstance(node.op, Breaking):
            turner = activation_rule(node.op, grids[node.inputs[0]], network.nodes[node.inputs[0]].shape)
            if turner is None:
                stop = i
                break
            turners[i] = turner
            grids[i] = turner.map_shape
    local, numbers = _break_cost(network, movers, turners, stop)
    return PatchPlan(movers, turners, grids, stop, local, _point_cost(network, movers, grids, stop), numbers)


def _break_cost(
    network: Network, movers: dict[int, AffinePatchRule], turners: dict[int, ActivationPatchRule], stop: int
) -> tuple[float, float]:
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
                sizes[i] = movers[i].output_size(*given)
                area = sizes[i][0] * sizes[i][1] * movers[i].map_shape[0]
                cost += units * (area if set(inputs) <= lit else movers[i].multiplications(*given))
            elif i in turners:
                sizes[i] = turners[i].output_size(sizes[inputs[0]])
                area = sizes[inputs[0]][0] * sizes[inputs[0]][1] * turners[i].map_shape[0]
                cost += units * area * PATCH_NUMBER_COST
                widest[i] = widest.get(i, 0.0) + units * area
    share = max(total, 1.0)
    return cost / share, max(widest.values(), default=1.0) / share


def _point_cost(network: Network, movers: dict[int, AffinePatchRule], grids: dict[int, MapShape], stop: int) -> float:
    cost = 0.0
    for i, node in enumerate(network.nodes[:stop]):
        if i in movers:
            cost += movers[i].multiplications(*((grids[j][1], grids[j][2]) for j in node.inputs))
        elif isinstance(node.op, Breaking):
            cost += prod(network.nodes[node.inputs[0]].shape) * POINT_NUMBER_COST
    return cost
