"""Pictures of planes: every polygon with its edges by the node that bore them, or the classes with their boundaries."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, FileError, MissingError
from .band import checked_names
from .heat import place_name
from .plot import STYLE

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

    from ..plane.regions import Regions
    from ..plane.restriction import PlaneRestriction

Floats = NDArray[np.float64]

STYLES = ("regions", "decisions")
RASTER = 50_000  # with more polygons than this, fill and edges become pixels in vector formats
VECTOR_DPI = 300  # of those pixels
LONG = 5  # sides of planes longer than so many others are drawn in units of their own
LEGEND = 12  # nodes or classes that are named
# Paul Tol's light colours: fills that every kind of colour vision tells apart, under dark lines and letters.
FILLS = ("#77AADD", "#EE8866", "#EEDD88", "#44BB99", "#FFAABB", "#BBCC33", "#99DDFF", "#AAAA00", "#DDDDDD")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\")  # tell classes apart when the colours have been used up
TIED = "||||"
TINTS = ("#EAF1F8", "#FBEEE6", "#E8F4EE", "#FAF5DC", "#F5EAF1", "#F0F0F0")
INK = "#222222"
Look = tuple[str, str]  # colour and hatch
PAPER: dict[Any, Any] = STYLE | {"svg.hashsalt": "exactline"}


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
    try:
        import matplotlib.pyplot as plt
        from matplotlib import rc_context
    except ImportError as error:
        raise MissingError(
            "Pictures need matplotlib.", where="plot_plane", hint='pip install "exactline[plot]"'
        ) from error
    if style not in STYLES:
        raise ArgumentError(f"There is no style {style!r}.", where="plot_plane", hint="Give 'regions' or 'decisions'.")
    marks = marked(plane, points)
    with rc_context(STYLE):
        if ax is None:
            ax = plt.subplots(figsize=(7.2, 5.2), layout="constrained")[1]  # pyplot's, so that notebooks show it
        if style == "regions":
            said = _draw_regions(ax, plane)
        else:
            decided = plane.decisions(order) if decided is None else decided
            said = _draw_decisions(ax, plane, decided, labels, colors)
        _draw_outline(ax, plane)
        _draw_marks(ax, marks)
        _frame(ax, plane, said)
    return ax


def save_plane_picture(ax: Axes, path: str | Path) -> Path:
    """Write the figure that holds ``ax``, whole or not at all; the suffix chooses the format (png, pdf, svg).

    Raises FileError where the file cannot be written or the format is not known, ArgumentError for axes cut loose.
    """
    from matplotlib import rc_context

    from ..storage import write_atomically

    path, figure = Path(path), ax.get_figure(root=True)
    kind = path.suffix.lower().removeprefix(".")
    if figure is None:
        raise ArgumentError(
            "These axes belong to no figure.", where="save_plane_picture", hint="Give axes of a figure."
        )
    if kind not in ("png", "pdf", "svg"):
        raise FileError("Pictures are .png, .pdf or .svg.", where=str(path), hint="Name the file so.")
    data = io.BytesIO()
    with rc_context(PAPER):
        dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": None}[kind]  # same plane, same file
        figure.savefig(data, format=kind, dpi=STYLE["savefig.dpi"] if kind == "png" else VECTOR_DPI, metadata=dates)
    write_atomically(path, data.getvalue())
    return path


def marked(plane: PlaneRestriction, points: Any) -> dict[str, tuple[float, float]]:
    """Where in the plane a user's points are, by name; their numbers where they have none."""
    if points is None:
        return {}
    if isinstance(points, Mapping):
        named: dict[str, Any] = {str(name): point for name, point in points.items()}
        rows = [plane.coordinates(_alone(point)) for point in named.values()]
        places = [row[0].tolist() for row in rows]
    else:
        places = plane.coordinates(points).tolist()
        named = dict.fromkeys(map(str, range(len(places))))
    return {name: (float(x), float(y)) for name, (x, y) in zip(named, places, strict=True)}


def _alone(point: Any) -> Any:
    """One point as a batch of one."""
    import torch

    if isinstance(point, tuple):
        return tuple(torch.as_tensor(part, dtype=torch.float64)[None] for part in point)  # pyright: ignore
    return torch.as_tensor(point, dtype=torch.float64)[None]


def outputs_of(plane: PlaneRestriction) -> int:
    """How many outputs compete."""
    if plane.kept is not None:
        return prod(plane.kept[0].shape[1:])
    network = plane.known_network("the outputs of a plane")
    return prod(network.nodes[network.outputs[0]].shape)


def looks(plane: PlaneRestriction, decided: Regions, colors: Sequence[str] | None) -> dict[tuple[int, bool], Look]:
    """Colour and hatch of every class and tie that occurs: a class looks the same on every plane."""
    count = outputs_of(plane)
    if colors is not None and len(colors) != count:
        raise ArgumentError(
            f"There are {len(colors)} colours for {count} outputs.",
            where="colors",
            hint="Give one colour for each output.",
        )
    found: dict[tuple[int, bool], Look] = {}
    for label, tie in sorted({(r.label, bool(r.tied)) for r in decided}):
        turn, place = divmod(label, len(FILLS))
        colour = FILLS[place] if colors is None else colors[label]
        hatch = "" if colors is not None else HATCHES[turn % len(HATCHES)]
        found[label, tie] = colour, TIED if tie else hatch
    return found


def axis_names(plane: PlaneRestriction) -> tuple[str, str]:
    """Features where the plane varies two of them, else the numbers of its coordinates."""
    axes = plane.axes.numpy()
    plain = (np.abs(axes).max(1) == 1.0) & ((axes != 0).sum(1) == 1) & (axes.max(1) == 1.0)
    places = axes.argmax(1).tolist()
    if plain.all() and not plane.several_inputs and (plane.origin.numpy()[places] == 0).all():
        first, second = (place_name(at, tuple(plane.vertices[0].shape[1:])) for at in places)
        return first, second
    return "plane coordinate 0", "plane coordinate 1"


def stretch(plane: PlaneRestriction) -> float:
    """How much longer a unit is drawn upwards than across: 1, unless the plane is so long that one would see a line."""
    wide, high = (plane.outline.max(0).values - plane.outline.min(0).values).tolist()
    return 1.0 if max(wide, high) <= LONG * min(wide, high) else 0.75 * wide / high


def plain_text(text: str) -> str:
    """A name as letters only: dollars would begin a formula, a leading underscore would hide it from legends."""
    text = text.replace("$", r"\$")
    return f"\u200b{text}" if text.startswith("_") else text


def shaded(colours: int) -> list[str]:
    """So many colours from dark to light, in order."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colormaps["viridis"](0.75 * i / max(colours - 1, 1))) for i in range(colours)]


def _draw_regions(ax: Axes, plane: PlaneRestriction) -> str:
    from matplotlib.collections import LineCollection, PolyCollection
    from matplotlib.lines import Line2D

    raster, size = len(plane) > RASTER, _stroke(len(plane))
    corners, rings, offsets = plane.corners.numpy(), plane.rings.numpy(), plane.offsets.numpy()
    count, tints = np.diff(offsets), np.array(TINTS)
    for sides in np.unique(count).tolist():  # all triangles at once, all quadrangles, ...
        chosen = np.flatnonzero(count == sides)
        shapes: Any = corners[rings[offsets[chosen][:, None] + np.arange(sides)]]
        fill = PolyCollection(shapes, facecolors=tints[chosen % len(TINTS)], linewidths=0, rasterized=raster, zorder=1)
        ax.add_collection(fill, autolim=False)
    nodes, tally = _bearers(plane)
    rows: list[Artist] = []
    for rank, (node, colour) in enumerate(zip(nodes, shaded(len(nodes)), strict=True)):
        width = size * (1 - 0.5 * rank / max(len(nodes) - 1, 1))
        segments: Any = corners[plane.edges.numpy()[plane.births.numpy()[:, 0] == node]]
        lines = LineCollection(segments, colors=colour, linewidths=width, rasterized=raster, zorder=3 - rank / 1000)
        ax.add_collection(lines, autolim=False)
        name = plain_text(f"{plane.names[node]} ({tally[rank]:,})")
        rows.append(Line2D([], [], color=colour, linewidth=1 + 1.2 * width / size, label=name))
    if rows:
        some = sorted(np.argsort(tally)[::-1][:LEGEND].tolist())
        _legend(
            ax, [rows[i] for i in some], "edges born by" if len(rows) <= LEGEND else f"{LEGEND} of {len(rows)} nodes"
        )
    return f"{len(plane):,} polygon{'' if len(plane) == 1 else 's'}"


def _bearers(plane: PlaneRestriction) -> tuple[list[int], list[int]]:
    """Nodes that bore edges, in order, and how many each."""
    nodes, tally = np.unique(plane.births.numpy()[:, 0], return_counts=True)
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

    raster = len(plane) > RASTER
    names, look = checked_names(labels, outputs_of(plane)), looks(plane, decided, colors)
    total, rows = plane.area, list[tuple[float, Patch]]()
    for key, (colour, hatch) in look.items():
        members = [r for r in decided if (r.label, bool(r.tied)) == key]
        dress: dict[str, Any] = {"facecolor": colour, "edgecolor": "#FFFFFFAA", "hatch": hatch, "linewidth": 0}
        ax.add_patch(
            PathPatch(_compound([ring.numpy() for r in members for ring in r.rings]), **dress, rasterized=raster)
        )
        ties = sorted({r.tied for r in members})
        name = " or ".join(" = ".join(names[i] for i in tie) for tie in ties) if key[1] else names[key[0]]
        area = sum(r.area for r in members)
        rows.append((area, Patch(**dress, label=plain_text(f"{name}  {percent(area / total)}"))))
    between: Any = decided.boundaries.numpy()
    width = float(np.clip(40 / np.sqrt(max(len(between), 1)), 0.3, 1.1))
    ax.add_collection(LineCollection(between, colors=INK, linewidths=width, rasterized=raster, zorder=3), autolim=False)
    least = sorted((area for area, _ in rows), reverse=True)[:LEGEND][-1]
    shown = [patch for area, patch in rows if area >= least][:LEGEND]
    which = "largest" if decided.order == "max" else "smallest"
    _legend(ax, shown, f"{which} output" if len(rows) <= LEGEND else f"{LEGEND} of {len(rows)} classes")
    return f"{len(decided):,} region{'' if len(decided) == 1 else 's'}, {len(plane):,} polygons"


def percent(share: float) -> str:
    """A share in percent; what is there is never said to be 0 %, what is not all never 100 %.

    >>> percent(0.12345), percent(1.0), percent(1e-7), percent(0.99999999)
    ('12.3 %', '100 %', '<0.1 %', '>99.9 %')
    """
    if 0 < share < 0.001:
        return "<0.1 %"
    if 0.999 < share < 1 - 1e-12:
        return ">99.9 %"
    return f"{100 * share:.3g} %"


def _compound(rings: list[Floats]) -> Any:
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
