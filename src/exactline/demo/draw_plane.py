"""A triangle between three images as a picture: all polygons, and the class regions of two networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..plot.heat import image_of
from ..plot.plane import plot_plane
from ..plot.plane_style import FILLS, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..decide.regions import Region
    from .plane import Side

ZOOM = 3.4  # points for a pixel of a corner's image
AWAY = 17.0  # points from a corner to the middle of its image
ROOMY, ROOM = 0.1, 0.03  # shares of the triangle above which a region holds its name and share, or its name


def draw_plane(sides: list[Side], corners: dict[str, Tensor], colours: list[str]) -> Figure:
    """The polygons of the first network, then the class regions of each."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.4, 3.0), layout="constrained")
    panels: Any = figure.subplots(1, len(sides) + 1)
    first = sides[0]
    plot_plane(first.plane, panels[0])
    panels[0].set_rasterization_zorder(0)  # thousands of strokes
    _cleared(panels[0], f"{first.title}: {len(first.plane):,} polygons")
    for ax, side in zip(panels[1:], sides, strict=True):
        plot_plane(side.plane, ax, style="decisions", decided=side.decided, colors=colours)
        _cleared(ax, f"{side.title}: {len(side.decided):,} regions")
        for region in side.decided:
            _name(ax, region)
    outline = first.plane.outline.numpy()
    for ax in panels:
        for image, at in zip(corners.values(), outline, strict=True):
            _corner(ax, image, at, outline.mean(0))
    return figure


def chosen_colours(sides: list[Side]) -> list[str]:
    """A colour for each digit, different for those that occur."""
    labels = sorted({label for side in sides for label in side.decided.labels})
    found = {label: FILLS[place % len(FILLS)] for place, label in enumerate(labels)}
    return [found.get(label, "#FFFFFF") for label in range(10)]


def _cleared(ax: Axes, title: str) -> None:
    """No axes and no legend: names are in the regions."""
    legend = ax.get_legend()
    if legend is not None:
        legend.remove()
    ax.set_axis_off()
    ax.set_title(title, fontsize="medium", pad=34)


def _name(ax: Axes, region: Region) -> None:
    x, y = _middle(region)
    text = f"{region.label}\n{percent(region.share)}"
    look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": "small"}
    if region.share >= ROOM:
        ax.text(x, y, text if region.share >= ROOMY else str(region.label), **look, zorder=7)
        return
    arrow = {"arrowstyle": "-", "color": "black", "linewidth": 0.7}
    ax.annotate(text, (x, y), (70, 42), textcoords="offset points", arrowprops=arrow, **look, zorder=7)


def _middle(region: Region) -> tuple[float, float]:
    """The centroid of the outer boundary."""
    ring = region.rings[0]
    after = ring.roll(-1, 0)
    cross = ring[:, 0] * after[:, 1] - ring[:, 1] * after[:, 0]
    x, y = (((ring + after) * cross[:, None]).sum(0) / (3 * cross.sum())).tolist()
    return x, y


def _corner(ax: Axes, image: Tensor, at: NDArray[np.float64], centre: NDArray[np.float64]) -> None:
    """The image of a corner, outside the triangle."""
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage

    pixels = image_of(image.double().numpy())
    if pixels is None:
        return
    out = (at - centre) / np.hypot(*(at - centre)) * AWAY
    shown = OffsetImage(pixels[:, :, 0], zoom=ZOOM, cmap="gray_r", interpolation="nearest")
    frame: dict[str, Any] = {"edgecolor": "#777777", "linewidth": 0.6}
    where: dict[str, Any] = {"xybox": (float(out[0]), float(out[1])), "boxcoords": "offset points"}
    box = AnnotationBbox(shown, (float(at[0]), float(at[1])), **where, pad=0.0, bboxprops=frame, zorder=9)
    ax.add_artist(box)
