"""Lines on their way to a worker: blocks that are swept together, and batches of them that travel together.

A block is always the same lines, whoever computes it and whenever: values depend in their last bit on what is swept
together, so that this alone makes every engine give the same bits.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats, Ints
from .failure import Note

Digests = NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class Block:
    """Some lines by their numbers; those that cannot be used carry a note instead of ends."""

    numbers: Ints  # (n,) ascending
    digests: Digests  # (n,) a checksum of each line's ends
    starts: tuple[Floats, ...]  # (m, *in) each, of the lines without a note
    ends: tuple[Floats, ...]  # (m, *in) each
    bad: Mapping[int, Note] = field(default_factory=dict[int, Note])

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def good(self) -> Ints:
        """(m,) numbers of the lines that have ends."""
        return self.numbers[~np.isin(self.numbers, list(self.bad))] if self.bad else self.numbers

    @property
    def bytes(self) -> int:
        """What the ends take."""
        return 2 * sum(s.nbytes for s in self.starts)

    @property
    def length(self) -> float:
        """Euclidean lengths, summed over the lines: longer lines have more breaks."""
        rows = len(self.good)
        squares = np.zeros(rows)
        with np.errstate(over="ignore"):
            for a, b in zip(self.starts, self.ends, strict=True):
                squares += np.square((b - a).reshape(rows, -1)).sum(1)
            return float(np.minimum(np.sqrt(squares), 1e100).sum())

    def some(self, mask: NDArray[np.bool_]) -> Block:  # mask is (n,)
        """Only some of the lines."""
        good = mask[np.isin(self.numbers, self.good)]
        numbers = self.numbers[mask]
        kept = set(numbers.tolist())
        bad = {number: note for number, note in self.bad.items() if number in kept}
        starts, ends = (tuple(t[good] for t in side) for side in (self.starts, self.ends))
        return Block(numbers, self.digests[mask], starts, ends, bad)

    def only(self, numbers: Sequence[int] | Ints) -> Block:
        """The lines with these numbers."""
        return self.some(np.isin(self.numbers, numbers))

    def halves(self) -> list[Block]:
        """Two blocks of about the same size; one line stays as it is."""
        if len(self) < 2:
            return [self]
        first = np.arange(len(self)) < len(self) // 2
        return [self.some(first), self.some(~first)]


@dataclass(frozen=True, eq=False)
class Batch:
    """Blocks that one worker computes and one shard holds."""

    blocks: tuple[Block, ...]
    expected: float = 0.0  # seconds
    tries: int = 1  # the how manieth this is
    deaths: int = 0  # of workers that had it in hand
    last: bool = False  # whether lines that fail are now recorded with their error
    avoid: int = -1  # a worker that has failed with it

    @property
    def numbers(self) -> Ints:
        """Of all lines, ascending."""
        return np.concatenate([b.numbers for b in self.blocks])

    @property
    def digests(self) -> Digests:
        """Of all lines."""
        return np.concatenate([b.digests for b in self.blocks])

    @property
    def length(self) -> float:
        """Of all lines together."""
        return sum(b.length for b in self.blocks)

    def __len__(self) -> int:
        return sum(len(b) for b in self.blocks)

    def halves(self) -> list[Batch]:
        """Two batches, blocks kept whole where there are several."""
        middle = len(self.blocks) // 2
        groups = [self.blocks[:middle], self.blocks[middle:]]
        if middle == 0:
            groups = [(half,) for block in self.blocks for half in block.halves()]
        return [replace(self, blocks=g, expected=self.expected / len(groups)) for g in groups]


def digest(data: bytes | NDArray[np.uint32], before: int = 0) -> int:
    """A checksum that can go on from the one before it."""
    return zlib.crc32(np.ascontiguousarray(data).tobytes() if isinstance(data, np.ndarray) else data, before)


def row_digests(rows: Floats) -> Digests:  # rows is (n, k)
    """A checksum of each row, by its bits: a sum of products with odd numbers, its halves mixed before and after.

    >>> a = row_digests(np.array([[0.0, 1.0], [1.0, 0.0], [-0.0, 1.0], [0.0, 1.0]]))
    >>> bool(a[0] == a[3]), len(set(a.tolist()))
    (True, 3)
    """
    words = np.ascontiguousarray(rows, dtype=np.float64).view(np.uint64)
    odd = np.random.Generator(np.random.PCG64(7)).integers(0, 2**63, (2, words.shape[1]), np.uint64) * 2 + 1
    mixed = (words ^ (words >> np.uint64(32))) * odd[0]
    mixed ^= mixed >> np.uint64(29)
    total = (mixed * odd[1]).sum(1, dtype=np.uint64)
    return (total >> np.uint64(32)).astype(np.uint32)


def runs(numbers: Ints) -> list[tuple[int, int]]:
    """Ascending numbers as stretches without a gap, first and one past the last.

    >>> runs(np.array([0, 1, 2, 5, 6]))
    [(0, 3), (5, 7)]
    """
    if not len(numbers):
        return []
    cut = np.flatnonzero(np.diff(numbers) != 1)
    firsts, lasts = np.append(0, cut + 1), np.append(cut, len(numbers) - 1)
    return [(int(numbers[a]), int(numbers[b]) + 1) for a, b in zip(firsts, lasts, strict=True)]
