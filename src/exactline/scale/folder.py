"""A store that is being written: one process at a time, and killed at any moment it loses only what was on its way."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..errors import ExactlineError, FileError
from . import index as indices
from .batch import Batch, digest, runs
from .driver import Progress, now
from .failure import Note
from .index import Appender, Index, Record, Run
from .manifest import read_meta, same_meta, write_meta
from .shard import FOLDER, Shard, Written, full, new_name, packed, write
from .worker import Report

LOCK = "lock"
CHUNK = 1 << 22


class Folder:
    """The driver's side of a store; see `open_folder`."""

    def __init__(self, path: Path, index: Index, lock: IO[bytes], total: int | None) -> None:
        self.path, self.index, self.lock, self.total = path, index, lock, total
        self.began, self.fresh = now(), list[str]()
        self.appender = Appender(path, index.good)
        self.fresh_lines = 0
        self.lines, self.breaks, self.errors = (
            sum(getattr(r, name) for r in index.records.values()) for name in ("lines", "breaks", "errors")
        )

    def keep(self, batch: Batch, report: Report) -> None:
        """Take in a shard; it counts from here on."""
        file = report.file or write(self.path, new_name(int(report.done[0])), report.data or b"")
        self._record(batch, report.done, file, report.breaks, report.errors, report.seconds)

    def note(self, batch: Batch, note: Note) -> None:
        """Record lines that no worker survived."""
        numbers = batch.numbers
        shard = Shard(np.zeros(0, dtype=np.int64), {}, {int(n): note for n in numbers})
        file = write(self.path, new_name(int(numbers[0])), packed(shard))
        self._record(batch, numbers, file, 0, len(numbers), 0.0)

    def _record(self, batch: Batch, done: Any, file: Written, breaks: int, errors: int, seconds: float) -> None:
        places = np.searchsorted(batch.numbers, done)
        digests = batch.digests[places]
        found: list[Run] = []
        for first, stop in runs(done):
            row = int(np.searchsorted(done, first))
            found.append((first, stop, digest(digests[row : row + stop - first])))
        record = Record(file, tuple(found), len(done), breaks, errors, seconds)
        self.appender.append(record.facts())
        self.index.records[file.name] = record
        self.fresh.append(file.name)
        self.fresh_lines += record.lines
        self.lines, self.breaks, self.errors = self.lines + len(done), self.breaks + breaks, self.errors + errors

    def drop(self, names: Iterable[str]) -> None:
        """Let go of shards: their lines are to be computed again."""
        for name in list(names):
            self.appender.append({"drop": name})
            record = self.index.records.pop(name)
            self.index.total = None
            self.lines, self.breaks, self.errors = (
                self.lines - record.lines,
                self.breaks - record.breaks,
                self.errors - record.errors,
            )
            with suppress(OSError):
                (self.path / FOLDER / name).unlink(missing_ok=True)

    def finish(self, total: int) -> None:
        """Say that all lines are in."""
        if self.index.total != total:
            self.appender.append({"end": total})
            self.index.total = total

    def progress(self) -> Progress:
        """How far we are."""
        return Progress(self.lines, self.total, self.breaks, self.errors, now() - self.began, self.fresh_lines)

    def close(self) -> None:
        """Let others write."""
        self.appender.close()
        self.lock.close()


def open_folder(path: Path, meta: dict[str, Any], *, resume: bool, total: int | None) -> Folder:
    """A new store, or one to go on with; damaged shards are dropped, files that nobody knows are removed.

    Raises FileError where the folder cannot be used, holds another store, or somebody else writes to it.
    """
    try:
        (path / FOLDER).mkdir(parents=True, exist_ok=True)
        lock = _locked(path)
    except OSError as problem:
        raise full(problem, path) from problem
    try:
        old = read_meta(path)
        if old is None:
            write_meta(path, meta)
        elif not resume:
            raise FileError(
                "There is a store already.", where=str(path), hint="Give resume=True to go on, or another folder."
            )
        else:
            same_meta(path, old, meta)
        index = indices.read(path)
        folder = Folder(path, index, lock, total)
    except ExactlineError:
        lock.close()
        raise
    try:
        folder.drop(damaged(path, index))
        _swept(path, index)
    except ExactlineError:
        folder.close()
        raise
    return folder


def damaged(path: Path, index: Index, *, thorough: bool = True) -> dict[str, str]:
    """Shards that are not what the index says, and what is wrong with each."""
    found: dict[str, str] = {}
    for record in index.records.values():
        problem = _problem(path / FOLDER / record.file.name, record.file, thorough)
        if problem:
            found[record.file.name] = problem
    return found


def _problem(path: Path, file: Written, thorough: bool) -> str:
    try:
        size = path.stat().st_size
        if size != file.bytes:
            return f"{size:,} bytes long instead of {file.bytes:,}"
        if thorough:
            total = 0
            with path.open("rb") as content:
                while chunk := content.read(CHUNK):
                    total = zlib.crc32(chunk, total)
            if total != file.crc:
                return "its checksum does not hold"
    except FileNotFoundError:
        return "it is missing"
    except OSError as problem:
        return f"it cannot be read: {problem.strerror}"
    return ""


def _swept(path: Path, index: Index) -> None:
    """Remove shards that a killed run wrote and never recorded."""
    for file in (path / FOLDER).iterdir():
        if file.name not in index.records and file.name.endswith((".safetensors", ".tmp")):
            with suppress(OSError):
                file.unlink(missing_ok=True)
    for file in path.glob(".here-*"):
        with suppress(OSError):
            file.unlink(missing_ok=True)


def _locked(path: Path) -> IO[bytes]:
    """A file that only one process can hold; the system lets go of it when that process dies."""
    file = (path / LOCK).open("ab")
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # Windows has no such locks
        pass
    except BlockingIOError as problem:
        file.close()
        raise FileError(
            "Another process writes to this store.", where=str(path), hint="Wait for it, or give another folder."
        ) from problem
    except OSError:  # some network file systems have none either
        pass
    os.set_inheritable(file.fileno(), False)
    return file
