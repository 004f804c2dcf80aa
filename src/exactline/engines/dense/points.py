"""The point table of a sweep: the line and alpha of each point, and the crossing it originates from.

The integer columns are stored in one matrix, so that selecting rows takes two operations instead of six. Compiled loops
use the column numbers below; all other code uses the named properties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...arrays import Floats, Ints

LINE, AMBIGUOUS, NODE, UNIT, COUNT = range(5)


@dataclass(frozen=True, eq=False)
class PointTable:
    """Points in order of line and alpha: NumPy arrays on the host, or tensors on a device.

    Tables on a device are never modified, so several states can share one.
    """

    integers: Any  # (n, 5) int64
    alpha: Any  # (n,) float64, position on the line

    def __len__(self) -> int:
        return len(self.alpha)

    @property
    def is_on_device(self) -> bool:
        """Whether the columns are tensors."""
        return isinstance(self.integers, Tensor) or isinstance(self.alpha, Tensor)

    @property
    def line(self) -> Any:
        """(n,) index of the line."""
        return self.integers[:, LINE]

    @property
    def ambiguous(self) -> Any:
        """(n,) 1 if units may be ambiguous on the piece that starts at the point, else 0."""
        return self.integers[:, AMBIGUOUS]

    @property
    def origins(self) -> Any:
        """(n, 3) node or -1, lowest unit, number of crossings."""
        return self.integers[:, NODE : COUNT + 1]

    @property
    def node(self) -> Any:
        """(n,) the node whose crossing created the point, -1 at the ends of a line."""
        return self.integers[:, NODE]

    @property
    def unit(self) -> Any:
        """(n,) the lowest unit of that node that crosses here."""
        return self.integers[:, UNIT]

    @property
    def count(self) -> Any:
        """(n,) number of crossings that share the point."""
        return self.integers[:, COUNT]

    def copy(self) -> PointTable:
        """An independent copy; a table on a device is shared instead."""
        return self if self.is_on_device else PointTable(self.integers.copy(), self.alpha.copy())

    def rows(self, start: int, stop: int) -> PointTable:
        """A copy of the points ``start`` to ``stop``."""
        return PointTable(self.integers[start:stop].copy(), self.alpha[start:stop].copy())

    def to_host(self) -> PointTable:
        """A copy as NumPy arrays."""
        columns = (t if isinstance(t, Tensor) else torch.from_numpy(t) for t in (self.integers, self.alpha))
        return PointTable(*(t.to("cpu", copy=True).numpy() for t in columns))

    def to_tensors(self, device: torch.device) -> PointTable:
        """The table as tensors on a device; on the CPU they share memory with the arrays."""
        columns = (a if isinstance(a, Tensor) else to_device(device, a) for a in (self.integers, self.alpha))
        return PointTable(*columns)

    @staticmethod
    def empty(count: int) -> PointTable:
        """An uninitialized table."""
        return PointTable(np.empty((count, 5), dtype=np.int64), np.empty(count))

    @staticmethod
    def without_origins(line: Ints, alphas: Floats) -> PointTable:
        """Points without a crossing: the ends of lines and segments."""
        table = PointTable(np.zeros((len(line), 5), dtype=np.int64), np.array(alphas, dtype=np.float64))
        table.line[:], table.node[:] = line, -1
        return table


def to_device(device: torch.device, array: Any) -> Tensor:
    """A NumPy array as a tensor; shares memory on the CPU, copies asynchronously to a GPU."""
    return torch.from_numpy(array).to(device, non_blocking=device.type == "cuda")


def stack_columns(columns: Sequence[Tensor]) -> Tensor:
    """Stack columns (n,) into a matrix (n, columns)."""
    return torch.stack(list(columns), 1)
