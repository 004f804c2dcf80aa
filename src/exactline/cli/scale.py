"""``exactline scale``: compute one job for many lines, here or on Ray, and show how far a run is."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Generator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console.inputs import parse_bytes, parse_shapes
from ..console.options import AsJson, NetworkFile, Normalize, Shape
from ..console.output import print_json, print_rich
from ..console.progress_bar import show_lines
from ..errors import ArgumentError
from ..humanize import count_noun

if TYPE_CHECKING:
    from ..scale import Progress, Store

MAX_SHOWN_ERRORS = 10  # in the table
REFRESH_SECONDS = 0.2  # of the progress bar

scale = typer.Typer(name="scale", help="Many lines, with answers that survive a crash.", no_args_is_help=True)

LinesFile = Annotated[
    Path,
    typer.Option(
        "--lines", metavar="LINES", help="starts and ends in a .npz or .safetensors, or (lines, 2, *in) as .npy."
    ),
]
StoreFolder = Annotated[Path, typer.Option(metavar="DIR", help="The store; a run that was killed continues there.")]
KeepValues = Annotated[bool, typer.Option(help="Keep the network's values at the breaks.")]


@dataclass(frozen=True)
class RunOptions:
    """Options that all jobs share; `with_run_options` adds them to a command."""

    ray: Annotated[
        str | None,
        typer.Option(
            "--ray", metavar="auto|ADDRESS", help="Use a Ray cluster: auto finds or starts one; or its address."
        ),
    ] = None
    workers: Annotated[
        int | None, typer.Option(help="Number of workers on Ray; default: as many as it has processors.")
    ] = None
    gpus: Annotated[float, typer.Option("--gpus", help="GPUs of each worker on Ray.")] = 0.0
    resume: Annotated[bool, typer.Option(help="Continue a store that exists.")] = True
    normalize: Normalize = True
    shape: Shape = None
    memory: Annotated[str | None, typer.Option(help="Bound the working set of each worker: bytes, or 512M, 2G.")] = None
    device: Annotated[str | None, typer.Option(help="Where to compute without Ray: cpu, cuda.")] = None
    as_json: AsJson = False
    progress: Annotated[bool, typer.Option("--progress/--no-progress", help="Show progress on standard error.")] = True

    def run(self, file: Path, lines: Path, out: Path, job: str, **options: Any) -> None:
        """Run a job and show the status of its store."""
        from ..formats import load_network
        from ..scale import run

        if self.ray is None and (self.workers is not None or self.gpus):
            raise ArgumentError(
                "Only Ray has workers and GPUs for each.", where="--workers, --gpus", hint="Give --ray auto too."
            )
        memory = None if self.memory is None else parse_bytes(self.memory)
        network = load_network(file, normalize=self.normalize, shape=parse_shapes(self.shape))
        if self.ray is not None:
            options |= {"backend": "ray", "gpus_per_worker": self.gpus, "workers": self.workers}
            options["address"] = None if self.ray == "auto" else self.ray
        with progress_bar(self.progress) as report:
            store = run(
                network,
                lines,
                job,
                out=out,
                resume=self.resume,
                memory=memory,
                device=self.device,
                progress=report,
                **options,
            )
        _print_status(store, self.as_json)


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter ``run_options`` is filled from the options of `RunOptions`, which typer then offers."""
    own = inspect.signature(command, eval_str=True).parameters.values()
    shared = inspect.signature(RunOptions, eval_str=True).parameters.values()
    names = [field.name for field in fields(RunOptions)]

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        run_options = RunOptions(**{name: arguments.pop(name) for name in names})
        command(**arguments, run_options=run_options)

    parameters = [*(p for p in own if p.name != "run_options"), *shared]
    keywords = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    run.__signature__ = inspect.Signature(keywords)  # pyright: ignore[reportAttributeAccessIssue]
    run.__annotations__ = {p.name: p.annotation for p in keywords}
    return run


@scale.callback()
def _group() -> None:
    """Many lines, with answers that survive a crash."""


@scale.command()
@with_run_options
def restrict(
    file: NetworkFile, lines: LinesFile, out: StoreFolder, run_options: RunOptions, values: KeepValues = True
) -> None:
    """Every break of a network on each of many lines.

    Example: exactline scale restrict acas.nnet --lines lines.npz --out store --ray auto
    """
    run_options.run(file, lines, out, "restrict", values=values)


@scale.command()
@with_run_options
def decide(
    file: NetworkFile,
    lines: LinesFile,
    out: StoreFolder,
    run_options: RunOptions,
    order: Annotated[str, typer.Option(metavar="max|min", help="Which output decides.")] = "max",
    top: Annotated[int, typer.Option(help="How many of the best outputs, in order.")] = 1,
    values: KeepValues = False,
) -> None:
    """Which output leads on every point of each of many lines.

    Example: exactline scale decide acas.nnet --lines lines.npz --out store --order min
    """
    run_options.run(file, lines, out, "decide", order=order, top=top, values=values)


@scale.command()
@with_run_options
def attribute(
    file: NetworkFile,
    lines: LinesFile,
    out: StoreFolder,
    run_options: RunOptions,
    target: Annotated[
        int | None, typer.Option(metavar="K", help="Which output, from 0; default: the largest at each line's end.")
    ] = None,
) -> None:
    """Exact integrated gradients along each of many lines, from its start as the baseline to its end.

    Example: exactline scale attribute net.onnx --lines lines.npz --out store --target 3
    """
    run_options.run(file, lines, out, "attribute", target=target)


@scale.command()
@with_run_options
def density(file: NetworkFile, lines: LinesFile, out: StoreFolder, run_options: RunOptions) -> None:
    """How many breaks each of many lines has for each unit of its length.

    Example: exactline scale density net.onnx --lines lines.npz --out store
    """
    run_options.run(file, lines, out, "density")


@scale.command()
def status(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A store, finished or not.")],
    as_json: AsJson = False,
    check: Annotated[bool, typer.Option(help="Read every shard and compare its checksum.")] = True,
    export: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all answers to a .parquet file or a .zarr folder.")
    ] = None,
) -> None:
    """How far a run is, which lines failed, and which shards are damaged.

    Example: exactline scale status store --export store.parquet
    """
    from ..scale import open as open_store

    store = open_store(folder, check=check)
    if export is not None:
        store.export(export)
    _print_status(store, as_json)


@contextlib.contextmanager
def progress_bar(is_shown: bool) -> Generator[Callable[[Progress], None] | None]:
    """Progress on standard error: lines done, rate, breaks, and the time left; a bar in a terminal."""
    if not is_shown:
        yield None
        return
    if not sys.stderr.isatty():
        latest = ["waiting for workers"]

        def remember(now: Any) -> None:
            latest[0] = format_progress(now)

        with show_lines(True, lambda: latest[0]):
            yield remember
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, transient=True, console=console, refresh_per_second=1 / REFRESH_SECONDS) as bar:
        task = bar.add_task("waiting for workers", total=None)

        def report(now: Any) -> None:
            bar.update(task, completed=now.done, total=now.total, description=format_progress(now))

        yield report


def format_progress(now: Progress) -> str:
    """How far a run is, in words.

    >>> from exactline.scale import Progress
    >>> format_progress(Progress(done=50, total=100, breaks=1200, errors=1, seconds=2.0, new_lines=50))
    '50 of 100 lines, 25 per second, 1,200 breaks, 1 error, 2 s left'
    """
    total = "" if now.total is None else f" of {now.total:,}"
    rate = f"{now.rate:,.3g}" if now.rate < 1000 else f"{now.rate:,.0f}"
    parts = [f"{now.done:,}{total} lines", f"{rate} per second", f"{now.breaks:,} breaks"]
    parts += [count_noun(now.errors, "error")] if now.errors else []
    parts += [f"{_format_duration(now.seconds_left)} left"] if now.seconds_left is not None else []
    return ", ".join(parts)


def _format_duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _print_status(store: Store, as_json: bool) -> None:
    document = _build_document(store)
    if as_json:
        print_json(document)
        return
    from rich.table import Table

    lines = [
        f"{document['done']:,} of {document['lines']:,} lines, {document['breaks']:,} breaks, "
        f"{count_noun(document['shards'], 'shard')}, {document['bytes'] / 1e6:,.1f} MB in {store.path}",
        f"job {document['job']['name']}, {document['seconds']:,.1f} seconds of workers, "
        f"{'finished' if document['complete'] else 'not finished: run the same command again to continue'}",
    ]
    for name, problem in document["damaged"].items():
        lines.append(f"damaged: {name}, {problem}; run the same command again to compute it anew")
    print_rich(*lines)
    if document["errors"]:
        table = Table(title=f"{count_noun(document['failed'], 'line')} with an error", title_justify="left")
        for name in ("line", "tries", "problem"):
            table.add_column(name, justify="left" if name == "problem" else "right")
        for number, failure in list(document["errors"].items())[:MAX_SHOWN_ERRORS]:
            table.add_row(str(number), str(failure["tries"]), failure["problem"])
        if document["failed"] > MAX_SHOWN_ERRORS:
            table.add_row("...", "", f"and {document['failed'] - MAX_SHOWN_ERRORS:,} more")
        print_rich(table)


def _build_document(store: Store) -> dict[str, Any]:
    records = store.index.records.values()
    failures = sorted(store.failures().items())
    return {
        "folder": str(store.path),
        "job": dict(store.manifest["job"]),
        "lines": len(store),
        "done": store.done,
        "complete": store.complete,
        "breaks": store.breaks,
        "shards": len(store.index.records),
        "bytes": sum(r.file.bytes for r in records),
        "seconds": round(sum(r.seconds for r in records), 3),
        "failed": len(failures),
        "errors": {str(number): failure.to_json() for number, failure in failures},
        "damaged": dict(store.damaged),
        "torn_records": store.index.torn_records,
    }
