"""One long line cut over workers: stretches of it are swept apart and joined into the same answer.

The sweep is begun here, until it has points enough to cut at. What is between two of them goes to a worker as it
stands, so that a stretch is swept as it would have been here, and the ends it shares with its neighbours are known.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import torch

from ..engines.assemble import Assembler
from ..engines.dense.state import SweepState, start_state
from ..engines.dense.sweep import SweepLimits, SweepPart, evaluate_next, insert_breaks, sweep_from
from ..errors import ArgumentError, MissingError
from ..fp_context import full_precision
from ..lines import Lines, PointLike, as_lines, check_shapes
from ..network import Network, as_network
from ..numerics.plan import sweep_plan
from ..numerics.static_filter import SAMPLE_POINTS, StaticFilter, sample_errors
from ..ops.base import Breaking
from ..options import check_count, free_memory
from ..progress import ProgressCallback, progress_reporter
from ..results.restriction import Restriction
from ..results.restrictions import Restrictions
from .cluster import started
from .transport import packed, ray_package, unpacked

STRETCHES = 8  # for each worker: some take longer than others
POINTS = 32  # of one stretch when it is cut
RETRIES = 3  # of a stretch whose worker dies


@dataclass(frozen=True)
class Errand:
    """What a worker has to know besides its stretch."""

    points: int  # that it may hold at once
    values: bool
    seconds: float | None  # that are left


def restrict(
    model: Any,
    start: PointLike,
    end: PointLike,
    *,
    workers: int | None = None,
    address: str | None = None,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
    memory: int | None = None,
    values: bool = True,
    progress: bool | ProgressCallback = False,
    rewrite: bool = True,
    until: str | None = None,
    max_breaks: int | None = None,
    seconds: float | None = None,
) -> Restriction:
    """What `xl.restrict` answers, by several workers of a Ray cluster; ``memory`` is that of each.

    Raises what `xl.restrict` raises, and MissingError where Ray is not there.
    """
    began = time.perf_counter()
    if device is not None and torch.device(device).type != "cpu":
        raise ArgumentError(
            "The workers of a line sweep on processors.",
            where=f"argument device {device}",
            hint="Leave device out, or use xl.restrict.",
        )
    lines = as_lines(start, end, ("start", "end"), many=False)
    most, memory = check_count("max_breaks", max_breaks), check_count("memory", memory)
    with full_precision(kernels=False):
        network = as_network(model, [t[0] for t in lines.starts], rewrite=rewrite, until=until)
    check_shapes(lines, [network.nodes[i].shape for i in network.inputs])
    shapes = [network.nodes[i].shape for i in network.outputs] if values else None
    collector = Assembler(1, shapes, most, SweepLimits(1))
    with progress_reporter(progress) as report, _Crew(network, dtype, workers, address) as crew:
        with full_precision():
            states = stretches(crew.network, lines.to(torch.device("cpu"), dtype), STRETCHES * crew.workers)
        room = sweep_plan(crew.network).max_points(memory or free_memory(torch.device("cpu")))
        errand = Errand(room, values, seconds)
        found = collector.collect(_reported(crew.swept(states, errand, collector.limits), report))
    spent = time.perf_counter() - began
    told = f"dense, {len(states):,} stretches over {crew.workers:,} workers of Ray"
    return Restrictions(found, lines, network, spent, network.units, dtype, rewrite, until, told)[0]


def stretches(network: Network, lines: Lines, wanted: int, points: int = POINTS) -> list[SweepState]:
    """One line swept until it falls into about so many stretches, in order; fewer where it has few breaks."""
    facts = sweep_plan(network)
    whole = start_state(lines, 0, 1, network.inputs)
    share = torch.linspace(0, 1, SAMPLE_POINTS, dtype=torch.float64)
    some = lines.at(torch.zeros(SAMPLE_POINTS, dtype=torch.int64), share)
    whole.filter = StaticFilter(sample_errors(network, *some) if facts.is_narrow else {})
    states, last = [whole], 0
    while len(states) < wanted and len(states) != last:
        last = len(states)
        states = [part for state in states for part in _cut(network, state, points)]
    return states


def _cut(network: Network, state: SweepState, points: int) -> list[SweepState]:
    """A state taken further, to where it has points enough to be several."""
    facts, limits = sweep_plan(network), SweepLimits(points)
    while state.node < len(network.nodes):
        if state.node in facts.last_use and isinstance(network.nodes[state.node].op, Breaking):
            found = insert_breaks(network, facts, state, limits)
            if not isinstance(found, SweepState):
                return list(found)
            state = found
        evaluate_next(network, facts, state)
    return [state]


def _reported(parts: Iterator[SweepPart], report: ProgressCallback | None) -> Iterator[SweepPart]:
    breaks = 0
    for part in parts:
        yield part
        if report is not None:
            breaks += len(part.alphas) - int(part.continues)
            report(float(part.alphas[-1]), breaks)


class _Crew:
    """Ray's workers for one line."""

    def __init__(self, network: Network, dtype: torch.dtype, workers: int | None, address: str | None) -> None:
        if dtype not in (torch.float64, torch.float32):
            raise ArgumentError(
                f"dtype must be torch.float64 or torch.float32, not {dtype}.",
                where="argument dtype",
                hint="float64 is the default.",
            )
        self.ray = ray_package()
        self.asked, self.address = check_count("workers", workers), address
        self.network = as_network(network, [], dtype=dtype)
        self.parcel = packed(self.network, None)

    def __enter__(self) -> _Crew:
        self.ours = started(self.ray, self.address, self.asked, len(self.parcel))
        self.workers = self.asked or max(1, int(self.ray.cluster_resources().get("CPU", 1)))
        return self

    def __exit__(self, *_: object) -> None:
        if self.ours:
            self.ray.shutdown()

    def swept(self, states: list[SweepState], errand: Errand, limits: SweepLimits) -> Iterator[SweepPart]:
        """The stretches' parts in order, as many stretches at once as there are workers."""
        options = {"num_cpus": 1, "max_retries": RETRIES}
        task = self.ray.remote(sweep_stretch).options(**options)
        parcel, began = self.ray.put(self.parcel), time.monotonic()
        waiting, flying = list(enumerate(states))[::-1], dict[Any, int]()
        there, following = dict[int, tuple[list[SweepPart], str]](), 0
        try:
            while following < len(states):
                while waiting and len(flying) < self.workers:
                    number, state = waiting.pop()
                    left = None if errand.seconds is None else errand.seconds - (time.monotonic() - began)
                    flying[task.remote(parcel, travelling(state), replace(errand, seconds=left))] = number
                for ref in self.ray.wait(list(flying), num_returns=1)[0]:
                    there[flying.pop(ref)] = self._got(ref)
                while following in there:
                    parts, stopped = there.pop(following)
                    yield from parts
                    following += 1
                    if stopped:
                        limits.stopped = stopped
                        return
        finally:
            for ref in flying:
                self.ray.cancel(ref, force=True)

    def _got(self, ref: Any) -> tuple[list[SweepPart], str]:
        try:
            return self.ray.get(ref)
        except self.ray.exceptions.RayTaskError as problem:
            raise problem.cause if isinstance(problem.cause, Exception) else problem from problem
        except self.ray.exceptions.RayError as problem:
            raise MissingError(
                f"The worker died {RETRIES + 1} times over a stretch of the line.",
                where='engine="ray"',
                hint="Give fewer workers, or less memory= to each.",
            ) from problem


def travelling(state: SweepState) -> bytes:
    """A state without the network, which the worker has; as bytes, for arrays that Ray itself sends are read-only."""
    if state.probes is not None:
        trail = copy(state.probes)
        trail.network = None  # pyright: ignore[reportAttributeAccessIssue]
        state = replace(state, probes=trail)
    return pickle.dumps(state)


_held: dict[int, Network] = {}  # the network of the line at hand, unpacked once in each process


def sweep_stretch(parcel: bytes, sent: bytes, errand: Errand) -> tuple[list[SweepPart], str]:
    """One stretch to the end of the network, and why it ended early, if it did; runs in a worker."""
    key = hash(parcel)
    if key not in _held:
        _held.clear()
        _held[key] = unpacked(parcel)[0]
    network, state = _held[key], pickle.loads(sent)
    if state.probes is not None:
        state.probes.network = network
    left = float("inf") if errand.seconds is None else time.monotonic() + errand.seconds
    limits = SweepLimits(errand.points, left)
    with full_precision():
        parts = [_home(part, errand.values) for part in sweep_from(network, state, limits)]
    return parts, limits.stopped


def _home(part: SweepPart, values: bool) -> SweepPart:
    """A part on the CPU, without what nobody wants."""
    kept = tuple(v.cpu() for v in part.values) if values else ()
    line, alphas, origins, ambiguous = (
        t.cpu().contiguous() for t in (part.line, part.alphas, part.origins, part.ambiguous)
    )
    edges = tuple({node: units.cpu() for node, units in side.items()} for side in part.edge_units)
    return replace(part, line=line, alphas=alphas, origins=origins, ambiguous=ambiguous, values=kept, edge_units=edges)
