"""Three maps around an aircraft: what samples show, what there is, and a closer look where they see nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..paper.encounter import ADVISORIES
from ..paper.plot_acas import ownship
from ..paper.plot_acas_plane import paint_cartesian, placed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..paper.acas import Study
    from ..paper.acas_plane import AdvisoryMap
    from .encounter import Hidden

ROOM = 1.9  # a closer look is so many times as wide as what it looks at
LEAST = 1600.0  # feet, so that samples around are seen


def draw_encounter(study: Study, chart: AdvisoryMap, hidden: list[Hidden]) -> Figure:
    """Samples, the exact map and a part of it."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch, Rectangle

    figure = Figure(figsize=(11.4, 3.55), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for ax in (left, middle, right):
        ax.spines[:].set_visible(True)
    _samples(left, study)
    paint_cartesian(middle, chart)
    middle.set_title(f"exact: {len(chart.zones)} regions", fontsize="medium", loc="left")
    if hidden:
        paint_cartesian(right, chart)
        right.patches[-1].remove()  # the aircraft, which is not to scale here
        box = _around(hidden[0])
        right.set(xlim=box[:2], ylim=box[2:])
        _dots(right, study, 55)
        right.set_title("a region without a sample", fontsize="medium", loc="left")
        frame: dict[str, Any] = {"fill": False, "edgecolor": "black", "linewidth": 1.2, "zorder": 6}
        middle.add_patch(Rectangle((box[0], box[2]), box[1] - box[0], box[3] - box[2], **frame))
        x, y = hidden[0].middle
        note = f"{hidden[0].advisory}:\n{hidden[0].area:,.0f} square feet"
        paper = {"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": "none", "alpha": 0.9}
        arrow = {"arrowstyle": "-", "color": "black", "linewidth": 0.8}
        above = box[3] - 0.13 * (box[3] - box[2])
        right.annotate(note, (x, y), (x, above), ha="center", va="center", bbox=paper, arrowprops=arrow, zorder=8)
    else:
        right.set_axis_off()
    for ax in (middle, right):
        ax.set_ylabel("")
    ring: dict[str, Any] = {"marker": "o", "color": "0.6", "linestyle": "none", "markeredgecolor": "0.3"}
    marks = [*(Patch(facecolor=a.colour, label=a.name) for a in ADVISORIES), Line2D([], [], **ring, label="a sample")]
    figure.legend(handles=marks, loc="outside lower center", ncols=len(marks))
    return figure


def _samples(ax: Axes, study: Study) -> None:
    box = study.scene.box
    _dots(ax, study, 11, edge="none")
    ownship(ax, box)
    ax.set(xlim=box[:2], ylim=box[2:], aspect="equal", xlabel="ahead (ft)", ylabel="left (ft)")
    ax.locator_params(axis="x", nbins=5)
    ax.set_title(f"{len(study.grid):,} samples", fontsize="medium", loc="left")


def _dots(ax: Axes, study: Study, size: float, edge: str = "white") -> None:
    colours = [ADVISORIES[label].colour for label in study.grid_labels.tolist()]
    look: dict[str, Any] = {"edgecolors": edge, "linewidths": 1.1, "zorder": 7, "clip_on": edge != "none"}
    ax.scatter(*study.grid.numpy().T, s=size, c=colours, **look)


def _around(one: Hidden) -> tuple[float, float, float, float]:
    """A box of the map's shape around a region."""
    corners = placed(one.ring)
    x, y = one.middle
    wide = max(LEAST, ROOM * float(np.ptp(corners[:, 0])), ROOM * 4 / 3 * float(np.ptp(corners[:, 1])))
    return x - wide / 2, x + wide / 2, y - wide * 3 / 8, y + wide * 3 / 8
