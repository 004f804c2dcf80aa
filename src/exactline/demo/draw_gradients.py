"""Pictures of attributions: exact beside sampled, what the samples are off by, and how slowly that falls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Floats
from ..plot.heat import HEAT, image_of
from ..plot.line import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DASHES = ("-", "--", ":")


def draw_heat(image: Floats, exact: Floats, sampled: dict[str, Floats], count: int) -> Figure:
    """The digit and its attributions above, errors of the sampled ones below; one scale for each row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.0), layout="constrained")
    panels: Any = figure.subplots(2, len(sampled) + 2)
    _image(panels[0, 0], image)
    panels[1, 0].set_axis_off()
    above = _row(panels[0, 1:], {"exact": exact} | {f"{rule}, {count} samples": v for rule, v in sampled.items()})
    panels[1, 1].set_axis_off()
    panels[1, 1].text(
        0.95, 0.5, "sampled\nminus exact", ha="right", va="center", transform=panels[1, 1].transAxes, color="#444444"
    )
    below = _row(panels[1, 2:], {rule: v - exact for rule, v in sampled.items()}, titled=False)
    for drawn, row, text in ((above, panels[0], "attribution"), (below, panels[1], "error")):
        bar = figure.colorbar(drawn, ax=row.tolist(), fraction=0.02, pad=0.01, shrink=0.9)
        bar.set_label(text, fontsize="small")
        bar.outline.set(linewidth=0.5, edgecolor="#999999")  # pyright: ignore
        bar.ax.tick_params(labelsize="small", width=0.5)
    return figure


def draw_curves(curves: dict[str, Floats], pieces: int) -> Figure:
    """Errors against samples, both in decades."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullFormatter

    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    ax = figure.subplots()
    for (rule, errors), colour, dash in zip(curves.items(), COLOURS, DASHES, strict=False):
        ax.plot(np.arange(1, len(errors) + 1), errors, dash, color=colour, label=rule)
    ax.set(xscale="log", yscale="log", xlabel="samples", ylabel="mean error of a pixel")
    ax.set_xticks([1, 2, 5, 10, 20, 50, 100])
    ax.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:g} %"))
    ax.grid(visible=True, which="major", color="0.9", linewidth=0.6)
    ax.legend(title=f"the line has {pieces:,} pieces", alignment="left")
    return figure


def _image(ax: Axes, image: Floats) -> None:
    pixels = image_of(image)
    if pixels is not None:
        ax.imshow(pixels[:, :, 0], cmap="gray_r", vmin=0, vmax=1, interpolation="nearest")
    _bare(ax, "input")


def _row(axes: Any, maps: dict[str, Floats], *, titled: bool = True) -> Any:
    """Heat maps on one scale; the last of them."""
    from matplotlib.colors import LinearSegmentedColormap

    end = max(float(np.abs(values).max()) for values in maps.values()) or 1.0
    colours, drawn = LinearSegmentedColormap.from_list("heat", HEAT), None
    for ax, (title, values) in zip(axes, maps.items(), strict=True):
        drawn = ax.imshow(values.sum(0), cmap=colours, vmin=-end, vmax=end, interpolation="nearest")
        _bare(ax, title if titled else "")
    return drawn


def _bare(ax: Axes, title: str) -> None:
    ax.set_title(title, fontsize="small")
    ax.set_xticks([])
    ax.set_yticks([])
    ax.spines[:].set(visible=True, linewidth=0.5, edgecolor="#999999")
