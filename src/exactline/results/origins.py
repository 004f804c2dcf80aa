"""Origins: the node and the unit that gave rise to each break of a line, or to each edge of a plane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from torch import Tensor


@dataclass(frozen=True)
class Origin:
    """The node and the unit that gave rise to a break."""

    node: str  # the first node, in the order of the sweep, that has a crossing at the break
    unit: int  # the lowest flat index of a unit that crosses there
    count: int  # number of crossings that share the break


@dataclass(frozen=True)
class Origins(Sequence["Origin | None"]):
    """The origins of all breaks or edges; None at the ends of a line and on the outline of a plane."""

    rows: Tensor  # (breaks, 3) node or -1, unit, count
    names: tuple[str, ...]  # names of the network's nodes

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> Origin | None: ...
    @overload
    def __getitem__(self, index: slice) -> Origins: ...
    def __getitem__(self, index: int | slice) -> Origin | Origins | None:
        if isinstance(index, slice):
            return Origins(self.rows[index], self.names)
        return self._origin(*self.rows[index].tolist())

    def __iter__(self) -> Iterator[Origin | None]:
        return (self._origin(node, unit, count) for node, unit, count in self.rows.tolist())

    def _origin(self, node: int, unit: int, count: int) -> Origin | None:
        return None if node < 0 else Origin(self.names[node], unit, count)
