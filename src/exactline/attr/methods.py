"""Pictures of attributions: the functions of this package that call the layer above, `plot`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .step_counts import Report


def plot(
    attributions: Any,  # (*in) of one input
    input: Any = None,  # (*in)
    ax: Axes | None = None,
    *,
    title: str = "",
    limit: float | None = None,
    most: int = 15,
) -> Axes:
    """Draw attributions of an image as a heat map, its input beside it; of anything else as bars, the largest on top.

    Red speaks for the output, blue against it. ``limit`` is where the colours end, by default at the largest
    attribution; ``most`` is the number of bars. With an ``ax`` of yours only the map or the bars are drawn, into it.

    >>> found = plot([0.5, -3.0, 2.0], input=[1.0, 4.0, 9.0])
    >>> [label.get_text() for label in found.get_yticklabels()]
    ['x[1] = 4', 'x[2] = 9', 'x[0] = 1']

    Raises MissingError where matplotlib is not installed, ArgumentError for shapes that differ or numbers not finite.
    """
    from ..plot.heat import plot_attribution

    return plot_attribution(attributions, input, ax=ax, title=title, limit=limit, most=most)


def plot_error_curves(report: Report, ax: Axes | None) -> Axes:
    """Draw the mean error of each sampling rule against the number of gradients."""
    from ..plot.curves import plot_errors

    return plot_errors(report, ax)
