"""``exactline falsify``: search a counterexample to a property of a network along lines that are decided exactly."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console.inputs import parse_shape
from ..console.options import NETWORK_SUFFIXES, Device, Shape, ShowProgress
from ..console.output import print_json, print_note, print_text, require_writable
from ..console.progress_bar import show_bar

if TYPE_CHECKING:
    from ..verification.falsifier import FalsifierResult

MAX_SHOWN_COORDINATES = 16  # of the nearest point, if no counterexample was found


def falsify(
    file: Annotated[Path, typer.Argument(metavar="NETWORK", help=f"A network: {NETWORK_SUFFIXES}.")],
    property_file: Annotated[
        Path, typer.Argument(metavar="PROPERTY", help="What must not happen: .vnnlib, .vnnlib.gz.")
    ],
    lines: Annotated[int | None, typer.Option(help="Stop after this many lines.")] = None,
    seconds: Annotated[
        float | None,
        typer.Option(help="Stop after this many seconds; 60 if neither --lines nor --seconds is given."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the lines; equal seeds and --lines give equal answers.")] = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of the VNN-COMP format.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Write the answer to this file, in the VNN-COMP format.")] = None,
    normalize: Annotated[
        bool | None,
        typer.Option(
            "--normalize/--no-normalize",
            help="Whether a property of a .nnet is in physical units, such as feet; default: the file's ranges decide.",
        ),
    ] = None,
    shape: Shape = None,
    device: Device = None,
    progress: ShowProgress = True,
) -> None:
    """Search the inputs that a property allows for a counterexample: sat with one, or unknown; never unsat.

    Example: exactline falsify ACASXU_2_1.onnx prop_2.vnnlib --seconds 20
    """
    if out is not None:
        require_writable(out, "--out")
    from ..verification.falsifier import falsify

    text = "{task.fields[lines]:,} lines, smallest margin {task.fields[margin]:.4g}"
    with show_bar(progress, "search", text, lines=0, margin=float("inf")) as update:
        result = falsify(
            file,
            property_file,
            lines=lines,
            seconds=seconds,
            seed=seed,
            shape=parse_shape(shape),
            normalize=normalize,
            device=device,
            progress=False
            if update is None
            else lambda share, count, margin: update(share, lines=count, margin=margin),
        )
    if out is not None:
        from ..files import write_atomically

        write_atomically(out, f"{result.vnncomp()}\n".encode())
        print_note(f"saved to {out}")
    if as_json:
        print_json(_build_document(str(file), str(property_file), result))
        return
    print_text(result.vnncomp())
    print_note(str(result))
    if not result and result.nearest is not None and len(result.nearest) <= MAX_SHOWN_COORDINATES:
        print_note(f"smallest margin at {', '.join(f'{v:.6g}' for v in result.nearest.tolist())}")


def _build_document(file: str, property_file: str, result: FalsifierResult) -> dict[str, Any]:
    return {
        "file": file,
        "property": property_file,
        "answer": result.answer,
        "x": None if result.x is None else result.x.tolist(),
        "y": None if result.y is None else result.y.tolist(),
        "disjunct": result.disjunct,
        "strict": result.strict,
        "replayed_by": result.replayed_by,
        "lines": result.lines,
        "pieces": result.pieces,
        "margin": result.margin if isfinite(result.margin) else None,
        "nearest": None if result.nearest is None else result.nearest.tolist(),
        "seconds": result.seconds,
        "seed": result.seed,
        "units": result.units,
        "note": result.note,
    }
