"""One question asked of many lines, with answers that outlive a crash."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, ExactlineError, FileError
from ..network import Network, as_network
from ..options import check_count
from .batch import Block, digest
from .driver import Driver, Progress
from .engine import Engine, Local
from .files import file_lines
from .folder import Folder, open_folder
from .jobs import Job, job_of
from .ledger import Done
from .manifest import meta_of
from .planner import Planner
from .source import blocks_of, pairs_of, peeked, usual_points
from .store import Store
from .store import open as open_store
from .worker import Worker

UNITS = 1 << 16  # units that are swept together, lines times units of the network
MOST = 128  # lines in a block: more of them are hardly faster


def run(
    network: Any,
    lines: Any,
    job: Any = "restrict",
    *,
    out: str | os.PathLike[str],
    engine: str = "local",
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
    """Ask one question of many lines and keep the answers in the folder ``out``.

    ``network`` is a module, a Network or the path of a file; ``lines`` any iterable of pairs (Q, R), taken once and
    lazily, or the path of a ``.npz``, ``.npy`` or ``.safetensors`` file; ``job`` is restrict, decide (with ``order``,
    ``top``, ``output``), attribute (with ``target``), density, or a function of a Restriction that returns numbers,
    text, arrays, or lists and dicts of them. A run that was killed goes on where it was; one that is finished does
    nothing. A line that cannot be computed is recorded with its error. On ``engine="ray"`` each of the ``workers``
    holds the network; ``address`` is the cluster's.

    >>> import tempfile, torch, exactline as xl
    >>> lines = [([-1.0], [1.0]), ([1.0], [2.0]), ([0.0], [float("nan")])]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = xl.scale.run(torch.nn.ReLU(), lines, out=folder)
    ...     [len(line) for _, line in store.items()], list(store.errors)
    ([2, 1], [2])

    Raises ArgumentError, FileError, LineError, CaptureError, MissingError.
    """
    asked = job_of(
        job, values=values, order=order, top=top, output=output, target=target, memory=check_count("memory", memory)
    )
    _checked(engine, workers, gpus_per_worker, address)
    graph, blocks, facts, total = _given(network, lines)
    size = _size(graph)
    first = next(blocks_with := blocks(size), None)
    if first is not None:
        facts["first"] = digest(first.digests)
    folder = open_folder(Path(out), meta_of(graph, asked, facts, size), resume=resume, total=total)
    whole = chain([] if first is None else [first], blocks_with)
    try:
        _run(graph, asked, whole, folder, engine, workers, gpus_per_worker, address, device, progress)
    finally:
        folder.close()
    return open_store(out, graph)


def _run(
    network: Network,
    job: Job,
    blocks: Iterator[Block],
    folder: Folder,
    engine: str,
    workers: int | None,
    gpus: float,
    address: str | None,
    device: str | None,
    progress: Callable[[Progress], None] | None,
) -> None:
    done = Done(folder.index, str(folder.path))
    rest = done.rest(blocks)
    try:
        first = next(rest, None)
        if first is not None:
            chosen = _engine(engine, network, job, folder, workers, gpus, address, device)
            try:
                left = None if folder.total is None else folder.total - done.lines
                planner = Planner(chain([first], rest), chosen.workers, left)
                Driver(planner, chosen, folder, progress).run()
            finally:
                chosen.close()
    except FileError:
        if done.at < len(done.runs):  # other lines: nothing of them may stay
            _undone(folder)
        raise
    folder.finish(done.seen)
    if progress is not None:
        progress(folder.progress())


def _undone(folder: Folder) -> None:
    with suppress(ExactlineError):  # what was wrong before is worth more than this
        folder.drop(folder.fresh)


def _engine(
    name: str,
    network: Network,
    job: Job,
    folder: Folder,
    workers: int | None,
    gpus: float,
    address: str | None,
    device: str | None,
) -> Engine:
    if name == "local":
        return Local(Worker(network, job, folder.path, device))
    from .cluster import Cluster

    return Cluster(network, job, folder.path, workers=workers, gpus=gpus, address=address)


def _given(network: Any, lines: Any) -> tuple[Network, Callable[[int], Iterator[Block]], dict[str, Any], int | None]:
    """The network, a function from the size of blocks to blocks, what is known of the lines, and their number."""
    if isinstance(network, (str, os.PathLike)):
        from ..formats import load

        network = load(network)
    if isinstance(lines, (str, os.PathLike)):
        file = file_lines(Path(lines))
        graph = as_network(network, file.points())
        file.fits([graph.nodes[i].shape for i in graph.inputs])
        return graph, file.blocks, {"file": file.fingerprint(), "count": len(file)}, len(file)
    total = len(lines) if hasattr(lines, "__len__") else None
    first, pairs = peeked(pairs_of(lines))
    graph = network if isinstance(network, Network) else as_network(network, usual_points(first))
    shapes = [graph.nodes[i].shape for i in graph.inputs]
    facts = {} if total is None else {"count": total}
    return graph, lambda size: blocks_of(pairs, shapes, size), facts, total


def _size(network: Network) -> int:
    """How many lines are swept together: it depends on the network alone, and so do the last bits of every value."""
    units = max(sum(network.units.values()), 1)
    return max(1, min(MOST, 1 << (UNITS // units).bit_length() >> 1))


def _checked(engine: str, workers: Any, gpus: Any, address: Any) -> None:
    if engine not in ("local", "ray"):
        raise ArgumentError(f"engine is {engine!r}.", where="argument engine", hint='Give "local" or "ray".')
    check_count("workers", workers)
    if isinstance(gpus, bool) or not isinstance(gpus, (int, float)) or not 0 <= gpus < float("inf"):
        raise ArgumentError(
            f"gpus_per_worker is {gpus!r}.", where="argument gpus_per_worker", hint="Give 0, 1, or a part of 1."
        )
    if engine == "local" and (workers not in (None, 1) or gpus or address is not None):
        raise ArgumentError(
            "The local engine is this process alone.",
            where="arguments workers, gpus_per_worker, address",
            hint='Leave them out, or give engine="ray"; device="cuda" is for one GPU.',
        )
