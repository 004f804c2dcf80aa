"""``exactline demo``: five answers on networks that ship with us, and a report that shows them."""

from __future__ import annotations

import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..console.options import Bar
from ..console.output import say, say_json, say_rich
from ..console.root import WIDTH
from ..paper.command_acas import bar

if TYPE_CHECKING:
    from rich.table import Table as Shown

    from ..demo.chapter import Table
    from ..demo.run import Demo


def demo(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the report, its pictures and pages; made if missing.")
    ] = Path("demo-out"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of text and tables.")] = False,
    progress: Bar = True,
) -> None:
    """Answer five questions about networks that ship with exactline and write a report, all within a minute.

    A loan score, a line between two digits, attributions against samples, advice around an aircraft, a plane.

    Example: exactline demo --out demo-out
    """
    from ..demo import run

    with bar(progress and sys.stderr.isatty()) as report:
        found = run(out, report)
    if as_json:
        say_json(found.document())
    else:
        _say(found)


def _say(found: Demo) -> None:
    for place, chapter in enumerate(found.chapters, 1):
        say_rich(f"[bold]{place}. {chapter.title}[/]", markup=True)
        say_rich(*map(_wrapped, chapter.texts), *map(_shown, chapter.tables))
        say("")
    if found.not_drawn:
        say_rich(f"Not drawn: {found.not_drawn}")
    say_rich(f"{len(found.files)} files in {found.folder}, made in {sum(found.seconds.values()):.1f} s.")
    say_rich(f"The report: {found.report.resolve().as_uri()}")


def _wrapped(text: str) -> str:
    """A paragraph in lines that are easy to read."""
    return "\n".join(textwrap.wrap(text, min(WIDTH, shutil.get_terminal_size().columns)))


def _shown(table: Table) -> Shown:
    from rich.table import Table as Shown
    from rich.text import Text

    made = Shown(title=table.title, title_justify="left")
    for at, name in enumerate(table.head):
        made.add_column(name, justify="left" if at < table.words else "right")
    for row in table.rows:
        made.add_row(*map(Text, row))
    return made
