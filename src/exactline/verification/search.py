"""The search: rounds of lines in the boxes of a property, decided exactly, each round led by the ones before."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from .chords import Chance, explore, first_lines
from .flatten import Flat
from .margin import deepest
from .population import Herd, Slopes, blindness
from .property import Box, Case, Property

FIRST = 32  # lines of the first round in a box
FEWEST, MOST = 2, 256  # lines of a round
ROUND = 4e6  # numbers that a round should make: a few hundredths of a second
LONG = 1e9  # numbers that may take seconds: such a round looks at the clock, which makes it slower
NEW = 0.3  # share of lines that know nothing of those before
TRIED = 8  # violations of a round that are tried on the network itself


@dataclass(frozen=True, eq=False)
class Found:
    """A point of a line where a case holds."""

    case: int
    point: Tensor  # (inputs,)
    margin: float


@dataclass
class Covered:
    """What was looked at."""

    lines: int = 0
    pieces: int = 0
    margin: float = float("inf")  # the smallest
    nearest: Tensor | None = None  # (inputs,) where it was
    case: int | None = None


@dataclass
class Hunt:
    """The search in one box, for all cases that ask for it."""

    flat: Flat
    box: Box
    cases: dict[int, Case]
    chance: Chance
    herds: dict[int, Herd] = field(init=False)
    rate: float = 0.0  # breaks of a line, lately
    margin: float = float("inf")  # the smallest so far
    rounds: int = 0

    def __post_init__(self) -> None:
        self.herds = {place: Herd(self.box, self._slopes(case)) for place, case in self.cases.items()}

    @property
    def whole(self) -> bool:
        """Whether a single line is all of the box, so that one round decides it."""
        return int((self.box.width > 0).sum()) <= 1

    def size(self) -> int:
        """How many lines the next round takes."""
        if self.whole:
            return 1
        if not self.rounds:
            return FIRST if self.flat.work < ROUND / 200 else FEWEST
        return int(min(max(ROUND / self.flat.work / max(self.rate, 1.0), FEWEST), MOST))

    def round(self, most: int, seconds: float | None, covered: Covered) -> list[Found]:
        """Try some lines; the violations among them, deepest first."""
        starts, ends, owner, member = self._lines(min(self.size(), most))
        slow = seconds is not None and self.flat.work * len(starts) * (self.rate or self.flat.units) > LONG
        lines = self.flat.restrict(starts, ends, seconds if slow else None)
        values = self.flat.values(lines)
        line = torch.repeat_interleave(torch.arange(len(starts)), lines.offsets.diff())
        points = torch.lerp(starts[line], ends[line], lines.alphas[:, None]) if self._mixed else values
        found: list[Found] = []
        for place, case in self.cases.items():
            margins, alphas = deepest(case.excess(points, values), lines.alphas, lines.offsets)
            where = torch.lerp(starts, ends, alphas[:, None]).clamp(self.box.lower, self.box.upper)
            found += self._learn(place, where, margins, owner == place, member, covered)
        covered.lines += int((lines.offsets.diff() > 0).sum())
        covered.pieces += int((lines.offsets.diff() - 1).clamp(min=0).sum())
        self.rounds += 1
        self.rate = len(lines.alphas) / len(starts)
        return sorted(found, key=lambda f: f.margin)[:TRIED]

    def _lines(self, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Lines with the case they were made for, or -1, and the member of its herd they go through."""
        if not self.rounds:
            starts, ends = first_lines(self.box, count, self.chance)
            nobody = torch.full((len(starts),), -1)
            return starts, ends, nobody, nobody
        fresh = max(round(count * NEW * blindness(self.box)), 1)
        parts = [(*explore(self.box, fresh, self.chance), torch.full((fresh,), -1), torch.full((fresh,), -1))]
        for place, share in self._shares(count - fresh).items():
            herd = self.herds[place]
            if len(herd) and share:
                starts, ends, member = herd.propose(share, self.chance)
                parts.append((starts, ends, torch.full((share,), place), member))
        starts, ends, owner, member = (torch.cat(some) for some in zip(*parts, strict=True))
        return starts, ends, owner, member

    def _shares(self, count: int) -> dict[int, int]:
        """Half of the lines for the case that is nearest to a violation, the others in turn."""
        places = list(self.cases)
        best = min(places, key=lambda p: float(self.herds[p].margins.min()) if len(self.herds[p]) else float("inf"))
        shares = dict.fromkeys(places, 0)
        shares[best] = (count + 1) // 2
        for k in range(count // 2):
            shares[places[(self.rounds * (count // 2) + k) % len(places)]] += 1
        return shares

    def _learn(
        self, place: int, where: Tensor, margins: Tensor, mine: Tensor, member: Tensor, covered: Covered
    ) -> list[Found]:
        """Lead the herd on, note the smallest margin, and give back the violations."""
        herd = self.herds[place]
        if bool(mine.any()):
            herd.improve(member[mine], where[mine], margins[mine])
        herd.admit(where[~mine], margins[~mine])
        best = int(margins.argmin())
        self.margin = min(self.margin, float(margins[best]))
        if float(margins[best]) < covered.margin:
            covered.margin, covered.nearest, covered.case = float(margins[best]), where[best].clone(), place
        hits = torch.nonzero(margins <= 0 if not bool(self.cases[place].strict.any()) else margins < 0).flatten()
        hits = hits[margins[hits].argsort(stable=True)][:TRIED]
        return [Found(place, where[i].clone(), float(margins[i])) for i in hits.tolist()]

    @property
    def _mixed(self) -> bool:
        return any(case.on_inputs is not None for case in self.cases.values())

    def _slopes(self, case: Case) -> Slopes:
        def slopes(points: Tensor) -> Tensor:
            """The gradient of the margin, or of a mixture of the rows that are nearly as much missed."""
            with torch.no_grad():
                excess = case.excess(points, self.flat(points))
            if not excess.shape[1]:
                return torch.zeros_like(points)
            spread = (excess.amax(1) - excess.amin(1))[:, None]
            heat = spread * 10 ** (-3 * self.chance.uniform(len(points), 1)) + 1e-30
            share = torch.softmax((excess - excess.amax(1, keepdim=True)) / heat, dim=1)
            found = self.flat.slopes(points, share @ case.on_outputs)
            return found if case.on_inputs is None else found + share @ case.on_inputs

        return slopes


def hunts(flat: Flat, asked: Property, seed: int) -> list[Hunt]:
    """One search for each box that holds a point."""
    chance = Chance.of(seed)
    return [Hunt(flat, box, {p: asked.cases[p] for p in places}, chance) for box, places in asked.by_box()]


def next_hunt(all_of_them: list[Hunt], turn: int) -> Hunt:
    """Each in turn, and every other time the one that is nearest to a violation."""
    if turn < len(all_of_them) or turn % 2:
        return all_of_them[(turn if turn < len(all_of_them) else turn // 2) % len(all_of_them)]
    return min(all_of_them, key=lambda h: h.margin)
