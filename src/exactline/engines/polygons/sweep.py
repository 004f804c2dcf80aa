"""The sweep of a plane: polygons are subdivided node by node, in bounded memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np

from ...budget import DeadlineReached
from ...network.graph import Network
from ...numerics.plan import SweepPlan, sweep_plan
from ...numerics.static_filter import Magnitude
from ...ops.base import Breaking, Input
from ..dense.state import input_magnitudes
from ..dense.sweep import max_magnitude
from .compiled import make_subdivision
from .corners import CornerTable
from .error_model import node_separators, plane_filter
from .merge import merge_polygons
from .mesh import Mesh
from .monitor import PlaneMonitor
from .separators import needs_merging
from .state import MeshState, PlaneFrame, RecentValues


def start_mesh(network: Network, frame: PlaneFrame) -> MeshState:
    """The state before the first node: the given polygon itself."""
    count = len(frame.coordinates)
    live = dict(zip(network.inputs, frame.corners, strict=True))
    corners = CornerTable.of_vertices(np.eye(count))
    filter = plane_filter(network, frame)
    recent = RecentValues(max(network.inputs), dict(live))
    return MeshState(frame, 0, Mesh.polygon(count), corners, live, input_magnitudes(live), filter, recent=recent)


def sweep_plane(
    network: Network, frame: PlaneFrame, max_corners: int, monitor: PlaneMonitor | None = None
) -> Iterator[MeshState]:
    """Sweep a plane; yields finished parts of about ``max_corners`` corners.

    Raises LimitError where the monitor stops it.
    """
    plan, monitor = sweep_plan(network), monitor or PlaneMonitor(len(network.nodes))
    polygons, area = 0, 0.0  # finished
    try:
        pending = [start_mesh(network, frame)]
        while pending:
            state = pending.pop()
            monitor.set_others(polygons, area, pending)
            while state.node < len(network.nodes):
                monitor.check(state)
                if len(state.mesh) > 1 and len(state.corners) > max_corners:
                    state, second = state.split_in_half()
                    pending.append(second)
                    monitor.set_others(polygons, area, pending)
                else:
                    _evaluate_next(network, plan, state, max_corners, monitor)
            polygons, area = polygons + len(state.mesh), area + state.area
            monitor.check(state)
            yield state
    except DeadlineReached:
        if monitor.seconds is None:  # the deadline of a caller
            raise
        raise monitor.time_error() from None


def _evaluate_next(
    network: Network, plan: SweepPlan, state: MeshState, max_corners: int, monitor: PlaneMonitor
) -> None:
    """Evaluate the next node in place; a breaking node is left unfinished if there are too many corners."""
    i = state.node
    node = network.nodes[i]
    if i not in plan.last_use:
        state.live.pop(i, None)
    elif isinstance(node.op, Breaking):
        if not subdivide_at_node(network, state, node.op, max_corners, monitor):
            return
    elif not isinstance(node.op, Input):
        state.live[i] = node.op.evaluate(*(state.live[j] for j in node.inputs))
        state.bounds[i] = Magnitude.after(plan, i, [state.bounds[j] for j in node.inputs], state.eps)
    for j in set(node.inputs):
        if plan.last_use.get(j) == i:
            state.live.pop(j, None)
            state.bounds.pop(j, None)
    if isinstance(node.op, Breaking):
        state.recent = RecentValues(i, dict(state.live))
    state.node = i + 1


def subdivide_at_node(
    network: Network, state: MeshState, op: Breaking, max_corners: int, monitor: PlaneMonitor | None = None
) -> bool:
    """Subdivide the polygons along all separators of a breaking node and evaluate it, in place.

    Returns False if it was interrupted because there are too many corners; the rest is then pending in the state.
    """
    i = state.node
    monitor = monitor or PlaneMonitor(len(network.nodes))
    source = network.nodes[i].inputs[0]
    largest = max_magnitude(state.live[source], network.nodes[i].name)
    plan, bound = sweep_plan(network), state.bounds[source]
    threshold = state.filter.threshold(i, state.dtype, largest, bound)
    state.bounds[i] = Magnitude(largest * plan.value_gain[i], bound.errors * plan.error_gain[i])
    corners_before, edges_before = len(state.corners), len(state.mesh.edge_ends)
    separators = node_separators(network, i)
    for number in range(0 if state.pending is None else state.pending.number, len(separators)):
        # polygons that may be merged again must stay in one part
        limit = sys.maxsize if needs_merging(op) else max_corners
        subdivision = make_subdivision(
            network, state, number, separators[number], magnitude=largest, threshold=threshold
        )
        if not subdivision.run(limit, lambda: monitor.check(state, will_merge=needs_merging(op))):
            return False
    if needs_merging(op) and len(state.mesh.edge_ends) > edges_before:
        merge_polygons(network, state, op, corners_before, threshold)
    state.mesh.pack()
    state.live[i] = op.evaluate(state.live[source])
    return True
