"""A user's polygon, checked: three or more points of one plane, in convex order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...arrays import Floats
from ...errors import LineError, PlaneError
from ...lines import points_of

OFF = 1e-9  # how far corners may be off one plane, as a share of their extent
STRAIGHT = 1e-12  # turns smaller than this are none


@dataclass(frozen=True)
class Outline:
    """A convex polygon in input space, with orthonormal coordinates in its plane."""

    corners: tuple[Tensor, ...]  # (k, *in) each
    places: Floats  # (k, 2) plane coordinates, counterclockwise
    origin: Floats  # (n,) all inputs in one row: the point of coordinates 0, 0
    axes: Floats  # (2, n)


def outline(vertices: Any) -> Outline:
    """Check a user's corners and lay coordinates: from the first corner, first towards the second."""
    corners = _corners(vertices)
    flat = np.concatenate([c.reshape(len(c), -1).numpy() for c in corners], 1)
    # a power of two, so that points far from the origin keep all digits of their distances
    scale = float(np.ldexp(1.0, int(np.frexp(np.abs(flat).max(initial=0.0))[1]) - 1))
    shifted = flat / scale - flat[0] / scale
    size = float(np.abs(shifted).max(initial=0.0))
    where, apart = "argument vertices", _closest(shifted)
    if apart == 0:
        raise PlaneError("Two corners are the same point.", where=where, hint="Give each corner once.")
    first = shifted[1] / np.linalg.norm(shifted[1])
    off = shifted - np.outer(shifted @ first, first)
    far = int(np.linalg.norm(off, axis=1).argmax())
    if np.linalg.norm(off[far]) <= OFF * size:
        raise PlaneError(
            "The corners lie on one line.",
            where=where,
            hint="For a line there is xl.restrict.",
        )
    second = off[far] - (off[far] @ first) * first
    second /= np.linalg.norm(second)
    places = np.stack([shifted @ first, shifted @ second], 1)
    astray = np.abs(shifted - places @ np.stack([first, second])).max()
    if astray > OFF * size:
        raise PlaneError(
            f"The corners do not lie in one plane: one is off it by {astray / size:.1e} of their extent.",
            where=where,
            hint="Give three corners, or compute the others from them in float64.",
        )
    if _area(places) < 0:
        places[:, 1], second = -places[:, 1], -second
    _convex(places, where)
    with np.errstate(over="ignore"):
        found = places * scale
    if not np.isfinite(found).all():
        raise PlaneError("The polygon is too large for float64.", where=where, hint="Give corners closer together.")
    return Outline(corners, found, flat[0], np.stack([first, second]))


def _corners(vertices: Any) -> tuple[Tensor, ...]:
    where = "argument vertices"
    try:
        corners = points_of(vertices, "vertices")
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


def shapes_fit(corners: Sequence[Tensor], shapes: Sequence[tuple[int, ...]]) -> None:
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


def _closest(points: Floats) -> float:
    """The smallest distance between two of the points, by their largest coordinate."""
    best = np.inf
    for i in range(1, len(points)):
        best = min(best, float(np.abs(points[:i] - points[i]).max(1).min()))
    return best


def _area(places: Floats) -> float:
    x, y = places[:, 0], places[:, 1]
    return float((x * np.roll(y, -1) - y * np.roll(x, -1)).sum() / 2)


def _convex(places: Floats, where: str) -> None:
    step = np.roll(places, -1, 0) - places
    onward = np.roll(step, -1, 0)
    cross = step[:, 0] * onward[:, 1] - step[:, 1] * onward[:, 0]
    turn = np.arctan2(cross, (step * onward).sum(1))
    if (turn < -STRAIGHT).any() or abs(turn.sum() - 2 * pi) > 1e-6:
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
    points = [points_of(x, name) for x, name in ((x0, "x0"), (x1, "x1"), (x2, "x2"))]
    if len({tuple(t.shape for t in p) for p in points}) > 1:
        raise PlaneError(
            "The three inputs have different shapes.", where="arguments x0, x1, x2", hint="Give three of one shape."
        )
    corners = tuple(torch.stack(group) for group in zip(*points, strict=True))
    given = outline(corners).places
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


def place_of(value: Any, name: str) -> Any:
    """A user's point of the plane as an array (2,)."""
    found = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
    if found.shape != (2,):
        raise PlaneError(f"{name} is not a point of the plane.", where=f"argument {name}", hint="Give two coordinates.")
    return found


def places_of(points: Any) -> Floats:
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
