"""``exactline decide``: which output leads on every point between two points."""

from __future__ import annotations

from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..console.options import (
    AsJson,
    Device,
    End,
    File,
    Labels,
    MaxBreaks,
    Memory,
    Normalize,
    Order,
    Output,
    Seconds,
    Shape,
    Start,
)
from ..console.output import PICTURES, dims, listed, ready, remark, say_json, say_rich
from ..humanize import count_noun
from .restrict import byte_count, given_point

if TYPE_CHECKING:
    from rich.table import Table
    from torch import Tensor

    from ..decide import Decisions, Interval
    from ..results.restriction import Restriction

ROWS = 60  # of the table
SHOWN = 6  # coordinates in it
COLUMNS = 256  # coordinates in a .csv


def decide(
    file: File,
    start: Start,
    end: End,
    order: Order = "max",
    top: Annotated[int, typer.Option(metavar="K", help="Tell the K best outputs in order.")] = 1,
    labels: Labels = None,
    output: Output = None,
    as_json: AsJson = False,
    out: Annotated[Path | None, typer.Option(help="Save the intervals as .csv.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the intervals as a band: .png, .pdf, .svg.")] = None,
    normalize: Normalize = True,
    shape: Shape = None,
    max_breaks: MaxBreaks = None,
    seconds: Seconds = None,
    memory: Memory = None,
    device: Device = None,
) -> None:
    """Which output leads on every point between two points: intervals with exact boundaries.

    Example: exactline decide loan.nnet --from 20,30 --to 30,50 --labels no,yes
    """
    ready({"--out": (out, (".csv",)), "--plot": (plot, PICTURES)})
    limit = None if memory is None else byte_count(memory)
    from ..api import restrict as answer
    from ..formats import load

    network = load(file, normalize=normalize, shape=dims(shape))
    ends = [given_point(texts, network, option) for texts, option in ((start, "--from"), (end, "--to"))]
    line = answer(network, *ends, memory=limit, device=device, max_breaks=max_breaks, seconds=seconds)
    decided = line.decisions(order, top, output=output)
    names = _names(labels, decided)
    if out is not None:
        _save(decided, names, out)
        remark(f"saved to {out}")
    if plot is not None:
        from ..plot.band import plot_band
        from ..plot.line import save_picture

        save_picture(plot_band(decided, names=names), plot)
        remark(f"drawn to {plot}")
    if as_json:
        say_json(_document(str(file), decided, names))
    else:
        say_rich(_summary(decided), _table(decided, names))


def _names(labels: str | None, decided: Decisions) -> list[str]:
    from ..plot.band import checked_names

    count = decided.table.tied.shape[1]
    return checked_names(listed(labels, count), count)


def _label(interval: Interval, names: list[str]) -> str:
    from ..plot.band import label_name

    tied = f" ({' = '.join(names[i] for i in interval.tied)})" if interval.tied else ""
    return f"{label_name(interval.label, names)}{tied}"


def _summary(decided: Decisions) -> str:
    line, which = decided.line, "largest" if decided.order == "max" else "smallest"
    parts = [count_noun(len(decided), "interval"), count_noun(len(line), "piece"), f"the {which} output decides"]
    if not line.complete:
        parts.append(f"stopped by {line.stopped} at alpha {line.reached:.6g}")
    return ", ".join(parts)


def _starts(line: Restriction, intervals: list[Interval]) -> Tensor:  # (intervals, coordinates)
    """The points where intervals start, flat, all inputs together."""
    import torch

    alphas = torch.tensor([interval.start for interval in intervals], dtype=torch.float64)
    points = line.lines.at(torch.zeros(len(alphas), dtype=torch.int64), alphas)[0]
    return torch.cat([p.reshape(len(alphas), p.shape[1:].numel()) for p in points], 1)


def _table(decided: Decisions, names: list[str]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="intervals", title_justify="left")
    for name in ("start", "stop", "label", "margin", "width", "starts at"):
        table.add_column(name, justify="left" if name in ("label", "starts at") else "right")
    shown = decided[:ROWS]
    chosen = _telling(decided.line)
    points = _starts(decided.line, shown)
    for interval, point in zip(shown, points, strict=True):
        numbers = [f"{v:.6g}" for v in (interval.start, interval.stop)]
        sizes = [f"{v:.4g}" for v in (interval.margin, interval.width)]
        table.add_row(*numbers, Text(_label(interval, names)), *sizes, _place(point, chosen))
    if rest := len(decided) - len(shown):
        table.add_row("", "", f"{rest:,} more", "", "", "")
    return table


def _telling(line: Restriction) -> list[int]:
    """Which coordinates are shown: all where there are few, else those that change the most along the line."""
    import torch

    sides = [torch.cat([t[0].reshape(-1) for t in side]) for side in (line.lines.starts, line.lines.ends)]
    if len(sides[0]) <= SHOWN:
        return list(range(len(sides[0])))
    change = (sides[1] / 2 - sides[0] / 2).abs()
    return sorted(change.argsort(descending=True, stable=True)[: SHOWN - 1].tolist())


def _place(point: Tensor, chosen: list[int]) -> str:
    if len(chosen) == len(point):
        return "(" + ", ".join(f"{v:.6g}" for v in point.tolist()) + ")"
    some = ", ".join(f"x[{i}] = {point[i].item():.4g}" for i in chosen)
    return f"{some}, {len(point) - len(chosen):,} more"


def _save(decided: Decisions, names: list[str], path: Path) -> None:
    """One row for each interval; numbers read back as the same numbers."""
    import csv
    import io

    from ..files import write_atomically
    from ..plot.band import label_name

    intervals = list(decided)
    points = _starts(decided.line, intervals)
    wide = points.shape[1] > COLUMNS
    coordinates = [] if wide else [f"x{i}" for i in range(points.shape[1])]
    fields = ("start", "stop", "start_error", "stop_error", "label", "tied", "margin", "margin_at", "width")
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([*fields, *coordinates])
    for i, point in zip(intervals, points, strict=True):
        tied = " = ".join(names[t] for t in i.tied)
        head = [i.start, i.stop, i.start_error, i.stop_error, label_name(i.label, names), tied]
        rows.writerow([*head, i.margin, i.margin_at, i.width, *([] if wide else point.tolist())])
    write_atomically(path, text.getvalue().encode())
    if wide:
        remark(f"points have {points.shape[1]:,} coordinates: they are left out of {path}")


def _document(file: str, decided: Decisions, names: list[str]) -> dict[str, Any]:
    line, intervals = decided.line, list(decided)
    points = _starts(line, intervals)
    return {
        "file": file,
        "order": decided.order,
        "top": decided.top,
        "pieces": len(line),
        "complete": line.complete,
        "stopped": line.stopped,
        "reached": line.reached,
        "names": names,
        "boundaries": decided.boundaries.tolist(),
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
