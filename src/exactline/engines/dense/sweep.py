"""The dense sweep: values of every live tensor at every break, node by node, in bounded memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ...arrays import Ints
from ...budget import DEFAULT_MEMORY, Budget, DeadlineReached, enforce_budget
from ...errors import NumberError
from ...lines import Lines
from ...network.graph import Network
from ...numerics.equal_units import breaking_op
from ...numerics.plan import SweepPlan, sweep_plan
from ...numerics.point_errors import is_short_line, share_errors
from ...numerics.static_filter import Magnitude, StaticFilter, sample_errors
from ...ops.affine import Product
from ...ops.base import Affine, Breaking, Input, KnotPasses
from ...ops.masks import is_on_host
from ...tolerances import OVERFLOW_GUARD, SAMPLE_POINTS, SEGMENT_ERROR_SAMPLES, WIDE_SAMPLE_POINTS
from .breaks import NewBreaks, count_units, place_breaks
from .device import DeviceInsertion, place_on_device, summarize_input
from .error_model import PointErrorBounds
from .fused_product import suits_fused_product
from .fused_relu import insert_relu_breaks
from .insert import Insertion
from .points import to_device
from .state import PatternRecord, SweepState, start_state

if TYPE_CHECKING:
    from ..layer_record import LayerRecorder

FIRST_BATCH_LINES = 256  # lines that are swept together before their number of breaks is known
FIRST_PART_POINTS = 16  # points of the first part if there is a deadline
MIN_PACED_POINTS = 8  # points per part, however little time is left
PART_TIME_SHARE = 1 / 32  # of the time left that one part should take
TARGET_FILL_SHARE = 0.75  # share of `SweepLimits.max_points` that the next batch of lines is expected to fill


@dataclass(frozen=True)
class SweepPart:
    """Finished points in order of line and alpha."""

    line: Tensor  # (n,)
    alphas: Tensor  # (n,)
    origins: Tensor  # (n, 3) node or -1, unit, count
    ambiguous: Tensor  # (n,) number of ambiguous units on the piece that starts here; in a sweep, 1 where some may be
    values: tuple[Tensor, ...]  # (n, *out) each
    continues: bool  # whether the first point repeats the last point of the previous part
    # by node, (k, 4): the units that are on a knot at the first and at the last point, as in `KnotPasses`
    edge_units: tuple[dict[int, Tensor], dict[int, Tensor]] = ({}, {})
    shared_crossings: int = 0  # crossings at the repeated point that the previous part has counted

    def head(self, count: int) -> SweepPart:
        """The part with its first ``count`` points only."""
        values = tuple(v[:count] for v in self.values)
        line, alphas, origins, ambiguous = (t[:count] for t in (self.line, self.alphas, self.origins, self.ambiguous))
        return replace(self, line=line, alphas=alphas, origins=origins, ambiguous=ambiguous, values=values)


class TooManyBreaks(Exception):
    """Lines have more breaks than `SweepLimits.max_density` allows."""


@dataclass
class SweepLimits:
    """The memory and time a sweep may use, and why it stopped if it did."""

    max_points: int  # per part
    deadline: float = float("inf")  # on the clock of time.monotonic
    memory: int = DEFAULT_MEMORY  # bytes that points and temporary numbers may take together
    max_breaks: int | None = None  # breaks after which the sweep will be stopped
    # by breaking node: points per line above which `TooManyBreaks` is raised
    max_density: dict[int, float] = field(default_factory=dict[int, float])
    stopped: str = ""  # why the sweep ended early: "seconds" or "max_breaks"
    max_paced_points: int = field(init=False)  # up to which parts grow while there is time

    def __post_init__(self) -> None:
        self.max_paced_points = self.max_points
        if self.deadline < float("inf"):
            self.max_points = min(self.max_points, FIRST_PART_POINTS)

    def should_stop(self) -> bool:
        """Whether the sweep was stopped, or stops now because the deadline has passed."""
        if time.monotonic() > self.deadline:
            self.stopped = "seconds"
        return bool(self.stopped)

    @contextmanager
    def enforced(self) -> Generator[None]:
        """Enforce both limits; where the block reaches the deadline, leave it and stop the sweep."""
        try:
            with enforce_budget(Budget(self.deadline, self.memory)):
                yield
        except DeadlineReached:
            self.stopped = "seconds"

    def pace_parts(self, seconds: float) -> None:
        """Adapt `max_points` to the seconds that a part took: a deadline wastes at most the work of one part."""
        if self.deadline == float("inf"):
            return
        target = PART_TIME_SHARE * (self.deadline - time.monotonic())
        if seconds < target:
            self.max_points = min(2 * self.max_points, self.max_paced_points)
        elif seconds > 2 * target:
            self.max_points = min(self.max_points, max(self.max_points // 2, MIN_PACED_POINTS))

    def halve_max_points(self) -> None:
        """Halve `max_points` while handling an out-of-memory error; re-raises the error if it is at its minimum."""
        if self.max_points <= 2:
            raise
        torch.cuda.empty_cache()
        self.max_points = self.max_paced_points = max(2, self.max_points // 2)


Observer = Callable[[SweepState], None]  # called with the state after every node


def sweep_lines(
    network: Network,
    lines: Lines,
    limits: SweepLimits,
    observer: Observer | None = None,
    recorder: LayerRecorder | None = None,
) -> Iterator[SweepPart]:
    """Sweep all lines, batch by batch; yields finished parts in order and ends early at a limit."""
    if not len(lines):
        return
    sample = cache(partial(_sample_line_errors, network, lines))
    first, step, points = 0, max(1, min(FIRST_BATCH_LINES, limits.max_points // 2)), 0
    while first < len(lines):
        state = start_state(lines, first, min(first + step, len(lines)), network.inputs)
        state.filter, state.recorder = StaticFilter(sample=sample), recorder
        for part in sweep_from(network, state, limits, observer):
            points += len(part.alphas)
            yield part
        if limits.stopped:
            return
        first += step
        points_per_line = max(points / first, 1.0)
        step = max(1, min(limits.max_points // 2, int(TARGET_FILL_SHARE * limits.max_points / points_per_line)))


def sweep_from(
    network: Network, state: SweepState, limits: SweepLimits, observer: Observer | None = None
) -> Iterator[SweepPart]:
    """Sweep from a state to the end of the network, depth first in parts where it holds too many points."""
    plan = sweep_plan(network)
    pending = [iter([state])]
    began = time.monotonic()
    while pending:
        current = None
        with limits.enforced():
            current = next(pending[-1], None)
        if limits.stopped:
            return
        if current is None:
            pending.pop()
            continue
        advanced = _advance_or_split(network, plan, current, limits, observer)
        if limits.stopped or advanced is None:
            return
        if isinstance(advanced, SweepState):
            part = _finish_part(network, advanced)
            limits.pace_parts(time.monotonic() - began)
            del advanced
            yield part
            del part
            began = time.monotonic()
        else:
            pending.append(advanced)


def _advance_or_split(
    network: Network, plan: SweepPlan, state: SweepState, limits: SweepLimits, observer: Observer | None
) -> SweepState | Iterator[SweepState] | None:
    """`_advance`, or two halves of the state if a device runs out of memory; None if the deadline passes."""
    backup = _snapshot(state)
    try:
        with limits.enforced():
            advanced = _advance(network, plan, state, limits, observer)
            if state.recorder is not None:
                state.recorder.commit()
            return advanced
    except torch.cuda.OutOfMemoryError:
        if state.recorder is not None:
            state.recorder.discard()
        limits.halve_max_points()
        return _split_in_half(backup) if len(backup) > limits.max_points else iter([backup])
    return None


def _snapshot(state: SweepState) -> SweepState:
    """A copy of a state that evaluating the original leaves unchanged."""
    return replace(
        state,
        table=state.table.copy(),
        live=dict(state.live),
        bounds=dict(state.bounds),
        magnitudes=dict(state.magnitudes),
        point_errors=None,
        first_on_knot=dict(state.first_on_knot),
        last_on_knot=dict(state.last_on_knot),
    )


def _split_in_half(state: SweepState) -> Iterator[SweepState]:
    """Two halves of a state; the second repeats the last point of the first if they share a line."""
    middle = len(state) // 2
    shared = bool(state.line[middle - 1] == state.line[middle])
    for start, stop in ((0, middle), (middle - shared, len(state))):
        part = replace(
            state,
            table=state.points.rows(start, stop),
            line_ends=None,
            live={j: t[start:stop].contiguous() for j, t in state.live.items()},
            bounds=dict(state.bounds),
            magnitudes=dict(state.magnitudes),
            first_on_knot=dict(state.first_on_knot) if start == 0 else {},
            last_on_knot=dict(state.last_on_knot) if stop == len(state) else {},
        )
        if start > 0:
            part.continues, part.shared_crossings = shared, int(part.points.count[0]) if shared else 0
        yield part


def _sample_line_errors(network: Network, lines: Lines) -> dict[int, float]:
    """By breaking node: the largest error at its input, over sample points spread over the lines."""
    is_narrow, is_short = sweep_plan(network).is_narrow, len(lines) == 1 and is_short_line(lines, 0)
    if is_short and not is_narrow:
        alphas = torch.full((1,), 0.5, dtype=torch.float64, device=lines.starts[0].device)
        return sample_errors(
            network, *lines.at(torch.zeros_like(alphas, dtype=torch.int64), alphas), SEGMENT_ERROR_SAMPLES
        )
    points = SAMPLE_POINTS if is_narrow else WIDE_SAMPLE_POINTS
    share = np.linspace(0.0, 1.0, points)
    line = np.rint(share * (len(lines) - 1)).astype(np.int64)
    alphas = np.modf(share * (points // 2 - 0.5))[0] if len(lines) > 1 else share
    device = lines.starts[0].device
    some, errors = lines.at(to_device(device, line), to_device(device, alphas))
    if is_short:
        return sample_errors(network, *share_errors(some, errors), SEGMENT_ERROR_SAMPLES)
    return sample_errors(network, some, errors)


def _advance(
    network: Network, plan: SweepPlan, state: SweepState, limits: SweepLimits, observer: Observer | None
) -> SweepState | Iterator[SweepState]:
    """Evaluate nodes up to the output, or up to a node after which the points must be split into parts."""
    while state.node < len(network.nodes):
        if limits.should_stop():
            return state
        i = state.node
        if i in plan.last_use and isinstance(network.nodes[i].op, Breaking):
            after = insert_breaks(network, plan, state, limits, may_skip_relu=observer is None)
            if not isinstance(after, SweepState):
                return after
            state = after
            if state.node > i:  # the next node was evaluated in the same pass
                continue
        evaluate_next(network, plan, state)
        if observer is not None:
            observer(state)
    return state


def evaluate_next(network: Network, plan: SweepPlan, state: SweepState) -> None:
    """Evaluate the next node in place and release tensors after their last use.

    A breaking node has been evaluated by `insert_breaks` already.
    """
    i = state.node
    node = network.nodes[i]
    if i not in plan.last_use:
        state.live.pop(i, None)
        state.node = i + 1
        return
    if not isinstance(node.op, (Breaking, Input)):
        bound = Magnitude.after(plan, i, [state.bounds[j] for j in node.inputs], state.eps)
        may_overflow = bound.values > OVERFLOW_GUARD and state.dtype == torch.float64
        evaluate = node.op.evaluate_scaled if may_overflow and isinstance(node.op, Affine) else node.op.evaluate
        state.live[i], state.bounds[i] = evaluate(*(state.live[j] for j in node.inputs)), bound
    _release_inputs(plan, state, i, node.inputs)
    state.node = i + 1


def insert_breaks(
    network: Network, plan: SweepPlan, state: SweepState, limits: SweepLimits, *, may_skip_relu: bool = False
) -> SweepState | Iterator[SweepState]:
    """Find the crossings of a breaking node, insert a point at each, and evaluate the node.

    Returns one state, or an iterator over several if the points exceed ``limits.max_points``. With ``may_skip_relu``
    the state may be the one after a ReLU and the linear layer behind it, without the values between them.
    """
    i = state.node
    node = network.nodes[i]
    op, source = breaking_op(network, i), node.inputs[0]
    if i in limits.max_density:
        _check_density(op, state, source, limits.max_density[i])
    product = _next_product(network, plan, i) if may_skip_relu and not state.records_patterns else None
    fused = insert_relu_breaks(plan, state, op, source, limits.max_points, product)
    if fused is not None:
        if fused.recorder is not None:
            _record_new_points(fused.recorder, fused, i)
        return fused
    x = state.live[source]
    summary = None if is_on_host(x) else summarize_input(state, op, source)
    largest = max_magnitude(x, node.name) if summary is None else check_magnitude(summary.low, summary.high, node.name)
    errors = PointErrorBounds(network, state, source, largest, state.bounds[source], summary and summary.knot_distances)
    state.bounds[i] = Magnitude(largest * plan.value_gain[i], state.bounds[source].errors * plan.error_gain[i])
    state.magnitudes[source] = largest
    snapped = op.snap_to_knots(x, errors)
    crossings = op.crossings(snapped, errors)
    passes = op.knot_passes(snapped, errors, with_switches=state.recorder is not None)
    snapped_x = snapped.x.view(len(snapped.x), *x.shape[1:])
    state.is_unambiguous = bool(snapped.sides) and all(below is None for _, below in snapped.sides)
    try_device = summary is not None and snapped.ambiguous is None and passes is None and state.point_errors is None
    on_device = place_on_device(crossings, errors, state.device_points) if try_device else None
    if on_device is not None:
        breaks = DeviceInsertion(state, on_device)
        if state.recorder is not None:
            line = state.device_points.line[on_device.piece]
            state.recorder.add(line, i, on_device.unit, on_device.alpha)
    else:
        breaks = place_breaks(crossings, errors)
        if snapped.ambiguous is not None:
            state.points.ambiguous[:-1] |= snapped.ambiguous.cpu().numpy()
        if state.recorder is not None:
            _record_switches(state.recorder, state, breaks, passes)
        _count_known_crossings(state, breaks, passes)
    insertion = NodeInsertion(network, plan, state, breaks, snapped_x)
    if insertion.total <= max(limits.max_points, 2):
        return insertion.apply(0, insertion.total)
    return insertion.apply_in_parts(limits)


def _check_density(op: Breaking, state: SweepState, source: int, max_density: float) -> None:
    """Raise `TooManyBreaks` if the points before a node, and the units that change between them, are too many."""
    same_line, x = state.same_line, state.live[source]
    length = float(np.diff(state.alphas)[same_line].sum())  # of the parts of lines that the points are on
    if len(x) * (1 + x[0].numel()) <= max_density * length:
        return  # even if every unit changes
    pattern = op.branch_at(x)
    changes = (pattern[1:] != pattern[:-1]).cpu().numpy()
    if len(x) + np.count_nonzero(changes if same_line.all() else changes[same_line]) > max_density * length:
        raise TooManyBreaks


def _count_known_crossings(state: SweepState, breaks: NewBreaks, passes: KnotPasses | None) -> None:
    """Count crossings that fall on existing points there."""
    if not breaks.one_to_one:
        state.points.count[:] += count_units(breaks.old_point, breaks.crossings.unit, len(state))
    if passes is not None:
        state.points.count[:] += passes.counts.cpu().numpy()
        state.first_on_knot[state.node], state.last_on_knot[state.node] = passes.first, passes.last


def _next_product(network: Network, plan: SweepPlan, i: int) -> Product | None:
    """The operator of the node after ``i`` if it is a large linear layer and the only reader of ``i``."""
    if i + 1 >= len(network.nodes) or network.nodes[i + 1].inputs != (i,) or plan.last_use[i] != i + 1:
        return None
    op = network.nodes[i + 1].op
    return op if i + 1 in plan.last_use and isinstance(op, Product) and suits_fused_product(op) else None


def _record_new_points(recorder: LayerRecorder, state: SweepState, node: int) -> None:
    """Record the crossings of a node each of which has a point of its own."""
    new = np.flatnonzero(state.points.node == node)
    recorder.add(state.points.line[new], node, state.points.unit[new], state.points.alpha[new])


def _record_switches(recorder: LayerRecorder, state: SweepState, breaks: NewBreaks, passes: KnotPasses | None) -> None:
    """Record the crossings of a node, and the units that change their branch at existing points."""
    found, points = breaks.crossings, state.points
    alpha = np.where(
        breaks.break_of >= 0, np.append(breaks.alpha, 0.0)[breaks.break_of], points.alpha[breaks.old_point]
    )
    recorder.add(points.line[found.piece], state.node, found.unit, alpha)
    if passes is not None and passes.switches is not None:
        point, unit, is_pass = passes.switches.cpu().numpy().T
        recorder.add(points.line[point], state.node, unit, points.alpha[point], is_pass > 0)


@dataclass(frozen=True)
class NodeInsertion:
    """A breaking node with its new breaks, to be applied to all points at once or in parts."""

    network: Network
    plan: SweepPlan
    state: SweepState  # before the node
    breaks: NewBreaks | DeviceInsertion
    x: Tensor  # (n, *shape) the node's input, snapped to its knots

    @property
    def total(self) -> int:
        """Number of old and new points."""
        return len(self.state) + len(self.breaks)

    def apply(self, start: int, stop: int) -> SweepState:
        """The state after the node, for rows ``start`` to ``stop`` of the merged order."""
        state, i = self.state, self.state.node
        node = self.network.nodes[i]
        op, source = node.op, node.inputs[0]
        if not isinstance(op, Breaking):
            raise TypeError(f"{node.name} does not break")
        merge = (
            self.breaks.part(start, stop)
            if isinstance(self.breaks, DeviceInsertion)
            else Insertion(state, self.breaks, start, stop)
        )
        cannot_overflow = {j for j, largest in state.magnitudes.items() if largest <= OVERFLOW_GUARD}
        x = merge.interpolate(self.x, source in cannot_overflow)
        merge.set_crossing_values(x)
        live = {
            j: merge.interpolate(t, j in cannot_overflow)
            for j, t in state.live.items()
            if j != source or self.plan.last_use[source] > i
        }
        if source in live:  # a maximum that reads the unit again, and 0, ties exactly there
            merge.set_crossing_values(live[source])
        record = None
        if state.records_patterns:
            ends = x[:-1], x[1:]
            other_side = None if state.is_unambiguous else op.other_side(*ends)
            record = PatternRecord(
                merge.source_index, len(state), merge.has_new_points, op.activation_pattern(*ends), other_side
            )
        live[i] = op.evaluate(x) if x is self.x else op.evaluate_inplace(x)
        table, line_ends, point_errors = merge.point_table(self.network)
        return replace(
            state,
            table=table,
            line_ends=line_ends,
            live=live,
            bounds=dict(state.bounds),
            magnitudes=dict(state.magnitudes),
            point_errors=point_errors,
            record=record,
        )

    def apply_in_parts(self, limits: SweepLimits) -> Iterator[SweepState]:
        """States after the node of at most ``limits.max_points`` points each.

        Within a line, each part repeats the last point of the previous one.
        """
        state, total = self.state, self.total
        line, counts = self._lines_and_counts()
        start, continues = 0, state.continues
        while True:
            stop = min(start + max(limits.max_points, 2), total)
            try:
                part = self.apply(start, stop)
            except torch.cuda.OutOfMemoryError:
                limits.halve_max_points()
                continue
            part.continues = continues
            if start > 0:
                part.shared_crossings = int(counts[start]) if continues else 0
            continues = stop < total and bool(line[stop - 1] == line[stop])
            part.first_on_knot = dict(state.first_on_knot) if start == 0 else {}
            part.last_on_knot = dict(state.last_on_knot) if stop == total else {}
            part.node = state.node + 1
            _release_inputs(self.plan, part, state.node, self.network.nodes[state.node].inputs)
            yield part
            if stop == total:
                return
            start = stop - 1 if continues else stop

    def _lines_and_counts(self) -> tuple[Ints, Ints]:
        """The line and the number of crossings of every point in merged order, (total,) each."""
        if isinstance(self.breaks, DeviceInsertion):
            line, counts, _ = self.breaks.order
            return line, counts
        piece, points = self.breaks.piece, self.state.points
        line = np.insert(points.line, piece + 1, points.line[piece])
        return line, np.insert(points.count, piece + 1, self.breaks.count)


def _release_inputs(plan: SweepPlan, state: SweepState, i: int, inputs: tuple[int, ...]) -> None:
    """Release the tensors whose last use is node ``i``; nodes that nothing needs have none."""
    for j in set(inputs):
        if plan.last_use.get(j) == i:
            state.live.pop(j, None)
            state.bounds.pop(j, None)
            state.magnitudes.pop(j, None)


def max_magnitude(x: Tensor, name: str) -> float:
    """The largest absolute value of a tensor; raises `NumberError` if it is not finite."""
    if not x.numel():
        return 0.0
    low, high = torch.stack(torch.aminmax(x)).tolist()
    return check_magnitude(low, high, name)


def check_magnitude(low: float, high: float, name: str) -> float:
    """The largest absolute value between two bounds; raises `NumberError` if it is not finite."""
    largest = max(-low, high)
    if not largest < float("inf"):
        raise NumberError(
            "A value overflows or is not a number.",
            where=f"the input of node {name}",
            hint="Scale the points or the weights; values must stay below 1.8e308.",
        )
    return largest


def _finish_part(network: Network, state: SweepState) -> SweepPart:
    """The finished part of a state that has passed all nodes."""
    values = tuple(state.live[i] for i in network.outputs)
    for number, value in enumerate(values):
        max_magnitude(value, f"output {number}")
    points = state.points
    line, alphas, origins, ambiguous = map(
        torch.from_numpy, (points.line, points.alpha, points.origins, points.ambiguous)
    )
    return SweepPart(
        line,
        alphas,
        origins,
        ambiguous,
        values,
        continues=state.continues,
        edge_units=(state.first_on_knot, state.last_on_knot),
        shared_crossings=state.shared_crossings,
    )
