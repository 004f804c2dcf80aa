"""What the pictures of all studies share: empty figures, and ticks for many breaks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..arrays import Floats
from ..plot.line import MAX_TICKS, thin_ticks

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches, with a constrained layout."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def limit_ticks(breaks: Floats) -> Floats:  # (breaks,) -> (ticks,)
    """Thin the ticks out where there are more breaks than a picture can show."""
    return breaks if len(breaks) <= MAX_TICKS else thin_ticks(breaks)
