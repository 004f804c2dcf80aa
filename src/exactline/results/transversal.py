"""The restriction of a network to a line inside a plane, from the polygons that the line passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..arrays import Floats, Ints
from ..lines import Lines
from ..tolerances import EDGE_END_TOLERANCE
from .restriction import Restriction

if TYPE_CHECKING:
    from .plane import PlaneRestriction


@dataclass(frozen=True)
class EdgeCrossings:
    """The edges that a line crosses, in order of alpha; passing through a corner is one crossing."""

    alphas: Floats  # (k,) strictly between 0 and 1
    edges: Ints  # (k,) one edge for each alpha
    counts: Ints  # (k,) number of edges at each alpha


def line_in_plane(plane: PlaneRestriction, ends: Floats) -> Restriction:
    """Restrict the network to the line between two points of a plane, (2, 2) in plane coordinates."""
    geometry = plane.geometry
    end_points = plane.input_points(geometry.vertex_weights(ends))
    crossings = intersect_edges(geometry.unit_corners, plane.edges.numpy(), plane.sides.numpy(), ends / plane.extent)
    alphas = torch.from_numpy(np.concatenate([[0.0], crossings.alphas, [1.0]]))
    origins = torch.tensor([[-1, 0, 0]]).repeat(len(alphas), 1)
    origins[1:-1] = plane.origin_table[torch.from_numpy(crossings.edges)]
    origins[1:-1, 2] = torch.maximum(origins[1:-1, 2], torch.from_numpy(crossings.counts) // 2)
    values = None
    if plane.stored_values is not None:
        values = plane.at(ends[0] + alphas.numpy()[:, None] * (ends[1] - ends[0]))
    return Restriction(
        alphas=alphas,
        lines=Lines(tuple(p[:1] for p in end_points), tuple(p[1:] for p in end_points)),
        origin_table=origins,
        ambiguous_per_piece=torch.zeros(len(alphas) - 1, dtype=torch.int64),
        stored_values=values if values is None or isinstance(values, tuple) else (values,),
        names=plane.names,
        network=plane.network,
        units=plane.units,
        several_inputs=plane.several_inputs,
        several_outputs=plane.several_outputs,
        dtype=plane.dtype,
        rewrite=plane.rewrite,
        until=plane.until,
        checksum=plane.checksum,
    )


def intersect_edges(
    corners: Floats,  # (corners, 2)
    edges: Ints,  # (edges, 2) corners
    sides: Ints,  # (edges, 2) polygons, -1 outside
    line: Floats,  # (2, 2) both ends
) -> EdgeCrossings:
    """Find where a line crosses the inner edges of a plane; an edge along the line counts only by its corners."""
    extent = float(np.ptp(corners, axis=0).max()) + float(np.abs(corners).max())
    direction = line[1] - line[0]
    length = float(np.hypot(*direction))
    if length == 0:
        return EdgeCrossings(np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    distance = ((corners - line[0]) @ np.array([-direction[1], direction[0]])) / length  # signed, from the line
    position = ((corners - line[0]) @ direction) / length**2  # alpha of the foot on the line
    distance = np.where(np.abs(distance) <= EDGE_END_TOLERANCE * extent, 0.0, distance)
    inner = np.flatnonzero((sides >= 0).all(1))
    first, second = distance[edges[inner, 0]], distance[edges[inner, 1]]
    part = np.zeros(len(inner))
    crosses = ((first > 0) & (second < 0)) | ((first < 0) & (second > 0))
    part[crosses] = np.abs(first[crosses]) / (np.abs(first[crosses]) + np.abs(second[crosses]))
    touches = (first == 0) ^ (second == 0)
    part[touches & (second == 0)] = 1.0
    met = np.flatnonzero(crosses | touches)
    edge = inner[met]
    alpha = position[edges[edge, 0]] * (1 - part[met]) + position[edges[edge, 1]] * part[met]
    slack = EDGE_END_TOLERANCE * extent / length
    is_inside = (alpha > slack) & (alpha < 1 - slack)
    alpha, edge = alpha[is_inside], edge[is_inside]
    order = np.argsort(alpha, kind="stable")
    alpha, edge = alpha[order], edge[order]
    is_lead = np.ones(len(alpha), dtype=bool)
    is_lead[1:] = alpha[1:] - alpha[:-1] > slack
    lead = np.flatnonzero(is_lead)
    return EdgeCrossings(alpha[lead], edge[lead], np.diff(np.append(lead, len(alpha))))
