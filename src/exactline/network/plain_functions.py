"""The torch functions that are converted without torch.export, each with the ATen operator that it calls.

An entry takes the arguments of a function and returns the operator with its own; None where this call is left to
torch.export, which knows every function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.fx import Node

OperatorCall: TypeAlias = tuple[Any, Sequence[Any], dict[str, Any]]  # an ATen operator, its arguments and keywords
Conversion: TypeAlias = Callable[..., OperatorCall | None]

aten: Any = torch.ops.aten


def _call(operator: Any) -> Conversion:
    """An operator that takes the arguments of the function as they are."""
    return lambda *args, **keywords: (operator, args, keywords)


def _convolve(operator: Any, spatial: int) -> Conversion:
    def convert(
        input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
    ) -> OperatorCall | None:
        if isinstance(padding, str):
            return None
        sizes = [_repeat(size, spatial) for size in (stride, padding, dilation)]
        return operator, (input, weight, bias, *sizes, groups), {}

    return convert


def _convolve_transposed(
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> OperatorCall | None:
    stride, padding, output_padding, dilation = (_repeat(v, 2) for v in (stride, padding, output_padding, dilation))
    settings = (stride, padding, output_padding, groups, dilation)
    return aten.conv_transpose2d.input, (input, weight, bias, *settings), {}


def _repeat(size: Any, count: int) -> list[Any]:
    """A setting with one number for each spatial dimension."""
    sizes = list(size) if isinstance(size, (list, tuple)) else [size]
    return sizes * count if len(sizes) == 1 else sizes


def _normalize(
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> OperatorCall | None:
    if training or running_mean is None or running_var is None:
        return None
    return aten.batch_norm.default, (input, weight, bias, running_mean, running_var, False, momentum, eps, False), {}


def _rectify(input: Any, inplace: bool = False) -> OperatorCall | None:
    return aten.relu.default, (input,), {}


def _rectify_6(input: Any, inplace: bool = False) -> OperatorCall | None:
    return aten.relu6.default, (input,), {}


def _clamp(input: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> OperatorCall | None:
    return aten.hardtanh.default, (input, min_val, max_val), {}


def _rectify_leakily(input: Any, negative_slope: float = 0.01, inplace: bool = False) -> OperatorCall | None:
    return aten.leaky_relu.default, (input, negative_slope), {}


def _pool_maximum(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> OperatorCall | None:
    if return_indices:
        return None
    sizes = [_repeat(size, 2) for size in (kernel_size, kernel_size if stride is None else stride, padding, dilation)]
    return aten.max_pool2d.default, (input, *sizes, ceil_mode), {}


def _pool_average(
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> OperatorCall | None:
    sizes = [_repeat(size, 2) for size in (kernel_size, kernel_size if stride is None else stride, padding)]
    return aten.avg_pool2d.default, (input, *sizes, ceil_mode, count_include_pad, divisor_override), {}


def _pool_average_adaptively(input: Any, output_size: Any) -> OperatorCall | None:
    size = _repeat(output_size, 2)
    return None if None in size else (aten.adaptive_avg_pool2d.default, (input, size), {})


def _pad(input: Any, pad: Any, mode: str = "constant", value: float | None = None) -> OperatorCall | None:
    return (aten.pad.default, (input, list(pad), mode, value), {}) if mode == "constant" else None


def _clamp_between(input: Any, min: Any = None, max: Any = None) -> OperatorCall | None:
    is_plain = all(limit is None or isinstance(limit, (int, float)) for limit in (min, max))
    return (aten.clamp.default, (input, min, max), {}) if is_plain else None


def _drop(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> OperatorCall | None:
    return None if training and p else (aten.dropout.default, (input, p, False), {})


def _combine(operator: Any) -> Conversion:
    """A binary operator, whose second operand may be a number."""

    def convert(input: Any, other: Any, **keywords: Any) -> OperatorCall | None:
        return None if keywords else (operator, (input, other), {})

    return convert


def _give_sizes(operator: Any) -> Conversion:
    """An operator that takes its sizes or dimensions one by one, or as a list."""

    def convert(input: Any, *sizes: Any, **keywords: Any) -> OperatorCall | None:
        listed = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], (list, tuple)) else sizes
        is_plain = not keywords and len(listed) > 0 and all(isinstance(size, (int, Node)) for size in listed)
        return (operator, (input, [*listed]), {}) if is_plain else None

    return convert


def _transpose(input: Any, dim0: Any, dim1: Any) -> OperatorCall | None:
    return aten.transpose.int, (input, dim0, dim1), {}


def _unsqueeze(input: Any, dim: int) -> OperatorCall | None:
    return aten.unsqueeze.default, (input, dim), {}


def _hold(input: Any) -> OperatorCall | None:
    return aten.contiguous.default, (input,), {}


def _index(input: Any, index: Any) -> OperatorCall | None:
    """Full slices, and one number or one slice among them."""
    parts = list(index) if isinstance(index, (list, tuple)) else [index]
    chosen = [(dim, part) for dim, part in enumerate(parts) if part != slice(None)]
    if len(chosen) != 1:
        return None
    dim, part = chosen[0]
    if isinstance(part, slice):
        limits = (part.start, part.stop, 1 if part.step is None else part.step)
        is_plain = all(limit is None or type(limit) is int for limit in limits)
        return (aten.slice.Tensor, (input, dim, *limits), {}) if is_plain else None
    return (aten.select.int, (input, dim, part), {}) if type(part) is int else None


def _reduce(operator: Any) -> Conversion:
    """An operator that reduces some dimensions; without any it would reduce all."""

    def convert(input: Any, dim: Any, keepdim: bool = False) -> OperatorCall | None:
        dims = [dim] if isinstance(dim, int) else list(dim)
        return (operator, (input, dims, keepdim), {}) if dims else None

    return convert


def _split(input: Any, split_size: Any, dim: int = 0) -> OperatorCall | None:
    if isinstance(split_size, int):
        return aten.split.Tensor, (input, split_size, dim), {}
    return aten.split_with_sizes.default, (input, list(split_size), dim), {}


PLAIN_FUNCTIONS: dict[Any, Conversion] = {
    F.conv1d: _convolve(aten.conv1d.default, 1),
    F.conv2d: _convolve(aten.conv2d.default, 2),
    F.conv3d: _convolve(aten.conv3d.default, 3),
    F.conv_transpose2d: _convolve_transposed,
    F.linear: _call(aten.linear.default),
    F.batch_norm: _normalize,
    F.relu: _rectify,
    F.relu6: _rectify_6,
    F.hardtanh: _clamp,
    F.leaky_relu: _rectify_leakily,
    F.prelu: _call(aten.prelu.default),
    F.max_pool2d: _pool_maximum,
    F.avg_pool2d: _pool_average,
    F.adaptive_avg_pool2d: _pool_average_adaptively,
    F.dropout: _drop,
    F.pad: _pad,
    torch.relu_: _rectify,
    Tensor.relu_: _rectify,
    Tensor.add_: _combine(aten.add.Tensor),
    Tensor.sub_: _combine(aten.sub.Tensor),
    Tensor.mul_: _combine(aten.mul.Tensor),
    Tensor.div_: _combine(aten.div.Tensor),
    Tensor.view: _give_sizes(aten.view.default),
    Tensor.contiguous: _hold,
    Tensor.__getitem__: _index,
    torch.cat: _call(aten.cat.default),
    torch.stack: _call(aten.stack.default),
    # functions that are methods of a tensor as well
    **dict.fromkeys((torch.relu, Tensor.relu), _rectify),
    **dict.fromkeys((torch.abs, Tensor.abs), _call(aten.abs.default)),
    **dict.fromkeys((torch.clamp, Tensor.clamp), _clamp_between),
    **dict.fromkeys((torch.maximum, Tensor.maximum), _call(aten.maximum.default)),
    **dict.fromkeys((torch.minimum, Tensor.minimum), _call(aten.minimum.default)),
    **dict.fromkeys((torch.add, Tensor.add), _combine(aten.add.Tensor)),
    **dict.fromkeys((torch.sub, Tensor.sub), _combine(aten.sub.Tensor)),
    **dict.fromkeys((torch.mul, Tensor.mul), _combine(aten.mul.Tensor)),
    **dict.fromkeys((torch.div, Tensor.div), _combine(aten.div.Tensor)),
    **dict.fromkeys((torch.matmul, Tensor.matmul), _combine(aten.matmul.default)),
    **dict.fromkeys((torch.mean, Tensor.mean), _reduce(aten.mean.dim)),
    **dict.fromkeys((torch.sum, Tensor.sum), _reduce(aten.sum.dim_IntList)),
    **dict.fromkeys((torch.flatten, Tensor.flatten), _call(aten.flatten.using_ints)),
    **dict.fromkeys((torch.reshape, Tensor.reshape), _give_sizes(aten.reshape.default)),
    **dict.fromkeys((torch.permute, Tensor.permute), _give_sizes(aten.permute.default)),
    **dict.fromkeys((torch.transpose, Tensor.transpose), _transpose),
    **dict.fromkeys((torch.unsqueeze, Tensor.unsqueeze), _unsqueeze),
    **dict.fromkeys((torch.chunk, Tensor.chunk), _call(aten.chunk.default)),
    **dict.fromkeys((torch.split, Tensor.split), _split),
}
# Functions that only read the shape or the kind of a tensor.
READING_FUNCTIONS = (Tensor.dim, Tensor.size, Tensor.is_floating_point, Tensor.is_complex)
IN_PLACE_FUNCTIONS = (torch.relu_, Tensor.relu_, Tensor.add_, Tensor.sub_, Tensor.mul_, Tensor.div_)
# Functions that only move elements, so that their results may share memory with their inputs.
MOVING_FUNCTIONS = (
    *(torch.flatten, torch.reshape, torch.permute, torch.transpose, torch.unsqueeze, torch.chunk, torch.split),
    *(Tensor.flatten, Tensor.reshape, Tensor.permute, Tensor.transpose, Tensor.unsqueeze, Tensor.chunk, Tensor.split),
    *(Tensor.view, Tensor.contiguous, Tensor.__getitem__, F.dropout),
)
