"""``exactline study linearity``, ``study ig`` and ``study all``: the paper's tables beside its published numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...console.options import AsJsonTables, DrawPictures, ShowProgress, StudyFolder, expand_options
from ...console.output import make_folder, print_files, print_json, print_rich, require_matplotlib
from ...console.progress_bar import rescale_progress, show_study_progress
from ...errors import ArgumentError
from ...humanize import count_noun

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.table import Table

    from ..tables.ig import SampleStudy
    from ..tables.linearity import LinearityStudy
    from ..tables.rational_check import RationalCheck
    from ..tables.report import ReportBlock, ReportPicture, ReportTable

CountFloat32 = Annotated[
    bool, typer.Option("--float32", help="Count in float32 too and compare; takes several times as long.")
]
NetworkNames = Annotated[
    list[str] | None, typer.Option("--network", metavar="NAME", help="Study only this network; may be repeated.")
]
REPORT_TITLE = "Linear restrictions of neural networks: the published results, recomputed"
REPORT_INTRODUCTION = (
    "Matthew Sotoudeh and Aditya V. Thakur published these studies in Computing Linear Restrictions of Neural Networks"
    " (NeurIPS 2019), which is called the paper below: advice around an aircraft, the number of samples that integrated"
    " gradients need, and how linear networks are along adversarial directions. Where a network is the published one,"
    " the published numbers stand beside the computed ones."
)
ACAS_FILE = Path("acasxu", "nnet", "ACASXU_run2a_1_1_batch_2000.nnet")
Report = Callable[[float, str], None]


@dataclass(frozen=True)
class TableOptions:
    """Options that the commands of the paper's tables share."""

    out: StudyFolder
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder with the published networks and images; default: bundled digits networks."
        ),
    ] = None
    images: Annotated[
        int | None,
        typer.Option("--images", metavar="N", help="Study only the first N images; default: all, 5 for convbig."),
    ] = None
    as_json: AsJsonTables = False
    pictures: DrawPictures = True
    progress: ShowProgress = True

    def check(self, command: str) -> Path:
        """Check the options before the work begins, and create the folder."""
        if self.images is not None and self.images < 1:
            raise ArgumentError("There must be at least one image.", where="option --images", hint="Omit it for all.")
        if self.pictures:
            require_matplotlib(command, ", or give --no-pictures")
        return make_folder(self.out)


@expand_options(TableOptions)
def linearity(options: TableOptions, float32: CountFloat32 = False) -> None:
    """Measure how linear networks are along adversarial directions: tables 3 and 4, figures 4 and 5 of the paper.

    Without --data it studies three small bundled networks, which are not the paper's. A run that was stopped continues
    if it is started again with the same --out.

    Example: exactline study linearity --out linearity

    Example: exactline study linearity --data networks --out linearity
    """
    folder, timer = options.check("study linearity"), _RunTimer()
    from ..tables import linearity_report
    from ..tables.report import save_report

    with show_study_progress(options.progress) as report:
        study, pictures, checks = _run_linearity(options, folder, float32, report)
    shown = linearity_report.build_linearity_tables(study, checks)
    written = save_report(
        folder,
        "Linearity along adversarial directions",
        linearity_report.build_linearity_blocks(study, pictures, checks),
        [*shown, linearity_report.build_lines_table(study)],
    )
    notes = [*linearity_report.summarize_findings(study), *_format_linearity_times(study), timer.format()]
    _print_report(options, shown, notes, [p.name for p in written] + [p.file for p in pictures])


@expand_options(TableOptions)
def ig(options: TableOptions, network: NetworkNames = None) -> None:
    """Count the samples that integrated gradients need: tables 1 and 2, figure 3 of the paper, and three more rules.

    Without --data it studies three small bundled networks, which are not the paper's. A run that was stopped continues
    if it is started again with the same --out.

    Example: exactline study ig --out ig

    Example: exactline study ig --data networks --network convsmall --out ig
    """
    folder, timer = options.check("study ig"), _RunTimer()
    from ..tables import ig_report
    from ..tables.report import save_report

    with show_study_progress(options.progress) as report:
        study, pictures = _run_ig(options, folder, network or [], report)
    shown = [ig_report.build_table1(study), ig_report.build_table2(study)]
    written = save_report(
        folder,
        "Samples of integrated gradients",
        ig_report.build_ig_blocks(study, pictures),
        [*shown, ig_report.build_images_table(study), ig_report.build_curves_table(study)],
    )
    notes = [*_format_ig_times(study), timer.format()]
    _print_report(options, shown, notes, [p.name for p in written] + [p.file for p in pictures])


@expand_options(TableOptions)
def all_studies(options: TableOptions, network: NetworkNames = None, float32: CountFloat32 = False) -> None:
    """Write every table and picture of the paper into one report, beside the published numbers.

    The report is report.md and report.html. --network chooses among the networks of tables 1 and 2. A run that was
    stopped continues if it is started again with the same --out.

    Example: exactline study all --out paper

    Example: exactline study all --data networks --network convsmall --out paper
    """
    folder, timer = options.check("study all"), _RunTimer()
    from ..tables import ig_report, linearity_report
    from ..tables.report import ReportPicture, ReportText, save_report

    with show_study_progress(options.progress) as report:
        acas_blocks = _run_acas(options, folder, rescale_progress(report, 0.0, 0.05))
        samples, ig_pictures = _run_ig(options, folder, network or [], rescale_progress(report, 0.05, 0.65))
        lines, line_pictures, checks = _run_linearity(options, folder, float32, rescale_progress(report, 0.65, 1.0))
    shown = [
        ig_report.build_table1(samples),
        ig_report.build_table2(samples),
        *linearity_report.build_linearity_tables(lines, checks),
    ]
    written = save_report(
        folder,
        REPORT_TITLE,
        [
            ReportText(REPORT_INTRODUCTION),
            *acas_blocks,
            *ig_report.build_ig_blocks(samples, ig_pictures),
            *linearity_report.build_linearity_blocks(lines, line_pictures, checks),
        ],
        [
            *shown,
            ig_report.build_images_table(samples),
            ig_report.build_curves_table(samples),
            linearity_report.build_lines_table(lines),
        ],
        page=True,
    )
    notes = [
        *linearity_report.summarize_findings(lines),
        *_format_ig_times(samples),
        *_format_linearity_times(lines),
        timer.format(),
    ]
    acas_pictures = [block for block in acas_blocks if isinstance(block, ReportPicture)]
    pictures = [*acas_pictures, *ig_pictures, *line_pictures]
    _print_report(options, shown, notes, [p.name for p in written] + [p.file for p in pictures])


def _run_linearity(
    options: TableOptions, folder: Path, float32: bool, report: Report
) -> tuple[LinearityStudy, list[ReportPicture], list[RationalCheck]]:
    """Run the study, draw its pictures, and check lines on which float32 counts differ."""
    from ..tables import linearity
    from ..tables.rational_check import check_differing_lines

    study = linearity.run(
        options.data,
        images=options.images,
        folder=folder,
        float32=float32,
        progress=rescale_progress(report, 0.0, 0.8),
    )
    pictures: list[ReportPicture] = []
    if options.pictures:
        report(0.8, "drawing")
        pictures = _draw_linearity(study, folder)
    checks = check_differing_lines(study, progress=rescale_progress(report, 0.85, 1.0)) if float32 else []
    return study, pictures, checks


def _draw_linearity(study: LinearityStudy, folder: Path) -> list[ReportPicture]:
    from ..tables.figures import compute_line_fans
    from ..tables.linearity_plot import draw_line_fans, draw_ratios
    from ..tables.report import ReportPicture

    pictures = [ReportPicture("ratios.png", "How much denser FGSM lines are than random ones, in every network.")]
    _save_figure(draw_ratios(study), folder / "ratios.png")
    for number, fans in enumerate(compute_line_fans(study), 4):
        where = f"on the lines from one image of {fans[0].images}"
        text = f"Figure {number}: every break {where}, and where the class changes."
        pictures.append(ReportPicture(f"figure{number}.png", text))
        _save_figure(draw_line_fans(fans), folder / f"figure{number}.png")
    return pictures


def _run_ig(
    options: TableOptions, folder: Path, networks: list[str], report: Report
) -> tuple[SampleStudy, list[ReportPicture]]:
    """Run the study and draw its pictures."""
    from ..tables import ig
    from ..tables.report import ReportPicture

    study = ig.run(
        options.data,
        images=options.images,
        networks=networks,
        folder=folder,
        progress=rescale_progress(report, 0.0, 0.95),
    )
    if not options.pictures:
        return study, []
    report(0.95, "drawing")
    from ..tables.figures import compute_fade_in
    from ..tables.ig_plot import draw_error_curves, draw_fade_in

    _save_figure(draw_fade_in(compute_fade_in(options.data)), folder / "figure3.png")
    _save_figure(draw_error_curves(study), folder / "errors.png")
    text = "Figure 3: a digit faded in from black, every break as a tick, and the gradients on the pieces."
    return study, [
        ReportPicture("figure3.png", text),
        ReportPicture("errors.png", "The error of every rule by number of samples."),
    ]


def _run_acas(options: TableOptions, folder: Path, report: Report) -> list[ReportBlock]:
    """Run the study of section 3 and draw figure 2."""
    from ..acas import lines
    from ..tables.report import BulletList, ReportHeading, ReportPicture

    file = None if options.data is None else options.data / ACAS_FILE
    network = file if file is not None and file.exists() else None
    study = lines.run(network, progress=rescale_progress(report, 0.0, 0.6))
    mean, least, most = study.break_statistics("distance")
    texts = (
        f"{study.advisor.name}; {study.advisor.note}.",
        f"{len(study.lines_of('distance'))} distance lines: {mean:.2f} breaks on average ({least} to {most}), both ends"
        " counted.",
        f"{count_noun(len(study.missed), 'interval')} of constant advice lie between the samples of their lines.",
    )
    blocks: list[ReportBlock] = [ReportHeading("Advice around an aircraft (figure 2)"), BulletList(texts)]
    if options.pictures:
        from ..acas.line_plot import draw_overview

        report(0.6, "drawing figure 2")
        _save_figure(draw_overview(study), folder / "figure2.png")
        blocks.append(ReportPicture("figure2.png", "Figure 2: exact lines above, samples of the same lines below."))
    return blocks


def _save_figure(figure: Figure, path: Path) -> None:
    import io

    from ...files import write_atomically
    from ...plot.figure import matplotlib_style

    data = io.BytesIO()
    with matplotlib_style("study"):
        figure.savefig(data, format="png")
    write_atomically(path, data.getvalue())


class _RunTimer:
    """Measures the wall-clock time and the processor time of a run."""

    def __init__(self) -> None:
        self.wall_start, self.cpu_start = perf_counter(), process_time()

    def format(self) -> str:
        return f"this run: {_format_times(perf_counter() - self.wall_start, process_time() - self.cpu_start)}"


def _format_times(wall_seconds: float, cpu_seconds: float) -> str:
    return f"{wall_seconds:.1f} s, {cpu_seconds:.1f} s of processor time"


def _format_linearity_times(study: LinearityStudy) -> list[str]:
    times = [
        f"{s.name}, tables 3 and 4: {_format_times(study.wall_seconds(s.name), study.cpu_seconds(s.name))}"
        for s in study.suites
    ]
    return [*times, *_format_reused(study.reused)]


def _format_ig_times(study: SampleStudy) -> list[str]:
    times = [
        f"{s.name}, tables 1 and 2: {_format_times(study.wall_seconds(s.name), study.cpu_seconds(s.name))}"
        for s in study.suite.networks
    ]
    return [*times, *_format_reused(study.reused)]


def _format_reused(reused: int) -> list[str]:
    return [f"{reused:,} results were reused from an earlier run"] if reused else []


def _build_rich_table(table: ReportTable) -> Table:
    from rich.table import Table

    rich_table = Table(title=table.title, title_justify="left")
    for name in table.head:
        rich_table.add_column(name)
    for row in table.rows:
        rich_table.add_row(*row)
    return rich_table


def _print_report(options: TableOptions, tables: list[ReportTable], notes: list[str], files: list[str]) -> None:
    if options.as_json:
        contents: dict[str, Any] = {
            t.name: {"title": t.title, "head": t.head, "rows": t.rows, "notes": t.notes} for t in tables
        }
        print_json({"tables": contents, "remarks": notes, "files": [str(options.out / name) for name in files]})
        return
    print_rich(*map(_build_rich_table, tables), *notes)
    print_files(options.out, files)
