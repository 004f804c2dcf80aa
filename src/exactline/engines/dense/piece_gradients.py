"""The gradient on every piece of a line: a sweep that records activation patterns, then one VJP for all pieces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import torch
from torch import Tensor

from ...lines import Lines
from ...network.graph import Network
from ...numerics.plan import SweepPlan, sweep_plan
from ...ops.base import Affine, Breaking, Input
from ...options import free_memory
from ...tolerances import REPEATED_SWEEP_ALPHA_SHIFT
from ..activation_pattern import activation_patterns
from .gradients import accumulate
from .state import SweepState, start_state
from .sweep import SweepLimits, evaluate_next, insert_breaks

PatternsByNode: TypeAlias = dict[int, Tensor]  # by node: activation patterns, (pieces, ...)
PATTERN_MEMORY_DIVISOR = 4  # a sweep that keeps the patterns of all nodes gets 1/4 of the free memory
MAX_BACKWARD_NUMBERS = 1 << 24  # activations of one batch of the backward pass


def piece_gradients(
    network: Network,
    lines: Lines,  # one line
    alphas: Tensor,  # (breaks,)
    node: int,
    target: int,  # flat position in the value of the node
) -> list[Tensor]:  # (pieces, *in) for each input
    """Compute the gradient of one element of a node on every piece between the breaks.

    The patterns come from a sweep. If its breaks are not the given ones, because they come from a sweep of another
    precision, the patterns are evaluated in the middle of each piece instead.
    """
    max_pieces = max(1, MAX_BACKWARD_NUMBERS // max(sum(torch.Size(n.shape).numel() for n in network.nodes), 1))
    max_points = sweep_plan(network).max_points(free_memory(network.device) // PATTERN_MEMORY_DIVISOR)
    limits = SweepLimits(min(max_pieces + 1, max_points))
    state = start_state(lines, 0, 1, network.inputs)
    state.records_patterns = True
    gradients, done = [], 0
    for ends, patterns in _sweep_parts(network, sweep_plan(network), state, limits, {}):
        known = alphas[done : done + len(ends)]
        if len(known) < len(ends) or float((ends - known).abs().max()) > REPEATED_SWEEP_ALPHA_SHIFT:
            break
        gradients.append(_backpropagate(network, patterns, len(ends) - 1, node, target))
        done += len(ends) - 1
    if done < len(alphas) - 1:
        gradients = []
        for first in range(0, len(alphas) - 1, max_pieces):
            ends = alphas[first : first + max_pieces + 1]
            line_index = torch.zeros(len(ends) - 1, dtype=torch.int64)
            patterns = activation_patterns(network, lines, line_index, ends[:-1], ends[1:])
            gradients.append(_backpropagate(network, patterns, len(ends) - 1, node, target))
    return [torch.cat(column) for column in zip(*gradients, strict=True)]


def _sweep_parts(
    network: Network, plan: SweepPlan, state: SweepState, limits: SweepLimits, patterns: PatternsByNode
) -> Iterator[tuple[Tensor, PatternsByNode]]:
    """Yield the breaks in parts, in order, with the activation patterns on all pieces between them."""
    while state.node < len(network.nodes):
        i = state.node
        if isinstance(network.nodes[i].op, Breaking) and i in plan.last_use:
            after = insert_breaks(network, plan, state, limits)
            if not isinstance(after, SweepState):
                for part in after:
                    yield from _sweep_parts(network, plan, part, limits, _refine_patterns(patterns, part, i))
                return
            state, patterns = after, _refine_patterns(patterns, after, i)
        evaluate_next(network, plan, state)
    yield torch.from_numpy(state.alphas.copy()), patterns


def _refine_patterns(patterns: PatternsByNode, after: SweepState, node: int) -> PatternsByNode:
    """Repeat patterns for the pieces that the node has split, and add the pattern of the node itself."""
    record = after.record
    if record is None:
        raise TypeError("the sweep recorded no activation patterns")
    return {j: p[record.source_point[:-1]] for j, p in patterns.items()} | {node: record.pattern}


def _backpropagate(
    network: Network,
    patterns: PatternsByNode,
    count: int,  # of pieces
    node: int,
    target: int,
) -> list[Tensor]:  # (count, *in) for each input
    nodes, size = network.nodes, torch.Size(network.nodes[node].shape).numel()
    cotangent = torch.zeros(count, size, dtype=network.dtype, device=network.device)
    cotangent[:, target] = 1
    gradients = {node: cotangent.view(count, *nodes[node].shape)}
    for i in range(node, -1, -1):
        op, inputs = nodes[i].op, nodes[i].inputs
        if i not in gradients or isinstance(op, Input):
            continue
        gradient, shapes = gradients.pop(i), [nodes[j].shape for j in inputs]
        if isinstance(op, Affine):
            accumulate(gradients, inputs, op.vjp(gradient, shapes))
        elif isinstance(op, Breaking):
            accumulate(gradients, inputs, [op.vjp(patterns[i], gradient, shapes[0])])
        else:
            raise TypeError("a node is neither affine nor breaking")
    return [gradients[i] if i in gradients else cotangent.new_zeros(count, *nodes[i].shape) for i in network.inputs]
