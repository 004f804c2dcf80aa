"""Blocks put together into batches of about the same cost, as an estimate that learns sees it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from .batch import Batch, Block
from .estimate import Estimate

SOON = 1.5  # seconds a batch takes where workers are few: little is lost with one, and a batch costs 10 ms
EACH = 0.03  # seconds more for each worker: the driver can take in so many batches in a second and no more
HEAVY = 32 << 20  # bytes of ends in one batch
CROWD = 1 << 16  # lines in one batch
LEAST = 0.015  # seconds of a batch for each worker that it never falls below: more batches would keep workers waiting
GROWTH = 2  # a batch has at most so many times the blocks of any before: the first few say little
SHARES = 6  # towards the end a batch is at most one of so many parts of what each worker still has to do


@dataclass
class Planner:
    """Makes batches; it pulls lines only when a batch is wanted."""

    blocks: Iterator[Block]
    workers: int = 1
    total: int | None = None  # lines in all, where that is known
    estimate: Estimate = field(default_factory=Estimate)
    taken: int = 0  # lines handed out
    held: Block | None = None  # pulled, and left for the next batch
    largest: int = 1  # blocks in a batch so far

    @property
    def target(self) -> float:
        """Seconds that a batch should take."""
        return max(SOON, EACH * self.workers)

    def next(self) -> Batch | None:
        """The next batch, or None where there are no more lines."""
        limit, blocks = self._limit(), list[Block]()
        lines = size = 0
        cost = length = 0.0
        while (block := self._pull()) is not None:
            count, span = len(block), block.length
            more = self.estimate.seconds(lines + count, length + span)
            large = size + block.bytes > HEAVY or lines + count > CROWD or len(blocks) >= GROWTH * self.largest
            if blocks and (large or more > limit or not self.estimate.known):
                self.held = block
                break
            blocks.append(block)
            lines, size, length, cost = lines + count, size + block.bytes, length + span, more
        self.taken += lines
        self.largest = max(self.largest, len(blocks)) if self.estimate.known else 1
        return Batch(tuple(blocks), cost) if blocks else None

    def _pull(self) -> Block | None:
        if self.held is not None:
            block, self.held = self.held, None
            return block
        return next(self.blocks, None)

    def _limit(self) -> float:
        """Seconds for this batch: less towards the end, so that all workers end together."""
        if self.total is None or not self.estimate.known:
            return self.target
        left = max(self.total - self.taken, 1) * self.estimate.each
        return max(min(self.target, left / (SHARES * max(self.workers, 1))), LEAST * self.workers)
