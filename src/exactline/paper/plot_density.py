"""Pictures of the density study: densities of each network, and pieces against length, layer and training epoch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..plot.figures import save_figures
from ..plot.line import COLOURS, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .density import Densities

LOOKS: dict[Any, Any] = STYLE | {"svg.hashsalt": "exactline"}
MANY = 24  # checkpoints; with more of them only some are marked by a dot


def draw(found: Densities, folder: Path, progress: Callable[[float, str], None] | None = None) -> list[Path]:
    """Write each picture as PNG and SVG, whole or not at all.

    Raises MissingError where matplotlib is not installed, FileError where a file cannot be written.
    """
    pictures: dict[str, Callable[[Densities], Figure]] = {"densities": densities, "layers": layers}
    if len(found.lengths):
        pictures["lengths"] = lengths
    if found.checkpoints:
        pictures["epochs"] = epochs
    made = [(name, partial(picture, found)) for name, picture in pictures.items()]
    return save_figures(made, folder, LOOKS, "the density study", progress)


def densities(found: Densities) -> Figure:
    """For each network a box of the FGSM densities beside one of the random ones: quartiles, and all lines as dots."""
    from .density_tables import KINDS, pooled

    names = [s.name for s in found.subjects]
    figure, ax = _figure(max(4.8, 1.5 + 1.5 * len(names)), 3.9)
    random = np.random.RandomState(0)  # where a dot is beside its neighbours means nothing
    for place, name in enumerate(names):
        for side, kind in enumerate(KINDS):
            values = pooled(found.of(name).values(), kind)
            if not len(values):
                continue
            at, colour = place + (-0.2, 0.2)[side], COLOURS[side]
            ax.scatter(
                at + random.uniform(-0.13, 0.13, len(values)), values, s=5, color=colour, alpha=0.35, linewidths=0
            )
            low, half, high = np.percentile(values, [25, 50, 75])
            ax.bar(at, high - low, 0.32, low, facecolor="none", edgecolor="black", linewidth=0.9, zorder=3)
            ax.plot([at - 0.16, at + 0.16], [half, half], color="black", linewidth=1.8, zorder=4)
            label = kind if place == 0 else None
            ax.scatter([], [], s=18, color=colour, label=label)
    ax.set_xticks(range(len(names)), names)
    ax.set_ylim(bottom=0)
    ax.set_ylabel("breaks for each unit of length")
    ax.set_title(f"along lines to {_moved(found)}; boxes: quartiles and median", fontsize="medium", loc="left")
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def lengths(found: Densities) -> Figure:
    """The expected number of pieces against the length of a line, with quartiles."""
    from .density_tables import length_rows

    figure, ax = _figure(6.4, 4.0)
    rows = _grouped(length_rows(found))
    for (name, kind), group in rows.items():
        place = [s.name for s in found.subjects].index(name)
        x, mean, low, high = (np.array([0.0, *column]) for column in _columns(group, 0, 2, 4, 5))
        mean[0] = low[0] = high[0] = 1.0  # a line without length is one piece
        colour = COLOURS[place % len(COLOURS)]
        ax.plot(x, mean, "-" if kind == "FGSM" else "--", color=colour, label=f"{name}, {kind}")
        ax.fill_between(x, low, high, color=colour, alpha=0.13 if kind == "FGSM" else 0.06, linewidth=0)
    ax.set_xlim(0, float(found.lengths[-1]))
    ax.set_ylim(bottom=0)
    ax.set_xlabel("length of the line")
    ax.set_ylabel("pieces: mean, and quartiles shaded")
    ax.legend(fontsize="small")
    return figure


def layers(found: Densities) -> Figure:
    """Where breaks are born: the mean number on a line in each layer, in order."""
    from .density_tables import KINDS, layer_rows

    rows = _grouped(layer_rows(found))
    names = [s.name for s in found.subjects]
    figure, (left, right) = _figure(8.4, 3.8, columns=2, sharey=True)
    for ax, kind in ((left, KINDS[0]), (right, KINDS[1])):
        order = list(dict.fromkeys(str(row[0]) for (_, own), group in rows.items() if own == kind for row in group))
        width = 0.8 / len(names)
        for place, name in enumerate(names):
            group = rows[name, kind]
            at = [order.index(str(row[0])) + (place - (len(names) - 1) / 2) * width for row in group]
            ax.bar(at, _columns(group, 3)[0], width * 0.92, color=COLOURS[place % len(COLOURS)], label=name)
        ax.set_xticks(range(len(order)), [_short(text) for text in order], rotation=0 if len(order) < 6 else 60)
        ax.set_title(f"{kind} lines", fontsize="medium", loc="left")
        ax.set_xlabel("layer")
    left.set_ylabel("breaks born on a line, mean")
    left.legend(fontsize="small")
    return figure


def epochs(found: Densities) -> Figure:
    """Densities while a network is trained, with quartiles; the share of images read rightly beneath."""
    from .density_tables import epoch_rows

    figure, (ax, below) = _figure(6.4, 4.6, rows=2, height_ratios=(3, 1), sharex=True)
    groups: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for row in epoch_rows(found):
        groups[str(row[2])].append(row)
    mark = "o" if len(found.checkpoints) <= MANY else ""
    for place, (kind, rows) in enumerate(groups.items()):
        x, half, low, high = _columns(rows, 0, 7, 8, 9)
        ax.plot(x, half, marker=mark, markersize=3, color=COLOURS[place], label=f"{kind}: median, quartiles shaded")
        ax.fill_between(x, low, high, color=COLOURS[place], alpha=0.15, linewidth=0)
    rows = next(iter(groups.values()))
    below.plot(*_columns(rows, 0, 4), color="black", marker=mark, markersize=3)
    below.set_ylim(0, 1.03)
    below.set_ylabel("accuracy")
    below.set_xlabel("checkpoint")
    below.locator_params(axis="x", integer=True)
    ax.set_ylim(bottom=0)
    ax.set_ylabel("breaks for each unit of length")
    ax.legend(fontsize="small")
    return figure


def _figure(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes: Axes | Any = figure.subplots(rows, columns, **options)
    return figure, axes


def _grouped(rows: Any) -> dict[tuple[str, str], list[tuple[Any, ...]]]:
    """Rows by network and kind, which are their first two cells."""
    found: dict[tuple[str, str], list[tuple[Any, ...]]] = defaultdict(list)
    for name, kind, *rest in rows:
        found[str(name), str(kind)].append(tuple(rest))
    return found


def _columns(rows: list[tuple[Any, ...]], *places: int) -> list[Any]:
    return [np.array([float(row[i]) for row in rows]) for i in places]


def _short(text: str) -> str:
    return text if len(text) <= 14 else f"…{text[-13:]}"


def _moved(found: Densities) -> str:
    from .density_report import moved

    return moved(found.plan)
