"""The search in one box: rounds of lines, decided exactly, each guided by the best points of the rounds before."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from .chords import RandomSource, draw_lines, make_first_lines
from .flatten import FlatNetwork
from .margin import minimize_margin
from .population import MarginGradient, Population, random_direction_share
from .property import Box, Disjunct, Property

FIRST_ROUND_LINES = 32
MIN_ROUND_LINES, MAX_ROUND_LINES = 2, 256
ROUND_NUMBERS = 4e6  # activations a round should compute: a few hundredths of a second
MAX_UNTIMED_NUMBERS = 1e9  # a round with more activations may take seconds and watches the clock, which is slower
RANDOM_LINE_SHARE = 0.3  # share of lines drawn without regard to the population
MAX_REPLAYED_POINTS = 8  # violations of a round that are replayed
MIN_TEMPERATURE = 1e-30  # of the softmax over excesses: avoids a division by 0 where all are equal


@dataclass(frozen=True, eq=False)
class Violation:
    """A point on a line that satisfies a disjunct in exact arithmetic on the pieces."""

    disjunct: int
    point: Tensor  # (inputs,)
    margin: float


@dataclass
class Coverage:
    """What the search has covered so far."""

    lines: int = 0
    pieces: int = 0
    margin: float = float("inf")  # the smallest
    nearest: Tensor | None = None  # (inputs,) the point with the smallest margin
    disjunct: int | None = None  # the disjunct it belongs to


@dataclass
class BoxSearch:
    """The search in one box, for all disjuncts on that box."""

    flat: FlatNetwork
    box: Box
    disjuncts: dict[int, Disjunct]  # by index in the property
    random: RandomSource
    populations: dict[int, Population] = field(init=False)  # by disjunct
    breaks_per_line: float = 0.0  # in the last round
    margin: float = float("inf")  # the smallest so far
    rounds: int = 0

    def __post_init__(self) -> None:
        self.populations = {
            index: Population(self.box, self._make_margin_gradient(disjunct))
            for index, disjunct in self.disjuncts.items()
        }

    @property
    def is_single_line(self) -> bool:
        """Whether the box is a line or a point, so that one round decides it."""
        return int((self.box.width > 0).sum()) <= 1

    def next_line_count(self) -> int:
        """Return the number of lines of the next round."""
        if self.is_single_line:
            return 1
        cost = self.flat.numbers_per_point
        if not self.rounds:
            return FIRST_ROUND_LINES if cost < ROUND_NUMBERS / 200 else MIN_ROUND_LINES
        return int(min(max(ROUND_NUMBERS / cost / max(self.breaks_per_line, 1.0), MIN_ROUND_LINES), MAX_ROUND_LINES))

    def run_round(self, max_lines: int, seconds: float | None, coverage: Coverage) -> list[Violation]:
        """Decide some lines; return the violations with the smallest margins, smallest first.

        Args:
            max_lines: The largest number of lines.
            seconds: The time left; None for no limit.
            coverage: The record of the whole search, updated in place.
        """
        starts, ends, owner, member = self._choose_lines(min(self.next_line_count(), max_lines))
        numbers = self.flat.numbers_per_point * len(starts) * (self.breaks_per_line or self.flat.unit_count)
        is_slow = seconds is not None and numbers > MAX_UNTIMED_NUMBERS
        lines = self.flat.restrict(starts, ends, seconds if is_slow else None)
        values = self.flat.output_values(lines)
        line = torch.repeat_interleave(torch.arange(len(starts)), lines.offsets.diff())
        points = torch.lerp(starts[line], ends[line], lines.alphas[:, None]) if self._constrains_inputs else values
        violations: list[Violation] = []
        for index, disjunct in self.disjuncts.items():
            margins, alphas = minimize_margin(disjunct.excess(points, values), lines.alphas, lines.offsets)
            where = torch.lerp(starts, ends, alphas[:, None]).clamp(self.box.lower, self.box.upper)
            violations += self._update(index, where, margins, owner == index, member, coverage)
        coverage.lines += int((lines.offsets.diff() > 0).sum())
        coverage.pieces += int((lines.offsets.diff() - 1).clamp(min=0).sum())
        self.rounds += 1
        self.breaks_per_line = len(lines.alphas) / len(starts)
        return sorted(violations, key=lambda violation: violation.margin)[:MAX_REPLAYED_POINTS]

    def _choose_lines(self, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Choose the lines of a round.

        Returns starts and ends, (lines, inputs) each, the disjunct each line was proposed for, (lines,), or -1, and the
        member of its population that the line goes through, (lines,), or -1.
        """
        if not self.rounds:
            starts, ends = make_first_lines(self.box, count, self.random)
            none = torch.full((len(starts),), -1)
            return starts, ends, none, none
        fresh = max(round(count * RANDOM_LINE_SHARE * random_direction_share(self.box)), 1)
        parts = [(*draw_lines(self.box, fresh, self.random), torch.full((fresh,), -1), torch.full((fresh,), -1))]
        for index, share in self._share_lines(count - fresh).items():
            population = self.populations[index]
            if len(population) and share:
                starts, ends, member = population.propose_lines(share, self.random)
                parts.append((starts, ends, torch.full((share,), index), member))
        starts, ends, owner, member = (torch.cat(columns) for columns in zip(*parts, strict=True))
        return starts, ends, owner, member

    def _share_lines(self, count: int) -> dict[int, int]:
        """Give half of the lines to the disjunct nearest to a violation, and the rest to all in turn."""
        indices = list(self.disjuncts)
        margins = {i: float(p.margins.min()) if len(p) else float("inf") for i, p in self.populations.items()}
        shares = dict.fromkeys(indices, 0)
        shares[min(indices, key=margins.__getitem__)] = (count + 1) // 2
        for k in range(count // 2):
            shares[indices[(self.rounds * (count // 2) + k) % len(indices)]] += 1
        return shares

    def _update(
        self,
        index: int,  # of the disjunct
        where: Tensor,  # (lines, inputs) the best point of each line
        margins: Tensor,  # (lines,) its margin
        proposed: Tensor,  # (lines,) whether the line was proposed for this disjunct
        member: Tensor,  # (lines,)
        coverage: Coverage,
    ) -> list[Violation]:
        """Update the population and the coverage; return the violations."""
        population = self.populations[index]
        if bool(proposed.any()):
            population.improve_members(member[proposed], where[proposed], margins[proposed])
        population.admit_points(where[~proposed], margins[~proposed])
        best = int(margins.argmin())
        self.margin = min(self.margin, float(margins[best]))
        if float(margins[best]) < coverage.margin:
            coverage.margin, coverage.nearest = float(margins[best]), where[best].clone()
            coverage.disjunct = index
        strict = bool(self.disjuncts[index].strict.any())
        hits = torch.nonzero(margins < 0 if strict else margins <= 0).flatten()
        hits = hits[margins[hits].argsort(stable=True)][:MAX_REPLAYED_POINTS]
        return [Violation(index, where[i].clone(), float(margins[i])) for i in hits.tolist()]

    @property
    def _constrains_inputs(self) -> bool:
        return any(disjunct.input_weights is not None for disjunct in self.disjuncts.values())

    def _make_margin_gradient(self, disjunct: Disjunct) -> MarginGradient:
        def margin_gradient(points: Tensor) -> Tensor:
            """Return the gradient of a softmax-weighted mixture of the excesses, at a random temperature."""
            with torch.no_grad():
                excess = disjunct.excess(points, self.flat(points))
            if not excess.shape[1]:
                return torch.zeros_like(points)
            spread = (excess.amax(1) - excess.amin(1))[:, None]
            temperature = spread * 10 ** (-3 * self.random.uniform(len(points), 1)) + MIN_TEMPERATURE
            weights = torch.softmax((excess - excess.amax(1, keepdim=True)) / temperature, dim=1)
            gradient = self.flat.vjp(points, weights @ disjunct.output_weights)
            return gradient if disjunct.input_weights is None else gradient + weights @ disjunct.input_weights

        return margin_gradient


def make_searches(flat: FlatNetwork, prop: Property, seed: int) -> list[BoxSearch]:
    """Make one search for each box that is not empty; all share one source of random numbers."""
    random = RandomSource.of(seed)
    return [
        BoxSearch(flat, box, {i: prop.disjuncts[i] for i in indices}, random)
        for box, indices in prop.disjuncts_by_box()
    ]


def select_search(searches: list[BoxSearch], turn: int) -> BoxSearch:
    """Select the search of a turn: each in order, and every other time the one nearest to a violation."""
    if turn < len(searches) or turn % 2:
        return searches[(turn if turn < len(searches) else turn // 2) % len(searches)]
    return min(searches, key=lambda search: search.margin)
