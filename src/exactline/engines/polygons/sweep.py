"""Cutting a plane node by node: values of every live tensor at every corner, in bounded memory."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import numpy as np

from ...network.graph import Network
from ...numerics.plan import SweepPlan, sweep_plan
from ...numerics.static_filter import Magnitude
from ...ops.base import Breaking, Input
from ..dense.state import input_magnitudes
from ..dense.sweep import max_magnitude
from .error_model import node_separators, plane_filter
from .growable import GrowableArray
from .merge import merge_polygons
from .mesh import Mesh
from .separators import merges_cells
from .state import MeshState, PlaneFrame
from .subdivide import Subdivision


def start_mesh(network: Network, frame: PlaneFrame) -> MeshState:
    """The polygon itself, before the first node."""
    count = len(frame.coordinates)
    live = dict(zip(network.inputs, frame.corners, strict=True))
    births = np.zeros((count, 4), dtype=np.int64)
    births[:, 0] = -1
    rows = (GrowableArray(np.eye(count)), GrowableArray(births), GrowableArray(np.zeros((count, 2))))
    return MeshState(frame, 0, Mesh.polygon(count), *rows, live, input_magnitudes(live), plane_filter(network, frame))


def sweep_plane(
    network: Network, frame: PlaneFrame, points: int, deadline: float = float("inf")
) -> Iterator[MeshState]:
    """All polygons, part after part of at most about so many corners; ends early at the deadline."""
    facts = sweep_plan(network)
    waiting = [start_mesh(network, frame)]
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


def _step(network: Network, facts: SweepPlan, state: MeshState, points: int) -> None:
    """Past the next node, or as far as so many corners allow."""
    i = state.node
    node = network.nodes[i]
    if i not in facts.last_use:
        state.live.pop(i, None)
    elif isinstance(node.op, Breaking):
        if not subdivide_at_node(network, state, node.op, points):
            return
    elif not isinstance(node.op, Input):
        state.live[i] = node.op.evaluate(*(state.live[j] for j in node.inputs))
        state.sizes[i] = Magnitude.after(facts, i, [state.sizes[j] for j in node.inputs], state.eps)
    for j in set(node.inputs):
        if facts.last_use.get(j) == i:
            state.live.pop(j, None)
            state.sizes.pop(j, None)
    state.node = i + 1


def subdivide_at_node(network: Network, state: MeshState, op: Breaking, points: int) -> bool:
    """Cut along everything that a breaking node compares, and evaluate it; whether that came to its end."""
    i = state.node
    source = network.nodes[i].inputs[0]
    largest = max_magnitude(state.live[source], network.nodes[i].name)
    facts, size = sweep_plan(network), state.sizes[source]
    doubtful = state.filter.threshold(i, state.dtype, largest, size)
    state.sizes[i] = Magnitude(largest * facts.value_gain[i], size.errors * facts.error_gain[i])
    before, edges = len(state.weights), len(state.mesh.ends)
    contests = node_separators(network, i)
    for number in range(0 if state.work is None else state.work.number, len(contests)):
        # polygons that may have to be joined again are not parted
        most = sys.maxsize if merges_cells(op) else points
        if not Subdivision(network, state, number, contests[number], largest, doubtful).run(most):
            return False
    if merges_cells(op) and len(state.mesh.ends) > edges:
        merge_polygons(network, state, op, before, doubtful)
    state.mesh.pack()
    state.live[i] = op.evaluate(state.live[source])
    return True
