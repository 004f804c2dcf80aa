"""Figures of several panels: a line between two images, attributions with their errors, planes between images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Floats
from .attribution import heat_colormap
from .images import as_image, draw_image, hide_ticks, shown_pixels
from .line import group_breaks
from .palette import text_colour
from .plane import plot_plane
from .style import FRAME_GREY, current_theme, format_share, node_colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..decide.intervals import Decisions
    from ..decide.regions import Region, Regions
    from ..results.plane import PlaneRestriction
    from ..results.restriction import Restriction

LINE_IMAGES = 9  # along a line
MIN_NAMED_WIDTH = 0.02  # of an interval that holds the name of its class
CORNER_ZOOM = 3.4  # points for a pixel of a corner's image
CORNER_DISTANCE = 17.0  # points from a corner to the middle of its image
MIN_SHARE_FOR_TEXT, MIN_SHARE_FOR_NAME = 0.1, 0.03  # of regions that hold their name and share, or only their name
NAME_GRID = 24  # points along each side of a region, among which a place for its name is chosen


def plot_line_panels(line: Restriction, decisions: Decisions) -> Figure:
    """Draw a line between two images: images along it, the outputs, the classes, and the breaks by node."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.6, 5.6), layout="constrained")
    figure.get_layout_engine().set(h_pad=0.02, hspace=0.02)  # pyright: ignore
    images, outputs, classes, breaks = figure.subplots(4, 1, sharex=True, height_ratios=(1.0, 4.4, 0.55, 1.15))
    theme = current_theme()
    colours = {label: theme.colour(label) for label in dict.fromkeys(i.best for i in decisions)}
    _draw_line_images(images, line)
    _draw_outputs(outputs, line, decisions, colours)
    _draw_classes(classes, decisions, colours)
    _draw_breaks(breaks, line)
    breaks.set(xlim=(0, 1), xlabel=f"alpha ({len(line):,} pieces)")
    return figure


def _draw_line_images(ax: Axes, line: Restriction) -> None:
    start, end = (side[0][0].numpy() for side in (line.lines.starts, line.lines.ends))
    width = 0.9 / (LINE_IMAGES - 1)
    for alpha in np.linspace(0, 1, LINE_IMAGES).tolist():
        image = as_image((1 - alpha) * start + alpha * end)
        if image is not None:
            draw_image(ax.inset_axes((alpha - width / 2, 0.0, width, 1.0)), image)
    ax.set_axis_off()


def _draw_outputs(ax: Axes, line: Restriction, decisions: Decisions, colours: dict[int, str]) -> None:
    alphas, values = line.alphas.numpy(), decisions.values
    for i in (i for i in range(values.shape[1]) if i not in colours):
        ax.plot(alphas, values[:, i], color=current_theme().faint, linewidth=0.8)
    for label, colour in colours.items():
        ax.plot(alphas, values[:, label], color=colour, linewidth=1.8)
        best = max((i for i in decisions if i.best == label), key=lambda i: i.margin)
        middle = (best.start + best.stop) / 2
        y = float(np.interp(middle, alphas, values[:, label]))
        offset: dict[str, Any] = {"xytext": (0, 5), "textcoords": "offset points"}
        ax.annotate(str(label), (middle, y), **offset, ha="center", color=colour, weight="bold")
    for boundary in decisions.boundaries.tolist():
        ax.axvline(boundary, color=current_theme().faint, linewidth=0.7, zorder=0)
    ax.set_ylabel("outputs")
    ax.tick_params(axis="x", length=0)
    ax.margins(y=0.08)


def _draw_classes(ax: Axes, decisions: Decisions, colours: dict[int, str]) -> None:
    for i in decisions:
        colour = colours[i.best]
        ax.broken_barh([(i.start, i.width)], (0, 1), facecolor=colour, edgecolor=current_theme().paper, linewidth=0.8)
        if i.width > MIN_NAMED_WIDTH:
            style: dict[str, Any] = {"color": text_colour(colour), "weight": "bold"}
            ax.text(i.start + i.width / 2, 0.46, str(i.best), ha="center", va="center", **style)
    for boundary in decisions.boundaries.tolist():
        offset: dict[str, Any] = {"xytext": (0, 1), "textcoords": "offset points"}
        ax.annotate(f"{boundary:.4f}", (boundary, 1), **offset, ha="center", fontsize="x-small")
    ax.set(ylim=(0, 1.0), yticks=[0.5])
    ax.set_yticklabels(["class"])
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)


def _draw_breaks(ax: Axes, line: Restriction) -> None:
    breaks = group_breaks(line)
    for row, (alphas, colour) in enumerate(zip(breaks.values(), node_colours(len(breaks)), strict=True)):
        ax.vlines(alphas, -row - 0.4, -row + 0.4, color=colour, linewidth=0.6)
    ax.set(ylim=(-len(breaks) + 0.4, 0.55), yticks=[-row for row in range(len(breaks))])
    ax.set_yticklabels([f"{node} ({len(alphas):,})" for node, alphas in breaks.items()], fontsize="small")
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)


def plot_attribution_panels(
    image: Floats,  # (C, H, W)
    exact: Floats,  # (C, H, W)
    sampled: Mapping[str, Floats],  # (C, H, W) each
    samples: int,
) -> Figure:
    """Draw an image with its exact and sampled attributions, and below them the errors of the sampled ones.

    Args:
        image: the input.
        exact: its attributions.
        sampled: attributions by sampling rule.
        samples: number of samples of each rule.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.0), layout="constrained")
    panels: Any = figure.subplots(2, len(sampled) + 2)
    picture = as_image(image)
    if picture is not None:
        draw_image(panels[0, 0], picture)
    panels[0, 0].set_title("input", fontsize="small")
    panels[1, 0].set_axis_off()
    maps = {"exact": exact} | {f"{rule}, {samples} samples": values for rule, values in sampled.items()}
    above = _draw_heat_row(panels[0, 1:], maps)
    panels[1, 1].set_axis_off()
    panels[1, 1].text(
        0.95,
        0.5,
        "sampled\nminus exact",
        ha="right",
        va="center",
        transform=panels[1, 1].transAxes,
        color=current_theme().soft,
    )
    below = _draw_heat_row(panels[1, 2:], {rule: values - exact for rule, values in sampled.items()}, is_titled=False)
    for drawn, row, text in ((above, panels[0], "attribution"), (below, panels[1], "error")):
        bar = figure.colorbar(drawn, ax=row.tolist(), fraction=0.02, pad=0.01, shrink=0.9)
        bar.set_label(text, fontsize="small")
        bar.outline.set(linewidth=0.5, edgecolor=FRAME_GREY)  # pyright: ignore
        bar.ax.tick_params(labelsize="small", width=0.5)
    return figure


def _draw_heat_row(axes: Any, maps: Mapping[str, Floats], *, is_titled: bool = True) -> Any:
    """Draw heat maps on one scale; returns the last of them."""
    end = max(float(np.abs(values).max()) for values in maps.values()) or 1.0
    drawn = None
    for ax, (title, values) in zip(axes, maps.items(), strict=True):
        drawn = ax.imshow(values.sum(0), cmap=heat_colormap(), vmin=-end, vmax=end, interpolation="nearest")
        ax.set_title(title if is_titled else "", fontsize="small")
        hide_ticks(ax, linewidth=0.5)
    return drawn


@dataclass(frozen=True, eq=False)
class PlanePanel:
    """A plane, its class regions, and a title."""

    title: str
    plane: PlaneRestriction
    regions: Regions


def plot_plane_panels(
    panels: Sequence[PlanePanel],
    images: Sequence[Floats],  # (C, H, W) each
) -> Figure:
    """Draw planes between images: the polygons of the first plane, then the class regions of each.

    Args:
        panels: planes with the same outline.
        images: the image at each corner.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.4, 3.0), layout="constrained")
    axes: Any = figure.subplots(1, len(panels) + 1)
    first = panels[0]
    plot_plane(first.plane, axes[0])
    axes[0].set_rasterization_zorder(0)  # thousands of strokes
    _remove_axes(axes[0], f"{first.title}: {len(first.plane):,} polygons")
    for ax, panel in zip(axes[1:], panels, strict=True):
        plot_plane(panel.plane, ax, style="decisions", regions=panel.regions)
        _remove_axes(ax, f"{panel.title}: {len(panel.regions):,} regions")
        for region in panel.regions:
            _draw_region_name(ax, region)
    outline = first.plane.outline.numpy()
    for ax in axes:
        for image, corner in zip(images, outline, strict=True):
            _draw_corner_image(ax, image, corner, outline.mean(0))
    return figure


def _remove_axes(ax: Axes, title: str) -> None:
    """No axes and no legend: names are in the regions."""
    legend = ax.get_legend()
    if legend is not None:
        legend.remove()
    ax.set_axis_off()
    ax.set_title(title, fontsize="medium", pad=34)


def _draw_region_name(ax: Axes, region: Region) -> None:
    x, y = _deepest_point(region)
    text = f"{region.label}\n{format_share(region.share)}"
    style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": "small", "zorder": 7}
    if region.share >= MIN_SHARE_FOR_NAME:
        ax.text(x, y, text if region.share >= MIN_SHARE_FOR_TEXT else str(region.label), **style)
        return
    arrow = {"arrowstyle": "-", "color": current_theme().ink, "linewidth": 0.7}
    ax.annotate(text, (x, y), (70, 42), textcoords="offset points", arrowprops=arrow, **style)


def _deepest_point(region: Region) -> tuple[float, float]:
    """A place for a name: of the points of a grid inside the region, the one that is farthest from its boundary."""
    from matplotlib.path import Path

    ring = region.rings[0].numpy()
    low, high = ring.min(0), ring.max(0)
    shares = (np.arange(NAME_GRID) + 0.5) / NAME_GRID
    grid = low + (high - low) * np.stack(np.meshgrid(shares, shares), -1).reshape(-1, 2)
    inside = grid[Path(ring).contains_points(grid)]
    if not len(inside):
        return tuple(ring.mean(0).tolist())
    side = np.roll(ring, -1, 0) - ring
    share = ((inside[:, None] - ring) * side).sum(2) / np.maximum((side**2).sum(1), np.finfo(float).tiny)
    distance = np.linalg.norm(inside[:, None] - ring - share.clip(0, 1)[..., None] * side, axis=2).min(1)
    return tuple(inside[distance.argmax()].tolist())


def _draw_corner_image(ax: Axes, image: Floats, corner: Floats, centre: Floats) -> None:
    """Draw an image outside the plane, beside a corner."""
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage

    pixels = as_image(image)
    if pixels is None:
        return
    x, y = ((corner - centre) / np.hypot(*(corner - centre)) * CORNER_DISTANCE).tolist()
    picture = OffsetImage(shown_pixels(pixels), zoom=CORNER_ZOOM, interpolation="nearest")
    frame: dict[str, Any] = {"edgecolor": "#777777", "linewidth": 0.6}
    offset: dict[str, Any] = {"xybox": (x, y), "boxcoords": "offset points"}
    ax.add_artist(AnnotationBbox(picture, tuple(corner.tolist()), **offset, pad=0.0, bboxprops=frame, zorder=9))
