"""Joining polygons that were cut apart though their maxima have the same leaders in the end."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...arrays import Floats, Ints
from ...network.graph import Network
from ...ops.base import Breaking, flatten_units
from ..dense.error_model import PROBE_SAFETY, estimate_errors
from ..dense.state import to_device
from .growable import Mask, connected_components
from .state import MeshState

STRAIGHT_ANGLE_TOLERANCE = 1e-6  # how far, as an angle, a corner may be from straight by rounding
MAX_BATCH_NUMBERS = 1 << 24  # numbers of a node's input looked at together


def merge_polygons(network: Network, state: MeshState, op: Breaking, before: int, doubtful: float) -> None:
    """Dissolve the edges born at this node on both sides of which the operator follows one pattern."""
    mesh = state.mesh
    inner = mesh.inner_edges()
    inner = inner[mesh.origins[inner, 0] == state.node]
    false = np.zeros(len(mesh.ends), dtype=bool)
    false[inner] = _have_same_pattern(network, state, op, mesh.sides[inner], doubtful)
    false &= ~_would_be_nonconvex(state, false)
    if not false.any():
        return
    movable = np.zeros(len(state.weights), dtype=bool)
    movable[before:] = True
    joined, _ = mesh.dissolve(false, movable)
    made, corners = joined.select(np.arange(len(joined)))
    kept = state.select(made, corners)
    state.mesh, state.live = kept.mesh, kept.live
    state.weights, state.corner_origins, state.corner_errors = kept.weights, kept.corner_origins, kept.corner_errors


def _would_be_nonconvex(state: MeshState, edges: Mask) -> Mask:
    """Edges whose polygons, all that hang together joined, would not be convex, (edges,).

    The second largest of several lines may be one and the same on an L: such polygons stay apart.
    """
    mesh = state.mesh
    company = connected_components(len(mesh), *mesh.sides[edges].T)
    some = np.flatnonzero(np.bincount(company, minlength=len(mesh))[company] > 1)
    places, count = mesh.places(some)
    first, corner = count.cumsum() - count, mesh.corners[places]
    after, before = np.arange(len(places)) + 1, np.arange(len(places)) - 1
    after[first + count - 1], before[first] = first, first + count - 1
    spot = state.coordinates[corner]
    ahead, back = spot[after] - spot, spot[before] - spot
    cross = ahead[:, 0] * back[:, 1] - ahead[:, 1] * back[:, 0]
    angle = np.arctan2(np.abs(cross), (ahead * back).sum(1))
    owner = company[some].repeat(count)
    key, which = np.unique(owner * len(state.weights) + corner, return_inverse=True)
    total = np.bincount(which, weights=angle, minlength=len(key))
    reflex = (total > np.pi + STRAIGHT_ANGLE_TOLERANCE) & (total < 2 * np.pi - STRAIGHT_ANGLE_TOLERANCE)
    bad = np.zeros(len(mesh), dtype=bool)
    bad[key[reflex] // len(state.weights)] = True
    found = np.zeros(len(edges), dtype=bool)
    found[edges] = bad[company[mesh.sides[edges, 0]]]
    return found


def _have_same_pattern(network: Network, state: MeshState, op: Breaking, pairs: Ints, doubtful: float) -> Mask:
    """Whether both polygons of each pair follow one pattern, (pairs,)."""
    source = network.nodes[state.node].inputs[0]
    polygons, which = np.unique(pairs, return_inverse=True)
    which = which.reshape(pairs.shape)
    weights = centroid_weights(state, polygons)
    x = state.live[source]
    wide = max(1, x[0].numel())
    found = np.zeros(len(pairs), dtype=bool)
    middle = [
        centroid_values(x, state, polygons[at : at + MAX_BATCH_NUMBERS // wide + 1])
        for at in range(0, len(polygons), MAX_BATCH_NUMBERS // wide + 1)
    ]
    inside = torch.cat(middle)
    pattern = op.activation_pattern(inside, inside)
    one, two = (to_device(x.device, which[:, k]) for k in (0, 1))
    step = MAX_BATCH_NUMBERS // wide + 1
    for at in range(0, len(pairs), step):
        a, b = one[at : at + step], two[at : at + step]
        same = (pattern[a] == pattern[b]).flatten(1).all(1)
        for here, there in ((a, b), (b, a)):  # two lines that are equal inside a polygon are one line
            apart = torch.nonzero(~same)[:, 0]
            if len(apart):
                pair = here[apart], there[apart]
                same[apart] = _patterns_are_tied(network, op, state, source, doubtful, inside, pattern, weights, *pair)
        found[at : at + step] = same.cpu().numpy()
    return found


def _patterns_are_tied(
    network: Network,
    op: Breaking,
    state: MeshState,
    source: int,
    doubtful: float,
    inside: Tensor,  # (polygons, *in)
    pattern: Tensor,  # (polygons, ...)
    weights: Floats,  # (polygons, k)
    here: Tensor,  # (n,)
    there: Tensor,  # (n,)
) -> Tensor:
    """Whether, inside a polygon, another one's pattern cannot be told from its own, (n,)."""
    x = inside[here]
    gap = flatten_units(op.apply_affine(pattern[here], x) - op.apply_affine(pattern[there], x)).abs()
    close = (gap <= doubtful).all(1)
    rows = torch.nonzero(close)[:, 0]
    if len(rows):
        points, errors = state.frame.points(weights[here[rows].cpu().numpy()])
        blur = estimate_errors(network, source, points, errors)
        bound = flatten_units(op.apply_affine(pattern[here[rows]], blur)) + flatten_units(
            op.apply_affine(pattern[there[rows]], blur)
        )
        close[rows] = (gap[rows] <= PROBE_SAFETY * bound.abs()).all(1)
    return close


def centroid_weights(state: MeshState, polygons: Ints) -> Floats:
    """Weights of a point inside each polygon, (polygons, k)."""
    places, count = state.mesh.places(polygons)
    weights = state.weights.all[state.mesh.corners[places]]
    return np.add.reduceat(weights, count.cumsum() - count) / count[:, None]


def centroid_values(x: Tensor, state: MeshState, polygons: Ints) -> Tensor:
    """The mean of a tensor over the corners of polygons, (polygons, *shape)."""
    places, count = state.mesh.places(polygons)
    owner = to_device(x.device, np.arange(len(polygons)).repeat(count))
    total = x.new_zeros(len(polygons), *x.shape[1:])
    total.index_add_(0, owner, x[to_device(x.device, state.mesh.corners[places])])
    return total / to_device(x.device, count).to(x.dtype).view(-1, *[1] * (x.dim() - 1))
