"""Positions of crossings that may share a break, and their errors: evaluated alike by every engine.

An engine computes crossings from values at points of its own, so that the positions of two engines differ by rounding
errors, and so would their decisions. Therefore the difference that crosses zero is evaluated again, with its error, at
the nearest of a few alphas, which is the same one for all engines.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..lines import Lines
from ..network.graph import Network
from ..ops.base import flatten_units
from ..tolerances import POSITION_GRIDS
from .plan import sweep_plan
from .point_errors import PointErrors, points_per_estimate

# Points of narrow networks that are evaluated together at least: a product rounds a point alike in all such batches.
MIN_BATCH_POINTS = 8


@dataclass(frozen=True, eq=False)
class CloseCrossings:
    """Crossings of one node that are close to each other, on pieces without a break of an earlier node."""

    line: Tensor  # (k,)
    alpha: Tensor  # (k,)
    left: Tensor  # (k,) alpha at the left end of the piece
    right: Tensor  # (k,) and at the right end
    element: Tensor  # (k,) the input element ...
    partner: Tensor  # (k,) ... minus this element, or, where it is -1, ...
    levels: Tensor  # (k, m) ... minus the nearest of these constants, crosses zero
    slope: Tensor  # (k,) of that difference; 0 where its sign is not known


def locate_crossings(
    network: Network, node: int, lines: Lines, crossings: CloseCrossings, max_points: int | None = None
) -> tuple[Tensor, Tensor]:
    """The alphas (k,) of crossings of a node's values, evaluated again, and error bounds (k,) of what crosses zero.

    A crossing that would leave its piece, or whose slope is not known, keeps its alpha.
    """
    alpha, slope, dtype = crossings.alpha, crossings.slope, network.dtype
    at = _choose_points(crossings) if dtype == torch.float64 else alpha
    places, where = torch.unique(torch.stack([crossings.line.to(at.dtype), at]), dim=1, return_inverse=True)
    values, bounds = torch.empty_like(at), torch.empty_like(at)
    step = max_points or points_per_estimate(network)
    for first in range(0, places.shape[1], step):
        line, alphas = places[:, first : first + step]
        value, bound = evaluate_with_errors(network, node, lines, line.to(torch.int64), alphas)
        here = ((where >= first) & (where < first + step)).nonzero()[:, 0]
        one, other = (where[here] - first, crossings.element[here]), (where[here] - first, crossings.partner[here])
        has_partner = other[1] >= 0
        other = other[0], other[1].clamp(min=0)
        level = _nearest(value[one], crossings.levels[here])
        values[here] = (value[one] - torch.where(has_partner, value[other], level)).to(at)
        bounds[here] = (bound[one] + bound[other] * has_partner).to(at)
    located = at - values / slope
    is_inside = (located > crossings.left) & (located < crossings.right) & (slope != 0)
    return torch.where(is_inside & (dtype == torch.float64), located, alpha), bounds


def _choose_points(crossings: CloseCrossings) -> Tensor:
    """The nearest point (k,) of the coarsest grid that has one inside the piece; otherwise the crossing itself."""
    chosen = crossings.alpha
    for grid in reversed(POSITION_GRIDS):
        at = (crossings.alpha / grid).round() * grid
        is_inside = (at > crossings.left) & (at < crossings.right)  # at the ends of a line, points are not rounded
        chosen = torch.where(is_inside, at, chosen)
    return chosen


def _nearest(values: Tensor, levels: Tensor) -> Tensor:
    """Of levels (k, m) the nearest to each of some values (k,)."""
    levels = levels.to(values)
    return levels.gather(1, (values[:, None] - levels).abs().argmin(1, keepdim=True))[:, 0]


def evaluate_with_errors(
    network: Network, node: int, lines: Lines, line: Tensor, alphas: Tensor
) -> tuple[Tensor, Tensor]:
    """Values and error bounds (k, elements) of a node at positions (k,) on lines, which depend on no other points."""
    count = len(alphas)
    if sweep_plan(network).is_narrow and 0 < count < MIN_BATCH_POINTS:
        line, alphas = (torch.cat([t, t[-1:].expand(MIN_BATCH_POINTS - count)]) for t in (line, alphas))
    estimate = PointErrors(network, *lines.at(line, alphas))
    bounds = flatten_units(estimate.advance_to(node))
    return flatten_units(estimate.values[node])[:count], bounds[:count]
