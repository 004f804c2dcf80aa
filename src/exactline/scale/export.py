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
from .columns import COUNT_PREFIX
from .shard import NUMBERS

if TYPE_CHECKING:
    from .shard import Shard
    from .store import Store

ZARR_CHUNK_ROWS = 1 << 16


def export(store: Store, path: Path) -> None:
    """See `Store.export`."""
    writers = {".parquet": _write_parquet, ".zarr": _write_zarr}
    writer = writers.get(path.suffix.lower())
    if writer is None:
        raise ArgumentError(
            f"Stores are exported to {' or '.join(writers)}.",
            where=f"argument path {path}",
            hint="Give a path with one of these endings.",
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


def _shards_with_answers(store: Store) -> Iterator[Shard]:
    """Undamaged shards that hold an answer, in order of their first line; lines of one shard ascend."""
    return (shard for _, shard in store.shards() if len(shard.numbers))


def _write_parquet(store: Store, path: Path) -> None:
    """One row for each line that has an answer; breaks and intervals are lists in the row of their line."""
    with require_package("Parquet needs pyarrow.", where="store.export", hint='pip install "exactline[parquet]"'):
        import pyarrow
        import pyarrow.parquet as parquet
    writer: Any = None
    try:
        for shard in _shards_with_answers(store):
            columns = dict(_parquet_columns(pyarrow, shard))
            table = pyarrow.table({"line": pyarrow.array(shard.numbers), **columns})
            writer = writer or parquet.ParquetWriter(path, table.schema)
            writer.write_table(table)
        if writer is None:
            empty = pyarrow.table({"line": pyarrow.array(np.zeros(0, dtype=np.int64))})
            parquet.write_table(empty, path)
    finally:
        if writer is not None:
            writer.close()


def _parquet_columns(pyarrow: Any, shard: Shard) -> Iterator[tuple[str, Any]]:
    for name, column in shard.columns.items():
        if name.startswith(COUNT_PREFIX):
            continue  # the lists have lengths of their own
        group, _, title = name.replace(".", "_").partition("/")
        array = column.numpy()
        values = pyarrow.array(array.reshape(-1))
        if array.ndim > 1:
            values = pyarrow.FixedSizeListArray.from_arrays(values, int(np.prod(array.shape[1:], dtype=np.int64)))
        if group == "line":
            yield title, values
            continue
        offsets = shard.offsets[group].numpy()
        if len(offsets) != len(shard.numbers) + 1:
            raise ValueError(f"{name} does not fit its lines")
        yield f"{group}_{title}", pyarrow.LargeListArray.from_arrays(offsets, values)


def _write_zarr(store: Store, path: Path) -> None:
    """Arrays one line after another; offsets say where the breaks and intervals of each line begin."""
    with require_package("zarr is not installed.", where="store.export", hint='pip install "exactline[zarr]"'):
        import zarr
    group: Any = zarr.open_group(str(path), mode="w")
    group.attrs.update({"job": dict(store.manifest["job"]), "names": list(store.manifest["names"])})
    arrays: dict[str, Any] = {}
    row_counts: dict[str, int] = {}
    for shard in _shards_with_answers(store):
        _append(group, arrays, NUMBERS, shard.numbers)
        for name, column in _zarr_columns(shard, row_counts).items():
            _append(group, arrays, name, column)


def _zarr_columns(shard: Shard, row_counts: dict[str, int]) -> dict[str, NDArray[Any]]:
    """A shard's arrays, with offsets into the whole store instead of counts; ``row_counts`` is brought up to date."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, column in shard.columns.items():
        if not name.startswith(COUNT_PREFIX):
            arrays[name] = column.numpy()
            continue
        kind = name.removeprefix(COUNT_PREFIX)
        base = row_counts.get(kind)
        offsets = shard.offsets[kind].numpy() + (base or 0)
        arrays[f"line/{kind}_offsets"] = offsets if base is None else offsets[1:]
        row_counts[kind] = int(offsets[-1])
    return arrays


def _append(group: Any, arrays: dict[str, Any], name: str, rows: NDArray[Any]) -> None:
    if name not in arrays:
        arrays[name] = group.create_array(
            name, shape=(0, *rows.shape[1:]), chunks=(ZARR_CHUNK_ROWS, *rows.shape[1:]), dtype=rows.dtype
        )
    array = arrays[name]
    before = array.shape[0]
    array.resize((before + len(rows), *rows.shape[1:]))
    array[before:] = rows
