"""Results as named arrays and a header of facts: one list of fields for files, stores and messages.

The first name of each field is its name in files and messages. It stays what the first version wrote, even where the
attribute was renamed, so that old files can be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..engines.layer_record import LayerTable
from ..lines import Lines
from .plane import PlaneRestriction
from .restriction import Restriction

if TYPE_CHECKING:
    from ..engines.assemble import BreakTable
    from ..engines.dense.sweep import SweepPart
    from .restrictions import Restrictions

DTYPES = {"float64": torch.float64, "float32": torch.float32}
Arrays = dict[str, Tensor]


@dataclass(frozen=True)
class ArrayField:
    """An array of a result: its name in files, the attribute that holds it, and the type and shape of its rows."""

    name: str
    attribute: str
    dtype: torch.dtype
    row_shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class Fact:
    """A plain value of a result: its name in files, the attribute that holds it, and its possible types."""

    name: str
    attribute: str
    types: tuple[type, ...]


LINE_ARRAYS = (  # one row for each break, except `ambiguous_per_piece`, which has one for each piece
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
    Fact("setup_seconds", "setup_seconds", (int, float)),
    Fact("rewrite", "rewrite", (bool,)),
    Fact("until", "until", (str, type(None))),
    Fact("dtype", "dtype", (torch.dtype,)),
)
LINE_FACTS = (
    *_SHARED_FACTS,
    Fact("stopped", "stopped", (str,)),
    Fact("is_minimal", "is_minimal", (bool,)),
    Fact("engine", "engine", (str,)),
    Fact("weights", "checksum", (str,)),
)
LAYER_ARRAYS = ("node", "units", "crossings", "dead", "always_on")  # the fields of `LayerTable`
STORE_ORIGINS = ("break/node", "break/unit", "break/crossings")  # the columns of `Restriction.origin_table`
PLANE_FACTS = (*_SHARED_FACTS, Fact("unresolved", "ambiguous", (int,)), Fact("checksum", "checksum", (str,)))


def pack_tensors(kind: str, tensors: tuple[Tensor, ...] | None) -> Arrays:
    """Name several tensors kind.0, kind.1 and so on."""
    return {f"{kind}.{i}": t for i, t in enumerate(tensors or ())}


def unpack_tensors(arrays: Mapping[str, Tensor], kind: str) -> tuple[Tensor, ...]:
    """Collect the arrays kind.0, kind.1 and so on."""
    count = sum(name.startswith(f"{kind}.") for name in arrays)
    return tuple(arrays[f"{kind}.{i}"] for i in range(count))


def encode_line(line: Restriction) -> tuple[Arrays, dict[str, Any]]:
    """Convert a line to arrays and facts; the facts can be written as JSON."""
    arrays = {field.name: getattr(line, field.attribute) for field in LINE_ARRAYS}
    arrays |= pack_tensors("start", line.lines.starts) | pack_tensors("end", line.lines.ends)
    arrays |= pack_tensors("value", line.stored_values)
    arrays["errors"] = line.errors
    if line.layers is not None:
        arrays |= {f"layers.{name}": getattr(line.layers, name) for name in LAYER_ARRAYS}
    facts = _encode_facts(line, LINE_FACTS)
    facts["weights"] = line.checksum if line.network is None else line.network.checksum()
    return arrays, facts | {"values": line.stored_values is not None}


def decode_line(arrays: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Restriction:
    """Convert the arrays and facts of `encode_line` back to a line; KeyError if one is missing."""
    lines = Lines(unpack_tensors(arrays, "start"), unpack_tensors(arrays, "end"))
    fields = {field.attribute: arrays[field.name] for field in LINE_ARRAYS}
    values = unpack_tensors(arrays, "value") if facts["values"] else None
    errors = arrays["errors"] if "errors" in arrays else _errors_of_version_1(arrays["alphas"], facts)
    facts = _decode_facts(facts, LINE_FACTS)
    has_layers = any(name.startswith("layers.") for name in arrays)
    layers = LayerTable(*(arrays[f"layers.{name}"] for name in LAYER_ARRAYS)) if has_layers else None
    return Restriction(lines=lines, stored_values=values, stored_errors=errors, layers=layers, **fields, **facts)


def _errors_of_version_1(alphas: Tensor, facts: Mapping[str, Any]) -> Tensor:
    """The errors (breaks,) of older files, which have one number for the whole line."""
    error = facts["stored_error"]
    if isinstance(error, bool) or not isinstance(error, (int, float)):
        raise ValueError("stored_error has a wrong type or value")
    return torch.full_like(alphas, float(error))


def encode_plane(plane: PlaneRestriction) -> tuple[Arrays, dict[str, Any]]:
    """Convert a plane to arrays and facts; the facts can be written as JSON."""
    arrays = {field.name: getattr(plane, field.attribute) for field in PLANE_ARRAYS}
    arrays |= pack_tensors("vertex", plane.vertices) | pack_tensors("value", plane.stored_values)
    facts = _encode_facts(plane, PLANE_FACTS)
    facts["checksum"] = plane.checksum if plane.network is None else plane.network.checksum()
    return arrays, facts | {"values": plane.stored_values is not None}


def decode_plane(arrays: Mapping[str, Tensor], facts: Mapping[str, Any]) -> PlaneRestriction:
    """Convert the arrays and facts of `encode_plane` back to a plane; KeyError if one is missing."""
    fields = {field.attribute: arrays[field.name] for field in PLANE_ARRAYS}
    values = unpack_tensors(arrays, "value") if facts["values"] else None
    vertices = unpack_tensors(arrays, "vertex")
    return PlaneRestriction(vertices=vertices, stored_values=values, **fields, **_decode_facts(facts, PLANE_FACTS))


def break_arrays(table: BreakTable | SweepPart) -> list[Tensor]:
    """The breaks of many lines as arrays with one row for each break: `LINE_ARRAYS`, then the values."""
    return [table.alphas, table.origins, table.ambiguous, *(table.values or ())]


def encode_store_lines(answer: Restrictions, *, values: bool) -> Arrays:
    """Convert the breaks of many lines to columns of a store (see `scale`) with one row for each break of each line.

    ``line/count.break`` has one row for each line: its number of breaks. `encode_store_ends` has the end points.
    """
    table = answer.breaks
    columns = {"line/count.break": answer.offsets.diff(), "break/alpha": table.alphas, "break/doubt": table.ambiguous}
    columns |= dict(zip(STORE_ORIGINS, table.origins.unbind(1), strict=True))
    return columns | pack_tensors("break/value", table.values if values else None)


def encode_store_ends(lines: Lines) -> Arrays:
    """Convert the end points of many lines to columns of a store with one row for each line."""
    return pack_tensors("line/start", lines.starts) | pack_tensors("line/end", lines.ends)


def decode_store_line(columns: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Restriction:
    """Convert the rows of a store that belong to one line back to the line; ``facts`` are some of `LINE_FACTS`."""
    alphas = columns["break/alpha"].clone()
    starts, ends = (
        tuple(t[None].clone() for t in unpack_tensors(columns, f"line/{side}")) for side in ("start", "end")
    )
    values = tuple(t.clone() for t in unpack_tensors(columns, "break/value"))
    return Restriction(
        alphas=alphas,
        lines=Lines(starts, ends),
        origin_table=torch.stack([columns[name] for name in STORE_ORIGINS], 1),
        ambiguous_per_piece=columns["break/doubt"][: max(len(alphas) - 1, 0)].clone(),
        stored_values=values or None,
        **_decode_facts(facts, tuple(fact for fact in LINE_FACTS if fact.name in facts)),
    )


def _encode_facts(result: Any, facts: tuple[Fact, ...]) -> dict[str, Any]:
    values = {fact.name: getattr(result, fact.attribute) for fact in facts}
    return values | {"dtype": str(result.dtype).removeprefix("torch.")}


def _decode_facts(facts: Mapping[str, Any], fields: tuple[Fact, ...]) -> dict[str, Any]:
    convert: dict[str, Callable[[Any], Any]] = {"names": tuple, "dtype": DTYPES.__getitem__}
    known = {"setup_seconds": 0.0, **facts}  # older files do not have it
    return {field.attribute: convert.get(field.name, _identity)(known[field.name]) for field in fields}


def _identity(value: Any) -> Any:
    return value
