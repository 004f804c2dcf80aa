"""Lines to try in a box: chords through it, edges of it, and steps from good points."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .property import Box


@dataclass(frozen=True)
class Chance:
    """Random choices that repeat with the seed."""

    generator: torch.Generator

    @staticmethod
    def of(seed: int) -> Chance:
        return Chance(torch.Generator().manual_seed(seed))

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.generator, dtype=torch.float64)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)

    def below(self, most: int, *shape: int) -> Tensor:
        return torch.randint(max(most, 1), shape, generator=self.generator)


def chord(
    box: Box,
    through: Tensor,  # (n, inputs), in the box
    direction: Tensor,  # (n, inputs)
    reach: Tensor | None = None,  # (n,) how far to either side at the most, in lengths of the direction
) -> tuple[Tensor, Tensor]:
    """The lines through points, as far as the box goes."""
    away = torch.where(direction == 0, torch.inf, direction)
    to_lower, to_upper = (box.lower - through) / away, (box.upper - through) / away
    still = direction == 0
    back = torch.where(still, -torch.inf, torch.minimum(to_lower, to_upper)).amax(1).clamp(max=0)
    ahead = torch.where(still, torch.inf, torch.maximum(to_lower, to_upper)).amin(1).clamp(min=0)
    if reach is not None:
        back, ahead = torch.maximum(back, -reach), torch.minimum(ahead, reach)
    back, ahead = (torch.where(torch.isfinite(t), t, 0.0)[:, None] for t in (back, ahead))
    ends = [torch.addcmul(through, t, direction) for t in (back, ahead)]
    return ends[0].clamp(box.lower, box.upper), ends[1].clamp(box.lower, box.upper)


def explore(box: Box, count: int, chance: Chance) -> tuple[Tensor, Tensor]:
    """Lines that know nothing yet: random chords, parallels to an axis, corner to corner."""
    points = box.lower + box.width * chance.uniform(count, len(box.lower))
    edge = chance.uniform(count, 1) ** 2  # many points with some coordinates on the edge: extremes like to be there
    corners = torch.where(chance.uniform(*points.shape) < 0.5, box.lower, box.upper)
    points = torch.where(chance.uniform(*points.shape) < edge, corners, points)
    kind = chance.uniform(count, 1)
    to_corner = torch.where(chance.uniform(*points.shape) < 0.5, box.lower, box.upper) - corners
    through = torch.where(kind < 0.2, corners, points)
    random = chance.normal(*points.shape) * box.width
    along = torch.where(kind < 0.2, to_corner, torch.where(kind < 0.5, axes(box, count, chance), random))
    return chord(box, through, along)


def axes(box: Box, count: int, chance: Chance) -> Tensor:  # (count, inputs)
    """Steps along one coordinate each, one that is not fixed."""
    free = torch.nonzero(box.width > 0).flatten()
    found = torch.zeros(count, len(box.lower), dtype=torch.float64)
    if len(free):
        chosen = free[chance.below(len(free), count)]
        found[torch.arange(count), chosen] = box.width[chosen]
    return found


def first_lines(box: Box, most: int, chance: Chance) -> tuple[Tensor, Tensor]:
    """Where to begin: the diagonal, parallels to axes through the middle, then whatever comes."""
    middle = torch.lerp(box.lower, box.upper, 0.5).clamp(box.lower, box.upper)
    free = torch.nonzero(box.width > 0).flatten()[: max(most // 2 - 1, 0)]
    along = torch.zeros(len(free) + 1, len(box.lower), dtype=torch.float64)
    along[0] = box.width
    along[torch.arange(len(free)) + 1, free] = box.width[free]
    starts, ends = chord(box, middle.expand(len(along), -1), along)
    more = explore(box, max(most - len(along), 0), chance)
    return torch.cat([starts, more[0]]), torch.cat([ends, more[1]])
