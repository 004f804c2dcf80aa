"""Merging of polygons that separators cut apart although the operator has the same activation pattern on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...arrays import Bools, Floats, Ints
from ...network.graph import Network
from ...numerics.point_errors import estimate_errors
from ...ops.base import Breaking, flatten_units
from ...tolerances import STRAIGHT_ANGLE_TOLERANCE
from ..dense.points import to_device
from .growable import connected_components
from .state import MeshState

MAX_BATCH_NUMBERS = 1 << 24  # numbers of a node's input that are processed at a time


def merge_polygons(network: Network, state: MeshState, op: Breaking, corners_before: int, threshold: float) -> None:
    """Dissolve edges that originate from the current node and separate equal activation patterns, in place.

    Args:
        network: The network.
        state: The state, at the breaking node.
        op: The operator of the node.
        corners_before: Number of corners before the node; only later ones may be removed.
        threshold: Values that differ by more than this are certainly different.
    """
    mesh = state.mesh
    inner = mesh.inner_edges()
    inner = inner[mesh.edge_origins[inner, 0] == state.node]
    redundant = np.zeros(len(mesh.edge_ends), dtype=bool)
    comparison = _PatternComparison(network, state, op, threshold)
    redundant[inner] = comparison.have_same_pattern(mesh.edge_sides[inner])
    redundant &= ~_would_be_nonconvex(state, redundant)
    if not redundant.any():
        return
    movable = np.zeros(len(state.corners), dtype=bool)
    movable[corners_before:] = True
    dissolved, _ = mesh.dissolve(redundant, movable)
    merged = state.select(*dissolved.select(np.arange(len(dissolved))))
    state.mesh, state.live, state.corners = merged.mesh, merged.live, merged.corners


def _would_be_nonconvex(state: MeshState, edges: Bools) -> Bools:
    """(edges,) which of the given edges belong to a union of polygons that is not convex.

    The second largest of several functions, for example, may be the same one on an L-shaped region.
    """
    mesh = state.mesh
    union = connected_components(len(mesh), *mesh.edge_sides[edges].T)
    polygons = np.flatnonzero(np.bincount(union, minlength=len(mesh))[union] > 1)
    index, size = mesh.ring_indices(polygons)
    start, corner = size.cumsum() - size, mesh.ring_corners[index]
    after, before = np.arange(len(index)) + 1, np.arange(len(index)) - 1
    after[start + size - 1], before[start] = start, start + size - 1
    position = state.coordinates[corner]
    ahead, back = position[after] - position, position[before] - position
    cross = ahead[:, 0] * back[:, 1] - ahead[:, 1] * back[:, 0]
    angle = np.arctan2(np.abs(cross), (ahead * back).sum(1))
    corner_union = union[polygons].repeat(size)
    key, which = np.unique(corner_union * len(state.corners) + corner, return_inverse=True)
    total_angle = np.bincount(which, weights=angle, minlength=len(key))
    is_reflex = (total_angle > np.pi + STRAIGHT_ANGLE_TOLERANCE) & (
        total_angle < 2 * np.pi - STRAIGHT_ANGLE_TOLERANCE  # a full turn is a corner inside the union
    )
    is_nonconvex = np.zeros(len(mesh), dtype=bool)
    is_nonconvex[key[is_reflex] // len(state.corners)] = True
    result = np.zeros(len(edges), dtype=bool)
    result[edges] = is_nonconvex[union[mesh.edge_sides[edges, 0]]]
    return result


@dataclass(frozen=True)
class _PatternComparison:
    """Compares the activation patterns of an operator inside polygons."""

    network: Network
    state: MeshState
    op: Breaking
    threshold: float

    @property
    def source(self) -> int:
        """The node that the operator reads."""
        return self.network.nodes[self.state.node].inputs[0]

    def have_same_pattern(self, pairs: Ints) -> Bools:
        """(n,) whether both polygons of each pair (n, 2) have the same pattern, up to ties."""
        polygons, which = np.unique(pairs, return_inverse=True)
        which = which.reshape(pairs.shape)
        weights = centroid_weights(self.state, polygons)
        x = self.state.live[self.source]
        step = MAX_BATCH_NUMBERS // max(1, x[0].numel()) + 1
        same_pattern = np.zeros(len(pairs), dtype=bool)
        inside = torch.cat(
            [centroid_values(x, self.state, polygons[at : at + step]) for at in range(0, len(polygons), step)]
        )
        pattern = self.op.activation_pattern(inside, inside)
        one, two = (to_device(x.device, which[:, k]) for k in (0, 1))
        for at in range(0, len(pairs), step):
            a, b = one[at : at + step], two[at : at + step]
            same = (pattern[a] == pattern[b]).flatten(1).all(1)
            for here, there in ((a, b), (b, a)):
                different = torch.nonzero(~same)[:, 0]
                if len(different):
                    same[different] = self._are_tied(inside, pattern, weights, here[different], there[different])
            same_pattern[at : at + step] = same.cpu().numpy()
        return same_pattern

    def _are_tied(
        self,
        inside: Tensor,  # (polygons, *in) the node's input at the centroids
        pattern: Tensor,  # (polygons, ...)
        weights: Floats,  # (polygons, k) of the centroids
        here: Tensor,  # (n,) polygons
        there: Tensor,  # (n,) other polygons
    ) -> Tensor:
        """(n,) whether the patterns of two polygons give the same values inside the first, up to rounding."""
        op, x = self.op, inside[here]
        difference = flatten_units(op.apply_affine(pattern[here], x) - op.apply_affine(pattern[there], x)).abs()
        tied = (difference <= self.threshold).all(1)
        rows = torch.nonzero(tied)[:, 0]
        if len(rows):
            points, point_errors = self.state.frame.points(weights[here[rows].cpu().numpy()])
            errors = estimate_errors(self.network, self.source, points, point_errors)
            bound = flatten_units(op.apply_affine(pattern[here[rows]], errors)) + flatten_units(
                op.apply_affine(pattern[there[rows]], errors)
            )
            tied[rows] = (difference[rows] <= bound.abs()).all(1)
        return tied


def centroid_weights(state: MeshState, polygons: Ints) -> Floats:
    """Convex weights (polygons, k) of the mean of each polygon's corners."""
    index, size = state.mesh.ring_indices(polygons)
    weights = state.corners.weights[state.mesh.ring_corners[index]]
    return np.add.reduceat(weights, size.cumsum() - size) / size[:, None]


def centroid_values(x: Tensor, state: MeshState, polygons: Ints) -> Tensor:
    """The mean of a tensor (corners, *shape) over the corners of polygons, (polygons, *shape)."""
    index, size = state.mesh.ring_indices(polygons)
    owner = to_device(x.device, np.arange(len(polygons)).repeat(size))
    total = x.new_zeros(len(polygons), *x.shape[1:])
    total.index_add_(0, owner, x[to_device(x.device, state.mesh.ring_corners[index])])
    return total / to_device(x.device, size).to(x.dtype).view(-1, *[1] * (x.dim() - 1))
