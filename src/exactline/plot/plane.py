"""Pictures of planes: every polygon with its edges by the node that bore them, or the classes with their boundaries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Floats
from ..errors import ArgumentError
from ..humanize import count_noun
from ..optional import require_package
from .axes import axes_of
from .band import checked_names
from .line import STYLE
from .plane_style import axis_names, looks, marked, outputs_of, percent, plain_text, shaded, stretch

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from ..decide.regions import Regions
    from ..results.plane import PlaneRestriction


STYLES = ("regions", "decisions")
RASTER = 50_000  # with more polygons than this, fill and edges become pixels in vector formats
BELOW = -10  # fill and edges lie below axes and letters
LEGEND = 12  # nodes or classes that are named
TINTS = ("#EAF1F8", "#FBEEE6", "#E8F4EE", "#FAF5DC", "#F5EAF1", "#F0F0F0")
INK = "#222222"


def plot_plane(
    plane: PlaneRestriction,
    ax: Axes | None = None,
    *,
    style: str = "regions",
    order: str = "max",
    labels: Sequence[str] | None = None,
    colors: Sequence[str] | None = None,
    points: Any = None,
    decided: Regions | None = None,
) -> Axes:
    """Draw a plane in its own coordinates.

    Both axes have the same scale, unless one is more than five times as long as the other.
    Style ``regions`` fills the polygons lightly and colours each edge by the node that bore it, later nodes thinner.
    Style ``decisions`` fills the classes and draws their exact boundaries; ``labels`` and ``colors`` are those of the
    outputs, ``decided`` spares the work where it has been done. ``points`` are inputs (n, *in) to mark, or inputs
    (*in) by name. Above 50,000 polygons fill and edges are pixels in SVG and PDF; letters never are.

    Raises MissingError where matplotlib is not installed, ArgumentError for a style, names or colours that do not fit.
    """
    with require_package("Pictures need matplotlib.", where="plot_plane", hint='pip install "exactline[plot]"'):
        from matplotlib import rc_context
    if style not in STYLES:
        raise ArgumentError(
            f"There is no style {style!r}.", where="argument style", hint="Give 'regions' or 'decisions'."
        )
    marks = marked(plane, points)
    with rc_context(STYLE):
        ax = axes_of(ax, 7.2, 5.2)
        if style == "regions":
            said = _draw_regions(ax, plane)
        else:
            decided = plane.decisions(order) if decided is None else decided
            said = _draw_decisions(ax, plane, decided, labels, colors)
        if len(plane) > RASTER:
            ax.set_rasterization_zorder(0)  # all that is below becomes one image
        _draw_outline(ax, plane)
        _draw_marks(ax, marks)
        _frame(ax, plane, said)
    return ax


def _draw_regions(ax: Axes, plane: PlaneRestriction) -> str:
    from matplotlib.collections import LineCollection, PolyCollection
    from matplotlib.colors import to_rgba_array
    from matplotlib.lines import Line2D

    size = _stroke(len(plane))
    corners, rings, offsets = plane.corners.numpy(), plane.rings.numpy(), plane.offsets.numpy()
    count, tints = np.diff(offsets), to_rgba_array(TINTS)  # read once, not for each polygon
    for sides in np.unique(count).tolist():  # all triangles at once, all quadrangles, ...
        chosen = np.flatnonzero(count == sides)
        shapes: Any = corners[rings[offsets[chosen][:, None] + np.arange(sides)]]
        fill = PolyCollection(shapes, facecolors=tints[chosen % len(TINTS)], linewidths=0, zorder=BELOW)
        ax.add_collection(fill, autolim=False)
    nodes, tally = _bearers(plane)
    rows: list[Artist] = []
    for rank, (node, colour) in enumerate(zip(nodes, shaded(len(nodes)), strict=True)):
        width = size * (1 - 0.5 * rank / max(len(nodes) - 1, 1))
        segments: Any = corners[plane.edges.numpy()[plane.origin_table.numpy()[:, 0] == node]]
        lines = LineCollection(segments, colors=colour, linewidths=width, zorder=BELOW / 2 - rank / 1000)
        ax.add_collection(lines, autolim=False)
        name = plain_text(f"{plane.names[node]} ({tally[rank]:,})")
        rows.append(Line2D([], [], color=colour, linewidth=1 + 1.2 * width / size, label=name))
    if rows:
        some = sorted(np.argsort(tally)[::-1][:LEGEND].tolist())
        _legend(
            ax, [rows[i] for i in some], "edges born by" if len(rows) <= LEGEND else f"{LEGEND} of {len(rows)} nodes"
        )
    return count_noun(len(plane), "polygon")


def _bearers(plane: PlaneRestriction) -> tuple[list[int], list[int]]:
    """Nodes that bore edges, in order, and how many each."""
    nodes, tally = np.unique(plane.origin_table.numpy()[:, 0], return_counts=True)
    return nodes[nodes >= 0].tolist(), tally[nodes >= 0].tolist()


def _stroke(polygons: int) -> float:
    """Points of width of the first node's edges: thin enough for so many."""
    return float(np.clip(28 / np.sqrt(polygons), 0.15, 1.4))


def _draw_decisions(
    ax: Axes,
    plane: PlaneRestriction,
    decided: Regions,
    labels: Sequence[str] | None,
    colors: Sequence[str] | None,
) -> str:
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Patch, PathPatch

    names, look = checked_names(labels, outputs_of(plane)), looks(plane, decided, colors)
    rows = list[tuple[float, Patch]]()
    for key, (colour, hatch) in look.items():
        members = [r for r in decided if (r.label, bool(r.tied)) == key]
        dress: dict[str, Any] = {
            "facecolor": colour,
            "edgecolor": "#FFFFFFAA",
            "hatch": hatch,
            "linewidth": 0,
            "zorder": BELOW,
        }
        ax.add_patch(PathPatch(compound([ring.numpy() for r in members for ring in r.rings]), **dress))
        ties = sorted({r.tied for r in members})
        name = " or ".join(" = ".join(names[i] for i in tie) for tie in ties) if key[1] else names[key[0]]
        share = sum(r.share for r in members)
        rows.append((share, Patch(**dress, label=plain_text(f"{name}  {percent(share)}"))))
    between: Any = decided.boundaries.numpy()
    width = float(np.clip(40 / np.sqrt(max(len(between), 1)), 0.3, 1.1))
    ax.add_collection(LineCollection(between, colors=INK, linewidths=width, zorder=BELOW / 2), autolim=False)
    least = sorted((share for share, _ in rows), reverse=True)[:LEGEND][-1]
    shown = [patch for share, patch in rows if share >= least][:LEGEND]
    which = "largest" if decided.order == "max" else "smallest"
    _legend(ax, shown, f"{which} output" if len(rows) <= LEGEND else f"{LEGEND} of {len(rows)} classes")
    return f"{count_noun(len(decided), 'region')}, {count_noun(len(plane), 'polygon')}"


def compound(rings: list[Floats]) -> Any:
    """One path of many closed rings; holes run the other way round, so that they stay open."""
    from matplotlib.path import Path as Outline

    lengths = np.array([len(ring) for ring in rings])
    closed = np.concatenate([part for ring in rings for part in (ring, ring[:1])])
    codes = np.full(len(closed), Outline.LINETO, dtype=Outline.code_type)
    last = np.cumsum(lengths + 1) - 1
    codes[last], codes[last - lengths] = Outline.CLOSEPOLY, Outline.MOVETO
    return Outline(closed, codes)


def _draw_outline(ax: Axes, plane: PlaneRestriction) -> None:
    ax.fill(*plane.outline.numpy().T, facecolor="none", edgecolor=INK, linewidth=0.9, zorder=4)


def _draw_marks(ax: Axes, marks: dict[str, tuple[float, float]]) -> None:
    paper = {
        "boxstyle": "round,pad=0.15",
        "facecolor": "#FFFFFFC0",
        "edgecolor": "none",
    }  # a halo would make letters curves
    for name, at in marks.items():
        ax.plot(*at, marker="o", markersize=5.5, color=INK, markeredgecolor="white", linestyle="none", zorder=6)
        ax.annotate(plain_text(name), at, (6, 6), textcoords="offset points", weight="bold", bbox=paper, zorder=7)


def _frame(ax: Axes, plane: PlaneRestriction, said: str) -> None:
    low, high = (f(plane.outline.numpy(), axis=0) for f in (np.min, np.max))
    even = stretch(plane) == 1
    pad = 0.02 * ((high - low).max() if even else high - low) * np.ones(2)
    ax.set(xlim=(low[0] - pad[0], high[0] + pad[0]), ylim=(low[1] - pad[1], high[1] + pad[1]))
    ax.set_aspect("equal" if even else "auto")
    first, second = axis_names(plane)
    ax.set_xlabel(f"{first} ({said})")
    ax.set_ylabel(second)


def _legend(ax: Axes, rows: Sequence[Artist], title: str) -> None:
    ax.legend(handles=list(rows), title=title, loc="upper left", bbox_to_anchor=(1.01, 1.02), borderaxespad=0)
