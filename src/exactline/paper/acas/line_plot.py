"""Pictures of the line study: figure 2 of the paper, six panels around the ownship."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays import Floats
from ...plot.figure import save_figures
from ...plot.style import STYLE
from ..drawing import new_figure
from ..record import StudyProgress
from .advisor import ADVISORIES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .geometry import Track, TrackKind
    from .lines import LineAdvice, LineStudy

ARC_STEP_DEGREES = 1.0  # arcs are drawn in straight strokes of this angle
ACAS_STYLE: dict[Any, Any] = STYLE | {"axes.spines.top": True, "axes.spines.right": True}


def draw_figures(study: LineStudy, folder: Path, progress: StudyProgress | None = None) -> list[Path]:
    """Write the six panels and the overview of all six, as PNG and SVG, each file atomically.

    Raises MissingError if matplotlib is not installed, FileError if a file cannot be written.
    """
    figures: list[tuple[str, Callable[[], Figure]]] = [("figure", partial(draw_overview, study))]
    figures += [(name, partial(draw_panel, study, name)) for name in PANELS]
    return save_figures(figures, folder, ACAS_STYLE, "the ACAS Xu study", progress)


def draw_panel(study: LineStudy, name: str) -> Figure:
    """Draw one panel with its legend."""
    figure = new_figure(5.6, 4.9)
    ax = figure.subplots()
    _fill_panel(ax, study, name)
    _add_legend(figure)
    figure.suptitle(_format_caption(study), fontsize="small", color="0.3")
    return figure


def draw_overview(study: LineStudy) -> Figure:
    """Draw all six panels: exact lines above, samples of the same lines below."""
    figure = new_figure(13.5, 7.2)
    axes = figure.subplots(2, 3)
    for column, names in enumerate(zip(*[iter(PANELS)] * 2, strict=True)):
        for row, name in enumerate(names):
            _fill_panel(axes[row, column], study, name)
    _add_legend(figure)
    figure.suptitle(_format_caption(study), fontsize="medium")
    return figure


def draw_ownship(ax: Axes, box: tuple[float, float, float, float]) -> None:
    """Draw the ownship at the origin, heading right, at a size that fits the box."""
    size = (box[1] - box[0]) / 25
    half = [(0.5, 0), (0.4, 0.07), (0.15, 0.08), (-0.1, 0.5), (-0.2, 0.5), (-0.1, 0.08)]
    half += [(-0.35, 0.06), (-0.47, 0.2), (-0.53, 0.2), (-0.5, 0)]
    outline = np.array([*half, *((x, -y) for x, y in reversed(half))]) * size * 1.4
    ax.fill(*outline.T, facecolor="white", edgecolor="black", linewidth=0.8, zorder=5)


def _fill_panel(ax: Axes, study: LineStudy, name: str) -> None:
    title, draw = PANELS[name]
    draw(ax, study)
    draw_ownship(ax, study.geometry.box)
    x0, x1, y0, y1 = study.geometry.box
    ax.set(xlim=(x0, x1), ylim=(y0, y1), aspect="equal")
    ax.locator_params(axis="x", nbins=5)
    ax.set_xlabel("ahead (ft)")
    ax.set_ylabel("left (ft)")
    ax.set_title(title, fontsize="medium", loc="left")


def _format_caption(study: LineStudy) -> str:
    geometry = study.geometry
    speeds = f"ownship {geometry.v_own:g} ft/s, intruder {geometry.v_int:g} ft/s"
    return f"{study.advisor.name}: psi {geometry.psi:g}°, {speeds}"


def _add_legend(figure: Figure) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=a.colour, linewidth=4, label=a.name) for a in ADVISORIES]
    columns = len(handles) if figure.get_figwidth() > 8 else 3
    figure.legend(handles=handles, loc="outside lower center", ncols=columns)


def _draw_single(kind: TrackKind, sampled: bool) -> Callable[[Axes, LineStudy], None]:
    def draw(ax: Axes, study: LineStudy) -> None:
        for line in study.lines_of(kind):
            _draw_dots(ax, line) if sampled else _draw_strokes(ax, [line], 5.0)

    return draw


def _draw_overlay(ax: Axes, study: LineStudy) -> None:
    _draw_strokes(ax, study.lines_of("distance", "circle"), 1.6)


def _draw_grid(ax: Axes, study: LineStudy) -> None:
    colours = [ADVISORIES[label].colour for label in study.grid_labels.tolist()]
    ax.scatter(*study.grid.numpy().T, c=colours, s=14, linewidths=0, clip_on=False, zorder=3)


def _draw_strokes(ax: Axes, lines: Sequence[LineAdvice], width: float) -> None:
    """Draw every interval in the colour of its advice."""
    from matplotlib.collections import LineCollection

    paths: Any = [_sample_path(line.track, i.start, i.stop) for line in lines for i in line.intervals]
    colours = [ADVISORIES[i.label].colour for line in lines for i in line.intervals]
    ax.add_collection(LineCollection(paths, colors=colours, linewidths=width, capstyle="butt"), autolim=False)


def _draw_dots(ax: Axes, line: LineAdvice) -> None:
    places = np.array([line.track.xy(alpha) for alpha, _ in line.samples])
    colours = [ADVISORIES[label].colour for _, label in line.samples]
    ax.scatter(*places.T, c=colours, s=40, linewidths=0, zorder=3)


def _sample_path(track: Track, start: float, stop: float) -> Floats:  # (points, 2)
    angle = abs(track.varying_input(stop) - track.varying_input(start)) if track.varies == "theta" else 0.0
    alphas = np.linspace(start, stop, 2 + int(angle / ARC_STEP_DEGREES))
    return np.array([track.xy(float(alpha)) for alpha in alphas])


PANELS: dict[str, tuple[str, Callable[[Axes, LineStudy], None]]] = {  # in pairs: exact, sampled
    "a_single_distance": ("(a) single line varying rho", _draw_single("single distance", False)),
    "b_single_distance_samples": ("(b) sampling different rhos", _draw_single("single distance", True)),
    "c_single_theta": ("(c) single line varying theta", _draw_single("single theta", False)),
    "d_single_theta_samples": ("(d) sampling different thetas", _draw_single("single theta", True)),
    "e_overlay": ("(e) lines varying rho and lines varying theta", _draw_overlay),
    "f_grid_samples": ("(f) sampling finitely many points", _draw_grid),
}
