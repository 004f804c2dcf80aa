"""Answers for many lines as plain arrays: rows for each line, and rows for each break or interval of a line.

A name says what a row is of: ``line/start.0`` has one row for each line, ``break/alpha`` one for each break, and
``line/count.break`` says how many of those each line has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor

Columns: TypeAlias = dict[str, Tensor]
WHOLE = (torch.int8, torch.int16, torch.int32)


def joined(parts: Sequence[Columns]) -> Columns:
    """The same columns, one part's rows after another's."""
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]} if parts else {}


def row_of(columns: Columns, offsets: dict[str, Tensor], row: int) -> Columns:
    """What the columns say of one line."""
    found: Columns = {}
    for name, column in columns.items():
        group = name.partition("/")[0]
        if group == "line":
            found[name] = column[row]
        else:
            first, last = offsets[group][row : row + 2].tolist()
            found[name] = column[first:last]
    return found


def offsets_of(columns: Columns) -> dict[str, Tensor]:
    """For each kind of row that a line has several of, where those of each line begin."""
    found: dict[str, Tensor] = {}
    for name, column in columns.items():
        if name.startswith("line/count."):
            start = torch.zeros(1, dtype=torch.int64)
            found[name.removeprefix("line/count.")] = torch.cat([start, column.long().cumsum(0)])
    return found


def narrowed(column: Tensor) -> Tensor:
    """The same numbers in fewer bytes where nothing is lost.

    >>> narrowed(torch.tensor([3, 200])).dtype, narrowed(torch.tensor([0.5, 0.1], dtype=torch.float64)).dtype
    (torch.int16, torch.float64)
    """
    if not column.numel():
        return column
    if column.dtype == torch.int64:
        low, high = (int(v) for v in torch.aminmax(column))
        for kind in WHOLE:
            if torch.iinfo(kind).min <= low and high <= torch.iinfo(kind).max:
                return column.to(kind)
    elif column.dtype == torch.float64:
        short = column.float()
        if torch.equal(short.double(), column) and not bool(((column == 0) & column.signbit()).any()):
            return short
    return column
