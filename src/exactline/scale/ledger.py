"""Which lines of a store are finished, and whether lines that are given again are the same ones."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..arrays import Ints
from ..errors import FileError
from .batch import Block, Digests, digest
from .index import Index


class Done:
    """Walks through all lines in order, lets the finished ones pass and compares their digests."""

    def __init__(self, index: Index, where: str) -> None:
        found = sorted(run for record in index.records.values() for run in record.runs)
        self.runs = np.array(found, dtype=np.int64).reshape(-1, 3)  # first, one past the last, digest
        self.where = where
        self.at = 0  # the run we are in or before
        self.so_far = 0  # the digest of the part of it that was seen
        self.seen = 0  # lines seen
        self.total = index.total

    @property
    def lines(self) -> int:
        """How many are finished."""
        return int((self.runs[:, 1] - self.runs[:, 0]).sum())

    def rest(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """What is still to do of each block.

        Raises FileError where finished lines were other lines than those given now.
        """
        for block in blocks:
            todo = ~self._passed(block.numbers, block.digests)
            self.seen = int(block.numbers[-1]) + 1
            if self.total is not None and self.seen > self.total:
                raise self._other(f"The store holds {self.total:,} lines and is finished; more were given.")
            if todo.all():
                yield block
            elif todo.any():
                yield block.some(todo)
        if self.at < len(self.runs):
            raise self._other(f"There are {self.seen:,} lines; the store holds more.")

    def _passed(self, numbers: Ints, digests: Digests) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """(n,) which of these consecutive lines are finished."""
        passed = np.zeros(len(numbers), dtype=np.bool_)
        low, high = int(numbers[0]), int(numbers[-1]) + 1
        while self.at < len(self.runs):
            first, stop, wanted = self.runs[self.at].tolist()
            if first >= high:
                break
            inside = slice(max(first, low) - low, min(stop, high) - low)
            passed[inside] = True
            self.so_far = digest(digests[inside], self.so_far)
            if stop > high:
                break
            if self.so_far != wanted:
                raise self._other(f"The lines {first:,} to {stop - 1:,} are not those of before.")
            self.at, self.so_far = self.at + 1, 0
        return passed

    def _other(self, problem: str) -> FileError:
        return FileError(problem, where=self.where, hint="Give the same lines in the same order, or another folder.")
