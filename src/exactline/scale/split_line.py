"""One long line over the workers of a Ray cluster: segments of it are swept apart and joined into the same answer.

The sweep begins here, until it has enough points to split at. The state between two of them goes to a worker as it is,
so that a segment is swept as it would have been here, and the end points it shares with its neighbours are known.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Unpack

import torch

from ..engines.ambiguity import count_ambiguous
from ..engines.assemble import Assembler
from ..engines.dense.state import SweepState, start_state
from ..engines.dense.sweep import SweepLimits, SweepPart, evaluate_next, insert_breaks, sweep_from
from ..errors import ArgumentError, MissingError
from ..fp_context import full_precision
from ..lines import Lines, PointLike, as_lines, check_shapes
from ..network import Network, as_network
from ..numerics.plan import sweep_plan
from ..numerics.static_filter import StaticFilter, sample_errors
from ..ops.base import Breaking
from ..options import PlaneKeywords, RestrictOptions, check_count, free_memory
from ..progress import ProgressCallback, progress_reporter
from ..results.restriction import Restriction
from ..results.restrictions import Restrictions
from ..tolerances import SAMPLE_POINTS
from .ray_backend import connect_ray
from .transport import import_ray, pack_for_workers, unpack_in_worker

SEGMENTS_PER_WORKER = 8  # more than one, because some take longer than others
SEGMENT_POINTS = 32  # at which the sweep of the driver splits a segment
MAX_RETRIES = 3  # of a segment whose worker dies
CPU = torch.device("cpu")


class SplitLineKeywords(PlaneKeywords, total=False):
    """Keyword arguments of `restrict`: those of `xl.restrict` without the engine, which is the dense one."""

    max_breaks: int | None
    seconds: float | None


@dataclass(frozen=True)
class SegmentOptions:
    """What a worker needs besides its segment."""

    max_points: int  # in memory at once
    values: bool
    seconds: float | None  # until the time limit


def restrict(
    model: Any,
    start: PointLike,
    end: PointLike,
    *,
    workers: int | None = None,
    address: str | None = None,
    **options: Unpack[SplitLineKeywords],
) -> Restriction:
    """Compute what `xl.restrict` computes for one long line, on several workers of a Ray cluster.

    Args:
        model: as in `xl.restrict`.
        start: as in `xl.restrict`.
        end: as in `xl.restrict`.
        workers: number of workers; by default as many as the cluster has processors.
        address: of the cluster; by default one that is running, or a new one on this machine.
        **options: as in `xl.restrict`, without engine; ``memory`` is that of each worker.

    Example (needs the package ray)::

        line = xl.scale.restrict(model, start, end, workers=16)

    Raises the errors of `xl.restrict`, and MissingError where Ray is not installed.
    """
    began = time.perf_counter()
    checked = RestrictOptions.check(model, options, SplitLineKeywords)
    if options.get("device") is not None and checked.device.type != "cpu":
        raise ArgumentError(
            "The workers of a split line compute on processors.",
            where=f"argument device {checked.device}",
            hint="Leave device out, or use xl.restrict.",
        )
    workers = check_count("workers", workers)
    lines = as_lines(start, end, ("start", "end"), many=False)
    with full_precision(kernels=False):
        network = as_network(model, [t[0] for t in lines.starts], rewrite=checked.rewrite, until=checked.until)
    check_shapes(lines, [network.nodes[i].shape for i in network.inputs])
    shapes = [network.nodes[i].shape for i in network.outputs] if checked.values else None
    assembler = Assembler(1, shapes, checked.max_breaks, SweepLimits(1))
    swept = as_network(network, [], dtype=checked.dtype)
    assembler.count = partial(count_ambiguous, swept, lines.to(CPU, checked.dtype), limits=assembler.limits)
    with (
        progress_reporter(checked.progress) as report,
        _SegmentPool(swept, workers, address) as pool,
    ):
        with full_precision():
            segments = split_line(pool.network, lines.to(CPU, checked.dtype), SEGMENTS_PER_WORKER * pool.workers)
        max_points = sweep_plan(pool.network).max_points(checked.memory or free_memory(CPU))
        needs = SegmentOptions(max_points, checked.values, checked.seconds)
        breaks = assembler.collect(_report_progress(pool.sweep(segments, needs, assembler.limits), report))
    return Restrictions(
        breaks,
        lines,
        network,
        seconds=time.perf_counter() - began,
        units=network.units,
        dtype=checked.dtype,
        rewrite=checked.rewrite,
        until=checked.until,
        engine=f"dense, {len(segments):,} segments over {pool.workers:,} workers of Ray",
    )[0]


def split_line(network: Network, lines: Lines, wanted: int, points: int = SEGMENT_POINTS) -> list[SweepState]:
    """Sweep one line until it falls into about ``wanted`` segments, in order; fewer where it has few breaks."""
    plan = sweep_plan(network)
    whole = start_state(lines, 0, 1, network.inputs)
    alphas = torch.linspace(0, 1, SAMPLE_POINTS, dtype=torch.float64)
    samples, errors = lines.at(torch.zeros(SAMPLE_POINTS, dtype=torch.int64), alphas)
    whole.filter = StaticFilter(sample_errors(network, samples, errors) if plan.is_narrow else {})
    segments, before = [whole], 0
    while len(segments) < wanted and len(segments) != before:
        before = len(segments)
        segments = [part for segment in segments for part in _split_state(network, segment, points)]
    return segments


def _split_state(network: Network, state: SweepState, points: int) -> list[SweepState]:
    """Sweep a segment until it has enough points to be split, or to the end of the network."""
    plan, limits = sweep_plan(network), SweepLimits(points)
    while state.node < len(network.nodes):
        if state.node in plan.last_use and isinstance(network.nodes[state.node].op, Breaking):
            inserted = insert_breaks(network, plan, state, limits)
            if not isinstance(inserted, SweepState):
                return list(inserted)
            state = inserted
        evaluate_next(network, plan, state)
    return [state]


def _report_progress(parts: Iterator[SweepPart], report: ProgressCallback | None) -> Iterator[SweepPart]:
    breaks = 0
    for part in parts:
        yield part
        if report is not None:
            breaks += len(part.alphas) - int(part.continues)
            report(float(part.alphas[-1]), breaks)


class _SegmentPool:
    """Ray's workers for the segments of one line."""

    def __init__(self, network: Network, workers: int | None, address: str | None) -> None:
        self.ray = import_ray()
        self.network, self.wanted, self.address = network, workers, address
        self.packed = pack_for_workers(network, None)

    def __enter__(self) -> _SegmentPool:
        self.owns_ray = connect_ray(self.ray, self.address, self.wanted, len(self.packed))
        self.workers = self.wanted or max(1, int(self.ray.cluster_resources().get("CPU", 1)))
        return self

    def __exit__(self, *_: object) -> None:
        if self.owns_ray:
            self.ray.shutdown()

    def sweep(self, segments: list[SweepState], needs: SegmentOptions, limits: SweepLimits) -> Iterator[SweepPart]:
        """The parts of all segments in order; as many segments are swept at once as there are workers."""
        task = self.ray.remote(sweep_segment).options(num_cpus=1, max_retries=MAX_RETRIES)
        packed, began = self.ray.put(self.packed), time.monotonic()
        waiting, in_flight = list(enumerate(segments))[::-1], dict[Any, int]()
        finished, following = dict[int, tuple[list[SweepPart], str]](), 0
        try:
            while following < len(segments):
                while waiting and len(in_flight) < self.workers:
                    number, state = waiting.pop()
                    left = None if needs.seconds is None else needs.seconds - (time.monotonic() - began)
                    in_flight[task.remote(packed, pickle_state(state), replace(needs, seconds=left))] = number
                for ref in self.ray.wait(list(in_flight), num_returns=1)[0]:
                    finished[in_flight.pop(ref)] = self._get(ref)
                while following in finished:
                    parts, stopped = finished.pop(following)
                    yield from parts
                    following += 1
                    if stopped:
                        limits.stopped = stopped
                        return
        finally:
            for ref in in_flight:
                self.ray.cancel(ref, force=True)

    def _get(self, ref: Any) -> tuple[list[SweepPart], str]:
        try:
            return self.ray.get(ref)
        except self.ray.exceptions.RayTaskError as problem:
            raise problem.cause if isinstance(problem.cause, Exception) else problem from problem
        except self.ray.exceptions.RayError as problem:
            raise MissingError(
                f"The worker died {MAX_RETRIES + 1} times over a segment of the line.",
                where="xl.scale.restrict",
                hint="Give fewer workers, or less memory= to each.",
            ) from problem


def pickle_state(state: SweepState) -> bytes:
    """A state without the network, which the worker has; pickled, because arrays that Ray sends are read-only."""
    if state.point_errors is not None:
        errors = copy(state.point_errors)
        errors.network = None  # pyright: ignore[reportAttributeAccessIssue]
        state = replace(state, point_errors=errors)
    return pickle.dumps(state)


_unpacked_network: dict[int, Network] = {}  # the network of the present line, once in each worker process


def sweep_segment(packed: bytes, pickled: bytes, needs: SegmentOptions) -> tuple[list[SweepPart], str]:
    """Sweep one segment in a worker; returns its parts, and why it ended early, if it did."""
    key = hash(packed)
    if key not in _unpacked_network:
        _unpacked_network.clear()
        _unpacked_network[key] = unpack_in_worker(packed)[0]
    network, state = _unpacked_network[key], pickle.loads(pickled)
    if state.point_errors is not None:
        state.point_errors.network = network
    deadline = float("inf") if needs.seconds is None else time.monotonic() + needs.seconds
    limits = SweepLimits(needs.max_points, deadline)
    with full_precision():
        parts = [_to_cpu(part, needs.values) for part in sweep_from(network, state, limits)]
    return parts, limits.stopped


def _to_cpu(part: SweepPart, values: bool) -> SweepPart:
    """A part on the CPU, without the values where they are not wanted."""
    line, alphas, origins, ambiguous = (
        t.cpu().contiguous() for t in (part.line, part.alphas, part.origins, part.ambiguous)
    )
    return replace(
        part,
        line=line,
        alphas=alphas,
        origins=origins,
        ambiguous=ambiguous,
        values=tuple(v.cpu() for v in part.values) if values else (),
        edge_units=tuple({node: units.cpu() for node, units in side.items()} for side in part.edge_units),
    )
