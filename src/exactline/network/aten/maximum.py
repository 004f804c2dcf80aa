"""Rules for maxima and order statistics."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...ops import windows
from ...ops.maximum import Maximum
from ...ops.order import Order
from ..builder import Barred, Builder, Refused, Value
from .affine import dims_of
from .registry import Args, rule

INDICES = Barred("uses the indices of a maximum or a sort, which jump")


@rule(
    *("max_pool1d", "max_pool2d", "max_pool3d"),
    *("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices"),
)
def max_pool(b: Builder, a: Args) -> Value:
    x = b.data(a["self"])
    several = isinstance(b.shape[0], tuple)
    shape = b.shape[0] if several else b.shape
    spatial = int(b.target[8])
    if len(x.shape) != spatial + 1:
        raise Refused(f"expects {spatial + 1} dims after the batch dimension, found {len(x.shape)}")
    kernel = _each(a["kernel_size"], spatial)
    stride = _each(a["stride"] or kernel, spatial)
    padding, dilation = _each(a["padding"], spatial), _each(a["dilation"], spatial)
    table = windows.pool_windows(x.shape[1:], shape[1:], kernel, stride, padding, dilation)
    if bool((table < 0).any()):
        raise Refused("has a window that lies wholly in the padding, where the maximum is minus infinity")
    table = windows.repeat_for_channels(table, x.shape[0], x.shape[1:])
    native = None
    if spatial == 2:
        settings = (kernel, stride, padding, dilation, bool(a["ceil_mode"]))
        native = _native_pool(settings, x.shape[1] * x.shape[2])
    made = b.add(Maximum(table, tuple(shape), native=native, name=b.target[:10]), [x], shape)
    return (made, INDICES) if several else made


@rule("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(b: Builder, a: Args) -> Value:
    x, shape = b.data(a["self"]), b.shape[0]
    table = windows.repeat_for_channels(windows.adaptive_windows(x.shape[1:], shape[1:]), x.shape[0], x.shape[1:])
    return b.add(Maximum(table, tuple(shape), name="adaptive_max_pool"), [x], shape), INDICES


@rule("amax", "amin", "max.dim", "min.dim", "aminmax")
def reduce(b: Builder, a: Args) -> Value:
    x = b.data(a["self"])
    dims = [d - 1 for d in dims_of(a, x)]
    if not prod(x.shape[d] for d in dims):
        raise Refused("takes the maximum of nothing")
    several = bool(b.shape) and isinstance(b.shape[0], tuple)
    shape = b.shape[0] if several else b.shape
    table = windows.reduction_windows(x.shape, dims)
    lowest = Maximum(table, tuple(shape), -1, name="min")
    highest = Maximum(table, tuple(shape), name="max")
    if b.target.startswith("aminmax"):
        return b.add(lowest, [x], shape), b.add(highest, [x], shape)
    made = b.add(lowest if "min" in b.target else highest, [x], shape)
    return (made, INDICES) if several else made


@rule("cummax", "cummin")
def cumulative(b: Builder, a: Args) -> Value:
    x, shape = b.data(a["self"]), b.shape[0]
    (dim,) = (d - 1 for d in dims_of(a, x))
    rows = windows.reduction_windows(x.shape, [dim])  # (others, length)
    length = rows.shape[1]
    places = torch.arange(length)[None].expand(length, -1).minimum(torch.arange(length)[:, None])
    table = torch.zeros(prod(x.shape), length, dtype=torch.int64)
    table[rows.flatten()] = rows[:, places].reshape(-1, length)
    sign = 1 if b.target.startswith("cummax") else -1
    return b.add(Maximum(table, tuple(shape), sign, name=b.target.split(".")[0]), [x], shape), INDICES


def binary_maximum(b: Builder, left: Value, right: Value, sign: int) -> Value:
    """The larger (or smaller) of two branches, element by element."""
    one, two = b.data(left), b.data(right)
    shape = torch.broadcast_shapes((1, *one.shape), (1, *two.shape))[1:]
    pair = [b.expanded(one, shape), b.expanded(two, shape)]
    both = b.rearranged(lambda p, q: torch.stack([p, q], 1), pair, "stack")
    count = prod(shape)
    table = torch.stack([torch.arange(count), torch.arange(count) + count], 1)
    return b.add(Maximum(table, tuple(shape), sign, name="maximum" if sign > 0 else "minimum"), [both], shape)


@rule("sort", "topk", "median.dim", "kthvalue", "sort.stable")
def order(b: Builder, a: Args) -> Value:
    x = b.data(a["self"])
    dim = dims_of({"dim": a.get("dim", 1)}, x)[0] - 1
    length = x.shape[dim]
    if not length:
        raise Refused("orders nothing")
    name = b.target.split(".")[0]
    backwards = torch.arange(length - 1, -1, -1)
    ranks = {
        "sort": torch.arange(length) if a.get("descending") else backwards,
        "topk": torch.arange(a.get("k", 0)) if a.get("largest") else backwards[: a.get("k", 0)],
        "median": backwards[(length - 1) // 2, None],
        "kthvalue": backwards[a.get("k", 1) - 1, None],
    }[name]
    table = windows.reduction_windows(x.shape, [dim])
    others = [n for d, n in enumerate(x.shape) if d != dim]
    made = b.add(Order(table, ranks, (*others, len(ranks)), name), [x], (*others, len(ranks)))
    shape = b.shape[0] if isinstance(b.shape[0], tuple) else b.shape
    moved = b.rearranged(lambda n: n.movedim(-1, dim + 1).reshape(1, *shape), [made], "permute")
    return (moved, INDICES) if isinstance(b.shape[0], tuple) else moved


def _native_pool(settings: tuple[Any, ...], plane: int) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Torch's own pool, whose indices count within a channel, with positions in the whole point."""
    kernel, stride, padding, dilation, ceil = settings

    def native(x: Tensor) -> tuple[Tensor, Tensor]:
        values, index = F.max_pool2d(x, kernel, stride, padding, dilation, ceil, return_indices=True)
        start = torch.arange(x.shape[1], device=x.device).view(1, -1, 1, 1) * plane
        return values.flatten(1), (index + start).flatten(1)

    return native


def _each(value: int | list[int], count: int) -> list[int]:
    values = [value] if isinstance(value, int) else list(value)
    return values * count if len(values) == 1 else values
