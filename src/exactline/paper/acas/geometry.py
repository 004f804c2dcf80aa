"""The lines, arcs and sample points around the ownship that the ACAS Xu study examines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import acos, asin, cos, degrees, hypot, isfinite, pi, radians, sin
from typing import Literal

import torch
from torch import Tensor

from ...errors import ArgumentError

TrackKind = Literal["single distance", "single theta", "distance", "circle"]
MAX_COUNT = 10_000  # lines, circles, or samples on a line; more would be too dense to see
MIN_ARC_RADIANS = 1e-9  # shorter arcs are rounding errors of the corners of the box


@dataclass(frozen=True)
class Track:
    """A line of encounters in (rho, theta): a ray along which the distance varies, or an arc of varying bearing."""

    kind: TrackKind
    number: int  # of the ray, or of the circle that the arc belongs to
    start: tuple[float, float]  # rho in feet and theta in radians
    end: tuple[float, float]

    @property
    def varies(self) -> str:
        """The input that varies along the track: rho or theta."""
        return "rho" if self.start[1] == self.end[1] else "theta"

    @property
    def fixed_input(self) -> float:
        """The input that stays constant: theta in degrees, or rho in feet."""
        return degrees(self.start[1]) if self.varies == "rho" else self.start[0]

    def polar(self, alpha: float) -> tuple[float, float]:
        """Return rho in feet and theta in radians at an alpha."""
        (a, b), (c, d) = self.start, self.end
        return (1 - alpha) * a + alpha * c, (1 - alpha) * b + alpha * d

    def varying_input(self, alpha: float) -> float:
        """Return the varying input at an alpha: rho in feet, or theta in degrees."""
        rho, theta = self.polar(alpha)
        return rho if self.varies == "rho" else degrees(theta)

    def xy(self, alpha: float) -> tuple[float, float]:
        """Return the intruder's x (ahead) and y (left) in feet at an alpha."""
        rho, theta = self.polar(alpha)
        return rho * cos(theta), rho * sin(theta)

    @property
    def length_feet(self) -> float:
        """Length of the ray or the arc."""
        if self.varies == "rho":
            return abs(self.end[0] - self.start[0])
        return self.start[0] * abs(self.end[1] - self.start[1])


@dataclass(frozen=True)
class EncounterGeometry:
    """An encounter of two aircraft, and the lines and samples on which it is examined; the defaults are the paper's.

    Args:
        psi: Heading of the intruder in degrees, -180 to 180; 180 is head on.
        v_own: Speed of the ownship in feet per second.
        v_int: Speed of the intruder in feet per second.
        box: The rectangle around the ownship in feet: x from, x to, y from, y to; x is ahead, y is left.
        ray_count: Number of rays from the ownship to the edge of the box.
        circle_count: Number of circles around the ownship, cut into the arcs inside the box.
        single_rho: Distance in feet of the single line along which theta varies.
        single_theta: Bearing in degrees of the single line along which rho varies.
        reach: Length in feet of the single line along which rho varies.
        samples: Number of samples on each line.
        grid_side: Number of samples along each side of the grid.

    >>> geometry = EncounterGeometry()
    >>> len(geometry.rays()), len({arc.number for arc in geometry.arcs()}), len(geometry.grid())
    (100, 24, 625)

    The 25th circle touches the box only at its corners, so it has no arcs.

    Raises ArgumentError for values out of range.
    """

    psi: float = -180.0
    v_own: float = 150.0
    v_int: float = 150.0
    box: tuple[float, float, float, float] = (-6000.0, 10000.0, -6000.0, 6000.0)
    ray_count: int = 100
    circle_count: int = 25
    single_rho: float = 3100.0
    single_theta: float = -68.0
    reach: float = 12000.0
    samples: int = 15
    grid_side: int = 25

    def __post_init__(self) -> None:
        numbers = {n: getattr(self, n) for n in ("psi", "v_own", "v_int", "single_rho", "single_theta", "reach")}
        for name, value in (*numbers.items(), *(("box", v) for v in self.box)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
                raise _invalid_value(name, value, "a finite number")
        for name in ("psi", "single_theta"):
            if not -180 <= numbers[name] <= 180:
                raise _invalid_value(name, numbers[name], "an angle from -180 to 180 degrees")
        for name in ("v_own", "v_int", "single_rho", "reach"):
            if numbers[name] < 0:
                raise _invalid_value(name, numbers[name], "at least 0")
        if len(self.box) != 4 or not (self.box[0] < 0 < self.box[1] and self.box[2] < 0 < self.box[3]):
            raise _invalid_value("box", self.box, "x from, x to, y from, y to around the ownship at 0, 0")
        for name, least in (("ray_count", 2), ("circle_count", 1), ("samples", 2), ("grid_side", 2)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_COUNT:
                raise _invalid_value(name, value, f"a whole number from {least} to {MAX_COUNT:,}")

    def single_lines(self) -> list[Track]:
        """Return the two single lines: distance varies along the first, bearing along the second."""
        theta = radians(self.single_theta)
        return [
            Track("single distance", 0, (0.0, theta), (float(self.reach), theta)),
            Track("single theta", 0, (float(self.single_rho), -pi), (float(self.single_rho), pi)),
        ]

    def rays(self) -> list[Track]:
        """Return the rays from the ownship to the edge of the box; the first and the last point straight behind."""
        angles = torch.linspace(-pi, pi, self.ray_count, dtype=torch.float64).tolist()
        return [Track("distance", i, (0.0, a), (self._distance_to_edge(a), a)) for i, a in enumerate(angles)]

    def arcs(self) -> list[Track]:
        """Return the parts of the circles that lie inside the box."""
        far = max(hypot(x, y) for x in self.box[:2] for y in self.box[2:])
        return [
            Track("circle", i, (rho, a), (rho, b))
            for i in range(self.circle_count)
            for rho in ((i + 1) / self.circle_count * far,)
            for a, b in self._find_arcs_inside(rho)
        ]

    def tracks(self) -> list[Track]:
        """Return the single lines, the rays and the arcs."""
        return [*self.single_lines(), *self.rays(), *self.arcs()]

    def to_inputs(self, polar: Tensor | Sequence[tuple[float, float]]) -> Tensor:  # (n, 2) rho and theta -> (n, 5)
        """Return network inputs for intruders at the given distances and bearings.

        Args:
            polar: Distances in feet and bearings in radians.
        """
        polar = torch.as_tensor(polar, dtype=torch.float64)
        rest = torch.tensor([radians(self.psi), self.v_own, self.v_int], dtype=torch.float64)
        return torch.cat([polar, rest.expand(len(polar), 3)], 1)

    def sample_alphas(self) -> list[float]:
        """Return the alphas of the samples on a line: evenly spaced, both ends included."""
        return torch.linspace(0, 1, self.samples, dtype=torch.float64).tolist()

    def grid(self) -> Tensor:  # (grid_side ** 2, 2) x and y
        """Return sample points evenly spaced over the box, its edges included."""
        x, y = (torch.linspace(a, b, self.grid_side, dtype=torch.float64) for a, b in (self.box[:2], self.box[2:]))
        return torch.cartesian_prod(x, y)

    def _distance_to_edge(self, angle: float) -> float:
        x, y = cos(angle), sin(angle)
        along = (self.box[1] if x > 0 else self.box[0]) / x if x else float("inf")
        across = (self.box[3] if y > 0 else self.box[2]) / y if y else float("inf")
        return min(along, across)

    def _find_arcs_inside(self, rho: float) -> list[tuple[float, float]]:
        """Find the intervals of bearing, from -pi to pi, on which a circle lies inside the box."""
        cuts = {-pi, pi}
        for side in self.box[:2]:
            if abs(side) < rho:
                cuts |= {acos(side / rho), -acos(side / rho)}
        for side in self.box[2:]:
            if abs(side) < rho:
                up = asin(side / rho)
                cuts |= {up, pi - up if up > 0 else -pi - up}
        arcs: list[tuple[float, float]] = []
        for a, b in pairwise(sorted(cuts)):
            middle = (a + b) / 2
            x, y = rho * cos(middle), rho * sin(middle)
            if b - a > MIN_ARC_RADIANS and self.box[0] <= x <= self.box[1] and self.box[2] <= y <= self.box[3]:
                if arcs and arcs[-1][1] == a:
                    arcs[-1] = (arcs[-1][0], b)
                else:
                    arcs.append((a, b))
        return arcs


def _invalid_value(name: str, value: object, wanted: str) -> ArgumentError:
    return ArgumentError(
        f"{name} must be {wanted}, not {value!r}.", where=f"argument {name}", hint="Omit it to use the paper's value."
    )
