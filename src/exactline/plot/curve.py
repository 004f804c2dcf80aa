"""A picture of a curve: outputs against alpha, and below them ticks for its breakpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import ArgumentError
from ..humanize import count_noun
from .figure import get_axes, matplotlib_style
from .line import MAX_TICKS, draw_curves, thin_ticks
from .style import current_theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..smooth.approximation import Approximation

CURVE_ALPHAS = 1001  # equally spaced positions at which a curve is drawn, besides its breakpoints
TICK_SPAN = (0.0, 0.03)  # of the picture's height


def plot_curve(
    curve: Approximation, ax: Axes | None = None, *, output: int = 0, labels: Sequence[str] | None = None
) -> Axes:
    """Draw the outputs against alpha, and the breakpoints as ticks below them.

    Args:
        curve: what to draw.
        ax: axes to draw into; by default new ones.
        output: which output, where the network has several.
        labels: a name for each coordinate of the output.

    Raises MissingError where matplotlib is not installed, ArgumentError for an output that does not exist.
    """
    if not 0 <= output < len(curve.output_shapes):
        raise ArgumentError(
            f"There is no output {output}.",
            where="argument output",
            hint=f"Give a number from 0 to {len(curve.output_shapes) - 1}.",
        )
    with matplotlib_style("plot_curve"):
        ends = curve.breakpoints.numpy()
        alphas = np.union1d(np.linspace(0.0, 1.0, CURVE_ALPHAS), ends)
        found = curve.at(alphas)
        values = (found[output] if isinstance(found, tuple) else found).reshape(len(alphas), -1).numpy()
        ax = get_axes(ax, 7.2, 4.0)
        draw_curves(ax, alphas, values, labels)
        ticks = ends[1:-1] if len(ends) <= MAX_TICKS else thin_ticks(ends[1:-1])
        ax.vlines(ticks, *TICK_SPAN, color=current_theme().soft, linewidth=0.6, transform=ax.get_xaxis_transform())
        ax.set_xlim(0, 1)
        ax.set_xlabel(f"alpha ({count_noun(len(curve), 'piece')}, {curve.status}, error {curve.error:.0e})")
        ax.set_ylabel("output")
    return ax
