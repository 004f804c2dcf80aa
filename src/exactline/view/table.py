"""Tables for the terminal: the pieces of a short line, and which node bore how many breaks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table
    from torch import Tensor

    from ..restriction import Restriction


def pieces_table(line: Restriction) -> Table:
    """One row for each piece: where it runs, the values at its ends, and the affine map on it."""
    from rich.table import Table

    table = Table(title="pieces", title_justify="left")
    for name in ("alpha", "values", "f(x) = A x + b"):
        table.add_column(name)
    for i in range(len(line)):
        matrix, offset = line.piece(i).affine()
        stretch = f"{line.alphas[i].item():.6g} to {line.alphas[i + 1].item():.6g}"
        ends = f"{_numbers(_row(line.values, i))} to {_numbers(_row(line.values, i + 1))}"
        table.add_row(stretch, ends, f"{_numbers(matrix)} x + {_numbers(offset)}")
    return table


def births_table(line: Restriction, *, most: int | None = None) -> Table:
    """One row for each node that bore breaks, with how many; the most fertile first, and at ``most`` so many rows."""
    from rich.table import Table
    from rich.text import Text  # names in files may hold brackets, which are markup elsewhere

    table = Table(title="breaks by node", title_justify="left")
    table.add_column("node")
    table.add_column("breaks", justify="right")
    counts = Counter(birth.node for birth in line.born if birth is not None).most_common()
    shown = counts if most is None or len(counts) <= most else counts[:most]
    for node, count in shown:
        table.add_row(Text(node), f"{count:,}")
    if rest := counts[len(shown) :]:
        table.add_row(f"{len(rest):,} more nodes", f"{sum(count for _, count in rest):,}")
    return table


def _row(values: Tensor | tuple[Tensor, ...], i: int) -> Tensor | tuple[Tensor, ...]:
    return tuple(v[i] for v in values) if isinstance(values, tuple) else values[i]


def _numbers(values: Tensor | tuple[Tensor, ...]) -> str:
    if not isinstance(values, tuple) and values.dim() == 0:
        return f"{round(values.item(), 12) + 0.0:.4g}"  # 0.0: no minus before a zero
    return "[" + ", ".join(_numbers(v) for v in values) + "]"
