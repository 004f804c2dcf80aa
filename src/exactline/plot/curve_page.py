"""A self-contained web page of a curve: its picture, its status and error, and its decisions."""

from __future__ import annotations

import io
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from ..files import write_atomically
from ..humanize import count_noun
from .curve import plot_curve
from .figure import matplotlib_style
from .page import read_asset
from .palette import CLASS_COLOURS, DARK_CLASS_COLOURS
from .style import DARK_STYLE, STYLE, check_labels

if TYPE_CHECKING:
    from ..smooth.approximation import Approximation

MAX_PAGE_INTERVALS = 500  # rows of the table of decisions
STATUS_MEANINGS = {
    "exact": "all breaks are known, and between them the network is affine",
    "certified": "the error bound is proven",
    "estimated": "the error is estimated, not proven",
}
PAGE_STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1d1f23; --soft: #565c64; --rule: #d9dce0; }
@media (prefers-color-scheme: dark) { :root { --paper: #15171b; --ink: #e9eaec; --soft: #a9afb7; --rule: #3b4048; } }
body { max-width: 56rem; margin: 2rem auto; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; }
body { background: var(--paper); color: var(--ink); }
h1 { font-size: 1.5rem; margin: 0 0 .4rem; overflow-wrap: anywhere; }
p { margin: 0 0 .4rem; color: var(--soft); }
.picture { margin: 1rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .3rem; }
th, td { text-align: left; padding: .2rem 1.2rem .2rem 0; border-bottom: 1px solid var(--rule); }
th { font-weight: 400; color: var(--soft); white-space: nowrap; }
.number { text-align: right; }
i { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; margin-right: .5rem; }
"""
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src '{digest}'; img-src data:; base-uri 'none'; form-action 'none'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
<p>{summary}.</p>
<p>Status <b>{status}</b>: {meaning}.</p>
<div class="picture"><picture><source media="(prefers-color-scheme: dark)" srcset="{dark}"><img src="{light}" alt="The outputs along the line"></picture></div>
{table}
</body>
</html>
"""  # noqa: E501


def write_curve_page(
    curve: Approximation, path: str | Path, *, labels: Sequence[str] | None = None, title: str | None = None
) -> Path:
    """Write a page that fetches and runs nothing and shows names as plain text.

    Args:
        curve: what to show.
        path: the file.
        labels: names of the outputs.
        title: of the page.

    Raises FileError where the file cannot be written, MissingError where matplotlib is not installed.
    """
    style = read_asset("scroll.css") + PAGE_STYLE + _class_colours()
    text = PAGE.format(
        digest=f"sha256-{b64encode(sha256(style.encode()).digest()).decode()}",
        style=style,
        title=escape(title or "A network along a line"),
        summary=escape(str(curve)),
        status=curve.status,
        meaning=STATUS_MEANINGS[curve.status],
        light=_draw(curve, labels, STYLE),
        dark=_draw(curve, labels, DARK_STYLE),
        table=_decision_table(curve, labels),
    )
    write_atomically(Path(path), text.encode("ascii", "xmlcharrefreplace"))
    return Path(path)


def _draw(curve: Approximation, labels: Sequence[str] | None, style: dict[Any, Any]) -> str:
    """The picture as a URL that holds it."""
    picture = io.BytesIO()
    with matplotlib_style("curve.to_html", style):
        axes = plot_curve(curve, labels=labels)
        figure = axes.get_figure(root=True)
        if figure is None:
            raise ArgumentError("The picture has no figure.", where="curve.to_html", hint="Report this.")
        figure.savefig(picture, format="svg", metadata={"Date": None})
        import matplotlib.pyplot as plt

        plt.close(figure)  # pyright: ignore[reportArgumentType]
    return f"data:image/svg+xml;base64,{b64encode(picture.getvalue()).decode()}"


def _class_colours() -> str:
    """Styles for the colours of classes, on light and on dark pages."""
    light, dark = (
        " ".join(f".class{i} {{ background: {colour}; }}" for i, colour in enumerate(colours))
        for colours in (CLASS_COLOURS, DARK_CLASS_COLOURS)
    )
    return f"{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}\n"


def _decision_table(curve: Approximation, labels: Sequence[str] | None) -> str:
    """The decisions of a curve with one output tensor of several elements; empty for others."""
    outputs = curve.coefficients.shape[1]
    if len(curve.output_shapes) > 1 or outputs < 2:
        return ""
    names, intervals = check_labels(labels, outputs), curve.decisions()
    rows = [
        f"<tr><td><i class=class{i.best % len(CLASS_COLOURS)}></i>{escape(names[i.best])}"
        f"<td class=number>{i.start:.6g}<td class=number>{i.stop:.6g}<td class=number>{i.margin:.3g}"
        f"<td class=number>{f'{i.stop_error:.0e}' if i.stop_error else '0'}"
        for i in intervals[:MAX_PAGE_INTERVALS]
    ]
    count = count_noun(len(intervals), "interval")
    title = count if len(intervals) <= MAX_PAGE_INTERVALS else f"The first {MAX_PAGE_INTERVALS} of {count}"
    columns = ("from alpha", "to", "margin", "error of the end")
    head = "<tr><th>largest output" + "".join(f"<th class=number>{column}" for column in columns)
    table = "\n".join([f"<table><caption>{title}</caption>", head, *rows, "</table>"])
    return f'<div class="wide" role="region" aria-label="decisions" tabindex="0">{table}</div>'
