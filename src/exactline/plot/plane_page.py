"""A plane as one self-contained web page: move, zoom, and read what is under the pointer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ExactlineError
from .page import encode_array, list_nodes, write_page
from .page_input import encode_plane_inputs
from .palette import HATCH_COUNT, TIE_HATCH, class_turn, mix_colours
from .plane import DARK_TINTS, TINTS
from .plane_style import (
    axis_names,
    check_colors,
    check_plane_style,
    locate_points,
    region_fill,
    vertical_stretch,
)
from .style import DARK_THEME, LIGHT_THEME, Theme, check_labels, format_share

if TYPE_CHECKING:
    from ..decide.regions import Region, Regions
    from ..results.plane import PlaneRestriction

SCRIPTS = ("plane", "plane_chart", "plane_axes", "plane_info", "plane_controls")
MAX_VALUES = 1_200_000  # at corners on a page: of more, the outputs that lead come first
MAX_OUTPUTS = 64


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
    features: Sequence[str] | None = None,
    image: bool | tuple[int, ...] | None = None,
) -> Path:
    """Write the page, whole or not at all.

    The arguments are those of `plot_plane`, the title, and ``image`` as for a line's page. Where the values were not
    kept the page has no classes, unless ``style="decisions"`` asks for them.

    Raises ArgumentError for arguments that do not fit, FileError where the file cannot be written.
    """
    check_plane_style(style)
    if regions is None:
        regions = _find_regions(plane, style, order, threshold)
    data = _encode_plane(plane) | {
        "axes": axis_names(plane, features),
        "inputs": encode_plane_inputs(plane, features, image),
        "outputs": _encode_outputs(plane, regions, labels, colors),
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


def _encode_outputs(
    plane: PlaneRestriction, regions: Regions | None, labels: Sequence[str] | None, colors: Sequence[str] | None
) -> list[dict[str, Any]]:
    """Name, colours and values at all corners of each output; of many outputs those that lead somewhere come first."""
    stored = plane.stored_values
    if stored is None or len(stored) != 1:
        return []
    values = stored[0].detach().cpu().double().flatten(1).numpy()  # (corners, outputs)
    count = values.shape[1]
    is_whole = regions is not None and regions.comparison.is_whole  # else labels name the two sides of a threshold
    names = check_labels(labels if is_whole or regions is None else None, count)
    leaders = regions.labels if regions is not None and is_whole else []
    room = min(MAX_OUTPUTS, max(MAX_VALUES // max(len(values), 1), 1))
    chosen = sorted(list(dict.fromkeys([*leaders, *range(count)]))[:room])
    own = check_colors(colors, count) if is_whole or regions is None else None
    return [
        {
            "name": names[i] if labels is not None and is_whole else f"output {names[i]}" if count > 1 else "output",
            "light": LIGHT_THEME.colour(i) if own is None else own[i],
            "dark": DARK_THEME.colour(i) if own is None else own[i],
            "values": encode_array(np.nan_to_num(values[:, i])),
        }
        for i in chosen
    ]


def _encode_decisions(
    plane: PlaneRestriction, regions: Regions, labels: Sequence[str] | None, colors: Sequence[str] | None
) -> dict[str, Any]:
    count = regions.comparison.class_count
    names = check_labels(labels, count)
    colors = check_colors(colors, count)
    rings = [ring.numpy() for region in regions for ring in region.rings]
    spans = pairwise(np.cumsum([0, *map(len, rings)]).tolist())  # of each ring in the array of all corners
    groups: dict[tuple[tuple[int, ...], str], list[Region]] = {}
    for r in regions:
        groups.setdefault(((r.label, *r.tied), _format_name(r, names)), []).append(r)
    which = "the largest output" if regions.order == "max" else "the smallest output"
    rule = which if regions.comparison.is_whole else regions.describe()
    return {
        "title": f"classes: {rule}",
        "rings": encode_array(np.concatenate(rings)),
        "boundaries": encode_array(regions.boundaries.numpy()),
        "regions": [
            {
                "name": _format_name(region, names),
                **_choose_colours(region, colors),
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
                **_choose_colours(members[0], colors),
                "hatch": _choose_hatch(members[0]),
                "area": _encode_area(sum(r.area for r in members)),
                "share": format_share(sum(r.share for r in members)),
            }
            for (_, name), members in sorted(groups.items(), key=lambda item: item[0])
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


def _choose_colours(region: Region, colors: Sequence[str] | None) -> dict[str, str]:
    """The fill of a region on a light and on a dark page."""
    return {"light": _fill(region, colors, LIGHT_THEME), "dark": _fill(region, colors, DARK_THEME)}


def _fill(region: Region, colors: Sequence[str] | None, theme: Theme) -> str:
    """The fill of a class, nearer to ink where the colours are used up; a tie is between its first two classes."""
    if colors is not None:
        return colors[region.label]
    one, two = (
        mix_colours(region_fill(i, theme), theme.ink, min(0.25 * class_turn(i), 0.75))
        for i in (region.tied[:2] or (region.label, region.label))
    )
    return mix_colours(one, two, 0.5)
