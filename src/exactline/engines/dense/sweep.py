"""The dense sweep: values of every live tensor at every break, layer by layer, in bounded memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import torch
from torch import Tensor

from ...errors import NumberError
from ...lines import Lines
from ...network.graph import Network
from ...numerics.plan import SweepPlan, sweep_plan
from ...numerics.static_filter import SAMPLE_POINTS, Magnitude, StaticFilter, sample_errors
from ...ops.base import OVERFLOW_GUARD, Affine, Breaking, Input, KnotPasses
from ...ops.masks import is_on_host
from .breaks import NewBreaks, place_breaks
from .device import DeviceInsertion, place_on_device, summarize_input
from .error_model import PointErrorBounds
from .fused_relu import insert_relu_breaks
from .insert import Insertion
from .state import PatternRecord, SweepState, start_state, to_device


@dataclass(frozen=True)
class SweepPart:
    """Finished points in order of line and alpha; a part may begin where the one before it ended."""

    line: Tensor  # (n,)
    alphas: Tensor  # (n,)
    origins: Tensor  # (n, 3) node or -1, unit, count
    ambiguous: Tensor  # (n,) units not told from a knot on the piece that starts here
    values: tuple[Tensor, ...]  # (n, *out) each
    continues: bool  # whether the first point repeats the last of the part before
    edge_units: tuple[dict[int, Tensor], dict[int, Tensor]] = (
        {},
        {},
    )  # units on a knot at the first and the last point
    shared_crossings: int = 0  # crossings at the repeated point that the part before counted too

    def first(self, count: int) -> SweepPart:
        """Only the first points."""
        values = tuple(v[:count] for v in self.values)
        line, alphas, origins, ambiguous = (t[:count] for t in (self.line, self.alphas, self.origins, self.ambiguous))
        return replace(self, line=line, alphas=alphas, origins=origins, ambiguous=ambiguous, values=values)


@dataclass
class SweepLimits:
    """When to stop, and how much to hold."""

    max_points: int  # in one part
    deadline: float = float("inf")  # on time.monotonic's clock
    stopped: str = ""  # why the sweep ended early

    def is_late(self) -> bool:
        if time.monotonic() > self.deadline:
            self.stopped = "seconds"
        return bool(self.stopped)

    def halve(self) -> None:
        """Hold half as much from now on; the error that is being handled goes on where that is not possible."""
        if self.max_points <= 2:
            raise
        torch.cuda.empty_cache()
        self.max_points = max(2, self.max_points // 2)


FIRST_LINES = 256  # lines that are swept together before it is known how many breaks they have
FILL_SHARE = 0.75  # of the points that may be held: lines that are expected to fill it go together
Observer = Callable[[SweepState], None]


def sweep_lines(
    network: Network, lines: Lines, limits: SweepLimits, watch: Observer | None = None
) -> Iterator[SweepPart]:
    """All lines together, part by part in order; ends early where the limits say so."""
    if not len(lines):
        return
    facts = sweep_plan(network)
    look = cache(partial(_sample_filter, network, lines)) if facts.is_narrow else None
    first, step, points = 0, max(1, min(FIRST_LINES, limits.max_points // 2)), 0
    while first < len(lines):
        whole = start_state(lines, first, min(first + step, len(lines)), network.inputs)
        whole.filter = StaticFilter(sample=look)
        for part in sweep_from(network, whole, limits, watch):
            points += len(part.alphas)
            yield part
        if limits.stopped:
            return
        first += step
        expected = max(points / first, 1.0)  # on each line, as they were so far
        step = max(1, min(limits.max_points // 2, int(FILL_SHARE * limits.max_points / expected)))


def sweep_from(
    network: Network, state: SweepState, limits: SweepLimits, watch: Observer | None = None
) -> Iterator[SweepPart]:
    """A state to the end of the network, in parts where it holds too many points."""
    facts = sweep_plan(network)
    waiting = [iter([state])]
    while waiting:
        following = next(waiting[-1], None)
        if following is None:
            waiting.pop()
            continue
        held = _snapshot(following)
        try:
            found = _advance(network, facts, following, limits, watch)
        except torch.cuda.OutOfMemoryError:
            limits.halve()
            found = _halve(held) if len(held) > limits.max_points else iter([held])
        if limits.stopped:
            return
        if isinstance(found, SweepState):
            yield _make_part(network, found)
        else:
            waiting.append(found)


def _snapshot(state: SweepState) -> SweepState:
    """A state as it is now: what is written on the way is copied."""
    facts, places = (a if isinstance(a, Tensor) else a.copy() for a in (state.facts, state.places))
    return replace(
        state,
        facts=facts,
        places=places,
        live=dict(state.live),
        sizes=dict(state.sizes),
        magnitudes=dict(state.magnitudes),
        probes=None,
        first_on_knot=dict(state.first_on_knot),
        last_on_knot=dict(state.last_on_knot),
    )


def _halve(state: SweepState) -> Iterator[SweepState]:
    """A state that is too large in two; the second starts where the first ended, if that is on the same line."""
    middle = len(state) // 2
    shared = bool(state.line[middle - 1] == state.line[middle])
    for start, stop in ((0, middle), (middle - shared, len(state))):
        part = replace(
            state,
            facts=state.marks[start:stop].copy(),
            places=state.spots[start:stop].copy(),
            line_ends=None,
            live={j: t[start:stop].contiguous() for j, t in state.live.items()},
            sizes=dict(state.sizes),
            magnitudes=dict(state.magnitudes),
            first_on_knot=dict(state.first_on_knot) if start == 0 else {},
            last_on_knot=dict(state.last_on_knot) if stop == len(state) else {},
        )
        if start > 0:
            part.continues, part.shared_crossings = shared, int(part.origins[0, 2]) if shared else 0
        yield part


def _sample_filter(network: Network, lines: Lines) -> dict[int, float]:
    """Errors as they are at some points, spread over the lines."""
    share = np.linspace(0.0, 1.0, SAMPLE_POINTS)
    line = np.rint(share * (len(lines) - 1)).astype(np.int64)
    alphas = np.modf(share * (SAMPLE_POINTS // 2 - 0.5))[0] if len(lines) > 1 else share
    device = lines.starts[0].device
    return sample_errors(network, *lines.at(to_device(device, line), to_device(device, alphas)))


def _advance(
    network: Network, facts: SweepPlan, state: SweepState, limits: SweepLimits, watch: Observer | None
) -> SweepState | Iterator[SweepState]:
    """Evaluate node after node, until the end or until the points must be taken in parts."""
    while state.node < len(network.nodes):
        if limits.is_late():
            return state
        i = state.node
        if i in facts.last_use and isinstance(network.nodes[i].op, Breaking):
            found = insert_breaks(network, facts, state, limits)
            if not isinstance(found, SweepState):
                return found
            state = found
        evaluate_next(network, facts, state)
        if watch is not None:
            watch(state)
    return state


def evaluate_next(network: Network, facts: SweepPlan, state: SweepState) -> None:
    """Past the next node: evaluated unless it breaks and was so already, and what nothing reads any more released."""
    i = state.node
    node = network.nodes[i]
    if i not in facts.last_use:
        state.live.pop(i, None)
    elif not isinstance(node.op, (Breaking, Input)):
        size = Magnitude.after(facts, i, [state.sizes[j] for j in node.inputs], state.eps)
        huge = size.values > OVERFLOW_GUARD and state.dtype == torch.float64
        evaluate = node.op.evaluate_scaled if huge and isinstance(node.op, Affine) else node.op.evaluate
        state.live[i], state.sizes[i] = evaluate(*(state.live[j] for j in node.inputs)), size
    _release(facts, state, i, node.inputs)
    state.node = i + 1


def insert_breaks(
    network: Network, facts: SweepPlan, state: SweepState, limits: SweepLimits
) -> SweepState | Iterator[SweepState]:
    """Find the crossings of a breaking node and put a point at each."""
    i = state.node
    node = network.nodes[i]
    op = node.op
    if not isinstance(op, Breaking):
        raise TypeError(f"{node.name} does not break")
    source = node.inputs[0]
    quick = insert_relu_breaks(facts, state, op, source, limits.max_points)
    if quick is not None:
        return quick
    x = state.live[source]
    seen = None if is_on_host(x) else summarize_input(state, op, source)
    largest = max_magnitude(x, node.name) if seen is None else check_magnitude(seen.low, seen.high, node.name)
    noise = PointErrorBounds(network, state, source, largest, state.sizes[source], seen and seen.knot_distances)
    state.sizes[i] = Magnitude(largest * facts.value_gain[i], state.sizes[source].errors * facts.error_gain[i])
    state.magnitudes[source] = largest
    settled = op.snap_to_knots(x, noise)
    crossings, passes = op.crossings(settled, noise), op.knot_passes(settled, noise)
    whole = settled.x.view(len(settled.x), *x.shape[1:])
    state.is_unambiguous = bool(settled.sides) and all(below is None for _, below in settled.sides)
    plain = seen is not None and settled.ambiguous is None and passes is None and state.probes is None
    fresh = place_on_device(crossings, noise, state.device_points) if plain else None
    if fresh is not None:
        births = DeviceInsertion(state, fresh, noise.threshold)
    else:
        births = place_breaks(crossings, noise)
        if settled.ambiguous is not None:
            state.ambiguous[:-1] += settled.ambiguous.cpu().numpy()
        _count_known_crossings(state, births, passes)
    total = len(state) + len(births)
    if total <= max(limits.max_points, 2):
        return _insert(network, facts, state, births, whole, noise.threshold, 0, total)
    return _split_into_parts(network, facts, state, births, whole, noise.threshold, limits)


def _split_into_parts(
    network: Network,
    facts: SweepPlan,
    state: SweepState,
    births: NewBreaks | DeviceInsertion,
    x: Tensor,
    doubtful: float,
    limits: SweepLimits,
) -> Iterator[SweepState]:
    """The same points in several states, each starting where the one before it ended."""
    total = len(state) + len(births)
    if isinstance(births, DeviceInsertion):
        line, counts, _ = births.order
    else:
        line = np.insert(state.line, births.piece + 1, state.line[births.piece])
        counts = np.insert(state.origins[:, 2], births.piece + 1, births.count)
    start, cut = 0, state.continues
    while True:
        stop = min(start + max(limits.max_points, 2), total)
        try:
            part = _insert(network, facts, state, births, x, doubtful, start, stop)
        except torch.cuda.OutOfMemoryError:
            limits.halve()
            continue
        part.continues = cut
        if start > 0:
            part.shared_crossings = int(counts[start]) if cut else 0
        cut = stop < total and bool(line[stop - 1] == line[stop])
        part.first_on_knot = dict(state.first_on_knot) if start == 0 else {}
        part.last_on_knot = dict(state.last_on_knot) if stop == total else {}
        part.node = state.node + 1
        _release(facts, part, state.node, network.nodes[state.node].inputs)
        yield part
        if stop == total:
            return
        start = stop - 1 if cut else stop


def _insert(
    network: Network,
    facts: SweepPlan,
    state: SweepState,
    births: NewBreaks | DeviceInsertion,
    x: Tensor,
    doubtful: float,
    start: int,
    stop: int,
) -> SweepState:
    """The state after a breaking node, for the points ``start`` to ``stop`` of the merged order."""
    i = state.node
    node = network.nodes[i]
    source = node.inputs[0]
    merge = births.part(start, stop) if isinstance(births, DeviceInsertion) else Insertion(state, births, start, stop)
    tame = {j for j, peak in state.magnitudes.items() if peak <= OVERFLOW_GUARD}
    merged = merge.interpolate(x, source in tame)
    merge.set_crossing_values(merged)
    live = {
        j: merge.interpolate(t, j in tame) for j, t in state.live.items() if j != source or facts.last_use[source] > i
    }
    op = node.op
    if not isinstance(op, Breaking):
        raise TypeError(f"{node.name} does not break")
    step = None
    if state.records_patterns:
        ends = merged[:-1], merged[1:]
        rival = None if state.is_unambiguous else op.other_side(*ends)
        step = PatternRecord(merge.left, len(state), merge.has_new_points, op.activation_pattern(*ends), rival)
    live[i] = op.evaluate(merged) if merged is x else op.evaluate_inplace(merged)
    marks, spots, gaps, trail = merge.point_table(network, source, doubtful)
    return replace(
        state,
        facts=marks,
        places=spots,
        line_ends=gaps,
        live=live,
        sizes=dict(state.sizes),
        magnitudes=dict(state.magnitudes),
        probes=trail,
        record=step,
    )


def _count_known_crossings(state: SweepState, births: NewBreaks, passes: KnotPasses | None) -> None:
    """Crossings that fall on points that exist already count there."""
    if not births.one_to_one:
        np.add.at(state.origins[:, 2], births.old_point[births.old_point >= 0], 1)
    if passes is not None:
        state.origins[:, 2] += passes.counts.cpu().numpy()
        state.first_on_knot[state.node], state.last_on_knot[state.node] = passes.first, passes.last


def _release(facts: SweepPlan, state: SweepState, i: int, inputs: tuple[int, ...]) -> None:
    for j in set(inputs):
        if facts.last_use[j] == i:
            state.live.pop(j, None)
            state.sizes.pop(j, None)
            state.magnitudes.pop(j, None)


def max_magnitude(x: Tensor, name: str) -> float:
    if not x.numel():
        return 0.0
    low, high = torch.stack(torch.aminmax(x)).tolist()
    return check_magnitude(low, high, name)


def check_magnitude(low: float, high: float, name: str) -> float:
    """The size of the largest of values that lie between these."""
    size = max(-low, high)
    if not size < float("inf"):
        raise NumberError(
            "A value overflows or is not a number.",
            where=f"the input of node {name}",
            hint="Scale the points or the weights; values must stay below 1.8e308.",
        )
    return size


def _make_part(network: Network, state: SweepState) -> SweepPart:
    values = tuple(state.live[i] for i in network.outputs)
    for number, value in enumerate(values):
        max_magnitude(value, f"output {number}")
    edges = (state.first_on_knot, state.last_on_knot)
    line, alphas, origins, ambiguous = map(
        torch.from_numpy, (state.line, state.alphas, state.origins[:, :3], state.ambiguous)
    )
    return SweepPart(line, alphas, origins, ambiguous, values, state.continues, edges, state.shared_crossings)
