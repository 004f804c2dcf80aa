"""A picture of a line: outputs against alpha, and below them a row of ticks for the breaks of each node."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Floats
from ..errors import ArgumentError
from .figure import get_axes, matplotlib_style
from .palette import class_turn
from .style import DASHES, check_labels, current_theme, escape_label, node_colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..results.restriction import Restriction

MAX_CURVES = 10  # outputs that are drawn and named
MAX_TICKS = 4000  # more ticks than this are thinned ...
TICK_BINS = 1500  # ... to one for each node in each of so many equal intervals of alpha
MAX_VECTOR_BREAKS = 20_000  # curves with more breaks become pixels in vector formats
DASH_PERIODS = {"--": (0.018, 0.6), ":": (0.007, 0.45)}  # length as a share of the line, and how much of it is drawn
MAX_NAMED_NODES = 8  # of more rows of ticks only the first and the last are named


def plot_line(
    line: Restriction, ax: Axes | None = None, *, output: int = 0, labels: Sequence[str] | None = None
) -> Axes:
    """Draw the outputs against alpha; below them, the breaks of each node as ticks in a row of its own.

    Of more than ten coordinates, those that are the largest somewhere are drawn first. Of several thousand breaks only
    some get a tick; the curves use all of them, and above 20,000 breaks they are pixels in SVG and PDF.

    Args:
        line: what to draw.
        ax: axes to draw into; by default new ones.
        output: which output, where the network has several.
        labels: a name for each coordinate of the output.

    Raises MissingError where matplotlib is not installed, ArgumentError for an output that does not exist or labels
    that do not fit.
    """
    with matplotlib_style("plot_line"):
        alphas, values, ticks = line.alphas.numpy(), _output_values(line, output), _find_ticks(line)
        ax = get_axes(ax, 7.2, 4.0)
        draw_curves(ax, alphas, values, labels)
        strip = _strip_height(len(ticks))
        _draw_ticks(ax, ticks, strip)
        shown = values[:, _choose_outputs(values)]
        low, high = (float(shown.min()), float(shown.max())) if shown.size else (0.0, 0.0)
        pad = 0.05 * (high - low) or 1.0
        span = (high - low + 2 * pad) / (1 - strip)
        ax.set_yticks([y for y in ax.get_yticks() if low - pad <= y <= high + pad])  # none beside the rows of ticks
        ax.set_ylim(high + pad - span, high + pad)
        ax.set_xlim(0, 1)
        ax.set_xlabel(f"alpha ({len(line):,} pieces)")
        ax.set_ylabel("output")
    return ax


def group_breaks(line: Restriction) -> dict[str, Floats]:
    """The alphas of the inner breaks by the node that caused them, in sweep order."""
    rows: dict[str, list[int]] = {}
    for row, origin in islice(enumerate(line.origins), 1, len(line.alphas) - 1):
        if origin is not None:
            rows.setdefault(origin.node, []).append(row)
    alphas = line.alphas.numpy()
    return {node: alphas[rows[node]] for node in line.names if node in rows}


def _output_values(line: Restriction, output: int) -> Floats:  # (breaks, coordinates)
    values = line.values
    outputs = values if isinstance(values, tuple) else (values,)
    if not 0 <= output < len(outputs):
        raise ArgumentError(
            f"There is no output {output}.",
            where="argument output",
            hint=f"Give a number from 0 to {len(outputs) - 1}.",
        )
    chosen = outputs[output].detach().cpu().double()
    return chosen.reshape(len(chosen), -1).numpy()


def _find_ticks(line: Restriction) -> dict[str, Floats]:
    ticks = group_breaks(line)
    if sum(map(len, ticks.values())) > MAX_TICKS:
        return {node: thin_ticks(alphas) for node, alphas in ticks.items()}
    return ticks


def thin_ticks(alphas: Floats) -> Floats:
    """The first alpha in each of many equal intervals."""
    _, first = np.unique(np.floor(alphas * TICK_BINS), return_index=True)
    return alphas[first]


def _choose_outputs(values: Floats) -> list[int]:  # values is (breaks, coordinates)
    """At most ten coordinates, in order: those that are the largest somewhere, then those with the largest values."""
    count = values.shape[1]
    if count <= MAX_CURVES:
        return list(range(count))
    leads = np.bincount(values.argmax(1), minlength=count)
    order = np.lexsort((-values.max(0), -leads))
    return sorted(order[:MAX_CURVES].tolist())


def draw_curves(ax: Axes, alphas: Floats, values: Floats, labels: Sequence[str] | None) -> None:
    """Draw at most ten coordinates of values (alphas, coordinates), and name them."""
    from matplotlib.lines import Line2D

    chosen, count, is_dense = _choose_outputs(values), values.shape[1], len(alphas) > MAX_VECTOR_BREAKS
    names, theme, rows = check_labels(labels, count), current_theme(), list[Line2D]()
    for coordinate in chosen:
        dash, colour = DASHES[class_turn(coordinate) % len(DASHES)], theme.colour(coordinate)
        curve, name = (alphas, values[:, coordinate]), escape_label(names[coordinate])
        drawn = curve if dash == "-" else cut_dashes(*curve, *DASH_PERIODS[dash])
        ax.plot(*drawn, color=colour, label=name, rasterized=is_dense)
        rows.append(Line2D([], [], color=colour, linestyle=dash, label=name))
    if count > 1:
        title = "output" if count == len(chosen) else f"{len(chosen)} of {count:,}\noutputs"
        place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.02), "borderaxespad": 0}
        ax.legend(handles=rows, title=title, handlelength=1.6, **place)


def cut_dashes(
    alphas: Floats,  # (breaks,) ascending
    values: Floats,  # (breaks,)
    period: float,
    share: float,
) -> tuple[Floats, Floats]:
    """A curve with gaps at equal distances in alpha, as NaN: its dashes stay visible however many breaks it has.

    >>> cut_dashes(np.array([0.0, 1.0]), np.array([0.0, 2.0]), period=0.5, share=0.5)
    (array([0.  , 0.25,  nan, 0.5 , 0.75,  nan]), array([0. , 0.5, nan, 1. , 1.5, nan]))
    """
    starts = np.arange(alphas[0], alphas[-1], period)
    ends = np.minimum(starts + share * period, alphas[-1])
    within = alphas[(np.searchsorted(starts, alphas, "right") > np.searchsorted(ends, alphas, "left"))]
    kept = np.union1d(within, np.concatenate([starts, ends]))
    gaps = np.searchsorted(kept, ends, "right")
    heights = np.interp(kept, alphas, values)
    return np.insert(kept, gaps, np.nan), np.insert(heights, gaps, np.nan)


def _strip_height(rows: int) -> float:
    """The share of the picture's height that the rows of ticks take."""
    return min(0.3, 0.05 * rows)


def _draw_ticks(ax: Axes, ticks: dict[str, Floats], strip: float) -> None:
    rows = len(ticks)
    height = strip / max(rows, 1)
    for row, ((node, alphas), colour) in enumerate(zip(ticks.items(), node_colours(rows), strict=True)):
        bottom = strip - (row + 1) * height
        across = ax.get_xaxis_transform()  # x in alphas, y in shares of the picture
        ax.vlines(alphas, bottom + 0.15 * height, bottom + 0.85 * height, color=colour, linewidth=0.7, transform=across)
        if rows <= MAX_NAMED_NODES or row in (0, rows - 1):
            middle = bottom + height / 2
            ax.text(1.01, middle, node, color=colour, transform=ax.transAxes, va="center", fontsize="small")
