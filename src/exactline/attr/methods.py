"""Functions of this package that call the layer above, `plot`, which is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .step_counts import SamplingReport


def plot(
    attributions: Any,
    input: Any = None,
    ax: Axes | None = None,
    *,
    title: str = "",
    limit: float | None = None,
    max_bars: int = 15,
) -> Axes:
    """Draw attributions: a heat map beside the input for an image, else bars, the largest on top.

    Positive attributions are red, negative ones blue.

    Args:
        attributions: The attributions of one input, (*in).
        input: The input, (*in), drawn beside the heat map or named at the bars.
        ax: The matplotlib axes to draw into; with it, only the heat map or the bars are drawn.
        title: The title.
        limit: The attribution at which the colour scale ends; by default the largest.
        max_bars: The largest number of bars.

    >>> axes = plot([0.5, -3.0, 2.0], input=[1.0, 4.0, 9.0])
    >>> [label.get_text() for label in axes.get_yticklabels()]
    ['x[1] = 4', 'x[2] = 9', 'x[0] = 1']

    Raises MissingError without matplotlib, ArgumentError for shapes that differ or numbers that are not finite.
    """
    from ..plot.attribution import plot_attribution

    return plot_attribution(attributions, input, ax=ax, title=title, limit=limit, max_bars=max_bars)


def plot_error_curves(report: SamplingReport, ax: Axes | None) -> Axes:
    """Draw the error curves of a report; see `SamplingReport.plot`."""
    from ..plot.attribution import plot_sampling_errors

    return plot_sampling_errors(report, ax)
