"""How pictures look: colours, matplotlib's settings, and names and numbers as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentError
from ..humanize import count_noun
from .palette import CLASS_COLOURS, DARK_CLASS_COLOURS, DARK_PAPER, is_dark_colour

COLOURS = CLASS_COLOURS  # of curves
DASHES = ("-", "--", ":")
GREY = "#BBBBBB"  # outputs that never lead
FRAME_GREY = "#999999"

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "lines.linewidth": 1.4,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # text stays text in vector formats
    "ps.fonttype": 42,
    "svg.fonttype": "none",
    "svg.hashsalt": "exactline",  # equal pictures give equal files
    "savefig.dpi": 160,
}
DARK_STYLE: dict[Any, Any] = STYLE | {
    "figure.facecolor": DARK_PAPER,
    "axes.facecolor": DARK_PAPER,
    "savefig.facecolor": DARK_PAPER,
    "text.color": "#E9EAEC",
    "axes.labelcolor": "#E9EAEC",
    "axes.edgecolor": "#A3A9B1",
    "xtick.color": "#A3A9B1",
    "ytick.color": "#A3A9B1",
    "xtick.labelcolor": "#D6D9DD",
    "ytick.labelcolor": "#D6D9DD",
    "grid.color": "#3B4048",
}


@dataclass(frozen=True)
class Theme:
    """Colours of everything but classes, on light or on dark paper."""

    is_dark: bool
    paper: str
    ink: str  # boundaries, outlines, names
    soft: str  # remarks, ticks of breaks
    faint: str  # outputs that never lead, auxiliary lines

    def colour(self, label: int) -> str:
        """The colour of a class."""
        colours = DARK_CLASS_COLOURS if self.is_dark else CLASS_COLOURS
        return colours[label % len(colours)]


LIGHT_THEME = Theme(is_dark=False, paper="#FFFFFF", ink="#222222", soft="#444444", faint=GREY)
DARK_THEME = Theme(is_dark=True, paper=DARK_PAPER, ink="#F2F2F2", soft="#B9BEC5", faint="#6B7178")


def current_theme() -> Theme:
    """The theme that fits the background that matplotlib is set to."""
    from matplotlib import rcParams
    from matplotlib.colors import to_hex

    return DARK_THEME if is_dark_colour(to_hex(rcParams["axes.facecolor"])) else LIGHT_THEME


def node_colours(count: int) -> list[str]:
    """A colour for each of several nodes, in order: the first layers have the most contrast to the paper."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    first, last = (1.0, 0.4) if current_theme().is_dark else (0.0, 0.75)
    return [to_hex(colormaps["viridis"](first + (last - first) * i / max(count - 1, 1))) for i in range(count)]


def check_labels(labels: Sequence[str] | None, count: int) -> list[str]:
    """A name for each output; by default its number.

    Raises ArgumentError where there are too few or too many.
    """
    if labels is None:
        return [str(i) for i in range(count)]
    if len(labels) != count:
        raise ArgumentError(
            f"That is {count_noun(len(labels), 'name')} for {count_noun(count, 'output')}.",
            where="argument labels",
            hint="Give one name for each output.",
        )
    return list(labels)


def escape_label(text: str) -> str:
    """A label that matplotlib shows as it is: dollars start no formula, a leading underscore hides no legend entry."""
    text = text.replace("$", r"\$")
    return f"\u200b{text}" if text.startswith("_") else text


def format_index(flat: int, shape: tuple[int, ...]) -> str:
    """A flat position in an array as an index.

    >>> format_index(3, (5,)), format_index(5, (2, 3)), format_index(0, ())
    ('x[3]', 'x[1, 2]', 'x')
    """
    return f"x[{', '.join(str(int(i)) for i in np.unravel_index(flat, shape))}]" if shape else "x"


def format_share(share: float) -> str:
    """A share in percent; a small share is never written as 0 %, and one below 1 never as 100 %.

    >>> format_share(0.12345), format_share(1.0), format_share(1e-7), format_share(0.99999999)
    ('12.3 %', '100 %', '<0.1 %', '>99.9 %')
    """
    if 0 < share < 0.001:
        return "<0.1 %"
    if 0.999 < share < 1 - 1e-12:
        return ">99.9 %"
    return f"{100 * share:.3g} %"
