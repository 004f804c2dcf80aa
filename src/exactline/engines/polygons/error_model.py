"""How far differences at corners can be trusted, and where crossings on edges come to lie."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...arrays import Floats, Ints
from ...network.graph import Network
from ...numerics.plan import plan
from ...numerics.roundoff_probes import PROBES
from ...numerics.static_filter import SAMPLES, Usual, usual_errors
from ...ops.base import Breaking
from ..dense.error_model import LOOK, SAFETY, estimate
from ..dense.state import on
from .separators import Contest, separators_of
from .state import Frame, State

NEAREST = 8 * float(np.finfo(np.float64).eps)  # weights this close are one corner


def sampled(frame: Frame) -> Floats:
    """Weights of a few points, corners and others, (n, k)."""
    corners = len(frame.places)
    return np.concatenate([np.eye(corners)[:SAMPLES], np.random.default_rng(0).dirichlet(np.ones(corners), SAMPLES)])


def usual(network: Network, frame: Frame) -> Usual:
    """Errors as a few points of the plane have them, where that costs little."""
    if not plan(network).narrow:
        return Usual()
    return Usual(usual_errors(network, *frame.points(sampled(frame))))


def contests_of(network: Network, node: int) -> tuple[Contest, ...]:
    """What is compared at a breaking node."""
    op = network.nodes[node].op
    if not isinstance(op, Breaking):
        raise TypeError(f"{network.nodes[node].name} does not break")
    return separators_of(op, network.nodes[network.nodes[node].inputs[0]].shape)


def blurred(network: Network, state: State, node: int, contest: Contest, corners: Ints) -> Tensor:
    """Estimated errors of a node's differences at some corners, with a margin, (corners, m) on the CPU."""
    source = network.nodes[node].inputs[0]
    step = max(1, LOOK // ((PROBES + 1) * plan(network).bytes_live))
    found = []
    for at in range(0, max(len(corners), 1), step):
        points, errors = state.frame.points(state.weights.all[corners[at : at + step]])
        found.append(contest.blur(estimate(network, source, points, errors)).cpu().to(torch.float64) * SAFETY)
    return torch.cat(found)


def sharpened(network: Network, state: State, corners: Ints) -> None:
    """Say as closely as possible how far off some corners may be."""
    births, spots = state.births.all, state.spots.all
    unknown = corners[births[corners, 3] == 0]
    births[unknown, 3] = 1
    kinds = births[unknown, 0] * (1 << 16) + births[unknown, 1]
    for kind in np.unique(kinds).tolist():
        some = unknown[kinds == kind]
        node, number = int(births[some[0], 0]), int(births[some[0], 1])
        if node < 0:
            spots[some, 1] = 0.0
            continue
        errors = blurred(network, state, node, contests_of(network, node)[number], some).numpy()
        with np.errstate(all="ignore"):
            spots[some, 1] = errors[np.arange(len(some)), births[some, 2]] / spots[some, 0]


class EdgeNoise:
    """What placing crossings on edges wants to know: each edge is a line of its own, from 0 to 1, of two points."""

    def __init__(
        self,
        network: Network,
        state: State,
        contest: Contest,
        columns: Ints,  # (m,) of the contest's differences, those that are looked at
        doubtful: float,
        largest: float,
        ends: Ints,  # (edges, 2)
    ) -> None:
        self.network, self.corner_state, self.contest, self.columns = network, state, contest, columns
        self.doubtful, self.largest = doubtful, largest
        self.ends = ends.ravel()
        weights = state.weights.all[ends]
        self.length = np.abs(weights[:, 1] - weights[:, 0]).max(1)
        self.spots = np.zeros((len(self.ends), 3))  # alpha, rate and fuzz of both ends
        self.spots[1::2, 0] = 1.0
        with np.errstate(all="ignore"):
            self.spots[:, 2] = self._fuzz(np.arange(len(self.ends)))

    @property
    def state(self) -> EdgeNoise:
        return self

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    def bound(self, rows: Tensor) -> Tensor:
        corners, where = np.unique(self.ends[rows.numpy()], return_inverse=True)
        state = self.corner_state
        found = blurred(self.network, state, state.node, self.contest, corners)
        return found[:, torch.from_numpy(self.columns)][on(self.device, where)]

    def fuzz(self, rows: Ints) -> Floats:
        sharpened(self.network, self.corner_state, np.unique(self.ends[rows]))
        return self._fuzz(rows)

    def _fuzz(self, rows: Ints) -> Floats:
        """How near to an end, as a share of its edge, a crossing cannot be told from it."""
        return (self.corner_state.spots.all[self.ends[rows], 1] + NEAREST) / self.length[rows // 2]
