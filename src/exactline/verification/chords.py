"""Lines to try in a box: chords through points, random chords, and the first lines of a search."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .property import Box


@dataclass(frozen=True)
class RandomSource:
    """Random numbers, reproducible from a seed."""

    generator: torch.Generator

    @staticmethod
    def of(seed: int) -> RandomSource:
        """Make a source from a seed."""
        return RandomSource(torch.Generator().manual_seed(seed))

    def uniform(self, *shape: int) -> Tensor:
        """Draw numbers from 0 to 1."""
        return torch.rand(*shape, generator=self.generator, dtype=torch.float64)

    def normal(self, *shape: int) -> Tensor:
        """Draw from the standard normal distribution."""
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def integers(self, limit: int, *shape: int) -> Tensor:
        """Draw whole numbers from 0 to limit - 1."""
        return torch.randint(max(limit, 1), shape, generator=self.generator)


def make_chords(
    box: Box,
    through: Tensor,  # (n, inputs), in the box
    direction: Tensor,  # (n, inputs)
    max_steps: Tensor | None = None,  # (n,) largest distance from the point, in lengths of the direction
) -> tuple[Tensor, Tensor]:  # (n, inputs) each
    """Make the lines through some points, extended to the faces of the box; return their starts and ends."""
    divisor = torch.where(direction == 0, torch.inf, direction)
    to_lower, to_upper = (box.lower - through) / divisor, (box.upper - through) / divisor
    still = direction == 0
    back = torch.where(still, -torch.inf, torch.minimum(to_lower, to_upper)).amax(1).clamp(max=0)
    ahead = torch.where(still, torch.inf, torch.maximum(to_lower, to_upper)).amin(1).clamp(min=0)
    if max_steps is not None:
        back, ahead = torch.maximum(back, -max_steps), torch.minimum(ahead, max_steps)
    back, ahead = (torch.where(torch.isfinite(t), t, 0.0)[:, None] for t in (back, ahead))
    ends = [torch.addcmul(through, t, direction) for t in (back, ahead)]
    return ends[0].clamp(box.lower, box.upper), ends[1].clamp(box.lower, box.upper)


def draw_lines(box: Box, count: int, random: RandomSource) -> tuple[Tensor, Tensor]:  # (count, inputs) each
    """Draw lines without knowledge of the network: random chords, parallels to an axis, corner to corner."""
    points = box.lower + box.width * random.uniform(count, len(box.lower))
    on_face = random.uniform(count, 1) ** 2  # extremes are often on the faces of the box
    corners = torch.where(random.uniform(*points.shape) < 0.5, box.lower, box.upper)
    points = torch.where(random.uniform(*points.shape) < on_face, corners, points)
    kind = random.uniform(count, 1)
    to_corner = torch.where(random.uniform(*points.shape) < 0.5, box.lower, box.upper) - corners
    through = torch.where(kind < 0.2, corners, points)
    anywhere = random.normal(*points.shape) * box.width
    inner = torch.where(kind < 0.5, draw_axis_steps(box, count, random), anywhere)
    return make_chords(box, through, torch.where(kind < 0.2, to_corner, inner))


def draw_axis_steps(box: Box, count: int, random: RandomSource) -> Tensor:  # (count, inputs)
    """Draw steps along single coordinates, each as long as the box; fixed coordinates are never chosen."""
    free = torch.nonzero(box.width > 0).flatten()
    steps = torch.zeros(count, len(box.lower), dtype=torch.float64)
    if len(free):
        chosen = free[random.integers(len(free), count)]
        steps[torch.arange(count), chosen] = box.width[chosen]
    return steps


def make_first_lines(box: Box, count: int, random: RandomSource) -> tuple[Tensor, Tensor]:  # (lines, inputs) each
    """Make the lines of the first round: the diagonal, parallels to the axes through the middle, then random ones."""
    middle = torch.lerp(box.lower, box.upper, 0.5).clamp(box.lower, box.upper)
    free = torch.nonzero(box.width > 0).flatten()[: max(count // 2 - 1, 0)]
    directions = torch.zeros(len(free) + 1, len(box.lower), dtype=torch.float64)
    directions[0] = box.width
    directions[torch.arange(len(free)) + 1, free] = box.width[free]
    starts, ends = make_chords(box, middle.expand(len(directions), -1), directions)
    more = draw_lines(box, max(count - len(directions), 0), random)
    return torch.cat([starts, more[0]]), torch.cat([ends, more[1]])
