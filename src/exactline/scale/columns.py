"""Columns of a shard: answers for many lines as plain arrays.

A name begins with what a row stands for: ``line/start.0`` has one row for each line, ``break/alpha`` one for each
break, and ``line/count.break`` says how many breaks each line has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

Columns: TypeAlias = dict[str, Tensor]
INTEGER_DTYPES = (torch.int8, torch.int16, torch.int32)
COUNT_PREFIX = "line/count."


def concatenate(parts: Sequence[Columns]) -> Columns:
    """Join columns row by row, one part after another."""
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]} if parts else {}


def select_line(columns: Columns, offsets: dict[str, Tensor], row: int) -> Columns:
    """The part of the columns that belongs to one line."""
    selected: Columns = {}
    for name, column in columns.items():
        group = name.partition("/")[0]
        if group == "line":
            selected[name] = column[row]
        else:
            first, last = offsets[group][row : row + 2].tolist()
            selected[name] = column[first:last]
    return selected


def row_offsets(columns: Columns) -> dict[str, Tensor]:
    """For breaks, intervals and bytes: the row (lines + 1,) at which each line begins."""
    offsets: dict[str, Tensor] = {}
    for name, column in columns.items():
        if name.startswith(COUNT_PREFIX):
            start = torch.zeros(1, dtype=torch.int64)
            offsets[name.removeprefix(COUNT_PREFIX)] = torch.cat([start, column.long().cumsum(0)])
    return offsets


def narrow_dtype(column: Tensor) -> Tensor:
    """The same numbers in the smallest type that holds them without loss.

    >>> narrow_dtype(torch.tensor([3, 200])).dtype, narrow_dtype(torch.tensor([0.5, 0.1], dtype=torch.float64)).dtype
    (torch.int16, torch.float64)
    """
    if not column.numel():
        return column
    if column.dtype == torch.int64:
        low, high = (int(v) for v in torch.aminmax(column))
        for dtype in INTEGER_DTYPES:
            if torch.iinfo(dtype).min <= low and high <= torch.iinfo(dtype).max:
                return column.to(dtype)
    elif column.dtype == torch.float64:
        short = column.float()
        if torch.equal(short.double(), column) and not bool(((column == 0) & column.signbit()).any()):
            return short
    return column
