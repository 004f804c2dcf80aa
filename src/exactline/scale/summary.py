"""A table of a store: one row for each finished line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .shard import Shard
    from .store import Store

PLAIN = ("count", "length", "target", "at_start", "at_end", "hanging")  # of a line, one number each


def summary(store: Store) -> Any:
    """See `Store.summary`."""
    found = columns(store)
    try:
        import pandas
    except ImportError:
        return found
    return pandas.DataFrame(found).set_index("line")


def columns(store: Store) -> dict[str, NDArray[Any]]:
    """The table as arrays, in order of lines."""
    parts = [_rows(shard) for _, shard in store.records()]
    if not parts:
        return {"line": np.zeros(0, dtype=np.int64), "error": np.zeros(0, dtype=np.str_)}
    names = list(dict.fromkeys(name for part in parts for name in part))
    sizes = [len(part["line"]) for part in parts]
    joined = {
        name: np.concatenate([part.get(name, np.full(size, np.nan)) for part, size in zip(parts, sizes, strict=True)])
        for name in names
        if name != "error"
    }
    joined["error"] = np.concatenate([part["error"] for part in parts])
    order = np.argsort(joined["line"], kind="stable")
    return {name: column[order] for name, column in joined.items()}


def _rows(shard: Shard) -> dict[str, NDArray[Any]]:
    """The lines of one shard, those with an error behind the others."""
    good, bad = len(shard.numbers), len(shard.notes)
    found: dict[str, NDArray[Any]] = {"line": np.concatenate([shard.numbers, np.array(list(shard.notes), dtype=int)])}
    numbers: dict[str, NDArray[Any]] = {}
    for name, column in shard.columns.items():
        plain = name.removeprefix("line/")
        if plain.startswith("count.") and plain != "count.byte":
            numbers[f"{plain.removeprefix('count.')}s"] = column.numpy()
        elif plain in PLAIN:
            numbers[{"count": "breaks"}.get(plain, plain)] = column.numpy()
    if "length" not in numbers and good:
        numbers["length"] = _lengths(shard)
    for name, column in numbers.items():
        found[name] = np.concatenate([column, np.full(bad, np.nan)]) if bad else column
    codes = [note.code for note in shard.notes.values()]
    found["error"] = np.array([""] * good + codes, dtype=np.str_)
    return found


def _lengths(shard: Shard) -> NDArray[np.float64]:
    total = np.zeros(len(shard.numbers))
    for name, start in shard.columns.items():
        if name.startswith("line/start."):
            end = shard.columns[name.replace("start", "end")]
            total += (end - start).reshape(len(total), -1).square().sum(1).numpy()
    return np.sqrt(total)
