"""Results of a server as the library's own types; what needs the network itself says that it is not here."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, overload

from torch import Tensor

from ...decide.intervals import Decisions, ManyDecisions, Table
from ...engines.assemble import BreakTable
from ...errors import MissingError
from ...lines import Lines
from ...network.graph import Network, Node
from ...ops.base import Input, Op
from ...results.codec import LINE_ARRAYS, decode_line, decode_plane, number_arrays
from ...results.plane import PlaneRestriction
from ...results.restriction import Restriction
from ...results.restrictions import Restrictions
from .decode import Reader


@dataclass(frozen=True, eq=False)
class Unknown(Op):
    """An operator that only the server knows."""

    def evaluate(self, *xs: Tensor) -> Tensor:
        """Not here."""
        raise MissingError(
            "The network is on the server.", where="network", hint="Load its file, and give it with with_network."
        )


@dataclass(frozen=True, eq=False, repr=False)
class Received(Restrictions):
    """Lines that a server swept together; all there is but the network."""

    checksum: str = ""
    error: float = 0.0  # of values, estimated over breaks spread along all lines

    @overload
    def __getitem__(self, index: int) -> Restriction: ...
    @overload
    def __getitem__(self, index: slice) -> list[Restriction]: ...
    def __getitem__(self, index: int | slice) -> Restriction | list[Restriction]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        found = super().__getitem__(index)
        return replace(found, network=None, weights=self.checksum, stored_error=self.error)

    def with_network(self, network: Network) -> Restrictions:
        """The same answer, with the network to ask further."""
        kept: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields(Restrictions)}
        kept["network"] = network
        return Restrictions(**kept)

    def decisions(self, order: str = "max", top: int = 1, *, output: int | None = None) -> ManyDecisions:
        """Not without the network: ask the server, or bring the network."""
        raise MissingError(
            "How far values can be trusted is told by the network, which is on the server.",
            where="lines.decisions",
            hint="Ask client.decide_many, or give the network with lines.with_network(network).",
        )


def lines_of(reader: Reader, lines: Lines, options: dict[str, Any]) -> Received:
    """An answer about many lines."""
    tail, rows = reader.whole(), reader.breaks
    alphas, origins, ambiguous = (reader.array(field.name, rows) for field in LINE_ARRAYS)
    values = reader.group("value", rows) if options["values"] else None
    found = BreakTable(reader.offsets(len(lines)), alphas, origins, ambiguous, values, tail.stopped)
    return Received(
        found,
        lines,
        _network(reader, lines),
        tail.seconds,
        _units(reader),
        dtype=options["dtype"],
        rewrite=options["rewrite"],
        until=options["until"],
        engine=tail.engine,
        checksum=reader.head.checksum,
        error=tail.error,
    )


def part_of(reader: Reader, lines: Lines, options: dict[str, Any]) -> Restriction:
    """One part of a sweep."""
    rows, end = reader.breaks, reader.part
    arrays = {name: reader.array(name, rows) for name in reader.names}
    arrays["doubts"] = arrays["doubts"][: max(rows - 1, 0)]
    arrays |= number_arrays("start", lines.starts) | number_arrays("end", lines.ends)
    found = decode_line(
        arrays,
        _facts(reader, options)
        | {
            "seconds": 0.0 if end is None else end.seconds,
            "stopped": "" if end is None else end.stopped,
            "stored_error": 0.0 if end is None else end.error,
            "engine": "" if end is None else end.engine,
            "is_minimal": False,
        },
    )
    reader.forget()
    return found


def table_of(reader: Reader) -> Table:
    """The intervals of all lines."""
    return Table(*(reader.array(f"table.{f.name}").numpy() for f in fields(Table)))


def decisions_of(reader: Reader, lines: Lines, options: dict[str, Any], order: str, top: int) -> Decisions:
    """An answer about one line."""
    line = lines_of(reader, lines, options)[0]
    return Decisions(table_of(reader), 0, line, order, top, reader.whole().output)


def many_decisions_of(reader: Reader, lines: Lines, options: dict[str, Any], order: str, top: int) -> ManyDecisions:
    """An answer about many."""
    swept = lines_of(reader, lines, options)
    return ManyDecisions(table_of(reader), swept, order, top, reader.whole().output)


def plane_of(reader: Reader, options: dict[str, Any]) -> PlaneRestriction:
    """An answer about a plane."""
    tail = reader.whole()
    facts = _facts(reader, options) | {"seconds": tail.seconds, "unresolved": tail.unresolved}
    return decode_plane({name: reader.array(name) for name in reader.names}, facts)


def _facts(reader: Reader, options: dict[str, Any]) -> dict[str, Any]:
    """What a message and the request say of a result, by the names of the codec."""
    head = reader.head
    return {
        "names": tuple(head.names),
        "units": _units(reader),
        "several_inputs": head.several_inputs,
        "several_outputs": head.several_outputs,
        "rewrite": options["rewrite"],
        "until": options["until"],
        "dtype": str(options["dtype"]).removeprefix("torch."),
        "values": options["values"],
        "checksum": head.checksum,
        "weights": head.checksum,
    }


def _units(reader: Reader) -> dict[str, int]:
    return {unit.operator: unit.count for unit in reader.head.units}


def _network(reader: Reader, lines: Lines) -> Network:
    """Names and shapes of the nodes, without what they do; inputs come first."""
    head = reader.head
    shapes = dict(zip(head.outputs, reader.shapes(), strict=False))
    inputs = [Node(name, Input(), (), tuple(x.shape[1:])) for name, x in zip(head.names, lines.starts, strict=False)]
    rest = enumerate(head.names[len(inputs) :], len(inputs))
    nodes = (*inputs, *(Node(name, Unknown(), (), shapes.get(i, ())) for i, name in rest))
    tails = (None,) * len(head.outputs)
    return Network(nodes, tuple(head.outputs), tails, head.several_inputs, head.several_outputs)
