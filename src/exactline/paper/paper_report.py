"""The paper's tables and pictures in one report: the same blocks as Markdown and as one HTML file with all inside."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from . import ig, linearity, tables
from .acas_report import as_table
from .rational_check import Proof
from .tables import Table


@dataclass(frozen=True)
class Heading:
    """The title of what follows."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Points:
    """Sentences, one below the other."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class Picture:
    """A picture that lies beside the report."""

    file: str
    text: str


Block: TypeAlias = Heading | Points | Picture | Table

STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:66rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0;font-size:14px}th,td{padding:.25rem .7rem;border-bottom:1px solid #ddd;
text-align:left;font-variant-numeric:tabular-nums}th{border-bottom:2px solid #888}figure{margin:1.5rem 0}
img{max-width:100%}figcaption,caption{color:#555;text-align:left;caption-side:top}caption{font-weight:600}
.wide{overflow-x:auto}"""


def linearity_tables(found: linearity.Linearity, proofs: Sequence[Proof] = ()) -> list[Table]:
    """The tables of the linearity study, but for the list of all lines."""
    made = [tables.table3(found), tables.table4(found), tables.tangent(found)]
    if any(r.breaks32 for r in found.rows):
        made.append(tables.float32_table(found))
    return [*made, tables.proof_table(proofs)] if proofs else made


def linearity_blocks(
    found: linearity.Linearity, pictures: Sequence[Picture] = (), proofs: Sequence[Proof] = ()
) -> list[Block]:
    """Section 5: linearity along adversarial directions."""
    same, entries = tables.equal_entries(found)
    hundred = all(len(s.images) == 100 for s in found.suites)
    notes = [
        f"{s.name}: {len(s.images)} images, {'; '.join(f'{x.name}: {x.note}' for x in s.subjects)}"
        for s in found.suites
    ]
    if entries and hundred:
        notes.append(f"{same} of the {entries} entries of tables 3 and 4 equal the published ones to the last digit.")
    elif any(not s.ours for s in found.suites):
        notes.append("The published numbers are of 100 images: these are of fewer.")
    return [
        Heading("Linearity along adversarial directions (tables 3 and 4)"),
        Points(tuple(notes)),
        Heading("What comes out", 3),
        Points(tuple(tables.findings(found))),
        *linearity_tables(found, proofs),
        *pictures,
        Heading("Definitions", 3),
        Points(linearity.DEFINITIONS),
    ]


def ig_blocks(found: ig.Study, pictures: Sequence[Picture] = ()) -> list[Block]:
    """Section 4: samples of integrated gradients."""
    names = (f"{s.name}: {found.done(s.name)} images of {found.suite.name}, {s.note}." for s in found.suite.subjects)
    return [
        Heading("Samples of integrated gradients (tables 1 and 2)"),
        Points(tuple(names)),
        tables.table1(found),
        tables.table2(found),
        *pictures,
        Heading("Definitions", 3),
        Points(ig.DEFINITIONS),
    ]


def save(folder: Path, title: str, blocks: Sequence[Block], made: Sequence[Table], page: bool = False) -> list[Path]:
    """Write the tables as .csv and the report as Markdown and, where asked for, as HTML; each whole or not at all."""
    from ..files import write_atomically

    texts = {f"{table.name}.csv": table.csv() for table in made} | {"report.md": as_markdown(title, blocks)}
    if page:
        texts["report.html"] = as_html(title, blocks, folder)
    for name, text in texts.items():
        write_atomically(folder / name, text.encode())
    return [folder / name for name in texts]


def as_markdown(title: str, blocks: Sequence[Block]) -> str:
    """The report as Markdown; pictures are files beside it."""
    parts = [f"# {title}"]
    for block in blocks:
        if isinstance(block, Heading):
            parts.append(f"{'#' * block.level} {block.text}")
        elif isinstance(block, Points):
            parts.append("\n".join(f"* {text}" for text in block.texts))
        elif isinstance(block, Picture):
            parts.append(f"![{block.text}]({block.file})\n\n*{block.text}*")
        else:
            parts += [f"**{block.title}**", as_table(block.head, block.rows), *block.notes]
    return "\n\n".join(parts) + "\n"


def as_html(title: str, blocks: Sequence[Block], folder: Path) -> str:
    """The report as one page with its pictures inside; it asks nothing of the network."""
    body = "\n".join(_html(block, folder) for block in blocks)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{STYLE}</style></head><body>\n<h1>{html.escape(title)}</h1>\n{body}\n</body></html>\n"
    )


def _html(block: Block, folder: Path) -> str:
    if isinstance(block, Heading):
        return f"<h{block.level}>{html.escape(block.text)}</h{block.level}>"
    if isinstance(block, Points):
        return f"<ul>{''.join(f'<li>{html.escape(text)}</li>' for text in block.texts)}</ul>"
    if isinstance(block, Picture):
        data, text = base64.b64encode((folder / block.file).read_bytes()).decode(), html.escape(block.text)
        image = f'<img alt="{text}" src="data:image/png;base64,{data}">'
        return f"<figure>{image}<figcaption>{text}</figcaption></figure>"
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in block.head)
    rows = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>\n" for row in block.rows)
    notes = "".join(f"<p>{html.escape(note)}</p>" for note in block.notes)
    caption = f"<caption>{html.escape(block.title)}</caption>"
    return (
        f'<div class="wide"><table>{caption}<thead><tr>{head}</tr></thead>\n<tbody>{rows}</tbody></table></div>{notes}'
    )
