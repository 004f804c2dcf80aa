"""The driver: hands out batches, takes in shards, tries again what failed, and never holds more than is on its way."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from ..errors import MissingError
from .batch import Batch
from .engine import Engine, Outcome
from .failure import Note
from .planner import Planner
from .worker import Report

TRIES = 3  # of a line before it is recorded with its error
TOGETHER = 2  # of a batch before it is split, where its worker died
HOPELESS = 20  # batches lost one after another without any that came back


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    >>> import tempfile, torch, exactline as xl
    >>> told = []
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     xl.scale.run(torch.nn.ReLU(), [([-1.0], [1.0]), ([-1.0], [3.0])], out=folder, progress=told.append)
    <Store: 2 of 2 lines, 6 breaks, 1 shard>
    >>> told[-1].done, told[-1].total, told[-1].breaks, told[-1].errors
    (2, 2, 6, 0)
    """

    done: int  # lines in the store, those of earlier runs too
    total: int | None
    breaks: int
    errors: int
    seconds: float  # since this run began
    fresh: int  # lines of this run

    @property
    def rate(self) -> float:
        """Lines a second in this run."""
        return self.fresh / self.seconds if self.seconds > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Seconds until the end at this rate, where the end is known."""
        if self.total is None or self.rate == 0:
            return None
        return (self.total - self.done) / self.rate


class Keeper(Protocol):
    """Takes in what is finished."""

    def keep(self, batch: Batch, report: Report) -> None:
        """Put a shard into the store."""
        ...

    def note(self, batch: Batch, note: Note) -> None:
        """Record one line that no worker survived."""
        ...

    def progress(self) -> Progress:
        """How far we are."""
        ...


class Driver:
    """One run, from the first line to the last."""

    def __init__(
        self,
        planner: Planner,
        engine: Engine,
        keeper: Keeper,
        progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.planner, self.engine, self.keeper, self.told = planner, engine, keeper, progress
        self.again = deque[Batch]()
        self.flying = self.lost = 0

    def run(self) -> None:
        """Until every line is in the store; raises what makes going on senseless."""
        more = True
        while True:
            while self.engine.room() > 0 and (self.again or more):
                batch = self.again.popleft() if self.again else self.planner.next()
                if batch is None:
                    more = False
                    break
                self.engine.submit(batch)
                self.flying += 1
            if not (self.flying or self.again or more):
                return
            for outcome in self.engine.wait():
                self.flying -= 1
                self._take(outcome)
            if self.told is not None:
                self.told(self.keeper.progress())

    def _take(self, outcome: Outcome) -> None:
        report = outcome.report
        if report is None:
            self._lost(outcome)
            return
        self.lost = 0
        if report.halt is not None:
            raise report.halt.error()
        if len(report.done):
            self.keeper.keep(outcome.batch, report)
            self.planner.estimate.learn(len(report.done), outcome.batch.length, report.seconds, report.breaks)
        if report.failed:
            self._retry(outcome, report)

    def _retry(self, outcome: Outcome, report: Report) -> None:
        """The lines that failed once more, together: each fails or succeeds alone in any case."""
        batch, numbers = outcome.batch, np.array(sorted(report.failed))
        blocks = [b.only(numbers) for b in batch.blocks]
        tries = batch.tries + 1
        self.again.append(
            Batch(tuple(b for b in blocks if len(b)), 0.0, tries, last=tries >= TRIES, avoid=outcome.worker)
        )

    def _lost(self, outcome: Outcome) -> None:
        """A worker died with the batch in hand: another may do better, or with less of it."""
        batch = replace(outcome.batch, avoid=outcome.worker)
        if not outcome.guilty:
            self.again.append(outcome.batch)
            return
        self.lost += 1
        if self.lost >= max(HOPELESS, 4 * self.engine.workers):
            raise MissingError(
                f"{self.lost} workers died one after another: {outcome.reason}",
                where="engine ray",
                hint="Look at Ray's logs; give fewer workers or more memory, and run again with resume=True.",
            )
        batch = replace(batch, deaths=batch.deaths + 1)
        if len(batch) == 1 and batch.deaths >= TRIES:
            reason = f"The worker died {batch.deaths} times over this line: {outcome.reason}"
            self.keeper.note(batch, Note("failed", reason, hint="Run this line alone.", tries=batch.deaths))
        elif batch.deaths < TOGETHER or len(batch) == 1:
            self.again.append(batch)
        else:
            self.again.extend(replace(half, deaths=0) for half in batch.halves())


def now() -> float:
    """The clock runs are timed by."""
    return time.perf_counter()
