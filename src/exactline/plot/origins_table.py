"""A table for the terminal: which node bore how many breaks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from ..humanize import count_noun

if TYPE_CHECKING:
    from rich.table import Table

    from ..results.restriction import Restriction


def births_table(line: Restriction, *, most: int | None = None) -> Table:
    """One row for each node that bore breaks, with how many; the most fertile first, and at ``most`` so many rows."""
    from rich.table import Table
    from rich.text import Text  # names in files may hold brackets, which are markup elsewhere

    table = Table(title="breaks by node", title_justify="left")
    table.add_column("node")
    table.add_column("breaks", justify="right")
    counts = Counter(birth.node for birth in line.origins if birth is not None).most_common()
    shown = counts if most is None or len(counts) <= most else counts[:most]
    for node, count in shown:
        table.add_row(Text(node), f"{count:,}")
    if rest := counts[len(shown) :]:
        table.add_row(count_noun(len(rest), "more node"), f"{sum(count for _, count in rest):,}")
    return table
