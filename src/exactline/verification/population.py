"""The best points so far for one case, and the lines that may lead from them to better ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .chords import Chance, axes, chord
from .property import Box

MEMBERS = 24
PATIENCE = 40  # lines through a point that find nothing better, after which newcomers may take its place
SMALLEST = 5.0  # a local line is at least 1e-5 of the box long

Slopes = Callable[[Tensor], Tensor]  # points (n, inputs) to gradients of the margin (n, inputs)


def _no_points() -> Tensor:
    return torch.zeros(0, 0, dtype=torch.float64)


def blindness(box: Box) -> float:
    """How much random directions are worth: less, the more coordinates are free."""
    free = int((box.width > 0).sum())
    return min(10 / max(free, 1), 1.0) ** 0.25


@dataclass
class Herd:
    """Points with small margins that improve by exact steps along lines through them."""

    box: Box
    slopes: Slopes
    points: Tensor = field(default_factory=_no_points)  # (members, inputs)
    margins: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))  # (members,)
    tries: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))  # since the last gain

    def __len__(self) -> int:
        return len(self.margins)

    def propose(self, count: int, chance: Chance) -> tuple[Tensor, Tensor, Tensor]:
        """Lines through members, and which member each goes through; better members are chosen more often."""
        order = self.margins.argsort(stable=True)
        chosen = order[(chance.uniform(count) ** 2 * len(self)).long().clamp(max=len(self) - 1)]
        here = self.points[chosen]
        along = self._directions(here, chance)
        reach = 10 ** (-SMALLEST * chance.uniform(count))
        near = chance.uniform(count) < 0.5
        starts, ends = chord(self.box, here, along, torch.where(near, reach, torch.inf))
        return starts, ends, chosen

    def _directions(self, here: Tensor, chance: Chance) -> Tensor:
        """One of several kinds of steps for each point: the more coordinates, the more often by gradients."""
        count, inputs = here.shape
        blind = 0.65 * blindness(self.box)
        width, kind = self.box.width, chance.uniform(count) / blind * 0.65
        along = axes(self.box, count, chance)
        random = kind < 0.25
        few = chance.uniform(count, inputs) < chance.uniform(count, 1)
        along[random] = (chance.normal(count, inputs) * width * few)[random]
        others, thirds = (self.points[chance.below(len(self), count)] for _ in range(2))
        pair = (kind >= 0.25) & (kind < 0.4)
        along[pair] = (others - torch.where(chance.uniform(count, 1) < 0.5, here, thirds))[pair]
        steep = kind >= 0.65
        if bool(steep.any()):
            along[steep] = self._down(here[steep], chance)
        return along

    def _down(self, here: Tensor, chance: Chance) -> Tensor:
        """Against the gradient, with coordinates that would leave the box held; or straight to a corner."""
        width = self.box.width
        beside = here + width * 1e-7 * chance.normal(*here.shape)  # good points lie on breaks: take either side
        slope = self.slopes(beside.clamp(self.box.lower, self.box.upper))
        held = ((slope > 0) & (here <= self.box.lower)) | ((slope < 0) & (here >= self.box.upper))
        scaled = torch.where(held, 0.0, -slope * width)
        size = scaled.abs().amax(1, keepdim=True)
        scaled = scaled / torch.where(size > 0, size, 1.0)
        corner = torch.where(slope > 0, self.box.lower, self.box.upper) - here
        corner = torch.where(slope == 0, 0.0, corner)
        return torch.where(chance.uniform(len(here), 1) < 0.5, scaled * width, corner)

    def improve(self, chosen: Tensor, points: Tensor, margins: Tensor) -> None:
        """Members go to the best point of the lines through them, where it is better."""
        for member in chosen.unique().tolist():
            mine = torch.nonzero(chosen == member).flatten()
            best = mine[margins[mine].argmin()]
            if margins[best] < self.margins[member]:
                self.points[member], self.margins[member] = points[best], margins[best]
                self.tries[member] = 0
            else:
                self.tries[member] += len(mine)

    def admit(self, points: Tensor, margins: Tensor) -> None:
        """Newcomers take free places, then those of the weary that are not the best, then of the worse."""
        order = margins.argsort(stable=True)[:MEMBERS]
        for point, margin in zip(points[order], margins[order], strict=True):
            if not bool(torch.isfinite(margin)) or bool((self.margins == margin).any()):
                continue
            if len(self) < MEMBERS:
                self.points = torch.cat([self.points.reshape(-1, len(point)), point[None]])
                self.margins = torch.cat([self.margins, margin[None]])
                self.tries = torch.cat([self.tries, torch.zeros(1, dtype=torch.int64)])
                continue
            weary = self.tries > PATIENCE
            weary[self.margins.argmin()] = False
            place = torch.where(weary, torch.inf, self.margins).argmax()
            if bool(weary.any()):
                place = torch.where(weary, self.margins, -torch.inf).argmax()
            elif margin >= self.margins[place]:
                break
            self.points[place], self.margins[place], self.tries[place] = point, margin, 0
