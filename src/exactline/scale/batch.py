"""Batches of lines that are swept together, and tasks: the batches that one worker computes and one shard holds.

The last bit of a value depends on which lines are swept together. A batch therefore always holds the same lines,
whichever worker computes it and whenever: this makes every backend give the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..arrays import Bools, Floats, Ints
from .checksums import Digests
from .failure import Failure

MAX_LENGTH = 1e100  # of one line in an estimate: longer ones, infinite ones too, count as this long


@dataclass(frozen=True, eq=False)
class LineBatch:
    """Lines by number; a line that cannot be used has a failure instead of end points."""

    numbers: Ints  # (n,) ascending
    digests: Digests  # (n,) a checksum of each line's end points
    starts: tuple[Floats, ...]  # (m, *in) each, of the m usable lines
    ends: tuple[Floats, ...]  # (m, *in) each
    failures: Mapping[int, Failure] = field(default_factory=dict[int, Failure])

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def usable(self) -> Ints:
        """(m,) numbers of the lines that have end points."""
        return self.numbers[~np.isin(self.numbers, list(self.failures))] if self.failures else self.numbers

    @property
    def bytes(self) -> int:
        """Bytes of the end points."""
        return 2 * sum(s.nbytes for s in self.starts)

    @property
    def length(self) -> float:
        """Sum of the lines' Euclidean lengths: longer lines have more breaks."""
        rows = len(self.usable)
        squares = np.zeros(rows)
        with np.errstate(over="ignore"):
            for a, b in zip(self.starts, self.ends, strict=True):
                squares += np.square((b - a).reshape(rows, -1)).sum(1)
            return float(np.minimum(np.sqrt(squares), MAX_LENGTH).sum())

    def filter(self, mask: Bools) -> LineBatch:  # mask is (n,)
        """The lines for which the mask is True."""
        usable = mask[np.isin(self.numbers, self.usable)]
        numbers = self.numbers[mask]
        chosen = set(numbers.tolist())
        failures = {number: failure for number, failure in self.failures.items() if number in chosen}
        starts, ends = (tuple(t[usable] for t in side) for side in (self.starts, self.ends))
        return LineBatch(numbers, self.digests[mask], starts, ends, failures)

    def select(self, numbers: Sequence[int] | Ints) -> LineBatch:
        """The lines with the given numbers."""
        return self.filter(np.isin(self.numbers, numbers))

    def split(self) -> list[LineBatch]:
        """Two batches of about equal size; a batch of one line stays as it is."""
        if len(self) < 2:
            return [self]
        first = np.arange(len(self)) < len(self) // 2
        return [self.filter(first), self.filter(~first)]


@dataclass(frozen=True, eq=False)
class WorkerTask:
    """Batches that one worker computes and one shard holds."""

    batches: tuple[LineBatch, ...]
    expected_seconds: float = 0.0
    attempt: int = 1
    deaths: int = 0  # of workers while they computed it
    is_last_attempt: bool = False  # then the lines that fail are recorded with their error
    avoid_worker: int = -1  # a worker that has failed with it

    @property
    def numbers(self) -> Ints:
        """Numbers of all lines, ascending."""
        return np.concatenate([b.numbers for b in self.batches])

    @property
    def digests(self) -> Digests:
        """Checksums of all lines."""
        return np.concatenate([b.digests for b in self.batches])

    @property
    def length(self) -> float:
        """Sum of the lengths of all lines."""
        return sum(b.length for b in self.batches)

    def __len__(self) -> int:
        return sum(len(b) for b in self.batches)

    def split(self) -> list[WorkerTask]:
        """Two tasks; batches stay whole where there are several."""
        middle = len(self.batches) // 2
        groups = [self.batches[:middle], self.batches[middle:]]
        if middle == 0:
            groups = [(half,) for batch in self.batches for half in batch.split()]
        return [replace(self, batches=g, expected_seconds=self.expected_seconds / len(groups)) for g in groups]


def consecutive_ranges(numbers: Ints) -> list[tuple[int, int]]:
    """Ascending numbers as ranges without a gap: the first number, and one past the last.

    >>> consecutive_ranges(np.array([0, 1, 2, 5, 6]))
    [(0, 3), (5, 7)]
    """
    if not len(numbers):
        return []
    gaps = np.flatnonzero(np.diff(numbers) != 1)
    firsts, lasts = np.append(0, gaps + 1), np.append(gaps, len(numbers) - 1)
    return [(int(numbers[a]), int(numbers[b]) + 1) for a, b in zip(firsts, lasts, strict=True)]
