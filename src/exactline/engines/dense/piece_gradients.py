"""The gradient on every piece of a line: one sweep that keeps the branches, then one way back for all pieces."""

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
from ..activation_pattern import activation_patterns
from .state import SweepState, start_state
from .sweep import SweepLimits, evaluate_next, insert_breaks

Held: TypeAlias = dict[int, Tensor]  # by node: the branches on every piece, (pieces, ...)
SHARE = 8  # the branches of all nodes are held for all pieces of a part
SAME = 1e-12  # a sweep in other parts rounds otherwise and moves breaks by some ulps; one in float32 by far more
NUMBERS = 1 << 24  # numbers alive at a time on the way back


def piece_gradients(
    network: Network,
    lines: Lines,  # one line
    alphas: Tensor,  # (breaks,)
    place: int,  # the node
    target: int,  # flat position in its value
) -> list[Tensor]:
    """(pieces, *in) for each input: the gradient on every piece between the breaks."""
    some = max(1, NUMBERS // max(sum(torch.Size(node.shape).numel() for node in network.nodes), 1))
    limits = SweepLimits(min(some + 1, sweep_plan(network).max_points(free_memory(network.device) // SHARE)))
    state = start_state(lines, 0, 1, network.inputs)
    state.records_patterns = True
    found, at = [], 0
    for ends, held in _swept(network, sweep_plan(network), state, limits, {}):
        known = alphas[at : at + len(ends)]
        if len(known) < len(ends) or float((ends - known).abs().max()) > SAME:  # breaks of a sweep of another kind
            break
        found.append(_pulled(network, held, len(ends) - 1, place, target))
        at += len(ends) - 1
    if at < len(alphas) - 1:
        found = []
        for first in range(0, len(alphas) - 1, some):
            ends = alphas[first : first + some + 1]
            held = activation_patterns(
                network, lines, torch.zeros(len(ends) - 1, dtype=torch.int64), ends[:-1], ends[1:]
            )
            found.append(_pulled(network, held, len(ends) - 1, place, target))
    return [torch.cat(column) for column in zip(*found, strict=True)]


def _swept(
    network: Network, facts: SweepPlan, state: SweepState, limits: SweepLimits, held: Held
) -> Iterator[tuple[Tensor, Held]]:
    """The breaks in parts, in order, and the branches on all pieces between them."""
    while state.node < len(network.nodes):
        i = state.node
        if isinstance(network.nodes[i].op, Breaking) and i in facts.last_use:
            after = insert_breaks(network, facts, state, limits)
            if not isinstance(after, SweepState):
                for part in after:
                    yield from _swept(network, facts, part, limits, _finer(held, part, i))
                return
            state, held = after, _finer(held, after, i)
        evaluate_next(network, facts, state)
    yield torch.from_numpy(state.alphas.copy()), held


def _finer(held: Held, after: SweepState, i: int) -> Held:
    """The branches on the pieces after node ``i``, its own among them."""
    step = after.record
    if step is None:
        raise TypeError("the sweep kept no branches")
    return {j: p[step.source_point[:-1]] for j, p in held.items()} | {i: step.pattern}


def _pulled(network: Network, held: Held, count: int, place: int, target: int) -> list[Tensor]:
    """(count, *in) for each input, from the branches of so many pieces."""
    nodes, size = network.nodes, torch.Size(network.nodes[place].shape).numel()
    seed = torch.zeros(count, size, dtype=network.dtype, device=network.device)
    seed[:, target] = 1
    grads = {place: seed.view(count, *nodes[place].shape)}
    for i in range(place, -1, -1):
        node = nodes[i]
        if i not in grads or isinstance(node.op, Input):
            continue
        grad, shapes = grads.pop(i), [nodes[j].shape for j in node.inputs]
        if isinstance(node.op, Affine):
            pulled = node.op.vjp(grad, shapes)
        elif isinstance(node.op, Breaking):
            pulled = [node.op.vjp(held[i], grad, shapes[0])]
        else:
            raise TypeError("a node is neither affine nor breaking")
        for j, g in zip(node.inputs, pulled, strict=True):
            grads[j] = grads[j] + g if j in grads else g
    return [grads[i] if i in grads else seed.new_zeros(count, *nodes[i].shape) for i in network.inputs]
