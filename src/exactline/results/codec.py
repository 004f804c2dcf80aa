"""Results as named arrays and a header of facts: the one list of fields that files, stores and messages share.

The names on the left are those in files and messages. They stay what the first version wrote, so that everything
written since can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..lines import Lines
from .plane import PlaneRestriction
from .restriction import Restriction

if TYPE_CHECKING:
    from ..engines.assemble import BreakTable
    from ..engines.dense.sweep import SweepPart

DTYPES = {"float64": torch.float64, "float32": torch.float32}
Arrays = dict[str, Tensor]


@dataclass(frozen=True)
class ArrayField:
    """An array of a result: its name in files, the attribute that holds it, and what a row of it is."""

    name: str
    attribute: str
    dtype: torch.dtype
    row_shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class Fact:
    """A plain value of a result: its name in files, the attribute that holds it, and its types."""

    name: str
    attribute: str
    types: tuple[type, ...]


LINE_ARRAYS = (  # one row for each break; `ambiguous_per_piece` has one row less
    ArrayField("alphas", "alphas", torch.float64),
    ArrayField("births", "origin_table", torch.int64, (3,)),
    ArrayField("doubts", "ambiguous_per_piece", torch.int64),
)
PLANE_ARRAYS = (
    ArrayField("outline", "outline", torch.float64),
    ArrayField("origin", "origin", torch.float64),
    ArrayField("axes", "axes", torch.float64),
    ArrayField("weights", "weights", torch.float64),
    ArrayField("edges", "edges", torch.int64),
    ArrayField("births", "origin_table", torch.int64),
    ArrayField("sides", "sides", torch.int64),
    ArrayField("offsets", "offsets", torch.int64),
    ArrayField("rings", "rings", torch.int64),
)
_SHARED_FACTS = (
    Fact("names", "names", (tuple,)),
    Fact("units", "units", (dict,)),
    Fact("several_inputs", "several_inputs", (bool,)),
    Fact("several_outputs", "several_outputs", (bool,)),
    Fact("seconds", "seconds", (int, float)),
    Fact("rewrite", "rewrite", (bool,)),
    Fact("until", "until", (str, type(None))),
    Fact("dtype", "dtype", (torch.dtype,)),
)
LINE_FACTS = (
    *_SHARED_FACTS,
    Fact("stopped", "stopped", (str,)),
    Fact("is_minimal", "is_minimal", (bool,)),
    Fact("engine", "engine", (str,)),
    Fact("stored_error", "stored_error", (int, float)),
    Fact("weights", "weights", (str,)),
)
PLANE_FACTS = (*_SHARED_FACTS, Fact("unresolved", "ambiguous", (int,)), Fact("checksum", "checksum", (str,)))


def number_arrays(kind: str, tensors: tuple[Tensor, ...] | None) -> Arrays:
    """Several tensors as the arrays kind.0, kind.1 and so on."""
    return {f"{kind}.{i}": t for i, t in enumerate(tensors or ())}


def numbered_arrays(arrays: Mapping[str, Tensor], kind: str) -> tuple[Tensor, ...]:
    """The arrays kind.0, kind.1 and so on as a tuple."""
    count = sum(name.startswith(f"{kind}.") for name in arrays)
    return tuple(arrays[f"{kind}.{i}"] for i in range(count))


def encode_line(line: Restriction) -> tuple[Arrays, dict[str, Any]]:
    """A line as arrays and facts; the facts can be written as JSON."""
    arrays = {field.name: getattr(line, field.attribute) for field in LINE_ARRAYS}
    arrays |= number_arrays("start", line.lines.starts) | number_arrays("end", line.lines.ends)
    arrays |= number_arrays("value", line.stored_values)
    facts = _encode_facts(line, LINE_FACTS) | {"stored_error": line.error}
    facts["weights"] = line.weights if line.network is None else line.network.checksum()
    return arrays, facts | {"values": line.stored_values is not None}


def decode_line(arrays: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Restriction:
    """The line that `encode_line` made arrays and facts of; KeyError where one is missing."""
    lines = Lines(numbered_arrays(arrays, "start"), numbered_arrays(arrays, "end"))
    fields = {field.attribute: arrays[field.name] for field in LINE_ARRAYS}
    values = numbered_arrays(arrays, "value") if facts["values"] else None
    return Restriction(lines=lines, stored_values=values, **fields, **_decode_facts(facts, LINE_FACTS))


def encode_plane(plane: PlaneRestriction) -> tuple[Arrays, dict[str, Any]]:
    """A plane as arrays and facts; the facts can be written as JSON."""
    arrays = {field.name: getattr(plane, field.attribute) for field in PLANE_ARRAYS}
    arrays |= number_arrays("vertex", plane.vertices) | number_arrays("value", plane.stored_values)
    facts = _encode_facts(plane, PLANE_FACTS)
    facts["checksum"] = plane.checksum if plane.network is None else plane.network.checksum()
    return arrays, facts | {"values": plane.stored_values is not None}


def decode_plane(arrays: Mapping[str, Tensor], facts: Mapping[str, Any]) -> PlaneRestriction:
    """The plane that `encode_plane` made arrays and facts of; KeyError where one is missing."""
    fields = {field.attribute: arrays[field.name] for field in PLANE_ARRAYS}
    values = numbered_arrays(arrays, "value") if facts["values"] else None
    vertices = numbered_arrays(arrays, "vertex")
    return PlaneRestriction(vertices=vertices, stored_values=values, **fields, **_decode_facts(facts, PLANE_FACTS))


def break_rows(table: BreakTable | SweepPart) -> list[Tensor]:
    """The breaks of many lines as arrays with one row for each break: those of `LINE_ARRAYS`, then the values."""
    return [table.alphas, table.origins, table.ambiguous, *(table.values or ())]


def _encode_facts(result: Any, facts: tuple[Fact, ...]) -> dict[str, Any]:
    found = {fact.name: getattr(result, fact.attribute) for fact in facts}
    return found | {"dtype": str(result.dtype).removeprefix("torch.")}


def _decode_facts(facts: Mapping[str, Any], fields: tuple[Fact, ...]) -> dict[str, Any]:
    convert: dict[str, Callable[[Any], Any]] = {"names": tuple, "dtype": DTYPES.__getitem__}
    return {field.attribute: convert.get(field.name, _same)(facts[field.name]) for field in fields}


def _same(value: Any) -> Any:
    return value
