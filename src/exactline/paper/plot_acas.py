"""Pictures of the ACAS Xu study: the paper's figure 2, six panels around the ownship."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..plot.figures import save_figures
from ..plot.line import STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .acas import Line, Study
    from .geometry import Track

STEP = 1.0  # degrees of an arc that are drawn as one straight stroke
PAPER: dict[Any, Any] = STYLE | {"svg.hashsalt": "exactline", "axes.spines.top": True, "axes.spines.right": True}


def draw(study: Study, folder: Path, progress: Callable[[float, str], None] | None = None) -> list[Path]:
    """Write the six panels and the figure that holds them all, as PNG and SVG, each whole or not at all.

    Raises MissingError where matplotlib is not installed, FileError where a file cannot be written.
    """
    pictures: list[tuple[str, Callable[[], Figure]]] = [("figure", partial(whole, study))]
    pictures += [(name, partial(panel, study, name)) for name in PANELS]
    return save_figures(pictures, folder, PAPER, "the ACAS Xu study", progress)


def panel(study: Study, name: str) -> Figure:
    """One panel with its legend."""
    figure = _figure(5.6, 4.9)
    ax = figure.subplots()
    _fill(ax, study, name)
    _legend(figure)
    figure.suptitle(_caption(study), fontsize="small", color="0.3")
    return figure


def whole(study: Study) -> Figure:
    """The six panels: exact lines above, samples of the same below."""
    figure = _figure(13.5, 7.2)
    axes = figure.subplots(2, 3)
    for column, names in enumerate(zip(*[iter(PANELS)] * 2, strict=True)):
        for row, name in enumerate(names):
            _fill(axes[row, column], study, name)
    _legend(figure)
    figure.suptitle(_caption(study), fontsize="medium")
    return figure


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _fill(ax: Axes, study: Study, name: str) -> None:
    title, paint = PANELS[name]
    paint(ax, study)
    ownship(ax, study.scene.box)
    x0, x1, y0, y1 = study.scene.box
    ax.set(xlim=(x0, x1), ylim=(y0, y1), aspect="equal")
    ax.locator_params(axis="x", nbins=5)
    ax.set_xlabel("ahead (ft)")
    ax.set_ylabel("left (ft)")
    ax.set_title(title, fontsize="medium", loc="left")


def _caption(study: Study) -> str:
    scene = study.scene
    return f"{study.advisor.name}: psi {scene.psi:g}°, ownship {scene.v_own:g} ft/s, intruder {scene.v_int:g} ft/s"


def _legend(figure: Figure) -> None:
    from matplotlib.lines import Line2D

    from .encounter import ADVISORIES

    marks = [Line2D([], [], color=a.colour, linewidth=4, label=a.name) for a in ADVISORIES]
    figure.legend(handles=marks, loc="outside lower center", ncols=len(marks) if figure.get_figwidth() > 8 else 3)


def ownship(ax: Axes, box: tuple[float, float, float, float]) -> None:
    """The ownship at the origin, flying to the right, a twenty-fifth of the box long."""
    size = (box[1] - box[0]) / 25
    half = [(0.5, 0), (0.4, 0.07), (0.15, 0.08), (-0.1, 0.5), (-0.2, 0.5), (-0.1, 0.08)]
    half += [(-0.35, 0.06), (-0.47, 0.2), (-0.53, 0.2), (-0.5, 0)]
    outline = np.array([*half, *((x, -y) for x, y in reversed(half))]) * size * 1.4
    ax.fill(*outline.T, facecolor="white", edgecolor="black", linewidth=0.8, zorder=5)


def _single(kind: Any, sampled: bool) -> Callable[[Axes, Study], None]:
    def paint(ax: Axes, study: Study) -> None:
        for line in study.of(kind):
            _dots(ax, line) if sampled else _strokes(ax, [line], 5.0)

    return paint


def _overlay(ax: Axes, study: Study) -> None:
    _strokes(ax, study.of("distance", "circle"), 1.6)


def _grid(ax: Axes, study: Study) -> None:
    colours = [_colour(int(label)) for label in study.grid_labels]
    ax.scatter(*study.grid.numpy().T, c=colours, s=14, linewidths=0, clip_on=False, zorder=3)


def _strokes(ax: Axes, lines: Sequence[Line], width: float) -> None:
    """Every stretch in its colour, ending where the advice changes."""
    from matplotlib.collections import LineCollection

    paths = [_path(line.track, s.start, s.stop) for line in lines for s in line.stretches]
    colours = [_colour(s.label) for line in lines for s in line.stretches]
    ax.add_collection(LineCollection(paths, colors=colours, linewidths=width, capstyle="butt"), autolim=False)


def _dots(ax: Axes, line: Line) -> None:
    places = np.array([line.track.place(alpha) for alpha, _ in line.samples])
    ax.scatter(*places.T, c=[_colour(label) for _, label in line.samples], s=40, linewidths=0, zorder=3)


def _path(track: Track, start: float, stop: float) -> Any:  # (points, 2)
    turn = abs(track.position(stop) - track.position(start)) if track.varies == "theta" else 0.0
    return np.array([track.place(float(a)) for a in np.linspace(start, stop, 2 + int(turn / STEP))])


def _colour(label: int) -> str:
    from .encounter import ADVISORIES

    return ADVISORIES[label].colour


PANELS: dict[str, tuple[str, Callable[[Axes, Study], None]]] = {  # in pairs: exact, and by samples
    "a_single_distance": ("(a) single line varying rho", _single("single distance", False)),
    "b_single_distance_samples": ("(b) sampling different rhos", _single("single distance", True)),
    "c_single_theta": ("(c) single line varying theta", _single("single theta", False)),
    "d_single_theta_samples": ("(d) sampling different thetas", _single("single theta", True)),
    "e_overlay": ("(e) lines varying rho and lines varying theta", _overlay),
    "f_grid_samples": ("(f) sampling finitely many points", _grid),
}
