"""Tables as CSV and Markdown, and text files written into a folder."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..files import write_atomically


def format_csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Format a table as comma-separated values."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()


def format_markdown_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Format a table as Markdown.

    >>> print(format_markdown_table(("network", "breaks"), [("a|b", 3)]))
    | network | breaks |
    | --- | --- |
    | a/b | 3 |
    """
    cells = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(str(c).replace('|', '/') for c in row)} |" for row in cells)


def write_texts(folder: Path, texts: dict[str, str]) -> list[Path]:
    """Write texts by file name into a folder, each file atomically."""
    for name, text in texts.items():
        write_atomically(folder / name, text.encode())
    return [folder / name for name in texts]
