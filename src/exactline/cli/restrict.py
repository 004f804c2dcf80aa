"""``exactline restrict``: every break of a network on the line between two points."""

from __future__ import annotations

from dataclasses import asdict, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console.inputs import PointReader, parse_bytes, parse_labels, parse_output, parse_shapes
from ..console.options import (
    AsJson,
    Device,
    End,
    Labels,
    MaxBreaks,
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
from ..errors import ArgumentError
from ..humanize import format_seconds

if TYPE_CHECKING:
    from rich.table import Table

    from ..network import Network
    from ..results.restriction import Restriction

MAX_TABLE_ROWS = 20
SUGGESTED_LAYERS = 8  # that an error message lists


@expand_options(PointConversions)
def restrict(
    file: NetworkFile,
    start: Start,
    end: End,
    options: PointConversions,
    as_json: AsJson = False,
    values: Annotated[bool, typer.Option(help="Compute the network's values at the breaks.")] = True,
    out: SavePath = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the outputs along the line: .png, .pdf, .svg.")] = None,
    labels: Labels = None,
    certify: Annotated[
        str | None,
        typer.Option(
            metavar="N|all",
            help="Prove N pieces, spread evenly, or all, and the values at their ends in rational numbers.",
        ),
    ] = None,
    normalize: Normalize = True,
    shape: Shape = None,
    max_breaks: MaxBreaks = None,
    seconds: TimeLimit = None,
    memory: Memory = None,
    until: Annotated[str | None, typer.Option(metavar="LAYER", help="Restrict the output of this layer.")] = None,
    output: OutputName = None,
    device: Device = None,
    engine: Annotated[
        str,
        typer.Option(
            metavar="auto|dense|patches",
            help="How to compute: values at every break, or slope changes in the receptive field of each break.",
        ),
    ] = "auto",
    record: Annotated[
        str | None,
        typer.Option(metavar="layers", help="Also count crossings, dead and always-on units by layer."),
    ] = None,
    progress: ShowProgress = True,
) -> None:
    """Compute every break of a network on the line between two points, and its values there.

    Example: exactline restrict loan.nnet --from 20,30 --to 30,50
    """
    check_output_files({"--out": (out, (".safetensors",)), "--plot": (plot, PICTURE_SUFFIXES)})
    if plot is not None and not values:
        raise ArgumentError("A picture needs the values.", where="--plot", hint="Omit --no-values.")
    memory_bytes = None if memory is None else parse_bytes(memory)
    proved_pieces = _parse_piece_count(certify)
    from ..api import restrict
    from ..formats import load_network

    network = load_network(file, normalize=normalize, shape=parse_shapes(shape))
    reader = PointReader.make(network, options)
    ends = reader.read_ends(start, end)
    restricted = network if until is None else _truncate_network(network, until)
    text = "{task.completed:.4f}, {task.fields[breaks]:,} breaks"
    with reader.silence_warnings(), show_bar(progress, "alpha", text, breaks=0) as update:
        line = restrict(
            restricted,
            *ends,
            values=values,
            device=device,
            memory=memory_bytes,
            max_breaks=max_breaks,
            seconds=seconds,
            engine=engine,
            record=record,
            output=parse_output(output),
            progress=False if update is None else lambda share, breaks: update(share, breaks=breaks),
        )
    names = _output_names(line, labels)
    _save_and_draw(line, out, plot, names)
    proof = None if certify is None else line.certify(proved_pieces)
    if as_json:
        certificate = {} if proof is None else {"certificate": asdict(proof) | {"complete": proof.complete}}
        named = {} if names is None else {"names": names}
        print_json(_build_document(str(file), line) | named | certificate | reader.report())
    else:
        from ..plot.tables import origins_table

        shown = [] if names is None else [_build_ends_table(line, names)]
        proofs = [] if proof is None else [str(proof)]
        setup = f"set-up {format_seconds(line.setup_seconds)}, {line.engine}"
        print_rich(str(line), setup, origins_table(line, max_rows=MAX_TABLE_ROWS), *shown, *proofs)


def _parse_piece_count(text: str | None) -> int | None:
    """Read the option --certify: None for all pieces."""
    if text is None or text == "all":
        return None
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise ArgumentError(f"{text!r} is no number of pieces.", where="--certify", hint="Give 1 or more, or all.")
    return int(text)


def _truncate_network(network: Network, name: str) -> Network:
    """Return the part of a network that ends with the output of one layer."""
    from ..network.simplify import remove_dead_nodes

    indices = [i for i, node in enumerate(network.nodes) if node.name == name]
    if not indices:
        names = ", ".join(node.name for node in network.nodes[-SUGGESTED_LAYERS:])
        raise ArgumentError(
            f"There is no layer {name!r}.",
            where="--until",
            hint=f"exactline info lists the layers; the last are {names}.",
        )
    return remove_dead_nodes(
        replace(network, outputs=(indices[0],), tails=(None,), several_outputs=False, output_names=(), device_copies={})
    )


def _output_names(line: Restriction, labels: str | None) -> list[str] | None:
    """Read the option --labels, which names the elements of the first output."""
    if labels is None:
        return None
    if line.stored_values is None:
        raise ArgumentError("Names of outputs need the values.", where="--labels", hint="Omit --no-values.")
    return parse_labels(labels, line.stored_values[0][0].numel())


def _build_ends_table(line: Restriction, names: list[str]) -> Table:
    """Build a table of the named outputs at both ends of the line."""
    from rich.table import Table
    from rich.text import Text
    from torch import Tensor

    table = Table(title="outputs", title_justify="left")
    table.add_column("name")
    table.add_column("at the start", justify="right")
    table.add_column(f"at alpha {line.reached:.4g}" if not line.complete else "at the end", justify="right")
    values = (line.values if isinstance(line.values, Tensor) else line.values[0]).flatten(1)  # (breaks, outputs)
    first, last = values[0].tolist(), values[-1].tolist()
    for name, start, end in zip(names, first, last, strict=True):
        table.add_row(Text(name), f"{start:.6g}", f"{end:.6g}")
    return table


def _save_and_draw(line: Restriction, out: Path | None, plot: Path | None, names: list[str] | None) -> None:
    if out is not None:
        line.save(out)
        print_note(f"saved to {out}")
    if plot is not None:
        from ..plot.figure import save_picture
        from ..plot.line import plot_line

        save_picture(plot_line(line, labels=names), plot)
        print_note(f"drawn to {plot}")


def _build_document(file: str, line: Restriction) -> dict[str, Any]:
    values = None if line.stored_values is None else [v.tolist() for v in line.stored_values]
    return {
        "file": file,
        "pieces": len(line),
        "complete": line.complete,
        "stopped": line.stopped,
        "reached": line.reached,
        "ambiguous": line.ambiguous,
        "error": line.error if isfinite(line.error) else None,
        "seconds": line.seconds,
        "setup_seconds": line.setup_seconds,
        "engine": line.engine,
        "units": line.units,
        "alphas": line.alphas.tolist(),
        "errors": [error if isfinite(error) else None for error in line.errors.tolist()],
        "origins": [
            None if origin is None else {"node": origin.node, "unit": origin.unit, "count": origin.count}
            for origin in line.origins
        ],
        **({} if line.layers is None else {"layers": line.layers.to_rows(line.names)}),
        **({} if values is None else {"values": values if line.several_outputs else values[0]}),
    }
