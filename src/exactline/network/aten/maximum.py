"""Rules for maxima and order statistics."""

from __future__ import annotations

from math import prod

import torch

from ...ops import windows
from ...ops.maximum import Maximum
from ...ops.order import Order
from ..builder import GraphBuilder, UnsupportedOperator, UnusableValue, Value
from ..calls import NativePool
from .affine import expand_per_dim, resolve_dims
from .registry import Args, rule

UNUSABLE_INDICES = UnusableValue("uses the indices of a maximum or a sort, which are discontinuous")


@rule(
    *("max_pool1d", "max_pool2d", "max_pool3d"),
    *("max_pool1d_with_indices", "max_pool2d_with_indices", "max_pool3d_with_indices"),
)
def max_pool(graph: GraphBuilder, args: Args) -> Value:
    x = graph.as_node_output(args["self"])
    several = isinstance(graph.shape[0], tuple)
    shape = graph.shape[0] if several else graph.shape
    spatial = int(graph.target[8])
    if len(x.shape) != spatial + 1:
        raise UnsupportedOperator(f"expects {spatial + 1} dimensions after the batch dimension, found {len(x.shape)}")
    kernel = expand_per_dim(args["kernel_size"], spatial)
    stride = expand_per_dim(args["stride"] or kernel, spatial)
    padding, dilation = expand_per_dim(args["padding"], spatial), expand_per_dim(args["dilation"], spatial)
    table = windows.pool_windows(x.shape[1:], shape[1:], kernel, stride, padding, dilation)
    if bool((table < 0).any()):
        raise UnsupportedOperator("has a window of padding only, where the maximum is minus infinity")
    table = windows.repeat_for_channels(table, x.shape[0], x.shape[1:])
    native = None
    if spatial == 2:
        settings = (kernel, stride, padding, dilation, bool(args["ceil_mode"]))
        native = NativePool(settings, x.shape[1] * x.shape[2])
    output = graph.add_node(Maximum(table, tuple(shape), native=native, name=graph.target[:10]), [x], shape)
    return (output, UNUSABLE_INDICES) if several else output


@rule("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(graph: GraphBuilder, args: Args) -> Value:
    x, shape = graph.as_node_output(args["self"]), graph.shape[0]
    table = windows.repeat_for_channels(windows.adaptive_windows(x.shape[1:], shape[1:]), x.shape[0], x.shape[1:])
    return graph.add_node(Maximum(table, tuple(shape), name="adaptive_max_pool"), [x], shape), UNUSABLE_INDICES


@rule("amax", "amin", "max.dim", "min.dim", "aminmax")
def reduce(graph: GraphBuilder, args: Args) -> Value:
    x = graph.as_node_output(args["self"])
    dims = [d - 1 for d in resolve_dims(args, x)]
    if not prod(x.shape[d] for d in dims):
        raise UnsupportedOperator("reduces an empty dimension")
    several = bool(graph.shape) and isinstance(graph.shape[0], tuple)
    shape = graph.shape[0] if several else graph.shape
    table = windows.reduction_windows(x.shape, dims)
    lowest = Maximum(table, tuple(shape), -1, name="min")
    highest = Maximum(table, tuple(shape), name="max")
    if graph.target.startswith("aminmax"):
        return graph.add_node(lowest, [x], shape), graph.add_node(highest, [x], shape)
    output = graph.add_node(lowest if "min" in graph.target else highest, [x], shape)
    return (output, UNUSABLE_INDICES) if several else output


@rule("cummax", "cummin")
def cumulative(graph: GraphBuilder, args: Args) -> Value:
    x, shape = graph.as_node_output(args["self"]), graph.shape[0]
    (dim,) = (d - 1 for d in resolve_dims(args, x))
    rows = windows.reduction_windows(x.shape, [dim])  # (others, length)
    length = rows.shape[1]
    prefixes = torch.arange(length)[None].expand(length, -1).minimum(torch.arange(length)[:, None])
    table = torch.zeros(prod(x.shape), length, dtype=torch.int64)
    table[rows.flatten()] = rows[:, prefixes].reshape(-1, length)
    sign = 1 if graph.target.startswith("cummax") else -1
    op = Maximum(table, tuple(shape), sign, name=graph.target.split(".")[0])
    return graph.add_node(op, [x], shape), UNUSABLE_INDICES


def binary_maximum(graph: GraphBuilder, left: Value, right: Value, sign: int) -> Value:
    """Append the elementwise maximum of two values, or their minimum where ``sign`` is -1."""
    one, two = graph.as_node_output(left), graph.as_node_output(right)
    shape = torch.broadcast_shapes((1, *one.shape), (1, *two.shape))[1:]
    pair = [graph.expand(one, shape), graph.expand(two, shape)]
    both = graph.rearrange(lambda p, q: torch.stack([p, q], 1), pair, "stack")
    count = prod(shape)
    table = torch.stack([torch.arange(count), torch.arange(count) + count], 1)
    return graph.add_node(Maximum(table, tuple(shape), sign, name="maximum" if sign > 0 else "minimum"), [both], shape)


@rule("sort", "topk", "median.dim", "kthvalue", "sort.stable")
def order(graph: GraphBuilder, args: Args) -> Value:
    x = graph.as_node_output(args["self"])
    dim = resolve_dims({"dim": args.get("dim", 1)}, x)[0] - 1
    length = x.shape[dim]
    if not length:
        raise UnsupportedOperator("sorts an empty dimension")
    name = graph.target.split(".")[0]
    ascending = torch.arange(length - 1, -1, -1)
    ranks = {
        "sort": torch.arange(length) if args.get("descending") else ascending,
        "topk": torch.arange(args.get("k", 0)) if args.get("largest") else ascending[: args.get("k", 0)],
        "median": ascending[(length - 1) // 2, None],
        "kthvalue": ascending[args.get("k", 1) - 1, None],
    }[name]
    table = windows.reduction_windows(x.shape, [dim])
    others = [n for d, n in enumerate(x.shape) if d != dim]
    ranked = graph.add_node(Order(table, ranks, (*others, len(ranks)), name), [x], (*others, len(ranks)))
    shape = graph.shape[0] if isinstance(graph.shape[0], tuple) else graph.shape
    output = graph.rearrange(lambda x: x.movedim(-1, dim + 1).reshape(1, *shape), [ranked], "permute")
    return (output, UNUSABLE_INDICES) if isinstance(graph.shape[0], tuple) else output
