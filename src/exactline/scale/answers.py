"""From the rows of a shard back to what the library would have answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..decide.intervals import Decisions, Table
from ..lines import Lines
from ..network.graph import Network
from ..results.restriction import Restriction
from .columns import Columns
from .encode import thaw
from .jobs import INTERVALS
from .results import LineAttribution, LineDensity
from .shard import Shard


def answer(shard: Shard, number: int, meta: Mapping[str, Any], network: Network | None) -> Any:
    """The answer of one line; raises the error it failed with."""
    row = shard.row(number)
    job = meta["job"]
    if job["name"] == "restrict":
        return _restriction(row, meta, shard, network)
    if job["name"] == "decide":
        return _decisions(row, meta, _restriction(row, meta, shard, network))
    if job["name"] == "attribute":
        parts = _numbered(row, "line/attribution.")
        start, end, hanging = (float(row[f"line/{name}"]) for name in ("at_start", "at_end", "hanging"))
        made = parts if meta["several_inputs"] else parts[0]
        return LineAttribution(made, int(row["line/target"]), start, end, hanging)
    if job["name"] == "density":
        births = dict(zip(meta["breaking"], row["line/births"].tolist(), strict=True))
        return LineDensity(int(row["line/count"]), float(row["line/length"]), births)
    return thaw(row["byte/data"].numpy().tobytes())


def _restriction(row: Columns, meta: Mapping[str, Any], shard: Shard, network: Network | None) -> Restriction:
    births = torch.stack([row[f"break/{name}"] for name in ("node", "unit", "crossings")], 1)
    starts, ends = (tuple(t[None].clone() for t in _numbered(row, f"line/{side}.")) for side in ("start", "end"))
    alphas = row["break/alpha"].clone()
    values = tuple(t.clone() for t in _numbered(row, "break/value."))
    line = Restriction(
        alphas,
        Lines(starts, ends),
        births,
        row["break/doubt"][: max(len(alphas) - 1, 0)].clone(),
        values or None,
        tuple(meta["names"]),
        units=dict(meta["units"]),
        several_inputs=bool(meta["several_inputs"]),
        several_outputs=bool(meta["several_outputs"]),
        seconds=shard.seconds,
        engine=shard.engine,
        weights=meta["network"]["checksum"],
    )
    return replace(line, stored_error=float("nan")) if network is None else line.with_network(network)


def _decisions(row: Columns, meta: Mapping[str, Any], line: Restriction) -> Decisions:
    job = meta["job"]
    columns = {name: row[f"interval/{name}"].numpy() for name in INTERVALS}
    table = Table(np.array([0, len(columns["starts"])]), **columns)
    return Decisions(table, 0, line, job["order"], int(job["top"]), int(job["output"] or 0))


def _numbered(row: Columns, prefix: str) -> tuple[torch.Tensor, ...]:
    count = sum(name.startswith(prefix) for name in row)
    return tuple(row[f"{prefix}{k}"] for k in range(count))
