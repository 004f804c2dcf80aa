"""The corner table of a mesh: where each corner is, and which separator created it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...arrays import Floats, Ints
from .growable import GrowableArray

_NODE, _SEPARATOR, _DIFFERENCE, _REFINED = range(4)
_SLOPE, _ERROR = range(2)


class CornerArrays(NamedTuple):
    """The columns of a corner table."""

    weights: Floats  # (corners, k)
    integers: Ints  # (corners, 4) node, separator, difference, is_refined
    reals: Floats  # (corners, 2) slope, error


class CornerTable:
    """Corners as convex combinations of the vertices of the given polygon; rows can be appended."""

    def __init__(self, weights: GrowableArray, integers: GrowableArray, reals: GrowableArray) -> None:
        self._weights, self._integers, self._reals = weights, integers, reals

    def __len__(self) -> int:
        return len(self._weights)

    @property
    def weights(self) -> Floats:
        """(corners, k) convex weights of the k vertices."""
        return self._weights.array

    @property
    def node(self) -> Any:
        """(corners,) the node whose separator created the corner, -1 for a vertex."""
        return self._integers.array[:, _NODE]

    @property
    def separator(self) -> Any:
        """(corners,) index of the separator at that node."""
        return self._integers.array[:, _SEPARATOR]

    @property
    def difference(self) -> Any:
        """(corners,) index of the separator's difference that is zero here."""
        return self._integers.array[:, _DIFFERENCE]

    @property
    def is_refined(self) -> Any:
        """(corners,) 1 where `error` was estimated for this corner, 0 where it is the filter's upper bound."""
        return self._integers.array[:, _REFINED]

    @property
    def slope(self) -> Any:
        """(corners,) absolute slope of that difference, per distance in weights."""
        return self._reals.array[:, _SLOPE]

    @property
    def error(self) -> Any:
        """(corners,) error of the corner's position, as a distance in weights."""
        return self._reals.array[:, _ERROR]

    def append(
        self,
        weights: Floats,  # (n, k)
        *,
        node: int,
        separator: int,
        difference: Ints,  # (n,)
        slope: Floats,  # (n,)
        error: Floats,  # (n,)
    ) -> None:
        """Append corners that one separator created."""
        integers = np.zeros((len(weights), 4), dtype=np.int64)
        integers[:, _NODE], integers[:, _SEPARATOR], integers[:, _DIFFERENCE] = node, separator, difference
        self._weights.append(weights)
        self._integers.append(integers)
        self._reals.append(np.stack([slope, error], 1))

    def extend(self, count: int) -> int:
        """Append corners that the caller will write, and return the number of the first of them."""
        self._integers.extend(count)
        self._reals.extend(count)
        return self._weights.extend(count)

    @property
    def arrays(self) -> CornerArrays:
        """All columns."""
        return CornerArrays(self._weights.array, self._integers.array, self._reals.array)

    def select(self, corners: Ints) -> CornerTable:
        """A table of some corners."""
        return CornerTable(*(GrowableArray(a.array[corners]) for a in (self._weights, self._integers, self._reals)))

    @staticmethod
    def of_vertices(weights: Floats, *, refined: bool = False) -> CornerTable:  # (corners, k)
        """A table of corners that no separator created."""
        integers = np.zeros((len(weights), 4), dtype=np.int64)
        integers[:, _NODE], integers[:, _REFINED] = -1, refined
        reals = np.zeros((len(weights), 2))
        return CornerTable(GrowableArray(weights), GrowableArray(integers), GrowableArray(reals))
