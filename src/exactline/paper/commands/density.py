"""``exactline study density``: breaks per unit of length in any networks, as tables and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from ...console.inputs import check_choice, parse_shape
from ...console.options import AsJsonTables, DrawPictures, ShowProgress
from ...console.output import make_folder, print_files, print_json, print_note, print_rich, require_matplotlib
from ...console.progress_bar import rescale_progress, show_study_progress
from ...errors import ArgumentError
from ...humanize import count_noun

if TYPE_CHECKING:
    from rich.table import Table

    from ...formats.labelled_images import LabelledImages
    from ..density import DensityStudy
    from ..density.tables import DensityRow, EpochRow, RatioRow
    from ..published import NamedNetwork

DEFAULT_IMAGES = 100
DEFAULT_EPS = {"additive": 0.1, "multiplicative": 0.03}
GREEDY_OPTIONS = ("--networks", "--checkpoints")
TEXT_COLUMNS = ("network", "over", "kind", "checkpoint")


class GreedyOptionsCommand(TyperCommand):
    """A command with options that take all words up to the next option: --networks A B C."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        repeated: list[str] = []
        option = ""
        for word in args:
            if word.startswith("-") and len(word) > 1:
                option = word if word in GREEDY_OPTIONS else ""
                repeated += [] if option else [word]
            else:
                repeated += [option, word] if option else [word]
        return super().parse_args(ctx, repeated)


def density(
    networks: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE...", help="Networks to compare; the first is compared with each of the others."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Images and labels: .npz (images, labels), .npy, .csv; default: bundled digits."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for tables, pictures and finished results.")
    ] = None,
    checkpoints: Annotated[
        list[Path] | None, typer.Option(metavar="FILE...", help="A network at several times of its training, in order.")
    ] = None,
    perturb: Annotated[
        str,
        typer.Option(metavar="KIND", help="additive: pixels move by eps; multiplicative: by eps times their value."),
    ] = "additive",
    eps: Annotated[
        float | None, typer.Option(help="By how much a pixel moves.", show_default="0.1; multiplicative 0.03")
    ] = None,
    levels: Annotated[
        int | None, typer.Option(help="Round steps down to whole levels, of which the range 0 to 1 has this many: 255.")
    ] = None,
    clip: Annotated[str, typer.Option(metavar="LOW,HIGH", help="The range of a pixel.")] = "0,1",
    random: Annotated[int, typer.Option(help="Number of random directions per image.")] = 4,
    reach: Annotated[
        float | None,
        typer.Option(help="The longest line for pieces by length; 0 for none.", show_default="four perturbations"),
    ] = None,
    images: Annotated[int, typer.Option(help="Number of images.")] = DEFAULT_IMAGES,
    scale: Annotated[float, typer.Option(help="Divide the pixels by this: 255 for bytes.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed of the random directions.")] = 0,
    shape: Annotated[
        str | None, typer.Option(metavar="1,28,28", help="Shape of one input, for files that leave it open.")
    ] = None,
    as_json: AsJsonTables = False,
    pictures: DrawPictures = True,
    progress: ShowProgress = True,
) -> None:
    """Measure the density of breaks along FGSM and random directions, by length, layer and training epoch.

    Without --networks it studies three bundled digits networks: trained normally, against attacks (pgd) and on interval
    bounds (diffai). A run that was stopped continues if it is started again with the same --out.

    Example: exactline study density --networks a.onnx b.onnx --data images.npz --out density

    Example: exactline study density --checkpoints epochs/*.onnx --out density
    """
    if pictures and out is not None:
        require_matplotlib("study density", ", or give --no-pictures")
    from ..density import LinePlan, run

    check_choice("--perturb", perturb, tuple(DEFAULT_EPS), noun="perturbation")
    low, high = _parse_range(clip)
    plan = LinePlan(
        eps=DEFAULT_EPS[perturb] if eps is None else eps,
        multiplicative=perturb == "multiplicative",
        levels=levels,
        low=low,
        high=high,
        random=random,
        reach=reach,
        seed=seed,
    )
    if images < 1:
        raise ArgumentError(f"There are no {images} images.", where="option --images", hint="Give at least 1.")
    compared, trained = _load_networks(networks or [], checkpoints or [], parse_shape(shape))
    labelled = _load_images(data, [*compared, *trained], scale, images)
    folder = None if out is None else make_folder(out)
    written: list[Path] = []
    with show_study_progress(progress) as report:
        computed = 0.9 if pictures and folder is not None else 1.0  # share of the progress bar
        study = run(
            compared,
            labelled,
            plan,
            checkpoints=trained,
            folder=folder,
            progress=rescale_progress(report, 0.0, computed),
        )
        if folder is not None:
            from ..density.report import save_report

            written = save_report(study, folder)
            if pictures:
                from ..density.plot import draw_figures

                written += draw_figures(study, folder, rescale_progress(report, computed, 1.0))
    if study.reused:
        print_note(f"{count_noun(study.reused, 'image')} had been finished before")
    if as_json:
        print_json(_build_document(study, written))
        return
    print_rich(*_build_tables(study))
    if folder is not None:
        print_files(folder, [path.name for path in written])


def _parse_range(text: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError as problem:
        raise ArgumentError(
            f"{text!r} is not a range.", where="option --clip", hint="Give two numbers: 0,1."
        ) from problem
    return low, high


def _load_networks(
    networks: list[Path], checkpoints: list[Path], shape: tuple[int, ...] | None
) -> tuple[list[NamedNetwork], list[NamedNetwork]]:
    """Load the networks, or else the bundled ones, and the checkpoints."""
    from ..density.study import load_bundled_networks, load_networks

    loaded = load_networks(networks, shape) if networks else load_bundled_networks()
    return loaded, load_networks(checkpoints, shape) if checkpoints else []


def _load_images(data: Path | None, networks: list[NamedNetwork], scale: float, count: int) -> LabelledImages:
    """Load the first images of a file, or bundled digits, and check that all networks take them."""
    from ...formats.labelled_images import read_labelled_images
    from ..density.study import load_test_digits

    shapes = [tuple(named.network.nodes[named.network.inputs[0]].shape) for named in networks]
    images = load_test_digits() if data is None else read_labelled_images(data, shapes[0], scale)
    for named, shape in zip(networks, shapes, strict=True):
        if shape != images.points.shape[1:]:
            raise ArgumentError(
                f"{named.name} takes images of shape {shape}, these have shape {images.points.shape[1:]}.",
                where="options --networks, --checkpoints, --data",
                hint="Give --data with images of that shape.",
            )
    return images.take(count)


def _build_tables(study: DensityStudy) -> list[Table]:
    from ..density.tables import list_densities, list_epochs, list_ratios

    densities = _new_table("breaks per unit of length", ("network", "correct", "kind", "lines"))
    for row in list_densities(study):
        densities.add_row(row.network, str(row.right), row.kind, str(row.lines), *_format_quartiles(row))
    ratios = _new_table("ratios of densities", ("network", "over", "kind", "count"))
    for row in list_ratios(study):
        names = (row.network, row.over, row.kind)
        if row.ratio == "FGSM over random":
            names = (f"{row.network}, FGSM", "random", "")
        ratios.add_row(*names, str(row.count), *_format_quartiles(row))
    epochs = _new_table("during training", ("checkpoint", "kind", "correct"))
    for row in list_epochs(study):
        epochs.add_row(str(row.checkpoint), row.kind, f"{row.accuracy:.0%}", *_format_quartiles(row))
    return [densities, ratios, epochs] if study.checkpoints else [densities, ratios]


def _new_table(title: str, head: tuple[str, ...]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name in (*head, "median", "25 %", "75 %"):
        table.add_column(name, justify="left" if name in TEXT_COLUMNS else "right")
    return table


def _build_document(study: DensityStudy, written: list[Path]) -> dict[str, Any]:
    from ..density.tables import list_densities, list_epochs, list_ratios

    return {
        "densities": [_build_row(row) for row in list_densities(study)],
        "ratios": [_build_row(row) for row in list_ratios(study)],
        "epochs": [_build_row(row) for row in list_epochs(study)],
        "files": [str(path) for path in written],
    }


def _build_row(row: Any) -> dict[str, Any]:
    """Convert a named tuple to a JSON object; NaN becomes null."""
    return {name: None if value != value else value for name, value in row._asdict().items()}


def _format_quartiles(row: DensityRow | RatioRow | EpochRow) -> list[str]:
    return [f"{number:.2f}" for number in (row.median, row.lower_quartile, row.upper_quartile)]
