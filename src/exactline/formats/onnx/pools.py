"""Read pools, resizing and TopK."""

from __future__ import annotations

from math import floor, prod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...network.builder import NodeOutput, UnsupportedOperator
from ...ops import windows
from ...ops.maximum import Maximum
from .. import limits
from .shapes import select_along_axis
from .values import OnnxNode, Value, get_input, operator
from .windows import compute_pool_sizes, resolve_padding

MAX_RESIZE_SCALE = 1e9  # of one axis; the size of the result is limited too


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
    def window_table(self) -> Tensor:
        """(windows, elements) flat positions in one channel; -1 in a window of padding only."""
        return windows.pool_windows(self.size, self.out, self.kernel, self.strides, self.before, self.dilations)


@operator("MaxPool")
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
def average_pool(node: OnnxNode, inputs: list[Value]) -> Value:
    x = node.as_batched(inputs[0])
    pool = _PoolSettings(node, x)
    spatial = len(pool.kernel)
    include, is_dilated = bool(node.get_attribute("count_include_pad", 0)), any(d != 1 for d in pool.dilations)
    if pool.matches_torch and not is_dilated:
        output = node.call(f"avg_pool{spatial}d", x, pool.kernel, pool.strides, pool.before, pool.ceil, include)
        if list(output.shape[1:]) == pool.out:
            return node.make_batched(output)
    # the sum over each window, as a convolution, divided by the number of elements that count
    window_ends = [  # how far the last window reaches beyond the input
        max(0, (o - 1) * s + (k - 1) * d + 1 - n - p)
        for o, s, k, d, n, p in zip(
            pool.out, pool.strides, pool.kernel, pool.dilations, pool.size, pool.before, strict=True
        )
    ]
    pads = [p for pair in zip(reversed(pool.before), reversed(window_ends), strict=True) for p in pair]
    padded = node.call("constant_pad_nd", x, pads, 0.0) if any(pads) else x
    ones = torch.ones(x.shape[0], 1, *pool.kernel, dtype=torch.float64)
    settings: list[Any] = [pool.strides, [0] * spatial, pool.dilations]
    sums = node.call(f"conv{spatial}d", padded, ones, None, *settings, x.shape[0])
    counted = torch.ones(1, 1, *pool.size, dtype=torch.float64)  # 1 for each element that counts
    if include:  # padding counts, but what ceil_mode adds after it does not
        both = [p for pair in zip(reversed(pool.before), reversed(pool.after), strict=True) for p in pair]
        counted = torch.nn.functional.pad(counted, both, value=1.0)
        rest = [v for q, r in zip(reversed(pool.after), reversed(window_ends), strict=True) for v in (0, r - q)]
        counted = torch.nn.functional.pad(counted, rest)
    else:
        counted = torch.nn.functional.pad(counted, pads)
    counts = node.call(f"conv{spatial}d", counted, ones[:1], None, *settings, 1)
    return node.make_batched(node.call("div.Tensor", sums, counts))


@operator("GlobalAveragePool", "GlobalMaxPool")
def global_pool(node: OnnxNode, inputs: list[Value]) -> Value:
    x = node.as_batched(inputs[0])
    dims = list(range(2, len(x.shape) + 1))
    if not dims:
        raise node.make_error("There is nothing to pool.")
    name = "mean.dim" if node.op_type == "GlobalAveragePool" else "amax"
    return node.make_batched(node.call(name, x, dims, keepdim=True))


class _ResizeTarget(NamedTuple):
    """How one axis is resized."""

    axis: int
    scale: float
    size: int  # after resizing


@operator("Resize", "Upsample")
def resize(node: OnnxNode, inputs: list[Value]) -> Value:
    value = node.require_dependent(inputs[0])
    mode = node.get_attribute("mode", "nearest")
    is_linear = mode in ("linear", "bilinear", "trilinear")
    if not is_linear and mode != "nearest":
        raise UnsupportedOperator(f"interpolates in mode {str(mode)[:40]!r}, which is not supported")
    if node.get_attribute("antialias", 0) or node.get_attribute("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise UnsupportedOperator("resizes in a way that is not supported")
    is_old = node.op_type == "Upsample" or node.opset < 11
    coordinates = "asymmetric" if is_old else node.get_attribute("coordinate_transformation_mode", "half_pixel")
    rounding = "floor" if is_old else node.get_attribute("nearest_mode", "round_prefer_floor")
    for target in _read_resize_targets(node, inputs, value.shape):
        axis, length = target.axis, value.shape[target.axis]
        if target.size == length and target.scale == 1:
            continue
        if is_linear:
            weights = target.size * length
            limits.check_limit(weights, limits.MAX_VALUE_ELEMENTS, "weights of an interpolation", node.recorder.where)
        positions = _compute_source_positions(coordinates, length, target)
        if is_linear:
            matrix = _make_interpolation_matrix(positions, length)
            value = node.apply_along_axes(value, [axis], lambda x, d, m=matrix: _multiply_along(node, x, d[0], m))
        else:
            value = select_along_axis(node, value, axis, _round_positions(node, positions, length, rounding))
    return value


def _read_resize_targets(node: OnnxNode, inputs: list[Value], shape: tuple[int, ...]) -> list[_ResizeTarget]:
    """The scale and the new size of every axis that is resized."""
    rank = len(shape)
    scales_index = 1 if node.op_type == "Upsample" or node.opset < 11 else 2
    scales, sizes = get_input(inputs, scales_index), get_input(inputs, 3) if scales_index == 2 else None
    axes = node.resolve_axes(node.get_ints("axes", range(rank)), rank)
    if node.op_type == "Upsample" and scales is None:
        scales = torch.tensor(node.get_attribute("scales", []), dtype=torch.float64)
    if sizes is not None:
        new_sizes = node.require_whole_numbers(sizes, "its sizes")
        ratios = [n / max(shape[a], 1) for n, a in zip(new_sizes, axes, strict=True)]
    else:
        ratios = node.require_constant(scales, "its scales").to(torch.float64).reshape(-1).tolist()
        new_sizes = [floor(shape[a] * r) for a, r in zip(axes, ratios, strict=True)]
    if any(not 0 < r < MAX_RESIZE_SCALE for r in ratios):
        raise node.make_error("A scale is not positive, or too large.")
    node.check_result_size(new_sizes)
    if any(n < 1 for n in new_sizes):
        raise node.make_error("It resizes to nothing.")
    return [_ResizeTarget(*target) for target in zip(axes, ratios, new_sizes, strict=True)]


def _compute_source_positions(coordinates: str, length: int, target: _ResizeTarget) -> np.ndarray[Any, Any]:
    """The position of each new element among the ``length`` old ones, (size,), by a coordinate_transformation_mode."""
    size, scale = target.size, target.scale
    new = np.arange(size, dtype=np.float64)
    if coordinates == "asymmetric":
        return new / scale
    if coordinates == "align_corners":
        return new * ((length - 1) / (size - 1)) if size > 1 else new * 0.0
    if coordinates == "half_pixel" or (coordinates == "pytorch_half_pixel" and size > 1):
        return (new + 0.5) / scale - 0.5
    if coordinates == "pytorch_half_pixel":
        return new * 0.0
    if coordinates == "half_pixel_symmetric":
        shift = length / 2 * (1 - size / (scale * length))
        return shift + (new + 0.5) / scale - 0.5
    raise UnsupportedOperator(f"uses the coordinates {str(coordinates)[:40]!r}, which are not supported")


def _round_positions(
    node: OnnxNode,
    positions: np.ndarray[Any, Any],  # (size,)
    length: int,
    rounding: str,
) -> np.ndarray[Any, Any]:  # (size,)
    """The nearest old element of each new one, by a nearest_mode."""
    functions = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_floor": lambda x: np.ceil(x - 0.5),
        "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    }
    if rounding not in functions:
        raise node.make_error(f"nearest_mode {str(rounding)[:40]!r} does not exist.")
    return np.clip(functions[rounding](positions), 0, length - 1).astype(np.int64)


def _make_interpolation_matrix(positions: np.ndarray[Any, Any], length: int) -> Tensor:  # (size,) -> (size, length)
    """The weights of the two neighbours of each position."""
    left = np.floor(positions).astype(np.int64)
    part = positions - left
    matrix = np.zeros((len(positions), length))
    rows = np.arange(len(positions))
    np.add.at(matrix, (rows, np.clip(left, 0, length - 1)), 1 - part)
    np.add.at(matrix, (rows, np.clip(left + 1, 0, length - 1)), part)
    return torch.from_numpy(matrix)


def _multiply_along(node: OnnxNode, x: NodeOutput, dim: int, matrix: Tensor) -> Any:
    """Multiply one dimension of a value by a matrix (new, old)."""
    last = len(x.shape)
    transposed = x if dim == last else node.call("transpose.int", x, dim, last)
    product = node.call("linear", transposed, matrix, None)
    return product if dim == last else node.call("transpose.int", product, dim, last)


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
