"""Advisory maps: every region of constant advice on the disc around the ownship."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import hypot, isfinite, pi
from typing import Any, NamedTuple

from torch import Tensor

from ...api import grid
from ...decide.regions import Regions
from ...errors import ArgumentError
from ...results.plane import PlaneRestriction
from ..record import StudyProgress
from .advisor import ADVISORIES, Advisor, load_advisor
from .geometry import EncounterGeometry
from .regions import AdviceRegion, join_regions_at_rear

HEADINGS_DEGREES = (-180.0, -90.0, 0.0, 90.0)  # of the intruder
SPEEDS_FEET_PER_SECOND = (150.0, 500.0)  # of both aircraft
DEFAULT_REACH_FEET = hypot(10000.0, 6000.0)  # the farthest corner of the paper's box
MAX_REACH_FEET = 1e9


class AdvisoryTotal(NamedTuple):
    """The regions of one advisory on a map, counted and measured."""

    regions: int
    polar_area: float  # feet times radians
    area: float  # square feet


@dataclass(frozen=True, eq=False)
class AdvisoryMap:
    """The advice at all distances and bearings for one heading and one pair of speeds."""

    geometry: EncounterGeometry
    reach: float  # rho goes from 0 to this many feet
    plane: PlaneRestriction  # its coordinates are rho in feet and theta in radians
    decisions: Regions  # regions of the polar map, which ends at theta = 180 degrees
    regions: tuple[AdviceRegion, ...]  # regions of the disc, the largest first
    rear_boundaries: Tensor  # (m, 2) intervals of rho where the advice changes at theta = 180 degrees
    seconds: dict[str, float]  # by step: cutting, decisions

    @property
    def file_stem(self) -> str:
        """Heading and speeds as a file name."""
        return f"psi{self.geometry.psi:g}_own{self.geometry.v_own:g}_int{self.geometry.v_int:g}"

    @property
    def title(self) -> str:
        """Heading and speeds as a title."""
        geometry = self.geometry
        return f"psi {geometry.psi:g}°, ownship {geometry.v_own:g} ft/s, intruder {geometry.v_int:g} ft/s"

    @cached_property
    def totals(self) -> dict[str, AdvisoryTotal]:
        """The number of regions and their areas, by advisory and by tie."""
        names = dict.fromkeys([*(a.name for a in ADVISORIES), *(r.advisory for r in self.regions)])
        own = {name: [r for r in self.regions if r.advisory == name] for name in names}
        return {
            name: AdvisoryTotal(len(regions), sum(r.polar_area for r in regions), sum(r.area for r in regions))
            for name, regions in own.items()
        }

    @property
    def smallest_region(self) -> AdviceRegion:
        """The region of the smallest area in square feet."""
        return self.regions[-1]


@dataclass(frozen=True, eq=False)
class AdvisoryMaps:
    """The advisory maps of several encounters."""

    advisor: Advisor
    reach: float
    maps: tuple[AdvisoryMap, ...]


def default_geometries() -> list[EncounterGeometry]:
    """Return eight encounters: four headings of the intruder, both aircraft at 150 or at 500 feet per second."""
    return [EncounterGeometry(psi=psi, v_own=v, v_int=v) for v in SPEEDS_FEET_PER_SECOND for psi in HEADINGS_DEGREES]


def run(
    network: Any = None,
    geometries: Sequence[EncounterGeometry] | None = None,
    *,
    reach: float = DEFAULT_REACH_FEET,
    normalize: bool | None = None,
    progress: StudyProgress | None = None,
) -> AdvisoryMaps:
    """Map the advice of a collision-avoidance network on the whole disc around the ownship.

    Args:
        network: A file (.nnet, .onnx), a module or a Network from (rho, theta, psi, v_own, v_int) to five costs, or an
            `Advisor`; None for the bundled network.
        geometries: Headings and speeds, one map for each; those of `default_geometries` by default.
        reach: Radius of the maps in feet.
        normalize: Whether to normalize the inputs first, see `exactline.paper.acas.advisor.load_advisor`.
        progress: Called with the share of the work done and a description of the current step.

    >>> from exactline.paper.acas.geometry import EncounterGeometry
    >>> (found,) = run(geometries=[EncounterGeometry(psi=90.0)]).maps
    >>> abs(sum(region.area for region in found.regions) / (pi * DEFAULT_REACH_FEET**2) - 1) < 1e-14
    True

    Raises ArgumentError for a network of another shape or a reach out of range, FileError for a file that cannot be
    read.
    """
    is_number = isinstance(reach, (int, float)) and not isinstance(reach, bool) and isfinite(reach)
    if not (is_number and 0 < reach <= MAX_REACH_FEET):
        raise ArgumentError(
            f"The reach must be more than 0 and at most {MAX_REACH_FEET:g} feet, not {reach!r}.",
            where="argument reach",
            hint=f"Omit it for {DEFAULT_REACH_FEET:.0f} feet, the farthest corner of the paper's box.",
        )
    report = progress or (lambda share, step: None)
    report(0.0, "reading the network")
    advisor = network if isinstance(network, Advisor) else load_advisor(network, normalize=normalize)
    chosen = default_geometries() if geometries is None else list(geometries)
    maps: list[AdvisoryMap] = []
    for k, geometry in enumerate(chosen):

        def report_map(share: float, polygons: int, k: int = k) -> None:
            report((k + 0.8 * share) / len(chosen), f"scenario {k + 1} of {len(chosen)}: {polygons:,} polygons")

        maps.append(map_advice(advisor, geometry, float(reach), report_map))
    report(1.0, "done")
    return AdvisoryMaps(advisor, float(reach), tuple(maps))


def map_advice(advisor: Advisor, geometry: EncounterGeometry, reach: float, progress: Any = False) -> AdvisoryMap:
    """Compute the map of one encounter; ``progress`` is called with the share done and the polygons so far."""
    began = time.perf_counter()
    base = geometry.to_inputs([(0.0, 0.0)])[0]
    plane = grid(advisor.network, base, (0, 1), ((0.0, reach), (-pi, pi)), progress=progress)
    cut = time.perf_counter()
    decisions = plane.decisions("min")
    regions, rear_boundaries = join_regions_at_rear(decisions, reach)
    seconds = {"cutting": cut - began, "decisions": time.perf_counter() - cut}
    return AdvisoryMap(geometry, reach, plane, decisions, regions, rear_boundaries, seconds)
