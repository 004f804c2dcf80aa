"""Writes a store: one process at a time; killed at any moment, it loses only the tasks in flight."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..arrays import Ints
from ..errors import ExactlineError, FileError
from .batch import WorkerTask, consecutive_ranges
from .checksums import extend_digest, file_crc
from .driver import Progress
from .failure import Failure
from .index import Index, IndexWriter, LineRange, ShardRecord, read_index
from .manifest import check_same_manifest, read_manifest, write_manifest
from .shard import SHARD_FOLDER, Shard, ShardFile, encode_shard, new_shard_name, write_error, write_shard
from .worker import TaskReport

LOCK_FILE = "lock"
SHARED_FOLDER_PROBE = ".here-"  # beginning of the name of a file by which workers find that they share the folder


class StoreWriter:
    """The driver's side of a store; see `open_store_writer`."""

    def __init__(self, path: Path, index: Index, lock: IO[bytes], total_lines: int | None) -> None:
        self.path, self.index, self.lock, self.total_lines = path, index, lock, total_lines
        self.began = time.perf_counter()
        self.index_writer = IndexWriter(path, index.valid_bytes)
        self.new_shards = list[str]()
        self.new_lines = 0
        self.lines, self.breaks, self.errors = (
            sum(getattr(r, name) for r in index.records.values()) for name in ("lines", "breaks", "errors")
        )

    def add(self, task: WorkerTask, report: TaskReport) -> None:
        """Record the shard of a finished task, and write it where the worker did not."""
        file = report.file or write_shard(self.path, new_shard_name(int(report.numbers[0])), report.data or b"")
        self._record(task, report.numbers, file, breaks=report.breaks, errors=report.errors, seconds=report.seconds)

    def add_failure(self, task: WorkerTask, failure: Failure) -> None:
        """Record lines that killed every worker."""
        numbers = task.numbers
        shard = Shard(np.zeros(0, dtype=np.int64), {}, {int(n): failure for n in numbers})
        file = write_shard(self.path, new_shard_name(int(numbers[0])), encode_shard(shard))
        self._record(task, numbers, file, breaks=0, errors=len(numbers), seconds=0.0)

    def _record(
        self, task: WorkerTask, numbers: Ints, file: ShardFile, *, breaks: int, errors: int, seconds: float
    ) -> None:
        digests = task.digests[np.searchsorted(task.numbers, numbers)]
        ranges: list[LineRange] = []
        for first, stop in consecutive_ranges(numbers):
            row = int(np.searchsorted(numbers, first))
            ranges.append(LineRange(first, stop, extend_digest(digests[row : row + stop - first])))
        record = ShardRecord(file, tuple(ranges), len(numbers), breaks, errors, seconds)
        self.index_writer.append(record.to_json())
        self.index.records[file.name] = record
        self.new_shards.append(file.name)
        self.new_lines += record.lines
        self._count(record, 1)

    def _count(self, record: ShardRecord, sign: int) -> None:
        self.lines += sign * record.lines
        self.breaks += sign * record.breaks
        self.errors += sign * record.errors

    def drop(self, names: Iterable[str]) -> None:
        """Remove shards, so that their lines are computed again."""
        for name in list(names):
            self.index_writer.append({"drop": name})
            record = self.index.records.pop(name)
            self.index.total_lines = None
            self._count(record, -1)
            with suppress(OSError):
                (self.path / SHARD_FOLDER / name).unlink(missing_ok=True)

    def finish(self, total_lines: int) -> None:
        """Record that all lines are in."""
        if self.index.total_lines != total_lines:
            self.index_writer.append({"end": total_lines})
            self.index.total_lines = total_lines

    def progress(self) -> Progress:
        """How far the run is."""
        return Progress(
            done=self.lines,
            total=self.total_lines,
            breaks=self.breaks,
            errors=self.errors,
            seconds=time.perf_counter() - self.began,
            new_lines=self.new_lines,
        )

    def close(self) -> None:
        """Allow other processes to write."""
        self.index_writer.close()
        self.lock.close()


def open_store_writer(path: Path, manifest: dict[str, Any], *, resume: bool, total_lines: int | None) -> StoreWriter:
    """Create a store, or continue one: drop damaged shards and remove files that the index does not know.

    Raises FileError where the folder cannot be used, holds another store, or another process writes to it.
    """
    try:
        (path / SHARD_FOLDER).mkdir(parents=True, exist_ok=True)
        lock = _lock_folder(path)
    except OSError as problem:
        raise write_error(problem, path) from problem
    try:
        stored = read_manifest(path)
        if stored is None:
            write_manifest(path, manifest)
        elif not resume:
            raise FileError(
                "There is a store already.", where=str(path), hint="Give resume=True to go on, or another folder."
            )
        else:
            check_same_manifest(path, stored, manifest)
        index = read_index(path)
        writer = StoreWriter(path, index, lock, total_lines)
    except ExactlineError:
        lock.close()
        raise
    try:
        writer.drop(find_damage(path, index))
        _remove_stray_files(path, index)
    except ExactlineError:
        writer.close()
        raise
    return writer


def find_damage(path: Path, index: Index, *, checksums: bool = True) -> dict[str, str]:
    """Shards that differ from what the index says, and what is wrong with each."""
    damage: dict[str, str] = {}
    for record in index.records.values():
        problem = _check_file(path / SHARD_FOLDER / record.file.name, record.file, checksums)
        if problem:
            damage[record.file.name] = problem
    return damage


def _check_file(path: Path, file: ShardFile, checksums: bool) -> str:
    try:
        size = path.stat().st_size
        if size != file.bytes:
            return f"{size:,} bytes long instead of {file.bytes:,}"
        if checksums and file_crc(path) != file.crc:
            return "its checksum does not match"
    except FileNotFoundError:
        return "it is missing"
    except OSError as problem:
        return f"it cannot be read: {problem.strerror}"
    return ""


def _remove_stray_files(path: Path, index: Index) -> None:
    """Remove what a killed run wrote and never recorded."""
    shards = (file for file in (path / SHARD_FOLDER).iterdir() if file.name.endswith((".safetensors", ".tmp")))
    strays = [file for file in shards if file.name not in index.records]
    for file in [*strays, *path.glob(f"{SHARED_FOLDER_PROBE}*")]:
        with suppress(OSError):
            file.unlink(missing_ok=True)


def _lock_folder(path: Path) -> IO[bytes]:
    """An open file that only one process can lock; the system releases it when the process dies."""
    file = (path / LOCK_FILE).open("ab")
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # Windows has no fcntl
        pass
    except BlockingIOError as problem:
        file.close()
        raise FileError(
            "Another process writes to this store.", where=str(path), hint="Wait for it, or give another folder."
        ) from problem
    except OSError:  # some network file systems have no locks
        pass
    os.set_inheritable(file.fileno(), False)
    return file
