"""Progress bars on standard error."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Generator
from typing import Any, Protocol

PROGRESS_LINE_SECONDS = 10.0  # between two lines of progress where standard error is no terminal


class BarUpdate(Protocol):
    """Moves a progress bar to a share from 0 to 1, and updates the fields of its texts."""

    def __call__(self, share: float, **fields: Any) -> None: ...


@contextlib.contextmanager
def show_bar(visible: bool, before: str, after: str, **fields: Any) -> Generator[BarUpdate | None]:
    """Show a progress bar between two texts, removed at the end; yields None if it is not visible.

    Args:
        visible: Whether to show the bar, if standard error is a terminal.
        before: The text before the bar, in the syntax of rich.
        after: The text after the bar; ``{task.fields[breaks]:,} breaks`` shows the field ``breaks``.
        fields: Initial values of the fields.
    """
    if not (visible and sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (*([TextColumn(before)] if before else []), BarColumn(), TextColumn(after), TimeElapsedColumn())
    with Progress(*columns, transient=True, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=1.0, **fields)

        def update(share: float, **fields: Any) -> None:
            bar.update(task, completed=share, **fields)

        yield update


@contextlib.contextmanager
def show_bar_or_lines(visible: bool, before: str, after: str, **fields: Any) -> Generator[BarUpdate | None]:
    """Show a progress bar, or print lines to standard error every few seconds where it is not a terminal.

    Args:
        visible: Whether to show anything.
        before: The text before the share, as in `show_bar`.
        after: A format of the text after the share, such as ``{breaks:,} breaks``.
        fields: Initial values of the fields.
    """
    if not visible or sys.stderr.isatty():
        text = "{task.percentage:.1f} %, " + after.replace("{", "{task.fields[").replace(":", "]:", 1)
        with show_bar(visible, before, text, **fields) as update:
            yield update
        return
    began = last = time.monotonic()

    def print_line(share: float, **fields: Any) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PROGRESS_LINE_SECONDS:
            last = now
            sys.stderr.write(f"{before} {share:.1%}, {after.format(**fields)}, {now - began:.0f} s\n")
            sys.stderr.flush()

    yield print_line


@contextlib.contextmanager
def show_study_progress(visible: bool) -> Generator[Callable[[float, str], None]]:
    """Show a progress bar with a description of the current step; yields a function of the share done and the step."""
    with show_bar(visible, "", "{task.fields[step]}", step="") as update:
        yield lambda share, step: None if update is None else update(share, step=step)


def rescale_progress(report: Callable[[float, str], None], start: float, stop: float) -> Callable[[float, str], None]:
    """Return a function that reports the progress of one step, which goes from ``start`` to ``stop`` of the whole."""
    return lambda share, step: report(start + (stop - start) * share, step)
