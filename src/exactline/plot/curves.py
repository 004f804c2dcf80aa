"""Pictures of sampling rules: how the error falls with the number of gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..optional import require_package
from .axes import axes_of
from .line import COLOURS, DASHES, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..attr.step_counts import Report


def plot_errors(report: Report, ax: Axes | None = None) -> Axes:
    """Draw each rule's error, the mean over inputs, against the number of gradients; both axes in decades.

    Raises MissingError where matplotlib is not installed.
    """
    with require_package("Pictures need matplotlib.", where="plot_errors", hint='pip install "exactline[plot]"'):
        from matplotlib import rc_context

    with rc_context(STYLE):
        ax = axes_of(ax, 6.0, 4.0)
        for place, (rule, errors) in enumerate(report.errors.items()):
            turn, colour = divmod(place, len(COLOURS))
            curve = errors.mean(0).numpy()
            ax.plot(range(1, len(curve) + 1), curve, DASHES[turn], color=COLOURS[colour], label=rule)
        ax.axhline(report.tolerance, color="0.6", linewidth=0.8)
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel("gradients")
        ax.set_ylabel("mean relative error")
        ax.legend()
    return ax
