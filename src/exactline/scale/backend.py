"""What the driver needs of a backend, and the backend that is this process."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Protocol

from .batch import WorkerTask
from .worker import TaskReport, Worker


@dataclass(frozen=True, eq=False)
class TaskOutcome:
    """A task that came back, with a report or without."""

    task: WorkerTask
    worker: int
    report: TaskReport | None = None
    reason: str = ""  # why there is no report
    was_running: bool = True  # False where the task only waited when its worker died


class Backend(Protocol):
    """Computes tasks somewhere."""

    workers: int

    def free_slots(self) -> int:
        """How many more tasks may be submitted now."""
        ...

    def submit(self, task: WorkerTask) -> None:
        """Start a task, or queue it."""
        ...

    def wait(self) -> list[TaskOutcome]:
        """Wait until a task is back."""
        ...

    def close(self) -> None:
        """Release all workers."""
        ...


class LocalBackend:
    """One worker in this process; it works while the driver waits."""

    def __init__(self, worker: Worker) -> None:
        self.worker, self.workers = worker, 1
        self.queue = deque[WorkerTask]()

    def free_slots(self) -> int:
        """One task at a time."""
        return 1 - len(self.queue)

    def submit(self, task: WorkerTask) -> None:
        """Queue a task until `wait`."""
        self.queue.append(task)

    def wait(self) -> list[TaskOutcome]:
        """Compute the queued task."""
        task = self.queue.popleft()
        return [TaskOutcome(task, 0, self.worker.run(task))]

    def close(self) -> None:
        """Forget the queued task."""
        self.queue.clear()
