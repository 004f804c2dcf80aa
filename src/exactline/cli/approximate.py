"""``exactline approximate``: any network on the line between two points, to a tolerance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console.inputs import PointReader, parse_bytes, parse_output, parse_shapes
from ..console.options import (
    AsJson,
    Device,
    End,
    Memory,
    NetworkFile,
    Normalize,
    OutputName,
    PointConversions,
    SavePath,
    Shape,
    ShowProgress,
    Start,
    TimeLimit,
    expand_options,
)
from ..console.output import PICTURE_SUFFIXES, check_output_files, print_json, print_note, print_rich
from ..console.progress_bar import show_bar
from .smooth_file import print_tolerance_warnings

if TYPE_CHECKING:
    from rich.table import Table

    from ..smooth.approximation import Approximation

MAX_TABLE_ROWS = 20


@expand_options(PointConversions)
def approximate(
    file: NetworkFile,
    start: Start,
    end: End,
    options: PointConversions,
    tol: Annotated[float, typer.Option(help="The largest absolute error over all outputs.")] = 1e-8,
    certified: Annotated[bool, typer.Option("--certified", help="Prove the error bound, for small networks.")] = False,
    as_json: AsJson = False,
    out: SavePath = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the outputs along the line: .png, .pdf, .svg.")] = None,
    normalize: Normalize = True,
    shape: Shape = None,
    max_evaluations: Annotated[int | None, typer.Option(help="Stop after about so many evaluations.")] = None,
    seconds: TimeLimit = None,
    memory: Memory = None,
    output: OutputName = None,
    device: Device = None,
    progress: ShowProgress = True,
) -> None:
    """Follow any network along the line between two points by polynomials, with an error estimate.

    Example: exactline approximate vit.onnx --from a.npy --to b.npy --tol 1e-6
    """
    check_output_files({"--out": (out, (".safetensors",)), "--plot": (plot, PICTURE_SUFFIXES)})
    memory_bytes = None if memory is None else parse_bytes(memory)
    from ..formats import load
    from ..smooth.api import MAX_EVALUATIONS
    from ..smooth.api import approximate as follow

    network = load(file, normalize=normalize, shape=parse_shapes(shape))
    reader = PointReader.make(network, options)
    ends = reader.read_ends(start, end)
    text = "{task.completed:.4f}, {task.fields[pieces]:,} pieces"
    with (
        reader.silence_warnings(),
        print_tolerance_warnings(),
        show_bar(progress, "alpha", text, pieces=0) as update,
    ):
        curve = follow(
            network,
            *ends,
            tol=tol,
            certified=certified,
            max_evaluations=MAX_EVALUATIONS if max_evaluations is None else max_evaluations,
            seconds=seconds,
            memory=memory_bytes,
            output=parse_output(output),
            device=device,
            progress=False if update is None else lambda share, pieces: update(share, pieces=pieces),
        )
    _save_and_draw(curve, out, plot)
    if as_json:
        print_json(_build_document(str(file), curve) | reader.report())
    else:
        print_rich(str(curve), _build_table(curve))


def _save_and_draw(curve: Approximation, out: Path | None, plot: Path | None) -> None:
    if out is not None:
        curve.save(out)
        print_note(f"saved to {out}")
    if plot is not None:
        from ..plot.figure import save_picture

        save_picture(curve.plot(), plot)
        print_note(f"drawn to {plot}")


def _build_table(curve: Approximation) -> Table:
    from rich.table import Table

    table = Table(title="pieces", title_justify="left")
    for name in ("start", "stop", "degree", "error"):
        table.add_column(name, justify="right")
    ends = curve.breakpoints.tolist()
    for i in range(min(len(curve), MAX_TABLE_ROWS)):
        table.add_row(
            f"{ends[i]:.6g}", f"{ends[i + 1]:.6g}", str(int(curve.degrees[i])), f"{float(curve.errors[i]):.1e}"
        )
    if (rest := len(curve) - MAX_TABLE_ROWS) > 0:
        table.add_row(f"{rest:,} more", "", "", "")
    return table


def _build_document(file: str, curve: Approximation) -> dict[str, Any]:
    values = curve.values
    return {
        "file": file,
        "status": curve.status,
        "tol": curve.tol,
        "error": curve.error,
        "pieces": len(curve),
        "evaluations": curve.evaluations,
        "seconds": curve.seconds,
        "complete": curve.complete,
        "stopped": curve.stopped,
        "breakpoints": curve.breakpoints.tolist(),
        "degrees": curve.degrees.tolist(),
        "errors": curve.errors.tolist(),
        "kinks": curve.kinks.tolist(),
        "values": [v.tolist() for v in values] if isinstance(values, tuple) else values.tolist(),
    }
