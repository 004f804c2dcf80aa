"""The picture of the fourth chapter: samples around an aircraft, the exact map, and a region without a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..paper.acas.advisor import ADVISORIES
from ..paper.acas.line_plot import draw_ownship
from ..paper.acas.map_plot import paint_cartesian, to_cartesian

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..paper.acas.lines import LineStudy
    from ..paper.acas.maps import AdvisoryMap
    from .encounter import UnsampledRegion

DETAIL_MARGIN = 1.9  # width of the detail over that of its region
MIN_DETAIL_FEET = 1600.0  # so that the samples around the region are visible


def plot_encounter_maps(study: LineStudy, chart: AdvisoryMap, unsampled: list[UnsampledRegion]) -> Figure:
    """Draw the samples, the exact map, and a detail of it around the largest region without a sample."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    figure = Figure(figsize=(11.4, 3.55), layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    for ax in (left, middle, right):
        ax.spines[:].set_visible(True)
    _draw_samples(left, study)
    paint_cartesian(middle, chart)
    middle.set_title(f"exact: {len(chart.regions)} regions", fontsize="medium", loc="left")
    if unsampled:
        _draw_detail(right, middle, study, chart, unsampled[0])
    else:
        right.set_axis_off()
    for ax in (middle, right):
        ax.set_ylabel("")
    marker: dict[str, Any] = {"marker": "o", "color": "0.6", "linestyle": "none", "markeredgecolor": "0.3"}
    rows = [*(Patch(facecolor=a.colour, label=a.name) for a in ADVISORIES), Line2D([], [], **marker, label="a sample")]
    figure.legend(handles=rows, loc="outside lower center", ncols=len(rows))
    return figure


def _draw_samples(ax: Axes, study: LineStudy) -> None:
    box = study.geometry.box
    _draw_dots(ax, study, 11, edge="none")
    draw_ownship(ax, box)
    ax.set(xlim=box[:2], ylim=box[2:], aspect="equal", xlabel="ahead (ft)", ylabel="left (ft)")
    ax.locator_params(axis="x", nbins=5)
    ax.set_title(f"{len(study.grid):,} samples", fontsize="medium", loc="left")


def _draw_detail(ax: Axes, whole: Axes, study: LineStudy, chart: AdvisoryMap, region: UnsampledRegion) -> None:
    """Draw a region with its name, and a frame around it on the whole map."""
    from matplotlib.patches import Rectangle

    paint_cartesian(ax, chart)
    ax.patches[-1].remove()  # the aircraft, which is not to scale here
    left, right, bottom, top = _detail_box(region)
    ax.set(xlim=(left, right), ylim=(bottom, top))
    _draw_dots(ax, study, 55)
    ax.set_title("a region without a sample", fontsize="medium", loc="left")
    frame: dict[str, Any] = {"fill": False, "edgecolor": "black", "linewidth": 1.2, "zorder": 6}
    whole.add_patch(Rectangle((left, bottom), right - left, top - bottom, **frame))
    x, y = region.middle
    text = f"{region.advisory}:\n{region.area:,.0f} square feet"
    box = {"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": "none", "alpha": 0.9}
    arrow = {"arrowstyle": "-", "color": "black", "linewidth": 0.8}
    above = (x, top - 0.13 * (top - bottom))
    place: dict[str, Any] = {"ha": "center", "va": "center", "zorder": 8}
    ax.annotate(text, (x, y), above, color="black", bbox=box, arrowprops=arrow, **place)  # on dark pages too


def _draw_dots(ax: Axes, study: LineStudy, size: float, edge: str = "white") -> None:
    colours = [ADVISORIES[label].colour for label in study.grid_labels.tolist()]
    style: dict[str, Any] = {"edgecolors": edge, "linewidths": 1.1, "zorder": 7, "clip_on": edge != "none"}
    ax.scatter(*study.grid.numpy().T, s=size, c=colours, **style)


def _detail_box(region: UnsampledRegion) -> tuple[float, float, float, float]:
    """A box of the map's aspect ratio around a region: left, right, bottom, top."""
    width, height = np.ptp(to_cartesian(region.ring), axis=0).tolist()
    x, y = region.middle
    wide = max(MIN_DETAIL_FEET, DETAIL_MARGIN * width, DETAIL_MARGIN * 4 / 3 * height)
    return x - wide / 2, x + wide / 2, y - wide * 3 / 8, y + wide * 3 / 8
