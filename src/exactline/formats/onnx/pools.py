"""Pools, and changes of resolution."""

from __future__ import annotations

from math import floor, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...network.builder import Data, Refused
from ...ops import windows
from ...ops.maximum import Maximum
from .. import limits
from .shapes import picked
from .values import Call, Value, given, operator
from .windows import paddings, pooled


class _Pool:
    """The settings of a pool on one input."""

    def __init__(self, c: Call, x: Data) -> None:
        self.kernel = c.ints("kernel_shape")
        self.size = list(x.shape[1:])
        spatial = len(self.kernel)
        if not 1 <= spatial <= 3 or len(self.size) != spatial:
            raise c.damaged(f"The window has {spatial} dims and the input {len(self.size)} after its channels.")
        self.strides, self.dilations = c.ints("strides", [1] * spatial), c.ints("dilations", [1] * spatial)
        self.before, self.after = paddings(c, self.size, self.kernel, self.strides, self.dilations)
        self.ceil = bool(c.get("ceil_mode", 0))
        numbers = (self.size, self.kernel, self.strides, self.dilations, self.before, self.after)
        self.out = pooled(*numbers, self.ceil)
        if any(o < 1 for o in self.out):
            raise c.damaged("The window is larger than its input.")
        limits.within(prod(self.out) * prod(self.kernel) * x.shape[0], limits.TABLES, "places in windows", c.name)

    @property
    def plain(self) -> bool:
        """Whether torch's own pool means the same."""
        half = all(2 * p <= k for p, k in zip(self.before, self.kernel, strict=True))
        return self.before == self.after and half

    @property
    def positions(self) -> Tensor:
        return windows.pool_windows(self.size, self.out, self.kernel, self.strides, self.before, self.dilations)


@operator("MaxPool")
def max_pool(c: Call, inputs: list[Value]) -> Value:
    x = c.leading(inputs[0])
    pool = _Pool(c, x)
    spatial = len(pool.kernel)
    if pool.plain and spatial == 2:
        settings: list[Any] = [pool.kernel, pool.strides, pool.before, pool.dilations, pool.ceil]
        made = c.call("max_pool2d", x, *settings)
        if list(made.shape[1:]) == pool.out:
            return c.led(made)
    table = pool.positions
    if bool((table < 0).any()):
        raise Refused("has a window that lies wholly in the padding, where the maximum is minus infinity")
    shape = (x.shape[0], *pool.out)
    table = windows.repeat_for_channels(table, x.shape[0], pool.size)
    return c.led(c.sketch.builder.add(Maximum(table, shape, name=f"max_pool{spatial}d"), [x], shape))


@operator("AveragePool")
def average_pool(c: Call, inputs: list[Value]) -> Value:
    x = c.leading(inputs[0])
    pool = _Pool(c, x)
    spatial = len(pool.kernel)
    include, undilated = bool(c.get("count_include_pad", 0)), all(d == 1 for d in pool.dilations)
    if pool.plain and undilated:
        made = c.call(f"avg_pool{spatial}d", x, pool.kernel, pool.strides, pool.before, pool.ceil, include)
        if list(made.shape[1:]) == pool.out:
            return c.led(made)
    # a sum over each window, then a division by how many of its places count
    reach = [
        max(0, (o - 1) * s + (k - 1) * d + 1 - n - p)
        for o, s, k, d, n, p in zip(
            pool.out, pool.strides, pool.kernel, pool.dilations, pool.size, pool.before, strict=True
        )
    ]
    pads = [p for pair in zip(reversed(pool.before), reversed(reach), strict=True) for p in pair]
    wide = c.call("constant_pad_nd", x, pads, 0.0) if any(pads) else x
    ones = torch.ones(x.shape[0], 1, *pool.kernel, dtype=torch.float64)
    kind: list[Any] = [pool.strides, [0] * spatial, pool.dilations, x.shape[0]]
    sums = c.call(f"conv{spatial}d", wide, ones, None, *kind)
    within = torch.ones(1, 1, *pool.size, dtype=torch.float64)
    if include:  # padding counts, what ceil_mode adds behind it does not
        both = [p for pair in zip(reversed(pool.before), reversed(pool.after), strict=True) for p in pair]
        within = torch.nn.functional.pad(within, both, value=1.0)
        rest = [v for q, r in zip(reversed(pool.after), reversed(reach), strict=True) for v in (0, r - q)]
        within = torch.nn.functional.pad(within, rest)
    else:
        within = torch.nn.functional.pad(within, pads)
    counts = c.call(f"conv{spatial}d", within, ones[:1], None, *kind[:3], 1)
    return c.led(c.call("div.Tensor", sums, counts))


@operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(c: Call, inputs: list[Value]) -> Value:
    x = c.leading(inputs[0])
    dims = list(range(2, len(x.shape) + 1))
    if not dims:
        raise c.damaged("There is nothing to pool.")
    return c.led(c.call("mean.dim" if c.kind == "GlobalAveragePool" else "amax", x, dims, keepdim=True))


@operator("Resize", "Upsample")
def resize(c: Call, inputs: list[Value]) -> Value:
    held = c.held(inputs[0])
    mode = c.get("mode", "nearest")
    linear = mode in ("linear", "bilinear", "trilinear")
    if not linear and mode != "nearest":
        raise Refused(f"interpolates in mode {str(mode)[:40]!r}, which is not supported")
    if c.get("antialias", 0) or c.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Refused("resizes in a way that is not supported")
    old = c.kind == "Upsample" or c.opset < 11
    way = "asymmetric" if old else c.get("coordinate_transformation_mode", "half_pixel")
    for axis, scale, size in _targets(c, inputs, held.shape):
        length = held.shape[axis]
        if size == length and scale == 1:
            continue
        if linear:
            limits.within(size * length, limits.WIDTH, "weights of an interpolation", c.sketch.where)
        places = _places(c, way, length, size, scale)
        if linear:
            held = c.along(held, [axis], lambda x, d, p=places, n=length: _interpolated(c, x, d[0], p, n))
        else:
            chosen = _nearest(c, places, length, "floor" if old else c.get("nearest_mode", "round_prefer_floor"))
            held = picked(c, held, axis, chosen)
    return held


def _targets(c: Call, inputs: list[Value], shape: tuple[int, ...]) -> list[tuple[int, float, int]]:
    """Axis, scale and new size of every axis that is resized."""
    rank = len(shape)
    place = 1 if c.kind == "Upsample" or c.opset < 11 else 2
    scales, sizes = given(inputs, place), given(inputs, 3) if place == 2 else None
    axes = c.axes(c.ints("axes", range(rank)), rank)
    if c.kind == "Upsample" and scales is None:
        scales = torch.tensor(c.get("scales", []), dtype=torch.float64)
    if sizes is not None:
        wanted = c.whole(sizes, "its sizes")
        ratios = [w / max(shape[a], 1) for w, a in zip(wanted, axes, strict=True)]
    else:
        ratios = c.constant(scales, "its scales").to(torch.float64).reshape(-1).tolist()
        wanted = [floor(shape[a] * r) for a, r in zip(axes, ratios, strict=True)]
    if any(not 0 < r < 1e9 for r in ratios):
        raise c.damaged("A scale is not positive.")
    limits.sized(wanted, "the result", c.sketch.where, limits.WIDTH)
    if any(w < 1 for w in wanted):
        raise c.damaged("It resizes to nothing.")
    return list(zip(axes, ratios, wanted, strict=True))


def _places(c: Call, way: str, length: int, size: int, scale: float) -> np.ndarray[Any, Any]:
    """Where each new element lies among the old ones."""
    new = np.arange(size, dtype=np.float64)
    if way == "asymmetric":
        return new / scale
    if way == "align_corners":
        return new * ((length - 1) / (size - 1)) if size > 1 else new * 0.0
    if way == "half_pixel" or (way == "pytorch_half_pixel" and size > 1):
        return (new + 0.5) / scale - 0.5
    if way == "pytorch_half_pixel":
        return new * 0.0
    if way == "half_pixel_symmetric":
        shift = length / 2 * (1 - size / (scale * length))
        return shift + (new + 0.5) / scale - 0.5
    raise Refused(f"uses the coordinates {str(way)[:40]!r}, which are not supported")


def _nearest(c: Call, places: np.ndarray[Any, Any], length: int, way: str) -> np.ndarray[Any, Any]:
    ways = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_floor": lambda x: np.ceil(x - 0.5),
        "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    }
    if way not in ways:
        raise c.damaged(f"nearest_mode {str(way)[:40]!r} does not exist.")
    return np.clip(ways[way](places), 0, length - 1).astype(np.int64)


def _interpolated(c: Call, x: Data, dim: int, places: np.ndarray[Any, Any], length: int) -> Any:
    """Weights of two neighbours, as a product along one dim."""
    left = np.floor(places).astype(np.int64)
    part = places - left
    matrix = np.zeros((len(places), length))
    rows = np.arange(len(places))
    np.add.at(matrix, (rows, np.clip(left, 0, length - 1)), 1 - part)
    np.add.at(matrix, (rows, np.clip(left + 1, 0, length - 1)), part)
    last = len(x.shape)
    moved = x if dim == last else c.call("transpose.int", x, dim, last)
    made = c.call("linear", moved, torch.from_numpy(matrix), None)
    return made if dim == last else c.call("transpose.int", made, dim, last)


@operator("TopK")
def top_k(c: Call, inputs: list[Value]) -> Value:
    held = c.held(inputs[0])
    count = c.whole(inputs[1], "its number")[0] if len(inputs) > 1 else int(c.number("k", 0))
    (axis,) = c.axes([int(c.number("axis", -1))], len(held.shape))
    if not 1 <= count <= held.shape[axis]:
        raise c.damaged(f"It asks for {count} of {held.shape[axis]} elements.")
    largest = bool(c.get("largest", 1))
    # the indices jump; whoever uses them is told
    return c.along(held, [axis], lambda x, d: c.call("topk", x, count, d[0], largest, True)[0])
