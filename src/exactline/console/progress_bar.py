"""A bar on standard error that moves while one waits."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any, Protocol


class Moved(Protocol):
    """What moves a bar: a share from 0 to 1, and what is told beside it."""

    def __call__(self, share: float, **told: Any) -> None: ...


@contextlib.contextmanager
def moving(shown: bool, before: str, after: str, **told: Any) -> Generator[Moved | None]:
    """A bar between two texts, gone at the end; nothing where it is not shown.

    The texts are those of rich: ``{task.fields[breaks]:,} breaks`` tells what is given as ``breaks``.
    """
    if not shown:
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (*([TextColumn(before)] if before else []), BarColumn(), TextColumn(after), TimeElapsedColumn())
    with Progress(*columns, transient=True, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=1.0, **told)

        def move(share: float, **told: Any) -> None:
            bar.update(task, completed=share, **told)

        yield move
