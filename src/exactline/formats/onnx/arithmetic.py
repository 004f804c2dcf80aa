"""Elementwise operators, activations, reductions and the smooth operators a network may end in."""

from __future__ import annotations

from fractions import Fraction
from math import prod
from typing import Any

import torch
from torch import Tensor

from ...network.builder import Data, Refused, Smooth
from ...network.graph import Tail
from ...ops import functions
from ...ops.pointwise import Pointwise
from .. import limits
from .refusals import reason
from .values import Call, Held, Value, given, operator

BINARY = {"Add": "add.Tensor", "Sub": "sub.Tensor", "Mul": "mul.Tensor", "Div": "div.Tensor"}
COMPARE = {
    "Greater": "gt.Tensor",
    "GreaterOrEqual": "ge.Tensor",
    "Less": "lt.Tensor",
    "LessOrEqual": "le.Tensor",
    "Equal": "eq.Tensor",
    "And": "logical_and",
    "Or": "logical_or",
}
FOLDED = ("Sqrt", "Exp", "Log", "Floor", "Ceil", "Reciprocal", "Sign", "Round", "Erf", "Sin", "Cos")  # of constants
FLOATS = {1: torch.float64, 10: torch.float64, 11: torch.float64, 16: torch.float64}


def elementwise(c: Call, name: str, *values: Value) -> Value:
    """An elementwise operator of torch on values of any shapes that fit together as ONNX broadcasts them."""
    if any(v is None for v in values):
        raise c.damaged("An input is missing.")
    held = [v for v in values if isinstance(v, Held)]
    tensors = [v for v in values if isinstance(v, Tensor)]
    shapes = [v.shape if isinstance(v, Held) else tuple(v.shape) for v in (*held, *tensors)]
    limits.sized(torch.broadcast_shapes(*shapes), "the result", c.sketch.where, limits.WIDTH)
    if not held:
        return c.call(name, *values)
    rank = max(len(s) for s in shapes)
    leads = all(h.leads and len(h.shape) == rank for h in held)
    if leads and all(t.dim() < rank or t.shape[0] == 1 for t in tensors):
        return c.led(c.call(name, *(v.value if isinstance(v, Held) else v for v in values)))
    return c.whole_point(c.call(name, *(_padded(c, v, rank) if isinstance(v, Held) else v for v in values)))


def _padded(c: Call, held: Held, rank: int) -> Data:
    wide = c.reshaped(held, (1,) * (rank - len(held.shape)) + held.shape) if len(held.shape) < rank else held
    return c.full(wide)


@operator(*BINARY)
def binary(c: Call, inputs: list[Value]) -> Value:
    one, two = inputs
    whole = isinstance(one, Tensor) and isinstance(two, Tensor) and not one.is_floating_point()
    if c.kind == "Div" and whole:
        if not bool((two != 0).all()):
            raise Refused("divides by zero")
        return torch.div(one, two, rounding_mode="trunc")
    return elementwise(c, BINARY[c.kind], one, two)


@operator(*COMPARE)
def compare(c: Call, inputs: list[Value]) -> Value:
    return elementwise(c, COMPARE[c.kind], *inputs[:2])


@operator("Not")
def negate(c: Call, inputs: list[Value]) -> Value:
    return elementwise(c, "logical_not", inputs[0])


@operator("Where")
def where(c: Call, inputs: list[Value]) -> Value:
    return elementwise(c, "where.self", *inputs[:3])


@operator("Sum", "Mean")
def total(c: Call, inputs: list[Value]) -> Value:
    found = inputs[0]
    for value in inputs[1:]:
        found = elementwise(c, "add.Tensor", found, value)
    return elementwise(c, "div.Tensor", found, torch.tensor(float(len(inputs)))) if c.kind == "Mean" else found


@operator("Max", "Min")
def extreme(c: Call, inputs: list[Value]) -> Value:
    name = "maximum" if c.kind == "Max" else "minimum"
    fixed = [v for v in inputs if isinstance(v, Tensor)]
    moving = [v for v in inputs if isinstance(v, Held)]
    found: Value = None
    for value in (*fixed, *moving):  # constants first: they are one bound
        found = value if found is None else elementwise(c, name, value, found)
    return found


@operator("Relu", "Neg", "Abs")
def unary(c: Call, inputs: list[Value]) -> Value:
    return elementwise(c, c.kind.lower(), inputs[0])


@operator("LeakyRelu")
def leaky_relu(c: Call, inputs: list[Value]) -> Value:
    return _pointwise(c, inputs[0], functions.leaky_relu(c.number("alpha", 0.01)))


@operator("PRelu")
def prelu(c: Call, inputs: list[Value]) -> Value:
    x, slope = c.held(inputs[0]), c.constant(inputs[1], "its slope").to(torch.float64)
    if slope.numel() == 1:
        return _pointwise(c, x, functions.leaky_relu(float(slope), "prelu"))
    if torch.broadcast_shapes(x.shape, tuple(slope.shape)) != x.shape:
        raise c.damaged(f"Slopes of shape {list(slope.shape)} do not fit a value of shape {list(x.shape)}.")
    if x.leads and (slope.dim() < len(x.shape) or slope.shape[0] == 1):
        wide = slope.reshape((1,) * (len(x.shape) - slope.dim()) + tuple(slope.shape))
        return c.led(c.sketch.builder.pointwise(functions.prelu(wide), c.data(x)))
    wide = slope.reshape((1,) * (len(x.shape) + 1 - slope.dim()) + tuple(slope.shape))
    return c.whole_point(c.sketch.builder.pointwise(functions.prelu(wide), c.full(x)))


@operator("Clip")
def clip(c: Call, inputs: list[Value]) -> Value:
    if c.opset < 11:
        low, high = (torch.tensor(float(c.number(k, d))) for k, d in (("min", -torch.inf), ("max", torch.inf)))
    else:
        low, high = given(inputs, 1), given(inputs, 2)
    low = None if _nothing(low, -1) else low
    high = None if _nothing(high, 1) else high
    if isinstance(low, Tensor) and isinstance(high, Tensor) and low.numel() == high.numel() == 1:
        low = high if float(low) > float(high) else low
        return _pointwise(c, inputs[0], functions.clamp(float(low), float(high), "clip"))
    found = inputs[0] if low is None else elementwise(c, "maximum", inputs[0], low)
    return found if high is None else elementwise(c, "minimum", found, high)


def _nothing(bound: Value, sign: int) -> bool:
    """Whether a bound lets everything pass: infinite, or the largest of single floats, as exporters write it."""
    most = torch.finfo(torch.float32).max
    return isinstance(bound, Tensor) and bool((sign * bound.to(torch.float64) >= most).all())


@operator("HardSigmoid")
def hard_sigmoid(c: Call, inputs: list[Value]) -> Value:
    slope, shift = Fraction(c.number("alpha", 0.2)), Fraction(c.number("beta", 0.5))
    if slope == 0:
        raise Refused("is constant")
    low, high = sorted([-shift / slope, (1 - shift) / slope])
    start = Fraction(0) if slope > 0 else Fraction(1)
    return _pointwise(
        c, inputs[0], Pointwise((low, high), (Fraction(0), slope, Fraction(0)), start, name="hardsigmoid")
    )


@operator("Shrink")
def shrink(c: Call, inputs: list[Value]) -> Value:
    limit, bias = c.number("lambd", 0.5), c.number("bias", 0.0)
    if limit != bias:
        raise Refused(f"jumps at {limit:g}")
    return _pointwise(c, inputs[0], functions.softshrink(limit))


def _pointwise(c: Call, x: Value, op: Pointwise) -> Value:
    if isinstance(x, Tensor):
        return op.evaluate(x.to(torch.float64))
    held = c.held(x)
    made = c.sketch.builder.pointwise(op, c.data(held))
    return c.led(made) if held.leads else c.whole_point(made)


@operator("Pow")
def power(c: Call, inputs: list[Value]) -> Value:
    if isinstance(inputs[0], Tensor) and isinstance(inputs[1], Tensor):
        return elementwise(c, "pow.Tensor_Tensor", *inputs[:2])
    if isinstance(inputs[1], Tensor) and bool((inputs[1] == 1).all()):
        return inputs[0]
    raise Refused("is a power, not piecewise linear")


@operator(*FOLDED)
def folded(c: Call, inputs: list[Value]) -> Value:
    if isinstance(inputs[0], Tensor):
        value = inputs[0]
        if c.kind in ("Floor", "Ceil", "Round", "Sign") and not value.is_floating_point():
            return value
        return getattr(torch, c.kind.lower())(value)
    raise Refused(reason(c.kind, ""))


@operator("Mod")
def modulo(c: Call, inputs: list[Value]) -> Value:
    one, two = (c.constant(v, "an operand") for v in inputs[:2])
    if not bool((two != 0).all()):
        raise Refused("divides by zero")
    return elementwise(c, "fmod.Tensor" if c.get("fmod", 0) else "remainder.Tensor", one, two)


@operator("Identity")
def identity(c: Call, inputs: list[Value]) -> Value:
    return inputs[0]


@operator("Dropout")
def dropout(c: Call, inputs: list[Value]) -> Value:
    training = given(inputs, 2)
    if training is not None and bool(c.constant(training, "its mode").any()):
        raise Refused("drops units at random: the file is in training mode")
    return inputs[0]


@operator("Cast", "CastLike")
def cast(c: Call, inputs: list[Value]) -> Value:
    value = inputs[0]
    if c.kind == "CastLike":
        kind = 1 if not isinstance(inputs[1], Tensor) or inputs[1].is_floating_point() else 7
    else:
        kind = int(c.number("to", 0))
    if isinstance(value, Held):
        if kind not in FLOATS:
            raise Refused("rounds data to whole numbers or truth values")
        c.sketch.builder.notes.append(f"{c.name}: a cast to a floating-point type is read as exact")
        return value
    if kind in FLOATS:
        return value.to(torch.float64)
    if kind == 9:
        return value != 0
    if kind in (2, 3, 4, 5, 6, 7, 12, 13):
        return value.to(torch.int64)
    raise Refused("casts to a type that is not a number")


REDUCE = {"ReduceSum": 13, "ReduceMean": 18, "ReduceMax": 18, "ReduceMin": 18, "ReduceProd": 18, "ReduceL1": 18}


@operator(*REDUCE)
def reduce(c: Call, inputs: list[Value]) -> Value:
    value = inputs[0]
    if c.opset >= REDUCE[c.kind]:
        listed = given(inputs, 1)
        axes = [] if listed is None else c.whole(listed, "its axes")
        if not axes and c.get("noop_with_empty_axes", 0):
            return value
    else:
        axes = c.ints("axes")
    rank = value.dim() if isinstance(value, Tensor) else len(value.shape)
    dims = sorted(set(c.axes(axes or range(rank), rank)))
    keep = bool(c.get("keepdims", 1))
    if isinstance(value, Tensor):
        return _reduced_constant(c, value, dims, keep)
    if c.kind == "ReduceProd":
        raise Refused(reason(c.kind, ""))
    if c.kind == "ReduceL1":
        value = elementwise(c, "abs", value)
    if not value.leads or 0 not in dims:
        return c.along(value, dims, lambda x, d: _reduced(c, x, d, keep)) if dims else value
    rest = dims[1:]  # the first dim is a batch of one: there is nothing to reduce
    made = _reduced(c, c.data(value), rest, keep) if rest else c.data(value)
    return c.led(made) if keep else Held(made, made.shape, False)


def _reduced(c: Call, x: Data, dims: list[int], keep: bool) -> Data:
    names = {"ReduceSum": "sum.dim_IntList", "ReduceMean": "mean.dim", "ReduceMax": "amax", "ReduceMin": "amin"}
    return c.call(names.get(c.kind, "sum.dim_IntList"), x, dims, keepdim=keep)


def _reduced_constant(c: Call, value: Tensor, dims: list[int], keep: bool) -> Tensor:
    for dim in reversed(dims):
        if c.kind in ("ReduceMax", "ReduceMin"):
            value = value.amax(dim, keep) if c.kind == "ReduceMax" else value.amin(dim, keep)
        elif c.kind == "ReduceProd":
            value = value.prod(dim, keep)
        elif c.kind == "ReduceMean":
            value = value.to(torch.float64).mean(dim, keep)
        else:
            value = (value.abs() if c.kind == "ReduceL1" else value).sum(dim, keep)
    return value


@operator("Sigmoid", "Tanh")
def smooth(c: Call, inputs: list[Value]) -> Value:
    if isinstance(inputs[0], Tensor):
        return getattr(torch, c.kind.lower())(inputs[0])
    held = c.held(inputs[0])
    apply = torch.sigmoid if c.kind == "Sigmoid" else torch.tanh
    return Held(Smooth(c.data(held), Tail(c.kind.lower(), apply), c.name), held.shape, held.leads)


@operator("Softmax", "LogSoftmax")
def softmax(c: Call, inputs: list[Value]) -> Value:
    held = c.held(inputs[0])
    rank = len(held.shape)
    (axis,) = c.axes([int(c.number("axis", -1 if c.opset >= 13 else 1))], rank)
    data, dim = (c.data(held), axis) if held.leads and axis else (c.full(held), axis + 1)
    name = "softmax" if c.kind == "Softmax" else "log_softmax"
    function = torch.softmax if c.kind == "Softmax" else torch.log_softmax
    flat = c.opset < 13 and prod(held.shape[axis:]) != held.shape[axis]

    def apply(x: Tensor) -> Tensor:
        if flat:  # old files mean all dims from the axis on
            return function(x.flatten(dim), dim).view(x.shape)
        return function(x, dim)

    made: Any = Smooth(data, Tail(name, apply, dim), c.name)
    return c.led(made) if data.shape == held.shape[1:] and held.leads and axis else c.whole_point(made)
