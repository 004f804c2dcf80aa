"""What methods of decisions call in the layer above: pictures, imported on first use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .intervals import Decisions


def plot_decisions(decisions: Decisions, ax: Axes | None, labels: Sequence[str] | None) -> Axes:
    """`Decisions.plot`."""
    from ..plot.band import plot_band

    return plot_band(decisions, ax, names=labels)
