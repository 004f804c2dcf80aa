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
from ...numerics.plan import sweep_plan
from ...ops.base import Breaking
from ..dense.state import to_device
from ..dense.sweep import SweepLimits
from .error_oracle import ErrorOracle
from .plan import PatchPlan
from .segment import Segment, SegmentBreaks, SegmentTooLarge
from .timeline import NeedsDenseFallback

FORECAST_POINTS, FORECAST_ROUNDS, FORECAST_REFINEMENTS = (
    33,
    4,
    3,
)  # points that foretell where breaks are many; closer ones, where they are
MAX_RETRIES = 12  # doubts before the rest of a line is taken by points
MAX_CUT_DEPTH = 2  # how often a stretch is cut around a doubtful place before that place is taken by points
CUT_SHARE, END_SHIFT = (
    1 / 12,
    0.381966,
)  # of a stretch: half of what lies around such a place; how far a bad end is moved
END_INSET = 2.0**-16  # of what follows: how far from the ends of a line one looks for what will change
DEADLINE_BREAKS = 512  # breaks of a stretch where a deadline may end the sweep
MAX_SEGMENT_BREAKS = {"cpu": 3000, "cuda": 60000}  # breaks of one stretch, where memory allows
MIN_SEGMENT_BREAKS = 256  # breaks that a stretch may have whatever memory it is given
MIN_SEGMENT_WIDTH = 2.0**-40  # a stretch that is not cut again, however much it holds

PendingSegments = list[tuple[float, float, int]]  # stretches still to come, the next one last: where, and how often cut


@dataclass
class SegmentCounts:
    """What became of the stretches."""

    patches: int = 0
    dense: int = 0
    retried: int = 0


class Segmentation:
    """One line through a network that patches can pass."""

    def __init__(
        self,
        network: Network,
        path: PatchPlan,
        lines: Lines,
        line: int,
        limits: SweepLimits,
        memory: int,
        tally: SegmentCounts,
    ) -> None:
        self.network, self.plan, self.lines, self.line = network, path, lines, line
        self.limits, self.counts = limits, tally
        self.errors = ErrorOracle.along(network, lines, line, path.stop)
        self.max_numbers = max(
            memory / 8 / 3, MIN_SEGMENT_BREAKS * path.numbers_per_break
        )  # numbers of patches at one node
        wanted = min(
            MAX_SEGMENT_BREAKS.get(network.device.type, 3000),
            max(16, int(self.max_numbers / max(path.numbers_per_break, 1.0) / 2)),
        )
        if path.stop < len(network.nodes):
            wanted = min(wanted, max(16, limits.max_points // 2))
        self.target_breaks = min(wanted, DEADLINE_BREAKS) if limits.deadline < float("inf") else wanted

    def segments(
        self, light: PatchPlan, traced: bool = False
    ) -> Iterator[tuple[float, float, Segment, SegmentBreaks | None]]:
        """Every stretch in order, swept; without what was found where only points can tell."""
        tally, pace = self.counts, _DeadlinePacing(self.limits)
        waiting = [
            (start, stop, 0)
            for start, stop in forecast_segments(self.network, self.lines, self.line, self.target_breaks)[::-1]
        ]
        while waiting and not self.limits.is_late():
            start, stop, depth = pace.next(waiting)
            stretch = Segment(self.network, self.plan, self.errors, start, stop, self.max_numbers, light, traced)
            try:
                if depth > MAX_CUT_DEPTH:
                    self.errors.require_clear_at(stop)
                found = stretch.run() if depth <= MAX_CUT_DEPTH else None
            except (SegmentTooLarge, torch.cuda.OutOfMemoryError) as problem:
                if not isinstance(problem, SegmentTooLarge):
                    torch.cuda.empty_cache()
                pace.shorten()
                middle = 0.5 * (start + stop)
                shorter = stop - start > MIN_SEGMENT_WIDTH
                waiting += (
                    [(middle, stop, depth), (start, middle, depth)] if shorter else [(start, stop, MAX_CUT_DEPTH + 1)]
                )
                continue
            except NeedsDenseFallback as doubt:
                tally.retried += 1
                waiting = self._retry(waiting, start, stop, depth, doubt)
                continue
            tally.patches += found is not None
            tally.dense += found is None
            yield start, stop, stretch, found

    def _retry(
        self, waiting: PendingSegments, start: float, stop: float, depth: int, doubt: NeedsDenseFallback
    ) -> PendingSegments:
        """What to do about a stretch in which something is in doubt."""
        tally, alpha = self.counts, doubt.alpha
        if tally.retried > MAX_RETRIES + 2 * tally.patches:  # ties are how this network is made
            return [(start, 1.0, MAX_CUT_DEPTH + 1)]
        if doubt.everywhere:  # shorter stretches lose less; those of a network that loses much go by points soon
            return [*waiting, (alpha, stop, depth + 1), (start, alpha, depth + 1)]
        if alpha == stop and waiting:
            _, end, deep = waiting[-1]
            moved = stop + (end - stop) * END_SHIFT if end - stop < stop - start else stop - (stop - start) * END_SHIFT
            return [*waiting[:-1], (moved, end, deep), (start, moved, depth)]
        return waiting + _cut_around(start, stop, depth, alpha)[::-1]


class _DeadlinePacing:
    """Stretches are short at first where there is a deadline, then as long as the time left allows."""

    def __init__(self, limits: SweepLimits) -> None:
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


def _cut_around(start: float, stop: float, depth: int, alpha: float) -> list[tuple[float, float, int]]:
    """A stretch in parts, with a short one around a doubtful place, which goes deeper."""
    width = stop - start
    low, high = alpha - width * CUT_SHARE, alpha + width * CUT_SHARE * 1.1
    edges = [start, *(at for at in (low, high) if start + width / 64 < at < stop - width / 64), stop]
    return [(a, b, depth + (a <= alpha <= b)) for a, b in pairwise(edges)]


def forecast_segments(network: Network, lines: Lines, line: int, wanted: int) -> list[tuple[float, float]]:
    """Stretches that should have about as many breaks as are wanted: units that change between a few points tell."""
    places = np.linspace(0, 1, FORECAST_POINTS)
    counts = _forecast_changes(network, lines, line, places)
    for _ in range(FORECAST_ROUNDS):  # where breaks are many, closer points
        heavy = np.flatnonzero(counts > 2 * wanted)[:FORECAST_REFINEMENTS]
        if not len(heavy):
            break
        for k in heavy[::-1]:
            between = np.linspace(places[k], places[k + 1], FORECAST_POINTS // 2)
            counts = np.concatenate([counts[:k], _forecast_changes(network, lines, line, between), counts[k + 1 :]])
            places = np.concatenate([places[:k], between, places[k + 2 :]])
    rising = np.concatenate([[0.0], (counts * 1.1 + 1e-3).cumsum()])
    count = max(1, int(np.ceil(rising[-1] / wanted)))
    edges = np.interp(np.linspace(0, rising[-1], count + 1), rising, places)
    edges[1:-1] += (edges[2:] - edges[1:-1]) * (END_SHIFT / 16)  # not where sums of round numbers would be zero
    edges[0], edges[-1] = 0.0, 1.0
    return [(float(a), float(b)) for a, b in pairwise(edges)]


def _forecast_changes(network: Network, lines: Lines, line: int, places: Floats) -> Floats:
    """How many units change between neighbouring points of a line; ties where it starts or ends are no changes."""
    places = places.copy()
    places[0] += END_INSET * (places[1] - places[0])
    places[-1] -= END_INSET * (places[-1] - places[-2])
    return _count_changes(network, lines, line, places)


def _count_changes(network: Network, lines: Lines, line: int, places: Floats) -> Floats:
    """The same at these points themselves; a few at a time where memory is short."""
    try:
        return _compare_patterns(network, lines, line, places)
    except torch.cuda.OutOfMemoryError:
        if len(places) < 3:
            raise
        torch.cuda.empty_cache()
    middle = len(places) // 2
    halves = places[: middle + 1], places[middle:]
    return np.concatenate([_count_changes(network, lines, line, half) for half in halves])


def _compare_patterns(network: Network, lines: Lines, line: int, places: Floats) -> Floats:
    device = lines.starts[0].device
    points, _ = lines.at(torch.full((len(places),), line, device=device), to_device(device, places))
    last = sweep_plan(network).last_use
    live = dict(zip(network.inputs, points, strict=True))
    changes = torch.zeros(len(places) - 1, dtype=torch.int64, device=device)
    for i, node in enumerate(network.nodes):
        if i not in last or i in live:
            continue
        xs = [live[j] for j in node.inputs]
        live[i] = node.op.evaluate(*xs)
        if isinstance(node.op, Breaking):
            pattern = node.op.activation_pattern(xs[0], xs[0])
            changes += (pattern[1:] != pattern[:-1]).flatten(1).sum(1)
        for j in set(node.inputs):
            if last[j] == i:
                del live[j]
    return changes.cpu().numpy().astype(np.float64)
