"""Read Resize and Upsample: one matrix, or one choice of elements, for each axis."""

from __future__ import annotations

from collections.abc import Callable
from math import floor
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ...network.builder import NodeOutput, UnsupportedOperator
from .. import limits
from .shapes import select_along_axis
from .values import DependentValue, OnnxNode, Value, get_input, operator

MAX_RESIZE_SCALE = 1e9  # of one axis; the size of the result is limited too
LINEAR_MODES = ("linear", "bilinear", "trilinear")
Numbers: TypeAlias = np.ndarray[Any, Any]


class _Target(NamedTuple):
    """How one axis is resized."""

    axis: int
    scale: float
    size: int  # after resizing
    region: tuple[float, float] = (0.0, 1.0)  # of the axis, for tf_crop_and_resize

    @property
    def is_identity(self) -> bool:
        """Whether nothing changes, provided that the size stays the same."""
        return self.scale == 1 and self.region == (0.0, 1.0)


@operator("Resize", "Upsample")
def resize(node: OnnxNode, inputs: list[Value]) -> Value:
    value = node.require_dependent(inputs[0])
    mode = node.get_attribute("mode", "nearest")
    if mode not in ("nearest", "cubic", *LINEAR_MODES):
        raise UnsupportedOperator(f"interpolates in mode {str(mode)[:40]!r}, which is not supported")
    is_old = node.op_type == "Upsample" or node.opset < 11
    coordinates = "asymmetric" if is_old else node.get_attribute("coordinate_transformation_mode", "half_pixel")
    rounding = "floor" if is_old else node.get_attribute("nearest_mode", "round_prefer_floor")
    if mode == "nearest" and node.get_attribute("antialias", 0):
        raise node.make_error("antialias does not go with mode 'nearest'.")
    for target in _read_targets(node, inputs, value):
        length = value.shape[target.axis]
        if target.size == length and target.is_identity:
            continue
        positions, is_outside = _compute_source_positions(coordinates, length, target)
        if mode == "nearest" and not is_outside.any():
            value = select_along_axis(node, value, target.axis, _round_positions(node, positions, length, rounding))
            continue
        entries = target.size * length
        limits.check_limit(entries, limits.MAX_VALUE_ELEMENTS, "weights of an interpolation", node.recorder.where)
        if mode == "nearest":
            matrix = np.eye(length)[_round_positions(node, positions, length, rounding)]
        else:
            matrix = _make_interpolation_matrix(node, positions, length, target.scale)
        value = _interpolate(node, value, target.axis, matrix, is_outside)
    return value


def _interpolate(node: OnnxNode, value: DependentValue, axis: int, matrix: Numbers, is_outside: Numbers) -> Any:
    """Multiply one axis by a matrix (new, old); positions outside of the input, (new,), get a constant."""
    matrix[is_outside] = 0.0
    fill = np.where(is_outside, node.get_number("extrapolation_value", 0.0), 0.0)
    bias = torch.from_numpy(fill) if fill.any() else None
    weights = torch.from_numpy(matrix)
    return node.apply_along_axes(value, [axis], lambda x, d: multiply_along(node, x, d[0], weights, bias))


def multiply_along(node: OnnxNode, x: NodeOutput, dim: int, matrix: Tensor, bias: Tensor | None = None) -> Any:
    """Multiply one dimension of a value by a matrix (new, old), and add a bias (new,)."""
    last = len(x.shape)
    transposed = x if dim == last else node.call("transpose.int", x, dim, last)
    product = node.call("linear", transposed, matrix, bias)
    return product if dim == last else node.call("transpose.int", product, dim, last)


def _read_targets(node: OnnxNode, inputs: list[Value], value: DependentValue) -> list[_Target]:
    """The scale, the new size and the region of every axis that is resized."""
    shape, rank = value.shape, len(value.shape)
    scales_index = 1 if node.op_type == "Upsample" or node.opset < 11 else 2
    scales, sizes = get_input(inputs, scales_index), get_input(inputs, 3) if scales_index == 2 else None
    axes = node.resolve_axes(node.get_ints("axes", range(rank)), rank)
    if node.op_type == "Upsample" and scales is None:
        scales = torch.tensor(_read_legacy_scales(node, rank), dtype=torch.float64)
    if sizes is not None:
        new_sizes = node.require_whole_numbers(sizes, "its sizes")
        if value.has_batch_dim and axes[:1] == [0] and new_sizes[:1] == [node.batch_size]:
            new_sizes[0] = 1
        ratios = [n / max(shape[a], 1) for n, a in zip(new_sizes, axes, strict=True)]
        policy = node.get_attribute("keep_aspect_ratio_policy", "stretch")
        if policy in ("not_larger", "not_smaller"):
            ratios = [min(ratios) if policy == "not_larger" else max(ratios)] * len(axes)
            new_sizes = [floor(shape[a] * r + 0.5) for a, r in zip(axes, ratios, strict=True)]
        elif policy != "stretch":
            raise node.make_error(f"keep_aspect_ratio_policy {str(policy)[:40]!r} does not exist.")
    else:
        ratios = node.require_constant(scales, "its scales").to(torch.float64).reshape(-1).tolist()
        new_sizes = [floor(shape[a] * r) for a, r in zip(axes, ratios, strict=True)]
    if any(not 0 < r < MAX_RESIZE_SCALE for r in ratios):
        raise node.make_error("A scale is not positive, or too large.")
    node.check_result_size(new_sizes)
    if any(n < 1 for n in new_sizes):
        raise node.make_error("It resizes to nothing.")
    regions = _read_regions(node, inputs, len(axes))
    return [_Target(*target) for target in zip(axes, ratios, new_sizes, regions, strict=True)]


def _read_legacy_scales(node: OnnxNode, rank: int) -> list[float]:
    """The scales of Upsample before operator set 9: a list, or those of height and width in operator set 1."""
    if "height_scale" in node.attributes or "width_scale" in node.attributes:
        return [*[1.0] * (rank - 2), node.get_number("height_scale", 1.0), node.get_number("width_scale", 1.0)]
    return node.get_attribute("scales", [])


def _read_regions(node: OnnxNode, inputs: list[Value], count: int) -> list[tuple[float, float]]:
    """The part of each axis that is resized, where the coordinates are tf_crop_and_resize."""
    if node.get_attribute("coordinate_transformation_mode", "") != "tf_crop_and_resize":
        return [(0.0, 1.0)] * count
    region = node.require_constant(get_input(inputs, 1), "its region").to(torch.float64).reshape(-1).tolist()
    if len(region) != 2 * count:
        raise node.make_error(f"Its region has {len(region)} numbers, not {2 * count}.")
    return list(zip(region[:count], region[count:], strict=True))


def _compute_source_positions(coordinates: str, length: int, target: _Target) -> tuple[Numbers, Numbers]:
    """The position of each new element among the ``length`` old ones, and whether it is outside of the region.

    Both are (size,); see the attribute coordinate_transformation_mode.
    """
    size, scale = target.size, target.scale
    new, inside = np.arange(size, dtype=np.float64), np.zeros(size, dtype=bool)
    width = scale * length  # before rounding
    if coordinates == "asymmetric":
        return new / scale, inside
    if coordinates == "align_corners":
        return (new * ((length - 1) / (width - 1)) if size > 1 else new * 0.0), inside
    if coordinates == "half_pixel" or (coordinates == "pytorch_half_pixel" and size > 1):
        return (new + 0.5) / scale - 0.5, inside
    if coordinates == "pytorch_half_pixel":
        return new * 0.0, inside
    if coordinates == "half_pixel_symmetric":
        shift = length / 2 * (1 - size / width)
        return shift + (new + 0.5) / scale - 0.5, inside
    if coordinates == "tf_crop_and_resize":
        first, last = target.region
        if size > 1:
            positions = new * (last - first) * (length - 1) / (width - 1) + first * (length - 1)
        else:
            positions = new + (first + last) * (length - 1) / 2
        return positions, (positions < 0) | (positions > length - 1)
    raise UnsupportedOperator(f"uses the coordinates {str(coordinates)[:40]!r}, which are not supported")


def _round_positions(node: OnnxNode, positions: Numbers, length: int, rounding: str) -> Numbers:
    """The nearest old element of each new one, (size,), by a nearest_mode."""
    functions = {
        "floor": np.floor,
        "ceil": np.ceil,
        "round_prefer_floor": lambda x: np.ceil(x - 0.5),
        "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    }
    if rounding not in functions:
        raise node.make_error(f"nearest_mode {str(rounding)[:40]!r} does not exist.")
    return np.clip(functions[rounding](positions), 0, length - 1).astype(np.int64)


def _make_interpolation_matrix(node: OnnxNode, positions: Numbers, length: int, scale: float) -> Numbers:
    """The weights (size, length) of the old elements around each position, (size,)."""
    is_cubic = node.get_attribute("mode", "nearest") == "cubic"
    reach = 2 if is_cubic else 1  # of the kernel, in old elements
    narrow = min(scale, 1.0) if node.get_attribute("antialias", 0) else 1.0  # the kernel widens where it shrinks
    kernel = _make_cubic_kernel(node.get_number("cubic_coeff_a", -0.75)) if is_cubic else _linear_kernel
    before = -(floor(-reach / narrow) + 1)  # neighbours left of the nearest one
    limits.check_limit(len(positions) * (2 * before + 2), limits.MAX_VALUE_ELEMENTS, "weights", node.recorder.where)
    left = np.floor(positions).astype(np.int64)
    neighbours = left[:, None] + np.arange(-before, before + 2)  # (size, neighbours)
    if is_cubic or narrow != 1.0:
        weights = kernel(np.abs(neighbours - positions[:, None]) * narrow)
    else:
        part = positions - left
        weights = np.stack([1 - part, part], 1)
    if narrow != 1.0:
        weights /= weights.sum(1, keepdims=True)
    if node.get_attribute("exclude_outside", 0):
        weights = np.where((neighbours < 0) | (neighbours >= length), 0.0, weights)
        total = weights.sum(1, keepdims=True)
        weights /= np.where(total == 0, 1.0, total)
    matrix = np.zeros((len(positions), length))
    rows = np.arange(len(positions))[:, None]
    np.add.at(matrix, (rows, np.clip(neighbours, 0, length - 1)), weights)
    return matrix


def _linear_kernel(distance: Numbers) -> Numbers:
    return np.clip(1 - distance, 0, 1)


def _make_cubic_kernel(a: float) -> Callable[[Numbers], Numbers]:
    """Keys' cubic convolution kernel, as a function of the distance."""

    def kernel(distance: Numbers) -> Numbers:
        near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
        far = ((distance - 5) * distance + 8) * distance * a - 4 * a
        return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))

    return kernel
