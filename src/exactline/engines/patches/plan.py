"""The plan of a network for the patch engine: the rule of every node, and the cost of a break and of a point."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from math import prod

import torch

from ...network.graph import Network
from ...numerics.equal_units import EqualUnits, merge_equal_members
from ...numerics.plan import sweep_plan
from ...ops.base import Affine, Breaking, Input
from ...ops.maximum import Maximum
from .convolve import ConvolutionRule
from .patch import AffinePatchRule, MapShape, map_shape_of
from .rules import activation_rule, affine_rule
from .timeline import ActivationPatchRule

_plans: weakref.WeakKeyDictionary[Network, PatchPlan] = weakref.WeakKeyDictionary()

PATCH_NUMBER_COST = 24.0  # multiplications that one number of a patch costs at a breaking node
POINT_NUMBER_COST = 30.0  # multiplications that one number of a point costs at a breaking node of the dense engine
# From how many points on patches are faster on a CPU: fitted to the processor seconds of both engines on 157 lines of
# 53 networks; see benchmarks/engines.py.
WINDOW_ELEMENT_COST = 100.0  # multiplications that an element of a window costs at every point of the dense engine
VALUE_COST = 32.0  # multiplications that one number of a point costs at every node of the dense engine
NODE_COST = 1.5e7  # multiplications that a node costs once per line in the patch engine, beyond those of the dense one
LINE_POINTS = 15.0  # points of the dense engine that a line costs in the patch engine, beyond those it costs there
MIN_UNIT_SHARE = 0.5  # of the units before a node, from which the points that later nodes will add are extrapolated


@dataclass(frozen=True, eq=False)
class PatchPlan:
    """The patch rules of a network, up to the first node that has none."""

    affine_rules: dict[int, AffinePatchRule]  # by node
    activation_rules: dict[int, ActivationPatchRule]  # by node
    map_shapes: dict[int, MapShape]  # by node
    first_dense_node: int  # where the dense engine takes over; the number of nodes if patches reach the outputs
    break_cost: float  # multiplications per break, averaged over the units it can originate from
    point_cost: float  # multiplications per point
    # By breaking node: points of a line there from which it is faster on a CPU to start anew with patches than to go on
    # with the dense engine. Infinity if it never is.
    least_points: dict[int, float]
    numbers_per_break: float  # of all live patches where they are most, averaged likewise
    weight_bytes: int  # of the weights, which the rules keep in orders of their own

    @property
    def gain(self) -> float:
        """How many times cheaper a break is here than in the dense engine."""
        return self.point_cost / max(self.break_cost, 1.0)


def patch_plan(network: Network) -> PatchPlan:
    """Return the plan of a network, computed on first use and cached."""
    if network not in _plans:
        with torch.device(network.device):
            _plans[network] = _make_plan(network)
    return _plans[network]


def _make_plan(network: Network) -> PatchPlan:
    last_use = sweep_plan(network).last_use
    affine_rules: dict[int, AffinePatchRule] = {}
    activation_rules: dict[int, ActivationPatchRule] = {}
    map_shapes: dict[int, MapShape] = {}
    first_dense_node = len(network.nodes)
    merged, units = merge_equal_members(network), EqualUnits(network)
    for i, node in enumerate(network.nodes):
        if i not in last_use:
            continue
        if isinstance(node.op, Input):
            map_shapes[i] = map_shape_of(node.shape)
        elif isinstance(node.op, Affine):
            shapes = [network.nodes[j].shape for j in node.inputs]
            affine_rules[i] = affine_rule(node.op, [map_shapes[j] for j in node.inputs], shapes, node.shape)
            map_shapes[i] = affine_rules[i].map_shape
        elif isinstance(node.op, Breaking):
            source = node.inputs[0]
            labels = units.labels(source) if i in merged else None
            rule = activation_rule(node.op, map_shapes[source], network.nodes[source].shape, labels)
            if rule is None:
                first_dense_node = i
                break
            activation_rules[i] = rule
            map_shapes[i] = rule.map_shape
    break_cost, numbers_per_break = _break_cost(network, affine_rules, activation_rules, first_dense_node)
    point_costs = _point_costs(network, affine_rules, map_shapes, first_dense_node)
    return PatchPlan(
        affine_rules,
        activation_rules,
        map_shapes,
        first_dense_node,
        break_cost=break_cost,
        point_cost=sum(point_costs.values()),
        least_points=_least_points(network, point_costs, break_cost),
        numbers_per_break=numbers_per_break,
        weight_bytes=sum(rule.held_bytes for rule in affine_rules.values() if isinstance(rule, ConvolutionRule)),
    )


def _break_cost(
    network: Network,
    affine_rules: dict[int, AffinePatchRule],
    activation_rules: dict[int, ActivationPatchRule],
    first_dense_node: int,
) -> tuple[float, float]:
    """Multiplications per break, and the largest number of live numbers per break, both averaged over all units."""
    total_units, total_cost = 0.0, 0.0
    numbers = dict.fromkeys(range(first_dense_node), 0.0)  # by node: in the patches of all units before it
    for origin in activation_rules:
        units = float(prod(network.nodes[origin].shape))
        sizes = {origin: (1, 1)}  # by node: of the patch of a break that originates from ``origin``
        total_units += units
        numbers[origin] += units
        for i in range(origin + 1, first_dense_node):
            inputs = [j for j in network.nodes[i].inputs if j in sizes]
            if not inputs:
                continue
            if i in affine_rules:
                rule = affine_rules[i]
                input_sizes = [sizes[j] for j in inputs]
                sizes[i] = rule.output_size(*input_sizes)
                area = sizes[i][0] * sizes[i][1] * rule.map_shape.channels
                is_point = set(inputs) <= {origin}  # a single number times a slice of the weights
                total_cost += units * (area if is_point else rule.multiplications(*input_sizes))
                numbers[i] += units * area
            elif i in activation_rules:
                rows, columns = sizes[inputs[0]]
                sizes[i] = activation_rules[i].output_size((rows, columns))
                total_cost += units * rows * columns * activation_rules[i].map_shape.channels * PATCH_NUMBER_COST
                numbers[i] += units * sizes[i][0] * sizes[i][1] * activation_rules[i].map_shape.channels
    total_units = max(total_units, 1.0)
    return total_cost / total_units, max(1.0, _most_live_numbers(network, numbers) / total_units)


def _most_live_numbers(network: Network, numbers: dict[int, float]) -> float:
    """The largest sum of the numbers of live nodes, each given in ``numbers``."""
    last_use, live, most = sweep_plan(network).last_use, dict[int, float](), 0.0
    for i, count in numbers.items():
        if i not in last_use:
            continue
        live[i] = count
        most = max(most, sum(live.values()))
        for j in set(network.nodes[i].inputs):
            if last_use[j] == i:
                live.pop(j, None)
    return most


def _point_costs(
    network: Network,
    affine_rules: dict[int, AffinePatchRule],
    map_shapes: dict[int, MapShape],
    first_dense_node: int,
) -> dict[int, float]:
    """By node, up to the first dense one: multiplications per point in the dense engine."""
    costs = dict.fromkeys(range(first_dense_node), 0.0)
    for i, node in enumerate(network.nodes[:first_dense_node]):
        if i in affine_rules:
            costs[i] = affine_rules[i].multiplications(*(map_shapes[j].size for j in node.inputs))
        elif isinstance(node.op, Breaking):
            costs[i] = prod(network.nodes[node.inputs[0]].shape) * POINT_NUMBER_COST
    return costs


def _least_points(network: Network, point_costs: dict[int, float], break_cost: float) -> dict[int, float]:
    """`PatchPlan.least_points`, from the costs of a point by node and of a break."""
    last_use = sweep_plan(network).last_use
    never = {i: float("inf") for i in network.breaking_nodes if i in last_use}
    if len(point_costs) < len(network.nodes):
        return never  # the points of the dense nodes after the patches are evaluated from the input
    sizes = {i: prod(node.shape) for i, node in enumerate(network.nodes) if i in last_use}
    costs = {i: max(point_costs[i], _window_cost(network, i)) + VALUE_COST * size for i, size in sizes.items()}
    dense_cost, units = sum(costs.values()), sum(sizes[i] for i in never)
    line_cost = NODE_COST * len(sizes) + LINE_POINTS * dense_cost
    least, units_before, cost_after = dict(never), 0, dense_cost
    for i, size in sizes.items():
        if i in never:
            units_before += size
            if cost_after > break_cost:
                least[i] = max(MIN_UNIT_SHARE, units_before / units) * line_cost / (cost_after - break_cost)
        cost_after -= costs[i]
    return least


def _window_cost(network: Network, node: int) -> float:
    """Multiplications per point with which the dense engine compares the elements of a node's windows."""
    op = network.nodes[node].op
    return WINDOW_ELEMENT_COST * op.table.numel() if isinstance(op, Maximum) else 0.0
