"""The lines, arcs and samples around the ownship that the ACAS Xu study looks at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import acos, asin, cos, degrees, hypot, isfinite, pi, radians, sin
from typing import Literal

import torch
from torch import Tensor

from ..errors import ArgumentError

Kind = Literal["single distance", "single theta", "distance", "circle"]
MOST = 10_000  # lines, circles and samples of one kind; more would not show


@dataclass(frozen=True)
class Track:
    """A straight line of encounters in (rho, theta): a ray where the distance varies, an arc where the bearing does."""

    kind: Kind
    number: int  # of the line, or of the circle that the arc belongs to
    start: tuple[float, float]  # rho in feet and theta in radians
    stop: tuple[float, float]

    @property
    def varies(self) -> str:
        """The input that changes along the track: rho or theta."""
        return "rho" if self.start[1] == self.stop[1] else "theta"

    @property
    def fixed(self) -> float:
        """The input that does not change: theta in degrees, or rho in feet."""
        return degrees(self.start[1]) if self.varies == "rho" else self.start[0]

    def polar(self, alpha: float) -> tuple[float, float]:
        """Distance and bearing at an alpha."""
        (a, b), (c, d) = self.start, self.stop
        return (1 - alpha) * a + alpha * c, (1 - alpha) * b + alpha * d

    def position(self, alpha: float) -> float:
        """The varying input at an alpha: rho in feet, or theta in degrees."""
        rho, theta = self.polar(alpha)
        return rho if self.varies == "rho" else degrees(theta)

    def place(self, alpha: float) -> tuple[float, float]:
        """The intruder's x (ahead) and y (left) in feet, at an alpha."""
        rho, theta = self.polar(alpha)
        return rho * cos(theta), rho * sin(theta)

    @property
    def length(self) -> float:
        """Feet, along the ray or the arc."""
        across = self.start[0] * abs(self.stop[1] - self.start[1])
        return abs(self.stop[0] - self.start[0]) if self.varies == "rho" else across


@dataclass(frozen=True)
class Scene:
    """What is looked at; left alone, the paper's figure 2. Angles are in degrees, the rest in feet and seconds.

    >>> scene = Scene()
    >>> len(scene.rays()), len({arc.number for arc in scene.arcs()}), len(scene.grid())
    (100, 24, 625)

    The 25th circle touches the box in its corners alone.
    """

    psi: float = -180.0
    v_own: float = 150.0
    v_int: float = 150.0
    box: tuple[float, float, float, float] = (-6000.0, 10000.0, -6000.0, 6000.0)  # x from, to, y from, to
    rays_count: int = 100
    circles_count: int = 25
    single_rho: float = 3100.0  # of the single line along which theta varies
    single_theta: float = -68.0  # of the single line along which rho varies ...
    reach: float = 12000.0  # ... from 0 to here
    samples: int = 15  # on a line
    grid_side: int = 25

    def __post_init__(self) -> None:
        numbers = {n: getattr(self, n) for n in ("psi", "v_own", "v_int", "single_rho", "single_theta", "reach")}
        for name, value in (*numbers.items(), *(("box", v) for v in self.box)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
                raise _bad(name, value, "a finite number")
        for name in ("psi", "single_theta"):
            if not -180 <= numbers[name] <= 180:
                raise _bad(name, numbers[name], "an angle from -180 to 180 degrees")
        for name in ("v_own", "v_int", "single_rho", "reach"):
            if numbers[name] < 0:
                raise _bad(name, numbers[name], "at least 0")
        if len(self.box) != 4 or not (self.box[0] < 0 < self.box[1] and self.box[2] < 0 < self.box[3]):
            raise _bad("box", self.box, "x from, x to, y from, y to around the ownship at 0, 0")
        for name, least in (("rays_count", 2), ("circles_count", 1), ("samples", 2), ("grid_side", 2)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
                raise _bad(name, value, f"a whole number from {least} to {MOST:,}")

    def singles(self) -> list[Track]:
        """The two single lines: distance varies, then bearing."""
        theta = radians(self.single_theta)
        return [
            Track("single distance", 0, (0.0, theta), (float(self.reach), theta)),
            Track("single theta", 0, (float(self.single_rho), -pi), (float(self.single_rho), pi)),
        ]

    def rays(self) -> list[Track]:
        """Distance lines from the ownship to the edge of the box; the first and the last lie straight behind."""
        angles = torch.linspace(-pi, pi, self.rays_count, dtype=torch.float64).tolist()
        return [Track("distance", i, (0.0, a), (self._edge(a), a)) for i, a in enumerate(angles)]

    def arcs(self) -> list[Track]:
        """The parts of circles around the ownship that lie inside the box."""
        far = max(hypot(x, y) for x in self.box[:2] for y in self.box[2:])
        return [
            Track("circle", i, (rho, a), (rho, b))
            for i in range(self.circles_count)
            for rho in ((i + 1) / self.circles_count * far,)
            for a, b in self._inside(rho)
        ]

    def tracks(self) -> list[Track]:
        """All of them."""
        return [*self.singles(), *self.rays(), *self.arcs()]

    def encounters(self, polar: Tensor | Sequence[tuple[float, float]]) -> Tensor:  # (n, 2) rho and theta -> (n, 5)
        """Full inputs for intruders at these distances and bearings."""
        polar = torch.as_tensor(polar, dtype=torch.float64)
        rest = torch.tensor([radians(self.psi), self.v_own, self.v_int], dtype=torch.float64)
        return torch.cat([polar, rest.expand(len(polar), 3)], 1)

    def sampled(self, track: Track) -> list[float]:
        """The alphas of evenly spread samples, both ends among them."""
        return torch.linspace(0, 1, self.samples, dtype=torch.float64).tolist()

    def grid(self) -> Tensor:  # (grid_side ** 2, 2) x and y
        """Evenly spread samples over the box, its edges among them."""
        x, y = (torch.linspace(a, b, self.grid_side, dtype=torch.float64) for a, b in (self.box[:2], self.box[2:]))
        return torch.cartesian_prod(x, y)

    def _edge(self, angle: float) -> float:
        """How far it is to the edge of the box."""
        x, y = cos(angle), sin(angle)
        along = (self.box[1] if x > 0 else self.box[0]) / x if x else float("inf")
        across = (self.box[3] if y > 0 else self.box[2]) / y if y else float("inf")
        return min(along, across)

    def _inside(self, rho: float) -> list[tuple[float, float]]:
        """The stretches of bearing, from -pi to pi, where a circle is inside the box."""
        cuts = {-pi, pi}
        for side in self.box[:2]:
            if abs(side) < rho:
                cuts |= {acos(side / rho), -acos(side / rho)}
        for side in self.box[2:]:
            if abs(side) < rho:
                up = asin(side / rho)
                cuts |= {up, pi - up if up > 0 else -pi - up}
        found: list[tuple[float, float]] = []
        order = sorted(cuts)
        for a, b in pairwise(order):
            middle = (a + b) / 2
            x, y = rho * cos(middle), rho * sin(middle)
            if b - a > 1e-9 and self.box[0] <= x <= self.box[1] and self.box[2] <= y <= self.box[3]:
                joins = bool(found) and found[-1][1] == a
                found[-1:] = [(found[-1][0], b)] if joins else [*found[-1:], (a, b)]
        return found


def _bad(name: str, value: object, wanted: str) -> ArgumentError:
    return ArgumentError(
        f"{name} must be {wanted}, not {value!r}.", where=f"argument {name}", hint="Leave it out for the paper's."
    )
