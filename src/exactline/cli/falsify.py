"""``exactline falsify``: a counterexample to a property of a network, searched along lines that are decided exactly."""

from __future__ import annotations

import sys
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console.options import Bar, Device, Normalize, Shape
from ..console.output import dims, remark, say, say_json, writable
from ..console.progress_bar import moving

if TYPE_CHECKING:
    from ..verification.falsifier import Falsified


def falsify(
    file: Annotated[Path, typer.Argument(metavar="NETWORK", help="A network: .onnx, .nnet, .eran, .tf, .pyt.")],
    asked: Annotated[Path, typer.Argument(metavar="PROPERTY", help="What must not happen: .vnnlib, .vnnlib.gz.")],
    lines: Annotated[int | None, typer.Option(help="Stop after so many lines.")] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Stop after so long; 60 s if neither this nor --lines is given.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Other lines; the same seed and --lines give the same answer.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document instead of VNN-COMP's form.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the answer to this file, in VNN-COMP's form.")] = None,
    normalize: Normalize = True,
    shape: Shape = None,
    device: Device = None,
    progress: Bar = True,
) -> None:
    """Search the inputs that a property allows for a counterexample: sat with one, or unknown; never unsat.

    Example: exactline falsify ACASXU_2_1.onnx prop_2.vnnlib --seconds 20
    """
    if out is not None:
        writable(out, "--out")
    from ..verification.falsifier import falsify as answer

    told = "{task.fields[lines]:,} lines, smallest margin {task.fields[margin]:.4g}"
    with moving(progress and sys.stderr.isatty(), "search", told, lines=0, margin=float("inf")) as move:
        found = answer(
            file,
            asked,
            lines=lines,
            seconds=seconds,
            seed=seed,
            shape=dims(shape),
            normalize=normalize,
            device=device,
            progress=False if move is None else lambda share, count, least: move(share, lines=count, margin=least),
        )
    if out is not None:
        from ..files import write_atomically

        write_atomically(out, f"{found.vnncomp()}\n".encode())
        remark(f"saved to {out}")
    if as_json:
        say_json(_document(str(file), str(asked), found))
    else:
        say(found.vnncomp())
        remark(str(found))
        if not found and found.nearest is not None and len(found.nearest) <= 16:
            remark(f"smallest margin at {', '.join(f'{v:.6g}' for v in found.nearest.tolist())}")


def _document(file: str, asked: str, found: Falsified) -> dict[str, Any]:
    return {
        "file": file,
        "property": asked,
        "answer": found.answer,
        "x": None if found.x is None else found.x.tolist(),
        "y": None if found.y is None else found.y.tolist(),
        "case": found.case,
        "strict": found.strict,
        "replayed": found.replayed,
        "lines": found.lines,
        "pieces": found.pieces,
        "margin": found.margin if isfinite(found.margin) else None,
        "nearest": None if found.nearest is None else found.nearest.tolist(),
        "seconds": found.seconds,
        "seed": found.seed,
        "note": found.note,
    }
