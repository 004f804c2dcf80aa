"""Progress bars on standard error."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator
from typing import Any, Protocol


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
def show_study_progress(visible: bool) -> Generator[Callable[[float, str], None]]:
    """Show a progress bar with a description of the current step; yields a function of the share done and the step."""
    with show_bar(visible, "", "{task.fields[step]}", step="") as update:
        yield lambda share, step: None if update is None else update(share, step=step)


def rescale_progress(report: Callable[[float, str], None], start: float, stop: float) -> Callable[[float, str], None]:
    """Return a function that reports the progress of one step, which goes from ``start`` to ``stop`` of the whole."""
    return lambda share, step: report(start + (stop - start) * share, step)
