"""A shard: the answers of one batch in one safetensors file, written whole or not at all."""

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
from .columns import Columns, narrowed, offsets_of, row_of
from .failure import Note

FORMAT = "exactline.shard.1"
FOLDER = "shards"
AGAIN = "Run again with resume=True: it is computed anew."


@dataclass(frozen=True, eq=False)
class Shard:
    """Answers of some lines, and notes of those that have none."""

    numbers: Ints  # (lines,) ascending, of the lines with an answer
    columns: Columns
    notes: Mapping[int, Note] = field(default_factory=dict[int, Note])
    seconds: float = 0.0  # for each line
    engine: str = "dense"  # which swept them, and why

    def row(self, number: int) -> Columns:
        """The answer of one line; raises the error it failed with."""
        if number in self.notes:
            raise self.notes[number].error()
        return row_of(self.columns, self.offsets, int(np.searchsorted(self.numbers, number)))

    @cached_property
    def offsets(self) -> dict[str, Tensor]:
        """Where the rows of each line begin."""
        return offsets_of(self.columns)


def packed(shard: Shard) -> bytes:
    """The file's content."""
    columns = {"line/number": torch.from_numpy(shard.numbers), **shard.columns}
    kinds = {name: str(t.dtype).removeprefix("torch.") for name, t in columns.items()}
    facts = {
        "kinds": kinds,
        "notes": {str(number): note.facts() for number, note in shard.notes.items()},
        "seconds": shard.seconds,
        "engine": shard.engine,
    }
    stored = {name: narrowed(t).contiguous().clone() for name, t in columns.items()}
    return _package().save(stored, metadata={"format": FORMAT, "facts": json.dumps(facts)})


def unpacked(data: bytes, where: str) -> Shard:
    """The answers again, in the types they had; raises FileError where the bytes are no shard."""
    try:
        tensors: dict[str, Tensor] = _package().load(data)
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])["__metadata__"]
        facts: dict[str, Any] = json.loads(header["facts"])
        columns = {name: t.to(getattr(torch, facts["kinds"][name])) for name, t in sorted(tensors.items())}
        notes = {int(number): Note(**note) for number, note in facts["notes"].items()}
        numbers = columns.pop("line/number").numpy()
        return Shard(numbers, columns, notes, float(facts["seconds"]), str(facts["engine"]))
    except Exception as problem:  # the parser has an error type of its own
        raise FileError(f"The shard cannot be read: {problem}", where=where, hint=AGAIN) from problem


@dataclass(frozen=True)
class Written:
    """A file of a store as its index knows it."""

    name: str
    bytes: int
    crc: int


def new_name(first: int) -> str:
    """A name no other shard has, in order of lines where a folder is listed."""
    return f"{first:012d}-{secrets.token_hex(4)}.safetensors"


def write(folder: Path, name: str, data: bytes) -> Written:
    """Put a shard into a store: first under another name, flushed to the disk, then renamed in one step.

    Raises FileError where the disk is full or the folder cannot be written.
    """
    path = folder / FOLDER / name
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
        flush_folder(path.parent)
    except OSError as problem:
        raise full(problem, path) from problem
    return Written(name, len(data), zlib.crc32(data))


def full(problem: OSError, path: Path) -> FileError:
    """What is said where a store cannot be written."""
    return FileError(
        f"The store cannot be written: {problem.strerror or problem}.",
        where=str(path),
        hint="Make room and run again with resume=True: what is finished stays.",
    )


def flush_folder(folder: Path) -> None:
    """Make sure that names in a folder outlive a power cut, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _package() -> Any:
    with require_package("The package safetensors is not installed.", where="xl.scale", hint="pip install safetensors"):
        import safetensors.torch
    return safetensors.torch
