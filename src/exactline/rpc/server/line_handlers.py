"""Jobs of a worker about lines: sweeps whose parts are sent as soon as they are known."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...api import restrict_parts, sweep
from ...engines.assemble import BreakTable
from ...engines.dense.error_model import estimate_errors
from ...engines.dense.sweep import SweepPart
from ...errors import ArgumentError
from ...fp_context import full_precision
from ...lines import Lines, check_shapes
from ...network import Network
from ...results.check import MAX_ESTIMATED_BREAKS, estimate_value_error
from ...results.codec import LINE_ARRAYS, break_arrays, pack_tensors
from ..codec import TORCH_DTYPES, decode_point, unwrap_single
from ..limits import Limits
from ..protos.exactline.v1 import exactline_pb2 as pb
from .encode import ProgressSender, encode_breaks, encode_head, encode_part_end, encode_tail
from .worker import JobContext

VERSION_1_ENGINES = {"local": "patches"}  # names that older clients send
MAX_ERROR_SAMPLES = 16  # breaks of many lines at which the error of the values is estimated


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


def handle_restrict(context: JobContext) -> Iterator[bytes]:
    """Send every break of many lines, each part as soon as it is known."""
    request = pb.RestrictRequest.FromString(context.payload)
    network = context.network()
    options = decode_options(request.options, context.device)
    starts, ends = decode_point(request.starts, "starts"), decode_point(request.ends, "ends")
    report = ProgressSender(context.send_message, request.options.progress)
    began = time.perf_counter()
    choice, parts = restrict_parts(network, unwrap_single(starts), unwrap_single(ends), **options)
    count = len(starts[0])
    counter, samples = BreakCounter(context.limits), _ErrorSamples(single_line=count == 1)
    context.counters["lines"] = count
    head_sent = False
    for part in parts:
        arrays = name_break_arrays(part)
        if not head_sent:
            yield encode_head(arrays, network, context.checksum(), count)
            head_sent = True
        counter.add(part.line)
        context.counters["breaks"] = counter.total
        yield from encode_breaks(list(arrays.values()), part.line, context.limits.answer_bytes)
        samples.add(part)
        if len(part.line):
            report((int(part.line[-1]) + float(part.alphas[-1])) / max(count, 1), counter.total)
    if not head_sent:
        yield encode_head(_empty_arrays(network, options["values"]), network, context.checksum(), count)
    seconds = time.perf_counter() - began
    lines = Lines(*(tuple(t.to(torch.float64) for t in side) for side in (starts, ends)))
    error = samples.estimate_error(network, lines, options["dtype"])
    yield encode_tail(seconds=seconds, stopped=choice.limits.stopped, error=error, engine=choice.description)


def name_break_arrays(table: BreakTable | SweepPart) -> dict[str, Tensor]:
    """Return the arrays (breaks, *shape) of many lines by their names in messages."""
    rows = break_arrays(table)
    values = pack_tensors("value", tuple(rows[len(LINE_ARRAYS) :]))
    return {array.name: row for array, row in zip(LINE_ARRAYS, rows, strict=False)} | values


def _empty_arrays(network: Network, values: bool) -> dict[str, Tensor]:
    """Return the arrays of an answer without breaks."""
    arrays = {array.name: torch.zeros(0, *array.row_shape, dtype=array.dtype) for array in LINE_ARRAYS}
    outputs = [torch.zeros(0, *network.nodes[i].shape, dtype=torch.float64) for i in network.outputs]
    return arrays | pack_tensors("value", tuple(outputs) if values else None)


@dataclass
class _ErrorSamples:
    """Breaks at which the error of the values is estimated: all of a single line, a few of each part of many lines."""

    single_line: bool
    lines: list[Tensor] = field(default_factory=list[Tensor])
    alphas: list[Tensor] = field(default_factory=list[Tensor])

    def add(self, part: SweepPart) -> None:
        """Keep breaks of a part."""
        step = 1 if self.single_line else max(1, len(part.line) // MAX_ERROR_SAMPLES)
        self.lines.append(part.line[::step].clone())
        self.alphas.append(part.alphas[::step].clone())

    def estimate_error(self, network: Network, lines: Lines, dtype: torch.dtype) -> float:
        """Estimate the largest error of an output."""
        alphas = torch.cat(self.alphas) if self.alphas else torch.zeros(0, dtype=torch.float64)
        if self.single_line:
            return estimate_value_error(network.to(dtype=dtype), lines, alphas, dtype)
        return error_of_many_lines(network, lines, torch.cat(self.lines) if self.lines else alphas, alphas, dtype)


def error_of_many_lines(
    network: Network,
    lines: Lines,
    line: Tensor,  # (breaks,) which line each break is on
    alphas: Tensor,  # (breaks,)
    dtype: torch.dtype,
) -> float:
    """Estimate the largest error of an output at MAX_ERROR_SAMPLES breaks, spread evenly."""
    if not len(alphas):
        return 0.0
    some = torch.linspace(0, len(line) - 1, min(MAX_ERROR_SAMPLES, len(line)), dtype=torch.float64)
    some = some.round().to(torch.int64)
    return _max_error_at(network, lines, line[some], alphas[some], dtype)


def _max_error_at(
    network: Network,
    lines: Lines,
    line: Tensor,  # (points,) which line each point is on
    alphas: Tensor,  # (points,)
    dtype: torch.dtype,
) -> float:
    """Estimate the largest error of an output at some points of some lines."""
    worst = 0.0
    network, lines = network.to(dtype=dtype), lines.to(torch.device("cpu"), dtype)
    with full_precision():
        points, errors = lines.at(line, alphas)
        for output in network.outputs:
            size = estimate_errors(network, output, points, errors)
            worst = max(worst, float(size.max()) if size.numel() else 0.0)
    return worst


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
    request = pb.RestrictRequest.FromString(context.payload)
    network = context.network()
    options = decode_options(request.options, context.device)
    if options.pop("max_breaks") is not None:
        raise ArgumentError("A sweep takes no max_breaks.", where="options.max_breaks", hint="Stop reading instead.")
    starts, ends = decode_point(request.starts, "starts"), decode_point(request.ends, "ends")
    if any(not t.dim() or len(t) != 1 for t in (*starts, *ends)):
        raise ArgumentError(
            "A sweep takes exactly one line.", where="starts, ends", hint="Give arrays of shape (1, *in)."
        )
    counter, head_sent = BreakCounter(context.limits), False
    context.counters["lines"] = 1
    error = _error_along_line(network, Lines(starts, ends), options["dtype"])
    for part in sweep(network, _drop_line_dim(starts), _drop_line_dim(ends), **options):
        ambiguous = torch.zeros(len(part.alphas), dtype=torch.int64)  # messages have a row for each break
        ambiguous[: len(part.ambiguous_per_piece)] = part.ambiguous_per_piece
        arrays = {array.name: getattr(part, array.attribute) for array in LINE_ARRAYS} | {"doubts": ambiguous}
        arrays |= pack_tensors("value", part.stored_values)
        if not head_sent:
            yield encode_head(arrays, network, context.checksum(), 1)
            head_sent = True
        line = torch.zeros(len(part.alphas), dtype=torch.int64)
        counter.add(line)
        context.counters["breaks"] = counter.total
        yield from encode_breaks(list(arrays.values()), line, context.limits.answer_bytes)
        yield encode_part_end(part.seconds, part.stopped, error, part.engine)
    yield encode_tail()


def _drop_line_dim(
    points: Sequence[Tensor],  # (1, *in) each
) -> Any:
    return unwrap_single(tuple(point[0] for point in points))


def _error_along_line(network: Network, lines: Lines, dtype: torch.dtype) -> float:
    """Estimate the largest error of an output at points spread along one line, before its breaks are known."""
    check_shapes(lines, [network.nodes[i].shape for i in network.inputs])
    alphas = torch.linspace(0, 1, MAX_ESTIMATED_BREAKS, dtype=torch.float64)
    return _max_error_at(network, lines, torch.zeros(MAX_ESTIMATED_BREAKS, dtype=torch.int64), alphas, dtype)
