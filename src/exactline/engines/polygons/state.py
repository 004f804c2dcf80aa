"""Where the cutting of a plane stands: a mesh of polygons, and what every live tensor is at their corners."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from ...arrays import Floats, Ints
from ...lines import interpolate
from ...numerics.static_filter import Magnitude, StaticFilter
from ..dense.state import to_device
from .growable import GrowableArray
from .mesh import Mesh

NewCorners = list[tuple[Ints, Ints, Floats]]  # new corners, bunch after bunch: between which two, and how far along
ORIGIN_COLUMNS = 4  # numbers that are known of where each corner came from


@dataclass(frozen=True)
class PlaneFrame:
    """The polygon that is cut: its corners in input space and in the plane."""

    corners: tuple[Tensor, ...]  # (k, *in) each
    coordinates: Floats  # (k, 2) in plane coordinates

    def points(self, weights: Floats) -> tuple[list[Tensor], list[Tensor]]:
        """Input points (n, *in) that mix the corners, and the rounding error they carry."""
        points, errors = [], []
        for corner in self.corners:
            share = to_device(corner.device, weights).to(corner.dtype)
            flat = corner.reshape(len(corner), -1)
            mixed, size = share @ flat, share @ flat.abs()
            inner = (share.amax(1, keepdim=True) < 1).to(corner.dtype) * (2 * torch.finfo(corner.dtype).eps)
            points.append(mixed.view(len(share), *corner.shape[1:]))
            errors.append((size * inner).view(len(share), *corner.shape[1:]))
        return points, errors


@dataclass
class PendingCuts:
    """A contest that is not finished: what is compared at every corner, and which polygons are still cut by what."""

    number: int  # of the contest
    columns: Ints  # (m,) of the contest's differences, those that change sign somewhere
    differences: GrowableArray  # (corners, m)
    signs: GrowableArray  # (corners, m)
    polygon: Ints  # (pairs,) in order
    column: Ints  # (pairs,)

    def select(self, corners: Ints, polygons: Ints) -> PendingCuts:
        """The part of it on some polygons, which are numbered anew, and their corners."""
        number = np.full(int(polygons[-1]) + 1, -1)
        number[polygons] = np.arange(len(polygons))
        some = np.flatnonzero((self.polygon < len(number)) & (number[np.minimum(self.polygon, len(number) - 1)] >= 0))
        gaps, signs = GrowableArray(self.differences.all[corners]), GrowableArray(self.signs.all[corners])
        return PendingCuts(self.number, self.columns, gaps, signs, number[self.polygon[some]], self.column[some])


@dataclass
class MeshState:
    """All polygons at hand between two nodes."""

    frame: PlaneFrame
    node: int  # the next to evaluate
    mesh: Mesh
    weights: GrowableArray  # (corners, k) of the given corners, positive, with sum 1
    corner_origins: (
        GrowableArray  # (corners, 4) node or -1, contest, column, and whether the fuzz is as small as it can be told
    )
    corner_errors: (
        GrowableArray  # (corners, 2) rate and fuzz: how fast the crossing changes with distance, how far off it may be
    )
    live: dict[int, Tensor]  # (corners, *shape) each
    sizes: dict[int, Magnitude]  # of every live tensor
    filter: StaticFilter
    ambiguous: int = 0  # pairs of a polygon and a unit that cannot be told from a knot on it
    work: PendingCuts | None = None  # what was begun at the node and is not finished
    seams: list[int] = field(default_factory=lambda: [0])  # how many there are, shared by all parts

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
        """(corners, 2) in plane coordinates."""
        return self.weights.all @ self.frame.coordinates

    def share(self) -> float:
        """How much of the whole these polygons cover."""
        mesh = self.mesh
        places, count = mesh.places(np.arange(len(mesh)))
        first = count.cumsum() - count
        spot, whole = self.coordinates[mesh.corners[places]], self.frame.coordinates
        after = np.arange(len(spot)) + 1
        after[first + count - 1] = first
        area = (spot[:, 0] * spot[after, 1] - spot[:, 1] * spot[after, 0]).sum()
        onward = np.roll(whole, -1, 0)
        return float(area / (whole[:, 0] * onward[:, 1] - whole[:, 1] * onward[:, 0]).sum())

    def grow(self, origins: NewCorners) -> None:
        """Bring every live tensor to the corners that were added."""
        count = len(self.weights)
        for i, old in self.live.items():
            if len(old) == count:
                continue
            made = torch.empty(count, *old.shape[1:], dtype=old.dtype, device=old.device)
            made[: len(old)] = old
            at = len(old)
            for one, two, part in origins:
                step = to_device(old.device, part).to(old.dtype).view(-1, *[1] * (old.dim() - 1))
                made[at : at + len(part)] = interpolate(
                    made[to_device(old.device, one)], made[to_device(old.device, two)], step
                )
                at += len(part)
            self.live[i] = made

    def select(self, mesh: Mesh, corners: Ints) -> MeshState:
        """Another mesh over some of the corners, which it numbers anew."""
        live = {i: t[to_device(t.device, corners)] for i, t in self.live.items()}
        usual = replace(self.filter)  # what it learns from here on is its own
        weights, births, spots = (
            GrowableArray(r.all[corners]) for r in (self.weights, self.corner_origins, self.corner_errors)
        )
        return MeshState(
            self.frame, self.node, mesh, weights, births, spots, live, dict(self.sizes), usual, seams=self.seams
        )

    def halves(self) -> tuple[MeshState, MeshState]:
        """The polygons on either side of the middle, across the longer way."""
        mesh = self.mesh
        places, count = mesh.places(np.arange(len(mesh)))
        spot = self.coordinates[mesh.corners[places]]
        centre = np.add.reduceat(spot, count.cumsum() - count) / count[:, None]
        axis = int(np.ptp(centre, axis=0).argmax())
        order = np.argsort(centre[:, axis], kind="stable")
        right = np.zeros(len(mesh) + 1, dtype=bool)
        right[order[len(order) // 2 :]] = True
        inner = mesh.inner_edges()
        cut = inner[right[mesh.sides[inner, 0]] != right[mesh.sides[inner, 1]]]
        mesh.seam[cut] = self.seams[0] + np.arange(len(cut))
        self.seams[0] += len(cut)
        one, two = (self._part(np.flatnonzero(right[:-1] == side)) for side in (False, True))
        one.ambiguous = self.ambiguous
        return one, two

    def _part(self, polygons: Ints) -> MeshState:
        mesh, corners = self.mesh.select(polygons)
        part = self.select(mesh, corners)
        part.work = None if self.work is None else self.work.select(corners, polygons)
        return part
