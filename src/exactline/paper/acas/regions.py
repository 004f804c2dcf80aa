"""Connected regions of constant advice on the disc around the ownship, and their areas.

The polar map ends at theta = 180 degrees, straight behind the ownship (the rear). Regions that meet there are joined.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi, sin

import numpy as np
import torch
from torch import Tensor

from ...arrays import Floats, Ints
from ...decide.regions import LabeledPolygons, Regions
from ...engines.polygons.growable import connected_components
from .advisor import ADVISORIES

# Corners this close to theta = 180 degrees (in radians) lie on the rear, and rear segments shorter than this share of
# the reach are dropped. Both are some thousand ulps of pi, far above the rounding of a corner.
REAR_TOLERANCE = 1e-12


@dataclass(frozen=True)
class AdviceRegion:
    """A connected region of the disc around the ownship with constant advice."""

    label: int  # index into ADVISORIES; the first of a tie
    tied: tuple[int, ...]  # advisories with equal costs on the whole region; usually empty
    polar_area: float  # feet times radians
    area: float  # square feet
    rho: float  # a point inside: distance in feet ...
    theta: float  # ... and bearing in radians
    min_rho: float  # distance of the nearest point in feet
    max_rho: float  # distance of the farthest point in feet
    crosses_rear: bool  # whether it extends across theta = 180 degrees

    @property
    def advisory(self) -> str:
        """The name of the advisory, or the names of the tied ones."""
        return " = ".join(ADVISORIES[i].name for i in self.tied or (self.label,))

    @property
    def xy(self) -> tuple[float, float]:
        """The point inside as x (ahead) and y (left) in feet."""
        return self.rho * cos(self.theta), self.rho * sin(self.theta)


def join_regions_at_rear(decisions: Regions, reach: float) -> tuple[tuple[AdviceRegion, ...], Tensor]:
    """Join the regions of a polar map across theta = 180 degrees.

    Args:
        decisions: The regions of the polar map, in rho (feet) and theta (radians).
        reach: The largest rho of the map in feet.

    Returns:
        The regions of the disc, the largest first, and the intervals of rho, (m, 2), on which the advice changes at the
        rear.
    """
    polygons = decisions.polygons
    rear = _find_rear_segments(polygons, reach)
    kinds: dict[tuple[int, ...], int] = {}
    kind = np.array([kinds.setdefault(r.tied or (r.label,), len(kinds)) for r in decisions])
    same = kind[rear.right] == kind[rear.left]
    component = connected_components(len(decisions), rear.right[same], rear.left[same])
    first_region, joined = np.unique(component, return_inverse=True)
    count = len(first_region)
    crosses_rear = np.isin(np.arange(count), joined[rear.right[same]])
    owner = joined[polygons.regions.numpy()]  # (polygons,) index of the joined region
    polar_areas, areas = compute_polygon_areas(polygons)
    region_polar_areas, region_areas = (np.bincount(owner, a, count) for a in (polar_areas, areas))
    order = np.lexsort((areas, owner))
    largest_polygon = order[np.searchsorted(owner[order], np.arange(count), side="right") - 1]
    inside = _compute_centroids(polygons)[largest_polygon]
    rho, first_corner = polygons.corners[polygons.rings, 0].numpy(), polygons.offsets[:-1].numpy()
    min_rho, max_rho = np.full(count, np.inf), np.zeros(count)
    np.minimum.at(min_rho, owner, np.minimum.reduceat(rho, first_corner))
    np.maximum.at(max_rho, owner, np.maximum.reduceat(rho, first_corner))
    regions = tuple(
        AdviceRegion(
            label=decisions[int(first_region[i])].label,
            tied=decisions[int(first_region[i])].tied,
            polar_area=float(region_polar_areas[i]),
            area=float(region_areas[i]),
            rho=float(inside[i, 0]),
            theta=float(inside[i, 1]),
            min_rho=float(max(min_rho[i], 0.0)),
            max_rho=float(min(max_rho[i], reach)),
            crosses_rear=bool(crosses_rear[i]),
        )
        for i in np.argsort(-region_areas, kind="stable").tolist()
    )
    return regions, torch.from_numpy(rear.intervals[~same])


def compute_polygon_areas(polygons: LabeledPolygons) -> tuple[Floats, Floats]:  # (polygons,) each
    """Compute the area of each polygon in feet times radians, and in square feet: the integral of rho over it.

    By Green's theorem the integral is the sum over the sides of (rho1^2 + rho1 rho2 + rho2^2) (theta2 - theta1) / 6. It
    is computed relative to a corner of the polygon, which avoids cancellation in small polygons.
    """
    ring, first = polygons.corners[polygons.rings].numpy(), polygons.offsets[:-1].numpy()
    count = np.diff(polygons.offsets.numpy())
    base = ring[first].repeat(count, 0)
    u, t = (ring - base).T
    after = _next_corners(polygons)
    polar = np.add.reduceat((u * t[after] - t * u[after]) / 2, first)
    extra = np.add.reduceat((u * u + u * u[after] + u[after] ** 2) * (t[after] - t) / 6, first)
    return polar, ring[first, 0] * polar + extra


def _next_corners(polygons: LabeledPolygons) -> Ints:
    """Return, for each entry of all rings, the index of the corner that follows it in its ring."""
    after = np.arange(len(polygons.rings)) + 1
    after[polygons.offsets[1:].numpy() - 1] = polygons.offsets[:-1].numpy()
    return after


def _compute_centroids(polygons: LabeledPolygons) -> Floats:  # (polygons, 2)
    """Compute the mean of each polygon's corners, which lies inside because the polygons are convex."""
    ring, first = polygons.corners[polygons.rings].numpy(), polygons.offsets[:-1].numpy()
    return np.add.reduceat(ring, first) / np.diff(polygons.offsets.numpy())[:, None]


@dataclass(frozen=True)
class _RearSegments:
    """Intervals of rho on the ray straight behind, and the regions on both sides of each."""

    right: Ints  # (n,) region at theta = -180 degrees
    left: Ints  # (n,) region at theta = 180 degrees
    intervals: Floats  # (n, 2) rho from, rho to


def _find_rear_segments(polygons: LabeledPolygons, reach: float) -> _RearSegments:
    ring, after = polygons.corners[polygons.rings].numpy(), _next_corners(polygons)
    owner = np.arange(len(polygons.labels)).repeat(np.diff(polygons.offsets.numpy()))
    region = polygons.regions.numpy()[owner]
    starts, regions = list[Floats](), list[Ints]()
    for side in (-pi, pi):
        on_rear = np.abs(ring[:, 1] - side) <= REAR_TOLERANCE
        edges = np.flatnonzero(on_rear & on_rear[after])
        rho = np.minimum(ring[edges, 0], ring[after[edges], 0])
        order = np.argsort(rho, kind="stable")
        starts.append(rho[order])
        regions.append(region[edges[order]])
    cuts = np.append(np.sort(np.concatenate(starts)), reach)
    intervals = np.stack([cuts[:-1], cuts[1:]], 1)
    intervals = intervals[intervals[:, 1] - intervals[:, 0] > REAR_TOLERANCE * reach]
    middle = intervals.mean(1)
    right, left = (
        own[np.searchsorted(start, middle, side="right") - 1] for start, own in zip(starts, regions, strict=True)
    )
    return _RearSegments(right, left, intervals)
