"""The division of a line into segments: long enough to be fast, short enough for the memory budget.

A segment may only end where no unit is near a knot. Where patches cannot decide something, a short part of the segment
is left to the dense engine.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np
import torch

from ...arrays import Floats
from ...budget import MIN_MEMORY, block_bytes, check_deadline, release_free_memory, seconds_left
from ...lines import Lines
from ...network.graph import Network
from ...numerics.plan import BYTES_PER_NUMBER, sweep_plan
from ...ops.base import Breaking
from ...ops.masks import is_host
from ..dense.points import to_device
from ..dense.sweep import SweepLimits
from ..layer_record import LayerRecorder
from .error_oracle import ErrorOracle
from .plan import PatchPlan
from .segment import Segment, SegmentBreaks
from .timeline import NeedsDenseFallback, SegmentTooLarge

FORECAST_POINTS = 33  # points per line whose activation patterns forecast the number of breaks
# By device: points per line that forecast whether one segment is enough. A GPU takes as long for few as for many.
FIRST_FORECAST_POINTS = {"cpu": 5, "cuda": FORECAST_POINTS}
FORECAST_ROUNDS = 4  # times that intervals with many breaks are refined
FORECAST_REFINEMENTS = 3  # intervals refined per round
FORECAST_DIVISOR = 12  # the points of a forecast may take one part in so many of the memory
MIN_TIME_PER_FORECAST = 4.0  # times the seconds of a forecast that must be left before a deadline
FORECAST_MARGIN = 1.1  # breaks per forecast break; room for units that cross a knot and return. Empirical
MIN_FORECAST = 1e-3  # breaks per interval, where none is forecast
MAX_RETRIES = 12  # failed attempts, plus two per swept segment, before the rest of a line is swept densely
MAX_CUT_DEPTH = 2  # times that a segment is cut around an undecided alpha before that part is swept densely
CUT_SHARE = 1 / 12  # of a segment: half the width of the part that is cut out around an undecided alpha
MIN_CUT_SHARE = 1 / 64  # of a segment: parts shorter than this are not cut off
END_SHIFT = 0.381966  # of a segment: how far an end is moved if a unit is on a knot there (golden ratio)
END_INSET = 2.0**-16  # of an interval: how far from its ends the forecast is evaluated
LAST_SEGMENT_MARGIN = 1.25  # breaks forecast for the segment in which max_breaks is reached, per break still wanted
MAX_LAST_SEGMENT_SHARE = 0.8  # of a segment: where more is wanted, it is not shortened
DEADLINE_BREAKS = {"cpu": 512, "cuda": 4096}  # by device: breaks per segment that are aimed at first before a deadline
# By device: target breaks per segment, per break that is wanted. A GPU takes nearly as long for a short segment as for
# a long one; on a CPU, breaks beyond the last one wanted cost more.
MAX_BREAKS_SHARE = {"cpu": 0.5, "cuda": 1.5}
MAX_SEGMENT_BREAKS = {"cpu": 3000, "cuda": 60000}  # by device: target breaks per segment if memory allows
MIN_SEGMENT_BREAKS = 256  # breaks that a segment may have if a quarter of MIN_MEMORY holds them
MIN_TARGET_BREAKS = 16  # target breaks per segment, whatever the memory budget
MIN_SEGMENT_WIDTH = 2.0**-40  # in alpha: shorter segments are not cut
COPIES_PER_NODE = {"cpu": 5, "cuda": 3}  # by device: of all live patches, held in memory while a node is evaluated
TARGET_SHARE = 0.7  # of the live patches that memory allows: breaks may be more at nodes where patches are large
VALUES_DIVISOR = 8  # the values of a segment's breaks may take one part in so many of the memory
MIN_VALUE_BREAKS = 16  # breaks that a segment may have, however large their values are


class SegmentSpan(NamedTuple):
    """A segment that is still to be swept."""

    start: float
    stop: float
    depth: int = 0  # how often it was cut around an undecided alpha


@dataclass
class SegmentCounts:
    """How many segments were swept by patches, densely, and again after a failed attempt, and their breaks."""

    patches: int = 0
    dense: int = 0
    retried: int = 0
    breaks: int = 0  # in all of them


class Segmentation:
    """The segments of one line.

    Args:
        network: The network.
        plan: Its patch plan.
        lines: The lines.
        line: The index of the line.
        limits: When to stop; ``max_points`` bounds the dense parts.
        memory: Memory budget in bytes.
        counts: Counts the segments.
        values: Whether the values of the outputs are wanted.
        recorder: Collects the units that change their branch; None if they are not wanted.
        releases_memory: Whether memory that was freed is given back to the system before every segment. Otherwise the
            process keeps what lies between its tensors, which counts too where its memory is limited.
    """

    def __init__(
        self,
        network: Network,
        plan: PatchPlan,
        lines: Lines,
        line: int,
        *,
        limits: SweepLimits,
        memory: int,
        counts: SegmentCounts,
        values: bool = False,
        recorder: LayerRecorder | None = None,
        releases_memory: bool = False,
    ) -> None:
        self.recorder, self.releases_memory = recorder, releases_memory
        self.network, self.plan, self.lines, self.line = network, plan, lines, line
        self.limits, self.counts = limits, counts
        self.errors = ErrorOracle.sample(network, lines, line, plan.first_dense_node)
        smallest = min(MIN_SEGMENT_BREAKS * plan.numbers_per_break, self._max_numbers(MIN_MEMORY // 4))
        self.max_numbers = max(self._max_numbers(memory), smallest)
        value_numbers = sum(prod(network.nodes[i].shape) for i in network.outputs) if values else 0
        value_breaks = max(memory, MIN_MEMORY) // VALUES_DIVISOR // BYTES_PER_NUMBER // max(1, value_numbers)
        self.max_breaks = max(value_breaks, MIN_VALUE_BREAKS)
        self.max_joined_breaks = self._target_breaks()
        self.target_breaks = self.max_joined_breaks
        if limits.deadline < float("inf"):  # segments start small
            self.target_breaks = min(self.target_breaks, DEADLINE_BREAKS.get(network.device.type, 512))
        self.joined_breaks = float(self.max_joined_breaks)  # breaks expected of segments that are joined

    def _max_numbers(self, memory: int) -> float:
        """How many numbers all live patches may hold."""
        return memory / BYTES_PER_NUMBER / COPIES_PER_NODE.get(self.network.device.type, 5)

    def _target_breaks(self) -> int:
        """The number of breaks that a segment should have where there is no deadline."""
        plan, limits, device = self.plan, self.limits, self.network.device.type
        target = min(
            MAX_SEGMENT_BREAKS.get(device, 3000),
            max(MIN_TARGET_BREAKS, int(self.max_numbers / plan.numbers_per_break * TARGET_SHARE)),
            max(MIN_TARGET_BREAKS, self.max_breaks // 2),
        )
        if plan.first_dense_node < len(self.network.nodes):
            target = min(target, max(MIN_TARGET_BREAKS, limits.max_points // 2))
        if limits.max_breaks is not None:
            wanted = int(limits.max_breaks * MAX_BREAKS_SHARE.get(device, 0.5))
            target = min(target, max(MIN_TARGET_BREAKS, wanted))
        return target

    def segments(
        self, float32_plan: PatchPlan, records_patterns: bool = False, kept_nodes: Collection[int] = ()
    ) -> Iterator[tuple[Segment, SegmentBreaks | None]]:
        """Sweep and yield all segments in order; the breaks are None where the dense engine must sweep.

        For ``records_patterns`` and ``kept_nodes`` see `Segment`.
        """
        pacing = _Pacing(self.limits)
        pending, density = list[SegmentSpan](), 0.0
        with self.limits.enforced():
            pending = self._forecast()[::-1]
        while pending and not self.limits.should_stop():
            max_width = self.joined_breaks / density if density else 0.0
            span = self._shorten_to_limit(pacing.next(pending, max_width), pending, density)
            if self.releases_memory:
                release_free_memory()
            segment = Segment(
                self.network,
                self.plan,
                self.errors,
                span.start,
                span.stop,
                max_numbers=self.max_numbers,
                max_breaks=self.max_breaks,
                float32_plan=float32_plan,
                records_patterns=records_patterns,
                records_switches=self.recorder is not None,
                kept_nodes=kept_nodes,
            )
            breaks = None
            try:
                with self.limits.enforced():
                    if span.depth > MAX_CUT_DEPTH:
                        self.errors.require_clear_at(span.stop)
                    else:
                        breaks = segment.run()
            except (SegmentTooLarge, torch.cuda.OutOfMemoryError) as problem:
                if not isinstance(problem, SegmentTooLarge):
                    torch.cuda.empty_cache()
                pacing.shorten()
                self.joined_breaks = min(self.joined_breaks, density * (span.stop - span.start) / 2)
                pending += _cut_in_half(span)
                continue
            except NeedsDenseFallback as undecided:
                self.counts.retried += 1
                pending = self._retry(pending, span, undecided)
                continue
            if self.limits.stopped:
                return
            self.counts.patches += breaks is not None
            self.counts.dense += breaks is None
            breaks_before, peak_numbers = self.counts.breaks, segment.peak_numbers
            swept = [(segment, breaks)]
            del segment, breaks  # nothing here may hold the patches while the caller continues
            yield swept.pop()
            found = self.counts.breaks - breaks_before
            density = found / (span.stop - span.start)
            self._limit_joined(found, peak_numbers)

    def _limit_joined(self, breaks: int, numbers: int) -> None:
        """Adapt `joined_breaks` to the numbers that the patches of a segment with some breaks took at most."""
        fitting = TARGET_SHARE * self.max_numbers * breaks / numbers if numbers else self.max_joined_breaks
        self.joined_breaks = min(self.max_joined_breaks, fitting)

    def has_enough_breaks(self) -> bool:
        """Whether the segments swept so far have more breaks than are wanted."""
        return self.limits.max_breaks is not None and self.counts.breaks > self.limits.max_breaks

    def _forecast(self) -> list[SegmentSpan]:
        """The segments of the line in order."""
        if self.errors.pattern_changes * FORECAST_MARGIN <= self.target_breaks / 2:
            return [SegmentSpan(0.0, 1.0)]
        return forecast_segments(self.network, self.lines, self.line, self.target_breaks, self.limits.max_breaks)

    def _shorten_to_limit(self, span: SegmentSpan, pending: list[SegmentSpan], density: float) -> SegmentSpan:
        """Shorten a segment that has more breaks than are still wanted, at ``density`` breaks per unit of alpha.

        The rest of it is added to the pending segments.
        """
        if self.limits.max_breaks is None or not density:
            return span
        wanted = self.limits.max_breaks + 1 - self.counts.breaks
        width = span.stop - span.start
        share = max(LAST_SEGMENT_MARGIN * wanted / (density * width), MIN_CUT_SHARE)
        if share > MAX_LAST_SEGMENT_SHARE:
            return span
        middle = span.start + share * width
        pending.append(SegmentSpan(middle, span.stop, span.depth))
        return SegmentSpan(span.start, middle, span.depth)

    def _retry(self, pending: list[SegmentSpan], span: SegmentSpan, undecided: NeedsDenseFallback) -> list[SegmentSpan]:
        """The pending segments after an attempt failed: the next one is the last of the list."""
        counts, alpha = self.counts, undecided.alpha
        start, stop, depth = span
        if counts.retried > MAX_RETRIES + 2 * counts.patches:  # ties are a property of this network
            return [SegmentSpan(start, 1.0, MAX_CUT_DEPTH + 1)]
        if stop - start <= MIN_SEGMENT_WIDTH and depth <= MAX_CUT_DEPTH:  # parts of it may have no width
            return [*pending, SegmentSpan(start, stop, MAX_CUT_DEPTH + 1)]
        if undecided.everywhere:  # shorter segments drift less
            return [*pending, SegmentSpan(alpha, stop, depth + 1), SegmentSpan(start, alpha, depth + 1)]
        if alpha == stop and pending:
            following = pending[-1]
            into_following = following.stop - stop < stop - start
            moved = stop + (following.stop - stop) * END_SHIFT if into_following else stop - (stop - start) * END_SHIFT
            return [
                *pending[:-1],
                SegmentSpan(moved, following.stop, following.depth),
                SegmentSpan(start, moved, depth),
            ]
        return pending + _cut_around(span, alpha)[::-1]


class _Pacing:
    """Joins segments that have few breaks; if there is a deadline, few at first, then as many as there is time for."""

    def __init__(self, limits: SweepLimits) -> None:
        self.deadline, self.last_time, self.joined = limits.deadline, time.monotonic(), 1
        self.max_joined = 1 << 30

    def shorten(self) -> None:
        """Join at most half as many as last time, which was too much."""
        self.max_joined = max(1, self.joined // 2)

    def next(self, pending: list[SegmentSpan], max_width: float) -> SegmentSpan:
        """Remove the next segment from the end of the list, joined with its followers up to a width.

        If there is a deadline, they are as many as there is time for. A width of 0 is not known.
        """
        start, stop, depth = pending.pop()
        joined = len(pending) + 1 if max_width else 1
        if self.deadline < float("inf"):
            now = time.monotonic()
            spent, left = now - self.last_time, self.deadline - now
            self.last_time = now
            self.joined = min(self.max_joined, max(1, self.joined * 2 if spent < left / 16 else self.joined // 2))
            joined = self.joined
        for _ in range(joined - 1):
            if depth or not pending or pending[-1].depth or pending[-1].stop - start > (max_width or float("inf")):
                break
            stop = pending.pop().stop
        return SegmentSpan(start, stop, depth)


def _cut_in_half(span: SegmentSpan) -> list[SegmentSpan]:
    """Both halves of a segment, the first one last; a very short segment is left to the dense engine."""
    start, stop, depth = span
    middle = 0.5 * (start + stop)
    if stop - start > MIN_SEGMENT_WIDTH:
        return [SegmentSpan(middle, stop, depth), SegmentSpan(start, middle, depth)]
    return [SegmentSpan(start, stop, MAX_CUT_DEPTH + 1)]


def _cut_around(span: SegmentSpan, alpha: float) -> list[SegmentSpan]:
    """Cut a segment into up to three parts, a short one around an alpha, whose depth increases."""
    start, stop, depth = span
    width = stop - start
    low, high = alpha - width * CUT_SHARE, alpha + width * CUT_SHARE * 1.1
    smallest = width * MIN_CUT_SHARE
    edges = [start, *(edge for edge in (low, high) if start + smallest < edge < stop - smallest), stop]
    return [SegmentSpan(a, b, depth + (a <= alpha <= b)) for a, b in pairwise(edges)]


def forecast_segments(
    network: Network, lines: Lines, line: int, target_breaks: int, max_breaks: int | None = None
) -> list[SegmentSpan]:
    """Divide a line into segments of about ``target_breaks`` breaks each.

    The forecast counts the units whose activation differs between neighbouring sample points. Beyond the first
    ``max_breaks`` breaks it is coarse.
    """
    began, alphas = time.monotonic(), np.linspace(0, 1, FIRST_FORECAST_POINTS.get(network.device.type, 5))
    counts = forecast_breaks(network, lines, line, alphas)
    if counts.sum() * FORECAST_MARGIN <= target_breaks / 2:
        return [SegmentSpan(0.0, 1.0)]
    seconds_per_point = (time.monotonic() - began) / len(alphas)

    def is_time_for(points: int) -> bool:
        return points * seconds_per_point * MIN_TIME_PER_FORECAST <= seconds_left()

    is_all_wanted = max_breaks is None or counts[0] <= max_breaks
    if is_all_wanted and len(alphas) < FORECAST_POINTS and is_time_for(FORECAST_POINTS):
        alphas = np.linspace(0, 1, FORECAST_POINTS)
        counts = forecast_breaks(network, lines, line, alphas)
    for _ in range(FORECAST_ROUNDS):
        is_wanted = True if max_breaks is None else counts.cumsum() - counts <= max_breaks
        crowded = np.flatnonzero((counts > 2 * target_breaks) & is_wanted)[:FORECAST_REFINEMENTS]
        if not len(crowded) or not is_time_for(len(crowded) * FORECAST_POINTS // 2):
            break
        for k in crowded[::-1]:
            inner = np.linspace(alphas[k], alphas[k + 1], FORECAST_POINTS // 2)
            counts = np.concatenate([counts[:k], forecast_breaks(network, lines, line, inner), counts[k + 1 :]])
            alphas = np.concatenate([alphas[:k], inner, alphas[k + 2 :]])
    expected = counts * FORECAST_MARGIN + MIN_FORECAST  # positive, so that the sums increase strictly
    cumulative = np.concatenate([[0.0], expected.cumsum()])
    segments = max(1, int(np.ceil(cumulative[-1] / target_breaks)))
    edges = np.interp(np.linspace(0, cumulative[-1], segments + 1), cumulative, alphas)
    edges[1:-1] += (edges[2:] - edges[1:-1]) * (END_SHIFT / 16)  # away from round numbers, where ties are likely
    edges[0], edges[-1] = 0.0, 1.0
    return [SegmentSpan(float(a), float(b)) for a, b in pairwise(edges)]


def forecast_breaks(network: Network, lines: Lines, line: int, alphas: Floats) -> Floats:
    """(n - 1,) estimated breaks between neighbouring alphas; ties at the first and the last one do not count."""
    alphas = alphas.copy()
    alphas[0] += END_INSET * (alphas[1] - alphas[0])
    alphas[-1] -= END_INSET * (alphas[-1] - alphas[-2])
    return _count_changes(network, lines, line, alphas)


def _count_changes(network: Network, lines: Lines, line: int, alphas: Floats) -> Floats:
    """(n - 1,) units whose activation differs between neighbouring alphas, in halves if memory is short."""
    try:
        if len(alphas) <= _points_per_forecast(network):
            return _compare_patterns(network, lines, line, alphas)
    except torch.cuda.OutOfMemoryError:
        if len(alphas) < 3:
            raise
        torch.cuda.empty_cache()
    middle = len(alphas) // 2
    halves = alphas[: middle + 1], alphas[middle:]
    return np.concatenate([_count_changes(network, lines, line, half) for half in halves])


def _points_per_forecast(network: Network) -> int:
    """How many points are evaluated together, at least two."""
    if not is_host(network.device):
        return FORECAST_POINTS
    bytes_per_point = 2 * sweep_plan(network).bytes_live  # values, and activation patterns
    return max(2, block_bytes(FORECAST_DIVISOR) // max(1, bytes_per_point))


def _compare_patterns(network: Network, lines: Lines, line: int, alphas: Floats) -> Floats:
    """(n - 1,) units whose activation differs between neighbouring alphas."""
    device = lines.starts[0].device
    points, _ = lines.at(torch.full((len(alphas),), line, device=device), to_device(device, alphas))
    last_use = sweep_plan(network).last_use
    live = dict(zip(network.inputs, points, strict=True))
    changes = torch.zeros(len(alphas) - 1, dtype=torch.int64, device=device)
    for i, node in enumerate(network.nodes):
        if i not in last_use or i in live:
            continue
        check_deadline()
        inputs = [live[j] for j in node.inputs]
        live[i] = node.op.evaluate(*inputs)
        if isinstance(node.op, Breaking):
            pattern = node.op.branch_at(inputs[0])
            changes += (pattern[1:] != pattern[:-1]).flatten(1).sum(1)
        for j in set(node.inputs):
            if last_use[j] == i:
                del live[j]
    return changes.cpu().numpy().astype(np.float64)
