"""Read DequantizeLinear of whole numbers that are constant, as weights in quantised files are."""

from __future__ import annotations

from math import prod

import torch
from torch import Tensor

from ...network.builder import UnsupportedOperator
from .arithmetic import elementwise
from .shapes import get_shape
from .values import DependentValue, OnnxNode, Value, get_input, operator


@operator("DequantizeLinear")
def dequantize(node: OnnxNode, inputs: list[Value]) -> Value:
    if isinstance(inputs[0], DependentValue):
        raise UnsupportedOperator("takes whole numbers that depend on the input, which are discontinuous")
    data = inputs[0].to(torch.float64)
    scale, zero = get_input(inputs, 1), get_input(inputs, 2)
    zero_point = torch.zeros(get_shape(scale)) if zero is None else node.require_constant(zero, "its zero point")
    if tuple(zero_point.shape) != get_shape(scale) and not zero_point.numel() == prod(get_shape(scale)) == 1:
        raise node.make_error("Its scale and its zero point differ in shape.")
    shifted = data - _spread(node, zero_point.to(torch.float64), data)
    spread = node.rearrange([scale], lambda v: _spread(node, v.to(torch.float64), data))
    return elementwise(node, "mul.Tensor", shifted, spread)


def _spread(node: OnnxNode, numbers: Tensor, data: Tensor) -> Tensor:
    """Scales or zero points in a shape that broadcasts to the data: one for all, for each slice, or for each block."""
    if numbers.numel() == 1:
        return numbers.reshape(())
    (axis,) = node.resolve_axes([int(node.get_number("axis", 1))], data.dim())
    size, block = data.shape[axis], int(node.get_number("block_size", 0))
    if numbers.dim() == 1 and not block and len(numbers) == size:
        return numbers.reshape([-1 if d == axis else 1 for d in range(data.dim())])
    fits = (
        numbers.dim() == data.dim()
        and block > 0
        and all(
            -(-n // block) == m if d == axis else n == m
            for d, (n, m) in enumerate(zip(data.shape, numbers.shape, strict=True))
        )
    )
    if not fits:
        raise node.make_error(f"Scales of shape {list(numbers.shape)} do not fit data of shape {list(data.shape)}.")
    return numbers.index_select(axis, torch.arange(size) // block)
