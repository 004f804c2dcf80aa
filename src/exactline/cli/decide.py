"""``exactline decide``: which output leads on every point between two points."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console.inputs import PointReader, parse_bytes, parse_indices, parse_labels, parse_output, parse_shapes
from ..console.options import (
    AsJson,
    Device,
    End,
    Labels,
    MaxBreaks,
    Memory,
    NetworkFile,
    Normalize,
    Order,
    OutputName,
    PointConversions,
    Shape,
    ShowProgress,
    Start,
    Threshold,
    TimeLimit,
    expand_options,
)
from ..console.output import PICTURE_SUFFIXES, check_output_files, print_json, print_note, print_rich
from ..console.progress_bar import show_bar, show_clock
from ..errors import ArgumentError
from ..humanize import count_noun
from .smooth_file import Tolerance, needs_tolerance, print_tolerance_warnings

if TYPE_CHECKING:
    from rich.table import Table
    from torch import Tensor

    from ..decide import Decisions, Interval
    from ..results.restriction import Restriction

MAX_TABLE_ROWS = 60
MAX_TABLE_COORDINATES = 6  # of a point in the table
MAX_LISTED_COORDINATES = 32  # of a point that is listed at all: larger ones are images
MAX_CSV_COORDINATES = 256  # of a point in the .csv file


@expand_options(PointConversions)
def decide(
    file: NetworkFile,
    start: Start,
    end: End,
    options: PointConversions,
    order: Order = "max",
    top: Annotated[int, typer.Option(metavar="K", help="Show the K best outputs, in order.")] = 1,
    labels: Labels = None,
    output: OutputName = None,
    threshold: Threshold = None,
    rivals: Annotated[
        str | None, typer.Option(metavar="I,J", help="The outputs that compete, from 0, if not all do.")
    ] = None,
    as_json: AsJson = False,
    out: Annotated[Path | None, typer.Option(help="Save the intervals as .csv.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the intervals as a band: .png, .pdf, .svg.")] = None,
    normalize: Normalize = True,
    shape: Shape = None,
    max_breaks: MaxBreaks = None,
    seconds: TimeLimit = None,
    memory: Memory = None,
    device: Device = None,
    progress: ShowProgress = True,
    tol: Tolerance = None,
) -> None:
    """Find which output leads on every point between two points: intervals with exact boundaries.

    With --tol the network need not be piecewise linear: the boundaries then have an error estimate.

    Example: exactline decide loan.nnet --from 20,30 --to 30,50 --labels no,yes
    """
    check_output_files({"--out": (out, (".csv",)), "--plot": (plot, PICTURE_SUFFIXES)})
    memory_bytes = None if memory is None else parse_bytes(memory)
    from ..api import restrict
    from ..formats import load
    from ..network.smooth_network import require_piecewise_linear
    from ..smooth.api import DEFAULT_TOL

    network = load(file, normalize=normalize, shape=parse_shapes(shape))
    reader = PointReader.make(network, options)
    ends = reader.read_ends(start, end)
    chosen, compared = parse_output(output), parse_indices(rivals, "--rivals")
    if needs_tolerance(network, tol):
        from ..smooth.api import approximate

        if top != 1:
            raise ArgumentError("With --tol only the leader is known.", where="--top", hint="Leave --top out.")
        with reader.silence_warnings(), print_tolerance_warnings(), show_clock(progress, "approximating"):
            curve = approximate(
                network, *ends, tol=tol or DEFAULT_TOL, memory=memory_bytes, device=device, seconds=seconds
            )
            decisions = curve.decisions(order, output=chosen, threshold=threshold, rivals=compared)
    else:
        network = require_piecewise_linear(network)
        text = "{task.completed:.4f}, {task.fields[breaks]:,} breaks"
        with reader.silence_warnings(), show_bar(progress, "alpha", text, breaks=0) as update:
            line = restrict(
                network,
                *ends,
                memory=memory_bytes,
                device=device,
                max_breaks=max_breaks,
                seconds=seconds,
                progress=False if update is None else lambda share, breaks: update(share, breaks=breaks),
            )
        with show_clock(progress, "comparing outputs"):
            decisions = line.decisions(order, top, output=chosen, threshold=threshold, rivals=compared)
    names = _output_names(labels, decisions)
    if out is not None:
        _save_csv(decisions, names, out)
        print_note(f"saved to {out}")
    if plot is not None:
        from ..plot.decisions import plot_decisions
        from ..plot.figure import save_picture

        save_picture(plot_decisions(decisions, labels=names), plot)
        print_note(f"drawn to {plot}")
    if as_json:
        print_json(_build_document(str(file), decisions, names) | reader.report())
    else:
        print_rich(_format_summary(decisions), _build_table(decisions, names))


def _output_names(labels: str | None, decisions: Decisions) -> list[str]:
    from ..plot.style import check_labels

    count = decisions.table.tied.shape[1]
    return check_labels(parse_labels(labels, count), count)


def _format_label(interval: Interval, names: list[str]) -> str:
    from ..plot.decisions import format_label

    tied = f" ({' = '.join(names[i] for i in interval.tied)})" if interval.tied else ""
    return f"{format_label(interval.label, names)}{tied}"


def _format_summary(decisions: Decisions) -> str:
    line = decisions.line
    rule = "the largest output decides" if decisions.order == "max" else "the smallest output decides"
    if decisions.comparison is not None and not decisions.comparison.is_whole:
        rule = decisions.describe()
    parts = [count_noun(len(decisions), "interval"), count_noun(len(line), "piece"), rule]
    if line.status != "exact":
        parts.append(f"{line.status}, error {line.error:.0e}")
    if not line.complete:
        parts.append(f"stopped by {line.stopped} at alpha {line.reached:.6g}")
    return ", ".join(parts)


def _compute_start_points(line: Restriction, intervals: list[Interval]) -> Tensor:  # (intervals, coordinates)
    """Compute the points where intervals start; all inputs are flattened and concatenated."""
    import torch

    alphas = torch.tensor([interval.start for interval in intervals], dtype=torch.float64)
    points = line.lines.at(torch.zeros(len(alphas), dtype=torch.int64), alphas)[0]
    return torch.cat([p.reshape(len(alphas), p.shape[1:].numel()) for p in points], 1)


def _build_table(decisions: Decisions, names: list[str]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="intervals", title_justify="left")
    for name in ("start", "stop", "label", "margin", "width"):
        table.add_column(name, justify="left" if name == "label" else "right")
    shown = decisions[:MAX_TABLE_ROWS]
    points = _format_start_points(decisions.line, shown)
    if points:
        table.add_column("starts at")
    for position, interval in enumerate(shown):
        ends = [f"{v:.6g}" for v in (interval.start, interval.stop)]
        sizes = [f"{v:.4g}" for v in (interval.margin, interval.width)]
        table.add_row(*ends, Text(_format_label(interval, names)), *sizes, *points[position : position + 1])
    if rest := len(decisions) - len(shown):
        table.add_row("", "", f"{rest:,} more")
    return table


def _format_start_points(line: Restriction, intervals: list[Interval]) -> list[str]:
    """Format the points where intervals start; an empty list where points are images, whose pixels say little."""
    points = _compute_start_points(line, intervals)
    if points.shape[1] > MAX_LISTED_COORDINATES:
        return []
    coordinates = _select_coordinates(line)
    return [_format_point(point, coordinates) for point in points]


def _select_coordinates(line: Restriction) -> list[int]:
    """Select the coordinates to show: all if there are few, else those that change most along the line."""
    import torch

    start, end = (torch.cat([t[0].reshape(-1) for t in side]) for side in (line.lines.starts, line.lines.ends))
    if len(start) <= MAX_TABLE_COORDINATES:
        return list(range(len(start)))
    change = (end / 2 - start / 2).abs()  # halves cannot overflow
    return sorted(change.argsort(descending=True, stable=True)[: MAX_TABLE_COORDINATES - 1].tolist())


def _format_point(point: Tensor, coordinates: list[int]) -> str:
    if len(coordinates) == len(point):
        return "(" + ", ".join(f"{v:.6g}" for v in point.tolist()) + ")"
    shown = ", ".join(f"x[{i}] = {point[i].item():.4g}" for i in coordinates)
    return f"{shown}, {len(point) - len(coordinates):,} more"


def _save_csv(decisions: Decisions, names: list[str], path: Path) -> None:
    """Write one row per interval; floats are read back bit for bit."""
    import csv
    import io

    from ..files import write_atomically
    from ..plot.decisions import format_label

    intervals = list(decisions)
    points = _compute_start_points(decisions.line, intervals)
    has_coordinates = points.shape[1] <= MAX_CSV_COORDINATES
    coordinates = [f"x{i}" for i in range(points.shape[1])] if has_coordinates else []
    columns = ("start", "stop", "start_error", "stop_error", "label", "tied", "margin", "margin_at", "width")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*columns, *coordinates])
    for i, point in zip(intervals, points, strict=True):
        tied = " = ".join(names[t] for t in i.tied)
        cells = [i.start, i.stop, i.start_error, i.stop_error, format_label(i.label, names), tied]
        writer.writerow([*cells, i.margin, i.margin_at, i.width, *(point.tolist() if has_coordinates else [])])
    write_atomically(path, text.getvalue().encode())
    if not has_coordinates:
        print_note(f"points have {points.shape[1]:,} coordinates: they are left out of {path}")


def _build_document(file: str, decisions: Decisions, names: list[str]) -> dict[str, Any]:
    line, intervals = decisions.line, list(decisions)
    points = _compute_start_points(line, intervals)
    return {
        "file": file,
        "status": line.status,
        "order": decisions.order,
        "top": decisions.top,
        "threshold": None if decisions.comparison is None else decisions.comparison.threshold,
        "pieces": len(line),
        "complete": line.complete,
        "stopped": line.stopped,
        "reached": line.reached,
        "names": names,
        "boundaries": decisions.boundaries.tolist(),
        "intervals": [
            {
                "start": i.start,
                "stop": i.stop,
                "label": i.label,
                "tied": i.tied,
                "margin": i.margin if isfinite(i.margin) else None,
                "margin_at": i.margin_at,
                "start_error": i.start_error,
                "stop_error": i.stop_error,
                "point": point,
            }
            for i, point in zip(intervals, points.tolist(), strict=True)
        ],
    }
