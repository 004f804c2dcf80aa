"""Assembly of the parts of a plane: corners and edges on both sides of a seam become one again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...arrays import Floats, Ints
from ...network.graph import Network
from ...tolerances import SEAM_TOLERANCE
from .growable import connected_components
from .state import MeshState


@dataclass(frozen=True)
class PolygonTable:
    """A plane divided into convex polygons; polygon ``i`` has the corners ``rings[offsets[i]:offsets[i + 1]]``."""

    weights: Floats  # (corners, k) convex weights of the k vertices
    ends: Ints  # (edges, 2) corners
    origins: Ints  # (edges, 3) node or -1, unit, count
    sides: Ints  # (edges, 2) polygons to the left and to the right, -1 outside
    offsets: Ints  # (polygons + 1,)
    rings: Ints  # (ring corners,) corners of all polygons, counterclockwise, one polygon after another
    values: tuple[Tensor, ...] | None  # (corners, *out) each
    ambiguous: int  # pairs of a polygon and a unit that is ambiguous on it


class PlaneAssembler:
    """Collects finished parts, and keeps of each only what the answer needs."""

    def __init__(self, network: Network, keep_values: bool) -> None:
        self.network, self.keep_values = network, keep_values
        self.parts: list[PolygonTable] = []
        self.seams: list[Ints] = []  # by part, (edges,): the seam that an edge belongs to, or -1
        self.polygons = 0

    def add(self, state: MeshState) -> None:
        """Add one part."""
        mesh = state.mesh
        values = tuple(state.live[i].cpu() for i in self.network.outputs) if self.keep_values else None
        mesh.pack()
        part = PolygonTable(
            weights=state.corners.weights.copy(),
            ends=mesh.edge_ends.copy(),
            origins=mesh.edge_origins.copy(),
            sides=mesh.edge_sides.copy(),
            offsets=np.append(mesh.ring_start, len(mesh.ring_corners)),
            rings=mesh.ring_corners.copy(),
            values=values,
            ambiguous=state.ambiguous,
        )
        self.parts.append(part)
        self.seams.append(mesh.edge_seam.copy())
        self.polygons += len(mesh)

    def assemble(self, coordinates: Floats) -> PolygonTable:
        """All parts as one table, given the plane coordinates (k, 2) of the vertices."""
        if len(self.parts) == 1:
            return self.parts[0]
        table, seam = _concatenate(self.parts), np.concatenate(self.seams)
        seam_edges = np.flatnonzero(seam >= 0)
        if not len(seam_edges):
            return table
        return _sew(table, seam, seam_edges, table.weights @ coordinates)


def _concatenate(parts: list[PolygonTable]) -> PolygonTable:
    """One table of all parts, renumbered but not sewn together."""
    first_corner = np.cumsum([0] + [len(p.weights) for p in parts])
    first_polygon = np.cumsum([0] + [len(p.offsets) - 1 for p in parts])
    first_row = np.cumsum([0] + [len(p.rings) for p in parts])
    values = None
    if parts[0].values is not None:
        values = tuple(torch.cat(output) for output in zip(*(p.values for p in parts if p.values), strict=True))
    offsets = np.concatenate([p.offsets[:-1] + at for p, at in zip(parts, first_row, strict=False)])
    return PolygonTable(
        weights=np.concatenate([p.weights for p in parts]),
        ends=np.concatenate([p.ends + at for p, at in zip(parts, first_corner, strict=False)]),
        origins=np.concatenate([p.origins for p in parts]),
        sides=np.concatenate(
            [np.where(p.sides < 0, -1, p.sides + at) for p, at in zip(parts, first_polygon, strict=False)]
        ),
        offsets=np.append(offsets, first_row[-1]),
        rings=np.concatenate([p.rings + at for p, at in zip(parts, first_corner, strict=False)]),
        values=values,
        ambiguous=sum(p.ambiguous for p in parts),
    )


def _sew(table: PolygonTable, seam: Ints, seam_edges: Ints, coordinates: Floats) -> PolygonTable:
    """Merge the corners and edges on both sides of each seam.

    Args:
        table: All parts.
        seam: (edges,) the seam that an edge belongs to, or -1.
        seam_edges: The edges that belong to one.
        coordinates: (corners, 2) plane coordinates.
    """
    label = _match_corners(table, seam, seam_edges, coordinates)
    kept, new_corner = np.unique(label, return_inverse=True)
    ends = new_corner[table.ends]
    key = np.stack([seam[seam_edges], ends[seam_edges].min(1), ends[seam_edges].max(1)], 1)
    _, first, group = np.unique(key, axis=0, return_index=True, return_inverse=True)
    representative, duplicate = seam_edges[first[group.ravel()]], seam_edges
    is_duplicate = representative != duplicate
    representative, duplicate = representative[is_duplicate], duplicate[is_duplicate]
    sides = table.sides.copy()
    polygon = sides[duplicate].max(1)  # a seam edge has a polygon on one side only
    sides[representative, np.where(sides[representative, 0] < 0, 0, 1)] = polygon
    stays = np.ones(len(ends), dtype=bool)
    stays[duplicate] = False
    return PolygonTable(
        weights=table.weights[kept],
        ends=ends[stays],
        origins=table.origins[stays],
        sides=sides[stays],
        offsets=table.offsets,
        rings=new_corner[table.rings],
        values=None if table.values is None else tuple(v[torch.from_numpy(kept)] for v in table.values),
        ambiguous=table.ambiguous,
    )


def _match_corners(table: PolygonTable, seam: Ints, seam_edges: Ints, coordinates: Floats) -> Ints:
    """(corners,) the lowest number among the corners that coincide on a seam."""
    seams, which = np.unique(seam[seam_edges], return_inverse=True)
    first_edge = np.zeros(len(seams), dtype=np.int64)
    first_edge[which[::-1]] = seam_edges[::-1]
    direction = coordinates[table.ends[first_edge, 1]] - coordinates[table.ends[first_edge, 0]]
    direction /= np.maximum(np.hypot(direction[:, 0], direction[:, 1]), np.finfo(float).tiny)[:, None]
    pair = np.unique(np.stack([which.repeat(2), table.ends[seam_edges].ravel()], 1), axis=0)
    line, corner = pair[:, 0], pair[:, 1]
    along = (coordinates[corner] * direction[line]).sum(1)
    order = np.lexsort((along, line))
    line, corner, along = line[order], corner[order], along[order]
    extent = float(np.ptp(coordinates, axis=0).max())
    coincide = (line[1:] == line[:-1]) & (along[1:] - along[:-1] <= SEAM_TOLERANCE * extent)
    return connected_components(len(coordinates), corner[:-1][coincide], corner[1:][coincide])
