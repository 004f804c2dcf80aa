"""Pictures of a closed loop: the sets of states after some steps, and the largest angle over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ...plot.figure import save_figures
from ...plot.palette import CLASS_COLOURS
from ..drawing import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .reach import Reached, ReachStudy

SHOWN_STEPS = (1, 2, 4, 7, 11)  # whose sets of states are drawn, as far as there are so many, and the last step
STEP_COLOURS = ("#E6F0C8", "#A5D46A", "#4DB070", "#21918C", "#3B528B", "#440154")  # the later, the darker
CURVE_COLOUR, LIMIT_COLOUR = CLASS_COLOURS[:2]
EDGE_COLOUR = "#333333"
STYLE = {"font.size": 9.0, "axes.spines.top": False, "axes.spines.right": False}


def draw_study(study: ReachStudy) -> Figure:
    """Draw the sets of states in the plane of angle and velocity, and the largest angle after every step."""
    figure = new_figure(10.0, 3.8)
    left, right = figure.subplots(1, 2)
    (low, high), (slow, fast) = study.box
    left.plot([low, high, high, low, low], [slow, slow, fast, fast, slow], color=EDGE_COLOUR, label="start")
    for reached, colour in zip(_select_shown(study), STEP_COLOURS, strict=False):
        _draw_states(left, reached, colour)
    left.set(xlabel="angle (rad)", ylabel="velocity (rad/s)", title=study.name)
    left.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    steps = [r.steps for r in study.reached]
    largest = [r.largest_angle for r in study.reached]
    right.plot(steps, largest, color=CURVE_COLOUR, marker=".")
    right.axhline(study.limit, color=LIMIT_COLOUR, linestyle="--")
    offset, side = ((0, -3), "top") if largest[-1] > study.limit else ((0, 3), "bottom")  # away from the curve
    text = {"textcoords": "offset points", "ha": "right", "va": side, "color": LIMIT_COLOUR}
    right.annotate("limit", (steps[-1], study.limit), offset, **text)
    right.set(xlabel="steps", ylabel="largest angle (rad)", ylim=(0, 1.1 * max(study.limit, *largest)))
    right.xaxis.get_major_locator().set_params(integer=True)
    return figure


def _select_shown(study: ReachStudy) -> list[Reached]:
    """The steps whose states are drawn; the last one is always among them."""
    *earlier, last = study.reached
    return [*(r for r in earlier if r.steps in SHOWN_STEPS), last]


def _draw_states(ax: Axes, reached: Reached, colour: str) -> None:
    from matplotlib.collections import PolyCollection

    images = [image.numpy() for image in reached.images]
    plural = "s" if reached.steps > 1 else ""
    label = f"{reached.steps} step{plural}: {len(images):,} regions"
    patches = PolyCollection(images, facecolors=colour, edgecolors=EDGE_COLOUR, linewidths=0.2, alpha=0.8, label=label)
    ax.add_collection(patches)
    ax.autoscale_view()


def draw_figures(study: ReachStudy, folder: Path) -> list[Path]:
    """Write the picture as PNG and SVG.

    Raises MissingError if matplotlib is not installed, FileError if a file cannot be written.
    """
    return save_figures([("pendulum", lambda: draw_study(study))], folder, STYLE, "the closed loop")
