"""A line in stretches: long enough to be quick, short enough for memory, and cut only where every unit is clear."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from ...arrays import Floats
from ...lines import Lines
from ...network.graph import Network
from ...numerics.plan import plan
from ...ops.base import Breaking
from ..dense.state import on
from ..dense.sweep import Limits
from .error_oracle import Looks
from .plan import Route
from .segment import Found, Stretch, TooLarge
from .timeline import Doubt

FIRST, ROUNDS, CLOSER = 33, 4, 3  # points that foretell where breaks are many; closer ones, where they are
PATIENCE = 12  # doubts before the rest of a line is taken by points
DEEPEST = 2  # how often a stretch is cut around a doubtful place before that place is taken by points
NARROW, SHIFT = 1 / 12, 0.381966  # of a stretch: half of what lies around such a place; how far a bad end is moved
INSIDE = 2.0**-16  # of what follows: how far from the ends of a line one looks for what will change
SOON = 512  # breaks of a stretch where a deadline may end the sweep
HEAVY = {"cpu": 3000, "cuda": 60000}  # breaks of one stretch, where memory allows
FEWEST = 256  # breaks that a stretch may have whatever memory it is given
SHORTEST = 2.0**-40  # a stretch that is not cut again, however much it holds

Waiting = list[tuple[float, float, int]]  # stretches still to come, the next one last: where, and how often cut


@dataclass
class Tally:
    """What became of the stretches."""

    local: int = 0
    dense: int = 0
    redone: int = 0


class Journey:
    """One line through a network that patches can pass."""

    def __init__(
        self, network: Network, path: Route, lines: Lines, line: int, limits: Limits, memory: int, tally: Tally
    ) -> None:
        self.network, self.path, self.lines, self.line = network, path, lines, line
        self.limits, self.tally = limits, tally
        self.looks = Looks.along(network, lines, line, path.stop)
        self.most = max(memory / 8 / 3, FEWEST * path.numbers)  # numbers of patches at one node
        wanted = min(HEAVY.get(network.device.type, 3000), max(16, int(self.most / max(path.numbers, 1.0) / 2)))
        if path.stop < len(network.nodes):
            wanted = min(wanted, max(16, limits.points // 2))
        self.wanted = min(wanted, SOON) if limits.deadline < float("inf") else wanted

    def stretches(self, light: Route, traced: bool = False) -> Iterator[tuple[float, float, Stretch, Found | None]]:
        """Every stretch in order, swept; without what was found where only points can tell."""
        tally, pace = self.tally, _Pace(self.limits)
        waiting = [(start, stop, 0) for start, stop in foretold(self.network, self.lines, self.line, self.wanted)[::-1]]
        while waiting and not self.limits.late():
            start, stop, depth = pace.next(waiting)
            stretch = Stretch(self.network, self.path, self.looks, start, stop, self.most, light, traced)
            try:
                if depth > DEEPEST:
                    self.looks.clear_at(stop)
                found = stretch.run() if depth <= DEEPEST else None
            except (TooLarge, torch.cuda.OutOfMemoryError) as problem:
                if not isinstance(problem, TooLarge):
                    torch.cuda.empty_cache()
                pace.shorten()
                middle = 0.5 * (start + stop)
                shorter = stop - start > SHORTEST
                waiting += [(middle, stop, depth), (start, middle, depth)] if shorter else [(start, stop, DEEPEST + 1)]
                continue
            except Doubt as doubt:
                tally.redone += 1
                waiting = self._again(waiting, start, stop, depth, doubt)
                continue
            tally.local += found is not None
            tally.dense += found is None
            yield start, stop, stretch, found

    def _again(self, waiting: Waiting, start: float, stop: float, depth: int, doubt: Doubt) -> Waiting:
        """What to do about a stretch in which something is in doubt."""
        tally, alpha = self.tally, doubt.alpha
        if tally.redone > PATIENCE + 2 * tally.local:  # ties are how this network is made
            return [(start, 1.0, DEEPEST + 1)]
        if doubt.everywhere:  # shorter stretches lose less; those of a network that loses much go by points soon
            return [*waiting, (alpha, stop, depth + 1), (start, alpha, depth + 1)]
        if alpha == stop and waiting:
            _, end, deep = waiting[-1]
            moved = stop + (end - stop) * SHIFT if end - stop < stop - start else stop - (stop - start) * SHIFT
            return [*waiting[:-1], (moved, end, deep), (start, moved, depth)]
        return waiting + _cut(start, stop, depth, alpha)[::-1]


class _Pace:
    """Stretches are short at first where there is a deadline, then as long as the time left allows."""

    def __init__(self, limits: Limits) -> None:
        self.deadline, self.began, self.together = limits.deadline, time.monotonic(), 1
        self.most = 1 << 30  # stretches taken together

    def shorten(self) -> None:
        """What was taken together last was too much."""
        self.most = max(1, self.together // 2)

    def next(self, waiting: list[tuple[float, float, int]]) -> tuple[float, float, int]:
        """The next stretch, made of several where there is time."""
        start, stop, depth = waiting.pop()
        if self.deadline == float("inf"):
            return start, stop, depth
        now = time.monotonic()
        spent, left = now - self.began, self.deadline - now
        self.began = now
        self.together = min(self.most, max(1, self.together * 2 if spent < left / 16 else self.together // 2))
        for _ in range(self.together - 1):
            if depth or not waiting or waiting[-1][2]:
                break
            stop = waiting.pop()[1]
        return start, stop, depth


def _cut(start: float, stop: float, depth: int, alpha: float) -> list[tuple[float, float, int]]:
    """A stretch in parts, with a short one around a doubtful place, which goes deeper."""
    width = stop - start
    low, high = alpha - width * NARROW, alpha + width * NARROW * 1.1
    edges = [start, *(at for at in (low, high) if start + width / 64 < at < stop - width / 64), stop]
    return [(a, b, depth + (a <= alpha <= b)) for a, b in pairwise(edges)]


def foretold(network: Network, lines: Lines, line: int, wanted: int) -> list[tuple[float, float]]:
    """Stretches that should have about as many breaks as are wanted: units that change between a few points tell."""
    places = np.linspace(0, 1, FIRST)
    counts = _changes(network, lines, line, places)
    for _ in range(ROUNDS):  # where breaks are many, closer points
        heavy = np.flatnonzero(counts > 2 * wanted)[:CLOSER]
        if not len(heavy):
            break
        for k in heavy[::-1]:
            between = np.linspace(places[k], places[k + 1], FIRST // 2)
            counts = np.concatenate([counts[:k], _changes(network, lines, line, between), counts[k + 1 :]])
            places = np.concatenate([places[:k], between, places[k + 2 :]])
    rising = np.concatenate([[0.0], (counts * 1.1 + 1e-3).cumsum()])
    count = max(1, int(np.ceil(rising[-1] / wanted)))
    edges = np.interp(np.linspace(0, rising[-1], count + 1), rising, places)
    edges[1:-1] += (edges[2:] - edges[1:-1]) * (SHIFT / 16)  # not where sums of round numbers would be zero
    edges[0], edges[-1] = 0.0, 1.0
    return [(float(a), float(b)) for a, b in pairwise(edges)]


def _changes(network: Network, lines: Lines, line: int, places: Floats) -> Floats:
    """How many units change between neighbouring points of a line; ties where it starts or ends are no changes."""
    places = places.copy()
    places[0] += INSIDE * (places[1] - places[0])
    places[-1] -= INSIDE * (places[-1] - places[-2])
    return _counted(network, lines, line, places)


def _counted(network: Network, lines: Lines, line: int, places: Floats) -> Floats:
    """The same at these points themselves; a few at a time where memory is short."""
    try:
        return _compared(network, lines, line, places)
    except torch.cuda.OutOfMemoryError:
        if len(places) < 3:
            raise
        torch.cuda.empty_cache()
    middle = len(places) // 2
    halves = places[: middle + 1], places[middle:]
    return np.concatenate([_counted(network, lines, line, half) for half in halves])


def _compared(network: Network, lines: Lines, line: int, places: Floats) -> Floats:
    device = lines.starts[0].device
    points, _ = lines.at(torch.full((len(places),), line, device=device), on(device, places))
    last = plan(network).last
    live = dict(zip(network.inputs, points, strict=True))
    changes = torch.zeros(len(places) - 1, dtype=torch.int64, device=device)
    for i, node in enumerate(network.nodes):
        if i not in last or i in live:
            continue
        xs = [live[j] for j in node.inputs]
        live[i] = node.op.evaluate(*xs)
        if isinstance(node.op, Breaking):
            pattern = node.op.branch(xs[0], xs[0])
            changes += (pattern[1:] != pattern[:-1]).flatten(1).sum(1)
        for j in set(node.inputs):
            if last[j] == i:
                del live[j]
    return changes.cpu().numpy().astype(np.float64)
