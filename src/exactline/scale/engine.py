"""What the driver asks of an engine, and the engine that is this process itself."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from .batch import Batch
from .worker import Report, Worker


@dataclass(frozen=True, eq=False)
class Outcome:
    """A batch that came back, with a report or without."""

    batch: Batch
    worker: int
    report: Report | None = None
    reason: str = ""  # why there is none
    guilty: bool = True  # whether it was this batch that the worker had in hand when it died


class Engine(Protocol):
    """Computes batches somewhere; never more than it has room for."""

    workers: int

    def room(self) -> int:
        """How many more batches may be given to it now."""
        ...

    def submit(self, batch: Batch) -> None:
        """Give it a batch."""
        ...

    def wait(self) -> list[Outcome]:
        """Wait until at least one batch is back."""
        ...

    def close(self) -> None:
        """Let everything go."""
        ...


class Local:
    """This process: one worker, which works while one waits."""

    def __init__(self, worker: Worker) -> None:
        self.worker, self.workers = worker, 1
        self.waiting = deque[Batch]()

    def room(self) -> int:
        """One batch at a time."""
        return 1 - len(self.waiting)

    def submit(self, batch: Batch) -> None:
        """Keep it until somebody waits."""
        self.waiting.append(batch)

    def wait(self) -> list[Outcome]:
        """Do the work."""
        batch = self.waiting.popleft()
        return [Outcome(batch, 0, self.worker.work(batch))]

    def close(self) -> None:
        """There is nothing to let go."""
        self.waiting.clear()
