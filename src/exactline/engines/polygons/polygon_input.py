"""A user's polygon, checked: three or more points of one plane, in convex order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi
from operator import index as as_index
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...arrays import Floats
from ...errors import LineError, PlaneError
from ...lines import as_points

OFF_PLANE_TOLERANCE = 1e-9  # how far corners may be off one plane, as a share of their extent
MIN_TURN = 1e-12  # turns smaller than this are none


@dataclass(frozen=True)
class PolygonInput:
    """A convex polygon in input space, with orthonormal coordinates in its plane."""

    corners: tuple[Tensor, ...]  # (k, *in) each
    coordinates: Floats  # (k, 2) plane coordinates, counterclockwise
    origin: Floats  # (n,) all inputs in one row: the point of coordinates 0, 0
    axes: Floats  # (2, n)


def check_polygon(vertices: Any) -> PolygonInput:
    """Check a user's corners and lay coordinates: from the first corner, first towards the second."""
    corners = _corners(vertices)
    flat = np.concatenate([c.reshape(len(c), -1).numpy() for c in corners], 1)
    # a power of two, so that points far from the origin keep all digits of their distances
    scale = float(np.ldexp(1.0, int(np.frexp(np.abs(flat).max(initial=0.0))[1]) - 1))
    shifted = flat / scale - flat[0] / scale
    size = float(np.abs(shifted).max(initial=0.0))
    where, apart = "argument vertices", _fit_plane(shifted)
    if apart == 0:
        raise PlaneError("Two corners are the same point.", where=where, hint="Give each corner once.")
    first = shifted[1] / np.linalg.norm(shifted[1])
    off = shifted - np.outer(shifted @ first, first)
    far = int(np.linalg.norm(off, axis=1).argmax())
    if np.linalg.norm(off[far]) <= OFF_PLANE_TOLERANCE * size:
        raise PlaneError(
            "The corners lie on one line.",
            where=where,
            hint="For a line there is xl.restrict.",
        )
    second = off[far] - (off[far] @ first) * first
    second /= np.linalg.norm(second)
    places = np.stack([shifted @ first, shifted @ second], 1)
    astray = np.abs(shifted - places @ np.stack([first, second])).max()
    if astray > OFF_PLANE_TOLERANCE * size:
        raise PlaneError(
            f"The corners do not lie in one plane: one is off it by {astray / size:.1e} of their extent.",
            where=where,
            hint="Give three corners, or compute the others from them in float64.",
        )
    if _area(places) < 0:
        places[:, 1], second = -places[:, 1], -second
    _check_convex(places, where)
    with np.errstate(over="ignore"):
        found = places * scale
    if not np.isfinite(found).all():
        raise PlaneError("The polygon is too large for float64.", where=where, hint="Give corners closer together.")
    return PolygonInput(corners, found, flat[0], np.stack([first, second]))


def _corners(vertices: Any) -> tuple[Tensor, ...]:
    where = "argument vertices"
    try:
        corners = as_points(vertices, "vertices")
    except LineError as problem:
        raise PlaneError(problem.problem, where=problem.where, hint=problem.hint) from problem
    if any(c.dim() == 0 for c in corners) or len({len(c) for c in corners}) > 1:
        raise PlaneError(
            "The number of corners is missing or differs between inputs.",
            where=where,
            hint="Give a tensor of shape (corners, *in), a tuple of them for several inputs.",
        )
    if len(corners[0]) < 3:
        raise PlaneError(
            f"A polygon needs three corners, not {len(corners[0])}.", where=where, hint="Give a tensor (corners, *in)."
        )
    if not any(c.numel() for c in corners):
        raise PlaneError("The corners hold no numbers.", where=where, hint="Give a tensor (corners, *in).")
    return corners


def check_polygon_shapes(corners: Sequence[Tensor], shapes: Sequence[tuple[int, ...]]) -> None:
    """Refuse corners that are no points of the network's input."""
    found = [tuple(c.shape[1:]) for c in corners]
    if found != [tuple(s) for s in shapes]:
        wanted = ", ".join(f"(corners, {', '.join(map(str, s))})" for s in shapes)
        given = ", ".join(str(tuple(c.shape)) for c in corners)
        raise PlaneError(
            f"The network takes corners of shape {wanted}, not {given}.",
            where="argument vertices",
            hint="Give one row for each corner; a tuple of tensors for several inputs.",
        )


def _fit_plane(points: Floats) -> float:
    """The smallest distance between two of the points, by their largest coordinate."""
    best = np.inf
    for i in range(1, len(points)):
        best = min(best, float(np.abs(points[:i] - points[i]).max(1).min()))
    return best


def _area(places: Floats) -> float:
    x, y = places[:, 0], places[:, 1]
    return float((x * np.roll(y, -1) - y * np.roll(x, -1)).sum() / 2)


def _check_convex(places: Floats, where: str) -> None:
    step = np.roll(places, -1, 0) - places
    onward = np.roll(step, -1, 0)
    cross = step[:, 0] * onward[:, 1] - step[:, 1] * onward[:, 0]
    turn = np.arctan2(cross, (step * onward).sum(1))
    if (turn < -MIN_TURN).any() or abs(turn.sum() - 2 * pi) > 1e-6:
        raise PlaneError(
            "The corners are not in the order of a convex polygon.",
            where=where,
            hint="Give them in order around it, none of them inside.",
        )


def plane_through(x0: Any, x1: Any, x2: Any, *, shape: str = "rectangle", margin: float = 0.1) -> Any:
    """Corners of the triangle of three inputs, or of the rectangle around it, with a margin as a share of its extent.

    The rectangle's first side runs along x0 to x1. What comes back is what ``restrict_plane`` takes.

    >>> plane_through([0.0, 0.0], [2.0, 0.0], [1.0, 1.0], margin=0.0).tolist()
    [[0.0, 0.0], [2.0, 0.0], [2.0, 1.0], [0.0, 1.0]]
    """
    if shape not in ("rectangle", "triangle"):
        raise PlaneError(
            f"There is no shape {shape!r}.", where="argument shape", hint="Give 'rectangle' or 'triangle'."
        )
    if not (isinstance(margin, (int, float)) and 0 <= margin < 1e6):
        raise PlaneError(f"{margin!r} is no margin.", where="argument margin", hint="Give a share such as 0.1.")
    points = [as_points(x, name) for x, name in ((x0, "x0"), (x1, "x1"), (x2, "x2"))]
    if len({tuple(t.shape for t in p) for p in points}) > 1:
        raise PlaneError(
            "The three inputs have different shapes.", where="arguments x0, x1, x2", hint="Give three of one shape."
        )
    corners = tuple(torch.stack(group) for group in zip(*points, strict=True))
    given = check_polygon(corners).coordinates
    given = given / np.abs(given).max()  # nothing overflows or vanishes in what follows
    if shape == "triangle":
        middle = given.mean(0)
        places = middle + (given - middle) * (1 + margin)
    else:
        low, high = given.min(0), given.max(0)
        low, high = low - margin * (high - low), high + margin * (high - low)
        places = np.array([[low[0], low[1]], [high[0], low[1]], [high[0], high[1]], [low[0], high[1]]])
    # as mixtures of the three points, so that those that are corners stay what they are
    mixing = np.linalg.solve(np.vstack([given.T, np.ones(3)]), np.vstack([places.T, np.ones(len(places))])).T
    mixing = np.where(np.abs(mixing - mixing.round()) < 1e-14, mixing.round(), mixing)
    made = tuple((torch.from_numpy(mixing) @ c.reshape(3, -1)).view(len(places), *c.shape[1:]) for c in corners)
    return made if isinstance(x0, tuple) else made[0]


def as_coordinates(value: Any, name: str) -> Any:
    """A user's point of the plane as an array (2,)."""
    found = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
    if found.shape != (2,):
        raise PlaneError(f"{name} is not a point of the plane.", where=f"argument {name}", hint="Give two coordinates.")
    return found


def as_coordinate_rows(points: Any) -> Floats:
    """A user's points of the plane as an array (n, 2)."""
    try:
        found = np.asarray(points.detach().cpu() if isinstance(points, Tensor) else points, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise PlaneError(
            f"These are no points: {problem}", where="argument points", hint="Give (n, 2) numbers."
        ) from problem
    if found.ndim != 2 or found.shape[1] != 2 or not np.isfinite(found).all():
        raise PlaneError(
            f"Points of the plane are finite numbers of shape (n, 2), not {found.shape}.",
            where="argument points",
            hint="plane.coordinates(x) turns input points into them.",
        )
    return found


def check_grid(base: Any, axes: Any, box: Any) -> PolygonInput:
    """The rectangle in which two features of an input vary; its plane coordinates are the two features."""
    (start,) = as_points(base, "base") if not isinstance(base, tuple) else (None,)
    if start is None:
        raise PlaneError("A grid needs a network of one input.", where="argument base", hint="Use xl.restrict_plane.")
    first, second = (_feature_index(axis, start) for axis in _check_pair(axes, "axes", "two positions, such as (0, 1)"))
    if first == second:
        raise PlaneError("Both axes are the same feature.", where="argument axes", hint="Name two features.")
    bounds = [_check_range(side) for side in _check_pair(box, "box", "two ranges, such as ((0, 1), (0, 1))")]
    _check_sides(bounds)
    places = np.array([[bounds[0][i], bounds[1][j]] for i, j in ((0, 0), (1, 0), (1, 1), (0, 1))])
    corners = start.reshape(1, -1).repeat(4, 1)
    corners[:, first], corners[:, second] = torch.from_numpy(places.T.copy())
    origin, directions = start.reshape(-1).numpy().copy(), np.zeros((2, start.numel()))
    origin[[first, second]] = 0.0
    directions[0, first] = directions[1, second] = 1.0
    return PolygonInput((corners.view(4, *start.shape),), places, origin, directions)


def _check_pair(value: Any, name: str, wanted: str) -> tuple[Any, Any]:
    found = tuple(value) if isinstance(value, (tuple, list)) or hasattr(value, "__len__") else ()
    if len(found) != 2:
        raise PlaneError(f"{name} must be {wanted}.", where=f"argument {name}", hint=f"Give {wanted}.")
    return found[0], found[1]


def _check_range(side: Any) -> tuple[float, float]:
    low, high = _check_pair(side, "box", "two ranges, such as ((0, 1), (0, 1))")
    try:
        found = float(low), float(high)
    except (TypeError, ValueError) as problem:
        raise PlaneError(f"A bound is no number: {problem}", where="argument box", hint="Give numbers.") from problem
    if not (np.isfinite(found).all() and found[0] < found[1]):
        raise PlaneError(
            f"From {found[0]:g} to {found[1]:g} is no range.",
            where="argument box",
            hint="Give the smaller bound first.",
        )
    return found


def _check_sides(bounds: list[tuple[float, float]]) -> None:
    """Refuse a box that float64 cannot tell from a line, or whose sides it cannot hold."""
    one, two = (high / 2 - low / 2 for low, high in bounds)
    if not np.isfinite([2 * one, 2 * two]).all():
        raise PlaneError("The box is too large for float64.", where="argument box", hint="Give a smaller box.")
    if min(one, two) <= OFF_PLANE_TOLERANCE * max(one, two):
        raise PlaneError(
            f"One side of the box is {max(one, two) / max(min(one, two), 5e-324):.1e} times as long as the other.",
            where="argument box",
            hint="For a line there is xl.restrict; or let the features have units of about one size.",
        )


def _feature_index(axis: Any, start: Tensor) -> int:
    """A feature's place in the flattened input."""
    try:
        if any(isinstance(i, bool) for i in (axis if isinstance(axis, (tuple, list)) else (axis,))):
            raise TypeError
        index = tuple(map(as_index, axis)) if isinstance(axis, (tuple, list)) else as_index(axis)
        if isinstance(index, tuple):
            if len(index) != start.dim():
                raise IndexError
            return int(
                np.ravel_multi_index(
                    [i % s if -s <= i < s else s for i, s in zip(index, start.shape, strict=True)], start.shape
                )
            )
        if not -start.numel() <= index < start.numel():
            raise IndexError
        return index % start.numel()
    except (IndexError, ValueError, TypeError) as problem:
        raise PlaneError(
            f"{axis!r} is no position in an input of shape {tuple(start.shape)}.",
            where="argument axes",
            hint="Give a number, or one for each dim.",
        ) from problem
