"""Simulate a thousand workers: the real planner, cost model and driver, with costs drawn from measured ones.

    python benchmarks/scale.py --costs costs.json
    python scripts/simulate_scale.py costs.json --out docs/images/scale.png

Only the backend and the store are simulated. A worker takes for each batch as long as some measured batch took, times
its own speed, plus the overhead of a task; one in a hundred runs at half speed, and each dies every few hours. The
driver's time is charged as measured: for every line it reads and for every task it submits and collects.
"""

from __future__ import annotations

import argparse
import heapq
import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from exactline.arrays import Floats
from exactline.plot.palette import CLASS_COLOURS
from exactline.scale.backend import TaskOutcome
from exactline.scale.batch import LineBatch, WorkerTask
from exactline.scale.driver import Driver, Progress
from exactline.scale.failure import Failure
from exactline.scale.planner import Planner
from exactline.scale.ray_backend import TASKS_PER_WORKER
from exactline.scale.worker import TaskReport

DRIVER_SECONDS_PER_TASK = 0.012  # to submit it, to collect it, and to write a record to the disk
DRIVER_SECONDS_PER_LINE = 0.76e-6  # to read it from a file
WORKER_SECONDS_PER_TASK = 0.02  # to pack a shard and write it
MEAN_LIFE_SECONDS = 6 * 3600.0  # of a worker
RESTART_SECONDS = 10.0  # until another worker has taken the place of a dead one


@dataclass
class Clock:
    """The simulated time of the driver."""

    now: float = 0.0


@dataclass
class SimulatedBackend:
    """Workers that only wait; see the protocol `Backend`."""

    workers: int
    clock: Clock
    costs: dict[int, float]  # true seconds of each batch by its first line
    rng: np.random.Generator
    queues: list[deque[tuple[WorkerTask, float]]] = field(
        default_factory=list[deque[tuple[WorkerTask, float]]]
    )  # of tasks, and when each was submitted
    events: list[tuple[float, int, bool]] = field(default_factory=list[tuple[float, int, bool]])
    busy: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])  # from, to
    tasks: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])  # when, seconds
    deaths: int = 0

    def __post_init__(self) -> None:
        self.queues = [deque[tuple[WorkerTask, float]]() for _ in range(self.workers)]
        self.speed = np.exp(self.rng.normal(0.0, 0.1, self.workers))
        self.speed[self.rng.random(self.workers) < 0.01] *= 0.5
        self.free = {size: set[int]() for size in range(TASKS_PER_WORKER + 1)}
        self.free[0] = set(range(self.workers))

    def free_slots(self) -> int:
        """Free places in all queues."""
        return sum((TASKS_PER_WORKER - size) * len(some) for size, some in self.free.items())

    def submit(self, task: WorkerTask) -> None:
        """Queue a task at the worker with the shortest queue; this takes the driver time."""
        self.clock.now += DRIVER_SECONDS_PER_TASK / 2
        size = next(size for size in range(TASKS_PER_WORKER) if self.free[size])
        worker = self.free[size].pop()
        self.free[size + 1].add(worker)
        self.queues[worker].append((task, self.clock.now))
        if size == 0:
            self._begin(worker, self.clock.now)

    def _begin(self, worker: int, at: float) -> None:
        task, since = self.queues[worker][0]
        at = max(at, since)
        work = self._work_seconds(task, worker)
        life = float(self.rng.exponential(MEAN_LIFE_SECONDS))
        end = at + min(work, life)
        self.busy.append((at, end))
        self.tasks.append((at, work))
        heapq.heappush(self.events, (end, worker, life < work))

    def _work_seconds(self, task: WorkerTask, worker: int) -> float:
        seconds = sum(self.costs[int(b.numbers[0])] for b in task.batches) / self.speed[worker]
        return WORKER_SECONDS_PER_TASK + float(seconds)

    def wait(self) -> list[TaskOutcome]:
        """The next task to finish; it may have finished before the driver asks."""
        end, worker, dead = heapq.heappop(self.events)
        size = len(self.queues[worker])
        self.free[size].discard(worker)
        task, _ = self.queues[worker].popleft()
        begins = end
        if dead:
            self.deaths += 1
            begins += RESTART_SECONDS
        self.free[size - 1].add(worker)
        if self.queues[worker]:
            self._begin(worker, begins)
        self.clock.now = max(self.clock.now, end) + DRIVER_SECONDS_PER_TASK / 2
        if dead:
            return [TaskOutcome(task, worker, reason="died")]
        seconds = self._work_seconds(task, worker)
        return [TaskOutcome(task, worker, TaskReport(task.numbers, {}, 0, 0, seconds))]

    def close(self) -> None:
        """Nothing to release."""


class LineCounter:
    """Records how many lines are finished."""

    def __init__(self) -> None:
        self.lines = 0

    def add(self, task: WorkerTask, report: TaskReport) -> None:
        """Count the lines of a task."""
        self.lines += len(report.numbers)

    def add_failure(self, task: WorkerTask, failure: Failure) -> None:
        """No line fails in a simulation."""
        raise RuntimeError(failure.problem)

    def progress(self) -> Progress:
        """How far the run is."""
        return Progress(self.lines, None, 0, 0, 0.0, self.lines)


def make_batches(
    count: int, rows: list[dict[str, Any]], size: int, scale: float, backend: SimulatedBackend
) -> Iterator[LineBatch]:
    """Batches of lines as long as measured ones; each takes ``scale`` times as long as the measured one took."""
    digests = np.zeros(size, dtype=np.uint32)
    for k in range(count):
        row = rows[int(backend.rng.integers(len(rows)))]
        backend.clock.now += DRIVER_SECONDS_PER_LINE * size
        backend.costs[k * size] = row["seconds"] * scale * size / row["lines"]
        ends = np.full((size, 1), row["length"] / row["lines"])
        yield LineBatch(np.arange(k * size, (k + 1) * size), digests, (np.zeros((size, 1)),), (ends,))


def simulate(workers: int, rows: list[dict[str, Any]], size: int, scale: float, count: int) -> dict[str, Any]:
    """One run: how long it took, how busy the workers were, and the backend with all events."""
    clock = Clock()
    backend = SimulatedBackend(workers, clock, {}, np.random.default_rng(0))
    counter = LineCounter()
    batches = make_batches(count, rows, size, scale, backend)
    Driver(Planner(batches, workers, count * size), backend, counter).run()
    spans = np.array(backend.busy)
    end = float(spans[:, 1].max())
    useful = sum(backend.costs.values()) / float(np.mean(backend.speed)) / (workers * end)
    busy = float((spans[:, 1] - spans[:, 0]).sum()) / (workers * end)
    inner = np.clip(spans, 0.05 * end, 0.9 * end)
    steady = float((inner[:, 1] - inner[:, 0]).sum()) / (workers * 0.85 * end)
    return {
        "workers": workers,
        "lines": counter.lines,
        "seconds": end,
        "busy": busy,
        "steady": steady,
        "useful": useful,
        "tasks": len(backend.tasks),
        "deaths": backend.deaths,
        "backend": backend,
    }


def count_busy(spans: Floats, times: Floats) -> Floats:
    """How many workers are busy at some times."""
    starts, ends = np.sort(spans[:, 0]), np.sort(spans[:, 1])
    return (np.searchsorted(starts, times, "right") - np.searchsorted(ends, times, "right")).astype(np.float64)


def draw(runs: dict[str, dict[str, Any]], path: Path) -> None:
    """Draw the share of busy workers against time, a line for each kind of network."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
    for (name, run), colour in zip(runs.items(), CLASS_COLOURS, strict=False):
        spans, times = np.array(run["backend"].busy), np.linspace(0, run["seconds"], 600)
        axes[0].plot(
            times / run["seconds"], count_busy(spans, times) / run["workers"], label=name, lw=1.2, color=colour
        )
        when = np.array(run["backend"].tasks)
        axes[1].plot(when[:, 0] / run["seconds"], when[:, 1], ".", ms=1, alpha=0.4, color=colour)
    axes[0].set(xlabel="share of the run", ylabel="share of busy workers", ylim=(0, 1.02))
    axes[1].set(xlabel="share of the run", ylabel="seconds of a task", yscale="log")
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=130)


def main() -> None:
    """Print a table, and draw a picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("costs", type=Path)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    measured = json.loads(arguments.costs.read_text())
    rows, size = measured["rows"], int(measured["block"])
    per_line = sum(r["seconds"] for r in rows) / sum(r["lines"] for r in rows)
    print(f"measured: {1e3 * per_line:.2f} ms per line, batches of {size}")
    names = {"a line takes": 14, "workers": 8, "lines": 11, "tasks": 8, "deaths": 7, "hours": 6, "busy": 8}
    print(*(f"{name:>{width}}" for name, width in names.items()), " steady")
    runs = dict[str, dict[str, Any]]()
    for seconds, lines, batch_lines in ((per_line, 50_000_000, size), (0.05, 5_000_000, 16), (1.0, 1_000_000, 1)):
        for workers in (100, arguments.workers):
            count = max(lines * workers // (1000 * batch_lines), 4 * workers)
            run = simulate(workers, rows, batch_lines, seconds / per_line, count)
            if workers == arguments.workers:
                runs[f"{1e3 * seconds:.2g} ms per line" if seconds < 1 else f"{seconds:g} s per line"] = run
            print(
                f"{1e3 * seconds:>11.2f} ms {workers:>8,} {run['lines']:>11,} {run['tasks']:>8,} {run['deaths']:>7,}"
                f" {run['seconds'] / 3600:>6.2f} {run['busy']:>8.1%} {run['steady']:>7.1%}"
            )
    if arguments.out is not None:
        draw(runs, arguments.out)


if __name__ == "__main__":
    main()
