"""Pictures of the linearity study: breaks along FGSM and random lines, and how the densities compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..plot.heat import image_of
from ..plot.line import BINS, COLOURS, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .figures import Fan
    from .linearity import Linearity

MOST = 4000  # more ticks than this are thinned
CLASSES = (*COLOURS, "#7F7F7F", "#8C564B", "#F0E442")
CIFAR = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PAPER: dict[Any, Any] = STYLE | {"svg.hashsalt": "exactline"}


def draw_fans(fans: Sequence[Fan]) -> Figure:
    """Figures 4 and 5: every break on the lines from one image, a row for each line, a panel for each network.

    A line is as long as it is in input units and has the colours of the classes along it; a black stroke marks where
    the class changes.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(PAPER):
        figure = Figure(figsize=(9.6, 0.6 + 1.75 * len(fans)), layout="constrained")
        grid: Any = figure.subplots(len(fans), 3, squeeze=False, width_ratios=(1, 1, 6.4))
        longest = max(max(fan.lengths) for fan in fans) or 1.0
        seen: dict[int, str] = {}
        for row, fan in zip(grid, fans, strict=True):
            _picture(row[0], fan.point.numpy(), f"{fan.images} {fan.image}: {class_name(fan.images, fan.label)}")
            last = class_name(fan.images, fan.decided[0][-1].best)
            _picture(row[1], fan.ends[0], f"FGSM end: {last}")
            _rows(row[2], fan, longest, seen)
        grid[-1][2].set_xlabel("distance from the image (input units)")
        _legend(figure, seen)
    return figure


def class_name(images: str, label: int) -> str:
    """What people call a class."""
    return CIFAR[label] if images == "CIFAR10" else str(label)


def _picture(ax: Axes, pixels: Any, title: str) -> None:
    shown = image_of(pixels)
    if shown is not None:
        flat = shown if shown.shape[2] == 3 else shown[:, :, 0]
        ax.imshow(flat, cmap="gray", vmin=0, vmax=1, interpolation="nearest")  # colours have no use for the grey
    ax.set_title(title, fontsize="x-small")
    ax.set_axis_off()


def _rows(ax: Axes, fan: Fan, longest: float, seen: dict[int, str]) -> None:
    from .figures import DIRECTIONS

    names = [f"{name}, {len(line) + 1}" for name, line in zip(DIRECTIONS, fan.lines, strict=True)]
    for place, (line, length, decided) in enumerate(zip(fan.lines, fan.lengths, fan.decided, strict=True)):
        for interval in decided:
            colour = CLASSES[interval.best % len(CLASSES)]
            seen[interval.best] = class_name(fan.images, interval.best)
            ax.broken_barh(
                [(interval.start * length, interval.width * length)], (place - 0.36, 0.72), facecolor=colour, alpha=0.3
            )
        ticks = line.alphas.numpy()
        if len(ticks) > MOST:
            ticks = ticks[np.unique(np.floor(ticks * BINS), return_index=True)[1]]
        ax.vlines(ticks * length, place - 0.3, place + 0.3, color="#222222", linewidth=0.45)
        for boundary in decided.boundaries.tolist():
            ax.vlines(boundary * length, place - 0.48, place + 0.48, color="black", linewidth=2.2, zorder=4)
    ax.set_yticks(range(len(names)), names, fontsize="x-small")
    ax.invert_yaxis()
    ax.set_xlim(0, 1.01 * longest)
    ax.set_title(
        f"{fan.network} network; beside each direction its breaks, both ends counted", fontsize="small", loc="left"
    )


def _legend(figure: Figure, seen: dict[int, str]) -> None:
    from matplotlib.artist import Artist
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    marks: list[Artist] = [
        Patch(facecolor=CLASSES[label % len(CLASSES)], alpha=0.3, label=name) for label, name in sorted(seen.items())
    ]
    marks.append(Line2D([], [], color="#222222", linewidth=0.6, label="break"))
    if len(seen) > 1:
        marks.append(Line2D([], [], color="black", linewidth=2.2, label="the class changes"))
    figure.legend(handles=marks, loc="outside lower center", ncols=min(len(marks), 8))


def draw_ratios(found: Linearity) -> Figure:
    """How much denser FGSM lines are than random ones, in every network: the numbers that table 3 sums up."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(PAPER):
        figure = Figure(figsize=(9.6, 3.2), layout="constrained")
        axes: Any = figure.subplots(1, len(found.suites), squeeze=False, sharey=True)[0]
        for ax, suite in zip(axes, found.suites, strict=True):
            names = [s.name for s in suite.subjects if len(found.against_random(suite.name, s.name))]
            ratios = [found.against_random(suite.name, name) for name in names]
            if ratios:
                ax.boxplot(ratios, tick_labels=names, whis=(5, 95), showfliers=False, medianprops={"color": COLOURS[1]})
            ax.axhline(1, color="0.6", linewidth=0.8)
            ax.set_title(suite.name, fontsize="medium")
        axes[0].set_ylabel("FGSM density / random density")
        figure.suptitle("boxes: quartiles and median; whiskers: 5 to 95 %", fontsize="small", color="0.3")
    return figure
