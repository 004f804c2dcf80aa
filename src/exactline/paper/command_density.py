"""``exactline study density``: breaks for each unit of length in your networks or ours, as tables and pictures."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from ..console.options import AsJsonTables, Bar, Pictures
from ..console.output import dims, remark, say_json, say_rich
from ..errors import ArgumentError, MissingError
from ..humanize import count_noun
from .command_acas import bar, made

if TYPE_CHECKING:
    from rich.table import Table

    from ..formats.labelled_images import Labelled
    from .density import Densities, Plan
    from .published import Subject

IMAGES = 100
EPS = {"additive": 0.1, "multiplicative": 0.03}
GREEDY = ("--networks", "--checkpoints")


class Greedy(TyperCommand):
    """Options that take all the words up to the next option: --networks A B C."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        spread: list[str] = []
        option = ""
        for word in args:
            if word.startswith("-") and len(word) > 1:
                option = word if word in GREEDY else ""
                spread += [] if option else [word]
            else:
                spread += [option, word] if option else [word]
        return super().parse_args(ctx, spread)


def density(
    networks: Annotated[
        list[Path] | None, typer.Option(metavar="FILE...", help="Networks to compare, the first with the others.")
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Images and labels: .npz (images, labels), .npy, .csv; ours if left out."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for tables, pictures and what is finished.")
    ] = None,
    checkpoints: Annotated[
        list[Path] | None, typer.Option(metavar="FILE...", help="A network at several times of its training, in order.")
    ] = None,
    perturb: Annotated[
        str, typer.Option(metavar="KIND", help="additive: by eps; multiplicative: by eps times the pixel.")
    ] = "additive",
    eps: Annotated[
        float | None, typer.Option(help="How far a pixel moves.", show_default="0.1; multiplicative 0.03")
    ] = None,
    levels: Annotated[int | None, typer.Option(help="Move by whole levels of so many in 0 to 1: 255.")] = None,
    clip: Annotated[str, typer.Option(metavar="LOW,HIGH", help="The range of a pixel.")] = "0,1",
    random: Annotated[int, typer.Option(help="Random directions of each image.")] = 4,
    reach: Annotated[
        float | None,
        typer.Option(help="The longest line for pieces against length; 0 for none.", show_default="four changes"),
    ] = None,
    images: Annotated[int, typer.Option(help="Take the first so many.")] = IMAGES,
    scale: Annotated[float, typer.Option(help="Divide the data by this: 255 for bytes.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of the random directions.")] = 0,
    shape: Annotated[
        str | None, typer.Option(metavar="1,28,28", help="Of an input, where files leave it open.")
    ] = None,
    as_json: AsJsonTables = False,
    pictures: Pictures = True,
    progress: Bar = True,
) -> None:
    """How dense breaks are along FGSM and random directions, against length, layer and training epoch.

    Without --networks it studies three digits networks that ship with exactline: trained normally, against attacks
    (pgd) and on interval bounds (diffai). A run that was stopped goes on where it was, if --out is the same.

    Example: exactline study density --networks a.onnx b.onnx --data images.npz --out density

    Example: exactline study density --checkpoints epochs/*.onnx --out density
    """
    if pictures and out is not None and find_spec("matplotlib") is None:
        raise MissingError("Pictures need matplotlib.", where="study density", hint='pip install "exactline[plot]"')
    from .density import run

    plan = _plan(perturb, eps, levels, clip, random, reach, seed)
    subjects, given, moments = _given(networks or [], data, checkpoints or [], dims(shape), scale, images)
    folder = None if out is None else made(out)
    written: list[Path] = []
    with bar(progress and sys.stderr.isatty()) as report:
        share = 0.9 if pictures and folder is not None else 1.0
        found = run(
            subjects,
            given,
            plan,
            checkpoints=moments,
            folder=folder,
            progress=lambda done, what: report(share * done, what),
        )
        if folder is not None:
            written = _write(found, folder, pictures, lambda done, what: report(share + (1 - share) * done, what))
    if found.resumed:
        remark(f"{count_noun(found.resumed, 'image')} had been finished before")
    if as_json:
        say_json(_document(found, written))
        return
    say_rich(*_tables(found))
    if folder is not None:
        say_rich(f"{count_noun(len(written), 'file')} in {folder}: {', '.join(p.name for p in written)}")


def _plan(
    perturb: str, eps: float | None, levels: int | None, clip: str, random: int, reach: float | None, seed: int
) -> Plan:
    from .density import Plan

    if perturb not in EPS:
        raise ArgumentError(
            f"There is no perturbation {perturb!r}.", where="option --perturb", hint=f"Give {' or '.join(EPS)}."
        )
    try:
        low, high = (float(part) for part in clip.split(","))
    except ValueError as problem:
        raise ArgumentError(
            f"{clip!r} is not a range.", where="option --clip", hint="Give two numbers: 0,1."
        ) from problem
    size = EPS[perturb] if eps is None else eps
    return Plan(size, perturb == "multiplicative", levels, low, high, random, reach, seed)


def _given(
    networks: list[Path],
    data: Path | None,
    checkpoints: list[Path],
    shape: tuple[int, ...] | None,
    scale: float,
    images: int,
) -> tuple[list[Subject], Labelled, list[Subject]]:
    """The networks, the images and the checkpoints; what is left out is ours."""
    from ..formats.labelled_images import read_labelled
    from .density import embedded, subjects_of, unseen_digits

    if images < 1:
        raise ArgumentError(f"There are no {images} images.", where="option --images", hint="Give at least 1.")
    subjects = subjects_of(networks, shape) if networks else embedded()
    moments = subjects_of(checkpoints, shape) if checkpoints else []
    size = subjects[0].network.nodes[subjects[0].network.inputs[0]].shape
    given = unseen_digits() if data is None else read_labelled(data, size, scale)
    for subject in (*subjects, *moments):
        wanted = subject.network.nodes[subject.network.inputs[0]].shape
        if tuple(wanted) != given.points.shape[1:]:
            raise ArgumentError(
                f"{subject.name} takes images of shape {tuple(wanted)}, these are of shape {given.points.shape[1:]}.",
                where="options --networks, --checkpoints, --data",
                hint="Give --data with images of that shape, in the same file order as the networks.",
            )
    return subjects, given.first(images), moments


def _write(found: Densities, folder: Path, pictures: bool, report: Any) -> list[Path]:
    from .density_tables import save

    written = save(found, folder)
    if pictures:
        from .plot_density import draw

        written += draw(found, folder, report)
    return written


def _tables(found: Densities) -> list[Table]:
    from rich.table import Table

    from .density_tables import KINDS, epoch_rows, pooled, quarters, ratio_rows

    one = Table(title="breaks for each unit of length", title_justify="left")
    two = Table(title="ratios of densities", title_justify="left")
    three = Table(title="against training", title_justify="left")
    heads = ("network", "right", "kind", "lines"), ("network", "over", "kind", "count"), ("checkpoint", "kind", "right")
    for table, head in zip((one, two, three), heads, strict=True):
        for name in (*head, "median", "25 %", "75 %"):
            table.add_column(name, justify="left" if name in ("network", "over", "kind", "checkpoint") else "right")
    for s in found.subjects:
        own = found.of(s.name).values()
        for kind in KINDS:
            values = pooled(own, kind)
            one.add_row(s.name, str(len(own)), kind, str(len(values)), *_shown(quarters(values)))
    for what, network, other, kind, count, *rest in ratio_rows(found):
        over = (
            (f"{network}, FGSM", "random", "") if what == "FGSM over random" else (str(network), str(other), str(kind))
        )
        two.add_row(*over, str(count), *_shown(rest))
    for place, _, kind, _, accuracy, _, _, *rest in epoch_rows(found):
        three.add_row(str(place), str(kind), f"{accuracy:.0%}", *_shown(rest))
    return [one, two, three] if found.checkpoints else [one, two]


def _document(found: Densities, written: list[Path]) -> dict[str, Any]:
    """The same as the tables; a median of nothing is null."""
    from .density_tables import EPOCHS, KINDS, QUARTERS, RATIOS, epoch_rows, pooled, quarters, ratio_rows

    densities: list[dict[str, Any]] = []
    for s in found.subjects:
        own = found.of(s.name).values()
        for kind in KINDS:
            values = pooled(own, kind)
            row = (s.name, len(own), kind, len(values), *quarters(values))
            densities.append(_row(("network", "right", "kind", "lines", *QUARTERS), row))
    return {
        "densities": densities,
        "ratios": [_row(RATIOS, row) for row in ratio_rows(found)],
        "epochs": [_row(EPOCHS, row) for row in epoch_rows(found)],
        "files": [str(path) for path in written],
    }


def _row(names: tuple[str, ...], values: tuple[Any, ...]) -> dict[str, Any]:
    return {name: None if value != value else value for name, value in zip(names, values, strict=True)}


def _shown(numbers: Any) -> list[str]:
    return [f"{number:.2f}" for number in numbers]
