"""Where pictures are drawn, and how they are saved."""

from __future__ import annotations

import io
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, FileError
from ..files import write_atomically
from ..optional import require_package
from .style import DARK_STYLE, STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PICTURE_FORMATS = ("png", "pdf", "svg")
FIGURE_FORMATS = ("png", "svg")  # that `save_figures` writes
VECTOR_DPI = 300  # of the parts of vector formats that are pixels
DrawFigure = Callable[[], "Figure"]


@contextmanager
def matplotlib_style(where: str, style: dict[Any, Any] = STYLE) -> Generator[None]:
    """Draw with matplotlib's settings changed; they are restored afterwards.

    Raises MissingError where matplotlib is not installed.
    """
    with require_package("Pictures need matplotlib.", where=where, hint='pip install "exactline[plot]"'):
        from matplotlib import rc_context
    with rc_context(style):
        yield


def get_axes(ax: Axes | None, width: float, height: float) -> Axes:
    """The given axes, or new ones of a size in inches; new ones belong to pyplot, so that notebooks show them."""
    if ax is not None:
        return check_axes(ax)
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def check_axes(ax: Axes) -> Axes:
    """Refuse anything but axes: most often the array of axes that ``plt.subplots(1, 2)`` returns."""
    from matplotlib.axes import Axes

    if isinstance(ax, Axes):
        return ax
    raise ArgumentError(
        f"A {type(ax).__name__} is not an axes of matplotlib.",
        where="argument ax",
        hint="Give one axes: of `figure, axes = plt.subplots(1, 2)` it is axes[0] or axes[1].",
    )


def save_picture(ax: Axes, path: str | Path) -> Path:
    """Write the figure that holds an axes, whole or not at all.

    Text stays text in SVG and PDF, equal pictures give equal files, and matplotlib's settings stay as they are.

    Args:
        ax: an axes of the figure.
        path: the file; its suffix chooses the format: png, pdf or svg.

    Raises FileError where the file cannot be written or the format is not known, ArgumentError where the axes has no
    figure.
    """
    path, figure = Path(path), check_axes(ax).get_figure(root=True)
    kind = path.suffix.lower().removeprefix(".")
    if figure is None:
        raise ArgumentError("These axes belong to no figure.", where="save_picture", hint="Give axes of a figure.")
    if kind not in PICTURE_FORMATS:
        raise FileError(
            "Pictures are .png, .pdf or .svg.", where=str(path), hint="Give a file name with one of these endings."
        )
    data = io.BytesIO()
    with matplotlib_style("save_picture"):
        dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": None}[kind]
        figure.savefig(data, format=kind, dpi=STYLE["savefig.dpi"] if kind == "png" else VECTOR_DPI, metadata=dates)
    write_atomically(path, data.getvalue())
    return path


def save_figures(
    figures: Sequence[tuple[str, DrawFigure]],  # names without endings, and functions that draw
    folder: Path,
    style: dict[Any, Any],
    where: str,
    progress: Callable[[float, str], None] | None = None,
    *,
    dark: bool = False,
) -> list[Path]:
    """Draw figures one after another and write each as PNG and SVG; returns the files.

    With ``dark``, each is also written as ``name-dark.png``, for dark pages.

    Raises MissingError where matplotlib is not installed, FileError where a file cannot be written.
    """
    written: list[Path] = []
    for done, (name, draw) in enumerate(figures):
        if progress is not None:
            progress(done / len(figures), f"drawing {name}")
        with matplotlib_style(where, style):
            figure = draw()
            _fix_layout(figure)
            for kind in FIGURE_FORMATS:
                written.append(_write_figure(figure, folder / f"{name}.{kind}"))
        if dark:
            with matplotlib_style(where, DARK_STYLE):
                twin = draw()
                _copy_layout(figure, twin)
                written.append(_write_figure(twin, folder / f"{name}-dark.png"))
    return written


def _write_figure(figure: Figure, path: Path) -> Path:
    """Write a figure in the format of the file's ending; equal figures give equal files."""
    kind, data = path.suffix.removeprefix("."), io.BytesIO()
    figure.savefig(data, format=kind, metadata={"Date": None} if kind == "svg" else None)
    write_atomically(path, data.getvalue())
    return path


def _fix_layout(figure: Figure) -> None:
    """Compute the layout once, at the resolution of the file; each format would compute it again."""
    from matplotlib import rcParams

    layout = figure.get_layout_engine()
    if layout is not None:
        if rcParams["savefig.dpi"] != "figure":
            figure.set_dpi(rcParams["savefig.dpi"])
        layout.execute(figure)
        figure.set_layout_engine(None)


def _copy_layout(source: Figure, target: Figure) -> None:
    """Put the axes of a figure where those of another are that was drawn alike, in other colours."""
    target.set_layout_engine(None)
    for old, new in zip(source.axes, target.axes, strict=True):
        new.set_position(old.get_position(original=True), which="original")
        new.set_position(old.get_position(), which="active")
