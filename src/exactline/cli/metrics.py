"""``exactline metrics``: regions, slopes, variation, margins and layers of a network on the line between two points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..console.inputs import PointReader, parse_bytes, parse_output, parse_shapes
from ..console.options import (
    AsJson,
    Device,
    End,
    MaxBreaks,
    Memory,
    NetworkFile,
    Normalize,
    OutputName,
    PointConversions,
    Shape,
    ShowProgress,
    Start,
    TimeLimit,
    expand_options,
)
from ..console.output import print_json, print_rich
from ..console.progress_bar import show_bar

if TYPE_CHECKING:
    from rich.table import Table

    from ..measures.line_metrics import LineMetrics

MAX_TABLE_ROWS = 20


@expand_options(PointConversions)
def metrics(
    file: NetworkFile,
    start: Start,
    end: End,
    options: PointConversions,
    as_json: AsJson = False,
    layers: Annotated[bool, typer.Option(help="Count crossings, dead and always-on units by layer.")] = True,
    normalize: Normalize = True,
    shape: Shape = None,
    max_breaks: MaxBreaks = None,
    seconds: TimeLimit = None,
    memory: Memory = None,
    output: OutputName = None,
    device: Device = None,
    progress: ShowProgress = True,
) -> None:
    """Measure a network on the line between two points, exactly: regions, slopes, variation, margins, layers.

    Example: exactline metrics loan.nnet --from 20,30 --to 30,50
    """
    memory_bytes = None if memory is None else parse_bytes(memory)
    from ..api import restrict
    from ..formats import load_network

    network = load_network(file, normalize=normalize, shape=parse_shapes(shape))
    reader = PointReader.make(network, options)
    ends = reader.read_ends(start, end)
    text = "{task.completed:.4f}, {task.fields[breaks]:,} breaks"
    with reader.silence_warnings(), show_bar(progress, "alpha", text, breaks=0) as update:
        line = restrict(
            network,
            *ends,
            device=device,
            memory=memory_bytes,
            max_breaks=max_breaks,
            seconds=seconds,
            record="layers" if layers else None,
            output=parse_output(output),
            progress=False if update is None else lambda share, breaks: update(share, breaks=breaks),
        )
    found = line.metrics()
    if as_json:
        print_json({"file": str(file)} | found.to_dict() | reader.report())
    else:
        print_rich(_format_summary(found), _output_table(found), *([] if not found.layers else [_layer_table(found)]))


def _format_summary(found: LineMetrics) -> str:
    rows = [row for row in str(found).splitlines()[:3] if not row.startswith("total variation")]
    return "\n".join(rows)


def _output_table(found: LineMetrics) -> Table:
    from rich.table import Table

    table = Table(title="outputs", title_justify="left")
    for name in ("output", "total variation", "largest slope", "Lipschitz constant", "mean"):
        table.add_column(name, justify="right")
    columns = (found.total_variation, found.largest_slope, found.lipschitz, found.mean)
    for k, row in enumerate(zip(*(c[:MAX_TABLE_ROWS].tolist() for c in columns), strict=True)):
        table.add_row(str(k), *(f"{number:.6g}" for number in row))
    if (rest := len(found.mean) - MAX_TABLE_ROWS) > 0:
        table.add_row(f"{rest:,} more", "", "", "", "")
    return table


def _layer_table(found: LineMetrics) -> Table:
    from rich.table import Table

    table = Table(title="layers", title_justify="left")
    for name in ("node", "units", "crossings", "dead", "always on", "switching"):
        table.add_column(name, justify="left" if name == "node" else "right")
    for layer in found.layers or ():
        counts = (layer.units, layer.crossings, layer.dead, layer.always_on, layer.switching)
        table.add_row(layer.node, *(f"{count:,}" for count in counts))
    return table
