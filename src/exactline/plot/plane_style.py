"""How planes look: colours and hatches of classes, positions of points, names and scales of axes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..errors import ArgumentError, PlaneError
from ..humanize import count_noun
from .palette import HATCHES, class_turn, fill_colour
from .style import Theme, current_theme, format_index

if TYPE_CHECKING:
    from ..decide.regions import Regions
    from ..results.plane import PlaneRestriction

MAX_ASPECT = 5  # where one side of a plane is more times as long as the other, each axis has its own scale
TIE_HATCH = "||||"
PLANE_STYLES = ("regions", "decisions")
ClassStyle = tuple[str, str]  # colour and hatch


def check_plane_style(style: str) -> None:
    """Refuse unknown styles of planes; raises ArgumentError."""
    if style not in PLANE_STYLES:
        raise ArgumentError(
            f"There is no style {style!r}.", where="argument style", hint="Give 'regions' or 'decisions'."
        )


def locate_points(plane: PlaneRestriction, points: Any) -> dict[str, tuple[float, float]]:
    """The positions in the plane of a user's points, by name or by number.

    Raises PlaneError for what are not points of the plane's inputs.
    """
    if points is None:
        return {}
    hint = "Give inputs (n, *in), or inputs (*in) by name."
    try:
        if isinstance(points, Mapping):
            names = [str(name) for name in points]  # pyright: ignore
            positions = [plane.coordinates(_as_batch(point))[0].tolist() for point in points.values()]  # pyright: ignore
        else:
            positions = plane.coordinates(points).tolist()
            names = [str(i) for i in range(len(positions))]
    except (TypeError, ValueError, RuntimeError, IndexError) as problem:
        raise PlaneError(f"These are not points: {problem}", where="argument points", hint=hint) from problem
    if not np.isfinite(positions).all():
        raise PlaneError("The points hold NaN or infinite numbers.", where="argument points", hint=hint)
    return {name: (x, y) for name, (x, y) in zip(names, positions, strict=True)}


def _as_batch(point: Any) -> Any:
    """One point as a batch of one; a tuple has an array for each input."""
    if isinstance(point, tuple) and all(hasattr(part, "__len__") for part in point):  # pyright: ignore
        return tuple(torch.as_tensor(part, dtype=torch.float64)[None] for part in point)  # pyright: ignore
    return torch.as_tensor(point, dtype=torch.float64)[None]


def check_colors(colors: Sequence[str] | None, count: int) -> list[str] | None:
    """A colour for each output as #rrggbb; names of colours need matplotlib.

    Raises ArgumentError for what are not colours, or too few or too many.
    """
    if colors is None:
        return None
    if len(colors) != count:
        raise ArgumentError(
            f"There are {len(colors)} colours for {count} outputs.",
            where="colors",
            hint="Give one colour for each output.",
        )
    found = list(colors)
    if find_spec("matplotlib") is not None:
        from matplotlib.colors import is_color_like, to_hex

        found = [to_hex(colour) if is_color_like(colour) else str(colour) for colour in colors]
    for colour in found:
        if not re.fullmatch("#[0-9a-fA-F]{6}", colour):
            raise ArgumentError(f"{colour!r} is not a colour.", where="colors", hint="Give colours such as #77AADD.")
    return found


def choose_styles(regions: Regions, colors: Sequence[str] | None) -> dict[tuple[int, bool], ClassStyle]:
    """Fill and hatch of every class (label, False) and tie (label, True); the same on every plane."""
    colors = check_colors(colors, regions.comparison.class_count)
    styles, theme = dict[tuple[int, bool], ClassStyle](), current_theme()
    for label, is_tie in sorted({(r.label, bool(r.tied)) for r in regions}):
        hatch = "" if colors is not None else HATCHES[class_turn(label) % len(HATCHES)]
        fill = region_fill(label, theme) if colors is None else colors[label]
        styles[label, is_tie] = fill, TIE_HATCH if is_tie else hatch
    return styles


def region_fill(label: int, theme: Theme) -> str:
    """The fill of the regions of a class: lighter than its curves, or darker on dark paper."""
    return fill_colour(theme.colour(label), dark=theme.is_dark)


def axis_names(plane: PlaneRestriction, features: Sequence[str] | None = None) -> tuple[str, str]:
    """The two features that the plane varies, or else the numbers of its coordinates.

    Args:
        plane: the plane.
        features: a name for each number of the input, best with its unit.

    Raises ArgumentError for too few or too many names.
    """
    names = check_features(features, plane.axes.shape[1])
    axes = plane.axes.numpy()
    is_feature = (np.abs(axes).max(1) == 1.0) & ((axes != 0).sum(1) == 1) & (axes.max(1) == 1.0)
    positions = axes.argmax(1).tolist()
    if is_feature.all() and not plane.several_inputs and (plane.origin.numpy()[positions] == 0).all():
        shape = tuple(plane.vertices[0].shape[1:])
        first, second = (format_index(at, shape) if names is None else names[at] for at in positions)
        return first, second
    return "plane coordinate 0 (units of the input)", "plane coordinate 1 (units of the input)"


def check_features(features: Sequence[str] | None, count: int) -> list[str] | None:
    """A name for each number of the input; raises ArgumentError for too few or too many."""
    if features is not None and len(features) != count:
        raise ArgumentError(
            f"That is {count_noun(len(features), 'name')} for {count_noun(count, 'feature')}.",
            where="argument features",
            hint="Give one name for each number of the input.",
        )
    return None if features is None else [str(name) for name in features]


def vertical_stretch(plane: PlaneRestriction) -> float:
    """The scale of the vertical axis over that of the horizontal: 1, unless the plane would look like a line."""
    wide, high = (plane.outline.max(0).values - plane.outline.min(0).values).tolist()
    return 1.0 if max(wide, high) <= MAX_ASPECT * min(wide, high) else 0.75 * wide / high
