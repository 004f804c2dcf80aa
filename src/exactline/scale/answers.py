"""The answer of each job as columns of a shard, and back: everything that a store knows about names of columns.

Names of columns are part of the file format and never change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..decide.comparison import restore_comparison
from ..decide.intervals import Decisions, IntervalTable
from ..network.graph import Network
from ..results.codec import decode_store_line, encode_store_lines, pack_tensors, unpack_tensors
from ..results.restriction import Restriction
from ..results.restrictions import Restrictions
from .columns import Columns
from .encode import decode_value, encode_value
from .shard import Shard

INTERVAL_FIELDS = {  # names of columns, and the attributes of `IntervalTable` that they hold
    "interval/starts": "starts",
    "interval/stops": "stops",
    "interval/labels": "labels",
    "interval/tied": "tied",
    "interval/margins": "margins",
    "interval/margins_at": "margins_at",
    "interval/start_errors": "start_errors",
    "interval/stop_errors": "stop_errors",
}


@dataclass(frozen=True, eq=False)
class LineAttribution:
    """Integrated gradients along one line, from its start as the baseline to its end.

    >>> import tempfile, torch, exactline as xl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = xl.scale.run(torch.nn.ReLU(), [([-1.0], [3.0])], "attribute", out=folder, target=0)
    ...     store[0].attributions, store[0].delta
    (tensor([3.], dtype=torch.float64), 0.0)
    """

    attributions: Tensor | tuple[Tensor, ...]  # (*in); a tuple where the network takes several inputs
    target: int  # flat position in the output
    at_start: float  # the output at the start, after its smooth tail if it has one
    at_end: float
    subgradient_range: float  # how much attribution depends on units whose gradient is a convention

    @property
    def delta(self) -> float:
        """The convergence delta: the sum of the attributions minus the change of the output."""
        parts = self.attributions if isinstance(self.attributions, tuple) else (self.attributions,)
        return float(sum(part.sum() for part in parts)) - (self.at_end - self.at_start)


@dataclass(frozen=True)
class LineDensity:
    """How many breaks a line has for each unit of its length.

    >>> import tempfile, torch, exactline as xl
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = xl.scale.run(torch.nn.ReLU(), [([-1.0], [3.0])], "density", out=folder)
    ...     store[0].count, store[0].density
    (3, 0.75)
    """

    count: int  # breaks, both ends included
    length: float  # Euclidean
    origins: dict[str, int]  # breaks inside the line by the node that caused them

    @property
    def density(self) -> float:
        """Breaks for each unit of length; infinite for a line of length 0."""
        return self.count / self.length if self.length else float("inf")


def decode_answer(shard: Shard, number: int, manifest: Mapping[str, Any], network: Network | None) -> Any:
    """The answer of one line, as the job's function in the library would return it.

    Raises the error that the line failed with.
    """
    columns = shard.select_line(number)
    job = manifest["job"]
    if job["name"] == "attribute":
        return _decode_attribution(columns, several_inputs=manifest["several_inputs"])
    if job["name"] == "density":
        origins = dict(zip(manifest["breaking"], columns["line/births"].tolist(), strict=True))
        return LineDensity(int(columns["line/count"]), float(columns["line/length"]), origins)
    if job["name"] == "function":
        return decode_value(columns["byte/data"].numpy().tobytes())
    facts = {name: manifest[name] for name in ("names", "units", "several_inputs", "several_outputs")}
    facts |= {"seconds": shard.seconds_per_line, "engine": shard.engine, "weights": manifest["network"]["checksum"]}
    line = decode_store_line(columns, facts)
    unknown = torch.full_like(line.alphas, torch.nan)  # stores do not keep errors
    line = replace(line, stored_errors=unknown) if network is None else line.with_network(network)
    return _decode_decisions(columns, job, line) if job["name"] == "decide" else line


def encode_restrictions(answer: Restrictions, *, values: bool) -> Columns:
    """Breaks of many lines, and the network's values there."""
    return encode_store_lines(answer, values=values)


def encode_decisions(answer: Restrictions, table: IntervalTable, *, values: bool) -> Columns:
    """Breaks and class intervals of many lines."""
    columns = encode_restrictions(answer, values=values)
    columns["line/count.interval"] = torch.from_numpy(table.offsets).diff()
    return columns | {name: torch.from_numpy(getattr(table, field)) for name, field in INTERVAL_FIELDS.items()}


def _decode_decisions(columns: Columns, job: Mapping[str, Any], line: Restriction) -> Decisions:
    fields = {field: columns[name].numpy() for name, field in INTERVAL_FIELDS.items()}
    table = IntervalTable(np.array([0, len(columns["interval/starts"])]), **fields)
    output = int(job["output"] or 0)
    comparison = restore_comparison(table, line.stored_values, output)
    return Decisions(table, 0, line, job["order"], int(job["top"]), output, comparison)


def encode_attributions(
    attributions: tuple[Tensor, ...],  # (lines, *in) each
    *,
    targets: Tensor,  # (lines,)
    at_start: Tensor,  # (lines,)
    at_end: Tensor,  # (lines,)
    subgradient_range: Tensor,  # (lines,)
) -> Columns:
    """Integrated gradients along many lines."""
    return {
        **pack_tensors("line/attribution", attributions),
        "line/at_start": at_start,
        "line/at_end": at_end,
        "line/target": targets,
        "line/hanging": subgradient_range,
    }


def _decode_attribution(columns: Columns, *, several_inputs: bool) -> LineAttribution:
    parts = unpack_tensors(columns, "line/attribution")
    return LineAttribution(
        attributions=parts if several_inputs else parts[0],
        target=int(columns["line/target"]),
        at_start=float(columns["line/at_start"]),
        at_end=float(columns["line/at_end"]),
        subgradient_range=float(columns["line/hanging"]),
    )


def encode_densities(
    counts: Tensor,  # (lines,)
    lengths: Tensor,  # (lines,)
    origins: Tensor,  # (lines, breaking nodes)
) -> Columns:
    """Numbers of breaks of many lines, in all and by the node that caused them."""
    return {"line/count": counts, "line/length": lengths, "line/births": origins}


def encode_values(values: Sequence[Any]) -> Columns:
    """What a user's function returned for each of many lines."""
    encoded = [encode_value(value) for value in values]
    counts = torch.tensor([len(data) for data in encoded], dtype=torch.int64)
    data = torch.frombuffer(bytearray(b"".join(encoded) or b"\0"), dtype=torch.uint8)[: int(counts.sum())]
    return {"line/count.byte": counts, "byte/data": data}
