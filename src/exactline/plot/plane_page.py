"""A plane as one self-contained web page: move, zoom, and read what is under the pointer. Nothing is fetched."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, ExactlineError
from . import page as report_frame
from .band import checked_names
from .page import bearers, mixed, packed
from .plane import INK, STYLES, TINTS
from .plane_style import FILLS, checked_colors, marked, outputs_of, percent, stretch

if TYPE_CHECKING:
    from ..decide.regions import Region, Regions
    from ..results.plane import PlaneRestriction

SHADES = ("#20232A", "#2A2522", "#202823", "#2A2820", "#28222A", "#242424")  # of polygons on a dark page
PARTS = ("report_plane", "report_plane_draw", "report_plane_ask")
PATTERNS, TIE = 8, 6  # that a page knows, and the one for ties


def write_page(
    plane: PlaneRestriction,
    path: str | Path,
    *,
    style: str = "regions",
    order: str = "max",
    labels: Sequence[str] | None = None,
    colors: Sequence[str] | None = None,
    points: Any = None,
    title: str = "plane",
    decided: Regions | None = None,
) -> Path:
    """Write the page, whole or not at all; the options are those of ``plot_plane``.

    Where the values were not kept the page has no classes, unless style ``decisions`` asks for them.

    Raises ArgumentError for options that do not fit, FileError where the file cannot be written.
    """
    if style not in STYLES:
        raise ArgumentError(
            f"There is no style {style!r}.", where="argument style", hint="Give 'regions' or 'decisions'."
        )
    if decided is None:
        decided = _decided(plane, style, order)
    data = _data(plane, decided, labels, colors)
    data |= {
        "style": style,
        "title": title,
        "points": [{"name": n, "at": at} for n, at in marked(plane, points).items()],
    }
    return report_frame.write_page(path, data, title, PARTS)


def _decided(plane: PlaneRestriction, style: str, order: str) -> Regions | None:
    if style == "decisions":
        return plane.decisions(order)
    try:
        return None if plane.stored_values is None else plane.decisions(order)
    except ExactlineError:  # several outputs, or no network any more: the page does without
        return None


def _data(
    plane: PlaneRestriction, decided: Regions | None, labels: Sequence[str] | None, colors: Sequence[str] | None
) -> dict[str, Any]:
    low, high = plane.outline.min(0).values.tolist(), plane.outline.max(0).values.tolist()
    return {
        "facts": str(plane),
        "box": [*low, *high],
        "stretch": stretch(plane),
        "corners": packed(plane.corners.numpy()),
        "areas": packed(plane.areas.numpy()),
        "offsets": packed(plane.offsets.numpy()),
        "rings": packed(plane.rings.numpy()),
        "edges": packed(plane.edges.numpy()),
        "sides": packed(plane.sides.numpy()),
        "births": packed(plane.origin_table.numpy()),
        "names": list(plane.names),
        "nodes": bearers(plane.origin_table[:, 0].numpy(), plane.names),
        "light": list(TINTS),
        "dark": list(SHADES),
        "decisions": None if decided is None else _classes(plane, decided, labels, colors),
    }


def _classes(
    plane: PlaneRestriction, decided: Regions, labels: Sequence[str] | None, colors: Sequence[str] | None
) -> dict[str, Any]:
    count = outputs_of(plane)
    names = checked_names(labels, count)
    colors = checked_colors(colors, count)
    rings = [ring.numpy() for region in decided for ring in region.rings]
    ends = np.cumsum([0, *map(len, rings)]).tolist()
    spans = pairwise(ends)
    groups: dict[tuple[tuple[int, ...], str, str], list[Region]] = {}
    for r in decided:
        groups.setdefault(((r.label, *r.tied), _name(r, names), _colour(r, colors)), []).append(r)
    return {
        "title": f"classes: the {'largest' if decided.order == 'max' else 'smallest'} output",
        "rings": packed(np.concatenate(rings)),
        "boundaries": packed(decided.boundaries.numpy()),
        "regions": [
            {
                "name": _name(region, names),
                "color": _colour(region, colors),
                "hatch": _hatch(region),
                "area": _told(region.area),
                "box": [*region.rings[0].min(0).values.tolist(), *region.rings[0].max(0).values.tolist()],
                "rings": [next(spans) for _ in region.rings],
            }
            for region in decided
        ],
        "classes": [
            {
                "name": name,
                "color": colour,
                "hatch": _hatch(some[0]),
                "area": _told(sum(r.area for r in some)),
                "share": percent(sum(r.share for r in some)),
            }
            for (_, name, colour), some in sorted(groups.items(), key=lambda item: item[0])
        ],
    }


def _told(area: float) -> float | str:
    """An area for the page, whose data know no infinity."""
    return area if isfinite(area) else "infinite"


def _name(region: Region, names: Sequence[str]) -> str:
    return " = ".join(names[i] for i in region.tied) if region.tied else names[region.label]


def _hatch(region: Region) -> int:
    """The pattern of a class, which tells it from others where colours do not."""
    return TIE if region.tied else region.label % PATTERNS


def _colour(region: Region, colors: Sequence[str] | None) -> str:
    """A class's own colour, darker where the colours have been used up; a tie's lies between those of its classes."""
    if colors is not None:
        return colors[region.label]
    one, two = (
        mixed(FILLS[i % len(FILLS)], INK, min(0.25 * (i // len(FILLS)), 0.75))
        for i in (region.tied[:2] or (region.label, region.label))
    )
    return mixed(one, two, 0.5)
