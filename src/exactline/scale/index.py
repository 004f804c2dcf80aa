"""The index of a store: one line of text with a checksum for each shard, appended once the shard is on the disk.

A run that is killed while it appends leaves half a record at the end; its checksum does not match, and it is ignored.
Records are never changed: a damaged shard is dropped by a further record.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import FileError
from .shard import ShardFile, write_error

INDEX_FILE = "index"


class LineRange(NamedTuple):
    """Consecutive lines, and a checksum of their end points."""

    first: int
    stop: int  # one past the last
    digest: int


@dataclass(frozen=True)
class ShardRecord:
    """One shard: its file, and what it holds."""

    file: ShardFile
    ranges: tuple[LineRange, ...]
    lines: int
    breaks: int
    errors: int
    seconds: float  # of a worker

    def to_json(self) -> dict[str, Any]:
        """The fields as the index stores them."""
        return {
            "shard": self.file.name,
            "bytes": self.file.bytes,
            "crc": self.file.crc,
            "runs": [list(part) for part in self.ranges],
            "lines": self.lines,
            "breaks": self.breaks,
            "errors": self.errors,
            "seconds": round(self.seconds, 6),
        }

    @staticmethod
    def from_json(facts: dict[str, Any]) -> ShardRecord:
        """The record with the fields of `to_json`."""
        file = ShardFile(str(facts["shard"]), int(facts["bytes"]), int(facts["crc"]))
        ranges = tuple(LineRange(int(a), int(b), int(c)) for a, b, c in facts["runs"])
        lines, breaks, errors = (int(facts[name]) for name in ("lines", "breaks", "errors"))
        return ShardRecord(file, ranges, lines, breaks, errors, float(facts["seconds"]))


@dataclass
class Index:
    """All shards of a store."""

    records: dict[str, ShardRecord] = field(default_factory=dict[str, ShardRecord])  # by the shard's name
    total_lines: int | None = None  # of the whole job, once its end was reached
    torn_records: int = 0  # records whose checksum does not match
    valid_bytes: int = 0  # up to the end of the last whole record

    def apply(self, facts: dict[str, Any]) -> None:
        """Carry out one record: add a shard, drop one, or note the end."""
        if "shard" in facts:
            record = ShardRecord.from_json(facts)
            self.records[record.file.name] = record
        elif "drop" in facts:
            self.records.pop(str(facts["drop"]), None)
            self.total_lines = None
        elif "end" in facts:
            self.total_lines = int(facts["end"])


def read_index(folder: Path) -> Index:
    """The index as far as it is whole.

    Raises FileError where it cannot be read.
    """
    index, position = Index(), 0
    try:
        with (folder / INDEX_FILE).open("rb") as file:
            for line in file:
                position += len(line)
                facts = _parse_record(line)
                if facts is None:
                    index.torn_records += 1
                    continue
                index.apply(facts)
                index.valid_bytes = position
    except FileNotFoundError:
        return index
    except OSError as problem:
        raise FileError(
            f"The index cannot be read: {problem.strerror}.",
            where=str(folder / INDEX_FILE),
            hint="Check its permissions.",
        ) from problem
    return index


def _format_record(facts: dict[str, Any]) -> bytes:
    """A line of the index: a checksum, then JSON."""
    text = json.dumps(facts, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parse_record(line: bytes) -> dict[str, Any] | None:
    try:
        if not line.endswith(b"\n") or int(line[:8], 16) != zlib.crc32(line[9:-1]):
            return None
        facts = json.loads(line[9:])
        Index().apply(facts)  # raises where a field is missing
        return facts
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return None


class IndexWriter:
    """Appends to the index of a store; one process at a time."""

    def __init__(self, folder: Path, valid_bytes: int) -> None:
        self.path = folder / INDEX_FILE
        try:
            self.file = self.path.open("ab", buffering=0)  # a buffer could hold back half a record
            self.file.truncate(valid_bytes)  # half a record at the end would spoil the next
        except OSError as problem:
            raise write_error(problem, self.path) from problem

    def append(self, facts: dict[str, Any]) -> None:
        """Add a record and flush it to the disk."""
        try:
            data = _format_record(facts)
            while data:
                data = data[self.file.write(data) :]
            os.fsync(self.file.fileno())
        except OSError as problem:
            raise write_error(problem, self.path) from problem

    def close(self) -> None:
        """Close the file."""
        self.file.close()
