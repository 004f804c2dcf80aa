"""The index of a store: one line of text for each shard, appended when the shard is safe, each with its checksum.

A run that is killed while it appends leaves half a line at the end; its checksum tells, and it is as if it had never
been begun. Nothing is ever changed in place: a shard that was found damaged is dropped by a further line.
"""

from __future__ import annotations

import json
import os
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import FileError
from .shard import Written, full

NAME = "index"
Run = tuple[int, int, int]  # first line, one past the last, digest of the lines between


@dataclass(frozen=True)
class Record:
    """One shard: its file, and what it holds."""

    file: Written
    runs: tuple[Run, ...]
    lines: int
    breaks: int
    errors: int
    seconds: float  # of a worker

    def facts(self) -> dict[str, Any]:
        """As the index writes it."""
        return {
            "shard": self.file.name,
            "bytes": self.file.bytes,
            "crc": self.file.crc,
            "runs": [list(run) for run in self.runs],
            "lines": self.lines,
            "breaks": self.breaks,
            "errors": self.errors,
            "seconds": round(self.seconds, 6),
        }

    @staticmethod
    def of(facts: dict[str, Any]) -> Record:
        """A record as it was written."""
        file = Written(str(facts["shard"]), int(facts["bytes"]), int(facts["crc"]))
        runs = tuple((int(a), int(b), int(c)) for a, b, c in facts["runs"])
        lines, breaks, errors = (int(facts[name]) for name in ("lines", "breaks", "errors"))
        return Record(file, runs, lines, breaks, errors, float(facts["seconds"]))


@dataclass
class Index:
    """All shards of a store."""

    records: dict[str, Record] = field(default_factory=dict[str, Record])  # by the shard's name
    total: int | None = None  # lines of the whole job, once its end was reached
    torn: int = 0  # records that were not whole
    good: int = 0  # bytes up to the end of the last whole record

    def take(self, facts: dict[str, Any]) -> None:
        """Follow one record."""
        if "shard" in facts:
            record = Record.of(facts)
            self.records[record.file.name] = record
        elif "drop" in facts:
            self.records.pop(str(facts["drop"]), None)
            self.total = None
        elif "end" in facts:
            self.total = int(facts["end"])


def framed(facts: dict[str, Any]) -> bytes:
    """A record with its checksum in front."""
    text = json.dumps(facts, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def read(folder: Path) -> Index:
    """The index as far as it is whole.

    Raises FileError where it cannot be read.
    """
    found, place = Index(), 0
    try:
        with (folder / NAME).open("rb") as file:
            for line in file:
                place += len(line)
                facts = _unframed(line)
                if facts is None:
                    found.torn += 1
                    continue
                found.take(facts)
                found.good = place
    except FileNotFoundError:
        return found
    except OSError as problem:
        raise FileError(
            f"The index cannot be read: {problem.strerror}.", where=str(folder / NAME), hint="Look at its rights."
        ) from problem
    return found


def _unframed(line: bytes) -> dict[str, Any] | None:
    try:
        if not line.endswith(b"\n") or int(line[:8], 16) != zlib.crc32(line[9:-1]):
            return None
        facts = json.loads(line[9:])
        Index().take(facts)  # a record that cannot be followed is none
        return facts
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return None


class Appender:
    """The end of the index, where one process writes."""

    def __init__(self, folder: Path, good: int) -> None:
        self.path = folder / NAME
        try:
            self.file = self.path.open("ab", buffering=0)  # half a record must not wait in a buffer
            self.file.truncate(good)  # half a record at the end would swallow the next
        except OSError as problem:
            raise full(problem, self.path) from problem

    def append(self, facts: dict[str, Any]) -> None:
        """Add a record; once this returns it is on the disk."""
        try:
            data = framed(facts)
            while data:
                data = data[self.file.write(data) :]
            os.fsync(self.file.fileno())
        except OSError as problem:
            raise full(problem, self.path) from problem

    def close(self) -> None:
        """Let go of the file."""
        self.file.close()
