"""Which node and unit gave rise to each break of a line, or to each edge of a plane."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from torch import Tensor


@dataclass(frozen=True)
class Origin:
    """What gave rise to a break."""

    node: str  # the first node in sweep order that crosses here
    unit: int  # its lowest flat index there
    count: int  # how many crossings share the break


@dataclass(frozen=True)
class Origins(Sequence["Origin | None"]):
    """The birth of every break; None at the ends of the line."""

    table: Tensor  # (breaks, 3) node or -1, unit, count
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, index: int) -> Origin | None: ...
    @overload
    def __getitem__(self, index: slice) -> Origins: ...
    def __getitem__(self, index: int | slice) -> Origin | Origins | None:
        if isinstance(index, slice):
            return Origins(self.table[index], self.names)
        node, unit, count = self.table[index].tolist()
        return None if node < 0 else Origin(self.names[node], unit, count)

    def __iter__(self) -> Iterator[Origin | None]:
        for node, unit, count in self.table.tolist():
            yield None if node < 0 else Origin(self.names[node], unit, count)
