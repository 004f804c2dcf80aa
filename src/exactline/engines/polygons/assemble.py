"""Parts of a plane put together: what lies on the seam between two parts becomes one again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ...arrays import Floats, Ints
from ...network.graph import Network
from .growable import connected_components
from .state import MeshState

SEAM_TOLERANCE = 1e-11  # corners on a seam this close, to the whole, may be one


@dataclass(frozen=True)
class PolygonTable:
    """A plane cut into convex polygons."""

    weights: Floats  # (corners, k)
    ends: Ints  # (edges, 2)
    origins: Ints  # (edges, 3)
    sides: Ints  # (edges, 2) polygons to the left and to the right, -1 outside
    offsets: Ints  # (polygons + 1,)
    rings: Ints  # corners of all polygons, counterclockwise, one after another
    values: tuple[Tensor, ...] | None  # (corners, *out) each
    ambiguous: int


class PlaneAssembler:
    """Takes finished parts, keeping of each only what the answer needs."""

    def __init__(self, network: Network, values: bool) -> None:
        self.network, self.keep = network, values
        self.parts: list[tuple[PolygonTable, Ints]] = []
        self.polygons = 0

    def add(self, state: MeshState) -> None:
        """One part."""
        mesh = state.mesh
        outs = tuple(state.live[i].cpu() for i in self.network.outputs) if self.keep else None
        mesh.pack()
        offsets = np.append(mesh.first, len(mesh.corners))
        cells = PolygonTable(
            state.weights.all.copy(),
            mesh.ends.copy(),
            mesh.origins.copy(),
            mesh.sides.copy(),
            offsets,
            mesh.corners.copy(),
            outs,
            state.ambiguous,
        )
        self.parts.append((cells, mesh.seam.copy()))
        self.polygons += len(mesh)

    def assemble(self, places: Floats) -> PolygonTable:
        """All parts as one; ``places`` are the given corners in plane coordinates."""
        if len(self.parts) == 1:
            return self.parts[0][0]
        cells, seam = _concatenate(self.parts)
        on_seam = np.flatnonzero(seam >= 0)
        if not len(on_seam):
            return cells
        return _sew(cells, seam, on_seam, cells.weights @ places)


def _concatenate(parts: list[tuple[PolygonTable, Ints]]) -> tuple[PolygonTable, Ints]:
    corners = np.cumsum([0] + [len(c.weights) for c, _ in parts])
    polygons = np.cumsum([0] + [len(c.offsets) - 1 for c, _ in parts])
    rings = np.cumsum([0] + [len(c.rings) for c, _ in parts])
    first = parts[0][0]
    values = None
    if first.values is not None:
        values = tuple(torch.cat(group) for group in zip(*(c.values for c, _ in parts if c.values), strict=True))
    cells = PolygonTable(
        np.concatenate([c.weights for c, _ in parts]),
        np.concatenate([c.ends + at for (c, _), at in zip(parts, corners, strict=False)]),
        np.concatenate([c.origins for c, _ in parts]),
        np.concatenate([np.where(c.sides < 0, -1, c.sides + at) for (c, _), at in zip(parts, polygons, strict=False)]),
        np.append(np.concatenate([c.offsets[:-1] + at for (c, _), at in zip(parts, rings, strict=False)]), rings[-1]),
        np.concatenate([c.rings + at for (c, _), at in zip(parts, corners, strict=False)]),
        values,
        sum(c.ambiguous for c, _ in parts),
    )
    return cells, np.concatenate([s for _, s in parts])


def _sew(cells: PolygonTable, seam: Ints, on_seam: Ints, places: Floats) -> PolygonTable:
    """Corners and edges on both sides of a seam, made one."""
    label = _match_corners(cells, seam, on_seam, places)
    kept, number = np.unique(label, return_inverse=True)
    ends = number[cells.ends]
    key = np.stack([seam[on_seam], ends[on_seam].min(1), ends[on_seam].max(1)], 1)
    _, lead, group = np.unique(key, axis=0, return_index=True, return_inverse=True)
    lead, twin = on_seam[lead[group.ravel()]], on_seam
    double = lead != twin
    lead, twin = lead[double], twin[double]
    sides = cells.sides.copy()
    mine = sides[twin].max(1)  # a seam has a polygon on one side only
    sides[lead, np.where(sides[lead, 0] < 0, 0, 1)] = mine
    stay = np.ones(len(ends), dtype=bool)
    stay[twin] = False
    values = None if cells.values is None else tuple(v[torch.from_numpy(kept)] for v in cells.values)
    return PolygonTable(
        cells.weights[kept],
        ends[stay],
        cells.origins[stay],
        sides[stay],
        cells.offsets,
        number[cells.rings],
        values,
        cells.ambiguous,
    )


def _match_corners(cells: PolygonTable, seam: Ints, on_seam: Ints, places: Floats) -> Ints:
    """The lowest number among the corners that are one and the same, (corners,)."""
    labels, which = np.unique(seam[on_seam], return_inverse=True)
    lead = np.zeros(len(labels), dtype=np.int64)
    lead[which[::-1]] = on_seam[::-1]
    way = places[cells.ends[lead, 1]] - places[cells.ends[lead, 0]]
    way /= np.maximum(np.hypot(way[:, 0], way[:, 1]), np.finfo(float).tiny)[:, None]
    pair = np.unique(np.stack([which.repeat(2), cells.ends[on_seam].ravel()], 1), axis=0)
    along = (places[pair[:, 1]] * way[pair[:, 0]]).sum(1)
    order = np.lexsort((along, pair[:, 0]))
    line, corner, along = pair[order, 0], pair[order, 1], along[order]
    extent = float(np.ptp(places, axis=0).max())
    near = (line[1:] == line[:-1]) & (along[1:] - along[:-1] <= SEAM_TOLERANCE * extent)
    return connected_components(len(places), corner[:-1][near], corner[1:][near])
