"""Errors of differences at corners, and of the positions of crossings on edges."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...arrays import Floats, Ints
from ...network.graph import Network
from ...numerics.plan import sweep_plan
from ...numerics.point_errors import RecentErrors, estimate_errors, points_per_estimate
from ...numerics.static_filter import StaticFilter, sample_errors
from ...ops.base import Breaking
from ...tolerances import ALPHA_RESOLUTION, CORNER_RESOLUTION, SAMPLE_POINTS
from ..dense.breaks import SortedCrossings
from ..dense.points import PointTable, to_device
from .separators import Separator, operator_separators
from .state import MeshState, PlaneFrame


def sample_weights(frame: PlaneFrame) -> Floats:
    """Convex weights (n, k) of sample points: vertices and random inner points."""
    corners = len(frame.coordinates)
    return np.concatenate(
        [np.eye(corners)[:SAMPLE_POINTS], np.random.default_rng(0).dirichlet(np.ones(corners), SAMPLE_POINTS)]
    )


def plane_filter(network: Network, frame: PlaneFrame) -> StaticFilter:
    """The floating-point filter of a plane, calibrated by sample points where that is cheap."""
    if not sweep_plan(network).is_narrow:
        return StaticFilter()
    return StaticFilter(sample_errors(network, *frame.points(sample_weights(frame))))


def node_separators(network: Network, node: int) -> tuple[Separator, ...]:
    """The separators of a breaking node."""
    op = network.nodes[node].op
    if not isinstance(op, Breaking):
        raise TypeError(f"{network.nodes[node].name} does not break")
    return operator_separators(op, network.nodes[network.nodes[node].inputs[0]].shape)


def separator_errors(network: Network, state: MeshState, node: int, separator: Separator, corners: Ints) -> Tensor:
    """Error bounds (corners, m) of a separator's differences at some corners, on the CPU."""
    source = network.nodes[node].inputs[0]
    step = points_per_estimate(network)
    parts = []
    for at in range(0, max(len(corners), 1), step):
        points, point_errors = state.frame.points(state.corners.weights[corners[at : at + step]])
        errors = estimate_errors(network, source, points, point_errors)
        parts.append(separator.difference_errors(errors).cpu().to(torch.float64))
    return torch.cat(parts)


def recent_separator_errors(
    network: Network, state: MeshState, node: int, separator: Separator, corners: Ints
) -> Tensor | None:
    """Lower bounds (corners, m) of `separator_errors`, much cheaper: the errors made since the last breaking node.

    None where the values at that node are not known at all corners.
    """
    recent = state.recent
    if recent is None or len(next(iter(recent.values.values()))) != len(state.corners):
        return None
    source = network.nodes[node].inputs[0]
    step = points_per_estimate(network)
    parts = []
    for at in range(0, max(len(corners), 1), step):
        rows = corners[at : at + step]
        values = {i: value[to_device(value.device, rows)] for i, value in recent.values.items()}
        errors = RecentErrors(network, recent.node, values).advance_to(source)
        parts.append(separator.difference_errors(errors).cpu().to(torch.float64))
    return torch.cat(parts)


def refine_corner_errors(network: Network, state: MeshState, corners: Ints) -> None:
    """Estimate the position errors of some corners, in the corner table, where that was not done before."""
    table = state.corners
    unknown = corners[table.is_refined[corners] == 0]
    table.is_refined[unknown] = 1
    keys = table.node[unknown] * (1 << 16) + table.separator[unknown]
    for key in np.unique(keys).tolist():
        some = unknown[keys == key]
        node, number = int(table.node[some[0]]), int(table.separator[some[0]])
        if node < 0:
            table.error[some] = 0.0
            continue
        errors = separator_errors(network, state, node, node_separators(network, node)[number], some).numpy()
        with np.errstate(all="ignore"):
            table.error[some] = errors[np.arange(len(some)), table.difference[some]] / table.slope[some]


class EdgeErrorBounds:
    """The errors that `place_breaks` needs, for edges: each edge is a line of its own with two points, at 0 and 1.

    Args:
        network: The network.
        state: The state.
        separator: The separator whose differences cross zero.
        columns: (m,) the differences that are considered.
        threshold: Differences further than this from zero are unambiguous.
        magnitude: The largest absolute value of the node's input.
        edge_ends: (edges, 2) corners at the ends of the edges.
    """

    def __init__(
        self,
        network: Network,
        state: MeshState,
        separator: Separator,
        columns: Ints,
        *,
        threshold: float,
        magnitude: float,
        edge_ends: Ints,
    ) -> None:
        self.network, self.state, self.separator, self.columns = network, state, separator, columns
        self.threshold, self.magnitude = threshold, magnitude
        self.corners = edge_ends.ravel()  # (2 * edges,) the corner at each point
        weights = state.corners.weights[edge_ends]
        self.length = np.abs(weights[:, 1] - weights[:, 0]).max(1)  # (edges,) in weights
        points = len(self.corners)
        self.points = PointTable.without_origins(np.zeros(points, dtype=np.int64), np.zeros(points))
        self.points.alpha[1::2] = 1.0

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def bound(self, rows: Tensor) -> Tensor:
        corners, where = np.unique(self.corners[rows.numpy()], return_inverse=True)
        errors = separator_errors(self.network, self.state, self.state.node, self.separator, corners)
        return errors[:, torch.from_numpy(self.columns)][to_device(self.device, where)]

    def locate(self, found: SortedCrossings, alpha: Floats) -> None:
        return None  # no corner is exact

    def coinciding_points(self, piece: Ints, from_left: Floats, from_right: Floats) -> Ints | None:
        near = np.zeros(len(piece), dtype=bool)
        for point, distance in ((piece, from_left), (piece + 1, from_right)):
            near |= distance <= self._alpha_errors(point) + ALPHA_RESOLUTION
        if not near.any():
            return None
        ends = np.concatenate([piece[near], piece[near] + 1])
        refine_corner_errors(self.network, self.state, np.unique(self.corners[ends]))
        nearest = np.full_like(piece, -1)
        for point, distance in ((piece + 1, from_right), (piece, from_left)):  # the left one counts if both do
            coincides = near & (distance <= self._alpha_errors(point) + ALPHA_RESOLUTION)
            nearest[coincides] = point[coincides]
        return nearest

    def _alpha_errors(self, rows: Ints) -> Floats:
        """(rows,) the share of its edge within which a crossing coincides with a corner."""
        return (self.state.corners.error[self.corners[rows]] + CORNER_RESOLUTION) / self.length[rows // 2]
