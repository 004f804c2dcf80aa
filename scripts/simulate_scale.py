"""A thousand workers on a clock of our own: the real planner, estimate and driver, costs drawn from measured ones.

    python benchmarks/scale.py --costs costs.json
    python scripts/simulate_scale.py costs.json --out docs/images/scale.png

Only the engine and the store are simulated. A worker takes for each block what some measured block took, times its
own speed, plus what a batch costs it; one in a hundred runs at half speed, and each dies once in so many hours. The
driver's time is charged too, as measured: for every line it reads and for every batch it hands out and takes in.
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
from exactline.scale.batch import Batch, Block
from exactline.scale.driver import Driver, Progress
from exactline.scale.engine import Outcome
from exactline.scale.failure import Note
from exactline.scale.planner import Planner
from exactline.scale.worker import Report

DEPTH = 2  # batches at a worker, as on Ray
BATCH = 0.012  # seconds of the driver for each batch: to hand it out, to take it in, and a record on the disk
LINE = 0.76e-6  # seconds of the driver for each line that it reads from a file
OVERHEAD = 0.02  # seconds of a worker for each batch: to pack a shard and write it
DEATH = 6 * 3600.0  # seconds between two deaths of one worker, on average
STARTING = 10.0  # seconds until another has taken its place


@dataclass
class Clock:
    """The simulated time of the driver."""

    now: float = 0.0


@dataclass
class Simulated:
    """Workers that only wait; see the engine protocol."""

    workers: int
    clock: Clock
    costs: dict[int, float]  # true seconds of each block by its first line
    rng: np.random.Generator
    queues: list[deque[tuple[Batch, float]]] = field(default_factory=list[deque[tuple[Batch, float]]])  # since when
    events: list[tuple[float, int, bool]] = field(default_factory=list[tuple[float, int, bool]])
    busy: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])  # from, to
    batches: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])  # when, seconds
    deaths: int = 0

    def __post_init__(self) -> None:
        self.queues = [deque[tuple[Batch, float]]() for _ in range(self.workers)]
        self.speed = np.exp(self.rng.normal(0.0, 0.1, self.workers))
        self.speed[self.rng.random(self.workers) < 0.01] *= 0.5
        self.free = {size: set[int]() for size in range(DEPTH + 1)}
        self.free[0] = set(range(self.workers))

    def room(self) -> int:
        """As many as fit into the queues."""
        return sum((DEPTH - size) * len(some) for size, some in self.free.items())

    def submit(self, batch: Batch) -> None:
        """To the shortest queue; it costs the driver time."""
        self.clock.now += BATCH / 2
        size = next(size for size in range(DEPTH) if self.free[size])
        worker = self.free[size].pop()
        self.free[size + 1].add(worker)
        self.queues[worker].append((batch, self.clock.now))
        if size == 0:
            self._begin(worker, self.clock.now)

    def _begin(self, worker: int, at: float) -> None:
        batch, since = self.queues[worker][0]
        at = max(at, since)
        work = OVERHEAD + sum(self.costs[int(b.numbers[0])] for b in batch.blocks) / self.speed[worker]
        life = float(self.rng.exponential(DEATH))
        end = at + min(work, life)
        self.busy.append((at, end))
        self.batches.append((at, work))
        heapq.heappush(self.events, (end, worker, life < work))

    def wait(self) -> list[Outcome]:
        """The next to finish; the driver may be late, then it takes what is there."""
        end, worker, dead = heapq.heappop(self.events)
        size = len(self.queues[worker])
        self.free[size].discard(worker)
        batch, _ = self.queues[worker].popleft()
        begins = end
        if dead:
            self.deaths += 1
            begins += STARTING
        self.free[size - 1].add(worker)
        if self.queues[worker]:
            self._begin(worker, begins)
        self.clock.now = max(self.clock.now, end) + BATCH / 2
        if dead:
            return [Outcome(batch, worker, reason="died")]
        seconds = OVERHEAD + sum(self.costs[int(b.numbers[0])] for b in batch.blocks) / self.speed[worker]
        return [Outcome(batch, worker, Report(batch.numbers, {}, 0, 0, seconds))]

    def close(self) -> None:
        """Nothing to let go."""


class Shelf:
    """Counts lines, each of which must come once."""

    def __init__(self) -> None:
        self.lines = 0

    def keep(self, batch: Batch, report: Report) -> None:
        """One more shard."""
        self.lines += len(report.done)

    def note(self, batch: Batch, note: Note) -> None:
        """Nobody fails here."""
        raise RuntimeError(note.problem)

    def progress(self) -> Progress:
        """How far it is."""
        return Progress(self.lines, None, 0, 0, 0.0, self.lines)


def blocks(count: int, rows: list[dict[str, Any]], size: int, scale: float, found: Simulated) -> Iterator[Block]:
    """Blocks of lines as long as measured ones, each of which will take what that one took, times a scale."""
    digests = np.zeros(size, dtype=np.uint32)
    for k in range(count):
        row = rows[int(found.rng.integers(len(rows)))]
        found.clock.now += LINE * size
        found.costs[k * size] = row["seconds"] * scale * size / row["lines"]
        ends = np.full((size, 1), row["length"] / row["lines"])
        yield Block(np.arange(k * size, (k + 1) * size), digests, (np.zeros((size, 1)),), (ends,))


def simulated(workers: int, rows: list[dict[str, Any]], size: int, scale: float, count: int) -> dict[str, Any]:
    """One run: how long it took, how busy workers were, and the engine that knows more."""
    clock = Clock()
    engine = Simulated(workers, clock, {}, np.random.default_rng(0))
    shelf = Shelf()
    Driver(Planner(blocks(count, rows, size, scale, engine), workers, count * size), engine, shelf).run()
    spans = np.array(engine.busy)
    end = float(spans[:, 1].max())
    useful = sum(engine.costs.values()) / float(np.mean(engine.speed)) / (workers * end)
    busy = float((spans[:, 1] - spans[:, 0]).sum()) / (workers * end)
    inner = np.clip(spans, 0.05 * end, 0.9 * end)
    steady = float((inner[:, 1] - inner[:, 0]).sum()) / (workers * 0.85 * end)
    return {
        "workers": workers,
        "lines": shelf.lines,
        "seconds": end,
        "busy": busy,
        "steady": steady,
        "useful": useful,
        "batches": len(engine.batches),
        "deaths": engine.deaths,
        "engine": engine,
    }


def at_work(spans: Floats, times: Floats) -> Floats:
    """How many workers are at work at some times."""
    starts, ends = np.sort(spans[:, 0]), np.sort(spans[:, 1])
    return (np.searchsorted(starts, times, "right") - np.searchsorted(ends, times, "right")).astype(np.float64)


def draw(runs: dict[str, dict[str, Any]], path: Path) -> None:
    """Workers at work against time, a line for each kind of network."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
    for name, run in runs.items():
        spans, times = np.array(run["engine"].busy), np.linspace(0, run["seconds"], 600)
        axes[0].plot(times / run["seconds"], at_work(spans, times) / run["workers"], label=name, lw=1.2)
        when = np.array(run["engine"].batches)
        axes[1].plot(when[:, 0] / run["seconds"], when[:, 1], ".", ms=1, alpha=0.4, label=name)
    axes[0].set(xlabel="share of the run", ylabel="share of workers at work", ylim=(0, 1.02))
    axes[1].set(xlabel="share of the run", ylabel="seconds of a batch", yscale="log")
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=130)


def main() -> None:
    """A table, and a picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("costs", type=Path)
    parser.add_argument("--workers", type=int, default=1000)
    parser.add_argument("--out", type=Path)
    wish = parser.parse_args()
    measured = json.loads(wish.costs.read_text())
    rows, size = measured["rows"], int(measured["block"])
    per_line = sum(r["seconds"] for r in rows) / sum(r["lines"] for r in rows)
    print(f"measured: {1e3 * per_line:.2f} ms for a line, blocks of {size}")
    names = {"a line takes": 14, "workers": 8, "lines": 11, "batches": 8, "deaths": 7, "hours": 6, "at work": 8}
    print(*(f"{name:>{width}}" for name, width in names.items()), " steady")
    runs = dict[str, dict[str, Any]]()
    for seconds, lines, block in ((per_line, 50_000_000, size), (0.05, 5_000_000, 16), (1.0, 1_000_000, 1)):
        for workers in (100, wish.workers):
            count = max(lines * workers // (1000 * block), 4 * workers)
            run = simulated(workers, rows, block, seconds / per_line, count)
            if workers == wish.workers:
                runs[f"{1e3 * seconds:.2g} ms a line" if seconds < 1 else f"{seconds:g} s a line"] = run
            print(
                f"{1e3 * seconds:>11.2f} ms {workers:>8,} {run['lines']:>11,} {run['batches']:>8,} {run['deaths']:>7,}"
                f" {run['seconds'] / 3600:>6.2f} {run['busy']:>8.1%} {run['steady']:>7.1%}"
            )
    if wish.out is not None:
        draw(runs, wish.out)


if __name__ == "__main__":
    main()
