"""Rules for elementwise breaking operators, and for the comparisons that can hide one."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction

import torch
from torch import Tensor

from ...ops import functions
from .. import curves
from ..builder import Builder, Data, Refused, Value
from ..curves import Curve
from .affine import const, is_data
from .maximum import binary_maximum
from .registry import Args, rule


@rule("relu", "relu_")
def relu(b: Builder, a: Args) -> Value:
    return b.pointwise(functions.relu(), b.data(a["self"]))


@rule("leaky_relu")
def leaky_relu(b: Builder, a: Args) -> Value:
    return b.pointwise(functions.leaky_relu(a["negative_slope"]), b.data(a["self"]))


@rule("rrelu")
def rrelu(b: Builder, a: Args) -> Value:
    if a["training"]:
        raise Refused("draws its slope at random in training mode")
    slope = (Fraction(a["lower"]) + Fraction(a["upper"])) / 2
    return b.pointwise(functions.leaky_relu(slope, "rrelu"), b.data(a["self"]))


@rule("prelu", "_prelu_kernel")
def prelu(b: Builder, a: Args) -> Value:
    x, weight = b.data(a["self"]), const(a["weight"], "its slope")
    if weight.numel() == 1:
        return b.pointwise(functions.leaky_relu(float(weight), "prelu"), x)
    shape = (1, -1, *[1] * (len(x.shape) - 1)) if weight.dim() == 1 else weight.shape
    return b.pointwise(functions.prelu(weight.view(shape)), x)


@rule("hardtanh", "relu6", "hardtanh_")
def hardtanh(b: Builder, a: Args) -> Value:
    name = "relu6" if (a.get("min_val", 0), a.get("max_val", 6)) == (0, 6) else "hardtanh"
    return b.pointwise(functions.clamp(a.get("min_val", 0), a.get("max_val", 6), name), b.data(a["self"]))


@rule("hardsigmoid")
def hardsigmoid(b: Builder, a: Args) -> Value:
    return b.pointwise(functions.hardsigmoid(), b.data(a["self"]))


@rule("softshrink")
def softshrink(b: Builder, a: Args) -> Value:
    return b.pointwise(functions.softshrink(a["lambd"]), b.data(a["self"]))


@rule("abs")
def absolute(b: Builder, a: Args) -> Value:
    return b.pointwise(functions.absolute(), b.data(a["self"]))


@rule("threshold")
def threshold(b: Builder, a: Args) -> Value:
    if float(a["threshold"]) != float(a["value"]):
        raise Refused(f"jumps at {float(a['threshold']):g}: value {float(a['value']):g} is not the threshold")
    return b.pointwise(functions.clamp(a["threshold"], None, "threshold"), b.data(a["self"]))


@rule("clamp", "clip", "clamp_min", "clamp_max", "clamp.Tensor")
def clamp(b: Builder, a: Args) -> Value:
    x, low, high = a["self"], a.get("min"), a.get("max")
    if not is_data(x):
        raise Refused("clamps a constant by data")
    x = b.data(x)
    if is_data(low) or is_data(high):
        if low is not None:
            x = b.data(binary_maximum(b, x, low, 1))
        return x if high is None else binary_maximum(b, x, high, -1)
    return _clamped(b, x, _bound(low, -torch.inf), _bound(high, torch.inf))


@rule("maximum", "max.other", "fmax", "minimum", "min.other", "fmin")
def maximum(b: Builder, a: Args) -> Value:
    sign = 1 if "max" in b.target else -1
    left, right = a["self"], a["other"]
    if is_data(left) and is_data(right):
        return binary_maximum(b, left, right, sign)
    x, level = (left, right) if is_data(left) else (right, left)
    bound = _bound(level, -sign * torch.inf)
    return _clamped(b, b.data(x), *((bound, None) if sign > 0 else (None, bound)))


COMPARISONS: dict[str, Callable[[Fraction, Fraction], bool]] = {
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
    "ne": operator.ne,
}


@rule(*COMPARISONS)
def compare(b: Builder, a: Args) -> Value:
    left, right = b.together(a["self"], a["other"])
    return curves.compare(left, right, COMPARISONS[b.target.split(".")[0]])


@rule("sign", "sgn")
def sign(b: Builder, a: Args) -> Value:
    return curves.sign(*b.together(a["self"]))


@rule("logical_not", "bitwise_not")
def logical_not(b: Builder, a: Args) -> Value:
    return curves.negate(*b.together(a["self"]))


@rule("logical_and", "bitwise_and", "__and__", "logical_or", "bitwise_or", "__or__")
def logical(b: Builder, a: Args) -> Value:
    one, two = b.together(a["self"], a["other"])
    if "and" in b.target:
        return curves.both(one, two)
    return curves.negate(curves.both(curves.negate(one), curves.negate(two)))


@rule("where", "masked_fill")
def where(b: Builder, a: Args) -> Value:
    if "mask" in a:
        condition, yes, no = a["mask"], a["value"], a["self"]
    else:
        condition, yes, no = a["condition"], a["self"], a["other"]
    if isinstance(condition, Tensor):
        picked = {"condition": condition, "self": yes, "other": no}
        made = {k: b.data(v) if isinstance(v, (Data, Curve)) else v for k, v in picked.items()}
        return b.rearranged(_chooser(made), b.data_args(made), "where")
    return curves.where(*b.together(condition, yes, no))


def _chooser(a: Args) -> Callable[..., Tensor]:
    def call(*numbers: Tensor) -> Tensor:
        given = iter(numbers)
        yes, no = (next(given) if isinstance(a[k], Data) else const(a[k]) for k in ("self", "other"))
        return torch.where(a["condition"].to(torch.bool), yes, no)

    return call


def _clamped(b: Builder, x: Data, low: float | Tensor | None, high: float | Tensor | None) -> Data:
    return x if low is None and high is None else b.pointwise(functions.clamp(low, high), x)


def _bound(value: Value, nothing: float) -> float | Tensor | None:
    """A bound as a number or a tensor; None where it is missing or at the infinity that bounds nothing."""
    if value is None:
        return None
    tensor = const(value, "its bound")
    if bool((tensor == nothing).all()):
        return None
    if not bool(torch.isfinite(tensor).all()):
        raise Refused("has a bound that is infinite or NaN")
    return float(tensor) if tensor.numel() == 1 else tensor
