"""What methods of results call in the layers above: decisions and pictures, imported on first use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..decide.extrema import Crossings, Extrema
    from ..decide.intervals import Decisions, ManyDecisions
    from ..decide.regions import Regions
    from .plane import PlaneRestriction
    from .restriction import Restriction
    from .restrictions import Restrictions


def decide_line(line: Restriction, order: str, top: int, output: int | None) -> Decisions:
    """`Restriction.decisions`."""
    from ..decide.decisions import decisions_of_line

    return decisions_of_line(line, order, top, output)


def decide_lines(lines: Restrictions, order: str, top: int, output: int | None) -> ManyDecisions:
    """`Restrictions.decisions`."""
    from ..decide.decisions import decisions_of_lines

    return decisions_of_lines(lines, order, top, output)


def line_extrema(line: Restriction, weights: Any, output: int | None) -> Extrema:
    """`Restriction.extrema`."""
    from ..decide.extrema import extrema_of_line

    return extrema_of_line(line, weights, output)


def line_level(line: Restriction, weights: Any, c: float, output: int | None) -> Crossings:
    """`Restriction.level`."""
    from ..decide.extrema import level_of_line

    return level_of_line(line, weights, c, output)


def decide_plane(plane: PlaneRestriction, order: str) -> Regions:
    """`PlaneRestriction.decisions`."""
    from ..decide.regions import regions

    return regions(plane, order)


def plot_line(line: Restriction, ax: Axes | None, output: int, labels: Sequence[str] | None) -> Axes:
    """`Restriction.plot`."""
    from ..plot.line import plot_line as plot

    return plot(line, ax, output=output, labels=labels)


def write_line_page(line: Restriction, path: str | Path, **options: Any) -> Path:
    """`Restriction.to_html`."""
    from ..plot.line_page import write_report

    return write_report(line, path, **options)


def plot_plane(plane: PlaneRestriction, ax: Axes | None, **options: Any) -> Axes:
    """`PlaneRestriction.plot`."""
    from ..plot.plane import plot_plane as plot

    return plot(plane, ax, **options)


def write_plane_page(plane: PlaneRestriction, path: str | Path, **options: Any) -> Path:
    """`PlaneRestriction.to_html`."""
    from ..plot.plane_page import write_page

    return write_page(plane, path, **options)


def line_html(line: Restriction) -> str:
    """`Restriction._repr_html_`."""
    from ..plot.repr_html import line_html as html

    return html(line)


def lines_html(lines: Restrictions) -> str:
    """`Restrictions._repr_html_`."""
    from ..plot.repr_html import lines_html as html

    return html(lines)


def plane_html(plane: PlaneRestriction) -> str:
    """`PlaneRestriction._repr_html_`."""
    from ..plot.repr_html import plane_html as html

    return html(plane)
