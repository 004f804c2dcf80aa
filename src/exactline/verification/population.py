"""The best points found so far for one disjunct, and lines through them that may lead to better ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from .chords import RandomSource, draw_axis_steps, make_chords
from .property import Box

MAX_MEMBERS = 24  # points of a population
MAX_STALE_LINES = 40  # lines without a better point, after which a new point may replace a member
MAX_LOCAL_DECADES = 5.0  # a local line is at least 1e-5 of the box long
GRADIENT_JITTER = 1e-7  # of the box: good points lie on breaks, so the gradient is taken at either side of them

MarginGradient: TypeAlias = Callable[[Tensor], Tensor]  # points (n, inputs) -> gradients of the margin (n, inputs)


def random_direction_share(box: Box) -> float:
    """Return the share of random directions; with many free coordinates, few of them improve a point."""
    free = int((box.width > 0).sum())
    return min(10 / max(free, 1), 1.0) ** 0.25


def _no_points() -> Tensor:
    return torch.zeros(0, 0, dtype=torch.float64)


@dataclass
class Population:
    """Points with small margins, improved by exact line searches."""

    box: Box
    margin_gradient: MarginGradient
    points: Tensor = field(default_factory=_no_points)  # (members, inputs)
    margins: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))  # (members,)
    # (members,) lines tried since the last improvement
    stale_lines: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))

    def __len__(self) -> int:
        return len(self.margins)

    def propose_lines(self, count: int, random: RandomSource) -> tuple[Tensor, Tensor, Tensor]:
        """Propose lines through members, better members more often.

        Returns starts and ends, (count, inputs) each, and the member each line goes through, (count,).
        """
        order = self.margins.argsort(stable=True)
        chosen = order[(random.uniform(count) ** 2 * len(self)).long().clamp(max=len(self) - 1)]
        here = self.points[chosen]
        directions = self._choose_directions(here, random)
        local_steps = 10 ** (-MAX_LOCAL_DECADES * random.uniform(count))
        is_local = random.uniform(count) < 0.5
        starts, ends = make_chords(self.box, here, directions, torch.where(is_local, local_steps, torch.inf))
        return starts, ends, chosen

    def _choose_directions(self, here: Tensor, random: RandomSource) -> Tensor:  # (n, inputs) -> (n, inputs)
        """Choose one of several kinds of steps for each point; with many coordinates, mostly gradients."""
        count, inputs = here.shape
        without_gradient = 0.65 * random_direction_share(self.box)
        width, kind = self.box.width, random.uniform(count) / without_gradient * 0.65
        steps = draw_axis_steps(self.box, count, random)
        is_random = kind < 0.25
        some = random.uniform(count, inputs) < random.uniform(count, 1)
        steps[is_random] = (random.normal(count, inputs) * width * some)[is_random]
        others, thirds = (self.points[random.integers(len(self), count)] for _ in range(2))
        is_pair = (kind >= 0.25) & (kind < 0.4)
        steps[is_pair] = (others - torch.where(random.uniform(count, 1) < 0.5, here, thirds))[is_pair]
        is_descent = kind >= 0.65
        if bool(is_descent.any()):
            steps[is_descent] = self._choose_descents(here[is_descent], random)
        return steps

    def _choose_descents(self, here: Tensor, random: RandomSource) -> Tensor:  # (n, inputs) -> (n, inputs)
        """Step against the gradient, projected onto the box, or straight to the corner it points to."""
        width = self.box.width
        nearby = here + width * GRADIENT_JITTER * random.normal(*here.shape)
        slope = self.margin_gradient(nearby.clamp(self.box.lower, self.box.upper))
        blocked = ((slope > 0) & (here <= self.box.lower)) | ((slope < 0) & (here >= self.box.upper))
        scaled = torch.where(blocked, 0.0, -slope * width)
        size = scaled.abs().amax(1, keepdim=True)
        scaled = scaled / torch.where(size > 0, size, 1.0)
        corner = torch.where(slope > 0, self.box.lower, self.box.upper) - here
        corner = torch.where(slope == 0, 0.0, corner)
        return torch.where(random.uniform(len(here), 1) < 0.5, scaled * width, corner)

    def improve_members(
        self,
        chosen: Tensor,  # (lines,) the member each line goes through
        points: Tensor,  # (lines, inputs) the best point of each line
        margins: Tensor,  # (lines,) its margin
    ) -> None:
        """Move members to the best point of the lines through them, where that is better."""
        for member in chosen.unique().tolist():
            lines = torch.nonzero(chosen == member).flatten()
            best = lines[margins[lines].argmin()]
            if margins[best] < self.margins[member]:
                self.points[member], self.margins[member] = points[best], margins[best]
                self.stale_lines[member] = 0
            else:
                self.stale_lines[member] += len(lines)

    def admit_points(self, points: Tensor, margins: Tensor) -> None:  # (n, inputs), (n,)
        """Elitist replacement: new points fill free slots, then replace stale members, then worse ones."""
        order = margins.argsort(stable=True)[:MAX_MEMBERS]
        for point, margin in zip(points[order], margins[order], strict=True):
            if not bool(torch.isfinite(margin)) or bool((self.margins == margin).any()):
                continue
            if len(self) < MAX_MEMBERS:
                self.points = torch.cat([self.points.reshape(-1, len(point)), point[None]])
                self.margins = torch.cat([self.margins, margin[None]])
                self.stale_lines = torch.cat([self.stale_lines, torch.zeros(1, dtype=torch.int64)])
                continue
            stale = self.stale_lines > MAX_STALE_LINES
            stale[self.margins.argmin()] = False
            slot = torch.where(stale, torch.inf, self.margins).argmax()
            if bool(stale.any()):
                slot = torch.where(stale, self.margins, -torch.inf).argmax()
            elif margin >= self.margins[slot]:
                break
            self.points[slot], self.margins[slot], self.stale_lines[slot] = point, margin, 0
