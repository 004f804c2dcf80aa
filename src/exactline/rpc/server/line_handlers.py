"""Jobs of a worker about lines: sweeps whose parts are sent as soon as they are known."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...api import restrict_parts, sweep
from ...engines.assemble import BreakTable
from ...engines.dense.sweep import SweepPart
from ...errors import ArgumentError, LineError
from ...fp_context import full_precision
from ...lines import Lines
from ...network import Network
from ...results.codec import LINE_ARRAYS, break_arrays, pack_tensors
from ...results.errors import MAX_ESTIMATED_NUMBERS, LineErrors
from ..codec import TORCH_DTYPES, decode_point, unwrap_single
from ..limits import Limits
from ..protos.exactline.v1 import exactline_pb2 as pb
from .encode import ProgressSender, encode_breaks, encode_head, encode_part_end, encode_tail
from .worker import JobContext

MANY_LINES_ESTIMATED_NUMBERS = 1 << 17  # like MAX_ESTIMATED_NUMBERS; estimates then cost no more than the sweep
ERRORS = "errors"  # the name of the errors in messages, as in files
VERSION_1_ENGINES = {"local": "patches"}  # names that older clients send


def decode_options(options: pb.Options, device: str) -> dict[str, Any]:
    """Return the options of a request as keyword arguments of the library."""
    if options.dtype not in (pb.DTYPE_UNSPECIFIED, pb.FLOAT64, pb.FLOAT32):
        raise ArgumentError("dtype must be FLOAT64 or FLOAT32.", where="options.dtype", hint="Leave it out.")
    return {
        "dtype": TORCH_DTYPES[options.dtype] if options.dtype else torch.float64,
        "device": device,
        "memory": options.memory if options.HasField("memory") else None,
        "values": not options.no_values,
        "rewrite": not options.no_rewrite,
        "until": options.until if options.HasField("until") else None,
        "max_breaks": options.max_breaks if options.HasField("max_breaks") else None,
        "seconds": options.seconds if options.HasField("seconds") else None,
        "engine": VERSION_1_ENGINES.get(options.engine, options.engine or "auto"),
    }


def decode_lines(request: Any, limits: Limits) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Return the starts and ends of the lines of a request, (lines, *in) for each input of the network.

    Raises LineError, ArgumentError, LimitError if there are too many.
    """
    starts, ends = decode_point(request.starts, "starts"), decode_point(request.ends, "ends")
    limits.check("lines_per_call", count_rows(starts), "lines")
    return starts, ends


def count_rows(points: Sequence[Tensor]) -> int:
    """Return the number of lines or examples of points.

    Raises LineError if an array has no dimension for it.
    """
    if any(not t.dim() for t in points):
        raise LineError("The number of lines is missing.", where="request", hint="Give arrays of shape (lines, *in).")
    return max(len(t) for t in points)


def handle_restrict(context: JobContext) -> Iterator[bytes]:
    """Send every break of many lines, each part as soon as it is known."""
    request = context.parse(pb.RestrictRequest)
    starts, ends = decode_lines(request, context.limits)
    network = context.network()
    options = decode_options(request.options, context.device)
    report = ProgressSender(context.send_message, request.options.progress)
    began = time.perf_counter()
    choice, parts = restrict_parts(network, unwrap_single(starts), unwrap_single(ends), **options)
    count = len(starts[0])
    lines = Lines(*(tuple(t.to(torch.float64) for t in side) for side in (starts, ends)))
    counter, error = BreakCounter(context.limits), 0.0
    context.counters["lines"] = count
    answer = context.write_answer(request.options)
    for part in parts:
        errors = None
        if not request.options.no_errors:
            errors = estimate_errors(network, lines, part.line, part.alphas, part.values, options["dtype"])
            error = max(error, float(errors.max()) if len(errors) else 0.0)
        arrays = name_break_arrays(part, errors)
        if not answer.has_head:
            answer.head(arrays, network, context.checksum(), count)
        counter.add(part.line)
        context.counters["breaks"] = counter.total
        answer.rows(encode_breaks(list(arrays.values()), part.line, context.limits.answer_bytes))
        if len(part.line):
            report((int(part.line[-1]) + float(part.alphas[-1])) / max(count, 1), counter.total)
    if not answer.has_head:
        arrays = _empty_arrays(network, options["values"], errors=not request.options.no_errors)
        answer.head(arrays, network, context.checksum(), count)
    seconds = time.perf_counter() - began
    answer.tail(seconds=seconds, stopped=choice.limits.stopped, error=error, engine=choice.description)
    yield from ()


def estimate_errors(
    network: Network,
    lines: Lines,
    line: Tensor,  # (breaks,) which line each break is on
    alphas: Tensor,  # (breaks,)
    values: tuple[Tensor, ...] | None,  # (breaks, *out) for each output
    dtype: torch.dtype,
) -> Tensor:
    """Estimate the error at every break, (breaks,): one by one on a single line, else at some breaks of all lines."""
    budget = MAX_ESTIMATED_NUMBERS if len(lines) == 1 else MANY_LINES_ESTIMATED_NUMBERS
    with full_precision():
        return LineErrors(network.to(dtype=dtype), lines, line, alphas, values or None, dtype, budget).estimate()


def name_break_arrays(
    table: BreakTable | SweepPart,
    errors: Tensor | None,  # (breaks,)
) -> dict[str, Tensor]:
    """Return the arrays (breaks, *shape) of many lines by their names in messages."""
    rows = break_arrays(table)
    values = pack_tensors("value", tuple(rows[len(LINE_ARRAYS) :]))
    named = {array.name: row for array, row in zip(LINE_ARRAYS, rows, strict=False)}
    return named | ({} if errors is None else {ERRORS: errors}) | values


def _empty_arrays(network: Network, values: bool, errors: bool) -> dict[str, Tensor]:
    """Return the arrays of an answer without breaks."""
    arrays = {array.name: torch.zeros(0, *array.row_shape, dtype=array.dtype) for array in LINE_ARRAYS}
    if errors:
        arrays[ERRORS] = torch.zeros(0, dtype=torch.float64)
    outputs = [torch.zeros(0, *network.nodes[i].shape, dtype=torch.float64) for i in network.outputs]
    return arrays | pack_tensors("value", tuple(outputs) if values else None)


@dataclass
class BreakCounter:
    """Counts the breaks of lines as they come, in order of lines, and checks the limit of each line."""

    limits: Limits
    total: int = 0
    last_line: int = -1
    last_count: int = 0  # breaks of the last line so far

    def add(
        self,
        line: Tensor,  # (breaks,) which line each break is on, ascending
    ) -> None:
        """Count some more breaks.

        Raises LimitError if a line has too many.
        """
        if not len(line):
            return
        self.total += len(line)
        first = int(line[0])
        counts = torch.bincount(line - first)
        if first == self.last_line:
            counts[0] += self.last_count
        if int(counts.max()) > self.limits.breaks_per_line:
            problem = f"Line {first + int(counts.argmax())} has {int(counts.max()):,} breaks or more."
            raise self.limits.error("breaks_per_line", problem)
        self.last_line, self.last_count = int(line[-1]), int(counts[-1])


def handle_sweep(context: JobContext) -> Iterator[bytes]:
    """Send one line in parts, in order of alpha."""
    request = context.parse(pb.RestrictRequest)
    network = context.network()
    options = decode_options(request.options, context.device)
    if options.pop("max_breaks") is not None:
        raise ArgumentError("A sweep takes no max_breaks.", where="options.max_breaks", hint="Stop reading instead.")
    starts, ends = decode_lines(request, context.limits)
    if any(not t.dim() or len(t) != 1 for t in (*starts, *ends)):
        raise ArgumentError(
            "A sweep takes exactly one line.", where="starts, ends", hint="Give arrays of shape (1, *in)."
        )
    counter, head_sent = BreakCounter(context.limits), False
    context.counters["lines"] = 1
    for part in sweep(network, _drop_line_dim(starts), _drop_line_dim(ends), **options):
        ambiguous = torch.zeros(len(part.alphas), dtype=torch.int64)  # messages have a row for each break
        ambiguous[: len(part.ambiguous_per_piece)] = part.ambiguous_per_piece
        arrays = {array.name: getattr(part, array.attribute) for array in LINE_ARRAYS} | {"doubts": ambiguous}
        arrays |= {ERRORS: part.errors} | pack_tensors("value", part.stored_values)
        if not head_sent:
            context.hold(encode_head(arrays, network, context.checksum(), 1))
            head_sent = True
        line = torch.zeros(len(part.alphas), dtype=torch.int64)
        counter.add(line)
        context.counters["breaks"] = counter.total
        for message in encode_breaks(list(arrays.values()), line, context.limits.answer_bytes):
            context.hold(message)
        yield encode_part_end(part.seconds, part.stopped, part.error, part.engine)
    context.hold(encode_tail())


def _drop_line_dim(
    points: Sequence[Tensor],  # (1, *in) each
) -> Any:
    return unwrap_single(tuple(point[0] for point in points))
