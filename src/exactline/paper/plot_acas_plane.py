"""Pictures of advisory maps: regions of advice with exact boundaries, in polar and Cartesian coordinates."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from math import degrees, pi
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Floats
from ..plot.figures import save_figures
from ..plot.plane import compound
from .plot_acas import PAPER, ownship

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .acas_plane import AdvisoryMap, Maps

Paint = Callable[["Axes", "AdvisoryMap"], None]

STEP = pi / 360  # of an edge that are drawn as one straight stroke: half a degree, 0.1 ft off at 12,000 ft
INK = "#222222"
TIED = "||||"
COLUMNS = 4


def draw(study: Maps, folder: Path, progress: Callable[[float, str], None] | None = None) -> list[Path]:
    """Write one picture per scenario and, of several, one of all in each kind of coordinates, as PNG and SVG.

    Raises MissingError where matplotlib is not installed, FileError where a file cannot be written.
    """
    return save_figures(_figures(study), folder, PAPER, "the advisory maps", progress)


def alone(study: Maps, m: AdvisoryMap) -> Figure:
    """One scenario in both coordinates."""
    figure = _figure(11.0, 4.9)
    polar, flat = figure.subplots(1, 2)
    paint_polar(polar, m)
    paint_cartesian(flat, m)
    _dressed(figure, study, f"{study.advisor.name}: {m.title}", [m])
    return figure


def together(study: Maps, paint: Paint, height: float = 3.6) -> Figure:
    """All scenarios in one kind of coordinates, one row for each pair of speeds."""
    rows = -(-len(study.maps) // COLUMNS)
    figure = _figure(16.0, height * rows + 0.8)
    axes = figure.subplots(rows, min(COLUMNS, len(study.maps)), squeeze=False)
    for ax, m in zip_longest(axes.flat, study.maps):
        if m is None:
            ax.set_axis_off()
            continue
        paint(ax, m)
        ax.set_title(m.title, fontsize="small", loc="left")
        ax.label_outer()
    _dressed(figure, study, study.advisor.name, list(study.maps))
    return figure


def paint_polar(ax: Axes, m: AdvisoryMap) -> None:
    """Distance to the right, bearing upwards; every edge is straight, as it is."""
    scale = np.array([1.0, degrees(1.0)])
    _fill(ax, m, lambda ring: ring * scale)
    _strokes(ax, list(m.decided.boundaries.numpy() * scale))
    ax.set(xlim=(0, m.reach), ylim=(-180, 180), yticks=range(-180, 181, 60), xlabel="rho (ft)")
    ax.set_ylabel("theta (degrees)")
    ax.locator_params(axis="x", nbins=5)


def paint_cartesian(ax: Axes, m: AdvisoryMap) -> None:
    """Around the ownship in the paper's box, its farthest corner where the map ends."""
    _fill(ax, m, lambda ring: placed(bent(ring)))
    segments = m.decided.boundaries.numpy()
    strokes = [placed(bent(s, closed=False)) for s in segments[np.ptp(segments[..., 1], axis=1) > STEP]]
    strokes += list(placed(segments[np.ptp(segments[..., 1], axis=1) <= STEP]))
    strokes += [np.array([[-low, 0.0], [-high, 0.0]]) for low, high in m.behind.tolist()]
    _strokes(ax, strokes)
    box = _box(m)
    ownship(ax, box)
    ax.set(xlim=box[:2], ylim=box[2:], aspect="equal", xlabel="ahead (ft)")
    ax.set_ylabel("left (ft)")
    ax.locator_params(axis="x", nbins=5)


def bent(ring: Floats, *, closed: bool = True) -> Floats:
    """A ring or path (n, 2) of rho and theta with enough points on its edges to be drawn round."""
    after = np.roll(ring, -1, 0) if closed else ring[1:]
    start = ring if closed else ring[:-1]
    count = np.maximum(np.ceil(np.abs(after[:, 1] - start[:, 1]) / STEP - 1e-9), 1).astype(np.int64)
    ends = count.cumsum()
    part = (np.arange(int(ends[-1])) - (ends - count).repeat(count)) / count.repeat(count)
    made = start.repeat(count, 0) + part[:, None] * (after - start).repeat(count, 0)
    return made if closed else np.concatenate([made, ring[-1:]])


def placed(polar: Floats) -> Floats:  # (..., 2) rho and theta -> (..., 2) x and y
    """Ahead and to the left, in feet."""
    rho, theta = polar[..., 0], polar[..., 1]
    return np.stack([rho * np.cos(theta), rho * np.sin(theta)], -1)


def _figures(study: Maps) -> list[tuple[str, Callable[[], Figure]]]:
    every: list[tuple[str, Callable[[], Figure]]] = []
    if len(study.maps) > 1:
        every += [("polar", partial(together, study, paint_polar))]
        every += [("cartesian", partial(together, study, paint_cartesian, 3.0))]
    return every + [(m.name, partial(alone, study, m)) for m in study.maps]


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _box(m: AdvisoryMap) -> tuple[float, float, float, float]:
    """The scene's box, larger or smaller where the map does not end at its farthest corner."""
    far = float(np.hypot(np.abs(m.scene.box[:2]).max(), np.abs(m.scene.box[2:]).max()))
    low, high, right, left = (side * m.reach / far for side in m.scene.box)
    return low, high, right, left


def _fill(ax: Axes, m: AdvisoryMap, drawn: Callable[[Floats], Floats]) -> None:
    """The regions in the colours of their advice, ties hatched."""
    from matplotlib.patches import PathPatch

    for label, tied in sorted({(r.label, bool(r.tied)) for r in m.decided}):
        rings = [drawn(ring.numpy()) for r in m.decided if (r.label, bool(r.tied)) == (label, tied) for ring in r.rings]
        # a thin stroke of its own colour hides the seam of neighbours that a viewer smooths apart
        look: dict[str, Any] = _look(label, tied) | {"linewidth": 0.3}
        ax.add_patch(PathPatch(compound(rings), **look, zorder=1))


def _look(label: int, tied: bool) -> dict[str, Any]:
    from .encounter import ADVISORIES

    colour = ADVISORIES[label].colour
    return {"facecolor": colour, "edgecolor": "white" if tied else colour, "hatch": TIED if tied else None}


def _strokes(ax: Axes, paths: list[Floats]) -> None:
    """Boundaries between different advice."""
    from matplotlib.collections import LineCollection

    some: Any = paths
    ax.add_collection(LineCollection(some, colors=INK, linewidths=0.4, capstyle="round", zorder=2), autolim=False)


def _dressed(figure: Figure, study: Maps, title: str, maps: list[AdvisoryMap]) -> None:
    from matplotlib.patches import Patch

    from .encounter import ADVISORIES

    rows = [Patch(facecolor=a.colour, label=a.name) for a in ADVISORIES]
    ties = sorted({(z.label, z.advisory) for m in maps for z in m.zones if z.tied})
    rows += [Patch(**_look(label, True), label=name) for label, name in ties]
    figure.legend(handles=rows, loc="outside lower center", ncols=5)
    figure.suptitle(title, fontsize="medium")
