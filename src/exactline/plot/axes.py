"""Where a picture is drawn: into axes of the caller's, or into new ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ArgumentError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def axes_of(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes that were given, or new ones of so many inches; pyplot's, so that notebooks show them."""
    if ax is not None:
        return checked_axes(ax)
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def checked_axes(ax: Axes) -> Axes:
    """Refuse what are no axes: most often the array of several that ``plt.subplots(1, 2)`` gives."""
    from matplotlib.axes import Axes

    if isinstance(ax, Axes):
        return ax
    raise ArgumentError(
        f"A {type(ax).__name__} is no axes of matplotlib.",
        where="argument ax",
        hint="Give one axes: of `figure, axes = plt.subplots(1, 2)` it is axes[0] or axes[1].",
    )
