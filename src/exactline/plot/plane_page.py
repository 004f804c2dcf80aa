"""A plane as one self-contained web page: move, zoom, and read what is under the pointer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ExactlineError
from .page import encode_array, list_nodes, mix_colours, write_page
from .plane import INK, TINTS
from .plane_style import (
    CLASS_COLOURS,
    check_colors,
    check_plane_style,
    locate_points,
    vertical_stretch,
)
from .style import check_labels, format_share

if TYPE_CHECKING:
    from ..decide.regions import Region, Regions
    from ..results.plane import PlaneRestriction

DARK_TINTS = ("#20232A", "#2A2522", "#202823", "#2A2820", "#28222A", "#242424")  # of polygons on a dark page
SCRIPTS = ("plane", "plane_chart", "plane_controls")
HATCH_COUNT, TIE_HATCH = 8, 6  # patterns in page.js, and the number of the one for ties


def write_plane_page(
    plane: PlaneRestriction,
    path: str | Path,
    *,
    style: str = "regions",
    order: str = "max",
    labels: Sequence[str] | None = None,
    colors: Sequence[str] | None = None,
    points: Any = None,
    title: str = "plane",
    regions: Regions | None = None,
    threshold: float | None = None,
) -> Path:
    """Write the page, whole or not at all.

    The arguments are those of `plot_plane`, and the title. Where the values were not kept the page has no classes,
    unless ``style="decisions"`` asks for them.

    Raises ArgumentError for arguments that do not fit, FileError where the file cannot be written.
    """
    check_plane_style(style)
    if regions is None:
        regions = _find_regions(plane, style, order, threshold)
    data = _encode_plane(plane) | {
        "decisions": None if regions is None else _encode_decisions(plane, regions, labels, colors),
        "style": style,
        "title": title,
        "points": [{"name": name, "at": at} for name, at in locate_points(plane, points).items()],
    }
    return write_page(path, data, title, SCRIPTS)


def _find_regions(plane: PlaneRestriction, style: str, order: str, threshold: float | None) -> Regions | None:
    if style == "decisions" or threshold is not None:
        return plane.decisions(order, threshold=threshold)
    try:
        return None if plane.stored_values is None else plane.decisions(order)
    except ExactlineError:  # several outputs, one without a threshold, or no network: the page has no classes
        return None


def _encode_plane(plane: PlaneRestriction) -> dict[str, Any]:
    low, high = plane.outline.min(0).values.tolist(), plane.outline.max(0).values.tolist()
    return {
        "facts": str(plane),
        "box": [*low, *high],
        "stretch": vertical_stretch(plane),
        "corners": encode_array(plane.corners.numpy()),
        "areas": encode_array(plane.areas.numpy()),
        "offsets": encode_array(plane.offsets.numpy()),
        "rings": encode_array(plane.rings.numpy()),
        "edges": encode_array(plane.edges.numpy()),
        "sides": encode_array(plane.sides.numpy()),
        "origins": encode_array(plane.origin_table.numpy()),
        "names": list(plane.names),
        "nodes": list_nodes(plane.origin_table[:, 0].numpy(), plane.names),
        "light": list(TINTS),
        "dark": list(DARK_TINTS),
    }


def _encode_decisions(
    plane: PlaneRestriction, regions: Regions, labels: Sequence[str] | None, colors: Sequence[str] | None
) -> dict[str, Any]:
    count = regions.comparison.class_count
    names = check_labels(labels, count)
    colors = check_colors(colors, count)
    rings = [ring.numpy() for region in regions for ring in region.rings]
    spans = pairwise(np.cumsum([0, *map(len, rings)]).tolist())  # of each ring in the array of all corners
    groups: dict[tuple[tuple[int, ...], str, str], list[Region]] = {}
    for r in regions:
        groups.setdefault(((r.label, *r.tied), _format_name(r, names), _choose_colour(r, colors)), []).append(r)
    which = "the largest output" if regions.order == "max" else "the smallest output"
    rule = which if regions.comparison.is_whole else regions.describe()
    return {
        "title": f"classes: {rule}",
        "rings": encode_array(np.concatenate(rings)),
        "boundaries": encode_array(regions.boundaries.numpy()),
        "regions": [
            {
                "name": _format_name(region, names),
                "color": _choose_colour(region, colors),
                "hatch": _choose_hatch(region),
                "area": _encode_area(region.area),
                "box": [*region.rings[0].min(0).values.tolist(), *region.rings[0].max(0).values.tolist()],
                "rings": [next(spans) for _ in region.rings],
            }
            for region in regions
        ],
        "classes": [
            {
                "name": name,
                "color": colour,
                "hatch": _choose_hatch(members[0]),
                "area": _encode_area(sum(r.area for r in members)),
                "share": format_share(sum(r.share for r in members)),
            }
            for (_, name, colour), members in sorted(groups.items(), key=lambda item: item[0])
        ],
    }


def _encode_area(area: float) -> float | str:
    """An area as JSON can hold it, which has no infinity."""
    return area if isfinite(area) else "infinite"


def _format_name(region: Region, names: Sequence[str]) -> str:
    return " = ".join(names[i] for i in region.tied) if region.tied else names[region.label]


def _choose_hatch(region: Region) -> int:
    """The pattern of a class, which tells it from others of a similar colour."""
    return TIE_HATCH if region.tied else region.label % HATCH_COUNT


def _choose_colour(region: Region, colors: Sequence[str] | None) -> str:
    """The colour of a class, darker where the colours are used up; that of a tie is between those of its classes."""
    if colors is not None:
        return colors[region.label]
    one, two = (
        mix_colours(CLASS_COLOURS[i % len(CLASS_COLOURS)], INK, min(0.25 * (i // len(CLASS_COLOURS)), 0.75))
        for i in (region.tied[:2] or (region.label, region.label))
    )
    return mix_colours(one, two, 0.5)
