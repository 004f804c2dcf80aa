"""How far differences at corners can be trusted, and where crossings on edges come to lie."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...arrays import Floats, Ints
from ...network.graph import Network
from ...numerics.plan import sweep_plan
from ...numerics.roundoff_probes import PROBE_COUNT
from ...numerics.static_filter import SAMPLE_POINTS, StaticFilter, sample_errors
from ...ops.base import Breaking
from ..dense.error_model import MAX_PROBE_BYTES, PROBE_SAFETY, estimate_errors
from ..dense.state import to_device
from .separators import Separator, operator_separators
from .state import MeshState, PlaneFrame

CORNER_RESOLUTION = 8 * float(np.finfo(np.float64).eps)  # weights this close are one corner


def sample_weights(frame: PlaneFrame) -> Floats:
    """Weights of a few points, corners and others, (n, k)."""
    corners = len(frame.coordinates)
    return np.concatenate(
        [np.eye(corners)[:SAMPLE_POINTS], np.random.default_rng(0).dirichlet(np.ones(corners), SAMPLE_POINTS)]
    )


def plane_filter(network: Network, frame: PlaneFrame) -> StaticFilter:
    """Errors as a few points of the plane have them, where that costs little."""
    if not sweep_plan(network).is_narrow:
        return StaticFilter()
    return StaticFilter(sample_errors(network, *frame.points(sample_weights(frame))))


def node_separators(network: Network, node: int) -> tuple[Separator, ...]:
    """What is compared at a breaking node."""
    op = network.nodes[node].op
    if not isinstance(op, Breaking):
        raise TypeError(f"{network.nodes[node].name} does not break")
    return operator_separators(op, network.nodes[network.nodes[node].inputs[0]].shape)


def separator_errors(network: Network, state: MeshState, node: int, contest: Separator, corners: Ints) -> Tensor:
    """Estimated errors of a node's differences at some corners, with a margin, (corners, m) on the CPU."""
    source = network.nodes[node].inputs[0]
    step = max(1, MAX_PROBE_BYTES // ((PROBE_COUNT + 1) * sweep_plan(network).bytes_live))
    found = []
    for at in range(0, max(len(corners), 1), step):
        points, errors = state.frame.points(state.weights.all[corners[at : at + step]])
        found.append(
            contest.difference_errors(estimate_errors(network, source, points, errors)).cpu().to(torch.float64)
            * PROBE_SAFETY
        )
    return torch.cat(found)


def refine_corner_errors(network: Network, state: MeshState, corners: Ints) -> None:
    """Say as closely as possible how far off some corners may be."""
    births, spots = state.corner_origins.all, state.corner_errors.all
    unknown = corners[births[corners, 3] == 0]
    births[unknown, 3] = 1
    kinds = births[unknown, 0] * (1 << 16) + births[unknown, 1]
    for kind in np.unique(kinds).tolist():
        some = unknown[kinds == kind]
        node, number = int(births[some[0], 0]), int(births[some[0], 1])
        if node < 0:
            spots[some, 1] = 0.0
            continue
        errors = separator_errors(network, state, node, node_separators(network, node)[number], some).numpy()
        with np.errstate(all="ignore"):
            spots[some, 1] = errors[np.arange(len(some)), births[some, 2]] / spots[some, 0]


class EdgeErrorBounds:
    """What placing crossings on edges wants to know: each edge is a line of its own, from 0 to 1, of two points."""

    def __init__(
        self,
        network: Network,
        state: MeshState,
        contest: Separator,
        columns: Ints,  # (m,) of the contest's differences, those that are looked at
        doubtful: float,
        largest: float,
        ends: Ints,  # (edges, 2)
    ) -> None:
        self.network, self.corner_state, self.contest, self.columns = network, state, contest, columns
        self.threshold, self.magnitude = doubtful, largest
        self.ends = ends.ravel()
        weights = state.weights.all[ends]
        self.length = np.abs(weights[:, 1] - weights[:, 0]).max(1)
        self.spots = np.zeros((len(self.ends), 3))  # alpha, rate and fuzz of both ends
        self.spots[1::2, 0] = 1.0
        with np.errstate(all="ignore"):
            self.spots[:, 2] = self._alpha_errors(np.arange(len(self.ends)))

    @property
    def state(self) -> EdgeErrorBounds:
        return self

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def bound(self, rows: Tensor) -> Tensor:
        corners, where = np.unique(self.ends[rows.numpy()], return_inverse=True)
        state = self.corner_state
        found = separator_errors(self.network, state, state.node, self.contest, corners)
        return found[:, torch.from_numpy(self.columns)][to_device(self.device, where)]

    def alpha_errors(self, rows: Ints) -> Floats:
        refine_corner_errors(self.network, self.corner_state, np.unique(self.ends[rows]))
        return self._alpha_errors(rows)

    def _alpha_errors(self, rows: Ints) -> Floats:
        """How near to an end, as a share of its edge, a crossing cannot be told from it."""
        return (self.corner_state.corner_errors.all[self.ends[rows], 1] + CORNER_RESOLUTION) / self.length[rows // 2]
