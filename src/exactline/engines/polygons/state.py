"""The state of a plane sweep: a mesh of polygons, and the value of every live tensor at their corners."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from ...arrays import Floats, Ints
from ...lines import interpolate
from ...numerics.static_filter import Magnitude, StaticFilter
from ..dense.points import to_device
from .corners import CornerTable
from .growable import GrowableArray
from .mesh import Mesh


@dataclass(frozen=True)
class PlaneFrame:
    """The given polygon: its vertices in input space and in plane coordinates."""

    corners: tuple[Tensor, ...]  # (k, *in) each
    coordinates: Floats  # (k, 2)

    def points(self, weights: Floats) -> tuple[list[Tensor], list[Tensor]]:
        """Input points with convex weights (n, k), and their rounding errors; (n, *in) each."""
        points, errors = [], []
        for corner in self.corners:
            weight = to_device(corner.device, weights).to(corner.dtype)
            flat = corner.reshape(len(corner), -1)
            mixed, magnitude = weight @ flat, weight @ flat.abs()
            is_mixed = weight.amax(1, keepdim=True) < 1  # a vertex itself is exact
            relative_error = is_mixed.to(corner.dtype) * (2 * torch.finfo(corner.dtype).eps)
            points.append(mixed.view(len(weight), *corner.shape[1:]))
            errors.append((magnitude * relative_error).view(len(weight), *corner.shape[1:]))
        return points, errors


@dataclass(frozen=True)
class NewCorners:
    """Corners that were added together, each on the segment between two earlier corners."""

    first: Ints  # (n,) corner at one end of the segment
    second: Ints  # (n,) corner at the other end
    fraction: Floats  # (n,) position between them, 0..1


@dataclass
class PendingCuts:
    """The unfinished work of one separator: differences at every corner, and which polygons they still cut."""

    number: int  # of the separator
    columns: Ints  # (m,) the separator's differences that change sign somewhere
    differences: GrowableArray  # (corners, m)
    signs: GrowableArray  # (corners, m)
    polygon: Ints  # (pairs,) a polygon that is cut ..., sorted
    column: Ints  # (pairs,) ... and the difference that cuts it

    def select(self, corners: Ints, polygons: Ints) -> PendingCuts:
        """The part on some polygons and their corners, both of which are renumbered."""
        new_polygon = np.full(int(polygons[-1]) + 1, -1)
        new_polygon[polygons] = np.arange(len(polygons))
        last = len(new_polygon) - 1
        pairs = np.flatnonzero((self.polygon <= last) & (new_polygon[np.minimum(self.polygon, last)] >= 0))
        return PendingCuts(
            self.number,
            self.columns,
            GrowableArray(self.differences.array[corners]),
            GrowableArray(self.signs.array[corners]),
            polygon=new_polygon[self.polygon[pairs]],
            column=self.column[pairs],
        )


@dataclass(frozen=True)
class RecentValues:
    """The values of all live tensors right after the last breaking node, from which errors can be estimated again."""

    node: int
    values: dict[int, Tensor]  # by live node, (corners, *shape); without corners that were added since


@dataclass
class SeamCounter:
    """The number of seam edges so far; shared by all parts of a plane."""

    count: int = 0


@dataclass
class MeshState:
    """All polygons between two nodes."""

    frame: PlaneFrame
    node: int  # the next node to evaluate
    mesh: Mesh
    corners: CornerTable
    live: dict[int, Tensor]  # by node: values (corners, *shape)
    bounds: dict[int, Magnitude]  # by live node: worst-case size of values and errors
    filter: StaticFilter
    area: float = 1.0  # the share of the given polygon's area that these polygons cover
    ambiguous: int = 0  # pairs of a polygon and a unit that is ambiguous on it
    pending: PendingCuts | None = None  # the separator at which the current node was interrupted
    recent: RecentValues | None = None
    seams: SeamCounter = field(default_factory=SeamCounter)

    @property
    def dtype(self) -> torch.dtype:
        return next(iter(self.live.values())).dtype

    @property
    def device(self) -> torch.device:
        return next(iter(self.live.values())).device

    @property
    def eps(self) -> float:
        return torch.finfo(self.dtype).eps

    @property
    def coordinates(self) -> Floats:
        """(corners, 2) plane coordinates."""
        return self.corners.weights @ self.frame.coordinates

    def area_share(self) -> float:
        """The share of the given polygon's area that these polygons cover."""
        mesh = self.mesh
        index, size = mesh.ring_indices(np.arange(len(mesh)))
        start = size.cumsum() - size
        position, whole = self.coordinates[mesh.ring_corners[index]], self.frame.coordinates
        after = np.arange(len(position)) + 1
        after[start + size - 1] = start
        area = (position[:, 0] * position[after, 1] - position[:, 1] * position[after, 0]).sum()
        next_vertex = np.roll(whole, -1, 0)
        return float(area / (whole[:, 0] * next_vertex[:, 1] - whole[:, 1] * next_vertex[:, 0]).sum())

    def interpolate_new_corners(self, batches: list[NewCorners]) -> None:
        """Extend every live tensor to the corners that were added, batch by batch."""
        count = len(self.corners)
        for i, old in self.live.items():
            if len(old) == count:
                continue
            extended = torch.empty(count, *old.shape[1:], dtype=old.dtype, device=old.device)
            extended[: len(old)] = old
            at = len(old)
            for new in batches:
                fraction = to_device(old.device, new.fraction).to(old.dtype).view(-1, *[1] * (old.dim() - 1))
                first, second = (extended[to_device(old.device, corner)] for corner in (new.first, new.second))
                extended[at : at + len(fraction)] = interpolate(first, second, fraction)
                at += len(fraction)
            self.live[i] = extended

    def select(self, mesh: Mesh, corners: Ints) -> MeshState:
        """A state with another mesh over some of the corners, which it renumbers."""
        live = {i: t[to_device(t.device, corners)] for i, t in self.live.items()}
        recent = self.recent
        if recent is not None and all(len(t) == len(self.corners) for t in recent.values.values()):
            values = {
                i: live[i] if t is self.live.get(i) else t[to_device(t.device, corners)]
                for i, t in recent.values.items()
            }
            recent = RecentValues(recent.node, values)
        else:
            recent = None
        return MeshState(
            self.frame,
            self.node,
            mesh,
            self.corners.select(corners),
            live,
            dict(self.bounds),
            replace(self.filter),  # each state updates its own filter
            recent=recent,
            seams=self.seams,
        )

    def split_in_half(self) -> tuple[MeshState, MeshState]:
        """Two states with half of the polygons each, divided across the longer extent of their centroids."""
        mesh = self.mesh
        index, size = mesh.ring_indices(np.arange(len(mesh)))
        position = self.coordinates[mesh.ring_corners[index]]
        centroid = np.add.reduceat(position, size.cumsum() - size) / size[:, None]
        axis = int(np.ptp(centroid, axis=0).argmax())
        order = np.argsort(centroid[:, axis], kind="stable")
        in_second = np.zeros(len(mesh) + 1, dtype=bool)
        in_second[order[len(order) // 2 :]] = True
        inner = mesh.inner_edges()
        left, right = mesh.edge_sides[inner].T
        seam = inner[in_second[left] != in_second[right]]
        mesh.edge_seam[seam] = self.seams.count + np.arange(len(seam))
        self.seams.count += len(seam)
        first, second = (self._select_polygons(np.flatnonzero(in_second[:-1] == half)) for half in (False, True))
        first.ambiguous = self.ambiguous
        first.area = first.area_share()
        second.area = max(self.area - first.area, 0.0)
        return first, second

    def _select_polygons(self, polygons: Ints) -> MeshState:
        mesh, corners = self.mesh.select(polygons)
        part = self.select(mesh, corners)
        part.pending = None if self.pending is None else self.pending.select(corners, polygons)
        return part
