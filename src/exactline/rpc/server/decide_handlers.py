"""The job of a worker about decisions: the breaks of lines, and the intervals where one output is largest."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ...api import restrict_many
from ...decide.intervals import Decisions, ManyDecisions
from ...errors import ArgumentError
from ...results.restrictions import Restrictions
from ..codec import name_interval_arrays, unwrap_single
from ..protos.exactline.v1 import exactline_pb2 as pb
from .encode import ProgressSender, encode_arrays, encode_breaks
from .line_handlers import BreakCounter, decode_lines, decode_options, estimate_errors, name_break_arrays
from .worker import JobContext


def handle_decide(context: JobContext) -> Iterator[bytes]:
    """Send the breaks and the intervals of lines."""
    request = context.parse(pb.DecideRequest)
    network, limits = context.network(), context.limits
    options = decode_options(request.options, context.device)
    starts, ends = decode_lines(request, limits)
    send_progress = ProgressSender(context.send_message, request.options.progress)
    max_breaks = limits.breaks_per_line * max(1, len(starts[0]))

    def report(share: float, breaks: int) -> None:
        if breaks > max_breaks:
            raise limits.error("breaks_per_line", f"The lines have {breaks:,} breaks or more.")
        send_progress(share, breaks)

    lines = restrict_many(network, unwrap_single(starts), unwrap_single(ends), **options, progress=report)
    line = torch.repeat_interleave(torch.arange(len(lines)), lines.offsets.diff())  # (breaks,)
    BreakCounter(limits).add(line)
    context.counters |= {"lines": len(lines), "breaks": len(line)}
    decisions = _decide(request, lines)
    errors = None
    if not request.options.no_errors:
        errors = estimate_errors(lines.network, lines.lines, line, lines.alphas, lines.breaks.values, lines.dtype)
    breaks, intervals = name_break_arrays(lines.breaks, errors), name_interval_arrays(decisions.table)
    answer = context.write_answer(request.options)
    answer.head(breaks | intervals, network, context.checksum(), len(lines))
    answer.rows(encode_breaks(list(breaks.values()), line, limits.answer_bytes))
    answer.rows(encode_arrays(list(intervals.values()), limits.answer_bytes, first_field=len(breaks)))
    answer.tail(
        seconds=lines.seconds,
        stopped=lines.breaks.stopped,
        error=float(errors.max()) if errors is not None and len(errors) else 0.0,
        output=decisions.output,
        engine=lines.engine,
    )
    yield from ()


def _decide(request: pb.DecideRequest, lines: Restrictions) -> Decisions | ManyDecisions:
    if request.one_line and len(lines) != 1:
        raise ArgumentError("There must be exactly one line.", where="one_line", hint="Give arrays of shape (1, *in).")
    order, top = request.order or "max", request.top or 1
    output = request.output if request.HasField("output") else None
    decide = lines[0].decisions if request.one_line else lines.decisions
    return decide(order, top, output=output)
