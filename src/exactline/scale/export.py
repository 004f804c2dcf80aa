"""A store for other tools: one Parquet file, or a zarr group."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, FileError
from ..optional import require_package
from .columns import Columns

if TYPE_CHECKING:
    from .shard import Shard
    from .store import Store

ROWS = 1 << 16  # of one chunk of a zarr array


def export(store: Store, path: Path) -> None:
    """See `Store.export`."""
    writers = {".parquet": _parquet, ".zarr": _zarr}
    writer = writers.get(path.suffix.lower())
    if writer is None:
        raise ArgumentError(
            f"Stores are exported to {' or '.join(writers)}.", where=f"argument path {path}", hint="Name it so."
        )
    hidden = path.with_name(f".{path.name}.tmp")
    try:
        writer(store, hidden)
        if path.is_dir():
            shutil.rmtree(path)
        hidden.replace(path)
    except OSError as problem:
        raise FileError(
            f"The file cannot be written: {problem.strerror or problem}.",
            where=str(path),
            hint="Choose a folder that can be written.",
        ) from problem
    finally:
        _remove(hidden)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _in_order(store: Store) -> Iterator[Shard]:
    """Sound shards with an answer in them; lines of one shard ascend, shards follow each other by their first."""
    return (shard for _, shard in store.records() if len(shard.numbers))


def _parquet(store: Store, path: Path) -> None:
    """One row for each line that has an answer; what a line has several of is a list in its row."""
    with require_package("Parquet needs pyarrow.", where="store.export", hint='pip install "exactline[parquet]"'):
        import pyarrow
        import pyarrow.parquet as parquet
    writer: Any = None
    try:
        for shard in _in_order(store):
            table = pyarrow.table(
                {"line": pyarrow.array(shard.numbers), **dict(_lists(pyarrow, shard))},
            )
            writer = writer or parquet.ParquetWriter(path, table.schema)
            writer.write_table(table)
        if writer is None:
            empty = pyarrow.table({"line": pyarrow.array(np.zeros(0, dtype=np.int64))})
            parquet.write_table(empty, path)
    finally:
        if writer is not None:
            writer.close()


def _lists(pyarrow: Any, shard: Shard) -> Iterator[tuple[str, Any]]:
    rows = len(shard.numbers)
    for name, column in shard.columns.items():
        group, _, plain = name.partition("/")
        if plain.startswith("count."):
            continue  # the lists have lengths of their own
        array = column.numpy()
        flat, width = array.reshape(-1), int(np.prod(array.shape[1:], dtype=np.int64))
        made = pyarrow.array(flat)
        if group == "line":
            if array.ndim > 1:
                made = pyarrow.FixedSizeListArray.from_arrays(made, width)
            yield plain.replace(".", "_"), made
            continue
        offsets = shard.offsets[group].numpy()
        if array.ndim > 1:
            made = pyarrow.FixedSizeListArray.from_arrays(made, width)
        if len(offsets) != rows + 1:
            raise ValueError(f"{name} does not fit its lines")
        yield f"{group}_{plain.replace('.', '_')}", pyarrow.LargeListArray.from_arrays(offsets, made)


def _zarr(store: Store, path: Path) -> None:
    """Arrays one line after another, and for breaks and the like where those of each line begin."""
    with require_package("zarr is not installed.", where="store.export", hint='pip install "exactline[zarr]"'):
        import zarr
    group: Any = zarr.open_group(str(path), mode="w")
    group.attrs.update({"job": dict(store.meta["job"]), "names": list(store.meta["names"])})
    arrays: dict[str, Any] = {}
    ends: dict[str, int] = {}
    for shard in _in_order(store):
        _append(group, arrays, "line/number", shard.numbers)
        for name, column in _with_offsets(shard, ends).items():
            _append(group, arrays, name, column)


def _with_offsets(shard: Shard, ends: dict[str, int]) -> dict[str, NDArray[Any]]:
    """A shard's arrays, counts replaced by where the rows of the whole store begin."""
    found: dict[str, NDArray[Any]] = {}
    columns: Columns = shard.columns
    for name, column in columns.items():
        if not name.startswith("line/count."):
            found[name] = column.numpy()
            continue
        kind = name.removeprefix("line/count.")
        base = ends.get(kind)
        whole = shard.offsets[kind].numpy() + (base or 0)
        found[f"line/{kind}_offsets"] = whole if base is None else whole[1:]
        ends[kind] = int(whole[-1])
    return found


def _append(group: Any, arrays: dict[str, Any], name: str, rows: NDArray[Any]) -> None:
    if name not in arrays:
        arrays[name] = group.create_array(
            name, shape=(0, *rows.shape[1:]), chunks=(ROWS, *rows.shape[1:]), dtype=rows.dtype
        )
    array = arrays[name]
    before = array.shape[0]
    array.resize((before + len(rows), *rows.shape[1:]))
    array[before:] = rows
