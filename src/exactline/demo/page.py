"""The report of the demonstration: one web page with every picture inside, which fetches nothing and runs nothing."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from importlib import resources
from importlib.metadata import version
from pathlib import Path

from .chapter import Chapter, Page, Picture, Table

SCALE = 0.66  # of a picture on the page: letters of all pictures are as large as those around them
FRAME = """<!doctype html>
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
affine and piecewise-linear operators is affine in pieces; exactline finds all of them, so nothing lies between samples: there are no
samples. All numbers on this page were computed when it was made.</p>
<nav aria-label="Contents"><ol>
{contents}
</ol></nav>
{notes}</header>
<main>
{chapters}
</main>
<footer><p>{made}</p></footer>
</body>
</html>
"""  # noqa: E501


def page(path: Path, chapters: Sequence[Chapter], not_drawn: str, seconds: float) -> None:
    """Write the report, whole or not at all; its pictures lie beside it as PNG."""
    from ..files import write_atomically

    style = resources.files("exactline.demo").joinpath("page.css").read_text("utf-8").strip()
    digest = base64.b64encode(sha256(style.encode()).digest()).decode()
    notes = f'<p class="note">No pictures: {escape(not_drawn)}</p>\n' if not_drawn else ""
    made = f"Made by exactline {version('exactline')} with torch {version('torch')} in {seconds:.1f} s."
    text = FRAME.format(
        hash=f"sha256-{digest}",
        style=style,
        first=chapters[0].name,
        contents="\n".join(f'<li><a href="#{c.name}">{escape(c.title)}</a></li>' for c in chapters),
        notes=notes,
        chapters="\n".join(_chapter(c, path.parent, drawn=not not_drawn) for c in chapters),
        made=escape(made),
    )
    write_atomically(path, text.encode("ascii", "xmlcharrefreplace"))


def _chapter(chapter: Chapter, folder: Path, *, drawn: bool) -> str:
    parts = [f'<section id="{chapter.name}" aria-labelledby="{chapter.name}-title">']
    parts.append(f'<h2 id="{chapter.name}-title">{escape(chapter.title)}</h2>')
    parts += [f"<p>{_text(text)}</p>" for text in chapter.texts]
    parts += [_picture(picture, folder) for picture in chapter.pictures if drawn]
    parts += [_table(table) for table in chapter.tables]
    if chapter.pages:
        parts.append(f'<ul class="pages">{"".join(_link(one) for one in chapter.pages)}</ul>')
    parts.append(
        f"<details><summary>In Python</summary><pre><code>{escape(chapter.code.strip())}</code></pre></details>"
    )
    return "\n".join([*parts, "</section>"])


def _text(text: str) -> str:
    """A text with `names` of code set as such."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _picture(picture: Picture, folder: Path) -> str:
    data = (folder / f"{picture.name}.png").read_bytes()
    wide, high = (int.from_bytes(data[at : at + 4], "big") for at in (16, 20))  # where every PNG says its size
    source = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    size = f'width="{round(wide * SCALE)}" height="{round(high * SCALE)}"'
    image = f'<img src="{source}" alt="{escape(picture.alt)}" {size}>'
    vector = f'<a href="{picture.name}.svg">as SVG</a>'
    return f"<figure>{image}<figcaption>{_text(picture.caption)} {vector}</figcaption></figure>"


def _table(table: Table) -> str:
    def row(cells: Sequence[str], kind: str) -> str:
        made = [
            f"<{'th scope=row' if kind == 'td' and at == 0 else 'th scope=col' if kind == 'th' else 'td'}"
            f"{'' if at < table.words else ' class=number'}>{_text(cell)}</{'th' if kind == 'th' or at == 0 else 'td'}>"
            for at, cell in enumerate(cells)
        ]
        return f"<tr>{''.join(made)}</tr>"

    body = "\n".join(row(cells, "td") for cells in table.rows)
    title = escape(table.title)
    return (
        f'<div class="wide" role="region" aria-label="{title}" tabindex="0"><table><caption>{title}</caption>'
        f"<thead>{row(table.head, 'th')}</thead>\n<tbody>{body}</tbody></table></div>"
    )


def _link(one: Page) -> str:
    return f'<li><a href="{one.file}">{escape(one.title)}</a></li>'
