"""A self-contained web page of a curve: its picture, its status and error, and its decisions."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ArgumentError
from ..files import write_atomically
from .curve import plot_curve
from .figure import matplotlib_style
from .style import check_labels

if TYPE_CHECKING:
    from ..smooth.approximation import Approximation

MAX_PAGE_INTERVALS = 500  # rows of the table of decisions
STATUS_MEANINGS = {
    "exact": "all breaks are known, and between them the network is affine",
    "certified": "the error bound is proven",
    "estimated": "the error is estimated, not proven",
}
STYLE = "body{font:15px system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}td,th{padding:.2em .8em}"


def write_curve_page(
    curve: Approximation, path: str | Path, *, labels: Sequence[str] | None = None, title: str | None = None
) -> Path:
    """Write a page that fetches nothing and shows names as plain text.

    Args:
        curve: what to show.
        path: the file.
        labels: names of the outputs.
        title: of the page.

    Raises FileError where the file cannot be written, MissingError where matplotlib is not installed.
    """
    with matplotlib_style("curve.to_html"):
        picture = io.StringIO()
        axes = plot_curve(curve, labels=labels)
        figure = axes.get_figure(root=True)
        if figure is None:
            raise ArgumentError("The picture has no figure.", where="curve.to_html", hint="Report this.")
        figure.savefig(picture, format="svg", metadata={"Date": None})
        import matplotlib.pyplot as plt

        plt.close(figure)  # pyright: ignore[reportArgumentType]
    heading = html.escape(title or "A network along a line")
    svg = picture.getvalue()
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{heading}</title><style>{STYLE}</style>",
        f"<h1>{heading}</h1><p>{html.escape(str(curve))}.</p>",
        f"<p>Status <b>{curve.status}</b>: {STATUS_MEANINGS[curve.status]}.</p>",
        svg[svg.index("<svg") :],
        _decision_table(curve, labels),
        "</html>",
    ]
    write_atomically(Path(path), "\n".join(parts).encode("ascii", "xmlcharrefreplace"))
    return Path(path)


def _decision_table(curve: Approximation, labels: Sequence[str] | None) -> str:
    """The decisions of a curve with one output tensor of several elements; empty for others."""
    outputs = curve.coefficients.shape[1]
    if len(curve.output_shapes) > 1 or outputs < 2:
        return ""
    names = check_labels(labels, outputs)
    rows = [
        f"<tr><td>{i.start:.6g}<td>{i.stop:.6g}<td>{html.escape(names[i.best])}<td>{i.margin:.3g}<td>{i.stop_error:.0e}"
        for i in curve.decisions()[:MAX_PAGE_INTERVALS]
    ]
    head = "<tr><th>from<th>to<th>largest output<th>margin<th>error of the boundary"
    return "\n".join(["<table>", head, *rows, "</table>"])
