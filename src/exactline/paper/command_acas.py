"""``exactline study``: the paper's experiments on your networks or ours, as pictures and tables in a folder."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console.options import AsJsonTables, Bar, Pictures
from ..console.output import remark, say_json, say_rich
from ..console.progress_bar import moving
from ..console.root import Commands
from ..errors import ArgumentError, FileError, MissingError
from ..humanize import count_noun

if TYPE_CHECKING:
    from rich.table import Table

    from .acas import Study
    from .geometry import Kind

COUNTS = ("count", "mean", "least", "most", "intervals", "missed")

study = typer.Typer(
    name="study",
    cls=Commands,
    help="The paper's experiments, as pictures and tables in a folder.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@study.callback()
def _several() -> None:
    """The paper's experiments, as pictures and tables in a folder."""


@study.command()
def acas(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for pictures and tables; made if missing.")],
    network: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A network of five inputs and five costs: .nnet, .onnx; ours if left out."),
    ] = None,
    psi: Annotated[
        float | None,
        typer.Option(help="The intruder's heading in degrees, -180 to 180; 180 is head on.", show_default="-180"),
    ] = None,
    v_own: Annotated[
        float | None, typer.Option(help="The ownship's speed in feet per second.", show_default="150")
    ] = None,
    v_int: Annotated[
        float | None, typer.Option(help="The intruder's speed in feet per second.", show_default="150")
    ] = None,
    plane: Annotated[
        bool,
        typer.Option(
            "--plane", help="Exact maps over all distances and bearings; of eight encounters where none is given."
        ),
    ] = False,
    rho: Annotated[
        float | None,
        typer.Option(help="How many feet away the maps of --plane end.", show_default="11662"),
    ] = None,
    normalize: Annotated[
        bool | None,
        typer.Option(
            "--normalize/--no-normalize",
            help="Normalise inputs first: a .nnet as it says itself, an .onnx as ACAS Xu does; ours does it inside.",
            show_default=False,
        ),
    ] = None,
    as_json: AsJsonTables = False,
    pictures: Pictures = True,
    progress: Bar = True,
) -> None:
    """Advice of a collision-avoidance network around the ownship: exact lines, samples, and what samples missed.

    Without --network it studies a small network that ships with exactline, which is not ACAS Xu.

    With --plane it maps eight encounters whole instead: every region of constant advice, however small, and areas.

    Example: exactline study acas --network ACASXU_1_1.nnet --out acas

    Example: exactline study acas --plane --psi 90 --rho 60760 --out maps
    """
    if pictures and find_spec("matplotlib") is None:
        raise MissingError("Pictures need matplotlib.", where="study acas", hint='pip install "exactline[plot]"')
    if rho is not None and not plane:
        raise ArgumentError("There is no map to end there.", where="option --rho", hint="Give --plane too.")
    from . import acas as study_of
    from .acas_report import clipped, save
    from .geometry import Scene

    scene = Scene(
        psi=-180 if psi is None else psi, v_own=150 if v_own is None else v_own, v_int=150 if v_int is None else v_int
    )
    folder = made(out)
    if plane:
        from .command_acas_plane import maps

        scenes = None if psi is v_own is v_int is None else [scene]
        with bar(progress and sys.stderr.isatty()) as report:
            told = maps(network, scenes, rho, normalize, folder, report, pictures=pictures, as_json=as_json)
        told()
        return
    with bar(progress and sys.stderr.isatty()) as report:
        found = study_of.run(
            network, scene, normalize=normalize, progress=lambda share, what: report(0.5 * share, what)
        )
        written = save(found, folder)
        if pictures:
            from .plot_acas import draw

            written += draw(found, folder, lambda share, what: report(0.5 + 0.5 * share, what))
    for text in clipped(found):
        remark(text)
    if as_json:
        say_json(_document(found, written))
        return
    say_rich(f"{found.advisor.name}; {found.advisor.note}", _table(found), _missed(found))
    say_rich(f"{count_noun(len(written), 'file')} in {folder}: {', '.join(p.name for p in written)}")


def made(folder: Path) -> Path:
    """The folder to write to, made if it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(
            f"The folder cannot be made: {error.strerror}.", where=f"--out {folder}", hint="Give another --out."
        ) from error
    return folder


@contextlib.contextmanager
def bar(shown: bool) -> Generator[Callable[[float, str], None]]:
    """A bar on standard error, moved by what it gives: a share from 0 to 1, and of what."""
    with moving(shown, "", "{task.fields[what]}", what="") as move:
        yield lambda share, what: None if move is None else move(share, what=what)


def _table(found: Study) -> Table:
    from rich.table import Table

    from .acas_report import KINDS

    table = Table(title="breaks per line, both ends counted", title_justify="left")
    for name in ("lines", *COUNTS):
        table.add_column(name, justify="left" if name == "lines" else "right")
    for kind, title in KINDS.items():
        count, mean, *rest = _counts(found, kind)
        table.add_row(title, str(count), f"{mean:.1f}", *map(str, rest))
    return table


def _counts(found: Study, kind: Kind) -> tuple[float, ...]:
    """What is told of the lines of a kind, in the order of COUNTS."""
    own, (mean, least, most) = found.of(kind), found.breaks(kind)
    missed = sum(m.line.track.kind == kind for m in found.missed)
    return len(own), mean, least, most, sum(len(line.stretches) for line in own), missed


def _document(found: Study, written: list[Path]) -> dict[str, Any]:
    from .acas_report import KINDS

    return {
        "network": found.advisor.name,
        "note": found.advisor.note,
        "lines": {kind: dict(zip(COUNTS, _counts(found, kind), strict=True)) for kind in KINDS},
        "missed": len(found.missed),
        "missed_off_grid": sum(m.off_grid for m in found.missed),
        "seconds": found.seconds,
        "files": [str(path) for path in written],
    }


def _missed(found: Study) -> str:
    hidden = sum(m.off_grid for m in found.missed)
    return (
        f"{count_noun(len(found.missed), 'interval')} between the {found.scene.samples} samples of their lines, "
        f"{hidden:,} of them not shown by the grid around them either"
    )
