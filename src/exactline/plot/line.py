"""Pictures: a network's outputs along a line, a row of ticks for the breaks of each node; and how all are saved."""

from __future__ import annotations

import io
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, FileError
from ..optional import require_package
from .axes import axes_of, checked_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..results.restriction import Restriction

CURVES = 10  # outputs drawn and named
TICKS = 4000  # more ticks than this are thinned ...
BINS = 1500  # ... to one for each of so many stretches of the line, and node
DENSE = 20_000  # curves with more breaks become pixels in vector formats
FORMATS = ("png", "pdf", "svg")
VECTOR_DPI = 300  # of pixels in vector formats

# Okabe and Ito's colours without the yellow, which white paper swallows: distinct for every kind of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", ":")

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # text stays text in vector formats
    "ps.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "exactline",  # the same picture, the same file
    "savefig.dpi": 160,
}


def plot_line(
    line: Restriction, ax: Axes | None = None, *, output: int = 0, labels: Sequence[str] | None = None
) -> Axes:
    """Draw the outputs against alpha; below them, each node's breaks as ticks in a row and colour of its own.

    A network with several outputs shows the one ``output`` names; ``labels`` are names for its coordinates. Of more
    than ten, those that lead somewhere are drawn first. Of several thousand breaks only some get a tick; the curves
    always use all, and above 20,000 breaks they are pixels in SVG and PDF; letters never are.

    Raises MissingError where matplotlib is not installed, ArgumentError for an output that is not there or too few
    labels.
    """
    with require_package("Pictures need matplotlib.", where="plot_line", hint='pip install "exactline[plot]"'):
        from matplotlib import rc_context

    alphas = line.alphas.numpy()
    values = _coordinates(line, output)
    ticks = _ticks(line, alphas)
    with rc_context(STYLE):
        ax = axes_of(ax, 7.2, 4.0)
        _draw_curves(ax, alphas, values, labels)
        strip = _strip(len(ticks))
        _draw_ticks(ax, ticks, strip)
        low, high = float(values.min(initial=0)), float(values.max(initial=0))
        pad = 0.05 * (high - low) or 1.0
        span = (high - low + 2 * pad) / (1 - strip)
        ax.set_yticks([at for at in ax.get_yticks() if low - pad <= at <= high + pad])  # the strip has no values
        ax.set_ylim(high + pad - span, high + pad)
        ax.set_xlim(0, 1)
        ax.set_xlabel(f"alpha ({len(line):,} pieces)")
        ax.set_ylabel("output")
    return ax


def save_picture(ax: Axes, path: str | Path) -> Path:
    """Write the figure that holds ``ax``, whole or not at all; the suffix chooses the format (png, pdf, svg).

    Letters stay letters in SVG and PDF, and the same picture is the same file. Settings of matplotlib stay as they are.

    Raises FileError where the file cannot be written or the format is not known, ArgumentError for axes cut loose.
    """
    from matplotlib import rc_context

    from ..files import write_atomically

    path, figure = Path(path), checked_axes(ax).get_figure(root=True)
    kind = path.suffix.lower().removeprefix(".")
    if figure is None:
        raise ArgumentError("These axes belong to no figure.", where="save_picture", hint="Give axes of a figure.")
    if kind not in FORMATS:
        raise FileError("Pictures are .png, .pdf or .svg.", where=str(path), hint="Name the file so.")
    data = io.BytesIO()
    with rc_context(STYLE):
        dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": None}[kind]
        figure.savefig(data, format=kind, dpi=STYLE["savefig.dpi"] if kind == "png" else VECTOR_DPI, metadata=dates)
    write_atomically(path, data.getvalue())
    return path


def _coordinates(line: Restriction, output: int) -> NDArray[np.float64]:  # (breaks, coordinates)
    values = line.values
    every = values if isinstance(values, tuple) else (values,)
    if not 0 <= output < len(every):
        raise ArgumentError(
            f"There is no output {output}.", where="argument output", hint=f"Give a number from 0 to {len(every) - 1}."
        )
    chosen = every[output].detach().cpu().double()
    return chosen.reshape(len(chosen), -1).numpy()


def _ticks(line: Restriction, alphas: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Where each node has its breaks, the first node on top."""
    nodes: dict[str, list[int]] = {}
    for place, birth in islice(enumerate(line.origins), 1, len(alphas) - 1):
        if birth is not None:
            nodes.setdefault(birth.node, []).append(place)
    ticks = {node: alphas[nodes[node]] for node in line.names if node in nodes}
    if sum(map(len, ticks.values())) > TICKS:
        return {node: _thinned(at) for node, at in ticks.items()}
    return ticks


def _thinned(alphas: NDArray[np.float64]) -> NDArray[np.float64]:
    """The first of the alphas in each of many equal stretches."""
    _, first = np.unique(np.floor(alphas * BINS), return_index=True)
    return alphas[first]


def _leading(values: NDArray[np.float64]) -> list[int]:
    """At most ten coordinates, in order: those that are the largest somewhere, then those that rise highest."""
    count = values.shape[1]
    if count <= CURVES:
        return list(range(count))
    leads = np.bincount(values.argmax(1), minlength=count)
    order = np.lexsort((-values.max(0), -leads))
    return sorted(order[:CURVES].tolist())


def _draw_curves(
    ax: Axes, alphas: NDArray[np.float64], values: NDArray[np.float64], labels: Sequence[str] | None
) -> None:
    from .band import checked_names
    from .plane_style import plain_text

    chosen, count, dense = _leading(values), values.shape[1], len(alphas) > DENSE
    names = checked_names(labels, count)
    for place, coordinate in enumerate(chosen):
        turn, colour = divmod(place, len(COLOURS))
        look: dict[str, Any] = {"color": COLOURS[colour], "label": plain_text(names[coordinate]), "rasterized": dense}
        ax.plot(alphas, values[:, coordinate], DASHES[turn], **look)
    if count > 1:
        title = "output" if count == len(chosen) else f"{len(chosen)} of {count:,}\noutputs"
        ax.legend(title=title, loc="upper left", bbox_to_anchor=(1.01, 1.02), borderaxespad=0, handlelength=1.6)


def _strip(rows: int) -> float:
    """Share of the picture's height that the rows of ticks take."""
    return min(0.3, 0.05 * rows)


def _draw_ticks(ax: Axes, ticks: dict[str, NDArray[np.float64]], strip: float) -> None:
    from matplotlib import colormaps

    rows = len(ticks)
    height = strip / max(rows, 1)
    for row, (node, at) in enumerate(ticks.items()):
        colour = colormaps["viridis"](0.75 * row / max(rows - 1, 1))
        bottom = strip - (row + 1) * height
        across = ax.get_xaxis_transform()  # x in alphas, y in shares of the picture
        ax.vlines(at, bottom + 0.15 * height, bottom + 0.85 * height, color=colour, linewidth=0.7, transform=across)
        if rows <= 8 or row in (0, rows - 1):
            middle = bottom + height / 2
            ax.text(1.01, middle, node, color=colour, transform=ax.transAxes, va="center", fontsize="small")
