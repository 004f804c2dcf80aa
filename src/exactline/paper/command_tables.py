"""``exactline study linearity``, ``study ig`` and ``study all``: the paper's tables, beside its published numbers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console.options import AsJsonTables, Bar, Pictures
from ..console.output import say_json, say_rich
from ..errors import ArgumentError, MissingError
from ..humanize import count_noun
from .command_acas import bar, made

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from . import ig as ig_study
    from .linearity import Linearity
    from .paper_report import Picture
    from .rational_check import Proof
    from .tables import Table

Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder for tables and pictures; made if missing.")]
Data = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Folder of the published networks and images; ours if left out.")
]
Count = Annotated[
    int | None, typer.Option("--images", metavar="N", help="Only the first N images; all if left out, 5 for convbig.")
]
Single = Annotated[bool, typer.Option("--float32", help="Count in float32 too and compare; several times as long.")]
Names = Annotated[
    list[str] | None, typer.Option("--network", metavar="NAME", help="Only this network; may be given several times.")
]
TITLE = "The tables of the paper, recomputed"
Report = Callable[[float, str], None]


def linearity(
    out: Out,
    data: Data = None,
    images: Count = None,
    float32: Single = False,
    as_json: AsJsonTables = False,
    pictures: Pictures = True,
    progress: Bar = True,
) -> None:
    """How linear networks are along adversarial directions: the paper's tables 3 and 4, figures 4 and 5.

    Without --data it studies three small networks that ship with exactline, which are not the paper's. A run that was
    stopped goes on where it was when it is started again with the same --out.

    Example: exactline study linearity --out linearity

    Example: exactline study linearity --data networks --out linearity
    """
    _ready(images, pictures, "study linearity")
    folder, clock = made(out), _Clock()
    from . import paper_report as report
    from . import tables

    with bar(progress and sys.stderr.isatty()) as move:
        found, drawn = _linearity(folder, data, images, float32, pictures, move)
        proved = _proofs(found, float32, move)
    shown = report.linearity_tables(found, proved)
    written = report.save(
        folder,
        "Linearity along adversarial directions",
        report.linearity_blocks(found, drawn, proved),
        [*shown, tables.lines_table(found)],
    )
    files = [p.name for p in written] + [p.file for p in drawn]
    _tell(folder, shown, [*tables.findings(found), *_linearity_times(found), clock.text()], files, as_json)


def ig(
    out: Out,
    data: Data = None,
    images: Count = None,
    network: Names = None,
    as_json: AsJsonTables = False,
    pictures: Pictures = True,
    progress: Bar = True,
) -> None:
    """How many samples integrated gradients need: the paper's tables 1 and 2, figure 3, and three rules more.

    Without --data it studies three small networks that ship with exactline, which are not the paper's. A run that was
    stopped goes on where it was when it is started again with the same --out.

    Example: exactline study ig --out ig

    Example: exactline study ig --data networks --network convsmall --out ig
    """
    _ready(images, pictures, "study ig")
    folder, clock = made(out), _Clock()
    from . import paper_report as report
    from . import tables

    with bar(progress and sys.stderr.isatty()) as move:
        found, drawn = _ig(folder, data, images, network or [], pictures, move)
    shown = [tables.table1(found), tables.table2(found)]
    written = report.save(
        folder,
        "Samples of integrated gradients",
        report.ig_blocks(found, drawn),
        [*shown, tables.images_table(found), tables.curves_table(found)],
    )
    files = [p.name for p in written] + [p.file for p in drawn]
    _tell(folder, shown, [*_ig_times(found), clock.text()], files, as_json)


def all_(
    out: Out,
    data: Data = None,
    images: Count = None,
    network: Names = None,
    float32: Single = False,
    as_json: AsJsonTables = False,
    pictures: Pictures = True,
    progress: Bar = True,
) -> None:
    """Every table and picture of the paper in one report, beside the published numbers: report.md and report.html.

    --network chooses among the networks of tables 1 and 2. A run that was stopped goes on where it was when it is
    started again with the same --out.

    Example: exactline study all --out paper

    Example: exactline study all --data networks --network convsmall --out paper
    """
    _ready(images, pictures, "study all")
    folder, clock = made(out), _Clock()
    from . import paper_report as report
    from . import tables

    with bar(progress and sys.stderr.isatty()) as move:
        scene = _acas(folder, data, pictures, lambda share, what: move(0.05 * share, what))
        integrated, first = _ig(
            folder, data, images, network or [], pictures, lambda share, what: move(0.05 + 0.6 * share, what)
        )
        lines, second = _linearity(
            folder, data, images, float32, pictures, lambda share, what: move(0.65 + 0.3 * share, what)
        )
        proved = _proofs(lines, float32, lambda share, what: move(0.95 + 0.05 * share, what))
    shown = [tables.table1(integrated), tables.table2(integrated), *report.linearity_tables(lines, proved)]
    every = [*shown, tables.images_table(integrated), tables.curves_table(integrated), tables.lines_table(lines)]
    blocks = [*scene, *report.ig_blocks(integrated, first), *report.linearity_blocks(lines, second, proved)]
    written = report.save(folder, TITLE, blocks, every, page=True)
    remarks = [*tables.findings(lines), *_ig_times(integrated), *_linearity_times(lines), clock.text()]
    drawn = [p for p in scene if isinstance(p, report.Picture)]
    _tell(folder, shown, remarks, [p.name for p in written] + [p.file for p in (*drawn, *first, *second)], as_json)


PAPER = {"ig": ig, "linearity": linearity, "all": all_}


def _ready(images: int | None, pictures: bool, where: str) -> None:
    """Refuse what could not be done before the work begins."""
    if images is not None and images < 1:
        raise ArgumentError("There must be at least one image.", where="option --images", hint="Leave it out for all.")
    if pictures and find_spec("matplotlib") is None:
        raise MissingError(
            "Pictures need matplotlib.", where=where, hint='pip install "exactline[plot]", or give --no-pictures'
        )


def _linearity(
    folder: Path, data: Path | None, images: int | None, float32: bool, pictures: bool, move: Report
) -> tuple[Linearity, list[Picture]]:
    from . import linearity as study
    from .paper_report import Picture

    found = study.run(
        data, images=images, folder=folder, float32=float32, progress=lambda share, what: move(0.95 * share, what)
    )
    if not pictures:
        return found, []
    move(0.95, "drawing")
    from .figures import fans
    from .plot_linearity import draw_fans, draw_ratios

    drawn = [Picture("ratios.png", "How much denser FGSM lines are than random ones, in every network.")]
    _draw(draw_ratios(found), folder / "ratios.png")
    for number, chosen in enumerate(fans(found), 4):
        where = f"on the lines from one image of {chosen[0].images}"
        text = f"Figure {number}: every break {where}, and where the class changes."
        drawn.append(Picture(f"figure{number}.png", text))
        _draw(draw_fans(chosen), folder / f"figure{number}.png")
    return found, drawn


def _proofs(found: Linearity, wanted: bool, move: Report) -> list[Proof]:
    """The truth of lines that float32 counts otherwise."""
    from .rational_check import proofs

    return proofs(found, progress=move) if wanted else []


def _ig(
    folder: Path, data: Path | None, images: int | None, networks: list[str], pictures: bool, move: Report
) -> tuple[ig_study.Study, list[Picture]]:
    from . import ig as study
    from .paper_report import Picture

    found = study.run(
        data, images=images, networks=networks, folder=folder, progress=lambda share, what: move(0.95 * share, what)
    )
    if not pictures:
        return found, []
    move(0.95, "drawing")
    from .figures import fade
    from .plot_ig import draw_curves, draw_fade

    _draw(draw_fade(fade(data)), folder / "figure3.png")
    _draw(draw_curves(found), folder / "errors.png")
    text = "Figure 3: a digit faded in from black, every break as a tick, and the gradients on the pieces."
    return found, [Picture("figure3.png", text), Picture("errors.png", "The error of every rule against its samples.")]


def _acas(folder: Path, data: Path | None, pictures: bool, move: Report) -> list[Any]:
    """Section 3: the paper's figure 2, which has a study of its own."""
    from . import acas
    from .paper_report import Heading, Picture, Points

    file = None if data is None else data / "acasxu" / "nnet" / "ACASXU_run2a_1_1_batch_2000.nnet"
    found = acas.run(file if file is not None and file.exists() else None, progress=lambda s, what: move(0.6 * s, what))
    mean, least, most = found.breaks("distance")
    points = (
        f"{found.advisor.name}; {found.advisor.note}.",
        f"{len(found.of('distance'))} distance lines: {mean:.2f} breaks on average ({least} to {most}), both ends"
        " counted.",
        f"{count_noun(len(found.missed), 'interval')} of constant advice lie between the samples of their lines.",
    )
    blocks: list[Any] = [Heading("Advice around an aircraft (figure 2)"), Points(points)]
    if pictures:
        from .plot_acas import whole

        move(0.6, "drawing figure 2")
        _draw(whole(found), folder / "figure2.png")
        blocks.append(Picture("figure2.png", "Figure 2: exact lines above, samples of the same below."))
    return blocks


def _draw(figure: Any, path: Path) -> None:
    import io

    from matplotlib import rc_context

    from ..files import write_atomically
    from .plot_linearity import PAPER as LOOKS

    data = io.BytesIO()
    with rc_context(LOOKS):
        figure.savefig(data, format="png")
    write_atomically(path, data.getvalue())


class _Clock:
    """How long this run takes: on the wall, and of processors."""

    def __init__(self) -> None:
        self.began = perf_counter(), process_time()

    def text(self) -> str:
        """Both, in words."""
        wall, used = perf_counter() - self.began[0], process_time() - self.began[1]
        return f"this run: {wall:.1f} s, {used:.1f} s of processor time"


def _linearity_times(found: Linearity) -> list[str]:
    said = [
        f"{s.name}, tables 3 and 4: {found.wall(s.name):.1f} s, {found.seconds(s.name):.1f} s of processor time"
        for s in found.suites
    ]
    return [*said, f"{found.resumed:,} results were kept from an earlier run"] if found.resumed else said


def _ig_times(found: ig_study.Study) -> list[str]:
    names = [s.name for s in found.suite.subjects]
    said = [
        f"{name}, tables 1 and 2: {found.wall(name):.1f} s, {found.seconds(name):.1f} s of processor time"
        for name in names
    ]
    return [*said, f"{found.resumed:,} results were kept from an earlier run"] if found.resumed else said


def _rich(table: Table) -> RichTable:
    from rich.table import Table as RichTable

    shown = RichTable(title=table.title, title_justify="left")
    for name in table.head:
        shown.add_column(name)
    for row in table.rows:
        shown.add_row(*row)
    return shown


def _tell(folder: Path, shown: list[Table], remarks: list[str], files: list[str], as_json: bool) -> None:
    """The tables, what is remarked about them, and what was written."""
    if as_json:
        tables = {t.name: {"title": t.title, "head": t.head, "rows": t.rows, "notes": t.notes} for t in shown}
        say_json({"tables": tables, "remarks": remarks, "files": [str(folder / name) for name in files]})
        return
    say_rich(*(_rich(table) for table in shown), *remarks)
    say_rich(f"{count_noun(len(files), 'file')} in {folder}: {', '.join(files)}")
