"""A line between two images as a picture: the input on the way, outputs, classes and breaks, one above the other."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..plot.band import GREY
from ..plot.heat import image_of
from ..plot.line import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..decide.intervals import Decisions
    from ..results.restriction import Restriction

IMAGES = 9  # on the way
DARK = ("#0072B2", "#000000", "#009E73", "#D55E00")  # fills that white letters can be read on


def draw_line(
    line: Restriction,
    decided: Decisions,
    start: NDArray[np.float32],  # (1, height, width)
    end: NDArray[np.float32],
) -> Figure:
    """Four rows with one axis of alpha."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 5.6), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.02, hspace=0.02)  # pyright: ignore
    rows: Any = figure.subplots(4, 1, sharex=True, height_ratios=(1.0, 4.4, 0.55, 1.15))
    _images(rows[0], start, end)
    colours = _colours(decided)
    _outputs(rows[1], line, decided, colours)
    _band(rows[2], decided, colours)
    _breaks(rows[3], line)
    rows[3].set(xlim=(0, 1), xlabel=f"alpha ({len(line):,} pieces)")
    return figure


def _colours(decided: Decisions) -> dict[int, str]:
    leads = list(dict.fromkeys(i.best for i in decided))
    return {label: COLOURS[place % len(COLOURS)] for place, label in enumerate(leads)}


def _images(ax: Axes, start: NDArray[np.float32], end: NDArray[np.float32]) -> None:
    wide = 0.9 / (IMAGES - 1)
    for alpha in np.linspace(0, 1, IMAGES).tolist():  # each above its alpha
        pixels = image_of(((1 - alpha) * start + alpha * end).astype(np.float64))
        if pixels is not None:
            frame = ax.inset_axes((alpha - wide / 2, 0.0, wide, 1.0))
            frame.imshow(pixels[:, :, 0], cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
            frame.set_xticks([])
            frame.set_yticks([])
            frame.spines[:].set(visible=True, linewidth=0.5, edgecolor="#999999")
    ax.set_axis_off()


def _outputs(ax: Axes, line: Restriction, decided: Decisions, colours: dict[int, str]) -> None:
    alphas, values = line.alphas.numpy(), decided.values
    others = [i for i in range(values.shape[1]) if i not in colours]
    for i in others:
        ax.plot(alphas, values[:, i], color=GREY, linewidth=0.8)
    for label, colour in colours.items():
        ax.plot(alphas, values[:, label], color=colour, linewidth=1.8)
        # named where it leads by most, a little above
        best = max((i for i in decided if i.best == label), key=lambda i: i.margin)
        middle = (best.start + best.stop) / 2
        at = np.interp(middle, alphas, values[:, label])
        ax.annotate(
            str(label),
            (middle, float(at)),
            (0, 5),
            textcoords="offset points",
            ha="center",
            color=colour,
            weight="bold",
        )
    for boundary in decided.boundaries.tolist():
        ax.axvline(boundary, color="0.75", linewidth=0.7, zorder=0)
    ax.set_ylabel("outputs")
    ax.tick_params(axis="x", length=0)
    ax.margins(y=0.08)


def _band(ax: Axes, decided: Decisions, colours: dict[int, str]) -> None:
    for i in decided:
        colour = colours[i.best]
        ax.broken_barh([(i.start, i.width)], (0, 1), facecolor=colour, edgecolor="white", linewidth=0.8)
        if i.width > 0.02:
            ink = "white" if colour in DARK else "black"
            ax.text(i.start + i.width / 2, 0.46, str(i.best), ha="center", va="center", color=ink, weight="bold")
    for boundary in decided.boundaries.tolist():
        ax.annotate(
            f"{boundary:.4f}", (boundary, 1), (0, 1), textcoords="offset points", ha="center", fontsize="x-small"
        )
    ax.set(ylim=(0, 1.0), yticks=[0.5])
    ax.set_yticklabels(["is read"])
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)


def _breaks(ax: Axes, line: Restriction) -> None:
    from ..plot.plane_style import shaded

    places: dict[str, list[float]] = defaultdict(list)
    for birth, alpha in zip(line.origins, line.alphas.tolist(), strict=True):
        if birth is not None:
            places[birth.node].append(alpha)
    nodes = [name for name in line.names if name in places]
    for row, (node, colour) in enumerate(zip(nodes, shaded(len(nodes)), strict=True)):
        ax.vlines(places[node], -row - 0.4, -row + 0.4, color=colour, linewidth=0.6)
    ax.set(ylim=(-len(nodes) + 0.4, 0.55), yticks=[-row for row in range(len(nodes))])
    ax.set_yticklabels([f"{node} ({len(places[node]):,})" for node in nodes], fontsize="small")
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
