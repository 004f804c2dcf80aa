"""Bounded model checking of a closed loop: all states that a polygon of states leads to, step by step, exactly.

After k steps the state is a piecewise-affine function of the first one. Its linear regions cut the polygon of first
states into polygons, and each of them is mapped by one affine map: the corners of a region lead to the corners of its
image. A linear function of the state is then largest at a corner, so that finitely many points decide whether a limit
holds for all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...api import restrict_plane
from ...errors import ArgumentError
from ...network import Network
from ...results.plane import PlaneRestriction
from ..record import StudyProgress
from .step import repeat_step

DEFAULT_STEPS = 20
DEFAULT_BOX = ((-0.2, 0.2), (-0.4, 0.4))  # of first states: angle in radians, velocity in radians per second
DEFAULT_LIMIT = 0.3  # radians: the largest angle that is safe


@dataclass(frozen=True, eq=False)
class Reached:
    """The states after some steps."""

    steps: int
    plane: PlaneRestriction  # of the first states; its values are the states after the steps
    largest_angle: float  # over all of them
    largest_velocity: float
    worst_start: tuple[float, float]  # the first state that leads to the largest angle

    @property
    def images(self) -> list[Tensor]:
        """(corners, 2) for each region: the polygon of states that it leads to."""
        return [self.plane.values_at(self.plane.polygon(i).indices) for i in range(len(self.plane))]  # type: ignore

    @property
    def image_area(self) -> float:
        """The sum of the areas of all images; the area of the set of states if they do not overlap."""
        return sum(float(polygon_area(image)) for image in self.images)


@dataclass(frozen=True, eq=False)
class ReachStudy:
    """The states of a closed loop after 1, 2, ... steps from a box of first states."""

    name: str
    box: tuple[tuple[float, float], tuple[float, float]]
    limit: float  # the largest angle that is safe
    reached: list[Reached] = field(default_factory=list[Reached])

    @property
    def is_safe(self) -> bool:
        """Whether no state after any of the steps exceeds the limit."""
        return all(r.largest_angle <= self.limit for r in self.reached)

    @property
    def counterexample(self) -> tuple[int, tuple[float, float]] | None:
        """The first step at which the limit is exceeded, and a first state that leads there; None if it is safe."""
        return next(((r.steps, r.worst_start) for r in self.reached if r.largest_angle > self.limit), None)


def run(
    step: Network,
    *,
    name: str = "bundled controller",
    steps: int = DEFAULT_STEPS,
    box: tuple[tuple[float, float], tuple[float, float]] = DEFAULT_BOX,
    limit: float = DEFAULT_LIMIT,
    progress: StudyProgress | None = None,
) -> ReachStudy:
    """Follow all states of a box for some steps.

    Args:
        step: One step, (2,) to (2,): angle and velocity.
        name: Of the closed loop, for reports.
        steps: How many steps, at least one.
        box: The ranges of angle and velocity of the first states.
        limit: The largest angle that is safe.
        progress: Called after every step.

    Raises ArgumentError, PlaneError for a box without area.
    """
    if step.input_shape != (2,) or step.output_shape != (2,):
        raise ArgumentError(
            f"The step maps {step.input_shape} to {step.output_shape}.",
            where="argument step",
            hint="Give a network that maps two numbers, angle and velocity, to two numbers.",
        )
    (low, high), (slow, fast) = box
    corners = [[low, slow], [high, slow], [high, fast], [low, fast]]
    study = ReachStudy(name, box, limit)
    for count in range(1, steps + 1):
        study.reached.append(_summarize(count, restrict_plane(repeat_step(step, count), corners)))
        if progress is not None:
            progress(count / steps, f"step {count}")
    return study


def _summarize(steps: int, plane: PlaneRestriction) -> Reached:
    states, starts = plane.values, plane.points
    if isinstance(states, tuple) or isinstance(starts, tuple):
        raise TypeError("a step has one input and one output")
    angles, velocities = states.abs().unbind(1)
    worst = starts[angles.argmax()].tolist()
    return Reached(steps, plane, float(angles.max()), float(velocities.max()), (worst[0], worst[1]))


def successors(step: Network, polygon: Tensor) -> list[Tensor]:  # (corners, 2) -> (corners, 2) each
    """The polygons that one step maps the regions of a polygon to."""
    return _summarize(1, restrict_plane(step, polygon)).images


def polygon_area(corners: Tensor) -> Tensor:  # (corners, 2) -> ()
    """The area of a convex polygon, whatever the direction of its corners."""
    base, following = corners - corners[0], (corners - corners[0]).roll(-1, 0)
    return (base[:, 0] * following[:, 1] - base[:, 1] * following[:, 0]).sum().abs() / 2


def simulate(step: Network, start: tuple[float, float], steps: int) -> Tensor:  # (steps + 1, 2)
    """The states of one simulation."""
    states = [torch.tensor([start], dtype=torch.float64)]
    for _ in range(steps):
        following = step(states[-1])
        if isinstance(following, tuple):
            raise TypeError("a step has one output")
        states.append(following)
    return torch.cat(states)
