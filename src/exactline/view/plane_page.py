"""A plane as one self-contained web page: move, zoom, and read what is under the pointer. Nothing is fetched."""

from __future__ import annotations

import html
import json
from base64 import b64encode
from collections.abc import Sequence
from importlib import resources
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ArgumentError, ExactlineError
from .band import checked_names
from .plane import INK, STYLES, TINTS
from .plane_looks import FILLS, checked_colors, marked, outputs_of, percent, stretch

if TYPE_CHECKING:
    from ..plane.regions import Region, Regions
    from ..plane.restriction import PlaneRestriction

SHADES = ("#20232A", "#2A2522", "#202823", "#2A2820", "#28222A", "#242424")  # of polygons on a dark page
# Edges from the first node to the last, on a light page as in pictures, and on a dark one.
INKS = ("#440154", "#3B528B", "#21918C", "#5DC863")
LIGHTS = ("#FDE725", "#90D743", "#35B779", "#3FA7D6")


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
    from ..storage import write_atomically

    if style not in STYLES:
        raise ArgumentError(f"There is no style {style!r}.", where="write_page", hint="Give 'regions' or 'decisions'.")
    if decided is None:
        decided = _decided(plane, style, order)
    data = _data(plane, decided, labels, colors)
    data |= {
        "style": style,
        "title": title,
        "points": [{"name": n, "at": at} for n, at in marked(plane, points).items()],
    }
    write_atomically(Path(path), page(data, title).encode())
    return Path(path)


def page(data: dict[str, Any], title: str) -> str:
    """The page with its data; names cannot end the script that they are in, nor begin another."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))  # ASCII only
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    head, tail = resources.files("exactline.view").joinpath("plane.html").read_text("utf-8").split("%DATA%")
    return head.replace("%TITLE%", html.escape(title)) + text + tail


def _decided(plane: PlaneRestriction, style: str, order: str) -> Regions | None:
    if style == "decisions":
        return plane.decisions(order)
    try:
        return None if plane.kept is None else plane.decisions(order)
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
        "corners": _doubles(plane.corners.numpy()),
        "areas": _doubles(plane.areas.numpy()),
        "offsets": _integers(plane.offsets.numpy()),
        "rings": _integers(plane.rings.numpy()),
        "edges": _integers(plane.edges.numpy()),
        "sides": _integers(plane.sides.numpy()),
        "births": _integers(plane.births.numpy()),
        "names": list(plane.names),
        "nodes": _nodes(plane),
        "light": list(TINTS),
        "dark": list(SHADES),
        "decisions": None if decided is None else _classes(plane, decided, labels, colors),
    }


def _nodes(plane: PlaneRestriction) -> list[dict[str, Any]]:
    """Nodes that bore edges, in order, with their colours on light and dark pages."""
    nodes, tally = np.unique(plane.births.numpy()[:, 0], return_counts=True)
    some = [(node, count) for node, count in zip(nodes.tolist(), tally.tolist(), strict=True) if node >= 0]
    last = max(len(some) - 1, 1)
    return [
        {
            "node": node,
            "name": plane.names[node],
            "count": count,
            "light": _along(INKS, i / last),
            "dark": _along(LIGHTS, i / last),
        }
        for i, (node, count) in enumerate(some)
    ]


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
        "rings": _doubles(np.concatenate(rings)),
        "boundaries": _doubles(decided.boundaries.numpy()),
        "regions": [
            {
                "name": _name(region, names),
                "color": _colour(region, colors),
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


def _colour(region: Region, colors: Sequence[str] | None) -> str:
    """A class's own colour, darker where the colours have been used up; a tie's lies between those of its classes."""
    if colors is not None:
        return colors[region.label]
    one, two = (
        _between(FILLS[i % len(FILLS)], INK, min(0.25 * (i // len(FILLS)), 0.75))
        for i in (region.tied[:2] or (region.label, region.label))
    )
    return _between(one, two, 0.5)


def _along(stops: Sequence[str], share: float) -> str:
    """The colour at a share of the way through several."""
    place = min(int(share * (len(stops) - 1)), len(stops) - 2)
    return _between(stops[place], stops[place + 1], share * (len(stops) - 1) - place)


def _between(start: str, end: str, share: float) -> str:
    one, two = ([int(colour[i : i + 2], 16) for i in (1, 3, 5)] for colour in (start, end))
    return "#" + "".join(f"{round(a + share * (b - a)):02x}" for a, b in zip(one, two, strict=True))


def _doubles(values: NDArray[np.float64]) -> str:
    return b64encode(np.ascontiguousarray(values, dtype="<f8").tobytes()).decode()


def _integers(values: NDArray[np.int64]) -> str:
    return b64encode(np.ascontiguousarray(values, dtype="<i4").tobytes()).decode()
