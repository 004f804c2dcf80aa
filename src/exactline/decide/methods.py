"""Methods of decisions that call the layer above, `plot`, which is imported on first use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .intervals import Decisions


def plot_decisions(decisions: Decisions, ax: Axes | None, labels: Sequence[str] | None) -> Axes:
    """Draw decisions; see `Decisions.plot`."""
    from ..plot.decisions import plot_decisions

    return plot_decisions(decisions, ax, labels=labels)
