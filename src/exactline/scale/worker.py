"""One worker: holds the network, computes tasks and packs each into a shard. It is the same on every backend."""

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
from .batch import LineBatch, WorkerTask
from .columns import Columns, concatenate
from .failure import Failure
from .jobs import Job
from .shard import Shard, ShardFile, encode_shard, new_shard_name, write_shard

JOB_ERRORS = (ArgumentError, CaptureError, MissingError)  # in a built-in job these concern the job, not a line


@dataclass(frozen=True, eq=False)
class TaskReport:
    """What became of a task."""

    numbers: Ints  # of the lines in the shard, with an answer or with a failure
    retry: Mapping[int, Failure]  # lines to try again
    breaks: int
    errors: int
    seconds: float
    file: ShardFile | None = None  # the shard, where the worker wrote it
    data: bytes | None = None  # the shard, where the driver has to write it
    fatal: Failure | None = None  # why the whole run has to end


@dataclass
class _Answers:
    """Answers of a task so far, in order of lines."""

    numbers: list[Ints] = field(default_factory=list[Ints])
    columns: list[Columns] = field(default_factory=list[Columns])
    breaks: int = 0
    engine: str = "dense"
    failures: dict[int, Failure] = field(default_factory=dict[int, Failure])


class Worker:
    """Computes tasks; ``folder`` is the store's, where this worker can write to it."""

    def __init__(self, network: Network, job: Job, folder: Path | None, device: str | None = None) -> None:
        self.network, self.job, self.folder, self.device = network, job, folder, device

    def run(self, task: WorkerTask) -> TaskReport:
        """Compute all lines of a task; a line that fails does not affect the others.

        Errors of lines are in the report; none is raised.
        """
        began = time.perf_counter()
        answers = _Answers()
        try:
            for batch in task.batches:
                self._compute(batch, answers)
            return self._report(task, answers, began)
        except (FileError, *JOB_ERRORS) as error:
            return TaskReport(np.zeros(0, dtype=np.int64), {}, 0, 0, 0.0, fatal=Failure.from_error(error))

    def _compute(self, batch: LineBatch, answers: _Answers) -> None:
        """Add the answers of a batch."""
        usable = batch.usable
        if not len(usable):
            return
        sides = batch.starts, batch.ends
        starts, ends = (tuple(torch.from_numpy(np.require(t, requirements="W")) for t in side) for side in sides)
        try:
            computed = self.job.compute(self.network, Lines(starts, ends), self.device)
        except JOB_ERRORS as error:
            if self.job.function is None:
                raise
            self._bisect(batch, error, answers)
        except Exception as error:  # noqa: BLE001 - whatever a line or a user's function raises, others go on
            self._bisect(batch, error, answers)
        else:
            answers.numbers.append(usable)
            answers.columns.append(computed.columns)
            answers.breaks += computed.breaks
            answers.engine = computed.engine

    def _bisect(self, batch: LineBatch, error: Exception, answers: _Answers) -> None:
        """Find the line of a batch that failed, and compute the others."""
        usable = batch.usable
        if len(usable) == 1:
            answers.failures[int(usable[0])] = Failure.from_error(error)
            return
        for half in batch.select(usable).split():
            self._compute(half, answers)

    def _report(self, task: WorkerTask, answers: _Answers, began: float) -> TaskReport:
        failures = {number: failure for batch in task.batches for number, failure in batch.failures.items()}
        retry = dict(answers.failures)
        if task.is_last_attempt:
            failures |= {number: replace(failure, tries=task.attempt) for number, failure in retry.items()}
            retry = {}
        answered = np.concatenate([*answers.numbers, np.zeros(0, dtype=np.int64)])
        numbers = np.sort(np.concatenate([answered, np.array(list(failures), dtype=np.int64)]))
        seconds = time.perf_counter() - began
        if not len(numbers):
            return TaskReport(numbers, retry, 0, 0, seconds)
        shard = Shard(answered, concatenate(answers.columns), failures, seconds / len(numbers), answers.engine)
        data = encode_shard(shard)
        file = None if self.folder is None else write_shard(self.folder, new_shard_name(int(numbers[0])), data)
        seconds = time.perf_counter() - began
        return TaskReport(
            numbers, retry, answers.breaks, len(failures), seconds, file=file, data=data if file is None else None
        )
