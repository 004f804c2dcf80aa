"""Validation of polygons and plane coordinates that users give."""

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
from ...tolerances import FULL_TURN_TOLERANCE, MIN_TURN, OFF_PLANE_TOLERANCE, WHOLE_WEIGHT_TOLERANCE


@dataclass(frozen=True)
class PolygonInput:
    """A convex polygon in input space, with orthonormal coordinates in its plane."""

    corners: tuple[Tensor, ...]  # (k, *in) each
    coordinates: Floats  # (k, 2) plane coordinates, counterclockwise
    origin: Floats  # (n,) the point with coordinates (0, 0), all inputs flattened into one row
    axes: Floats  # (2, n) the directions of the two coordinates


def check_polygon(vertices: Any) -> PolygonInput:
    """Validate the corners of a polygon and lay out plane coordinates.

    The origin is the first corner, and the first axis points to the second corner.

    Args:
        vertices: A tensor (corners, *in) with three or more corners in convex order, or a tuple of one for each input.

    Raises PlaneError if the corners are not those of a convex polygon in one plane.
    """
    corners = _as_corners(vertices)
    flat = np.concatenate([c.reshape(len(c), -1).numpy() for c in corners], 1)
    # a power of two: scaling by it is exact, so points far from the origin keep all digits of their distances
    scale = float(np.ldexp(1.0, int(np.frexp(np.abs(flat).max(initial=0.0))[1]) - 1))
    shifted = flat / scale - flat[0] / scale
    extent = float(np.abs(shifted).max(initial=0.0))
    where = "argument vertices"
    if len(np.unique(shifted + 0.0, axis=0)) < len(shifted):  # -0.0 + 0.0 is 0.0
        raise PlaneError("Two corners are the same point.", where=where, hint="Give each corner once.")
    first = shifted[1] / np.linalg.norm(shifted[1])
    across = shifted - np.outer(shifted @ first, first)
    furthest = int(np.linalg.norm(across, axis=1).argmax())
    if np.linalg.norm(across[furthest]) <= OFF_PLANE_TOLERANCE * extent:
        raise PlaneError(
            "The corners lie on one line.",
            where=where,
            hint="Use xl.restrict for a line.",
        )
    second = across[furthest] - (across[furthest] @ first) * first
    second /= np.linalg.norm(second)
    coordinates = np.stack([shifted @ first, shifted @ second], 1)
    off_plane = np.abs(shifted - coordinates @ np.stack([first, second])).max()
    if off_plane > OFF_PLANE_TOLERANCE * extent:
        raise PlaneError(
            f"The corners do not lie in one plane: one is off it by {off_plane / extent:.1e} of their extent.",
            where=where,
            hint="Give three corners, or compute the others from them in float64.",
        )
    if _signed_area(coordinates) < 0:
        coordinates[:, 1], second = -coordinates[:, 1], -second
    _check_convex(coordinates, where)
    with np.errstate(over="ignore"):
        scaled = coordinates * scale
    if not np.isfinite(scaled).all():
        raise PlaneError("The polygon is too large for float64.", where=where, hint="Give corners closer together.")
    return PolygonInput(corners, scaled, flat[0], np.stack([first, second]))


def _as_corners(vertices: Any) -> tuple[Tensor, ...]:
    """The corners as one tensor (k, *in) for each input."""
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
    """Check that the corners have the shapes of the network's inputs; raises `PlaneError`."""
    if [tuple(c.shape[1:]) for c in corners] != [tuple(s) for s in shapes]:
        expected = ", ".join(f"(corners, {', '.join(map(str, s))})" for s in shapes)
        actual = ", ".join(str(tuple(c.shape)) for c in corners)
        raise PlaneError(
            f"The network takes corners of shape {expected}, not {actual}.",
            where="argument vertices",
            hint="Give one row for each corner; a tuple of tensors for several inputs.",
        )


def _signed_area(coordinates: Floats) -> float:
    """The area of a polygon (k, 2), negative if it is clockwise."""
    x, y = coordinates[:, 0], coordinates[:, 1]
    return float((x * np.roll(y, -1) - y * np.roll(x, -1)).sum() / 2)


def _check_convex(coordinates: Floats, where: str) -> None:
    """Check that corners (k, 2) turn left everywhere, once around; raises `PlaneError`."""
    side = np.roll(coordinates, -1, 0) - coordinates
    next_side = np.roll(side, -1, 0)
    cross = side[:, 0] * next_side[:, 1] - side[:, 1] * next_side[:, 0]
    turn = np.arctan2(cross, (side * next_side).sum(1))
    if (turn < -MIN_TURN).any() or abs(turn.sum() - 2 * pi) > FULL_TURN_TOLERANCE:
        raise PlaneError(
            "The corners are not in the order of a convex polygon.",
            where=where,
            hint="Give them in order around the polygon, none of them inside.",
        )


def plane_through(x0: Any, x1: Any, x2: Any, *, shape: str = "rectangle", margin: float = 0.1) -> Any:
    """Return the corners of a polygon in the plane through three inputs, to pass to `restrict_plane`.

    Args:
        x0: An input, of shape (*in); a tuple of tensors for several inputs.
        x1: A second input; the first side of the rectangle is parallel to the line from x0 to x1.
        x2: A third input.
        shape: "rectangle" for the rectangle around the three inputs, "triangle" for the triangle itself.
        margin: How much to enlarge it on every side, as a share of its extent.

    >>> plane_through([0.0, 0.0], [2.0, 0.0], [1.0, 1.0], margin=0.0).tolist()
    [[0.0, 0.0], [2.0, 0.0], [2.0, 1.0], [0.0, 1.0]]

    Raises PlaneError if the inputs differ in shape or lie on one line, or if an option is not valid.
    """
    if shape not in ("rectangle", "triangle"):
        raise PlaneError(
            f"There is no shape {shape!r}.", where="argument shape", hint="Give 'rectangle' or 'triangle'."
        )
    if not (isinstance(margin, (int, float)) and 0 <= margin < 1e6):
        raise PlaneError(
            f"{margin!r} is not a valid margin.", where="argument margin", hint="Give a share such as 0.1."
        )
    points = [as_points(x, name) for x, name in ((x0, "x0"), (x1, "x1"), (x2, "x2"))]
    if len({tuple(t.shape for t in p) for p in points}) > 1:
        raise PlaneError(
            "The three inputs have different shapes.",
            where="arguments x0, x1, x2",
            hint="Give three inputs of one shape.",
        )
    corners = tuple(torch.stack(group) for group in zip(*points, strict=True))
    triangle = check_polygon(corners).coordinates
    triangle = triangle / np.abs(triangle).max()  # so that nothing below overflows or underflows
    if shape == "triangle":
        centroid = triangle.mean(0)
        polygon = centroid + (triangle - centroid) * (1 + margin)
    else:
        low, high = triangle.min(0), triangle.max(0)
        low, high = low - margin * (high - low), high + margin * (high - low)
        polygon = np.array([[low[0], low[1]], [high[0], low[1]], [high[0], high[1]], [low[0], high[1]]])
    # barycentric weights of the three inputs, so that inputs that are corners stay exactly what they are
    weights = np.linalg.solve(np.vstack([triangle.T, np.ones(3)]), np.vstack([polygon.T, np.ones(len(polygon))])).T
    weights = np.where(np.abs(weights - weights.round()) < WHOLE_WEIGHT_TOLERANCE, weights.round(), weights)
    polygon_points = tuple(
        (torch.from_numpy(weights) @ c.reshape(3, -1)).view(len(polygon), *c.shape[1:]) for c in corners
    )
    return polygon_points if isinstance(x0, tuple) else polygon_points[0]


def as_coordinates(value: Any, name: str) -> Any:
    """A point of the plane as an array (2,); raises `PlaneError`."""
    point = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
    if point.shape != (2,):
        raise PlaneError(f"{name} is not a point of the plane.", where=f"argument {name}", hint="Give two coordinates.")
    return point


def as_coordinate_rows(points: Any) -> Floats:
    """Points of the plane as an array (n, 2); raises `PlaneError`."""
    try:
        rows = np.asarray(points.detach().cpu() if isinstance(points, Tensor) else points, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        raise PlaneError(
            f"These are not points of the plane: {problem}", where="argument points", hint="Give (n, 2) numbers."
        ) from problem
    if rows.ndim != 2 or rows.shape[1] != 2 or not np.isfinite(rows).all():
        raise PlaneError(
            f"Points of the plane are finite numbers of shape (n, 2), not {rows.shape}.",
            where="argument points",
            hint="plane.coordinates(x) converts input points to plane coordinates.",
        )
    return rows


def check_grid(base: Any, axes: Any, box: Any) -> PolygonInput:
    """Validate the rectangle in which two features of an input vary; its plane coordinates are the two features.

    Args:
        base: The input, of shape (*in), whose other features stay fixed.
        axes: The positions of the two features in the input.
        box: The ranges of the two features.

    Raises PlaneError if an argument is not valid.
    """
    (point,) = as_points(base, "base") if not isinstance(base, tuple) else (None,)
    if point is None:
        raise PlaneError("A grid needs a network of one input.", where="argument base", hint="Use xl.restrict_plane.")
    first, second = (_feature_index(axis, point) for axis in _check_pair(axes, "axes", "two positions, such as (0, 1)"))
    if first == second:
        raise PlaneError("Both axes are the same feature.", where="argument axes", hint="Name two features.")
    bounds = [_check_range(side) for side in _check_pair(box, "box", "two ranges, such as ((0, 1), (0, 1))")]
    _check_sides(bounds)
    (x_low, x_high), (y_low, y_high) = bounds
    coordinates = np.array([[x_low, y_low], [x_high, y_low], [x_high, y_high], [x_low, y_high]])
    corners = point.reshape(1, -1).repeat(4, 1)
    corners[:, first], corners[:, second] = torch.from_numpy(coordinates.T.copy())
    origin, directions = point.reshape(-1).numpy().copy(), np.zeros((2, point.numel()))
    origin[[first, second]] = 0.0
    directions[0, first] = directions[1, second] = 1.0
    return PolygonInput((corners.view(4, *point.shape),), coordinates, origin, directions)


def _check_pair(value: Any, name: str, expected: str) -> tuple[Any, Any]:
    """The two items of a pair; raises `PlaneError`."""
    items = tuple(value) if isinstance(value, (tuple, list)) or hasattr(value, "__len__") else ()
    if len(items) != 2:
        raise PlaneError(f"{name} must be {expected}.", where=f"argument {name}", hint=f"Give {expected}.")
    return items[0], items[1]


def _check_range(side: Any) -> tuple[float, float]:
    """The two bounds of a range; raises `PlaneError`."""
    low, high = _check_pair(side, "box", "two ranges, such as ((0, 1), (0, 1))")
    try:
        low, high = float(low), float(high)
    except (TypeError, ValueError) as problem:
        raise PlaneError(f"A bound is not a number: {problem}", where="argument box", hint="Give numbers.") from problem
    if not (np.isfinite((low, high)).all() and low < high):
        raise PlaneError(
            f"From {low:g} to {high:g} is not a range.",
            where="argument box",
            hint="Give the smaller bound first.",
        )
    return low, high


def _check_sides(bounds: list[tuple[float, float]]) -> None:
    """Check that the sides of a box are representable and not too different in length; raises `PlaneError`."""
    one, two = (high / 2 - low / 2 for low, high in bounds)  # halved: a difference may overflow
    if not np.isfinite([2 * one, 2 * two]).all():
        raise PlaneError("The box is too large for float64.", where="argument box", hint="Give a smaller box.")
    if min(one, two) <= OFF_PLANE_TOLERANCE * max(one, two):
        raise PlaneError(
            f"One side of the box is {max(one, two) / max(min(one, two), 5e-324):.1e} times as long as the other.",
            where="argument box",
            hint="Use xl.restrict for a line, or rescale one of the features.",
        )


def _feature_index(axis: Any, point: Tensor) -> int:
    """The position of a feature in the flattened input; raises `PlaneError`."""
    try:
        if any(isinstance(i, bool) for i in (axis if isinstance(axis, (tuple, list)) else (axis,))):
            raise TypeError
        index = tuple(map(as_index, axis)) if isinstance(axis, (tuple, list)) else as_index(axis)
        if isinstance(index, tuple):
            if len(index) != point.dim():
                raise IndexError
            return int(
                np.ravel_multi_index(
                    [i % s if -s <= i < s else s for i, s in zip(index, point.shape, strict=True)], point.shape
                )
            )
        if not -point.numel() <= index < point.numel():
            raise IndexError
        return index % point.numel()
    except (IndexError, ValueError, TypeError) as problem:
        raise PlaneError(
            f"{axis!r} is not a position in an input of shape {tuple(point.shape)}.",
            where="argument axes",
            hint="Give an index into the flattened input, or one index for each dim.",
        ) from problem
