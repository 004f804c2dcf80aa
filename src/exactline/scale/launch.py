"""`run`: compute one job for many lines into a store that survives a crash."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, ExactlineError, FileError
from ..formats import load_network
from ..network import Network, as_network
from ..options import check_count
from .backend import Backend, LocalBackend
from .batch import LineBatch
from .checksums import extend_digest
from .driver import Driver, Progress
from .jobs import Job, make_job
from .ledger import Ledger
from .line_files import open_line_file
from .line_pairs import batch_pairs, choose_example, iterate_pairs, peek
from .manifest import build_manifest
from .planner import Planner
from .ray_backend import RayBackend
from .store import Store
from .store import open as open_store
from .store_writer import StoreWriter, open_store_writer
from .worker import Worker

BATCH_UNITS = 1 << 16  # lines of a batch times units of the network
MAX_BATCH_LINES = 128  # more of them are hardly faster


def run(
    network: Any,
    lines: Any,
    job: Any = "restrict",
    *,
    out: str | os.PathLike[str],
    backend: str = "local",
    workers: int | None = None,
    gpus_per_worker: float = 0,
    resume: bool = True,
    address: str | None = None,
    values: bool = True,
    order: str = "max",
    top: int = 1,
    output: int | None = None,
    target: int | None = None,
    memory: int | None = None,
    device: str | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Store:
    """Compute one job for many lines and keep the answers in a folder.

    A run that was killed continues where it was; a finished one does nothing. A line that cannot be computed is
    recorded with its error and does not affect the others.

    Args:
        network: a module in eval mode, a Network, or the path of a file.
        lines: any iterable of pairs (start, end), read once and lazily, or the path of a ``.npz``, ``.npy`` or
            ``.safetensors`` file.
        job: "restrict", "decide", "attribute", "density", or a function of a Restriction that returns numbers, text,
            arrays, or lists and dicts of them.
        out: the folder of the store.
        backend: "local" (this process) or "ray".
        workers: number of workers on Ray; by default as many as the cluster has processors.
        gpus_per_worker: on Ray, 0, 1, or a fraction of 1.
        resume: False refuses a folder that holds a store already.
        address: of the Ray cluster; by default one that is running, or a new one on this machine.
        values: restrict and decide: False keeps only the breaks and their origins.
        order: decide: "max" or "min", which output leads.
        top: decide: how many of the best outputs, in order.
        output: decide: which of several outputs of the network.
        target: attribute: flat position in the output; by default the largest output at each line's end.
        memory: bytes of the working set of each worker.
        device: where to compute with the local backend.
        progress: a function that is called with a Progress after each task.

    >>> import tempfile, torch, exactline as xl
    >>> lines = [([-1.0], [1.0]), ([1.0], [2.0]), ([0.0], [float("nan")])]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = xl.scale.run(torch.nn.ReLU(), lines, out=folder)
    ...     [len(line) for _, line in store.items()], list(store.errors)
    ([2, 1], [2])

    Raises ArgumentError, FileError, LineError, CaptureError, MissingError.
    """
    chosen = make_job(
        job, values=values, order=order, top=top, output=output, target=target, memory=check_count("memory", memory)
    )
    choice = _BackendChoice(backend, workers, gpus_per_worker, address, device)
    choice.check()
    source = _open_source(network, lines)
    size = _batch_size(source.network)
    first = next(batches := source.batches(size), None)
    if first is not None:
        source.facts["first"] = extend_digest(first.digests)
    manifest = build_manifest(source.network, chosen, source.facts, size)
    writer = open_store_writer(Path(out), manifest, resume=resume, total_lines=source.total_lines)
    batches = chain([] if first is None else [first], batches)
    try:
        _compute(batches, writer, lambda: choice.start(source.network, chosen, writer.path), progress)
    finally:
        writer.close()
    return open_store(out, source.network)


def _compute(
    batches: Iterator[LineBatch],
    writer: StoreWriter,
    start_backend: Callable[[], Backend],
    on_progress: Callable[[Progress], None] | None,
) -> None:
    """Compute all lines that are not in the store yet."""
    ledger = Ledger(writer.index, str(writer.path))
    unfinished = ledger.skip_finished(batches)
    try:
        first = next(unfinished, None)
        if first is not None:
            backend = start_backend()
            try:
                total = writer.total_lines
                remaining = None if total is None else total - ledger.lines_finished
                planner = Planner(chain([first], unfinished), backend.workers, remaining)
                Driver(planner, backend, writer, on_progress).run()
            finally:
                backend.close()
    except FileError:
        if ledger.has_unmatched_ranges:  # these are not the lines of the store: remove what was computed from them
            with suppress(ExactlineError):
                writer.drop(writer.new_shards)
        raise
    writer.finish(ledger.lines_seen)
    if on_progress is not None:
        on_progress(writer.progress())


@dataclass(frozen=True)
class _BackendChoice:
    """The arguments of `run` that choose a backend."""

    backend: str
    workers: int | None
    gpus: float
    address: str | None
    device: str | None

    def check(self) -> None:
        """Refuse arguments that do not fit; raises ArgumentError."""
        if self.backend not in ("local", "ray"):
            raise ArgumentError(
                f"backend is {self.backend!r}.", where="argument backend", hint='Give "local" or "ray".'
            )
        check_count("workers", self.workers)
        is_number = isinstance(self.gpus, (int, float)) and not isinstance(self.gpus, bool)
        if not is_number or not 0 <= self.gpus < float("inf"):
            raise ArgumentError(
                f"gpus_per_worker is {self.gpus!r}.",
                where="argument gpus_per_worker",
                hint="Give 0, 1, or a fraction of 1.",
            )
        if self.backend == "local" and (self.workers not in (None, 1) or self.gpus or self.address is not None):
            raise ArgumentError(
                "The local backend is this process alone.",
                where="arguments workers, gpus_per_worker, address",
                hint='Leave them out, or give backend="ray"; device="cuda" is for one GPU.',
            )

    def start(self, network: Network, job: Job, folder: Path) -> Backend:
        """Start the backend."""
        if self.backend == "local":
            return LocalBackend(Worker(network, job, folder, self.device))
        return RayBackend(network, job, folder, workers=self.workers, gpus=self.gpus, address=self.address)


@dataclass(frozen=True)
class _LineSource:
    """The network, and where its lines come from."""

    network: Network
    batches: Callable[[int], Iterator[LineBatch]]  # all lines in batches of the given size
    facts: dict[str, Any]  # that identify the lines, as the manifest stores them
    total_lines: int | None


def _open_source(network: Any, lines: Any) -> _LineSource:
    if isinstance(network, (str, os.PathLike)):
        network = load_network(network)
    if isinstance(lines, (str, os.PathLike)):
        file = open_line_file(Path(lines))
        graph = as_network(network, file.example_points())
        file.check_shapes([graph.nodes[i].shape for i in graph.inputs])
        return _LineSource(graph, file.batches, {"file": file.checksum(), "count": len(file)}, len(file))
    total = len(lines) if hasattr(lines, "__len__") else None
    first, pairs = peek(iterate_pairs(lines))
    graph = network if isinstance(network, Network) else as_network(network, choose_example(first))
    shapes = [graph.nodes[i].shape for i in graph.inputs]
    facts = {} if total is None else {"count": total}
    return _LineSource(graph, lambda size: batch_pairs(pairs, shapes, size), facts, total)


def _batch_size(network: Network) -> int:
    """How many lines are swept together; it depends on the network alone, and so do the last bits of every value."""
    units = max(sum(network.units.values()), 1)
    return max(1, min(MAX_BATCH_LINES, 1 << (BATCH_UNITS // units).bit_length() >> 1))
