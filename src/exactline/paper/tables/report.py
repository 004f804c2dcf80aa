"""Reports made of headings, lists, pictures and tables, as Markdown and as one self-contained HTML file."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from ...plot.page import read_asset
from ..text_files import format_csv, format_markdown_table, write_texts

NO_VALUE = "-"  # in cells without a number


@dataclass(frozen=True)
class ReportHeading:
    """A heading."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class ReportText:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class BulletList:
    """A list of sentences."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class ReportPicture:
    """A picture in the folder of the report."""

    file: str
    text: str


@dataclass(frozen=True)
class ReportTable:
    """A table whose cells are texts."""

    name: str  # of its file
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()

    def to_csv(self) -> str:
        """Format the table as comma-separated values."""
        return format_csv(self.head, self.rows)


ReportBlock: TypeAlias = ReportHeading | ReportText | BulletList | ReportPicture | ReportTable

PICTURE_SCALE = 0.66  # of a picture on the page: its text is then as large as the text around it
PAGE_STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1d1f23; --soft: #565c64; --rule: #d9dce0; }
@media (prefers-color-scheme: dark) { :root { --paper: #15171b; --ink: #e9eaec; --soft: #a9afb7; --rule: #3b4048; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 66rem; margin: 2rem auto; padding: 0 1rem; }
body { background: var(--paper); color: var(--ink); }
p, ul { max-width: 46rem; }
.wide { margin: 1rem 0; }
table { border-collapse: collapse; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem 1.2rem .25rem 0; border-bottom: 1px solid var(--rule); text-align: left; white-space: nowrap; }
th { border-bottom-color: var(--soft); color: var(--soft); font-weight: 400; }
figure { margin: 1.5rem 0; }
figcaption { color: var(--soft); margin-top: .4rem; }
caption { text-align: left; font-weight: 600; padding-bottom: .3rem; }
@media (max-width: 40rem) { caption { position: sticky; left: 0; max-width: calc(100vw - 2rem); } }
@media screen and (prefers-color-scheme: dark) { img { filter: brightness(.88); border-radius: 3px; } }
"""


def save_report(
    folder: Path, title: str, blocks: Sequence[ReportBlock], tables: Sequence[ReportTable], *, page: bool = False
) -> list[Path]:
    """Write the tables as .csv files and the report as Markdown, with ``page`` also as HTML; each file atomically."""
    texts = {f"{table.name}.csv": table.to_csv() for table in tables} | {"report.md": format_markdown(title, blocks)}
    if page:
        texts["report.html"] = format_html(title, blocks, folder)
    return write_texts(folder, texts)


def format_markdown(title: str, blocks: Sequence[ReportBlock]) -> str:
    """Format a report as Markdown; its pictures are files in the same folder."""
    parts = [f"# {title}"]
    for block in blocks:
        match block:
            case ReportHeading(text, level):
                parts.append(f"{'#' * level} {text}")
            case ReportText(text):
                parts.append(text)
            case BulletList(texts):
                parts.append("\n".join(f"* {text}" for text in texts))
            case ReportPicture(file, text):
                parts.append(f"![{text}]({file})\n\n*{text}*")
            case ReportTable():
                parts += [f"**{block.title}**", format_markdown_table(block.head, block.rows), *block.notes]
    return "\n\n".join(parts) + "\n"


def format_html(title: str, blocks: Sequence[ReportBlock], folder: Path) -> str:
    """Format a report as one HTML page with its pictures embedded; it loads nothing from elsewhere."""
    body = "\n".join(_format_html_block(block, folder) for block in blocks)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{read_asset('scroll.css')}{PAGE_STYLE}</style></head><body>\n<h1>{html.escape(title)}</h1>\n{body}\n</body></html>\n"
    )


def format_percent(share: float | None) -> str:
    """Format a share as a percentage with two decimals."""
    return NO_VALUE if share is None or share != share else f"{100 * share:.2f}"


def _format_html_block(block: ReportBlock, folder: Path) -> str:
    if isinstance(block, ReportHeading):
        return f"<h{block.level}>{html.escape(block.text)}</h{block.level}>"
    if isinstance(block, ReportText):
        return f"<p>{html.escape(block.text)}</p>"
    if isinstance(block, BulletList):
        return f"<ul>{''.join(f'<li>{html.escape(text)}</li>' for text in block.texts)}</ul>"
    if isinstance(block, ReportPicture):
        return _format_html_picture((folder / block.file).read_bytes(), html.escape(block.text))
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in block.head)
    rows = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>\n" for row in block.rows)
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in block.notes)
    caption = f"<caption>{html.escape(block.title)}</caption>"
    label = html.escape(block.title)
    table = f"<table>{caption}<thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table>"
    return f'<div class="wide" role="region" aria-label="{label}" tabindex="0">{table}</div>{notes}'


def _format_html_picture(png: bytes, text: str) -> str:
    """A picture with its text, which is also its description."""
    wide, high = (round(PICTURE_SCALE * int.from_bytes(png[at : at + 4], "big")) for at in (16, 20))  # of its header
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    image = f'<picture><img alt="{text}" width="{wide}" height="{high}" src="{source}"></picture>'
    return f'<figure><div class="picture">{image}</div><figcaption>{text}</figcaption></figure>'
