"""One worker: it holds the network, computes batches and packs each into a shard. It is the same on every engine."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch

from ..arrays import Ints
from ..errors import ArgumentError, CaptureError, FileError, MissingError
from ..lines import Lines
from ..network.graph import Network
from .batch import Batch, Block
from .columns import Columns, joined
from .failure import Note
from .jobs import Job
from .shard import Shard, Written, new_name, packed, write

OURS = (ArgumentError, CaptureError, MissingError)  # raised by a job of ours these are about the job, not about a line


@dataclass(frozen=True, eq=False)
class Report:
    """What a worker made of a batch."""

    done: Ints  # numbers of the lines that are in the shard, with an answer or with a note
    failed: Mapping[int, Note]  # lines that should be tried again
    breaks: int
    errors: int
    seconds: float
    file: Written | None = None  # the shard, where the worker wrote it
    data: bytes | None = None  # the shard, where somebody else has to
    halt: Note | None = None  # why going on makes no sense


@dataclass
class Found:
    """Answers so far, in order of lines."""

    numbers: list[Ints] = field(default_factory=list[Ints])
    columns: list[Columns] = field(default_factory=list[Columns])
    breaks: int = 0
    engine: str = "dense"
    failed: dict[int, Note] = field(default_factory=dict[int, Note])


class Worker:
    """Computes batches; ``folder`` is the store's where this worker can write to it."""

    def __init__(self, network: Network, job: Job, folder: Path | None, device: str | None = None) -> None:
        self.network, self.job, self.folder, self.device = network, job, folder, device

    def work(self, batch: Batch) -> Report:
        """All lines of a batch; a line that fails takes no other with it.

        Never raises what is about the lines: it is in the report.
        """
        began = time.perf_counter()
        found = Found()
        try:
            for block in batch.blocks:
                self._block(block, found)
            report = self._report(batch, found, began)
        except FileError as error:
            report = self._halted(error)
        except OURS as error:
            report = self._halted(error)
        return report

    def _block(self, block: Block, found: Found) -> None:
        good = block.good
        if not len(good):
            return
        sides = block.starts, block.ends
        starts, ends = (tuple(torch.from_numpy(np.require(t, requirements="W")) for t in side) for side in sides)
        try:
            columns, breaks, found.engine = self.job.compute(self.network, Lines(starts, ends), self.device)
        except OURS as error:
            if self.job.function is None:
                raise
            self._split(block, error, found)
        except Exception as error:  # noqa: BLE001 - whatever a line or a user's function does, others go on
            self._split(block, error, found)
        else:
            found.numbers.append(good)
            found.columns.append(columns)
            found.breaks += breaks

    def _split(self, block: Block, error: Exception, found: Found) -> None:
        """Something in the block failed: find out which line."""
        good = block.good
        if len(good) == 1:
            found.failed[int(good[0])] = Note.of(error)
            return
        for half in block.only(good).halves():
            self._block(half, found)

    def _report(self, batch: Batch, found: Found, began: float) -> Report:
        notes = {number: note for block in batch.blocks for number, note in block.bad.items()}
        failed = dict(found.failed)
        if batch.last:
            notes |= {number: replace(note, tries=batch.tries) for number, note in failed.items()}
            failed = {}
        numbers = np.concatenate([*found.numbers, np.zeros(0, dtype=np.int64)])
        done = np.sort(np.concatenate([numbers, np.array(list(notes), dtype=np.int64)]))
        seconds = time.perf_counter() - began
        if not len(done):
            return Report(done, failed, 0, 0, seconds)
        shard = Shard(numbers, joined(found.columns), notes, seconds / len(done), found.engine)
        data = packed(shard)
        file = None if self.folder is None else write(self.folder, new_name(int(done[0])), data)
        left = data if file is None else None
        seconds = time.perf_counter() - began
        return Report(done, failed, found.breaks, len(notes), seconds, file, left)

    @staticmethod
    def _halted(error: Exception) -> Report:
        return Report(np.zeros(0, dtype=np.int64), {}, 0, 0, 0.0, halt=Note.of(error))
