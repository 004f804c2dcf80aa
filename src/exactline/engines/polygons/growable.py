"""Arrays that grow at their end, and stretches of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...arrays import Ints

Signs = NDArray[np.int8]
Mask = NDArray[np.bool_]


class GrowableArray:
    """An array whose rows are added in bunches, at a cost that does not grow with those that are there."""

    def __init__(self, held: NDArray[Any]) -> None:
        self._held, self._size = held, len(held)

    @property
    def all(self) -> Any:
        """The rows so far; written through until the next rows are added."""
        return self._held[: self._size]

    def __len__(self) -> int:
        return self._size

    def add(self, rows: Any) -> int:
        """Put rows at the end; the number of the first of them."""
        first, need = self._size, self._size + len(rows)
        if need > len(self._held):
            grown = np.empty((max(need, 2 * len(self._held), 64), *self._held.shape[1:]), self._held.dtype)
            grown[:first] = self._held[:first]
            self._held = grown
        self._held[first:need] = rows
        self._size = need
        return first


def expand_ranges(first: Ints, count: Ints) -> Ints:
    """All places of some stretches, one stretch after another.

    >>> expand_ranges(np.array([5, 0]), np.array([2, 3])).tolist()
    [5, 6, 0, 1, 2]
    """
    ends = count.cumsum()
    return np.arange(int(ends[-1]) if len(ends) else 0) + (first - ends + count).repeat(count)


def count_within(count: Ints) -> Ints:
    """The place of each element in its stretch.

    >>> count_within(np.array([2, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    ends = count.cumsum()
    return np.arange(int(ends[-1]) if len(ends) else 0) - (ends - count).repeat(count)


def connected_components(count: int, one: Ints, two: Ints) -> Ints:
    """Which of ``count`` things hang together, given pairs of neighbours: the lowest number of each company, (count,).

    >>> connected_components(5, np.array([0, 3]), np.array([4, 4])).tolist()
    [0, 1, 2, 0, 0]
    """
    label = np.arange(count)
    while True:
        low = np.minimum(label[one], label[two])
        before = label.copy()
        np.minimum.at(label, label[one], low)
        np.minimum.at(label, label[two], low)
        label = label[label]
        label = label[label]
        if (label == before).all():
            return label
