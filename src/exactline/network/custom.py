"""Register a user's own elementwise piecewise-linear function by its knots."""

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
from ..tolerances import CANCELLATION_ERROR, FAR_TOLERANCE, KNOT_OFFSET, KNOT_RADIUS, STRAIGHTNESS_TOLERANCE
from .aten.registry import RULES, Args
from .builder import GraphBuilder, Value

_operator_numbers = itertools.count()

# All empirical: looser than the rounding of common activations, tighter than any visible bend.
FAR_POWERS = range(1, 13)  # powers of 10 of the distances, in spans of the knots, at which the outer pieces are checked


def register_pointwise(function: Callable[[Tensor], Tensor], knots: Sequence[float]) -> Callable[[Tensor], Tensor]:
    """Register an elementwise function as an operator that can be captured and trained.

    Call the returned function inside ``forward``. The function must be continuous, and affine between its knots; both
    are checked.

    Args:
        function: takes a tensor of any shape and returns one of the same shape.
        knots: all positions at which the slope changes.

    >>> import exactline as xl
    >>> dead_zone = xl.register_pointwise(lambda x: torch.relu(x - 1) - torch.relu(-x - 1), knots=[-1, 1])
    >>> xl.restrict(dead_zone, [-2.0], [2.0]).alphas.tolist()
    [0.0, 0.25, 0.75, 1.0]

    Raises ArgumentError where the function jumps at a knot, bends between knots or is not elementwise.
    """
    name = f"pointwise_{next(_operator_numbers)}"
    op = _fit_pointwise(function, knots, getattr(function, "__name__", name).strip("<>"))
    registered: Any = torch.library.custom_op(f"exactline::{name}", _make_forward(op), mutates_args=())
    registered.register_fake(torch.empty_like)
    registered.register_autograd(_make_backward(op), setup_context=_save_input)
    RULES[f"exactline::{name}"] = _make_rule(op)
    return registered


def _make_rule(op: Pointwise) -> Callable[[GraphBuilder, Args], Value]:
    return lambda graph, args: graph.add_pointwise(op, graph.as_node_output(args["x"]))


def _make_forward(op: Pointwise) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        return op.evaluate(x).clone()

    forward.__annotations__ = {"x": Tensor, "return": Tensor}  # torch.library reads types, not their names
    return forward


def _save_input(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])


def _make_backward(op: Pointwise) -> Callable[[Any, Tensor], Tensor]:
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        slopes = torch.tensor([float(s) for s in op.slopes], dtype=grad.dtype, device=grad.device)
        return grad * slopes[op.activation_pattern(x, x).long()]

    return backward


def _fit_pointwise(function: Callable[[Tensor], Tensor], knots: Sequence[float], name: str) -> Pointwise:
    """Compute a function's slopes and heights from its values, and check that it is affine between its knots."""
    ordered = sorted({float(k) for k in knots})
    if not ordered or not all(isfinite(k) for k in ordered):
        raise _make_error("The knots must be one or more finite numbers.", "Give the positions of all slope changes.")
    span = max(1.0, ordered[-1] - ordered[0])
    grid = [ordered[0] - span, *ordered, ordered[-1] + span]
    heights = _evaluate_at(function, grid)
    scale = max(abs(h) for h in heights) + 1e-300  # never 0
    for left, right, low, high in zip(grid, grid[1:], heights, heights[1:], strict=False):
        samples = [left + (right - left) * w for w in (KNOT_OFFSET, 0.25, 0.5, 0.75, 1 - KNOT_OFFSET)]
        for x, y in zip(samples, _evaluate_at(function, samples), strict=True):
            expected = low + (high - low) * ((x - left) / (right - left))
            if not abs(y - expected) <= STRAIGHTNESS_TOLERANCE * scale + 4 * abs(high - low) * KNOT_OFFSET:
                knot = min(ordered, key=lambda k: abs(k - x))
                at_knot = abs(x - knot) < KNOT_RADIUS * span
                problem = f"jumps at the knot {knot:g}" if at_knot else f"bends near {x:g}"
                raise _make_error(f"The function {problem}.", "List every knot; the function must be continuous.")
    slopes = [
        (Fraction(b) - Fraction(a)) / (Fraction(q) - Fraction(p))
        for p, q, a, b in zip(grid, grid[1:], heights, heights[1:], strict=False)
    ]
    steepest = max(abs(float(slope)) for slope in slopes)
    for power in FAR_POWERS:
        far = [grid[0] - 10.0**power * span, grid[-1] + 10.0**power * span]
        outer = ((grid[1], heights[1], slopes[0]), (grid[-2], heights[-2], slopes[-1]))
        for x, y, (knot, height, slope) in zip(far, _evaluate_at(function, far), outer, strict=True):
            rounding = steepest * abs(x) * CANCELLATION_ERROR
            if not abs(y - (height + float(slope) * (x - knot))) <= FAR_TOLERANCE * (abs(y) + scale) + rounding:
                raise _make_error(f"The function bends before {x:g}.", "List every knot.")
    return Pointwise(tuple(Fraction(k) for k in ordered), tuple(slopes), Fraction(heights[1]), name=name)


def _evaluate_at(function: Callable[[Tensor], Tensor], positions: Sequence[float]) -> list[float]:
    x = torch.tensor(positions, dtype=torch.float64, device="cpu")
    try:
        y = function(x)
    except Exception as problem:
        raise _make_error(f"The function failed: {problem}", "It must take and return a tensor.") from problem
    if not isinstance(y, Tensor) or y.shape != x.shape or not bool(torch.isfinite(y).all()):
        raise _make_error(
            "The function is not elementwise, or not finite.", "Return a finite tensor of the same shape."
        )
    return y.to(torch.float64).tolist()


def _make_error(problem: str, hint: str) -> ArgumentError:
    return ArgumentError(problem, where="register_pointwise", hint=hint)
