"""What a worker does when asked which output leads where: the lines, then the intervals of all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

import torch

from ...api import restrict_many
from ...decide.intervals import Table
from ...errors import ArgumentError
from ...results.codec import break_rows
from ...results.restrictions import Restrictions
from ..codec import given, tensors_of
from ..limits import refuse
from ..protos.exactline.v1 import exactline_pb2 as pb
from . import writer
from .line_handlers import FEW, Counted, break_columns, error_at, options_of
from .worker import Task
from .writer import Column, Teller


def decide(task: Task) -> Iterator[bytes]:
    """Breaks and intervals."""
    asked = pb.DecideRequest.FromString(task.payload)
    network = task.network()
    chosen = options_of(asked.options, task.device)
    starts, ends = tensors_of(asked.starts, "starts"), tensors_of(asked.ends, "ends")
    teller = Teller(task.say, asked.options.progress)
    most = task.limits.breaks_per_line * max(1, len(starts[0]) if starts[0].dim() else 1)

    def watch(share: float, breaks: int) -> None:
        if breaks > most:
            raise refuse("breaks_per_line", task.limits, f"The lines have {breaks:,} breaks or more.")
        teller(share, breaks)

    lines = restrict_many(network, given(starts), given(ends), **chosen, progress=watch)
    owner = torch.repeat_interleave(torch.arange(len(lines)), lines.offsets.diff())
    Counted(task.limits).take(owner)
    task.facts |= {"lines": len(lines), "breaks": len(owner)}
    if asked.one_line and len(lines) != 1:
        raise ArgumentError("There is not one line.", where="one_line", hint="Give arrays of shape (1, *in).")
    table, output = _decided(asked, lines)
    columns = break_columns(lines.breaks.values or ())
    tables = [torch.from_numpy(getattr(table, field.name)) for field in fields(Table)]
    named = [Column(f"table.{f.name}", t.dtype, tuple(t.shape[1:])) for f, t in zip(fields(Table), tables, strict=True)]
    yield writer.head([*columns, *named], network, task.checksum(), len(lines))
    found = lines.breaks
    yield from writer.breaks(columns, break_rows(found), owner, task.limits.answer_bytes)
    yield from writer.arrays(tables, task.limits.answer_bytes, len(columns))
    error = _error(lines)
    yield writer.tail(seconds=lines.seconds, stopped=found.stopped, error=error, output=output, engine=lines.engine)


def _decided(asked: pb.DecideRequest, lines: Restrictions) -> tuple[Table, int]:
    order, top = asked.order or "max", asked.top or 1
    output = asked.output if asked.HasField("output") else None
    if asked.one_line:
        one = lines[0].decisions(order, top, output=output)
        return one.table, one.output
    many = lines.decisions(order, top, output=output)
    return many.table, many.output


def _error(lines: Restrictions) -> float:
    """The estimated error of values: that of the line, or over breaks spread along all of them."""
    if len(lines) == 1:
        return lines[0].error
    count = len(lines.alphas)
    if not count:
        return 0.0
    owner = torch.repeat_interleave(torch.arange(len(lines)), lines.offsets.diff())
    some = torch.linspace(0, count - 1, min(FEW, count), dtype=torch.float64).round().to(torch.int64)
    swept = lines.lines.to(torch.device("cpu"), lines.dtype)
    return error_at(lines.network.to(dtype=lines.dtype), swept, owner[some], lines.alphas[some])
