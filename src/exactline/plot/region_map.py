"""A picture of a plane with data over it: linear regions, the decision boundary, points; from 1 to 100,000 regions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Floats, Ints
from ..humanize import count_noun
from .figure import get_axes, matplotlib_style
from .palette import HATCHES, class_turn, fill_colour, mix_colours
from .paths import bundle_segments, compound_path
from .plane_style import TIE_HATCH, axis_names, check_colors, vertical_stretch
from .style import DARK_STYLE, STYLE, Theme, check_labels, current_theme, escape_label, format_share

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from ..decide.regions import Regions
    from ..results.plane import PlaneRestriction

SHADES = np.array([0.0, 0.55, 0.25, 0.8, 0.4, 1.0, 0.15, 0.7])  # of neighbouring regions, so that they differ
SHADE_RANGE = (-0.16, 0.16)  # towards the paper, towards the class's colour
MAX_LEGEND_ROWS = 12
MAX_VECTOR_POLYGONS = 3000  # with more polygons, fill and edges become pixels in vector formats


@dataclass(frozen=True)
class DataPoints:
    """Data to draw over the regions."""

    points: Floats  # (n, 2) plane coordinates
    labels: Ints | None  # (n,) the true class of each
    values: Floats | None = None  # (n,) the true value of each, for a regressor


def plot_region_map(
    plane: PlaneRestriction,
    regions: Regions | None,
    data: DataPoints | None,
    ax: Axes | None = None,
    *,
    features: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    colors: Sequence[str] | None = None,
    title: str | None = None,
    theme: str | None = None,
) -> Axes:
    """Draw a plane with its classes, or with its values where there are none, and data over it.

    Args:
        plane: the plane.
        regions: its classes; None for a network with one output, whose values give the colours.
        data: points with their classes or values.
        ax: axes to draw into; by default new ones.
        features: a name for each number of the input.
        labels: a name for each class.
        colors: a colour for each class.
        title: of the picture; "" for none.
        theme: "light" or "dark"; by default what matplotlib is set to.

    Raises MissingError where matplotlib is not installed, ArgumentError for names or colours that do not fit.
    """
    style = {None: STYLE, "light": STYLE | _LIGHT_PAPER, "dark": DARK_STYLE}[theme]
    with matplotlib_style("plot_regions", style):
        is_own, shape = ax is None, _shape(plane)
        ax = get_axes(ax, 6.4, 0.75 + 4.6 * shape)
        rows = _draw_values(ax, plane) if regions is None else _draw_classes(ax, plane, regions, labels, colors)
        if len(plane) > MAX_VECTOR_POLYGONS:
            ax.set_rasterization_zorder(0)
        if data is not None:
            _draw_data(ax, data, colors if regions is not None else None)
        _finish(ax, plane, axis_names(plane, features), _summarize(plane, regions) if title is None else title)
        if rows:
            head = f"{MAX_LEGEND_ROWS} of {len(rows)} classes" if len(rows) > MAX_LEGEND_ROWS else "class"
            place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.02), "borderaxespad": 0}
            ax.legend(handles=rows[:MAX_LEGEND_ROWS], title=head, alignment="left", **place)
        if is_own:
            _fit_height(ax, shape)
    return ax


_LIGHT_PAPER = {"figure.facecolor": "#FFFFFF", "axes.facecolor": "#FFFFFF", "savefig.facecolor": "#FFFFFF"}


def _shape(plane: PlaneRestriction) -> float:
    """Height over width of the axes, as far as a picture may be flat or tall."""
    wide, high = (plane.outline.max(0).values - plane.outline.min(0).values).tolist()
    return float(np.clip(high / wide * vertical_stretch(plane), 0.4, 1.3))


def _fit_height(ax: Axes, shape: float) -> None:
    """Choose the height of the figure so that no empty space is left above and below the axes."""
    figure: Any = ax.get_figure()
    aspect = ax.get_aspect()
    ax.set_aspect("auto")  # the layout is wrong while axes fill a part of their place only
    figure.get_layout_engine().execute(figure)
    wide, high = figure.get_size_inches()
    box = ax.get_position(original=True)
    figure.set_size_inches(wide, high * (1 - box.height) + shape * wide * box.width)
    figure.get_layout_engine().execute(figure)  # names of ticks differ at another height
    ax.set_aspect(aspect)


def _summarize(plane: PlaneRestriction, regions: Regions | None) -> str:
    text = count_noun(len(plane), "linear region")
    return text if regions is None else f"{text}, {count_noun(len(regions), 'decision region')}"


def _draw_classes(
    ax: Axes,
    plane: PlaneRestriction,
    regions: Regions,
    labels: Sequence[str] | None,
    colors: Sequence[str] | None,
) -> list[Artist]:
    """Draw the linear regions in shades of their class, their edges, and the decision boundary; returns the legend."""
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Patch, PathPatch

    theme, count = current_theme(), regions.comparison.class_count
    names, own = check_labels(labels, count), check_colors(colors, count)
    rows: list[Artist] = []
    for label, is_tie in sorted({(r.label, bool(r.tied)) for r in regions}):
        members = [r for r in regions if (r.label, bool(r.tied)) == (label, is_tie)]
        colour = theme.colour(label) if own is None else own[label]
        hatch = TIE_HATCH if is_tie else HATCHES[class_turn(label) % len(HATCHES)]
        style: dict[str, Any] = {"facecolor": fill_colour(colour, dark=theme.is_dark), "hatch": hatch}
        style |= {"edgecolor": mix_colours(colour, theme.ink, 0.3), "linewidth": 0}
        ax.add_patch(PathPatch(compound_path([ring.numpy() for r in members for ring in r.rings]), zorder=-11, **style))
        name = " = ".join(names[i] for i in members[0].tied) if is_tie else names[label]
        share = format_share(sum(r.share for r in members))
        rows.append(Patch(**style, label=escape_label(f"{name}  {share}")))
    _draw_shades(ax, regions, theme, own)
    _draw_edges(ax, plane, theme)
    boundaries: Any = regions.boundaries.numpy()
    for colour, width in ((theme.paper, 3.2), (theme.ink, 1.5)):  # a halo keeps the boundary visible on many edges
        ends: dict[str, Any] = {"capstyle": "round", "zorder": 2}
        ax.add_collection(LineCollection(boundaries, colors=colour, linewidths=width, **ends), autolim=False)
    return rows


def _draw_shades(ax: Axes, regions: Regions, theme: Theme, own: Sequence[str] | None) -> None:
    """Fill every polygon in a shade of its class."""
    from matplotlib.collections import PolyCollection
    from matplotlib.colors import to_rgba_array

    polygons = regions.polygons
    corners, rings, offsets = polygons.corners.numpy(), polygons.rings.numpy(), polygons.offsets.numpy()
    labels, counts = polygons.labels.numpy(), np.diff(offsets)
    table = np.zeros((int(labels.max(initial=0)) + 1, len(SHADES), 4))
    for label in map(int, np.unique(labels)):
        colour = theme.colour(label) if own is None else own[label]
        fill = fill_colour(colour, dark=theme.is_dark)
        steps = SHADE_RANGE[0] + SHADES * (SHADE_RANGE[1] - SHADE_RANGE[0])
        shades = [mix_colours(fill, colour if step > 0 else theme.paper, abs(step)) for step in steps.tolist()]
        table[label] = to_rgba_array(shades)
    table[:, :, 3] = 0.8  # the hatches of the class below shine through
    for sides in np.unique(counts).tolist():  # all triangles at once, all quadrangles, ...
        chosen = np.flatnonzero(counts == sides)
        shapes: Any = corners[rings[offsets[chosen][:, None] + np.arange(sides)]]
        colours = table[labels[chosen], chosen % len(SHADES)]
        fill: Any = PolyCollection(shapes, facecolors=colours, linewidths=0, antialiased=False, zorder=-10)
        ax.add_collection(fill, autolim=False)


def _draw_edges(ax: Axes, plane: PlaneRestriction, theme: Theme) -> None:
    """Draw the borders of the linear regions: thin, and thinner and fainter the more there are."""
    from matplotlib.collections import PathCollection

    inner = plane.origin_table.numpy()[:, 0] >= 0
    segments = plane.corners.numpy()[plane.edges.numpy()[inner]]  # (edges, 2, 2)
    crowding = float(np.clip(np.log10(max(len(plane), 1) / 300) / 2.5, 0, 1))  # from 300 to 100,000 regions
    width, alpha = 0.7 - 0.55 * crowding, 0.75 - 0.45 * crowding
    style: dict[str, Any] = {"facecolors": "none", "edgecolors": theme.paper, "linewidths": width, "alpha": alpha}
    ax.add_collection(PathCollection(bundle_segments(segments), zorder=-9, **style), autolim=False)


def _draw_values(ax: Axes, plane: PlaneRestriction) -> list[Artist]:
    """Draw the values of one output: each triangle of a region is shaded as the output is, affinely; no legend."""
    from matplotlib.tri import Triangulation

    theme, corners, rings = current_theme(), plane.corners.numpy(), plane.rings.numpy()
    values: Any = plane.values
    heights = values.detach().cpu().double().reshape(len(corners), -1)[:, 0].numpy()
    offsets = plane.offsets.numpy()
    counts = np.diff(offsets)
    triangles = [
        np.stack([rings[first], rings[first + k], rings[first + k + 1]], 1)
        for k in range(1, int(counts.max()) - 1)
        for first in [offsets[:-1][counts > k + 1]]
    ]
    mesh = Triangulation(corners[:, 0], corners[:, 1], np.concatenate(triangles))
    drawn = ax.tripcolor(mesh, heights, shading="gouraud", cmap="cividis", zorder=-10, rasterized=True)
    _draw_edges(ax, plane, theme)
    figure = ax.get_figure()
    if figure is not None:
        bar = figure.colorbar(drawn, ax=ax, pad=0.02)
        bar.set_label("output")
        bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    return []


def _draw_data(ax: Axes, data: DataPoints, colors: Sequence[str] | None) -> None:
    """Draw the points in the full colours of their true classes; smaller the more there are."""
    theme, count = current_theme(), len(data.points)
    style: dict[str, Any] = {"s": float(np.clip(5000 / max(count, 1), 5, 26)), "linewidths": 0.7, "zorder": 4}
    style["edgecolors"] = theme.paper
    if data.values is not None:
        ends = ax.collections[0].get_clim()  # the scale of the output
        ax.scatter(*data.points.T, c=data.values, cmap="cividis", vmin=ends[0], vmax=ends[1], **style)
        return
    colours: Any = theme.ink
    if data.labels is not None:
        colours = [theme.colour(label) if colors is None else colors[label] for label in data.labels.tolist()]
    ax.scatter(*data.points.T, c=colours, **style)


def _finish(ax: Axes, plane: PlaneRestriction, names: tuple[str, str], title: str) -> None:
    (x0, y0), (x1, y1) = (f(plane.outline.numpy(), axis=0) for f in (np.min, np.max))
    ax.set(xlim=(x0, x1), ylim=(y0, y1), xlabel=escape_label(names[0]), ylabel=escape_label(names[1]))
    ax.set_aspect("equal" if vertical_stretch(plane) == 1 else "auto")
    ax.set_title(escape_label(title), loc="left", fontsize="medium")
    ax.spines[:].set_visible(False)
