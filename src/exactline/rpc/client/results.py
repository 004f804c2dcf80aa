"""Decodes answers into the library's result types, without the network, which stays on the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, overload

import torch
from torch import Tensor

from ...decide.comparison import restore_comparison
from ...decide.intervals import Decisions, IntervalTable, ManyDecisions
from ...engines.assemble import BreakTable
from ...errors import MissingError
from ...lines import Lines
from ...network.graph import Network, Node
from ...ops.base import Input, Op
from ...options import RestrictOptions
from ...results.codec import LINE_ARRAYS, decode_line, decode_plane, pack_tensors
from ...results.plane import PlaneRestriction
from ...results.restriction import Restriction
from ...results.restrictions import Restrictions
from ..codec import INTERVAL_ARRAYS
from ..protos.exactline.v1 import exactline_pb2 as pb
from .decode import AnswerReader
from .remote_errors import ErrorsLater, RemoteRestriction, missing_errors


@dataclass(frozen=True, eq=False)
class RemoteOperator(Op):
    """An operator of a network that stays on the server."""

    def evaluate(self, *xs: Tensor) -> Tensor:
        """Raise MissingError: the operator is not here."""
        raise MissingError(
            "The network is on the server.", where="network", hint="Load its file, and pass it to with_network."
        )


@dataclass(frozen=True, eq=False, repr=False)
class RemoteRestrictions(Restrictions):
    """Lines that a server swept together: everything but the network."""

    checksum: str = ""  # of the network's weights
    errors_later: ErrorsLater | None = None

    @cached_property
    def errors(self) -> Tensor:
        """The estimated error at every break of every line, (breaks,); asked for when it is needed."""
        if self.breaks.errors is not None:
            return self.breaks.errors
        if self.errors_later is None:
            raise missing_errors()
        return self.errors_later.fetch(len(self.alphas))

    @overload
    def __getitem__(self, index: int) -> Restriction: ...
    @overload
    def __getitem__(self, index: slice) -> list[Restriction]: ...
    def __getitem__(self, index: int | slice) -> Restriction | list[Restriction]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        line = super().__getitem__(index)
        values: dict[str, Any] = {f.name: getattr(line, f.name) for f in fields(Restriction)}
        values |= {"network": None, "checksum": self.checksum}
        first = int(self.offsets[index % len(self)])
        return RemoteRestriction(
            **values, errors_later=self.errors_later, first_break=first, all_breaks=len(self.alphas)
        )

    def with_network(self, network: Network) -> Restrictions:
        """Return the lines with their network, for methods that need it."""
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(Restrictions)}
        values["network"] = network
        return Restrictions(**values)

    def decisions(
        self,
        order: str = "max",
        top: int = 1,
        *,
        output: str | int | None = None,
        threshold: float | None = None,
        rivals: Sequence[int] | None = None,
    ) -> ManyDecisions:
        """Raise MissingError: decisions need the network to estimate the error of the values."""
        raise MissingError(
            "Decisions need the network, which is on the server.",
            where="lines.decisions",
            hint="Call client.decide_many, or lines.with_network(network).decisions().",
        )


def decode_errors(reader: AnswerReader) -> Tensor:
    """Decode the estimated errors of an answer, (breaks,), and nothing else."""
    tail = reader.require_tail()
    return _decode_errors(reader, reader.break_count, tail.error)


def decode_lines(
    reader: AnswerReader, lines: Lines, options: RestrictOptions, later: ErrorsLater
) -> RemoteRestrictions:
    """Decode the breaks of many lines."""
    tail, rows = reader.require_tail(), reader.break_count
    alphas, origins, ambiguous = (reader.array(array.name, rows) for array in LINE_ARRAYS)
    breaks = BreakTable(
        offsets=reader.offsets(len(lines)),
        alphas=alphas,
        origins=origins,
        ambiguous=ambiguous,
        values=reader.arrays("value", rows) if options.values else None,
        stopped=tail.stopped,
        errors=_decode_errors(reader, rows, tail.error) if tail.error or "errors" in reader.names else None,
    )
    return RemoteRestrictions(
        breaks=breaks,
        lines=lines,
        network=_remote_network(reader, lines),
        seconds=tail.seconds,
        units=_decode_units(reader.head),
        dtype=options.dtype,
        rewrite=options.rewrite,
        until=options.until,
        engine=tail.engine,
        checksum=reader.head.checksum,
        errors_later=later,
    )


def _decode_errors(reader: AnswerReader, rows: int, error: float) -> Tensor:
    """Decode the errors at the breaks, (rows,); older servers send one number for all of them."""
    if "errors" in reader.names:
        return reader.array("errors", rows)
    return torch.full((rows,), error, dtype=torch.float64)


def decode_part(reader: AnswerReader, lines: Lines, options: RestrictOptions) -> Restriction:
    """Decode one part of a sweep, and clear its rows."""
    rows, end = reader.break_count, reader.part_end or pb.PartEnd()
    arrays = {name: reader.array(name, rows) for name in reader.names}
    arrays["errors"] = _decode_errors(reader, rows, end.error)
    arrays["doubts"] = arrays["doubts"][: max(rows - 1, 0)]  # messages have a row for each break, results one less
    arrays |= pack_tensors("start", lines.starts) | pack_tensors("end", lines.ends)
    facts = _result_facts(reader.head, options) | {
        "seconds": end.seconds,
        "stopped": end.stopped,
        "engine": end.engine,
        "is_minimal": False,
    }
    part = decode_line(arrays, facts)
    reader.clear_rows()
    return part


def decode_decisions(
    reader: AnswerReader, lines: Lines, options: RestrictOptions, later: ErrorsLater, order: str, top: int
) -> Decisions:
    """Decode the decisions of one line."""
    line = decode_lines(reader, lines, options, later)[0]
    table, output = _decode_intervals(reader), reader.require_tail().output
    return Decisions(table, 0, line, order, top, output, restore_comparison(table, line.stored_values, output))


def decode_many_decisions(
    reader: AnswerReader, lines: Lines, options: RestrictOptions, later: ErrorsLater, order: str, top: int
) -> ManyDecisions:
    """Decode the decisions of many lines."""
    many = decode_lines(reader, lines, options, later)
    table, output = _decode_intervals(reader), reader.require_tail().output
    comparison = restore_comparison(table, many.breaks.values, output)
    return ManyDecisions(table, many, order, top, output, comparison)


def _decode_intervals(reader: AnswerReader) -> IntervalTable:
    return IntervalTable(*(reader.array(name).numpy() for name in INTERVAL_ARRAYS))


def decode_plane_answer(reader: AnswerReader, options: RestrictOptions) -> PlaneRestriction:
    """Decode the polygons of a plane."""
    tail = reader.require_tail()
    facts = _result_facts(reader.head, options) | {"seconds": tail.seconds, "unresolved": tail.plane_ambiguous}
    return decode_plane({name: reader.array(name) for name in reader.names}, facts)


def _result_facts(head: pb.Head, options: RestrictOptions) -> dict[str, Any]:
    """Return what the answer and the request say about a result, by the names of the results' codec."""
    return {
        "names": tuple(head.names),
        "units": _decode_units(head),
        "several_inputs": head.several_inputs,
        "several_outputs": head.several_outputs,
        "rewrite": options.rewrite,
        "until": options.until,
        "dtype": str(options.dtype).removeprefix("torch."),
        "values": options.values,
        "checksum": head.checksum,
        "weights": head.checksum,
    }


def _decode_units(head: pb.Head) -> dict[str, int]:
    return {unit.operator: unit.count for unit in head.units}


def _remote_network(reader: AnswerReader, lines: Lines) -> Network:
    """Build a network with the names and shapes of the nodes, inputs first, that cannot be evaluated."""
    head = reader.head
    shapes = dict(zip(head.outputs, reader.output_shapes(), strict=False))
    inputs = [Node(name, Input(), (), tuple(x.shape[1:])) for name, x in zip(head.names, lines.starts, strict=False)]
    others = enumerate(head.names[len(inputs) :], len(inputs))
    return Network(
        nodes=(*inputs, *(Node(name, RemoteOperator(), (), shapes.get(i, ())) for i, name in others)),
        outputs=tuple(head.outputs),
        tails=(None,) * len(head.outputs),
        several_inputs=head.several_inputs,
        several_outputs=head.several_outputs,
    )
