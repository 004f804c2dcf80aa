"""The questions: restrict a network to a plane, or vary two of its features."""

from __future__ import annotations

import time
from operator import index as as_index
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .api import chosen_device, free_memory, whole_number
from .engines.polygons.assemble import Collector
from .engines.polygons.polygon_input import OFF, Outline, outline, shapes_fit
from .engines.polygons.state import Frame
from .engines.polygons.sweep import cut_plane
from .errors import ArgumentError, PlaneError
from .fp_context import precise
from .lines import points_of
from .network import as_network
from .numerics.plan import plan
from .progress import Report, reporter
from .results.plane import PlaneRestriction

FEWEST = 256  # corners of a part


def restrict_plane(
    model: Any,
    vertices: Any,
    *,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
    memory: int | None = None,
    values: bool = True,
    progress: bool | Report = False,
    rewrite: bool = True,
    until: str | None = None,
) -> PlaneRestriction:
    """Cut a convex polygon of input space into all polygons on which the network is affine.

    ``vertices`` are its three or more corners (k, *in), in order and in one plane; tuples of such where the model
    takes several inputs. The other options are those of ``restrict``.

    >>> import exactline as xl
    >>> len(xl.restrict_plane(torch.nn.ReLU(), [[-1.0, -1.0], [1.0, -1.0], [0.0, 1.0]]))
    4

    Raises PlaneError, CaptureError, UnsupportedError, NumberError, ArgumentError.
    """
    return _restricted(
        model, outline(vertices), dtype, device, memory, values=values, progress=progress, rewrite=rewrite, until=until
    )


def grid(
    model: Any,
    base: Any,
    axes: tuple[Any, Any] = (0, 1),
    box: Any = ((0.0, 1.0), (0.0, 1.0)),
    *,
    dtype: torch.dtype = torch.float64,
    device: torch.device | str | None = None,
    memory: int | None = None,
    values: bool = True,
    progress: bool | Report = False,
    rewrite: bool = True,
    until: str | None = None,
) -> PlaneRestriction:
    """Vary two features of an input over a box, all others as in ``base``; plane coordinates are the two features.

    ``axes`` are two positions in the input: numbers, or tuples of them where the input has several dims.

    >>> import exactline as xl
    >>> plane = xl.grid(torch.nn.ReLU(), [0.0, 3.0, 0.0], axes=(0, 2), box=((-1, 1), (-2, 2)))
    >>> len(plane), plane.at([[0.5, -1.0]]).tolist()
    (4, [[0.5, 3.0, 0.0]])
    """
    (start,) = points_of(base, "base") if not isinstance(base, tuple) else (None,)
    if start is None:
        raise PlaneError("A grid needs a network of one input.", where="argument base", hint="Use xl.restrict_plane.")
    first, second = (_position(axis, start) for axis in _two(axes, "axes", "two positions, such as (0, 1)"))
    if first == second:
        raise PlaneError("Both axes are the same feature.", where="argument axes", hint="Name two features.")
    bounds = [_range(side) for side in _two(box, "box", "two ranges, such as ((0, 1), (0, 1))")]
    _sides(bounds)
    places = np.array([[bounds[0][i], bounds[1][j]] for i, j in ((0, 0), (1, 0), (1, 1), (0, 1))])
    corners = start.reshape(1, -1).repeat(4, 1)
    corners[:, first], corners[:, second] = torch.from_numpy(places.T.copy())
    origin, directions = start.reshape(-1).numpy().copy(), np.zeros((2, start.numel()))
    origin[[first, second]] = 0.0
    directions[0, first] = directions[1, second] = 1.0
    made = Outline((corners.view(4, *start.shape),), places, origin, directions)
    return _restricted(
        model, made, dtype, device, memory, values=values, progress=progress, rewrite=rewrite, until=until
    )


def _restricted(
    model: Any,
    made: Outline,
    dtype: torch.dtype,
    device: torch.device | str | None,
    memory: int | None,
    *,
    values: bool,
    progress: bool | Report,
    rewrite: bool,
    until: str | None,
) -> PlaneRestriction:
    if dtype not in (torch.float64, torch.float32):
        raise ArgumentError(
            f"dtype must be torch.float64 or torch.float32, not {dtype}.",
            where="argument dtype",
            hint="float64 is the default; float32 finds false polygons.",
        )
    budget, place = whole_number("memory", memory), chosen_device(model, device)
    began = time.perf_counter()
    with precise(kernels=False):
        network = as_network(model, [c[0] for c in made.corners], rewrite=rewrite, until=until)
        shapes_fit(made.corners, [network.nodes[i].shape for i in network.inputs])
        moved = network
        if (place, dtype) != (torch.device("cpu"), torch.float64):
            points = [c[0] for c in made.corners]
            moved = as_network(model, points, rewrite=rewrite, until=until, device=place, dtype=dtype)
    extent = float(np.ptp(made.places, axis=0).max())
    frame = Frame(tuple(c.to(place, dtype) for c in made.corners), made.places / extent - made.places[0] / extent)
    collector = Collector(network, values)
    # wherever the network is, the polygons are kept in the memory of the host
    most = max(FEWEST, plan(moved).points(free_memory(torch.device("cpu")) if budget is None else budget))
    with reporter(progress) as report, precise():
        done = 0.0
        for part in cut_plane(moved, frame, most):
            collector.take(part)
            if report is not None:
                done += part.share()
                report(min(done, 1.0), collector.polygons)
        cells = collector.whole(frame.places)
    arrays = (cells.weights, cells.ends, cells.born, cells.sides, cells.offsets, cells.rings)
    return PlaneRestriction(
        made.corners,
        *(torch.from_numpy(a) for a in (made.places, made.origin, made.axes)),
        *map(torch.from_numpy, arrays),
        kept=cells.values,
        names=tuple(n.name for n in network.nodes),
        network=network,
        units=network.units,
        several_inputs=network.several_inputs,
        several_outputs=network.several_outputs,
        dtype=dtype,
        seconds=time.perf_counter() - began,
        unresolved=cells.unresolved,
        rewrite=rewrite,
        until=until,
    )


def _two(value: Any, name: str, wanted: str) -> tuple[Any, Any]:
    found = tuple(value) if isinstance(value, (tuple, list)) or hasattr(value, "__len__") else ()
    if len(found) != 2:
        raise PlaneError(f"{name} must be {wanted}.", where=f"argument {name}", hint=f"Give {wanted}.")
    return found[0], found[1]


def _range(side: Any) -> tuple[float, float]:
    low, high = _two(side, "box", "two ranges, such as ((0, 1), (0, 1))")
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


def _sides(bounds: list[tuple[float, float]]) -> None:
    """Refuse a box that float64 cannot tell from a line, or whose sides it cannot hold."""
    one, two = (high / 2 - low / 2 for low, high in bounds)
    if not np.isfinite([2 * one, 2 * two]).all():
        raise PlaneError("The box is too large for float64.", where="argument box", hint="Give a smaller box.")
    if min(one, two) <= OFF * max(one, two):
        raise PlaneError(
            f"One side of the box is {max(one, two) / max(min(one, two), 5e-324):.1e} times as long as the other.",
            where="argument box",
            hint="For a line there is xl.restrict; or let the features have units of about one size.",
        )


def _position(axis: Any, start: Tensor) -> int:
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
