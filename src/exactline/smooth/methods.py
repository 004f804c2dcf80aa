"""Functions behind methods of curves that need later modules: plots, pages and files, imported on first use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .approximation import Approximation


def save_curve(curve: Approximation, path: str | Path) -> None:
    """`Approximation.save`."""
    from .storage import save_curve as save

    save(curve, Path(path))


def load_curve(path: str | Path) -> Approximation:
    """`Approximation.load`."""
    from .storage import load_curve as load

    return load(Path(path))


def plot_curve(curve: Approximation, ax: Axes | None, output: int, labels: Sequence[str] | None) -> Axes:
    """`Approximation.plot`."""
    from ..plot.curve import plot_curve as plot

    return plot(curve, ax, output=output, labels=labels)


def write_curve_page(curve: Approximation, path: str | Path, **options: Any) -> Path:
    """`Approximation.to_html`."""
    from ..plot.curve_page import write_curve_page

    return write_curve_page(curve, path, **options)
