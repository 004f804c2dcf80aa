"""Figures into a folder: each as PNG and SVG, whole or not at all, and the same bytes for the same figure."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..optional import require_package

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
Make = Callable[[], "Figure"]


def save_figures(
    figures: Sequence[tuple[str, Make]],  # names without endings, and how each is drawn
    folder: Path,
    looks: dict[Any, Any],  # matplotlib's settings
    where: str,
    progress: Callable[[float, str], None] | None = None,
) -> list[Path]:
    """Draw and write them one after another; what was written.

    Raises MissingError where matplotlib is not installed, FileError where a file cannot be written.
    """
    from ..files import write_atomically

    with require_package("Pictures need matplotlib.", where=where, hint='pip install "exactline[plot]"'):
        from matplotlib import rc_context

    written: list[Path] = []
    with rc_context(looks):
        for done, (name, make) in enumerate(figures):
            if progress is not None:
                progress(done / len(figures), f"drawing {name}")
            figure = make()
            for kind in FORMATS:
                data = io.BytesIO()
                figure.savefig(data, format=kind, metadata={"Date": None} if kind == "svg" else None)
                write_atomically(folder / f"{name}.{kind}", data.getvalue())
                written.append(folder / f"{name}.{kind}")
                figure.set_layout_engine("none")  # laid out by the first; the second need not do it again
    return written
