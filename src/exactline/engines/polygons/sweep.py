"""Cutting a plane node by node: values of every live tensor at every corner, in bounded memory."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import numpy as np

from ...network.graph import Network
from ...numerics.plan import Plan, plan
from ...numerics.static_filter import Size
from ...ops.base import Breaking, Input
from ..dense.state import first_sizes
from ..dense.sweep import largest_of
from .error_model import contests_of, usual
from .growable import Rows
from .merge import merged
from .mesh import Mesh
from .separators import merges_cells
from .state import Frame, State
from .subdivide import Cutter


def begin(network: Network, frame: Frame) -> State:
    """The polygon itself, before the first node."""
    count = len(frame.places)
    live = dict(zip(network.inputs, frame.corners, strict=True))
    births = np.zeros((count, 4), dtype=np.int64)
    births[:, 0] = -1
    rows = (Rows(np.eye(count)), Rows(births), Rows(np.zeros((count, 2))))
    return State(frame, 0, Mesh.polygon(count), *rows, live, first_sizes(live), usual(network, frame))


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
            else:
                _step(network, facts, state, points)
        yield state


def _step(network: Network, facts: Plan, state: State, points: int) -> None:
    """Past the next node, or as far as so many corners allow."""
    i = state.node
    node = network.nodes[i]
    if i not in facts.last:
        state.live.pop(i, None)
    elif isinstance(node.op, Breaking):
        if not branch_out(network, state, node.op, points):
            return
    elif not isinstance(node.op, Input):
        state.live[i] = node.op.evaluate(*(state.live[j] for j in node.inputs))
        state.sizes[i] = Size.after(facts, i, [state.sizes[j] for j in node.inputs], state.eps)
    for j in set(node.inputs):
        if facts.last.get(j) == i:
            state.live.pop(j, None)
            state.sizes.pop(j, None)
    state.node = i + 1


def branch_out(network: Network, state: State, op: Breaking, points: int) -> bool:
    """Cut along everything that a breaking node compares, and evaluate it; whether that came to its end."""
    i = state.node
    source = network.nodes[i].inputs[0]
    largest = largest_of(state.live[source], network.nodes[i].name)
    facts, size = plan(network), state.sizes[source]
    doubtful = state.usual.doubtful(i, state.dtype, largest, size)
    state.sizes[i] = Size(largest * facts.reach[i], size.errors * facts.gain[i])
    before, edges = len(state.weights), len(state.mesh.ends)
    contests = contests_of(network, i)
    for number in range(0 if state.work is None else state.work.number, len(contests)):
        # polygons that may have to be joined again are not parted
        most = sys.maxsize if merges_cells(op) else points
        if not Cutter(network, state, number, contests[number], largest, doubtful).run(most):
            return False
    if merges_cells(op) and len(state.mesh.ends) > edges:
        merged(network, state, op, before, doubtful)
    state.mesh.packed()
    state.live[i] = op.evaluate(state.live[source])
    return True
