"""``exactline demo``: five answers on bundled networks, and a report that shows them."""

from __future__ import annotations

import shutil
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..console.options import ShowProgress
from ..console.output import print_json, print_rich, print_text
from ..console.progress_bar import show_study_progress
from ..console.root import HELP_COLUMNS

if TYPE_CHECKING:
    from rich.table import Table

    from ..demo import Demo
    from ..demo.report import ChapterTable


def demo(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the report, its pictures and pages; made if missing.")
    ] = Path("demo-out"),
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of text and tables.")] = False,
    progress: ShowProgress = True,
) -> None:
    """Answer five questions about bundled networks and write a report, in about ten seconds.

    A loan score, a line between two digits, exact and sampled attributions, advice around an aircraft, a plane.

    Example: exactline demo --out demo-out
    """
    from ..demo import run

    with show_study_progress(progress) as report:
        result = run(out, report)
    if as_json:
        print_json(result.to_json())
    else:
        _print_demo(result)


def _print_demo(result: Demo) -> None:
    for number, chapter in enumerate(result.chapters, 1):
        print_rich(f"[bold]{number}. {chapter.title}[/]", markup=True)
        print_rich(*map(_wrap, chapter.texts), *map(_build_table, chapter.tables))
        print_text("")
    if result.missing_pictures:
        print_rich(f"No pictures: {result.missing_pictures}")
    print_rich(f"{len(result.files)} files in {result.folder}, made in {sum(result.seconds.values()):.1f} s.")
    print_rich(f"The report: {result.report.resolve().as_uri()}")


def _wrap(text: str) -> str:
    """A paragraph in lines of a readable width."""
    return "\n".join(textwrap.wrap(text, min(HELP_COLUMNS, shutil.get_terminal_size().columns)))


def _build_table(table: ChapterTable) -> Table:
    from rich.table import Table
    from rich.text import Text

    built = Table(title=table.title, title_justify="left")
    for column, name in enumerate(table.head):
        built.add_column(name, justify="left" if column < table.text_columns else "right")
    for row in table.rows:
        built.add_row(*map(Text, row))
    return built
