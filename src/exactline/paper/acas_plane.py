"""Advisory maps of a collision-avoidance network: every region of constant advice around the ownship, exactly."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import hypot, isfinite, pi
from typing import Any

from torch import Tensor

from ..api import grid
from ..decide.regions import Regions
from ..errors import ArgumentError
from ..results.plane import PlaneRestriction
from .acas import Report
from .encounter import ADVISORIES, Advisor, advisor
from .geometry import Scene
from .regions import Zone, zones_of

HEADINGS = (-180.0, -90.0, 0.0, 90.0)  # of the intruder, degrees
SPEEDS = (150.0, 500.0)  # of both, feet per second
REACH = hypot(10000.0, 6000.0)  # the farthest corner of the paper's box
FARTHEST = 1e9  # feet


@dataclass(frozen=True, eq=False)
class AdvisoryMap:
    """One scenario: the network on all distances and bearings, heading and speeds fixed."""

    scene: Scene
    reach: float  # rho goes from 0 to here
    plane: PlaneRestriction  # its coordinates are rho in feet and theta in radians
    decided: Regions  # regions of the polar map, cut at theta = 180 degrees
    zones: tuple[Zone, ...]  # regions of the disc, the largest first
    behind: Tensor  # (m, 2) stretches of rho where the advice differs on both sides of theta = 180 degrees
    seconds: dict[str, float]

    @property
    def name(self) -> str:
        """For files: heading and speeds."""
        return f"psi{self.scene.psi:g}_own{self.scene.v_own:g}_int{self.scene.v_int:g}"

    @property
    def title(self) -> str:
        """For people."""
        return f"psi {self.scene.psi:g}°, ownship {self.scene.v_own:g} ft/s, intruder {self.scene.v_int:g} ft/s"

    @cached_property
    def totals(self) -> dict[str, tuple[int, float, float]]:
        """For each advisory, and each tie that occurs: zones, feet times radians, square feet."""
        names = dict.fromkeys([*(a.name for a in ADVISORIES), *(z.advisory for z in self.zones)])
        own = {name: [z for z in self.zones if z.advisory == name] for name in names}
        return {n: (len(z), sum(i.polar_area for i in z), sum(i.area for i in z)) for n, z in own.items()}

    @property
    def smallest(self) -> Zone:
        """By square feet."""
        return self.zones[-1]


@dataclass(frozen=True, eq=False)
class Maps:
    """The advisory maps of several scenarios."""

    advisor: Advisor
    reach: float
    maps: tuple[AdvisoryMap, ...]


def scenarios() -> list[Scene]:
    """The eight encounters: four headings of the intruder, both speeds 150 or both 500 feet per second."""
    return [Scene(psi=psi, v_own=v, v_int=v) for v in SPEEDS for psi in HEADINGS]


def run(
    network: Any = None,
    scenes: Sequence[Scene] | None = None,
    *,
    reach: float = REACH,
    normalize: bool | None = None,
    progress: Report | None = None,
) -> Maps:
    """Map the advice of a collision-avoidance network; with no network, the small one that ships with us.

    ``network`` and ``normalize`` are those of `exactline.paper.acas.run`; ``scenes`` say headings and speeds, the
    eight of `scenarios` if left out; ``reach`` is how many feet away the map ends.

    >>> from exactline.paper.geometry import Scene
    >>> (found,) = run(scenes=[Scene(psi=90.0)]).maps
    >>> abs(sum(zone.area for zone in found.zones) / (pi * REACH**2) - 1) < 1e-14
    True

    Raises ArgumentError for networks of another shape and a reach that is none, FileError for bad files.
    """
    number = isinstance(reach, (int, float)) and not isinstance(reach, bool) and isfinite(reach)
    if not (number and 0 < reach <= FARTHEST):
        raise ArgumentError(
            f"The map must reach more than 0 and at most {FARTHEST:g} feet, not {reach!r}.",
            where="argument reach",
            hint=f"Leave it out for {REACH:.0f}, the farthest corner of the paper's box.",
        )
    say = progress or (lambda share, what: None)
    say(0.0, "reading the network")
    known = network if isinstance(network, Advisor) else advisor(network, normalize=normalize)
    chosen, made = scenarios() if scenes is None else list(scenes), list[AdvisoryMap]()
    for k, scene in enumerate(chosen):

        def part(share: float, polygons: int, k: int = k) -> None:
            say((k + 0.8 * share) / len(chosen), f"scenario {k + 1} of {len(chosen)}: {polygons:,} polygons")

        made.append(mapped(known, scene, float(reach), part))
    say(1.0, "done")
    return Maps(known, float(reach), tuple(made))


def mapped(known: Advisor, scene: Scene, reach: float, progress: Any = False) -> AdvisoryMap:
    """The map of one scenario."""
    began = time.perf_counter()
    base = scene.encounters([(0.0, 0.0)])[0]
    plane = grid(known.network, base, (0, 1), ((0.0, reach), (-pi, pi)), progress=progress)
    cut = time.perf_counter()
    decided = plane.decisions("min")
    zones, behind = zones_of(decided, reach)
    seconds = {"cutting": cut - began, "decisions": time.perf_counter() - cut}
    return AdvisoryMap(scene, reach, plane, decided, zones, behind, seconds)
