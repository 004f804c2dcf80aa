"""A table of a store: one row for each finished line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..lines import Lines
from ..results.codec import unpack_tensors
from .columns import COUNT_PREFIX
from .jobs import line_lengths

if TYPE_CHECKING:
    from .shard import Shard
    from .store import Store

LINE_COLUMNS = {  # columns of a shard with one number for each line, and what the table calls them
    "line/count": "breaks",
    "line/length": "length",
    "line/target": "target",
    "line/at_start": "at_start",
    "line/at_end": "at_end",
    "line/hanging": "subgradient_range",
}


def summarize(store: Store) -> Any:
    """See `Store.summary`."""
    table = build_table(store)
    try:
        import pandas
    except ImportError:
        return table
    return pandas.DataFrame(table).set_index("line")


def build_table(store: Store) -> dict[str, NDArray[Any]]:
    """The table as arrays, in order of lines."""
    parts = [_tabulate(shard) for _, shard in store.shards()]
    if not parts:
        return {"line": np.zeros(0, dtype=np.int64), "error": np.zeros(0, dtype=np.str_)}
    names = list(dict.fromkeys(name for part in parts for name in part))
    sizes = [len(part["line"]) for part in parts]
    table = {
        name: np.concatenate([part.get(name, np.full(size, np.nan)) for part, size in zip(parts, sizes, strict=True)])
        for name in names
        if name != "error"
    }
    table["error"] = np.concatenate([part["error"] for part in parts])
    order = np.argsort(table["line"], kind="stable")
    return {name: column[order] for name, column in table.items()}


def _tabulate(shard: Shard) -> dict[str, NDArray[Any]]:
    """The lines of one shard; those with an error come last."""
    answered, failed = len(shard.numbers), len(shard.failures)
    table: dict[str, NDArray[Any]] = {
        "line": np.concatenate([shard.numbers, np.array(list(shard.failures), dtype=int)])
    }
    numbers: dict[str, NDArray[Any]] = {}
    for name, column in shard.columns.items():
        if name.startswith(COUNT_PREFIX) and name != f"{COUNT_PREFIX}byte":
            numbers[f"{name.removeprefix(COUNT_PREFIX)}s"] = column.numpy()
        elif name in LINE_COLUMNS:
            numbers[LINE_COLUMNS[name]] = column.numpy()
    if "length" not in numbers and answered:
        starts, ends = (unpack_tensors(shard.columns, f"line/{side}") for side in ("start", "end"))
        numbers["length"] = line_lengths(Lines(starts, ends)).numpy()
    for name, column in numbers.items():
        table[name] = np.concatenate([column, np.full(failed, np.nan)]) if failed else column
    codes = [failure.code for failure in shard.failures.values()]
    table["error"] = np.array([""] * answered + codes, dtype=np.str_)
    return table
