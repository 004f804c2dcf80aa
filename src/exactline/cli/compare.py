"""``exactline compare``: where two networks differ on the line between two points."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console.inputs import PointReader, check_choice, parse_bytes, parse_shapes
from ..console.options import (
    NETWORK_SUFFIXES,
    AsJson,
    Device,
    End,
    MaxBreaks,
    Memory,
    NetworkFile,
    Normalize,
    Order,
    PointConversions,
    Shape,
    ShowProgress,
    Start,
    Threshold,
    TimeLimit,
    expand_options,
)
from ..console.output import print_json, print_rich
from ..console.progress_bar import show_bar

if TYPE_CHECKING:
    from ..measures.comparison import NetworkComparison


@expand_options(PointConversions)
def compare(
    file: NetworkFile,
    other: Annotated[Path, typer.Argument(metavar="OTHER", help=f"The other network: {NETWORK_SUFFIXES}.")],
    start: Start,
    end: End,
    options: PointConversions,
    order: Order = "max",
    threshold: Threshold = None,
    as_json: AsJson = False,
    normalize: Normalize = True,
    shape: Shape = None,
    max_breaks: MaxBreaks = None,
    seconds: TimeLimit = None,
    memory: Memory = None,
    device: Device = None,
    progress: ShowProgress = True,
) -> None:
    """Compare two networks on the line between two points: their largest differences, and where classes differ.

    Example: exactline compare loan.nnet pruned.nnet --from 20,30 --to 30,50
    """
    check_choice("--order", order, ("max", "min"))
    memory_bytes = None if memory is None else parse_bytes(memory)
    from ..formats import load_network
    from ..measures.comparison import compare as compare_networks

    first, second = (load_network(path, normalize=normalize, shape=parse_shapes(shape)) for path in (file, other))
    reader = PointReader.make(first, options)
    ends = reader.read_ends(start, end)
    text = "{task.completed:.4f}, {task.fields[breaks]:,} breaks"
    with reader.silence_warnings(), show_bar(progress, "alpha", text, breaks=0) as update:
        found = compare_networks(
            first,
            second,
            *ends,
            order=order,
            threshold=threshold,
            device=device,
            memory=memory_bytes,
            max_breaks=max_breaks,
            seconds=seconds,
            progress=False if update is None else lambda share, breaks: update(share, breaks=breaks),
        )
    if as_json:
        print_json(_build_document(file, other, found) | reader.report())
    else:
        print_rich(str(found))


def _build_document(file: Path, other: Path, found: NetworkComparison) -> dict[str, Any]:
    intervals = found.disagreements
    return {
        "files": [str(file), str(other)],
        "pieces": len(found.line),
        "complete": found.line.complete,
        "stopped": found.line.stopped,
        "reached": found.reached,
        "error": found.error if isfinite(found.error) else None,
        "largest_difference": found.largest_difference.tolist(),
        "differs_at": found.differs_at.tolist(),
        "disagreement": found.disagreement,
        "disagreements": None if intervals is None else [vars(interval) for interval in intervals],
    }
