"""A user's own elementwise piecewise-linear function, known to capture by its knots."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from ..errors import ArgumentError
from ..ops.pointwise import Pointwise
from .aten.registry import RULES, Args
from .builder import Builder, Value

_number = itertools.count()
TOLERANCE = 1e-9  # of the largest value near the knots


def register_pointwise(function: Callable[[Tensor], Tensor], knots: Sequence[float]) -> Callable[[Tensor], Tensor]:
    """Make an elementwise function usable in a model: call what this returns inside ``forward``.

    The function must be continuous and affine between its knots; both are checked.

    >>> import exactline as xl
    >>> dead_zone = xl.register_pointwise(lambda x: torch.relu(x - 1) - torch.relu(-x - 1), knots=[-1, 1])
    >>> xl.restrict(dead_zone, [-2.0], [2.0]).alphas.tolist()
    [0.0, 0.25, 0.75, 1.0]

    Raises ArgumentError where the function jumps at a knot or bends between knots.
    """
    name = f"pointwise_{next(_number)}"
    op = _measured(function, knots, getattr(function, "__name__", name).strip("<>"))
    registered: Any = torch.library.custom_op(f"exactline::{name}", _typed(op), mutates_args=())
    registered.register_fake(torch.empty_like)
    registered.register_autograd(_backward(op), setup_context=_remember)
    RULES[f"exactline::{name}"] = _rule(op)
    return registered


def _rule(op: Pointwise) -> Callable[[Builder, Args], Value]:
    return lambda b, a: b.pointwise(op, b.data(a["x"]))


def _typed(op: Pointwise) -> Callable[[Tensor], Tensor]:
    def call(x: Tensor) -> Tensor:
        return op.evaluate(x).clone()

    call.__annotations__ = {"x": Tensor, "return": Tensor}
    return call


def _remember(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])


def _backward(op: Pointwise) -> Callable[[Any, Tensor], Tensor]:
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        slopes = torch.tensor([float(s) for s in op.slopes], dtype=grad.dtype, device=grad.device)
        return grad * slopes[op.activation_pattern(x, x).long()]

    return backward


def _measured(function: Callable[[Tensor], Tensor], knots: Sequence[float], name: str) -> Pointwise:
    """Slopes and heights of the function, from its own values at the knots and beside them."""
    ordered = sorted({float(k) for k in knots})
    if not ordered or not all(isfinite(k) for k in ordered):
        raise _error("The knots must be one or more finite numbers.", "Give the places where the slope changes.")
    reach = max(1.0, ordered[-1] - ordered[0])
    grid = [ordered[0] - reach, *ordered, ordered[-1] + reach]
    heights = _called(function, grid)
    scale = max(abs(h) for h in heights) + 1e-300
    for left, right, low, high in zip(grid, grid[1:], heights, heights[1:], strict=False):
        inside = [left + (right - left) * w for w in (2.0**-40, 0.25, 0.5, 0.75, 1 - 2.0**-40)]
        for x, y in zip(inside, _called(function, inside), strict=True):
            straight = low + (high - low) * ((x - left) / (right - left))
            if not abs(y - straight) <= TOLERANCE * scale + 4 * abs(high - low) * 2.0**-40:
                nearest = min(ordered, key=lambda k: abs(k - x))
                what = f"jumps at the knot {nearest:g}" if abs(x - nearest) < 1e-6 * reach else f"bends near {x:g}"
                raise _error(f"The function {what}.", "Name every knot; the function must be continuous.")
    slopes = [
        (Fraction(b) - Fraction(a)) / (Fraction(q) - Fraction(p))
        for p, q, a, b in zip(grid, grid[1:], heights, heights[1:], strict=False)
    ]
    steepest = max(abs(float(slope)) for slope in slopes)
    for power in range(1, 13):
        far = [grid[0] - 10.0**power * reach, grid[-1] + 10.0**power * reach]
        ends = ((grid[1], heights[1], slopes[0]), (grid[-2], heights[-2], slopes[-1]))
        for x, y, (knot, height, slope) in zip(far, _called(function, far), ends, strict=True):
            lost = steepest * abs(x) * 2.0**-48  # a difference of steep parts may level off
            if not abs(y - (height + float(slope) * (x - knot))) <= 1e-6 * (abs(y) + scale) + lost:
                raise _error(f"The function bends before {x:g}.", "Name every knot.")
    return Pointwise(tuple(Fraction(k) for k in ordered), tuple(slopes), Fraction(heights[1]), name=name)


def _called(function: Callable[[Tensor], Tensor], at: Sequence[float]) -> list[float]:
    x = torch.tensor(at, dtype=torch.float64, device="cpu")
    try:
        y = function(x)
    except Exception as problem:
        raise _error(f"The function failed: {problem}", "It must take a tensor and return one like it.") from problem
    if not isinstance(y, Tensor) or y.shape != x.shape or not bool(torch.isfinite(y).all()):
        raise _error("The function is not elementwise, or not finite.", "Return a finite tensor of the same shape.")
    return y.to(torch.float64).tolist()


def _error(problem: str, hint: str) -> ArgumentError:
    return ArgumentError(problem, where="register_pointwise", hint=hint)
