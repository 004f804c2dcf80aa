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
from ...numerics.plan import Plan, plan
from ...numerics.static_filter import SAMPLES, Size, Usual, usual_errors
from ...ops.base import HUGE, Affine, Breaking, Input, Passes
from ...ops.masks import on_host
from .breaks import Births, place
from .device import DeviceMerge, fresh_points, glance
from .error_model import StateNoise
from .fused_relu import quickly
from .insert import Merge
from .state import State, Step, begin, on


@dataclass(frozen=True)
class Part:
    """Finished points in order of line and alpha; a part may begin where the one before it ended."""

    line: Tensor  # (n,)
    alphas: Tensor  # (n,)
    born: Tensor  # (n, 3) node or -1, unit, count
    doubts: Tensor  # (n,) units not told from a knot on the piece that starts here
    values: tuple[Tensor, ...]  # (n, *out) each
    continues: bool  # whether the first point repeats the last of the part before
    edges: tuple[dict[int, Tensor], dict[int, Tensor]] = ({}, {})  # units on a knot at the first and the last point
    shared: int = 0  # crossings at the repeated point that the part before counted too

    def first(self, count: int) -> Part:
        """Only the first points."""
        values = tuple(v[:count] for v in self.values)
        line, alphas, born, doubts = (t[:count] for t in (self.line, self.alphas, self.born, self.doubts))
        return replace(self, line=line, alphas=alphas, born=born, doubts=doubts, values=values)


@dataclass
class Limits:
    """When to stop, and how much to hold."""

    points: int  # in one part
    deadline: float = float("inf")  # on time.monotonic's clock
    stopped: str = ""  # why the sweep ended early

    def late(self) -> bool:
        if time.monotonic() > self.deadline:
            self.stopped = "seconds"
        return bool(self.stopped)

    def halve(self) -> None:
        """Hold half as much from now on; the error that is being handled goes on where that is not possible."""
        if self.points <= 2:
            raise
        torch.cuda.empty_cache()
        self.points = max(2, self.points // 2)


FEW = 256  # lines that are swept together before it is known how many breaks they have
ROOM = 0.75  # of the points that may be held: lines that are expected to fill it go together
Watch = Callable[[State], None]


def sweep_lines(network: Network, lines: Lines, limits: Limits, watch: Watch | None = None) -> Iterator[Part]:
    """All lines together, part by part in order; ends early where the limits say so."""
    if not len(lines):
        return
    facts = plan(network)
    look = cache(partial(_usual, network, lines)) if facts.narrow else None
    first, step, points = 0, max(1, min(FEW, limits.points // 2)), 0
    while first < len(lines):
        whole = begin(lines, first, min(first + step, len(lines)), network.inputs)
        whole.usual = Usual(look=look)
        for part in advance_all(network, whole, limits, watch):
            points += len(part.alphas)
            yield part
        if limits.stopped:
            return
        first += step
        expected = max(points / first, 1.0)  # on each line, as they were so far
        step = max(1, min(limits.points // 2, int(ROOM * limits.points / expected)))


def advance_all(network: Network, state: State, limits: Limits, watch: Watch | None = None) -> Iterator[Part]:
    """A state to the end of the network, in parts where it holds too many points."""
    facts = plan(network)
    waiting = [iter([state])]
    while waiting:
        following = next(waiting[-1], None)
        if following is None:
            waiting.pop()
            continue
        held = _kept(following)
        try:
            found = _advance(network, facts, following, limits, watch)
        except torch.cuda.OutOfMemoryError:
            limits.halve()
            found = _halves(held) if len(held) > limits.points else iter([held])
        if limits.stopped:
            return
        if isinstance(found, State):
            yield _finished(network, found)
        else:
            waiting.append(found)


def _kept(state: State) -> State:
    """A state as it is now: what is written on the way is copied."""
    facts, places = (a if isinstance(a, Tensor) else a.copy() for a in (state.facts, state.places))
    written = {"first": dict(state.first), "last": dict(state.last), "sizes": dict(state.sizes), "trail": None}
    return replace(state, facts=facts, places=places, live=dict(state.live), peaks=dict(state.peaks), **written)


def _halves(state: State) -> Iterator[State]:
    """A state that is too large in two; the second starts where the first ended, if that is on the same line."""
    middle = len(state) // 2
    shared = bool(state.line[middle - 1] == state.line[middle])
    for start, stop in ((0, middle), (middle - shared, len(state))):
        part = replace(
            state,
            facts=state.marks[start:stop].copy(),
            places=state.spots[start:stop].copy(),
            gaps=None,
            live={j: t[start:stop].contiguous() for j, t in state.live.items()},
            sizes=dict(state.sizes),
            peaks=dict(state.peaks),
            first=dict(state.first) if start == 0 else {},
            last=dict(state.last) if stop == len(state) else {},
        )
        if start > 0:
            part.cut_left, part.cut_count = shared, int(part.born[0, 2]) if shared else 0
        yield part


def _usual(network: Network, lines: Lines) -> dict[int, float]:
    """Errors as they are at some points, spread over the lines."""
    share = np.linspace(0.0, 1.0, SAMPLES)
    line = np.rint(share * (len(lines) - 1)).astype(np.int64)
    alphas = np.modf(share * (SAMPLES // 2 - 0.5))[0] if len(lines) > 1 else share
    device = lines.starts[0].device
    return usual_errors(network, *lines.at(on(device, line), on(device, alphas)))


def _advance(
    network: Network, facts: Plan, state: State, limits: Limits, watch: Watch | None
) -> State | Iterator[State]:
    """Evaluate node after node, until the end or until the points must be taken in parts."""
    while state.node < len(network.nodes):
        if limits.late():
            return state
        i = state.node
        if i in facts.last and isinstance(network.nodes[i].op, Breaking):
            found = branch_out(network, facts, state, limits)
            if not isinstance(found, State):
                return found
            state = found
        move_on(network, facts, state)
        if watch is not None:
            watch(state)
    return state


def move_on(network: Network, facts: Plan, state: State) -> None:
    """Past the next node: evaluated unless it breaks and was so already, and what nothing reads any more released."""
    i = state.node
    node = network.nodes[i]
    if i not in facts.last:
        state.live.pop(i, None)
    elif not isinstance(node.op, (Breaking, Input)):
        size = Size.after(facts, i, [state.sizes[j] for j in node.inputs], state.eps)
        huge = size.values > HUGE and state.dtype == torch.float64
        evaluate = node.op.evaluate_scaled if huge and isinstance(node.op, Affine) else node.op.evaluate
        state.live[i], state.sizes[i] = evaluate(*(state.live[j] for j in node.inputs)), size
    _release(facts, state, i, node.inputs)
    state.node = i + 1


def branch_out(network: Network, facts: Plan, state: State, limits: Limits) -> State | Iterator[State]:
    """Find the crossings of a breaking node and put a point at each."""
    i = state.node
    node = network.nodes[i]
    op = node.op
    if not isinstance(op, Breaking):
        raise TypeError(f"{node.name} does not break")
    source = node.inputs[0]
    quick = quickly(facts, state, op, source, limits.points)
    if quick is not None:
        return quick
    x = state.live[source]
    seen = None if on_host(x) else glance(state, op, source)
    largest = largest_of(x, node.name) if seen is None else size_of(seen.low, seen.high, node.name)
    noise = StateNoise(network, state, source, largest, state.sizes[source], seen and seen.nearest)
    state.sizes[i] = Size(largest * facts.reach[i], state.sizes[source].errors * facts.gain[i])
    state.peaks[source] = largest
    settled = op.settle(x, noise)
    crossings, passes = op.crossings(settled, noise), op.passes(settled, noise)
    whole = settled.x.view(len(settled.x), *x.shape[1:])
    state.clear = bool(settled.sides) and all(below is None for _, below in settled.sides)
    plain = seen is not None and settled.unresolved is None and passes is None and state.trail is None
    fresh = fresh_points(crossings, noise, state.rows) if plain else None
    if fresh is not None:
        births = DeviceMerge(state, fresh, noise.doubtful)
    else:
        births = place(crossings, noise)
        if settled.unresolved is not None:
            state.doubts[:-1] += settled.unresolved.cpu().numpy()
        _count(state, births, passes)
    total = len(state) + len(births)
    if total <= max(limits.points, 2):
        return _insert(network, facts, state, births, whole, noise.doubtful, 0, total)
    return _parts(network, facts, state, births, whole, noise.doubtful, limits)


def _parts(
    network: Network,
    facts: Plan,
    state: State,
    births: Births | DeviceMerge,
    x: Tensor,
    doubtful: float,
    limits: Limits,
) -> Iterator[State]:
    """The same points in several states, each starting where the one before it ended."""
    total = len(state) + len(births)
    if isinstance(births, DeviceMerge):
        line, counts, _ = births.order
    else:
        line = np.insert(state.line, births.piece + 1, state.line[births.piece])
        counts = np.insert(state.born[:, 2], births.piece + 1, births.count)
    start, cut = 0, state.cut_left
    while True:
        stop = min(start + max(limits.points, 2), total)
        try:
            part = _insert(network, facts, state, births, x, doubtful, start, stop)
        except torch.cuda.OutOfMemoryError:
            limits.halve()
            continue
        part.cut_left = cut
        if start > 0:
            part.cut_count = int(counts[start]) if cut else 0
        cut = stop < total and bool(line[stop - 1] == line[stop])
        part.first = dict(state.first) if start == 0 else {}
        part.last = dict(state.last) if stop == total else {}
        part.node = state.node + 1
        _release(facts, part, state.node, network.nodes[state.node].inputs)
        yield part
        if stop == total:
            return
        start = stop - 1 if cut else stop


def _insert(
    network: Network,
    facts: Plan,
    state: State,
    births: Births | DeviceMerge,
    x: Tensor,
    doubtful: float,
    start: int,
    stop: int,
) -> State:
    """The state after a breaking node, for the points ``start`` to ``stop`` of the merged order."""
    i = state.node
    node = network.nodes[i]
    source = node.inputs[0]
    merge = births.part(start, stop) if isinstance(births, DeviceMerge) else Merge(state, births, start, stop)
    tame = {j for j, peak in state.peaks.items() if peak <= HUGE}
    merged = merge.tensor(x, source in tame)
    merge.meet(merged)
    live = {j: merge.tensor(t, j in tame) for j, t in state.live.items() if j != source or facts.last[source] > i}
    op = node.op
    if not isinstance(op, Breaking):
        raise TypeError(f"{node.name} does not break")
    step = None
    if state.traced:
        ends = merged[:-1], merged[1:]
        rival = None if state.clear else op.rival(*ends)
        step = Step(merge.left, len(state), merge.grown, op.branch(*ends), rival)
    live[i] = op.evaluate(merged) if merged is x else op.overwrite(merged)
    marks, spots, gaps, trail = merge.known(network, source, doubtful)
    kept = {"sizes": dict(state.sizes), "peaks": dict(state.peaks), "trail": trail, "step": step}
    return replace(state, facts=marks, places=spots, gaps=gaps, live=live, **kept)


def _count(state: State, births: Births, passes: Passes | None) -> None:
    """Crossings that fall on points that exist already count there."""
    if not births.simple:
        np.add.at(state.born[:, 2], births.joins[births.joins >= 0], 1)
    if passes is not None:
        state.born[:, 2] += passes.counts.cpu().numpy()
        state.first[state.node], state.last[state.node] = passes.first, passes.last


def _release(facts: Plan, state: State, i: int, inputs: tuple[int, ...]) -> None:
    for j in set(inputs):
        if facts.last[j] == i:
            state.live.pop(j, None)
            state.sizes.pop(j, None)
            state.peaks.pop(j, None)


def largest_of(x: Tensor, name: str) -> float:
    if not x.numel():
        return 0.0
    low, high = torch.stack(torch.aminmax(x)).tolist()
    return size_of(low, high, name)


def size_of(low: float, high: float, name: str) -> float:
    """The size of the largest of values that lie between these."""
    size = max(-low, high)
    if not size < float("inf"):
        raise NumberError(
            "A value overflows or is not a number.",
            where=f"the input of node {name}",
            hint="Scale the points or the weights; values must stay below 1.8e308.",
        )
    return size


def _finished(network: Network, state: State) -> Part:
    values = tuple(state.live[i] for i in network.outputs)
    for number, value in enumerate(values):
        largest_of(value, f"output {number}")
    edges = (state.first, state.last)
    line, alphas, born, doubts = map(torch.from_numpy, (state.line, state.alphas, state.born[:, :3], state.doubts))
    return Part(line, alphas, born, doubts, values, state.cut_left, edges, state.cut_count)
