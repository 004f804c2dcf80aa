"""``exactline study acas``: advice along lines, or with ``--plane`` on whole maps, as pictures and tables."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...console.options import AsJsonTables, DrawPictures, ShowProgress, StudyFolder
from ...console.output import make_folder, print_files, print_json, print_note, print_rich, require_matplotlib
from ...console.progress_bar import rescale_progress, show_study_progress
from ...errors import ArgumentError
from ...humanize import count_noun

if TYPE_CHECKING:
    from rich.table import Table

    from ..acas.geometry import EncounterGeometry, TrackKind
    from ..acas.lines import LineStudy
    from ..acas.maps import AdvisoryMaps

COUNT_COLUMNS = ("count", "mean", "least", "most", "intervals", "missed")


def acas(
    out: StudyFolder,
    network: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A network with five inputs and five costs, .nnet or .onnx; default: a bundled one."
        ),
    ] = None,
    psi: Annotated[
        float | None,
        typer.Option(help="Heading of the intruder in degrees, -180 to 180; 180 is head on.", show_default="-180"),
    ] = None,
    v_own: Annotated[
        float | None, typer.Option(help="Speed of the ownship in feet per second.", show_default="150")
    ] = None,
    v_int: Annotated[
        float | None, typer.Option(help="Speed of the intruder in feet per second.", show_default="150")
    ] = None,
    plane: Annotated[
        bool,
        typer.Option(
            "--plane", help="Map all distances and bearings; of eight encounters if no heading or speed is given."
        ),
    ] = False,
    rho: Annotated[
        float | None, typer.Option(help="Radius of the maps of --plane in feet.", show_default="11662")
    ] = None,
    normalize: Annotated[
        bool | None,
        typer.Option(
            "--normalize/--no-normalize",
            help="Normalize the inputs: of a .nnet as the file specifies, of an .onnx with the constants of ACAS Xu.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJsonTables = False,
    pictures: DrawPictures = True,
    progress: ShowProgress = True,
) -> None:
    """Study the advice of a collision-avoidance network: exact lines, samples, and what the samples missed.

    Without --network it studies a small bundled network, which is not ACAS Xu.

    With --plane it computes maps instead: every region of constant advice, however small, and its area.

    Example: exactline study acas --network ACASXU_1_1.nnet --out acas

    Example: exactline study acas --plane --psi 90 --rho 60760 --out maps
    """
    if pictures:
        require_matplotlib("study acas", ", or give --no-pictures")
    if rho is not None and not plane:
        raise ArgumentError("--rho is an option of maps.", where="option --rho", hint="Give --plane too.")
    from ..acas.geometry import EncounterGeometry

    geometry = EncounterGeometry(
        psi=-180 if psi is None else psi, v_own=150 if v_own is None else v_own, v_int=150 if v_int is None else v_int
    )
    folder = make_folder(out)
    with show_study_progress(progress) as report:
        if plane:
            geometries = None if psi is v_own is v_int is None else [geometry]
            print_result = _run_maps(
                network, geometries, rho, normalize=normalize, folder=folder, pictures=pictures, report=report
            )
        else:
            print_result = _run_lines(
                network, geometry, normalize=normalize, folder=folder, pictures=pictures, report=report
            )
    print_result(as_json)


def _run_lines(
    network: Path | None,
    geometry: EncounterGeometry,
    *,
    normalize: bool | None,
    folder: Path,
    pictures: bool,
    report: Callable[[float, str], None],
) -> Callable[[bool], None]:
    """Study lines and write the files; returns a function that prints the result."""
    from ..acas import lines
    from ..acas.line_report import describe_clipping, save_report

    study = lines.run(network, geometry, normalize=normalize, progress=rescale_progress(report, 0.0, 0.5))
    written = save_report(study, folder)
    if pictures:
        from ..acas.line_plot import draw_figures

        written += draw_figures(study, folder, rescale_progress(report, 0.5, 1.0))

    def print_result(as_json: bool) -> None:
        for text in describe_clipping(study):
            print_note(text)
        if as_json:
            print_json(_build_document(study, written))
            return
        print_rich(f"{study.advisor.name}; {study.advisor.note}", _build_table(study), _summarize_missed(study))
        print_files(folder, [path.name for path in written])

    return print_result


def _build_table(study: LineStudy) -> Table:
    from rich.table import Table

    from ..acas.line_report import KIND_TITLES

    table = Table(title="breaks per line, both ends counted", title_justify="left")
    for name in ("lines", *COUNT_COLUMNS):
        table.add_column(name, justify="left" if name == "lines" else "right")
    for kind, title in KIND_TITLES.items():
        counts = _count_lines(study, kind)
        table.add_row(title, *(f"{n:.1f}" if name == "mean" else str(n) for name, n in counts.items()))
    return table


def _count_lines(study: LineStudy, kind: TrackKind) -> dict[str, float]:
    """Count lines, breaks and intervals of one kind, by the names of COUNT_COLUMNS."""
    lines, (mean, least, most) = study.lines_of(kind), study.break_statistics(kind)
    intervals = sum(len(line.intervals) for line in lines)
    missed = sum(m.line.track.kind == kind for m in study.missed)
    return dict(zip(COUNT_COLUMNS, (len(lines), mean, least, most, intervals, missed), strict=True))


def _build_document(study: LineStudy, written: list[Path]) -> dict[str, Any]:
    from ..acas.line_report import KIND_TITLES

    return {
        "network": study.advisor.name,
        "note": study.advisor.note,
        "lines": {kind: _count_lines(study, kind) for kind in KIND_TITLES},
        "missed": len(study.missed),
        "missed_off_grid": sum(m.off_grid for m in study.missed),
        "seconds": study.seconds,
        "files": [str(path) for path in written],
    }


def _summarize_missed(study: LineStudy) -> str:
    hidden = sum(m.off_grid for m in study.missed)
    return (
        f"{count_noun(len(study.missed), 'interval')} between the {study.geometry.samples} samples of their lines, "
        f"{hidden:,} of them not visible on the grid either"
    )


def _run_maps(
    network: Path | None,
    geometries: list[EncounterGeometry] | None,
    rho: float | None,
    *,
    normalize: bool | None,
    folder: Path,
    pictures: bool,
    report: Callable[[float, str], None],
) -> Callable[[bool], None]:
    """Compute maps and write the files; returns a function that prints the result."""
    from ..acas import maps
    from ..acas.map_report import describe_clipping, save_report

    reach = maps.DEFAULT_REACH_FEET if rho is None else rho
    computed = 0.4 if pictures else 1.0  # share of the progress bar
    study = maps.run(
        network, geometries, reach=reach, normalize=normalize, progress=rescale_progress(report, 0.0, computed)
    )
    written = save_report(study, folder)
    if pictures:
        from ..acas.map_plot import draw_figures

        written += draw_figures(study, folder, rescale_progress(report, computed, 1.0))

    def print_result(as_json: bool) -> None:
        for text in describe_clipping(study):
            print_note(text)
        if as_json:
            print_json(_build_maps_document(study, reach, written))
            return
        print_rich(f"{study.advisor.name}; {study.advisor.note}; rho to {reach:.10g} ft", _build_maps_table(study))
        print_files(folder, [path.name for path in written])

    return print_result


def _build_maps_table(study: AdvisoryMaps) -> Table:
    from rich.table import Table

    from ..acas.map_report import NO_REGIONS, format_percent

    names = list(dict.fromkeys(name for m in study.maps for name in m.totals))
    table = Table(title="polygons, regions, and shares of the disc in square feet", title_justify="left")
    table.add_column("scenario")
    for name in ("polygons", "regions", "seconds", *names):
        table.add_column(name, justify="right")
    for m in study.maps:
        disc = sum(total.area for total in m.totals.values())
        shares = (format_percent(m.totals.get(name, NO_REGIONS).area / disc) for name in names)
        table.add_row(m.title, f"{len(m.plane):,}", f"{len(m.regions):,}", f"{sum(m.seconds.values()):.2f}", *shares)
    return table


def _build_maps_document(study: AdvisoryMaps, reach: float, written: list[Path]) -> dict[str, Any]:
    scenarios = [
        {
            "psi": m.geometry.psi,
            "v_own": m.geometry.v_own,
            "v_int": m.geometry.v_int,
            "polygons": len(m.plane),
            "regions": len(m.regions),
            "seconds": sum(m.seconds.values()),
            "square_feet": {name: total.area for name, total in m.totals.items()},
        }
        for m in study.maps
    ]
    return {
        "network": study.advisor.name,
        "note": study.advisor.note,
        "rho": reach,
        "scenarios": scenarios,
        "files": [str(path) for path in written],
    }
