"""What a worker does with lines: the library's own sweep, its parts as messages as soon as they are known."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...api import restrict_parts
from ...api import sweep as sweep_line
from ...engines.dense.sweep import SweepPart
from ...errors import ArgumentError
from ...lines import Lines, check_shapes
from ...network import Network
from ...results.check import MAX_ESTIMATED_BREAKS, value_error
from ...results.codec import LINE_ARRAYS, break_rows
from ..codec import TORCH, given, tensors_of
from ..limits import Limits, refuse
from ..protos.exactline.v1 import exactline_pb2 as pb
from . import writer
from .worker import Task
from .writer import Column, Teller

FEW = 16  # breaks of many lines whose error is estimated


def options_of(options: pb.Options, device: str) -> dict[str, Any]:
    """The options of a request as the library takes them."""
    if options.dtype not in (pb.DTYPE_UNSPECIFIED, pb.FLOAT64, pb.FLOAT32):
        raise ArgumentError("dtype must be FLOAT64 or FLOAT32.", where="options.dtype", hint="Leave it out.")
    return {
        "dtype": TORCH[options.dtype] if options.dtype else torch.float64,
        "device": device,
        "memory": options.memory if options.HasField("memory") else None,
        "values": not options.no_values,
        "rewrite": not options.no_rewrite,
        "until": options.until if options.HasField("until") else None,
        "max_breaks": options.max_breaks if options.HasField("max_breaks") else None,
        "seconds": options.seconds if options.HasField("seconds") else None,
        "engine": options.engine or "auto",
    }


def restrict(task: Task) -> Iterator[bytes]:
    """Every break of many lines, each part as soon as it is known."""
    asked = pb.RestrictRequest.FromString(task.payload)
    network = task.network()
    chosen = options_of(asked.options, task.device)
    starts, ends = tensors_of(asked.starts, "starts"), tensors_of(asked.ends, "ends")
    yield from _Swept(task, network, chosen, Teller(task.say, asked.options.progress)).messages(starts, ends)


class _Swept:
    """A sweep of many lines on its way out."""

    def __init__(self, task: Task, network: Network, chosen: dict[str, Any], teller: Teller) -> None:
        self.task, self.network, self.chosen, self.teller = task, network, chosen, teller
        self.counted = Counted(task.limits)
        self.looks: list[tuple[Tensor, Tensor]] = []  # lines and alphas of some breaks

    def messages(self, starts: tuple[Tensor, ...], ends: tuple[Tensor, ...]) -> Iterator[bytes]:
        began = time.perf_counter()
        choice, parts = restrict_parts(self.network, given(starts), given(ends), **self.chosen)
        lines = len(starts[0])
        facts = self.task.facts
        facts["lines"] = lines
        alphas: list[Tensor] = []
        columns: list[Column] = []
        breaks = 0
        for part in parts:
            if not columns:
                columns = break_columns(part.values)
                yield writer.head(columns, self.network, self.task.checksum(), lines)
            self.counted.take(part.line)
            breaks += len(part.line)
            facts["breaks"] = breaks
            yield from writer.breaks(columns, break_rows(part), part.line, self.task.limits.answer_bytes)
            alphas.append(part.alphas) if lines == 1 else self._look(part)
            if len(part.line):
                self.teller((int(part.line[-1]) + float(part.alphas[-1])) / max(lines, 1), breaks)
        if not columns:
            yield writer.head(self._nothing(), self.network, self.task.checksum(), lines)
        seconds = time.perf_counter() - began
        dtype = self.chosen["dtype"]
        whole = Lines(*(tuple(t.to(torch.float64) for t in side) for side in (starts, ends)))
        if lines == 1:
            found = torch.cat(alphas) if alphas else torch.zeros(0, dtype=torch.float64)
            error = value_error(self.network.to(dtype=dtype), whole, found, dtype)
        else:
            error = self._error(whole, dtype)
        yield writer.tail(seconds=seconds, stopped=choice.limits.stopped, error=error, engine=choice.description)

    def _nothing(self) -> list[Column]:
        """The arrays of an answer without a single break."""
        outputs = self.network.outputs if self.chosen["values"] else ()
        return break_columns([torch.zeros(0, *self.network.nodes[i].shape, dtype=torch.float64) for i in outputs])

    def _look(self, part: SweepPart) -> None:
        """Remember a few breaks of a part, wherever they lie."""
        step = max(1, len(part.line) // FEW)
        self.looks.append((part.line[::step].clone(), part.alphas[::step].clone()))

    def _error(self, lines: Lines, dtype: torch.dtype) -> float:
        """The largest estimated error of an output, over breaks spread along all lines."""
        if not self.looks:
            return 0.0
        line, alphas = (torch.cat(group) for group in zip(*self.looks, strict=True))
        some = torch.linspace(0, len(line) - 1, min(FEW, len(line)), dtype=torch.float64).round().to(torch.int64)
        return error_at(self.network.to(dtype=dtype), lines.to(torch.device("cpu"), dtype), line[some], alphas[some])


def error_at(network: Network, lines: Lines, line: Tensor, alphas: Tensor) -> float:
    """The largest estimated error of an output at some points of some lines."""
    from ...engines.dense.error_model import estimate_errors
    from ...fp_context import full_precision

    worst = 0.0
    with full_precision():
        points, errors = lines.at(line, alphas)
        for place in network.outputs:
            size = estimate_errors(network, place, points, errors)
            worst = max(worst, float(size.max()) if size.numel() else 0.0)
    return worst


@dataclass
class Counted:
    """How many breaks the line at hand has so far."""

    limits: Limits
    line: int = -1
    count: int = 0

    def take(self, line: Tensor) -> None:
        """Some more, in order of lines; refused where one has too many."""
        if not len(line):
            return
        first = int(line[0])
        counts = torch.bincount(line - first)
        if first == self.line:
            counts[0] += self.count
        if int(counts.max()) > self.limits.breaks_per_line:
            told = f"Line {first + int(counts.argmax())} has {int(counts.max()):,} breaks or more."
            raise refuse("breaks_per_line", self.limits, told)
        self.line, self.count = int(line[-1]), int(counts[-1])


def break_columns(values: Sequence[Tensor]) -> list[Column]:
    """The arrays of an answer whose rows are breaks; values (breaks, *out) where they are kept."""
    kept = [Column(f"value.{i}", value.dtype, tuple(value.shape[1:])) for i, value in enumerate(values)]
    return [*(Column(field.name, field.dtype, field.row_shape) for field in LINE_ARRAYS), *kept]


def sweep(task: Task) -> Iterator[bytes]:
    """One line in parts, in order of alpha."""
    asked = pb.RestrictRequest.FromString(task.payload)
    network = task.network()
    chosen = options_of(asked.options, task.device)
    most = chosen.pop("max_breaks")
    if most is not None:
        raise ArgumentError("A sweep takes no max_breaks.", where="options.max_breaks", hint="Stop reading instead.")
    ends = [tensors_of(point, name) for point, name in ((asked.starts, "starts"), (asked.ends, "ends"))]
    if any(not t.dim() or len(t) != 1 for side in ends for t in side):
        raise ArgumentError("A sweep is of one line.", where="starts, ends", hint="Give arrays of shape (1, *in).")
    columns: list[Column] = []
    counted, breaks = Counted(task.limits), 0
    task.facts["lines"] = 1
    error = _error_along(network, Lines(*ends), chosen["dtype"])
    for part in sweep_line(network, *(given(tuple(t[0] for t in side)) for side in ends), **chosen):
        if not columns:
            columns = break_columns(part.stored_values or ())
            yield writer.head(columns, network, task.checksum(), 1)
        line = torch.zeros(len(part.alphas), dtype=torch.int64)
        counted.take(line)
        breaks += len(line)
        task.facts["breaks"] = breaks
        ambiguous = torch.zeros(len(line), dtype=torch.int64)
        ambiguous[: len(part.ambiguous_per_piece)] = part.ambiguous_per_piece
        tensors = [part.alphas, part.origin_table, ambiguous, *(part.stored_values or ())]
        yield from writer.breaks(columns, tensors, line, task.limits.answer_bytes)
        yield writer.part_end(part.seconds, part.stopped, error, part.engine)
    yield writer.tail()


def _error_along(network: Network, lines: Lines, dtype: torch.dtype) -> float:
    """The largest estimated error of an output, over points spread along one line: told before its breaks are known."""
    check_shapes(lines, [network.nodes[i].shape for i in network.inputs])
    alphas = torch.linspace(0, 1, MAX_ESTIMATED_BREAKS, dtype=torch.float64)
    swept = lines.to(torch.device("cpu"), dtype)
    return error_at(network.to(dtype=dtype), swept, torch.zeros(MAX_ESTIMATED_BREAKS, dtype=torch.int64), alphas)
