"""Joining polygons that were cut apart though their maxima have the same leaders in the end."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...arrays import Floats, Ints
from ...network.graph import Network
from ...ops.base import Breaking, flat
from ..dense.error_model import SAFETY, estimate
from ..dense.state import on
from .growable import Mask, components
from .state import State

STRAIGHT = 1e-6  # how far, as an angle, a corner may be from straight by rounding
LOOK = 1 << 24  # numbers of a node's input looked at together


def merged(network: Network, state: State, op: Breaking, before: int, doubtful: float) -> None:
    """Dissolve the edges born at this node on both sides of which the operator follows one pattern."""
    mesh = state.mesh
    inner = mesh.neighbours()
    inner = inner[mesh.born[inner, 0] == state.node]
    false = np.zeros(len(mesh.ends), dtype=bool)
    false[inner] = _alike(network, state, op, mesh.sides[inner], doubtful)
    false &= ~_bent(state, false)
    if not false.any():
        return
    movable = np.zeros(len(state.weights), dtype=bool)
    movable[before:] = True
    joined, _ = mesh.dissolved(false, movable)
    made, corners = joined.some(np.arange(len(joined)))
    kept = state.only(made, corners)
    state.mesh, state.live = kept.mesh, kept.live
    state.weights, state.births, state.spots = kept.weights, kept.births, kept.spots


def _bent(state: State, edges: Mask) -> Mask:
    """Edges whose polygons, all that hang together joined, would not be convex, (edges,).

    The second largest of several lines may be one and the same on an L: such polygons stay apart.
    """
    mesh = state.mesh
    company = components(len(mesh), *mesh.sides[edges].T)
    some = np.flatnonzero(np.bincount(company, minlength=len(mesh))[company] > 1)
    places, count = mesh.places(some)
    first, corner = count.cumsum() - count, mesh.corners[places]
    after, before = np.arange(len(places)) + 1, np.arange(len(places)) - 1
    after[first + count - 1], before[first] = first, first + count - 1
    spot = state.places[corner]
    ahead, back = spot[after] - spot, spot[before] - spot
    cross = ahead[:, 0] * back[:, 1] - ahead[:, 1] * back[:, 0]
    angle = np.arctan2(np.abs(cross), (ahead * back).sum(1))
    owner = company[some].repeat(count)
    key, which = np.unique(owner * len(state.weights) + corner, return_inverse=True)
    total = np.bincount(which, weights=angle, minlength=len(key))
    reflex = (total > np.pi + STRAIGHT) & (total < 2 * np.pi - STRAIGHT)
    bad = np.zeros(len(mesh), dtype=bool)
    bad[key[reflex] // len(state.weights)] = True
    found = np.zeros(len(edges), dtype=bool)
    found[edges] = bad[company[mesh.sides[edges, 0]]]
    return found


def _alike(network: Network, state: State, op: Breaking, pairs: Ints, doubtful: float) -> Mask:
    """Whether both polygons of each pair follow one pattern, (pairs,)."""
    source = network.nodes[state.node].inputs[0]
    polygons, which = np.unique(pairs, return_inverse=True)
    which = which.reshape(pairs.shape)
    weights = centres(state, polygons)
    x = state.live[source]
    wide = max(1, x[0].numel())
    found = np.zeros(len(pairs), dtype=bool)
    middle = [mixed(x, state, polygons[at : at + LOOK // wide + 1]) for at in range(0, len(polygons), LOOK // wide + 1)]
    inside = torch.cat(middle)
    pattern = op.branch(inside, inside)
    one, two = (on(x.device, which[:, k]) for k in (0, 1))
    step = LOOK // wide + 1
    for at in range(0, len(pairs), step):
        a, b = one[at : at + step], two[at : at + step]
        same = (pattern[a] == pattern[b]).flatten(1).all(1)
        for here, there in ((a, b), (b, a)):  # two lines that are equal inside a polygon are one line
            apart = torch.nonzero(~same)[:, 0]
            if len(apart):
                pair = here[apart], there[apart]
                same[apart] = _tied(network, op, state, source, doubtful, inside, pattern, weights, *pair)
        found[at : at + step] = same.cpu().numpy()
    return found


def _tied(
    network: Network,
    op: Breaking,
    state: State,
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
    gap = flat(op.follow(pattern[here], x) - op.follow(pattern[there], x)).abs()
    close = (gap <= doubtful).all(1)
    rows = torch.nonzero(close)[:, 0]
    if len(rows):
        points, errors = state.frame.points(weights[here[rows].cpu().numpy()])
        blur = estimate(network, source, points, errors)
        bound = flat(op.follow(pattern[here[rows]], blur)) + flat(op.follow(pattern[there[rows]], blur))
        close[rows] = (gap[rows] <= SAFETY * bound.abs()).all(1)
    return close


def centres(state: State, polygons: Ints) -> Floats:
    """Weights of a point inside each polygon, (polygons, k)."""
    places, count = state.mesh.places(polygons)
    weights = state.weights.all[state.mesh.corners[places]]
    return np.add.reduceat(weights, count.cumsum() - count) / count[:, None]


def mixed(x: Tensor, state: State, polygons: Ints) -> Tensor:
    """The mean of a tensor over the corners of polygons, (polygons, *shape)."""
    places, count = state.mesh.places(polygons)
    owner = on(x.device, np.arange(len(polygons)).repeat(count))
    total = x.new_zeros(len(polygons), *x.shape[1:])
    total.index_add_(0, owner, x[on(x.device, state.mesh.corners[places])])
    return total / on(x.device, count).to(x.dtype).view(-1, *[1] * (x.dim() - 1))
