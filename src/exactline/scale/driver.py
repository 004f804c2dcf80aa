"""The driver of a run: hands out tasks, records finished shards, and retries what failed, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from ..errors import MissingError
from .backend import Backend, TaskOutcome
from .batch import WorkerTask
from .failure import Failure
from .planner import Planner
from .worker import TaskReport

MAX_TRIES = 3  # of a line before it is recorded with its error
DEATHS_BEFORE_SPLIT = 2  # of workers over one task before it is split
MAX_LOST_TASKS = 20  # in a row before the run ends
MAX_LOST_TASKS_PER_WORKER = 4


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    >>> import tempfile, torch, exactline as xl
    >>> reports = []
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     xl.scale.run(torch.nn.ReLU(), [([-1.0], [1.0]), ([-1.0], [3.0])], out=folder, progress=reports.append)
    <Store: 2 of 2 lines, 6 breaks, 1 shard>
    >>> reports[-1].done, reports[-1].total, reports[-1].breaks, reports[-1].errors
    (2, 2, 6, 0)
    """

    done: int  # lines in the store, those of earlier runs included
    total: int | None  # lines of the whole job, where that is known
    breaks: int
    errors: int
    seconds: float  # since this run began
    new_lines: int  # lines that this run has added

    @property
    def rate(self) -> float:
        """Lines per second in this run."""
        return self.new_lines / self.seconds if self.seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the end at the present rate; None where the total is not known."""
        if self.total is None or self.rate == 0:
            return None
        return (self.total - self.done) / self.rate


class TaskRecorder(Protocol):
    """Receives finished tasks; a `StoreWriter`, or a stand-in in tests and simulations."""

    def add(self, task: WorkerTask, report: TaskReport) -> None:
        """Record the shard of a finished task."""
        ...

    def add_failure(self, task: WorkerTask, failure: Failure) -> None:
        """Record a line that killed every worker."""
        ...

    def progress(self) -> Progress:
        """How far the run is."""
        ...


class Driver:
    """One run, from the first line to the last."""

    def __init__(
        self,
        planner: Planner,
        backend: Backend,
        recorder: TaskRecorder,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.planner, self.backend, self.recorder, self.on_progress = planner, backend, recorder, on_progress
        self.retries = deque[WorkerTask]()
        self.in_flight = self.lost_in_a_row = 0

    def run(self) -> None:
        """Work until every line is recorded; raises the error of a job that cannot go on."""
        more = True
        while True:
            while self.backend.free_slots() > 0 and (self.retries or more):
                task = self.retries.popleft() if self.retries else self.planner.next_task()
                if task is None:
                    more = False
                    break
                self.backend.submit(task)
                self.in_flight += 1
            if not (self.in_flight or self.retries or more):
                return
            for outcome in self.backend.wait():
                self.in_flight -= 1
                self._handle(outcome)
            if self.on_progress is not None:
                self.on_progress(self.recorder.progress())

    def _handle(self, outcome: TaskOutcome) -> None:
        report = outcome.report
        if report is None:
            self._handle_loss(outcome)
            return
        self.lost_in_a_row = 0
        if report.fatal is not None:
            raise report.fatal.to_error()
        if len(report.numbers):
            self.recorder.add(outcome.task, report)
            self.planner.cost_model.update(len(report.numbers), outcome.task.length, report.seconds, report.breaks)
        if report.retry:
            self._retry(outcome, report)

    def _retry(self, outcome: TaskOutcome, report: TaskReport) -> None:
        """Queue the failed lines again, as one task: each fails or succeeds on its own."""
        task, numbers = outcome.task, np.array(sorted(report.retry))
        batches = [b.select(numbers) for b in task.batches]
        attempt = task.attempt + 1
        self.retries.append(
            WorkerTask(
                tuple(b for b in batches if len(b)),
                attempt=attempt,
                is_last_attempt=attempt >= MAX_TRIES,
                avoid_worker=outcome.worker,
            )
        )

    def _handle_loss(self, outcome: TaskOutcome) -> None:
        """A worker died during a task: try another worker, then halves of the task."""
        if not outcome.was_running:
            self.retries.append(outcome.task)
            return
        self.lost_in_a_row += 1
        if self.lost_in_a_row >= max(MAX_LOST_TASKS, MAX_LOST_TASKS_PER_WORKER * self.backend.workers):
            raise MissingError(
                f"{self.lost_in_a_row} workers died one after another: {outcome.reason}",
                where="backend ray",
                hint="Look at Ray's logs; give fewer workers or more memory, and run again with resume=True.",
            )
        task = replace(outcome.task, avoid_worker=outcome.worker, deaths=outcome.task.deaths + 1)
        if len(task) == 1 and task.deaths >= MAX_TRIES:
            problem = f"The worker died {task.deaths} times over this line: {outcome.reason}"
            failure = Failure("failed", problem, hint="Run this line alone.", tries=task.deaths)
            self.recorder.add_failure(task, failure)
        elif task.deaths < DEATHS_BEFORE_SPLIT or len(task) == 1:
            self.retries.append(task)
        else:
            self.retries.extend(replace(half, deaths=0) for half in task.split())
