"""The report of the demo: chapters of text, code, tables and pictures as one web page that fetches and runs nothing."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import write_atomically
from ..plot.page import read_asset

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DARK_SCREEN = "screen and (prefers-color-scheme: dark)"  # paper stays light
PICTURE_SCALE = 0.66  # of a picture on the page: its text is then as large as the text around it
TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src '{hash}'; img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>exactline: five exact answers</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#{first}">Skip to the first answer</a>
<header>
<h1>Five exact answers</h1>
<p class="lead">What does a neural network do on <em>every one</em> of the infinitely many points between two inputs? A network of
affine and piecewise-linear operators is piecewise linear along any line. exactline finds all pieces, so nothing can hide between
samples. All numbers on this page were computed when it was made.</p>
<nav aria-label="Contents"><ol>
{contents}
</ol></nav>
{notes}</header>
<main>
{chapters}
</main>
<footer><p>{footer}</p></footer>
</body>
</html>
"""  # noqa: E501


@dataclass(frozen=True)
class ChapterPicture:
    """A picture, drawn on demand."""

    name: str  # of its files, without endings
    draw: Callable[[], Figure]
    alt: str  # a description for readers who cannot see it
    caption: str


@dataclass(frozen=True)
class ChapterTable:
    """A table of texts."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text_columns: int = 1  # the first columns, which hold words; the others hold numbers


@dataclass(frozen=True)
class ChapterFile:
    """A file beside the report that the report links to."""

    name: str
    title: str
    write: Callable[[Path], object]


@dataclass(frozen=True)
class Chapter:
    """One question and its answer."""

    name: str
    title: str
    texts: tuple[str, ...]
    code: str  # Python that computes the answer
    facts: dict[str, Any]  # the numbers of the answer in full, as JSON can hold them
    tables: tuple[ChapterTable, ...]
    pictures: tuple[ChapterPicture, ...]
    files: tuple[ChapterFile, ...] = ()


def format_number(value: float, digits: int = 4) -> str:
    """A number with a few significant digits; never -0.

    >>> format_number(2.0), format_number(-1e-18), format_number(1 / 3), format_number(114750.98)
    ('2', '0', '0.3333', '114,751')
    """
    if abs(value) >= 10**digits:
        return f"{value:,.0f}"
    return f"{round(value, 12) + 0.0:.{digits}g}"


def format_percent(share: float) -> str:
    """A share or an error in percent, with two significant digits.

    >>> format_percent(0.0408), format_percent(3.2e-16), format_percent(0.0)
    ('4.1 %', '3.2e-14 %', '0 %')
    """
    return "0 %" if share == 0 else f"{100 * share:.2g} %"


def write_report(path: Path, chapters: Sequence[Chapter], missing_pictures: str, seconds: float) -> None:
    """Write the report, whole or not at all.

    Args:
        path: the file; the pictures are beside it as PNG.
        chapters: in order.
        missing_pictures: why there are no pictures; empty where there are.
        seconds: how long the demo took.
    """
    own_style = resources.files("exactline.demo").joinpath("report.css").read_text("utf-8").strip()
    style = f"{read_asset('scroll.css')}\n{own_style}"
    digest = base64.b64encode(sha256(style.encode()).digest()).decode()
    notes = f'<p class="note">No pictures: {escape(missing_pictures)}</p>\n' if missing_pictures else ""
    footer = f"Made by exactline {version('exactline')} with torch {version('torch')} in {seconds:.1f} s."
    text = TEMPLATE.format(
        hash=f"sha256-{digest}",
        style=style,
        first=chapters[0].name,
        contents="\n".join(f'<li><a href="#{c.name}">{escape(c.title)}</a></li>' for c in chapters),
        notes=notes,
        chapters="\n".join(_chapter_html(c, path.parent, has_pictures=not missing_pictures) for c in chapters),
        footer=escape(footer),
    )
    write_atomically(path, text.encode("ascii", "xmlcharrefreplace"))


def _chapter_html(chapter: Chapter, folder: Path, *, has_pictures: bool) -> str:
    parts = [f'<section id="{chapter.name}" aria-labelledby="{chapter.name}-title">']
    parts.append(f'<h2 id="{chapter.name}-title">{escape(chapter.title)}</h2>')
    parts += [f"<p>{_text_html(text)}</p>" for text in chapter.texts]
    parts += [_picture_html(picture, folder) for picture in chapter.pictures if has_pictures]
    parts += [_table_html(table) for table in chapter.tables]
    if chapter.files:
        links = (f'<li><a href="{file.name}">{escape(file.title)}</a></li>' for file in chapter.files)
        parts.append(f'<ul class="pages">{"".join(links)}</ul>')
    code = escape(chapter.code.strip())
    parts.append(f"<details><summary>In Python</summary><pre><code>{code}</code></pre></details>")
    return "\n".join([*parts, "</section>"])


def _text_html(text: str) -> str:
    """Escaped text, with what is in backticks as code; a number and its % stay on one line."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text)).replace(" %", "\u00a0%")


def _picture_html(picture: ChapterPicture, folder: Path) -> str:
    data, dark = ((folder / f"{picture.name}{suffix}.png").read_bytes() for suffix in ("", "-dark"))
    wide, high = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))  # from the PNG header
    source, dark_source = (f"data:image/png;base64,{base64.b64encode(image).decode()}" for image in (data, dark))
    size = f'width="{round(wide * PICTURE_SCALE)}" height="{round(high * PICTURE_SCALE)}"'
    image = f'<img src="{source}" alt="{escape(picture.alt)}" {size}>'
    image = f'<picture><source media="{DARK_SCREEN}" srcset="{dark_source}">{image}</picture>'
    vector = f'<a href="{picture.name}.svg">as SVG</a>'
    caption = f"<figcaption>{_text_html(picture.caption)} {vector}</figcaption>"
    return f"<figure><div class=picture>{image}</div>{caption}</figure>"


def _table_html(table: ChapterTable) -> str:
    def cell(text: str, column: int, scope: str) -> str:
        style = "" if column < table.text_columns else " class=number"
        tag, attribute = ("th", f" scope={scope}") if scope == "col" or column == 0 else ("td", "")
        return f"<{tag}{attribute}{style}>{_text_html(text)}</{tag}>"

    def row(texts: Sequence[str], scope: str) -> str:
        return f"<tr>{''.join(cell(text, column, scope) for column, text in enumerate(texts))}</tr>"

    body = "\n".join(row(texts, "row") for texts in table.rows)
    title = escape(table.title)
    return (
        f'<div class="wide" role="region" aria-label="{title}" tabindex="0"><table><caption>{title}</caption>'
        f"<thead>{row(table.head, 'col')}</thead>\n<tbody>{body}</tbody></table></div>"
    )
