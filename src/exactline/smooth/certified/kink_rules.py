"""Rules of ReLU and its relatives: the active branch, where a proof exists that it does not change."""

from __future__ import annotations

import torch
from torch import Tensor

from .error_bound import ErrorBound, outward
from .linear_rules import subtract
from .rule_table import Operand, as_model, rule
from .taylor_model import TaylorModel, rounding_factor
from .tolerances import DISC_RATIO


@rule("relu")
def relu(x: TaylorModel) -> TaylorModel:
    """The branch that is active at the center, where the sign on the sub-interval is proven."""
    return select_branch(x, x, 0.0)


@rule("leaky_relu")
def leaky_relu(x: TaylorModel, slope: float = 0.01) -> TaylorModel:
    return select_branch(x, x, slope)


@rule("threshold_backward")
def threshold_backward(grad: Operand, x: TaylorModel, threshold: float) -> TaylorModel:
    """``grad`` where x exceeds the threshold; x may be the result of a ReLU, exactly 0 where it is inactive."""
    return select_branch(subtract(x, threshold) if threshold else x, as_model(grad), 0.0)


@rule("leaky_relu_backward")
def leaky_relu_backward(grad: Operand, x: TaylorModel, slope: float, is_result: bool) -> TaylorModel:
    return select_branch(x, as_model(grad), slope)


@rule("sgn")
def sign(x: TaylorModel) -> TaylorModel:
    """The derivative of the absolute value."""
    return select_branch(x, as_model(torch.ones(x.shape, dtype=torch.float64)), -1.0)


@rule("abs")
def absolute(x: TaylorModel) -> TaylorModel:
    return select_branch(x, x, -1.0)


def select_branch(x: TaylorModel, value: TaylorModel, slope: float) -> TaylorModel:
    """``value`` where x is positive, ``slope * value`` where x is negative.

    On discs the result is the branch of the center's sign, which is analytic. It agrees with the operator on the
    sub-interval if x keeps its sign there; without a proof of that the error is infinite. Models of order 1 stand for
    sets of real numbers: without a proof the factor lies between 1 and the slope.
    """
    is_zero = (x.coefficients == 0).all(0) & (x.radius == 0)
    center, is_proven = x.coefficients[0], keeps_sign(x) | is_zero
    factors = torch.where(center > 0, torch.ones_like(center), slope)
    unproven = torch.full_like(value.radius, torch.inf) + 0 * x.radius
    if x.order == value.order == 1:
        factors = torch.where(is_proven, factors, (1 + slope) / 2)
        unproven = outward(value.bound * (abs(1 - slope) / 2))
    sizes = torch.where(is_proven, factors.abs(), max(1.0, abs(slope)))
    added = torch.where(is_proven, torch.zeros_like(unproven), unproven)
    out = TaylorModel(value.coefficients * factors, value.error.scale(sizes) + ErrorBound(added)).with_rounding(1)
    exact_zeros = (is_proven & (factors == 0)).expand_as(out.radius)
    error = ErrorBound(out.radius.masked_fill(exact_zeros, 0.0), out.error.norm, out.error.axis)
    return TaylorModel(out.coefficients, error)


def sign_error(x: TaylorModel) -> Tensor:  # (discs, *units)
    """The error of x with that of evaluating its polynomial: a larger value has a certain sign."""
    return outward(x.radius + rounding_factor(2 * x.order) * x.size)


def keeps_sign(x: TaylorModel) -> Tensor:  # (discs, *units)
    """Whether a proof exists that x has one sign on the sub-interval, for real |t| <= 1 / DISC_RATIO.

    There are two ways: the value at the center exceeds all changes; or the derivative has one sign, in the same way,
    and the values at both ends have one sign.
    """
    steps = torch.arange(1, x.order, dtype=torch.float64)
    weights = DISC_RATIO**-steps
    sizes = x.coefficients[1:].abs()
    error = sign_error(x)
    by_center = x.coefficients[0].abs() > outward(torch.tensordot(weights, sizes, 1)) + error
    if x.order < 3:
        return by_center
    slopes = outward(torch.tensordot((steps * weights)[1:], sizes[1:], 1))
    even, odd = (torch.tensordot(weights[k::2], x.coefficients[1 + k :: 2], 1) for k in (1, 0))
    ends = torch.stack((x.coefficients[0] + even - odd, x.coefficients[0] + even + odd))
    by_ends = (ends > error).all(0) | (ends < -error).all(0)
    return by_center | (by_ends & (sizes[0] * weights[0] > slopes))
