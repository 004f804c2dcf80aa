"""Pictures of the linearity study: breaks along FGSM and random lines, and the ratios of their densities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...plot.images import as_image
from ...plot.palette import CLASS_COLOURS
from ...plot.style import COLOURS, STYLE
from ..drawing import limit_ticks, new_figure
from .linearity import DIRECTIONS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .figures import LineFan
    from .linearity import LinearityStudy

CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def draw_line_fans(fans: Sequence[LineFan]) -> Figure:
    """Draw figures 4 and 5: every break on the lines from one image, one row per line, one panel per network.

    The length of a row is the length of its line in input units, its colours are the classes along the line, and thick
    black strokes mark where the class changes.
    """
    from matplotlib import rc_context

    with rc_context(STYLE):
        figure = new_figure(9.6, 0.6 + 1.75 * len(fans))
        grid: Any = figure.subplots(len(fans), 3, squeeze=False, width_ratios=(1, 1, 6.4))
        longest = max(max(fan.lengths) for fan in fans) or 1.0
        classes = {
            interval.best: format_class(fan.images, interval.best)
            for fan in fans
            for line in fan.decisions
            for interval in line
        }
        for row, fan in zip(grid, fans, strict=True):
            _draw_image(row[0], fan.point.numpy(), f"{fan.images} {fan.image}: {format_class(fan.images, fan.label)}")
            _draw_image(row[1], fan.ends[0], f"FGSM end: {classes[fan.decisions[0][-1].best]}")
            _draw_lines(row[2], fan, longest)
        grid[-1][2].set_xlabel("distance from the image (input units)")
        _add_legend(figure, classes)
    return figure


def draw_ratios(study: LinearityStudy) -> Figure:
    """Draw how much denser FGSM lines are than random ones in every network: the ratios that table 3 summarizes."""
    from matplotlib import rc_context

    with rc_context(STYLE):
        figure = new_figure(9.6, 3.2)
        axes: Any = figure.subplots(1, len(study.suites), squeeze=False, sharey=True)[0]
        for ax, suite in zip(axes, study.suites, strict=True):
            pooled = {named.name: study.pool_random_ratios(suite.name, named.name) for named in suite.networks}
            ratios = {name: values for name, values in pooled.items() if len(values)}
            if ratios:
                ax.boxplot(
                    list(ratios.values()),
                    tick_labels=list(ratios),
                    whis=(5, 95),
                    showfliers=False,
                    medianprops={"color": COLOURS[1]},
                )
            ax.axhline(1, color="0.6", linewidth=0.8)
            ax.set_title(suite.name, fontsize="medium")
        axes[0].set_ylabel("FGSM density / random density")
        figure.suptitle("boxes: quartiles and median; whiskers: 5 to 95 %", fontsize="small", color="0.3")
    return figure


def format_class(images: str, label: int) -> str:
    """Return the name of a class."""
    return CIFAR_CLASSES[label] if images == "CIFAR10" else str(label)


def _draw_image(ax: Axes, values: Any, title: str) -> None:
    pixels = as_image(values)
    if pixels is not None:
        pixels = pixels if pixels.shape[2] == 3 else pixels[:, :, 0]
        ax.imshow(pixels, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
    ax.set_title(title, fontsize="x-small")
    ax.set_axis_off()


def _draw_lines(ax: Axes, fan: LineFan, longest: float) -> None:
    names = [f"{name}, {len(line) - 1}" for name, line in zip(DIRECTIONS, fan.lines, strict=True)]
    for row, (line, length, decisions) in enumerate(zip(fan.lines, fan.lengths, fan.decisions, strict=True)):
        for interval in decisions:
            colour = CLASS_COLOURS[interval.best % len(CLASS_COLOURS)]
            ax.broken_barh(
                [(interval.start * length, interval.width * length)], (row - 0.36, 0.72), facecolor=colour, alpha=0.3
            )
        ticks = limit_ticks(line.alphas[1:-1].numpy())
        ax.vlines(ticks * length, row - 0.3, row + 0.3, color="#222222", linewidth=0.45)
        for boundary in decisions.boundaries.tolist():
            ax.vlines(boundary * length, row - 0.48, row + 0.48, color="black", linewidth=2.2, zorder=4)
    ax.set_yticks(range(len(names)), names, fontsize="x-small")
    ax.invert_yaxis()
    ax.set_xlim(0, 1.01 * longest)
    ax.set_title(f"{fan.network} network; number of breaks", fontsize="small", loc="left")


def _add_legend(figure: Figure, classes: dict[int, str]) -> None:
    from matplotlib.artist import Artist
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Artist] = [
        Patch(facecolor=CLASS_COLOURS[label % len(CLASS_COLOURS)], alpha=0.3, label=name)
        for label, name in sorted(classes.items())
    ]
    handles.append(Line2D([], [], color="#222222", linewidth=0.6, label="break"))
    if len(classes) > 1:
        handles.append(Line2D([], [], color="black", linewidth=2.2, label="class boundary"))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 8))
