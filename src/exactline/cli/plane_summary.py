"""What ``exactline plane`` prints: one JSON document, or a few lines and two tables."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from ..humanize import count_noun, format_seconds

if TYPE_CHECKING:
    from rich.table import Table

    from ..decide.regions import Regions
    from ..results.plane import PlaneRestriction

MAX_TABLE_ROWS = 20


def build_document(
    file: str, plane: PlaneRestriction, regions: Regions | None, names: list[str] | None
) -> dict[str, Any]:
    """Build the JSON document.

    Args:
        file: The name of the network's file.
        plane: The plane.
        regions: Its decisions; None if there are no values or several outputs.
        names: Names of the outputs; None for their numbers.
    """
    smallest = int(plane.shares.argmin())
    return {
        "file": file,
        "pieces": len(plane),
        "corners": len(plane.corners),
        "edges": len(plane.edges),
        "area": _finite_or_none(plane.area),
        "outline": plane.outline.tolist(),
        "order": None if regions is None else regions.order,
        "threshold": None if regions is None else regions.comparison.threshold,
        "classes": None if regions is None else _summarize_classes(regions, names),
        "smallest": {
            "polygon": smallest,
            "area": _finite_or_none(float(plane.areas[smallest])),
            "corners": plane.polygon(smallest).corners.tolist(),
        },
        "origins": _count_edges_by_node(plane),
        "units": plane.units,
        "ambiguous": plane.ambiguous,
        "seconds": plane.seconds,
        "setup_seconds": plane.setup_seconds,
    }


def build_report(plane: PlaneRestriction, regions: Regions | None, names: list[str] | None) -> list[Any]:
    """Build the lines and tables for the terminal, from the same arguments as `build_document`."""
    smallest = int(plane.shares.argmin())
    parts: list[Any] = [
        str(plane),
        f"  set-up           {format_seconds(plane.setup_seconds)}",
        f"  area             {plane.area:.10g}",
        f"  largest polygon  {float(plane.areas.max()):.6g}",
        f"  smallest polygon {float(plane.areas[smallest]):.6g} (polygon {smallest:,})",
    ]
    if regions is not None:
        parts.append(_build_class_table(_summarize_classes(regions, names), regions))
    origins = _count_edges_by_node(plane)
    return [*parts, _build_origin_table(origins)] if origins else parts


def _count_edges_by_node(plane: PlaneRestriction) -> dict[str, int]:
    """Count the edges that originate in each node, in the order of the network."""
    import numpy as np

    nodes, counts = np.unique(plane.origin_table.numpy()[:, 0], return_counts=True)
    return {plane.names[n]: k for n, k in zip(nodes.tolist(), counts.tolist(), strict=True) if n >= 0}


def _finite_or_none(area: float) -> float | None:
    """Return None for an area that overflows, because JSON has no infinity."""
    return area if isfinite(area) else None


def _summarize_classes(regions: Regions, names: list[str] | None) -> list[dict[str, Any]]:
    """Summarize the classes, the largest first."""
    totals, shares = regions.totals, sorted(regions.shares.items(), key=lambda item: -item[1])
    return [
        {
            "label": label,
            "name": str(label) if names is None else names[label],
            "area": _finite_or_none(totals[label]),
            "share": share,
            "regions": sum(r.label == label for r in regions),
            "tied_area": _finite_or_none(sum(r.area for r in regions if r.label == label and r.tied)),
            "tied_share": sum(r.share for r in regions if r.label == label and r.tied),
        }
        for label, share in shares
    ]


def _build_class_table(classes: list[dict[str, Any]], regions: Regions) -> Table:
    from rich.table import Table
    from rich.text import Text

    from ..plot.style import format_share

    which = "largest" if regions.order == "max" else "smallest"
    is_whole = regions.comparison.is_whole
    title = f"where which output is the {which}" if is_whole else regions.describe()
    table = Table(title=title, title_justify="left")
    for name in ("output" if is_whole else "class", "area", "share", "regions"):
        table.add_column(name, justify="right" if name in ("area", "share", "regions") else "left")
    for row in classes[:MAX_TABLE_ROWS]:
        tied = "" if not row["tied_share"] else f" ({format_share(row['tied_share'] / row['share'])} of it tied)"
        area = "infinite" if row["area"] is None else f"{row['area']:.6g}"
        table.add_row(Text(f"{row['name']}{tied}"), area, format_share(row["share"]), f"{row['regions']:,}")
    if rest := classes[MAX_TABLE_ROWS:]:
        table.add_row(f"{len(rest):,} more", "", format_share(sum(row["share"] for row in rest)), "")
    return table


def _build_origin_table(origins: dict[str, int]) -> Table:
    from rich.table import Table
    from rich.text import Text  # brackets in names are not markup

    table = Table(title="edges by node", title_justify="left")
    table.add_column("node")
    table.add_column("edges", justify="right")
    for node, count in list(origins.items())[:MAX_TABLE_ROWS]:
        table.add_row(Text(node), f"{count:,}")
    if rest := list(origins.values())[MAX_TABLE_ROWS:]:
        table.add_row(count_noun(len(rest), "more node"), f"{sum(rest):,}")
    return table
