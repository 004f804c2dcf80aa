"""``exactline scale``: one question asked of many lines, here or on Ray, and how far such a run is."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console.options import AsJson, File, Normalize, Shape
from ..console.output import dims, say_json, say_rich
from ..errors import ArgumentError
from ..humanize import count_noun
from .restrict import byte_count

if TYPE_CHECKING:
    from ..scale import Progress, Store

SHOWN = 10  # errors of the table
REFRESH = 0.2  # seconds between two looks of the live view, at the least

scale = typer.Typer(name="scale", help="Many lines, with answers that outlive a crash.", no_args_is_help=True)

LinesFile = Annotated[
    Path,
    typer.Option(
        "--lines", metavar="LINES", help="starts and ends in a .npz or .safetensors, or (lines, 2, *in) as .npy."
    ),
]
Out = Annotated[Path, typer.Option(metavar="DIR", help="The store; a run that was killed goes on there.")]
Ray = Annotated[
    str | None,
    typer.Option("--ray", metavar="auto|ADDRESS", help="Use a Ray cluster: auto finds or starts one, or its address."),
]
Workers = Annotated[int | None, typer.Option(help="How many, on Ray; as many as it has processors if left out.")]
Gpus = Annotated[float, typer.Option("--gpus", help="Of each worker, on Ray.")]
Resume = Annotated[bool, typer.Option(help="Go on with a store that is there.")]
Values = Annotated[bool, typer.Option(help="Keep the network's values at the breaks.")]
Memory = Annotated[str | None, typer.Option(help="Bound the working set of each worker: bytes, or 512M, 2G.")]
Device = Annotated[str | None, typer.Option(help="Where to compute without Ray: cpu, cuda.")]
Live = Annotated[bool, typer.Option("--progress/--no-progress", help="A live view, where that is a terminal.")]


@scale.callback()
def _several() -> None:
    """Many lines, with answers that outlive a crash."""


@scale.command()
def restrict(
    file: File,
    lines: LinesFile,
    out: Out,
    ray: Ray = None,
    workers: Workers = None,
    gpus: Gpus = 0.0,
    resume: Resume = True,
    values: Values = True,
    normalize: Normalize = True,
    shape: Shape = None,
    memory: Memory = None,
    device: Device = None,
    as_json: AsJson = False,
    progress: Live = True,
) -> None:
    """Every break of a network on each of many lines.

    Example: exactline scale restrict acas.nnet --lines lines.npz --out store --ray auto
    """
    given = _Given(file, lines, out, ray, workers, gpus, resume, normalize, shape, memory, device, as_json, progress)
    given.run("restrict", values=values)


@scale.command()
def decide(
    file: File,
    lines: LinesFile,
    out: Out,
    order: Annotated[str, typer.Option(metavar="max|min", help="Which output decides.")] = "max",
    top: Annotated[int, typer.Option(help="So many of the best, in order.")] = 1,
    ray: Ray = None,
    workers: Workers = None,
    gpus: Gpus = 0.0,
    resume: Resume = True,
    values: Values = False,
    normalize: Normalize = True,
    shape: Shape = None,
    memory: Memory = None,
    device: Device = None,
    as_json: AsJson = False,
    progress: Live = True,
) -> None:
    """Which output leads on every point of each of many lines.

    Example: exactline scale decide acas.nnet --lines lines.npz --out store --order min
    """
    given = _Given(file, lines, out, ray, workers, gpus, resume, normalize, shape, memory, device, as_json, progress)
    given.run("decide", order=order, top=top, values=values)


@scale.command()
def attribute(
    file: File,
    lines: LinesFile,
    out: Out,
    target: Annotated[
        int | None, typer.Option(metavar="K", help="Which output, from 0; the largest at each line's end if left out.")
    ] = None,
    ray: Ray = None,
    workers: Workers = None,
    gpus: Gpus = 0.0,
    resume: Resume = True,
    normalize: Normalize = True,
    shape: Shape = None,
    memory: Memory = None,
    device: Device = None,
    as_json: AsJson = False,
    progress: Live = True,
) -> None:
    """Exact integrated gradients along each of many lines, from its start as the baseline to its end.

    Example: exactline scale attribute net.onnx --lines lines.npz --out store --target 3
    """
    given = _Given(file, lines, out, ray, workers, gpus, resume, normalize, shape, memory, device, as_json, progress)
    given.run("attribute", target=target)


@scale.command()
def density(
    file: File,
    lines: LinesFile,
    out: Out,
    ray: Ray = None,
    workers: Workers = None,
    gpus: Gpus = 0.0,
    resume: Resume = True,
    normalize: Normalize = True,
    shape: Shape = None,
    memory: Memory = None,
    device: Device = None,
    as_json: AsJson = False,
    progress: Live = True,
) -> None:
    """How many breaks each of many lines has for each unit of its length.

    Example: exactline scale density net.onnx --lines lines.npz --out store
    """
    given = _Given(file, lines, out, ray, workers, gpus, resume, normalize, shape, memory, device, as_json, progress)
    given.run("density")


@scale.command()
def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A store, finished or not.")],
    as_json: AsJson = False,
    check: Annotated[bool, typer.Option(help="Read every shard and compare its checksum.")] = True,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write everything to a .parquet file or a .zarr folder.")
    ] = None,
) -> None:
    """How far a run is, what failed, and whether every shard is sound.

    Example: exactline scale status store --export store.parquet
    """
    from ..scale import open as open_store

    store = open_store(folder, check=check)
    if export is not None:
        store.export(export)
    _tell(store, as_json)


@dataclass(frozen=True)
class _Given:
    """What all jobs are given alike."""

    file: Path
    lines: Path
    out: Path
    ray: str | None
    workers: int | None
    gpus: float
    resume: bool
    normalize: bool
    shape: str | None
    memory: str | None
    device: str | None
    as_json: bool
    progress: bool

    def run(self, job: str, **options: Any) -> None:
        """Do it and tell."""
        from ..formats import load
        from ..scale import run

        if self.ray is None and (self.workers is not None or self.gpus):
            raise ArgumentError(
                "Workers and their GPUs are Ray's.", where="--workers, --gpus", hint="Give --ray auto too."
            )
        limit = None if self.memory is None else byte_count(self.memory)
        network = load(self.file, normalize=self.normalize, shape=dims(self.shape))
        on_ray: dict[str, Any] = {} if self.ray is None else {"engine": "ray", "gpus_per_worker": self.gpus}
        if self.ray is not None:
            on_ray |= {"workers": self.workers, "address": None if self.ray == "auto" else self.ray}
        with live(self.progress and sys.stderr.isatty()) as report:
            store = run(
                network,
                self.lines,
                job,
                out=self.out,
                resume=self.resume,
                memory=limit,
                device=self.device,
                progress=report,
                **on_ray,
                **options,
            )
        _tell(store, self.as_json)


@contextlib.contextmanager
def live(shown: bool) -> Generator[Callable[[Progress], None] | None]:
    """A view on standard error: done, rate, breaks, and when it will be finished."""
    if not shown:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, transient=True, console=console, refresh_per_second=1 / REFRESH) as bar:
        task = bar.add_task("waiting for workers", total=None)

        def report(now: Any) -> None:
            bar.update(task, completed=now.done, total=now.total, description=told(now))

        yield report


def told(now: Progress) -> str:
    """How far a run is, in words.

    >>> from exactline.scale import Progress
    >>> told(Progress(done=50, total=100, breaks=1200, errors=1, seconds=2.0, fresh=50))
    '50 of 100 lines, 25 a second, 1,200 breaks, 1 error, done in 2 s'
    """
    whole = "" if now.total is None else f" of {now.total:,}"
    parts = [
        f"{now.done:,}{whole} lines",
        f"{now.rate:,.3g} a second" if now.rate < 1000 else f"{now.rate:,.0f} a second",
    ]
    parts += [f"{now.breaks:,} breaks"]
    parts += [count_noun(now.errors, "error")] if now.errors else []
    parts += [f"done in {_span(now.left)}"] if now.left is not None else []
    return ", ".join(parts)


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _tell(store: Store, as_json: bool) -> None:
    document = _document(store)
    if as_json:
        say_json(document)
        return
    from rich.table import Table

    lines = [
        f"{document['done']:,} of {document['lines']:,} lines, {document['breaks']:,} breaks, "
        f"{count_noun(document['shards'], 'shard')}, {document['bytes'] / 1e6:,.1f} MB in {store.path}",
        f"job {document['job']['name']}, {document['seconds']:,.1f} seconds of workers, "
        f"{'finished' if document['complete'] else 'not finished: run the same again to go on'}",
    ]
    for name, problem in document["damaged"].items():
        lines.append(f"damaged: {name}, {problem}; run the same again to compute it anew")
    say_rich(*lines)
    if document["errors"]:
        table = Table(title=f"{count_noun(document['failed'], 'line')} with an error", title_justify="left")
        for name in ("line", "tries", "problem"):
            table.add_column(name, justify="left" if name == "problem" else "right")
        for number, note in list(document["errors"].items())[:SHOWN]:
            table.add_row(str(number), str(note["tries"]), note["problem"])
        if document["failed"] > SHOWN:
            table.add_row("...", "", f"and {document['failed'] - SHOWN:,} more")
        say_rich(table)


def _document(store: Store) -> dict[str, Any]:
    records = store.index.records.values()
    notes = sorted(store.notes().items())
    return {
        "folder": str(store.path),
        "job": dict(store.meta["job"]),
        "lines": len(store),
        "done": store.done,
        "complete": store.complete,
        "breaks": store.breaks,
        "shards": len(store.index.records),
        "bytes": sum(r.file.bytes for r in records),
        "seconds": round(sum(r.seconds for r in records), 3),
        "failed": len(notes),
        "errors": {str(number): note.facts() for number, note in notes},
        "damaged": dict(store.damaged),
        "torn_records": store.index.torn,
    }
