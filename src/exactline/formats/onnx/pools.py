"""Read pools and TopK."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from ...network.builder import NodeOutput, UnsupportedOperator
from ...ops import windows
from ...ops.maximum import Maximum
from .. import limits
from .arithmetic import elementwise
from .unsupported import explain_unsupported
from .values import OnnxNode, Value, operator, read_rows
from .windows import compute_pool_sizes, resolve_padding


class _PoolSettings:
    """The window sizes of a pool for one input, each a list with one number for each spatial dimension."""

    def __init__(self, node: OnnxNode, x: NodeOutput) -> None:
        self.kernel = node.get_ints("kernel_shape")
        self.size = list(x.shape[1:])
        spatial = len(self.kernel)
        if not 1 <= spatial <= 3 or len(self.size) != spatial:
            raise node.make_error(
                f"The window has {spatial} dimensions, but the input has {len(self.size)} after its channels."
            )
        self.strides = node.get_ints("strides", [1] * spatial)
        self.dilations = node.get_ints("dilations", [1] * spatial)
        self.before, self.after = resolve_padding(node, self.size, self.kernel, self.strides, self.dilations)
        self.ceil = bool(node.get_attribute("ceil_mode", 0))
        self.out = compute_pool_sizes(
            size=self.size,
            kernel=self.kernel,
            strides=self.strides,
            dilations=self.dilations,
            before=self.before,
            after=self.after,
            ceil=self.ceil,
        )
        if any(o < 1 for o in self.out):
            raise node.make_error("The window is larger than its input.")
        entries = prod(self.out) * prod(self.kernel) * x.shape[0]
        limits.check_limit(entries, limits.MAX_TABLE_ENTRIES, "elements in pooling windows", node.name)

    @property
    def matches_torch(self) -> bool:
        """Whether torch's pools allow this padding."""
        at_most_half = all(2 * p <= k for p, k in zip(self.before, self.kernel, strict=True))
        return self.before == self.after and at_most_half

    @property
    def window_ends(self) -> list[int]:
        """How far the last window reaches beyond the input."""
        sizes = (self.out, self.strides, self.kernel, self.dilations, self.size, self.before)
        return [max(0, (o - 1) * s + (k - 1) * d + 1 - n - p) for o, s, k, d, n, p in zip(*sizes, strict=True)]

    @property
    def window_pads(self) -> list[int]:
        """The padding that all windows need, in torch's order: the last dimension first."""
        return [p for pair in zip(reversed(self.before), reversed(self.window_ends), strict=True) for p in pair]

    @property
    def window_table(self) -> Tensor:
        """(windows, elements) flat positions in one channel; -1 in a window of padding only."""
        return windows.pool_windows(self.size, self.out, self.kernel, self.strides, self.before, self.dilations)


@operator("MaxPool")
@read_rows(0)
def max_pool(node: OnnxNode, inputs: list[Value]) -> Value:
    x = node.as_batched(inputs[0])
    pool = _PoolSettings(node, x)
    spatial = len(pool.kernel)
    if pool.matches_torch and spatial == 2:
        settings: list[Any] = [pool.kernel, pool.strides, pool.before, pool.dilations, pool.ceil]
        output = node.call("max_pool2d", x, *settings)
        if list(output.shape[1:]) == pool.out:
            return node.make_batched(output)
    table = pool.window_table
    if bool((table < 0).any()):
        raise UnsupportedOperator("has a window of padding only, where the maximum is minus infinity")
    shape = (x.shape[0], *pool.out)
    table = windows.repeat_for_channels(table, x.shape[0], pool.size)
    return node.make_batched(
        node.recorder.graph.add_node(Maximum(table, shape, name=f"max_pool{spatial}d"), [x], shape)
    )


@operator("AveragePool")
@read_rows(0)
def average_pool(node: OnnxNode, inputs: list[Value]) -> Value:
    x = node.as_batched(inputs[0])
    pool = _PoolSettings(node, x)
    spatial = len(pool.kernel)
    include, is_dilated = bool(node.get_attribute("count_include_pad", 0)), any(d != 1 for d in pool.dilations)
    if pool.matches_torch and not is_dilated:
        output = node.call(f"avg_pool{spatial}d", x, pool.kernel, pool.strides, pool.before, pool.ceil, include)
        if list(output.shape[1:]) == pool.out:
            return node.make_batched(output)
    # the sum over each window divided by the number of elements that count
    counted = torch.ones(1, 1, *pool.size, dtype=torch.float64)  # 1 for each element that counts
    if include:  # padding counts, but what ceil_mode adds after it does not
        both = [p for pair in zip(reversed(pool.before), reversed(pool.after), strict=True) for p in pair]
        counted = torch.nn.functional.pad(counted, both, value=1.0)
        rest = zip(reversed(pool.after), reversed(pool.window_ends), strict=True)
        counted = torch.nn.functional.pad(counted, [v for q, r in rest for v in (0, r - q)])
    else:
        counted = torch.nn.functional.pad(counted, pool.window_pads)
    return node.make_batched(node.call("div.Tensor", _sum_windows(node, x, pool), _convolve(node, counted, pool, 1)))


@operator("LpPool", "GlobalLpPool")
@read_rows(0)
def lp_pool(node: OnnxNode, inputs: list[Value]) -> Value:
    if node.get_number("p", 2) != 1:
        raise UnsupportedOperator(explain_unsupported(node.op_type, ""))
    x = node.as_batched(elementwise(node, "abs", inputs[0]))
    if node.op_type == "GlobalLpPool":
        return node.make_batched(node.call("sum.dim_IntList", x, list(range(2, len(x.shape) + 1)), keepdim=True))
    return node.make_batched(_sum_windows(node, x, _PoolSettings(node, x)))


def _sum_windows(node: OnnxNode, x: NodeOutput, pool: _PoolSettings) -> NodeOutput:
    """The sum over each window."""
    padded = node.call("constant_pad_nd", x, pool.window_pads, 0.0) if any(pool.window_pads) else x
    return _convolve(node, padded, pool, x.shape[0])


def _convolve(node: OnnxNode, x: NodeOutput | Tensor, pool: _PoolSettings, channels: int) -> Any:
    """The sums over windows as a convolution with ones."""
    spatial = len(pool.kernel)
    ones = torch.ones(channels, 1, *pool.kernel, dtype=torch.float64)
    settings: list[Any] = [pool.strides, [0] * spatial, pool.dilations]
    return node.call(f"conv{spatial}d", x, ones, None, *settings, channels)


@operator("GlobalAveragePool", "GlobalMaxPool")
@read_rows(0)
def global_pool(node: OnnxNode, inputs: list[Value]) -> Value:
    x = node.as_batched(inputs[0])
    dims = list(range(2, len(x.shape) + 1))
    if not dims:
        raise node.make_error("There is nothing to pool.")
    name = "mean.dim" if node.op_type == "GlobalAveragePool" else "amax"
    return node.make_batched(node.call(name, x, dims, keepdim=True))


@operator("TopK")
def top_k(node: OnnxNode, inputs: list[Value]) -> Value:
    value = node.require_dependent(inputs[0])
    count = node.require_whole_numbers(inputs[1], "its k")[0] if len(inputs) > 1 else int(node.get_number("k", 0))
    (axis,) = node.resolve_axes([int(node.get_number("axis", -1))], len(value.shape))
    if not 1 <= count <= value.shape[axis]:
        raise node.make_error(f"Its k is {count}, but there are {value.shape[axis]} elements.")
    largest = bool(node.get_attribute("largest", 1))
    # only the values are returned: the indices are discontinuous
    return node.apply_along_axes(value, [axis], lambda x, d: node.call("topk", x, count, d[0], largest, True)[0])
