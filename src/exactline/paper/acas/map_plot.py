"""Pictures of advisory maps: regions of advice with exact boundaries, in polar and Cartesian coordinates."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import zip_longest
from math import degrees, pi
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays import Floats
from ...plot.figure import save_figures
from ...plot.paths import compound_path
from ..drawing import new_figure
from ..record import StudyProgress
from .advisor import ADVISORIES
from .line_plot import ACAS_STYLE, draw_ownship

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .maps import AdvisoryMap, AdvisoryMaps

PaintMap = Callable[["Axes", "AdvisoryMap"], None]

EDGE_STEP_RADIANS = pi / 360  # curved edges are drawn in straight strokes of half a degree: 0.1 ft off at 12,000 ft
BOUNDARY_COLOUR = "#222222"
TIE_HATCH = "||||"
MAPS_PER_ROW = 4


def draw_figures(study: AdvisoryMaps, folder: Path, progress: StudyProgress | None = None) -> list[Path]:
    """Write a picture of each map, and of all maps in both coordinate systems, as PNG and SVG.

    Raises MissingError if matplotlib is not installed, FileError if a file cannot be written.
    """
    return save_figures(_list_figures(study), folder, ACAS_STYLE, "the advisory maps", progress)


def draw_map(study: AdvisoryMaps, m: AdvisoryMap) -> Figure:
    """Draw one map in both coordinate systems."""
    figure = new_figure(11.0, 4.9)
    polar, cartesian = figure.subplots(1, 2)
    paint_polar(polar, m)
    paint_cartesian(cartesian, m)
    _add_legend(figure, f"{study.advisor.name}: {m.title}", [m])
    return figure


def draw_all_maps(study: AdvisoryMaps, paint: PaintMap, height: float = 3.6) -> Figure:
    """Draw all maps in one coordinate system, four to a row."""
    rows = -(-len(study.maps) // MAPS_PER_ROW)
    figure = new_figure(16.0, height * rows + 0.8)
    axes = figure.subplots(rows, min(MAPS_PER_ROW, len(study.maps)), squeeze=False)
    for ax, m in zip_longest(axes.flat, study.maps):
        if m is None:
            ax.set_axis_off()
            continue
        paint(ax, m)
        ax.set_title(m.title, fontsize="small", loc="left")
        ax.label_outer()
    _add_legend(figure, study.advisor.name, list(study.maps))
    return figure


def paint_polar(ax: Axes, m: AdvisoryMap) -> None:
    """Draw a map with distance to the right and bearing upwards; every edge is straight."""
    scale = np.array([1.0, degrees(1.0)])
    _fill_regions(ax, m, lambda ring: ring * scale)
    _draw_boundaries(ax, list(m.decisions.boundaries.numpy() * scale))
    ax.set(xlim=(0, m.reach), ylim=(-180, 180), yticks=range(-180, 181, 60), xlabel="rho (ft)")
    ax.set_ylabel("theta (degrees)")
    ax.locator_params(axis="x", nbins=5)


def paint_cartesian(ax: Axes, m: AdvisoryMap) -> None:
    """Draw a map around the ownship, in a box of the shape of the paper's."""
    _fill_regions(ax, m, lambda ring: to_cartesian(bend_edges(ring)))
    segments = m.decisions.boundaries.numpy()
    is_curved = np.ptp(segments[..., 1], axis=1) > EDGE_STEP_RADIANS
    strokes = [to_cartesian(bend_edges(segment, closed=False)) for segment in segments[is_curved]]
    strokes += list(to_cartesian(segments[~is_curved]))
    strokes += [np.array([[-low, 0.0], [-high, 0.0]]) for low, high in m.rear_boundaries.tolist()]
    _draw_boundaries(ax, strokes)
    box = _compute_box(m)
    draw_ownship(ax, box)
    ax.set(xlim=box[:2], ylim=box[2:], aspect="equal", xlabel="ahead (ft)")
    ax.set_ylabel("left (ft)")
    ax.locator_params(axis="x", nbins=5)


def bend_edges(ring: Floats, *, closed: bool = True) -> Floats:  # (n, 2) -> (m, 2) rho and theta
    """Insert points on the edges of a ring or path so that curves look round when drawn in Cartesian coordinates."""
    after = np.roll(ring, -1, 0) if closed else ring[1:]
    start = ring if closed else ring[:-1]
    count = np.maximum(np.ceil(np.abs(after[:, 1] - start[:, 1]) / EDGE_STEP_RADIANS - 1e-9), 1).astype(np.int64)
    ends = count.cumsum()
    fraction = (np.arange(int(ends[-1])) - (ends - count).repeat(count)) / count.repeat(count)
    points = start.repeat(count, 0) + fraction[:, None] * (after - start).repeat(count, 0)
    return points if closed else np.concatenate([points, ring[-1:]])


def to_cartesian(polar: Floats) -> Floats:  # (..., 2) rho and theta -> (..., 2) x and y
    """Convert to feet ahead and feet to the left."""
    rho, theta = polar[..., 0], polar[..., 1]
    return np.stack([rho * np.cos(theta), rho * np.sin(theta)], -1)


def _list_figures(study: AdvisoryMaps) -> list[tuple[str, Callable[[], Figure]]]:
    figures: list[tuple[str, Callable[[], Figure]]] = []
    if len(study.maps) > 1:
        figures += [("polar", partial(draw_all_maps, study, paint_polar))]
        figures += [("cartesian", partial(draw_all_maps, study, paint_cartesian, 3.0))]
    return figures + [(m.file_stem, partial(draw_map, study, m)) for m in study.maps]


def _compute_box(m: AdvisoryMap) -> tuple[float, float, float, float]:
    """Scale the paper's box so that its farthest corner lies where the map ends."""
    far = float(np.hypot(np.abs(m.geometry.box[:2]).max(), np.abs(m.geometry.box[2:]).max()))
    low, high, right, left = (side * m.reach / far for side in m.geometry.box)
    return low, high, right, left


def _fill_regions(ax: Axes, m: AdvisoryMap, transform: Callable[[Floats], Floats]) -> None:
    """Fill the regions with the colours of their advice; ties are hatched."""
    from matplotlib.patches import PathPatch

    for label, tied in sorted({(r.label, bool(r.tied)) for r in m.decisions}):
        regions = [r for r in m.decisions if (r.label, bool(r.tied)) == (label, tied)]
        rings = [transform(ring.numpy()) for r in regions for ring in r.rings]
        # A thin outline of the fill colour hides the gaps that antialiasing leaves between neighbouring patches.
        ax.add_patch(PathPatch(compound_path(rings), **(_patch_style(label, tied) | {"linewidth": 0.3}), zorder=1))


def _patch_style(label: int, tied: bool) -> dict[str, Any]:
    colour = ADVISORIES[label].colour
    return {"facecolor": colour, "edgecolor": "white" if tied else colour, "hatch": TIE_HATCH if tied else None}


def _draw_boundaries(ax: Axes, paths: Any) -> None:
    """Draw the boundaries between regions of different advice."""
    from matplotlib.collections import LineCollection

    lines = LineCollection(paths, colors=BOUNDARY_COLOUR, linewidths=0.4, capstyle="round", zorder=2)
    ax.add_collection(lines, autolim=False)


def _add_legend(figure: Figure, title: str, maps: list[AdvisoryMap]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(facecolor=a.colour, label=a.name) for a in ADVISORIES]
    ties = sorted({(region.label, region.advisory) for m in maps for region in m.regions if region.tied})
    handles += [Patch(**_patch_style(label, True), label=name) for label, name in ties]
    figure.legend(handles=handles, loc="outside lower center", ncols=5)
    figure.suptitle(title, fontsize="medium")
