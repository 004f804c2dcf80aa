"""Progress on standard error: a bar in a terminal; elsewhere, in a log or a pipe, a line now and then."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Generator
from types import SimpleNamespace
from typing import Any, Protocol

FIRST_LINE_SECONDS = 10.0  # of work before the first line without a terminal: shorter work says nothing
LINE_SECONDS = 30.0  # between further lines


class BarUpdate(Protocol):
    """Moves a progress bar to a share from 0 to 1, and updates the fields of its texts."""

    def __call__(self, share: float, **fields: Any) -> None: ...


@contextlib.contextmanager
def show_bar(visible: bool, before: str, after: str, **fields: Any) -> Generator[BarUpdate | None]:
    """Show progress between two texts; yields None if it is not visible.

    In a terminal a bar, removed at the end; elsewhere a line after ten seconds, and then every half minute.

    Args:
        visible: Whether to show anything.
        before: The text before the bar, in the syntax of rich.
        after: The text after the bar; ``{task.fields[breaks]:,} breaks`` shows the field ``breaks``.
        fields: Initial values of the fields.
    """
    if not visible:
        yield None
    elif sys.stderr.isatty():
        with _show_terminal_bar(before, after, fields) as update:
            yield update
    else:
        task = SimpleNamespace(completed=0.0, fields=fields)

        def update_task(share: float, **fields: Any) -> None:
            task.completed = share
            task.fields = task.fields | fields

        with show_lines(True, lambda: f"{before} {after.format(task=task)}".strip()):
            yield update_task


@contextlib.contextmanager
def _show_terminal_bar(before: str, after: str, fields: dict[str, Any]) -> Generator[BarUpdate]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (*([TextColumn(before)] if before else []), BarColumn(), TextColumn(after), TimeElapsedColumn())
    with Progress(*columns, transient=True, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=1.0, **fields)

        def update(share: float, **fields: Any) -> None:
            bar.update(task, completed=share, **fields)

        yield update


@contextlib.contextmanager
def show_clock(visible: bool, text: str) -> Generator[None]:
    """Show how long work takes that has no parts to count.

    Args:
        visible: Whether to show anything.
        text: What is being done, such as ``integrating gradients``.
    """
    if not (visible and sys.stderr.isatty()):
        with show_lines(visible, lambda: text):
            yield
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn(text), TimeElapsedColumn())
    with Progress(*columns, transient=True, console=Console(stderr=True)) as bar:
        bar.add_task("", total=None)
        yield


@contextlib.contextmanager
def show_lines(visible: bool, describe: Callable[[], str]) -> Generator[None]:
    """Print a line to standard error after ten seconds, and then every half minute, while the block runs.

    Args:
        visible: Whether to print anything.
        describe: Returns what to print; the time since the start is added.
    """
    if not visible:
        yield
        return
    began, finished, stream = time.monotonic(), threading.Event(), sys.stderr

    def print_lines() -> None:
        wait = FIRST_LINE_SECONDS
        while not finished.wait(wait):
            with contextlib.suppress(OSError, ValueError):  # standard error was closed
                stream.write(f"{describe()}, {time.monotonic() - began:.0f} s\n")
                stream.flush()
            wait = LINE_SECONDS

    thread = threading.Thread(target=print_lines, name="progress lines", daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()


@contextlib.contextmanager
def show_study_progress(visible: bool) -> Generator[Callable[[float, str], None]]:
    """Show progress with a description of the current step; yields a function of the share done and the step."""
    with show_bar(visible, "", "{task.fields[step]}", step="") as update:
        yield lambda share, step: None if update is None else update(share, step=step)


def rescale_progress(report: Callable[[float, str], None], start: float, stop: float) -> Callable[[float, str], None]:
    """Return a function that reports the progress of one step, which goes from ``start`` to ``stop`` of the whole."""
    return lambda share, step: report(start + (stop - start) * share, step)
