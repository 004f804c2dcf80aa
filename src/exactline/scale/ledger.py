"""Which lines of a store are finished, and whether the lines given now are the ones of the earlier run."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..arrays import Bools, Ints
from ..errors import FileError
from .batch import LineBatch
from .checksums import Digests, extend_digest
from .index import Index


class Ledger:
    """Walks through all lines in order, skips those that are finished and compares their checksums."""

    def __init__(self, index: Index, where: str) -> None:
        self.ranges = sorted(part for record in index.records.values() for part in record.ranges)
        self.where = where
        self.position = 0  # of the range that is being compared, or of the next one
        self.digest = 0  # of the part of that range that was seen
        self.lines_seen = 0
        self.total_lines = index.total_lines

    @property
    def lines_finished(self) -> int:
        """How many lines are in the store."""
        return sum(part.stop - part.first for part in self.ranges)

    @property
    def has_unmatched_ranges(self) -> bool:
        """Whether the lines so far do not cover all finished ranges."""
        return self.position < len(self.ranges)

    def skip_finished(self, batches: Iterator[LineBatch]) -> Iterator[LineBatch]:
        """The unfinished lines of each batch.

        Raises FileError where the finished lines differ from those given now.
        """
        for batch in batches:
            unfinished = ~self._find_finished(batch.numbers, batch.digests)
            self.lines_seen = int(batch.numbers[-1]) + 1
            if self.total_lines is not None and self.lines_seen > self.total_lines:
                raise self._mismatch(f"The store holds {self.total_lines:,} lines and is finished; more were given.")
            if unfinished.all():
                yield batch
            elif unfinished.any():
                yield batch.filter(unfinished)
        if self.has_unmatched_ranges:
            raise self._mismatch(f"There are {self.lines_seen:,} lines; the store holds more.")

    def _find_finished(self, numbers: Ints, digests: Digests) -> Bools:
        """(n,) which of n consecutive lines are finished."""
        finished = np.zeros(len(numbers), dtype=np.bool_)
        low, high = int(numbers[0]), int(numbers[-1]) + 1
        while self.has_unmatched_ranges:
            part = self.ranges[self.position]
            if part.first >= high:
                break
            inside = slice(max(part.first, low) - low, min(part.stop, high) - low)
            finished[inside] = True
            self.digest = extend_digest(digests[inside], self.digest)
            if part.stop > high:
                break
            if self.digest != part.digest:
                raise self._mismatch(f"The lines {part.first:,} to {part.stop - 1:,} are not those of before.")
            self.position, self.digest = self.position + 1, 0
        return finished

    def _mismatch(self, problem: str) -> FileError:
        return FileError(problem, where=self.where, hint="Give the same lines in the same order, or another folder.")
