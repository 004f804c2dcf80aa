"""A picture of a plane: its polygons with edges by the node that caused them, or its classes with their boundaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..humanize import count_noun
from .figure import get_axes, matplotlib_style
from .paths import bundle_segments, compound_path
from .plane_style import (
    axis_names,
    check_plane_style,
    choose_styles,
    locate_points,
    vertical_stretch,
)
from .style import check_labels, current_theme, escape_label, format_share, node_colours

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from ..decide.regions import Regions
    from ..results.plane import PlaneRestriction


MAX_VECTOR_POLYGONS = 50_000  # with more polygons, fill and edges become pixels in vector formats
FILL_ZORDER = -10  # fill and edges lie below axes and text
MAX_LEGEND_ROWS = 12  # nodes or classes that are named
TINTS = ("#EAF1F8", "#FBEEE6", "#E8F4EE", "#FAF5DC", "#F5EAF1", "#F0F0F0")
DARK_TINTS = ("#20232A", "#2A2522", "#202823", "#2A2820", "#28222A", "#242424")  # of polygons on dark paper


def plot_plane(
    plane: PlaneRestriction,
    ax: Axes | None = None,
    *,
    style: str = "regions",
    order: str = "max",
    labels: Sequence[str] | None = None,
    colors: Sequence[str] | None = None,
    points: Any = None,
    regions: Regions | None = None,
    threshold: float | None = None,
    features: Sequence[str] | None = None,
) -> Axes:
    """Draw a plane in its own coordinates.

    Both axes have the same scale, unless one is more than five times as long as the other. Above 50,000 polygons fill
    and edges are pixels in SVG and PDF; text stays text.

    Args:
        plane: what to draw.
        ax: axes to draw into; by default new ones.
        style: "regions" fills the polygons lightly and colours each edge by the node that caused it, later nodes
            thinner; "decisions" fills the classes and draws their exact boundaries.
        order: "max" or "min": which output decides.
        labels: a name for each output.
        colors: a colour for each output.
        points: inputs (n, *in) to mark, or inputs (*in) by name.
        regions: the result of ``plane.decisions(order)``, where it is known already.
        threshold: between the two classes of a network with one output.
        features: a name for each number of the input, with its unit where it has one; two of them name the axes.

    Raises MissingError where matplotlib is not installed, ArgumentError for a style, labels or colours that do not fit.
    """
    with matplotlib_style("plot_plane"):
        check_plane_style(style)
        marks = locate_points(plane, points)
        ax = get_axes(ax, 7.2, 5.2)
        if style == "regions":
            summary = _draw_regions(ax, plane)
        else:
            regions = plane.decisions(order, threshold=threshold) if regions is None else regions
            summary = _draw_decisions(ax, plane, regions, labels, colors)
        if len(plane) > MAX_VECTOR_POLYGONS:
            ax.set_rasterization_zorder(0)  # everything below becomes one image
        _draw_outline(ax, plane)
        _draw_marks(ax, marks)
        _set_limits(ax, plane, summary, axis_names(plane, features))
    return ax


def _draw_regions(ax: Axes, plane: PlaneRestriction) -> str:
    """Draw the polygons and their edges; returns a summary for the title."""
    from matplotlib.collections import PathCollection, PolyCollection
    from matplotlib.colors import to_rgba_array
    from matplotlib.lines import Line2D

    size = _edge_width(len(plane))
    corners, rings, offsets = plane.corners.numpy(), plane.rings.numpy(), plane.offsets.numpy()
    tints = to_rgba_array(DARK_TINTS if current_theme().is_dark else TINTS)  # parsed once, not for each polygon
    counts = np.diff(offsets)
    for sides in np.unique(counts).tolist():  # all triangles at once, all quadrangles, ...
        chosen = np.flatnonzero(counts == sides)
        shapes: Any = corners[rings[offsets[chosen][:, None] + np.arange(sides)]]
        fill = PolyCollection(shapes, facecolors=tints[chosen % len(TINTS)], linewidths=0, zorder=FILL_ZORDER)
        ax.add_collection(fill, autolim=False)
    nodes, edges = _count_edges(plane)
    rows: list[Artist] = []
    for rank, (node, colour) in enumerate(zip(nodes, node_colours(len(nodes)), strict=True)):
        width = size * (1 - 0.5 * rank / max(len(nodes) - 1, 1))
        segments = corners[plane.edges.numpy()[plane.origin_table.numpy()[:, 0] == node]]
        stroke: dict[str, Any] = {"facecolors": "none", "edgecolors": colour, "linewidths": width}
        lines = PathCollection(bundle_segments(segments), zorder=FILL_ZORDER / 2 - rank / 1000, **stroke)
        ax.add_collection(lines, autolim=False)
        name = escape_label(f"{plane.names[node]} ({edges[rank]:,})")
        rows.append(Line2D([], [], color=colour, linewidth=1 + 1.2 * width / size, label=name))
    if rows:
        largest = sorted(np.argsort(edges)[::-1][:MAX_LEGEND_ROWS].tolist())
        title = "edges by node" if len(rows) <= MAX_LEGEND_ROWS else f"{MAX_LEGEND_ROWS} of {len(rows)} nodes"
        _draw_legend(ax, [rows[i] for i in largest], title)
    return count_noun(len(plane), "polygon")


def _count_edges(plane: PlaneRestriction) -> tuple[list[int], list[int]]:
    """The nodes that caused edges, in order, and how many each."""
    nodes, counts = np.unique(plane.origin_table.numpy()[:, 0], return_counts=True)
    return nodes[nodes >= 0].tolist(), counts[nodes >= 0].tolist()


def _edge_width(polygons: int) -> float:
    """Line width of the first node's edges, in points: thinner for more polygons."""
    return float(np.clip(28 / np.sqrt(polygons), 0.15, 1.4))


def _draw_decisions(
    ax: Axes,
    plane: PlaneRestriction,
    regions: Regions,
    labels: Sequence[str] | None,
    colors: Sequence[str] | None,
) -> str:
    """Draw the classes and their boundaries; returns a summary for the title."""
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Patch, PathPatch

    names, styles = check_labels(labels, regions.comparison.class_count), choose_styles(regions, colors)
    rows = list[tuple[float, Patch]]()
    for key, (colour, hatch) in styles.items():
        members = [r for r in regions if (r.label, bool(r.tied)) == key]
        style: dict[str, Any] = {
            "facecolor": colour,
            "edgecolor": "#FFFFFFAA" if not current_theme().is_dark else "#00000088",
            "hatch": hatch,
            "linewidth": 0,
            "zorder": FILL_ZORDER,
        }
        ax.add_patch(PathPatch(compound_path([ring.numpy() for r in members for ring in r.rings]), **style))
        ties = sorted({r.tied for r in members})
        name = " or ".join(" = ".join(names[i] for i in tie) for tie in ties) if key[1] else names[key[0]]
        share = sum(r.share for r in members)
        rows.append((share, Patch(**style, label=escape_label(f"{name}  {format_share(share)}"))))
    boundaries: Any = regions.boundaries.numpy()
    width = float(np.clip(40 / np.sqrt(max(len(boundaries), 1)), 0.3, 1.1))
    lines = LineCollection(boundaries, colors=current_theme().ink, linewidths=width, zorder=FILL_ZORDER / 2)
    ax.add_collection(lines, autolim=False)
    smallest = sorted((share for share, _ in rows), reverse=True)[:MAX_LEGEND_ROWS][-1]
    named = [patch for share, patch in rows if share >= smallest][:MAX_LEGEND_ROWS]
    which = "largest" if regions.order == "max" else "smallest"
    rule = f"{which} output" if regions.comparison.is_whole else regions.describe()
    title = rule if len(rows) <= MAX_LEGEND_ROWS else f"{MAX_LEGEND_ROWS} of {len(rows)} classes"
    _draw_legend(ax, named, title)
    return f"{count_noun(len(regions), 'region')}, {count_noun(len(plane), 'polygon')}"


def _draw_outline(ax: Axes, plane: PlaneRestriction) -> None:
    ax.fill(*plane.outline.numpy().T, facecolor="none", edgecolor=current_theme().ink, linewidth=0.9, zorder=4)


def _draw_marks(ax: Axes, marks: dict[str, tuple[float, float]]) -> None:
    # a box and not a halo behind the text, which would turn it into curves
    theme = current_theme()
    box = {"boxstyle": "round,pad=0.15", "facecolor": f"{theme.paper}C0", "edgecolor": "none"}
    dot: dict[str, Any] = {"marker": "o", "markersize": 5.5, "color": theme.ink, "markeredgecolor": theme.paper}
    for name, at in marks.items():
        ax.plot(*at, linestyle="none", zorder=6, **dot)
        ax.annotate(escape_label(name), at, (6, 6), textcoords="offset points", weight="bold", bbox=box, zorder=7)


def _set_limits(ax: Axes, plane: PlaneRestriction, summary: str, names: tuple[str, str]) -> None:
    low, high = (f(plane.outline.numpy(), axis=0) for f in (np.min, np.max))
    is_equal = vertical_stretch(plane) == 1
    pad = 0.02 * ((high - low).max() if is_equal else high - low) * np.ones(2)
    ax.set(xlim=(low[0] - pad[0], high[0] + pad[0]), ylim=(low[1] - pad[1], high[1] + pad[1]))
    ax.set_aspect("equal" if is_equal else "auto")
    ax.set(xlabel=escape_label(names[0]), ylabel=escape_label(names[1]))
    ax.set_title(escape_label(summary), fontsize="medium")  # in the middle, where a title of your own replaces it


def _draw_legend(ax: Axes, rows: Sequence[Artist], title: str) -> None:
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1.02), "borderaxespad": 0}
    ax.legend(handles=list(rows), title=title, alignment="left", **place)
