"""Read activations: piecewise-linear ones, and the smooth ones that a network may end in."""

from __future__ import annotations

from fractions import Fraction
from math import prod

import numpy as np
import torch
from torch import Tensor

from ...network.builder import SmoothOutput, UnsupportedOperator
from ...network.calls import Softmax
from ...network.graph import Tail
from ...ops import functions
from ...ops.pointwise import Pointwise
from .arithmetic import elementwise
from .values import DependentValue, OnnxNode, Value, get_input, operator


@operator("Relu", "Neg", "Abs")
def unary(node: OnnxNode, inputs: list[Value]) -> Value:
    return elementwise(node, node.op_type.lower(), inputs[0])


@operator("LeakyRelu")
def leaky_relu(node: OnnxNode, inputs: list[Value]) -> Value:
    return _apply_pointwise(node, inputs[0], functions.leaky_relu(node.get_number("alpha", 0.01)))


@operator("PRelu")
def prelu(node: OnnxNode, inputs: list[Value]) -> Value:
    x, slope = node.require_dependent(inputs[0]), node.require_constant(inputs[1], "its slope").to(torch.float64)
    if slope.numel() == 1:
        return _apply_pointwise(node, x, functions.leaky_relu(float(slope), "prelu"))
    if node.opset < 7 and slope.dim() == 1 and len(x.shape) > 2:  # one slope for each channel
        slope = slope.reshape(-1, *[1] * (len(x.shape) - 2))
    if np.broadcast_shapes(x.shape, tuple(slope.shape)) != x.shape:
        raise node.make_error(f"Slopes of shape {list(slope.shape)} do not fit a value of shape {list(x.shape)}.")
    if x.has_batch_dim and (slope.dim() < len(x.shape) or slope.shape[0] == 1):
        slopes = slope.reshape((1,) * (len(x.shape) - slope.dim()) + tuple(slope.shape))
        return node.make_batched(node.recorder.graph.add_pointwise(functions.prelu(slopes), node.as_node_output(x)))
    slopes = slope.reshape((1,) * (len(x.shape) + 1 - slope.dim()) + tuple(slope.shape))
    return node.make_unbatched(node.recorder.graph.add_pointwise(functions.prelu(slopes), node.as_unbatched(x)))


@operator("Clip")
def clip(node: OnnxNode, inputs: list[Value]) -> Value:
    if node.opset < 11:
        low, high = (torch.tensor(float(node.get_number(k, d))) for k, d in (("min", -torch.inf), ("max", torch.inf)))
    else:
        low, high = get_input(inputs, 1), get_input(inputs, 2)
    low = None if _has_no_effect(low, -1) else low
    high = None if _has_no_effect(high, 1) else high
    if isinstance(low, Tensor) and isinstance(high, Tensor) and low.numel() == high.numel() == 1:
        low = high if float(low) > float(high) else low
        return _apply_pointwise(node, inputs[0], functions.clamp(float(low), float(high), "clip"))
    result = inputs[0] if low is None else elementwise(node, "maximum", inputs[0], low)
    return result if high is None else elementwise(node, "minimum", result, high)


def _has_no_effect(bound: Value, sign: int) -> bool:
    """Whether a bound is infinite, or the largest float32, which exporters write instead of infinity."""
    largest = torch.finfo(torch.float32).max
    return isinstance(bound, Tensor) and bool((sign * bound.to(torch.float64) >= largest).all())


@operator("HardSigmoid")
def hard_sigmoid(node: OnnxNode, inputs: list[Value]) -> Value:
    slope, shift = Fraction(node.get_number("alpha", 0.2)), Fraction(node.get_number("beta", 0.5))
    if slope == 0:
        raise UnsupportedOperator("is constant")
    low, high = sorted([-shift / slope, (1 - shift) / slope])
    value = Fraction(0) if slope > 0 else Fraction(1)
    op = Pointwise((low, high), (Fraction(0), slope, Fraction(0)), value, name="hardsigmoid")
    return _apply_pointwise(node, inputs[0], op)


@operator("ThresholdedRelu")
def thresholded_relu(node: OnnxNode, inputs: list[Value]) -> Value:
    knot = node.get_number("alpha", 1.0)
    if knot != 0:
        raise UnsupportedOperator(f"is discontinuous: it jumps at {knot:g}")
    return elementwise(node, "relu", inputs[0])


@operator("Shrink")
def shrink(node: OnnxNode, inputs: list[Value]) -> Value:
    knot, bias = node.get_number("lambd", 0.5), node.get_number("bias", 0.0)
    if knot != bias:
        raise UnsupportedOperator(f"jumps at {knot:g}")
    return _apply_pointwise(node, inputs[0], functions.softshrink(knot))


def _apply_pointwise(node: OnnxNode, x: Value, op: Pointwise) -> Value:
    if isinstance(x, Tensor):
        return op.evaluate(x.to(torch.float64))
    value = node.require_dependent(x)
    output = node.recorder.graph.add_pointwise(op, node.as_node_output(value))
    return node.make_batched(output) if value.has_batch_dim else node.make_unbatched(output)


@operator("Sigmoid", "Tanh")
def smooth(node: OnnxNode, inputs: list[Value]) -> Value:
    if isinstance(inputs[0], Tensor):
        return getattr(torch, node.op_type.lower())(inputs[0])
    value = node.require_dependent(inputs[0])
    tail = Tail(node.op_type.lower(), torch.sigmoid if node.op_type == "Sigmoid" else torch.tanh)
    output = SmoothOutput(node.as_node_output(value), tail, node.name)
    return DependentValue(output, value.shape, value.has_batch_dim)


@operator("Softmax", "LogSoftmax")
def softmax(node: OnnxNode, inputs: list[Value]) -> Value:
    value = node.require_dependent(inputs[0])
    (axis,) = node.resolve_axes([int(node.get_number("axis", -1 if node.opset >= 13 else 1))], len(value.shape))
    is_batched = value.has_batch_dim and axis > 0
    x, dim = (node.as_node_output(value), axis) if is_batched else (node.as_unbatched(value), axis + 1)
    name = "softmax" if node.op_type == "Softmax" else "log_softmax"
    # before operator set 13 softmax goes over all dimensions from the axis on
    flattens = node.opset < 13 and prod(value.shape[axis:]) != value.shape[axis]
    output = SmoothOutput(x, Tail(name, Softmax(name, dim, flattens), dim, flattens), node.name)
    is_batched = is_batched and x.shape == value.shape[1:]
    return node.make_batched(output) if is_batched else node.make_unbatched(output)
