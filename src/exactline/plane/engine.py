"""Cutting a plane node by node: values of every live tensor at every corner, in bounded memory."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import torch

from ..network.graph import Network
from ..ops.base import Breaking, Input
from ..sweep.engine import largest_of
from ..sweep.plan import Plan, plan
from ..sweep.state import Size, first_sizes
from .cut import Cutter
from .merge import merged
from .mesh import Mesh
from .noise import contests_of
from .rows import Rows
from .state import Frame, State


def begin(network: Network, frame: Frame) -> State:
    """The polygon itself, before the first node."""
    count = len(frame.places)
    live = dict(zip(network.inputs, frame.corners, strict=True))
    births = np.zeros((count, 4), dtype=np.int64)
    births[:, 0] = -1
    rows = (Rows(np.eye(count)), Rows(births), Rows(np.zeros((count, 2))))
    return State(frame, 0, Mesh.polygon(count), *rows, live, first_sizes(live))


def cut_plane(network: Network, frame: Frame, points: int, deadline: float = float("inf")) -> Iterator[State]:
    """All polygons, part after part of at most about so many corners; ends early at the deadline."""
    facts = plan(network)
    waiting = [begin(network, frame)]
    while waiting:
        state = waiting.pop()
        while state.node < len(network.nodes):
            if time.monotonic() > deadline:
                return
            if len(state.mesh) > 1 and len(state.weights) > points:
                state, later = state.halves()
                waiting.append(later)
                continue
            _step(network, facts, state)
        yield state


def _step(network: Network, facts: Plan, state: State) -> None:
    """Past the next node."""
    i = state.node
    node = network.nodes[i]
    if i not in facts.last:
        state.live.pop(i, None)
    elif isinstance(node.op, Breaking):
        _branch_out(network, facts, state, node.op)
    elif not isinstance(node.op, Input):
        state.live[i] = node.op.evaluate(*(state.live[j] for j in node.inputs))
        state.sizes[i] = Size.after(facts, i, [state.sizes[j] for j in node.inputs], state.eps)
    for j in set(node.inputs):
        if facts.last.get(j) == i:
            state.live.pop(j, None)
            state.sizes.pop(j, None)
    state.node = i + 1


def _branch_out(network: Network, facts: Plan, state: State, op: Breaking) -> None:
    i = state.node
    source = network.nodes[i].inputs[0]
    x = state.live[source]
    largest = largest_of(x, network.nodes[i].name)
    size = state.sizes[source]
    state.sizes[i] = Size(largest * facts.reach[i], size.errors * facts.gain[i])
    before, edges = len(state.weights), len(state.mesh.ends)
    for number, contest in enumerate(contests_of(network, i)):
        Cutter(network, state, number, contest, largest, size.errors).run()
    if op.merges and len(state.mesh.ends) > edges:
        merged(network, state, op, before)
    state.mesh.packed()
    state.live[i] = op.evaluate(state.live[source])
    if not state.live[i].numel():
        state.live[i] = torch.zeros_like(state.live[i])
