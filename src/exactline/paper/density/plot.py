"""Pictures of the density study: densities by network, and pieces by length, layer and training epoch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from ...arrays import Floats
from ...plot.figure import save_figures
from ...plot.style import COLOURS, STYLE
from ..drawing import new_figure
from ..record import StudyProgress
from .report import format_line_end
from .tables import DIRECTION_KINDS, LayerRow, LengthRow, list_epochs, list_layers, list_lengths, pool_densities

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .study import DensityStudy

MAX_MARKED_CHECKPOINTS = 24  # with more of them, checkpoints are not marked by dots
MAX_LABEL_CHARACTERS = 14

NetworkRow = TypeVar("NetworkRow", LayerRow, LengthRow)


def draw_figures(study: DensityStudy, folder: Path, progress: StudyProgress | None = None) -> list[Path]:
    """Write each picture as PNG and SVG, each file atomically.

    Raises MissingError if matplotlib is not installed, FileError if a file cannot be written.
    """
    pictures: dict[str, Callable[[DensityStudy], Figure]] = {"densities": draw_densities, "layers": draw_layers}
    if len(study.curve_lengths):
        pictures["lengths"] = draw_lengths
    if study.checkpoints:
        pictures["epochs"] = draw_epochs
    figures = [(name, partial(draw, study)) for name, draw in pictures.items()]
    return save_figures(figures, folder, STYLE, "the density study", progress)


def draw_densities(study: DensityStudy) -> Figure:
    """Draw the FGSM and the random densities of each network: all lines as dots, and boxes of quartiles and median."""
    names = [named.name for named in study.networks]
    figure = new_figure(max(4.8, 1.5 + 1.5 * len(names)), 3.9)
    ax = figure.subplots()
    random = np.random.RandomState(0)  # spreads the dots sideways, which has no meaning
    for place, name in enumerate(names):
        for kind, offset, colour in zip(DIRECTION_KINDS, (-0.2, 0.2), COLOURS, strict=False):
            values = pool_densities(study.correct_rows(name).values(), kind)
            if not len(values):
                continue
            x = place + offset
            jitter = random.uniform(-0.13, 0.13, len(values))
            ax.scatter(x + jitter, values, s=5, color=colour, alpha=0.35, linewidths=0)
            low, median, high = np.percentile(values, [25, 50, 75])
            ax.bar(x, high - low, 0.32, low, facecolor="none", edgecolor="black", linewidth=0.9, zorder=3)
            ax.plot([x - 0.16, x + 0.16], [median, median], color="black", linewidth=1.8, zorder=4)
            ax.scatter([], [], s=18, color=colour, label=kind if place == 0 else None)
    ax.set_xticks(range(len(names)), names)
    ax.set_ylim(bottom=0)
    ax.set_ylabel("breaks per unit of length")
    title = f"along lines to {format_line_end(study.plan)}; boxes: quartiles and median"
    ax.set_title(title, fontsize="medium", loc="left")
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def draw_lengths(study: DensityStudy) -> Figure:
    """Draw the mean number of pieces by length of the line, with quartiles."""
    figure = new_figure(6.4, 4.0)
    ax = figure.subplots()
    names = [named.name for named in study.networks]
    for (name, kind), rows in _group_rows(list_lengths(study)).items():
        # A line of length 0 is one piece.
        x = np.array([0.0, *(row.length for row in rows)])
        mean = np.array([1.0, *(row.mean_pieces for row in rows)])
        low = np.array([1.0, *(row.lower_quartile for row in rows)])
        high = np.array([1.0, *(row.upper_quartile for row in rows)])
        colour = COLOURS[names.index(name) % len(COLOURS)]
        ax.plot(x, mean, "-" if kind == "FGSM" else "--", color=colour, label=f"{name}, {kind}")
        ax.fill_between(x, low, high, color=colour, alpha=0.13 if kind == "FGSM" else 0.06, linewidth=0)
    ax.set_xlim(0, float(study.curve_lengths[-1]))
    ax.set_ylim(bottom=0)
    ax.set_xlabel("length of the line")
    ax.set_ylabel("pieces: mean, quartiles shaded")
    ax.legend(fontsize="small")
    return figure


def draw_layers(study: DensityStudy) -> Figure:
    """Draw in which layers breaks originate: the mean number per line."""
    groups = _group_rows(list_layers(study))
    names = [named.name for named in study.networks]
    figure = new_figure(8.4, 3.8)
    left, right = figure.subplots(1, 2, sharey=True)
    for ax, kind in ((left, DIRECTION_KINDS[0]), (right, DIRECTION_KINDS[1])):
        layers = list(dict.fromkeys(row.layer for rows in groups.values() for row in rows if row.kind == kind))
        width = 0.8 / len(names)
        for place, name in enumerate(names):
            rows = groups[name, kind]
            x = [layers.index(row.layer) + (place - (len(names) - 1) / 2) * width for row in rows]
            heights = [row.mean_breaks for row in rows]
            ax.bar(x, heights, width * 0.92, color=COLOURS[place % len(COLOURS)], label=name)
        ax.set_xticks(range(len(layers)), [_shorten(name) for name in layers], rotation=0 if len(layers) < 6 else 60)
        ax.set_title(f"{kind} lines", fontsize="medium", loc="left")
        ax.set_xlabel("layer")
    left.set_ylabel("breaks per line, mean")
    left.legend(fontsize="small")
    return figure


def draw_epochs(study: DensityStudy) -> Figure:
    """Draw the densities during training with quartiles, and the accuracy below."""
    figure = new_figure(6.4, 4.6)
    ax, below = figure.subplots(2, 1, height_ratios=(3, 1), sharex=True)
    rows = list(list_epochs(study))
    marker = "o" if len(study.checkpoints) <= MAX_MARKED_CHECKPOINTS else ""
    for kind, colour in zip(DIRECTION_KINDS, COLOURS, strict=False):
        own = [row for row in rows if row.kind == kind]
        x = [row.checkpoint for row in own]
        median = _as_floats(row.median for row in own)
        low, high = _as_floats(row.lower_quartile for row in own), _as_floats(row.upper_quartile for row in own)
        ax.plot(x, median, marker=marker, markersize=3, color=colour, label=f"{kind}: median, quartiles shaded")
        ax.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    accuracy = {row.checkpoint: row.accuracy for row in rows}
    below.plot(list(accuracy), list(accuracy.values()), color="black", marker=marker, markersize=3)
    below.set_ylim(0, 1.03)
    below.set_ylabel("accuracy")
    below.set_xlabel("checkpoint")
    below.locator_params(axis="x", integer=True)
    ax.set_ylim(bottom=0)
    ax.set_ylabel("breaks per unit of length")
    ax.legend(fontsize="small")
    return figure


def _group_rows(rows: Iterable[NetworkRow]) -> dict[tuple[str, str], list[NetworkRow]]:
    """Group rows by network and kind."""
    groups: dict[tuple[str, str], list[NetworkRow]] = defaultdict(list)
    for row in rows:
        groups[row.network, row.kind].append(row)
    return groups


def _as_floats(values: Iterable[float]) -> Floats:
    return np.array(list(values), dtype=np.float64)


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_LABEL_CHARACTERS else f"…{text[1 - MAX_LABEL_CHARACTERS :]}"
