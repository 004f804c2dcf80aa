"""Read products with weights: Gemm, MatMul, convolutions, batch normalization."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...network.builder import MULTIPLIES_INPUTS, UnsupportedOperator
from .. import limits
from .arithmetic import elementwise
from .shapes import reshape_value
from .unsupported import explain_unsupported
from .values import DependentValue, OnnxNode, Value, get_input, operator, read_rows
from .windows import resolve_padding


@operator("MatMul")
def matmul(node: OnnxNode, inputs: list[Value]) -> Value:
    left, right = inputs[:2]
    if left is None or right is None:
        raise node.make_error("An input is missing.")
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        pair = left.to(torch.float64), right.to(torch.float64)
        node.check_result_size(torch.matmul(*(t.to("meta") for t in pair)).shape)
        return torch.matmul(*pair)
    if isinstance(left, DependentValue) and isinstance(right, DependentValue):
        raise UnsupportedOperator(MULTIPLIES_INPUTS)
    is_left = isinstance(left, DependentValue)
    x, weight = (left, right) if is_left else (right, left)
    weight = weight.to(torch.float64)
    if not x.shape or not weight.dim():
        raise node.make_error("It takes matrices and vectors, not single numbers.")
    # the batch dimension must not be summed over, nor be broadcast with leading dimensions of the weight
    keeps_batch = len(x.shape) - (0 if is_left else 1) >= 2
    no_broadcast = weight.dim() <= 2 or (weight.dim() <= len(x.shape) and weight.shape[0] == 1)
    if x.has_batch_dim and keeps_batch and no_broadcast and weight.dim():
        weight = weight.squeeze(0) if weight.dim() > 2 and weight.dim() == len(x.shape) else weight
        args = (node.as_node_output(x), weight) if is_left else (weight, node.as_node_output(x))
        return node.make_batched(node.call("matmul", *args))
    if len(x.shape) == 1 and not is_left:
        column = node.reshape(x, (*x.shape, 1))
        product = node.make_unbatched(node.call("matmul", weight, node.as_unbatched(column)))
        return node.reshape(product, product.shape[:-1])
    if len(x.shape) < weight.dim() and weight.dim() > 2:  # the batch must not be broadcast with the weight's dimensions
        return _multiply_stack(node, x, weight, is_left)
    args = (node.as_unbatched(x), weight) if is_left else (weight, node.as_unbatched(x))
    return node.make_unbatched(node.call("matmul", *args))


def _multiply_stack(node: OnnxNode, x: DependentValue, weight: Tensor, is_left: bool) -> Value:
    """The product of a matrix or vector and a stack of matrices."""
    is_vector = len(x.shape) == 1
    matrix = ((1, *x.shape) if is_left else (*x.shape, 1)) if is_vector else x.shape
    stacked = node.as_unbatched(node.reshape(x, (1,) * (weight.dim() - len(matrix)) + matrix))
    product = node.make_unbatched(node.call("matmul", *((stacked, weight) if is_left else (weight, stacked))))
    if not is_vector:
        return product
    shape = list(product.shape)
    del shape[-2 if is_left else -1]
    return node.reshape(product, shape)


@operator("Gemm")
def gemm(node: OnnxNode, inputs: list[Value]) -> Value:
    left, right, addend = inputs[0], get_input(inputs, 1), get_input(inputs, 2)
    alpha, beta = node.get_number("alpha", 1.0), node.get_number("beta", 1.0)
    transposes_left, transposes_right = node.get_attribute("transA", 0), node.get_attribute("transB", 0)
    is_linear = isinstance(left, DependentValue) and left.has_batch_dim and not transposes_left
    if is_linear and isinstance(right, Tensor):
        if right.dim() != 2 or len(left.shape) != 2:
            raise node.make_error("Gemm takes matrices.")
        weight = (right if transposes_right else right.T).to(torch.float64).contiguous()
        bias = None
        if isinstance(addend, Tensor):
            bias = (addend.to(torch.float64) * beta).broadcast_to(1, len(weight))[0].contiguous()
        scaled = weight if alpha == 1 else weight * alpha
        product = node.make_batched(node.call("linear", node.as_node_output(left), scaled, bias))
        if not isinstance(addend, DependentValue):
            return product
        return elementwise(node, "add.Tensor", product, _multiply(node, addend, beta))
    left = _transpose(node, left) if transposes_left else left
    right = _transpose(node, right) if transposes_right else right
    product = _multiply(node, matmul(node, [left, right]), alpha)
    return product if addend is None else elementwise(node, "add.Tensor", product, _multiply(node, addend, beta))


def _multiply(node: OnnxNode, value: Value, factor: float) -> Value:
    return value if factor == 1 else elementwise(node, "mul.Tensor", value, torch.tensor(factor, dtype=torch.float64))


def _transpose(node: OnnxNode, value: Value) -> Value:
    if isinstance(value, Tensor):
        return value.transpose(0, 1)
    x = node.as_unbatched(node.require_dependent(value))
    return node.make_unbatched(node.call("transpose.int", x, 1, 2))


@operator("Conv")
@read_rows(0)
def conv(node: OnnxNode, inputs: list[Value]) -> Value:
    x, weight = node.as_batched(inputs[0]), node.require_constant(inputs[1], "its kernel").to(torch.float64)
    bias = None if get_input(inputs, 2) is None else node.require_constant(inputs[2], "its bias").to(torch.float64)
    spatial = weight.dim() - 2
    _check_spatial_dims(node, spatial, x.shape)
    strides, dilations = node.get_ints("strides", [1] * spatial), node.get_ints("dilations", [1] * spatial)
    kernel = list(weight.shape[2:])
    if node.get_ints("kernel_shape", kernel) != kernel:
        raise node.make_error("kernel_shape differs from the shape of the weight.")
    before, after = resolve_padding(node, x.shape[1:], kernel, strides, dilations)
    padding = before
    if before != after:
        x = node.call("constant_pad_nd", x, _to_torch_padding(before, after), 0.0)
        padding = [0] * spatial
    _check_bias(node, bias, weight.shape[0])
    args: list[Any] = [x, weight, bias, strides, padding, dilations, int(node.get_number("group", 1))]
    return node.make_batched(node.call(f"conv{spatial}d", *args))


@operator("ConvTranspose")
@read_rows(0)
def conv_transpose(node: OnnxNode, inputs: list[Value]) -> Value:
    x, weight = node.as_batched(inputs[0]), node.require_constant(inputs[1], "its kernel").to(torch.float64)
    bias = None if get_input(inputs, 2) is None else node.require_constant(inputs[2], "its bias").to(torch.float64)
    spatial = weight.dim() - 2
    _check_spatial_dims(node, spatial, x.shape)
    group = int(node.get_number("group", 1))
    _check_bias(node, bias, weight.shape[1] * group)
    strides, dilations = node.get_ints("strides", [1] * spatial), node.get_ints("dilations", [1] * spatial)
    output_padding = node.get_ints("output_padding", [0] * spatial)
    kernel = list(weight.shape[2:])
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    # sizes of the output before its padding is cut off
    full = [s * (n - 1) + o + r for s, n, o, r in zip(strides, x.shape[1:], output_padding, spans, strict=True)]
    sizes, mode = node.get_ints("output_shape"), node.get_attribute("auto_pad", "NOTSET")
    if sizes or mode in ("SAME_UPPER", "SAME_LOWER"):
        sizes = sizes[-spatial:] or [n * s for n, s in zip(x.shape[1:], strides, strict=True)]
        totals = [max(0, f - n) for f, n in zip(full, sizes, strict=True)]
        half, rest = [t // 2 for t in totals], [t - t // 2 for t in totals]
        before, after = (half, rest) if mode == "SAME_UPPER" else (rest, half)
    else:
        pads = node.get_ints("pads", [0] * (2 * spatial)) if mode == "NOTSET" else [0] * (2 * spatial)
        before, after = pads[:spatial], pads[spatial:]
        sizes = [f - b - a for f, b, a in zip(full, before, after, strict=True)]
    if any(p < 0 for p in (*before, *after)) or any(v < 1 for v in (*strides, *dilations)):
        raise node.make_error("A stride or dilation is less than 1, or a padding less than 0.")
    if any(b + a >= n for b, a, n in zip(before, after, full, strict=True)):
        raise node.make_error("Its padding cuts off the whole output.")
    if any(n >= f + s for n, f, s in zip(sizes, full, strides, strict=True)):
        raise node.make_error("Its output_shape is a stride or more larger than its kernel reaches.")
    if any(n > limits.MAX_VALUE_ELEMENTS for n in (*full, *sizes)):
        raise node.make_error("A kernel, stride or dilation is too large.")
    node.check_result_size([weight.shape[1] * group, *sizes])
    # zeros at the end, where the output is larger than the kernel reaches: then the bias is added last
    is_extended = any(o >= s for o, s in zip(output_padding, strides, strict=True)) or any(
        n > f for n, f in zip(sizes, full, strict=True)
    )
    inner_padding = [0] * spatial if is_extended else output_padding
    # without padding, and then cut: ONNX allows padding that differs at the two ends
    args: list[Any] = [
        x,
        weight,
        None if is_extended else bias,
        strides,
        [0] * spatial,
        inner_padding,
        group,
        dilations,
    ]
    names = {1: "conv_transpose1d", 2: "conv_transpose2d.input", 3: "conv_transpose3d.input"}
    output = node.call(names[spatial], *args)
    for d in range(spatial):
        size = output.shape[d + 1]
        end = min(size, before[d] + sizes[d])
        if before[d] or end < size:
            output = node.call("slice.Tensor", output, d + 2, before[d], end, 1)
    missing = [n - m for n, m in zip(sizes, output.shape[1:], strict=True)]
    if any(missing):
        output = node.call("constant_pad_nd", output, _to_torch_padding([0] * spatial, missing), 0.0)
    if is_extended and bias is not None:
        output = node.call("add.Tensor", output, bias.reshape(1, -1, *[1] * spatial))
    return node.make_batched(output)


@operator("BatchNormalization")
@read_rows(0)
def batch_norm(node: OnnxNode, inputs: list[Value]) -> Value:
    if node.get_attribute("training_mode", 0):
        return _normalize_batch(node, inputs)
    if node.opset < 7 and not node.get_attribute("is_test", 0) and node.output_count > 1:
        raise UnsupportedOperator("uses the statistics of the batch: the file is in training mode")
    if node.get_attribute("spatial", 1) != 1:
        raise UnsupportedOperator("has separate statistics for every pixel, which is not supported")
    scale, bias, mean, var = (node.require_constant(v, "its statistics").to(torch.float64) for v in inputs[1:5])
    x = node.require_dependent(inputs[0])
    if not x.has_batch_dim or len(x.shape) < 2:
        raise UnsupportedOperator(f"expects a batch of one point, not shape {list(x.shape)}")
    eps = node.get_number("epsilon", 1e-5)
    statistics = (scale, bias, mean, var)
    options = {"training": False, "momentum": 0.1, "eps": eps, "cudnn_enabled": False}
    return node.make_batched(node.call("batch_norm", node.as_node_output(x), *statistics, **options))


def _normalize_batch(node: OnnxNode, inputs: list[Value]) -> Value:
    """The outputs in training mode: a constant with its own statistics, and the updated mean and variance."""
    if isinstance(inputs[0], DependentValue):
        raise UnsupportedOperator("uses the statistics of the batch: the file is in training mode")
    x, momentum = inputs[0].to(torch.float64), node.get_number("momentum", 0.9)
    var, mean = torch.var_mean(x, [0, *range(2, x.dim())], correction=0)
    scale, bias, *old = (reshape_value(node, v, [x.shape[1], *[1] * (x.dim() - 2)]) for v in inputs[1:5])
    spread = [v.reshape(x.shape[1], *[1] * (x.dim() - 2)) for v in (mean, var)]
    normalized = (x - spread[0]) / torch.sqrt(spread[1] + node.get_number("epsilon", 1e-5))
    output = elementwise(node, "add.Tensor", elementwise(node, "mul.Tensor", normalized, scale), bias)
    kept = [elementwise(node, "mul.Tensor", v, torch.tensor(momentum, dtype=torch.float64)) for v in old]
    updated = [elementwise(node, "add.Tensor", k, v * (1 - momentum)) for k, v in zip(kept, spread, strict=True)]
    return output, *(reshape_value(node, v, [x.shape[1]]) for v in updated)


@operator("InstanceNormalization")
def instance_norm(node: OnnxNode, inputs: list[Value]) -> Value:
    if isinstance(inputs[0], DependentValue):
        raise UnsupportedOperator(explain_unsupported(node.op_type, ""))
    x, eps = inputs[0].to(torch.float64), node.get_number("epsilon", 1e-5)
    dims = list(range(2, x.dim()))
    var, mean = torch.var_mean(x, dims, correction=0, keepdim=True)
    scale, bias = (reshape_value(node, v, [x.shape[1], *[1] * len(dims)]) for v in inputs[1:3])
    scaled = elementwise(node, "mul.Tensor", (x - mean) / torch.sqrt(var + eps), scale)
    return elementwise(node, "add.Tensor", scaled, bias)


def _check_bias(node: OnnxNode, bias: Tensor | None, channels: int) -> None:
    if bias is not None and tuple(bias.shape) != (channels,):
        raise node.make_error(f"The bias has shape {list(bias.shape)}, but the number of channels is {channels}.")


def _check_spatial_dims(node: OnnxNode, spatial: int, shape: tuple[int, ...]) -> None:
    if spatial not in (1, 2, 3):
        raise UnsupportedOperator(f"has {spatial} spatial dimensions; only 1, 2 or 3 are supported")
    if len(shape) != spatial + 1:
        raise node.make_error(f"The kernel has {spatial} spatial dimensions, but the input has {len(shape) - 1}.")


def _to_torch_padding(before: list[int], after: list[int]) -> list[int]:
    """Paddings in torch's order: the last dimension first."""
    return [p for pair in zip(reversed(before), reversed(after), strict=True) for p in pair]
