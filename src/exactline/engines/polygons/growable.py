"""Arrays that grow at their end, and index arithmetic on consecutive ranges of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import Ints

Signs = NDArray[np.int8]
MIN_CAPACITY = 64  # rows


class GrowableArray:
    """An array to which rows are appended in amortized constant time."""

    def __init__(self, rows: NDArray[Any]) -> None:
        self._storage, self._size = np.ascontiguousarray(rows), len(rows)

    @property
    def array(self) -> Any:
        """The rows as a view that can be written through; the next append may invalidate it."""
        return self._storage[: self._size]

    def __len__(self) -> int:
        return self._size

    def append(self, rows: Any) -> int:
        """Append rows and return the index of the first of them."""
        first = self.extend(len(rows))
        self._storage[first : self._size] = rows
        return first

    def extend(self, count: int) -> int:
        """Append rows that the caller will write, and return the index of the first of them."""
        first, size = self._size, self._size + count
        if size > len(self._storage):
            capacity = max(size, 2 * len(self._storage), MIN_CAPACITY)
            grown = np.empty((capacity, *self._storage.shape[1:]), self._storage.dtype)
            grown[:first] = self._storage[:first]
            self._storage = grown
        self._size = size
        return first

    def truncate(self, size: int) -> None:
        """Remove the rows after the first ``size``."""
        self._size = size


def expand_ranges(first: Ints, count: Ints) -> Ints:
    """Concatenate the ranges ``first[i]`` to ``first[i] + count[i]``.

    >>> expand_ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = count.cumsum()
    return np.arange(int(ends[-1]) if len(ends) else 0) + (first - ends + count).repeat(count)


def count_within(count: Ints) -> Ints:
    """Number the elements of adjacent ranges of some lengths, from 0 in each range.

    >>> count_within(np.array([2, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    ends = count.cumsum()
    return np.arange(int(ends[-1]) if len(ends) else 0) - (ends - count).repeat(count)


def connected_components(count: int, one: Ints, two: Ints) -> Ints:
    """Label the vertices of a graph by the lowest vertex of their connected component, (count,).

    Args:
        count: Number of vertices.
        one: (edges,) one end of every edge.
        two: (edges,) the other end.

    >>> connected_components(5, np.array([0, 3]), np.array([4, 4])).tolist()
    [0, 1, 2, 0, 0]
    """
    label = np.arange(count)
    while True:
        lower = np.minimum(label[one], label[two])
        before = label.copy()
        np.minimum.at(label, label[one], lower)
        np.minimum.at(label, label[two], lower)
        label = label[label]
        label = label[label]
        if (label == before).all():
            return label
