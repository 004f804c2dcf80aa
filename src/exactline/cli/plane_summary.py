"""What ``exactline plane`` says of a plane: one JSON document, or a few lines and two tables."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from ..humanize import count_noun

if TYPE_CHECKING:
    from rich.table import Table

    from ..decide.regions import Regions
    from ..results.plane import PlaneRestriction

ROWS = 20  # of each table


def _births(made: PlaneRestriction) -> dict[str, int]:
    """How many edges each node bore, in the network's order."""
    import numpy as np

    nodes, tally = np.unique(made.origin_table.numpy()[:, 0], return_counts=True)
    return {made.names[n]: k for n, k in zip(nodes.tolist(), tally.tolist(), strict=True) if n >= 0}


def _finite(area: float) -> float | None:
    """An area for JSON, which knows no infinity: none where a plane is too large to have one."""
    return area if isfinite(area) else None


def _classes(decided: Regions, names: list[str] | None) -> list[dict[str, Any]]:
    """The largest first."""
    totals, shares = decided.totals, sorted(decided.shares.items(), key=lambda item: -item[1])
    return [
        {
            "label": label,
            "name": str(label) if names is None else names[label],
            "area": _finite(totals[label]),
            "share": share,
            "regions": sum(r.label == label for r in decided),
            "tied_area": _finite(sum(r.area for r in decided if r.label == label and r.tied)),
            "tied_share": sum(r.share for r in decided if r.label == label and r.tied),
        }
        for label, share in shares
    ]


def document(file: str, made: PlaneRestriction, decided: Regions | None, names: list[str] | None) -> dict[str, Any]:
    """What ``--json`` prints."""
    smallest = int(made.shares.argmin())
    return {
        "file": file,
        "pieces": len(made),
        "corners": len(made.corners),
        "edges": len(made.edges),
        "area": _finite(made.area),
        "outline": made.outline.tolist(),
        "order": None if decided is None else decided.order,
        "classes": None if decided is None else _classes(decided, names),
        "smallest": {
            "polygon": smallest,
            "area": _finite(float(made.areas[smallest])),
            "corners": made.polygon(smallest).corners.tolist(),
        },
        "origins": _births(made),
        "units": made.units,
        "ambiguous": made.ambiguous,
        "seconds": made.seconds,
    }


def report(made: PlaneRestriction, decided: Regions | None, names: list[str] | None) -> list[Any]:
    """Lines and tables for the terminal."""
    smallest = int(made.shares.argmin())
    rows: list[Any] = [
        str(made),
        f"  area           {made.area:.10g}",
        f"  largest piece  {float(made.areas.max()):.6g}",
        f"  smallest piece {float(made.areas[smallest]):.6g} (polygon {smallest:,})",
    ]
    if decided is not None:
        rows.append(_class_table(_classes(decided, names), decided))
    births = _births(made)
    return [*rows, _birth_table(births)] if births else rows


def _class_table(classes: list[dict[str, Any]], decided: Regions) -> Table:
    from rich.table import Table
    from rich.text import Text

    from ..plot.plane import percent

    which = "largest" if decided.order == "max" else "smallest"
    table = Table(title=f"where which output is the {which}", title_justify="left")
    for name in ("output", "area", "share", "regions"):
        table.add_column(name, justify="left" if name == "output" else "right")
    for row in classes[:ROWS]:
        tied = "" if not row["tied_share"] else f" ({percent(row['tied_share'] / row['share'])} of it tied)"
        area = "infinite" if row["area"] is None else f"{row['area']:.6g}"
        table.add_row(Text(f"{row['name']}{tied}"), area, percent(row["share"]), f"{row['regions']:,}")
    if rest := classes[ROWS:]:
        table.add_row(f"{len(rest):,} more", "", percent(sum(row["share"] for row in rest)), "")
    return table


def _birth_table(births: dict[str, int]) -> Table:
    from rich.table import Table
    from rich.text import Text  # names in files may hold brackets, which are markup elsewhere

    table = Table(title="edges by node", title_justify="left")
    table.add_column("node")
    table.add_column("edges", justify="right")
    shown = list(births.items())[:ROWS]
    for node, count in shown:
        table.add_row(Text(node), f"{count:,}")
    if rest := list(births.values())[ROWS:]:
        table.add_row(count_noun(len(rest), "more node"), f"{sum(rest):,}")
    return table
