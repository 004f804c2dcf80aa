"""Combines batches into tasks of about equal cost, as the cost model predicts it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .batch import LineBatch, WorkerTask
from .cost_model import CostModel

TASK_SECONDS = 1.5  # aim for a task with few workers: little is lost with one, and a task costs the driver 10 ms
TASK_SECONDS_PER_WORKER = 0.03  # aim with many workers: the driver takes in only so many tasks a second
MIN_TASK_SECONDS_PER_WORKER = 0.015  # tasks never get shorter: more of them would keep workers waiting
MAX_TASK_BYTES = 32 << 20  # of end points
MAX_TASK_LINES = 1 << 16
MAX_GROWTH = 2  # a task has at most so many times the batches of any earlier one: the first few say little
REMAINING_SHARES = 6  # near the end a task is at most one of so many parts of each worker's remaining work


@dataclass
class Planner:
    """Makes tasks; takes lines from its source only when a task is needed."""

    batches: Iterator[LineBatch]
    workers: int = 1
    total_lines: int | None = None  # None where it is not known
    cost_model: CostModel = field(default_factory=CostModel)
    planned_lines: int = 0
    pending: LineBatch | None = None  # taken from the source, left for the next task
    largest_task: int = 1  # batches in a task so far

    @property
    def target_seconds(self) -> float:
        """Seconds that a task should take."""
        return max(TASK_SECONDS, TASK_SECONDS_PER_WORKER * self.workers)

    def next_task(self) -> WorkerTask | None:
        """The next task, or None where there are no more lines."""
        limit, batches = self._limit_seconds(), list[LineBatch]()
        lines = size = 0
        cost = length = 0.0
        while (batch := self._next_batch()) is not None:
            count, span = len(batch), batch.length
            more = self.cost_model.predict_seconds(lines + count, length + span)
            large = (
                size + batch.bytes > MAX_TASK_BYTES
                or lines + count > MAX_TASK_LINES
                or len(batches) >= MAX_GROWTH * self.largest_task
            )
            if batches and (large or more > limit or not self.cost_model.is_fitted):
                self.pending = batch
                break
            batches.append(batch)
            lines, size, length, cost = lines + count, size + batch.bytes, length + span, more
        self.planned_lines += lines
        self.largest_task = max(self.largest_task, len(batches)) if self.cost_model.is_fitted else 1
        return WorkerTask(tuple(batches), cost) if batches else None

    def _next_batch(self) -> LineBatch | None:
        if self.pending is not None:
            batch, self.pending = self.pending, None
            return batch
        return next(self.batches, None)

    def _limit_seconds(self) -> float:
        """Seconds of the next task: less near the end, so that all workers finish together."""
        if self.total_lines is None or not self.cost_model.is_fitted:
            return self.target_seconds
        remaining = max(self.total_lines - self.planned_lines, 1) * self.cost_model.seconds_per_line
        share = remaining / (REMAINING_SHARES * max(self.workers, 1))
        return max(min(self.target_seconds, share), MIN_TASK_SECONDS_PER_WORKER * self.workers)
