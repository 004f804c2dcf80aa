"""Functions behind methods of results that need later modules: decisions, metrics, plots and files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..decide.extrema import Extrema, LevelSet
    from ..decide.intervals import Decisions, ManyDecisions
    from ..decide.regions import Regions
    from ..measures.line_metrics import LineMetrics
    from ..measures.plane_metrics import PlaneMetrics
    from .plane import PlaneRestriction
    from .restriction import Restriction
    from .restrictions import Restrictions


def decide_line(
    line: Restriction,
    order: str,
    top: int,
    output: str | int | None,
    threshold: float | None,
    rivals: Sequence[int] | None,
) -> Decisions:
    """`Restriction.decisions`."""
    from ..decide.decisions import find_decisions

    return find_decisions(line, order, top, output, threshold, rivals)


def decide_lines(
    lines: Restrictions,
    order: str,
    top: int,
    output: str | int | None,
    threshold: float | None,
    rivals: Sequence[int] | None,
) -> ManyDecisions:
    """`Restrictions.decisions`."""
    from ..decide.decisions import find_decisions_of_lines

    return find_decisions_of_lines(lines, order, top, output, threshold, rivals)


def line_extrema(line: Restriction, weights: Any, output: str | int | None) -> Extrema:
    """`Restriction.extrema`."""
    from ..decide.extrema import find_extrema

    return find_extrema(line, weights, output)


def line_level(line: Restriction, weights: Any, c: float, output: str | int | None) -> LevelSet:
    """`Restriction.level`."""
    from ..decide.extrema import find_level_set

    return find_level_set(line, weights, c, output)


def decide_plane(
    plane: PlaneRestriction,
    order: str,
    output: str | int | None,
    threshold: float | None,
    rivals: Sequence[int] | None,
) -> Regions:
    """`PlaneRestriction.decisions`."""
    from ..decide.regions import find_regions

    return find_regions(plane, order, output, threshold, rivals)


def measure_line(line: Restriction, output: str | int | None) -> LineMetrics:
    """`Restriction.metrics`."""
    from ..measures.line_metrics import measure_line as measure

    return measure(line, output)


def measure_plane(plane: PlaneRestriction) -> PlaneMetrics:
    """`PlaneRestriction.metrics`."""
    from ..measures.plane_metrics import measure_plane as measure

    return measure(plane)


def plot_line(line: Restriction, ax: Axes | None, output: int, labels: Sequence[str] | None) -> Axes:
    """`Restriction.plot`."""
    from ..plot.line import plot_line as plot

    return plot(line, ax, output=output, labels=labels)


def write_line_page(line: Restriction, path: str | Path, **options: Any) -> Path:
    """`Restriction.to_html`."""
    from ..plot.line_page import write_line_page

    return write_line_page(line, path, **options)


def plot_plane(plane: PlaneRestriction, ax: Axes | None, **options: Any) -> Axes:
    """`PlaneRestriction.plot`."""
    from ..plot.plane import plot_plane as plot

    return plot(plane, ax, **options)


def write_plane_page(plane: PlaneRestriction, path: str | Path, **options: Any) -> Path:
    """`PlaneRestriction.to_html`."""
    from ..plot.plane_page import write_plane_page

    return write_plane_page(plane, path, **options)


def save_line(line: Restriction, path: str | Path) -> None:
    """`Restriction.save`."""
    from .storage import save_line as save

    save(line, Path(path))


def load_line(path: str | Path, model: Any) -> Restriction:
    """`Restriction.load`."""
    from .storage import load_line as load

    return load(Path(path), model)


def save_plane(plane: PlaneRestriction, path: str | Path) -> None:
    """`PlaneRestriction.save`."""
    from .storage import save_plane as save

    save(plane, Path(path))


def load_plane(path: str | Path, model: Any) -> PlaneRestriction:
    """`PlaneRestriction.load`."""
    from .storage import load_plane as load

    return load(Path(path), model)


def line_html(line: Restriction) -> str:
    """`Restriction._repr_html_`."""
    from ..plot.tables import line_html as html

    return html(line)


def lines_html(lines: Restrictions) -> str:
    """`Restrictions._repr_html_`."""
    from ..plot.tables import lines_html as html

    return html(lines)


def plane_html(plane: PlaneRestriction) -> str:
    """`PlaneRestriction._repr_html_`."""
    from ..plot.tables import plane_html as html

    return html(plane)
