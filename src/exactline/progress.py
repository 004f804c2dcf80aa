"""Progress of long sweeps: a bar for people, a callback for programs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator

from .errors import ArgumentError, MissingError

ProgressCallback = Callable[[float, int], None]  # called with the share done and the number of breaks so far


@contextlib.contextmanager
def progress_reporter(
    progress: bool | ProgressCallback, measure: str = "alpha", noun: str = "breaks"
) -> Generator[ProgressCallback | None]:
    """Provide the callback for a value of ``progress=``; None if there is nothing to report to.

    Args:
        progress: The value.
        measure: What the share is a share of, for the bar.
        noun: What is counted, for the bar.

    Raises ArgumentError, and MissingError where a bar needs the package rich.
    """
    if progress is False:
        yield None
    elif progress is True:
        with _show_bar(measure, noun) as report:
            yield report
    elif callable(progress):
        yield progress
    else:
        raise ArgumentError(
            f"progress must be True, False or a function, not {progress!r}.",
            where="argument progress",
            hint="A function is called with the share done and the number of breaks so far.",
        )


@contextlib.contextmanager
def _show_bar(measure: str, noun: str) -> Generator[ProgressCallback]:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
    except ImportError as problem:
        raise MissingError(
            "The package rich is not installed.", where="argument progress", hint="pip install rich"
        ) from problem
    columns = (TextColumn(measure), BarColumn(), TaskProgressColumn("{task.completed:.4f}"))
    columns = (*columns, TextColumn(f"{{task.fields[count]:,}} {noun}"), TimeElapsedColumn())
    with Progress(*columns, transient=True, console=Console(stderr=True)) as bar:  # standard output is for answers
        task = bar.add_task("sweep", total=1.0, count=0)

        def report(share: float, count: int) -> None:
            bar.update(task, completed=share, count=count)

        yield report
