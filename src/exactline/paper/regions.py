"""Connected parts of the disc around the ownship: regions of a polar map joined straight behind, and their areas."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi, sin

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..decide.regions import Regions, Tiles
from ..engines.polygons.growable import connected_components
from .encounter import ADVISORIES

ROUNDING = 1e-12  # of the whole, for corners that lie straight behind


@dataclass(frozen=True)
class Zone:
    """A connected part of the disc around the ownship where the advice is the same."""

    label: int  # the place of the advisory in ADVISORIES; of a tie the first
    tied: tuple[int, ...]  # advisories that cost the same all over it; mostly none
    polar_area: float  # feet times radians
    area: float  # square feet
    rho: float  # a place well inside: feet ...
    theta: float  # ... and radians
    nearest: float  # the least distance of its points, feet
    farthest: float
    behind: bool  # it lies on both sides of theta = 180 degrees, which the polar map cuts apart

    @property
    def advisory(self) -> str:
        """Its name, or the names of those that are tied."""
        return " = ".join(ADVISORIES[i].name for i in self.tied or (self.label,))

    @property
    def place(self) -> tuple[float, float]:
        """A place inside as x (ahead) and y (left) in feet."""
        return self.rho * cos(self.theta), self.rho * sin(self.theta)


def zones_of(decided: Regions, reach: float) -> tuple[tuple[Zone, ...], Tensor]:
    """The regions joined across theta = 180 degrees, and where the advice differs there."""
    cells, count = decided.cells, len(decided)
    low, high, stretches = _seam(cells, reach)
    kinds: dict[tuple[int, ...], int] = {}
    kind = np.array([kinds.setdefault(r.tied or (r.label,), len(kinds)) for r in decided])
    same = kind[low] == kind[high]
    company = connected_components(count, low[same], high[same])
    leads, zone = np.unique(company, return_inverse=True)
    crossing = np.isin(np.arange(len(leads)), zone[low[same]])
    owner = zone[cells.regions.numpy()]
    polar, true = cell_areas(cells)
    flat, round_ = (np.bincount(owner, a, len(leads)) for a in (polar, true))
    order = np.lexsort((true, owner))
    largest = order[np.searchsorted(owner[order], np.arange(len(leads)), side="right") - 1]
    spot = _middles(cells)[largest]
    rho, first = cells.corners[cells.rings, 0].numpy(), cells.offsets[:-1].numpy()
    nearest, farthest = np.full(len(leads), np.inf), np.zeros(len(leads))
    np.minimum.at(nearest, owner, np.minimum.reduceat(rho, first))
    np.maximum.at(farthest, owner, np.maximum.reduceat(rho, first))
    found = (
        Zone(decided[int(leads[i])].label, decided[int(leads[i])].tied, *numbers, behind=bool(crossing[i]))
        for i, numbers in (
            (i, map(float, (flat[i], round_[i], *spot[i], max(nearest[i], 0.0), min(farthest[i], reach))))
            for i in np.argsort(-round_, kind="stable").tolist()
        )
    )
    return tuple(found), torch.from_numpy(stretches[~same])


def cell_areas(cells: Tiles) -> tuple[Floats, Floats]:
    """Of each cell the area in feet times radians, and in square feet: the integral of rho over it.

    By Green's theorem that is the sum over its sides of (rho1^2 + rho1 rho2 + rho2^2) (theta2 - theta1) / 6, here
    about one of its corners, so that small cells keep their digits.
    """
    ring, first = cells.corners[cells.rings].numpy(), cells.offsets[:-1].numpy()
    count = np.diff(cells.offsets.numpy())
    base = ring[first].repeat(count, 0)
    u, t = (ring - base).T
    after = _after(cells)
    polar = np.add.reduceat((u * t[after] - t * u[after]) / 2, first)
    extra = np.add.reduceat((u * u + u * u[after] + u[after] ** 2) * (t[after] - t) / 6, first)
    return polar, ring[first, 0] * polar + extra


def _after(cells: Tiles) -> Ints:
    """The place in all rings of the corner that follows each in its ring."""
    after = np.arange(len(cells.rings)) + 1
    after[cells.offsets[1:].numpy() - 1] = cells.offsets[:-1].numpy()
    return after


def _middles(cells: Tiles) -> Floats:  # (cells, 2)
    """The mean of each cell's corners: inside, as cells are convex."""
    ring, first = cells.corners[cells.rings].numpy(), cells.offsets[:-1].numpy()
    return np.add.reduceat(ring, first) / np.diff(cells.offsets.numpy())[:, None]


def _seam(cells: Tiles, reach: float) -> tuple[Ints, Ints, Floats]:
    """Straight behind, stretch by stretch: the regions at theta = -180 and at 180 degrees, and rho from and to."""
    ring, after = cells.corners[cells.rings].numpy(), _after(cells)
    owner = np.arange(len(cells.labels)).repeat(np.diff(cells.offsets.numpy()))
    region = cells.regions.numpy()[owner]
    starts, owners = list[Floats](), list[Ints]()
    for side in (-pi, pi):
        near = np.abs(ring[:, 1] - side) <= ROUNDING
        rim = np.flatnonzero(near & near[after])
        rho = np.minimum(ring[rim, 0], ring[after[rim], 0])
        order = np.argsort(rho, kind="stable")
        starts.append(rho[order])
        owners.append(region[rim[order]])
    cuts = np.append(np.sort(np.concatenate(starts)), reach)
    stretches = np.stack([cuts[:-1], cuts[1:]], 1)
    stretches = stretches[stretches[:, 1] - stretches[:, 0] > ROUNDING * reach]  # the rest is rounding
    middle = stretches.mean(1)
    low, high = (own[np.searchsorted(rho, middle, side="right") - 1] for rho, own in zip(starts, owners, strict=True))
    return low, high, stretches
