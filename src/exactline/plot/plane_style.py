"""How planes look: the colours of classes, the names of points and axes, shares in percent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..errors import ArgumentError, PlaneError
from .heat import place_name

if TYPE_CHECKING:
    from ..decide.regions import Regions
    from ..results.plane import PlaneRestriction

LONG = 5  # sides of planes longer than so many others are drawn in units of their own
# Paul Tol's light colours: fills that every kind of colour vision tells apart, under dark lines and letters.
FILLS = ("#77AADD", "#EE8866", "#EEDD88", "#44BB99", "#FFAABB", "#BBCC33", "#99DDFF", "#AAAA00", "#DDDDDD")
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\")  # tell classes apart when the colours have been used up
TIED = "||||"
Look = tuple[str, str]  # colour and hatch


def marked(plane: PlaneRestriction, points: Any) -> dict[str, tuple[float, float]]:
    """Where in the plane a user's points are, by name; their numbers where they have none."""
    if points is None:
        return {}
    hint = "Give inputs (n, *in), or inputs (*in) by name."
    try:
        if isinstance(points, Mapping):
            named = [str(name) for name in points]  # pyright: ignore
            places = [plane.coordinates(_alone(point))[0].tolist() for point in points.values()]  # pyright: ignore
        else:
            places = plane.coordinates(points).tolist()
            named = [str(i) for i in range(len(places))]
    except (TypeError, ValueError, RuntimeError, IndexError) as problem:
        raise PlaneError(f"These are no points: {problem}", where="argument points", hint=hint) from problem
    if not np.isfinite(places).all():
        raise PlaneError("The points hold NaN or infinite numbers.", where="argument points", hint=hint)
    return {name: (x, y) for name, (x, y) in zip(named, places, strict=True)}


def _alone(point: Any) -> Any:
    """One point as a batch of one; a tuple has a part for each input."""
    if isinstance(point, tuple) and all(hasattr(part, "__len__") for part in point):  # pyright: ignore
        return tuple(torch.as_tensor(part, dtype=torch.float64)[None] for part in point)  # pyright: ignore
    return torch.as_tensor(point, dtype=torch.float64)[None]


def outputs_of(plane: PlaneRestriction) -> int:
    """How many outputs compete."""
    if plane.stored_values is not None:
        return prod(plane.stored_values[0].shape[1:])
    network = plane.require_network("the outputs of a plane")
    return prod(network.nodes[network.outputs[0]].shape)


def checked_colors(colors: Sequence[str] | None, count: int) -> list[str] | None:
    """A colour for each output as #rrggbb; by name only where matplotlib is there to know it."""
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
            raise ArgumentError(f"{colour!r} is no colour.", where="colors", hint="Give colours such as #77AADD.")
    return found


def looks(plane: PlaneRestriction, decided: Regions, colors: Sequence[str] | None) -> dict[tuple[int, bool], Look]:
    """Colour and hatch of every class and tie that occurs: a class looks the same on every plane."""
    colors = checked_colors(colors, outputs_of(plane))
    found: dict[tuple[int, bool], Look] = {}
    for label, tie in sorted({(r.label, bool(r.tied)) for r in decided}):
        turn, place = divmod(label, len(FILLS))
        colour = FILLS[place] if colors is None else colors[label]
        hatch = "" if colors is not None else HATCHES[turn % len(HATCHES)]
        found[label, tie] = colour, TIED if tie else hatch
    return found


def axis_names(plane: PlaneRestriction) -> tuple[str, str]:
    """Features where the plane varies two of them, else the numbers of its coordinates."""
    axes = plane.axes.numpy()
    plain = (np.abs(axes).max(1) == 1.0) & ((axes != 0).sum(1) == 1) & (axes.max(1) == 1.0)
    places = axes.argmax(1).tolist()
    if plain.all() and not plane.several_inputs and (plane.origin.numpy()[places] == 0).all():
        first, second = (place_name(at, tuple(plane.vertices[0].shape[1:])) for at in places)
        return first, second
    return "plane coordinate 0", "plane coordinate 1"


def stretch(plane: PlaneRestriction) -> float:
    """How much longer a unit is drawn upwards than across: 1, unless the plane is so long that one would see a line."""
    wide, high = (plane.outline.max(0).values - plane.outline.min(0).values).tolist()
    return 1.0 if max(wide, high) <= LONG * min(wide, high) else 0.75 * wide / high


def plain_text(text: str) -> str:
    """A name as letters only: dollars would begin a formula, a leading underscore would hide it from legends."""
    text = text.replace("$", r"\$")
    return f"\u200b{text}" if text.startswith("_") else text


def shaded(colours: int) -> list[str]:
    """So many colours from dark to light, in order."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colormaps["viridis"](0.75 * i / max(colours - 1, 1))) for i in range(colours)]


def percent(share: float) -> str:
    """A share in percent; what is there is never said to be 0 %, what is not all never 100 %.

    >>> percent(0.12345), percent(1.0), percent(1e-7), percent(0.99999999)
    ('12.3 %', '100 %', '<0.1 %', '>99.9 %')
    """
    if 0 < share < 0.001:
        return "<0.1 %"
    if 0.999 < share < 1 - 1e-12:
        return ">99.9 %"
    return f"{100 * share:.3g} %"
