"""A shard: the answers of one task in one safetensors file, written whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..arrays import Ints
from ..errors import FileError
from ..optional import require_package
from .columns import Columns, narrow_dtype, row_offsets, select_line
from .failure import Failure

FORMAT = "exactline.shard.1"
SHARD_FOLDER = "shards"
NUMBERS = "line/number"
RESUME_HINT = "Run again with resume=True: it is computed anew."


@dataclass(frozen=True, eq=False)
class Shard:
    """Answers of some lines, and the failures of lines that have none."""

    numbers: Ints  # (lines,) ascending, of the lines with an answer
    columns: Columns
    failures: Mapping[int, Failure] = field(default_factory=dict[int, Failure])
    seconds_per_line: float = 0.0
    engine: str = "dense"  # the engine that swept the lines, and why

    def select_line(self, number: int) -> Columns:
        """The answer of one line; raises the error it failed with."""
        if number in self.failures:
            raise self.failures[number].to_error()
        return select_line(self.columns, self.offsets, int(np.searchsorted(self.numbers, number)))

    @cached_property
    def offsets(self) -> dict[str, Tensor]:
        """The row at which each line begins, for breaks, intervals and bytes."""
        return row_offsets(self.columns)


def encode_shard(shard: Shard) -> bytes:
    """The content of the file."""
    columns = {NUMBERS: torch.from_numpy(shard.numbers), **shard.columns}
    facts = {
        "kinds": {name: str(t.dtype).removeprefix("torch.") for name, t in columns.items()},
        "notes": {str(number): failure.to_json() for number, failure in shard.failures.items()},
        "seconds": shard.seconds_per_line,
        "engine": shard.engine,
    }
    stored = {name: narrow_dtype(t).contiguous().clone() for name, t in columns.items()}
    return _import_safetensors().save(stored, metadata={"format": FORMAT, "facts": json.dumps(facts)})


def decode_shard(data: bytes, where: str) -> Shard:
    """The shard in a file's content, each column in its original type.

    Raises FileError where the bytes are not a shard.
    """
    try:
        tensors: dict[str, Tensor] = _import_safetensors().load(data)
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])["__metadata__"]
        facts: dict[str, Any] = json.loads(header["facts"])
        columns = {name: t.to(getattr(torch, facts["kinds"][name])) for name, t in sorted(tensors.items())}
        failures = {int(number): Failure(**fields) for number, fields in facts["notes"].items()}
        numbers = columns.pop(NUMBERS).numpy()
        return Shard(numbers, columns, failures, float(facts["seconds"]), str(facts["engine"]))
    except Exception as problem:  # safetensors has an error type of its own
        raise FileError(f"The shard cannot be read: {problem}", where=where, hint=RESUME_HINT) from problem


@dataclass(frozen=True)
class ShardFile:
    """A shard's file as the index records it."""

    name: str
    bytes: int
    crc: int


def new_shard_name(first: int) -> str:
    """A unique name; names sort by the number of the first line."""
    return f"{first:012d}-{secrets.token_hex(4)}.safetensors"


def write_shard(folder: Path, name: str, data: bytes) -> ShardFile:
    """Add a shard to a store: write it under a temporary name, flush it to the disk, rename it.

    Raises FileError where the disk is full or the folder cannot be written.
    """
    path = folder / SHARD_FOLDER / name
    hidden = path.with_name(f".{name}.tmp")
    try:
        try:
            with hidden.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            hidden.replace(path)
        except BaseException:
            with suppress(OSError):
                hidden.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
    except OSError as problem:
        raise write_error(problem, path) from problem
    return ShardFile(name, len(data), zlib.crc32(data))


def write_error(problem: OSError, path: Path) -> FileError:
    """The error to raise where a store cannot be written."""
    return FileError(
        f"The store cannot be written: {problem.strerror or problem}.",
        where=str(path),
        hint="Make room and run again with resume=True: what is finished stays.",
    )


def _sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _import_safetensors() -> Any:
    with require_package("The package safetensors is not installed.", where="xl.scale", hint="pip install safetensors"):
        import safetensors.torch
    return safetensors.torch
