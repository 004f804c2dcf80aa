"""Compose analytic functions with Taylor models, with proven bounds on truncation and rounding."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .analytic import (
    DENSITY,
    RECIPROCAL,
    RSQRT,
    SIGMOID,
    Analytic,
    DiscBound,
    gelu_curvature,
    gelu_slope,
    normal,
    power_bound,
    silu_slope,
)
from .error_bound import ErrorBound, outward
from .taylor_model import TaylorModel, rounding_factor
from .tolerances import CAUCHY_RATIOS, ELEMENTARY_ROUNDINGS, UNIT_ROUNDOFF


@dataclass(frozen=True)
class Function:
    """A univariate function: how it acts on a polynomial, and a bound on its derivative."""

    name: str
    on_polynomial: Callable[[TaylorModel], TaylorModel]  # a model without radius to a model
    slope: DiscBound

    def __call__(self, model: TaylorModel) -> TaylorModel:
        """Compose g with p + e: g(p + e) differs from g(p) by at most sup |g'| times the radius of e.

        The segment from p(t) to p(t) + e(t) lies in the disc around p(0) whose radius is the spread of p plus the
        radius of e, so the supremum is taken there.
        """
        composed = self.on_polynomial(TaylorModel.polynomial(model.coefficients))
        slope = self.slope(model.coefficients[0], outward(model.spread + model.radius))
        is_defined = composed.coefficients.isfinite().all(0)
        local = ErrorBound(torch.where(is_defined, composed.radius, torch.inf))
        return TaylorModel(composed.coefficients, model.error.scale(outward(slope)) + local)


@functools.lru_cache
def root_tables(order: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Cosines and sines at the 2K-th roots of unity on the upper half circle, for a polynomial of K coefficients.

    Returns (K + 1, K) twice, which evaluate a polynomial, and (2K, K + 1) twice, which interpolate values.
    """
    nodes, doubled = torch.arange(order + 1), torch.arange(2 * order)
    angles = ((nodes[:, None] * doubled) % (2 * order)).to(torch.float64) * (math.pi / order)
    cos, sin = angles.cos(), angles.sin()
    weights = torch.full((order + 1,), 1.0 / order, dtype=torch.float64)  # conjugate nodes count together
    weights[0] = weights[order] = 0.5 / order
    return (
        cos[:, :order],
        sin[:, :order],
        (cos * weights[:, None]).T.contiguous(),
        (sin * weights[:, None]).T.contiguous(),
    )


def interpolate(polynomial: TaylorModel, g: Analytic) -> TaylorModel:
    """Compose g with a polynomial p of K coefficients by interpolation at the N = 2K roots of unity.

    Let f(t) = g(p(t)) - g(p(0)) = sum a_m t^m, analytic for |t| <= rho with |f| <= M there, so |a_m| <= M rho^-m
    (Cauchy). The interpolant's coefficients are b_k = a_k + a_(k+N) + a_(k+2N) + ... for k < N. Keeping the first K of
    them leaves, on the unit disc, at most

        sum over K <= k < N of |b_k|  +  2 (sum over m >= N of |a_m|),    where the last sum <= M rho^-N / (1 - 1/rho):

    one such sum for the aliases in all b_k and one for the terms of f beyond N. M is the smaller of R sup |g'| and
    sup |g| + |g(p(0))| on the disc around p(0) of radius R = sum |p_k| rho^k; the best of a few rho is taken.

    Rounding: if the values at the nodes are off by at most eta, then, by Parseval and Cauchy-Schwarz, the absolute
    coefficients are off by at most sqrt(N) eta in total. The sums of the transform are off by gamma times the mean
    absolute value, at most the variation V of f on the disc, for each of N coefficients.
    """
    order, center = polynomial.order, polynomial.coefficients[0]
    at_center = g.real(center)
    if order == 1:
        return TaylorModel(at_center[None], ErrorBound(outward(g.rounding(center, torch.zeros_like(center)))))
    flat = polynomial.coefficients.flatten(1)  # (order, discs * units)
    cos, sin, cos_back, sin_back = root_tables(order)
    real, imaginary = g.values(cos @ flat, sin @ flat)
    values = cos_back @ (real - at_center.flatten()) + sin_back @ imaginary
    coefficients = values[:order].unflatten(1, center.shape)
    coefficients[0] += at_center

    node_error = rounding_factor(2 * order + 4) * polynomial.size
    reach = outward(polynomial.spread + node_error)
    slope = g.slope(center, reach)
    value_error = slope * node_error + g.rounding(center, reach) + UNIT_ROUNDOFF * slope * reach
    transform_error = 3 * order * rounding_factor(2 * order + 6) * slope * reach  # 1.5 N gamma V
    start_error = g.rounding(center, torch.zeros_like(center)) + 2 * UNIT_ROUNDOFF * coefficients[0].abs()
    tail = values[order:].abs().sum(0).view(center.shape)
    errors = tail + math.sqrt(2 * order) * value_error + transform_error + start_error
    return TaylorModel(coefficients, ErrorBound(outward(errors + aliasing(polynomial, g, at_center))))


def aliasing(polynomial: TaylorModel, g: Analytic, at_center: Tensor) -> Tensor:  # (discs, *units)
    """The term 2 M rho^-N / (1 - 1/rho) of `interpolate`, for the best rho."""
    order, center = polynomial.order, polynomial.coefficients[0].flatten()
    ratios = torch.tensor(CAUCHY_RATIOS, dtype=torch.float64)
    powers = ratios[:, None] ** torch.arange(1, order)
    reach = outward(powers @ polynomial.coefficients[1:].abs().flatten(1))  # (ratios, discs * units)
    largest = torch.fmin(reach * g.slope(center, reach), g.bound(center, reach) + at_center.flatten().abs())
    decay = 2 * ratios ** (-2 * order) / (1 - 1 / ratios)
    return outward(largest * decay[:, None]).amin(0).view(at_center.shape)


def integrate(
    polynomial: TaylorModel, real: Callable[[Tensor], Tensor], derivative: Callable[[TaylorModel], TaylorModel]
) -> TaylorModel:
    """Compose the antiderivative G of g with a polynomial p: G(p(t)) = G(p(0)) + integral from 0 to t of g(p) p'.

    Integrating along the ray from 0 to t, |t| <= 1, enlarges no error, and divides the k-th coefficient by k.
    """
    order, center = polynomial.order, polynomial.coefficients[0]
    at_center = real(center)
    start_error = 2 * ELEMENTARY_ROUNDINGS * UNIT_ROUNDOFF * (at_center.abs() + center.abs() + 1)
    if order == 1:
        return TaylorModel(at_center[None], ErrorBound(outward(start_error)))
    steps = torch.arange(1, order, dtype=torch.float64).view(-1, *[1] * center.dim())
    velocity = TaylorModel.polynomial(polynomial.coefficients[1:] * steps).with_rounding(1)
    rate = derivative(polynomial) * velocity
    coefficients = torch.cat((at_center[None], rate.coefficients[: order - 1] / steps))
    last = rate.coefficients[order - 1].abs() / order  # one degree more than the model keeps
    return TaylorModel(coefficients, ErrorBound(outward(rate.radius + last + start_error))).with_rounding(1)


def power_series(coefficients: Tensor, exponent: float) -> Tensor:  # (order, discs, *units) twice
    """The first coefficients of x(t)^exponent for a series x, by Miller's recurrence from x y' = exponent x' y."""
    center = coefficients[0]
    powers = [center**exponent]
    for n in range(1, len(coefficients)):
        terms = (((exponent + 1) * k - n) * coefficients[k] * powers[n - k] for k in range(1, n + 1))
        powers.append(sum(terms, torch.zeros_like(center)) / (n * center))
    return torch.stack(powers)


def precondition(x: TaylorModel, exponent: float) -> tuple[TaylorModel, TaylorModel]:
    """A polynomial q close to x^exponent, and x q^(-1 / exponent), which is close to 1.

    Any polynomial would do. Bounds on powers of the second model are sharp even if x itself varies by a factor on the
    disc. If the second model has no zero on the disc, neither has x.
    """
    q = TaylorModel.polynomial(power_series(x.coefficients, exponent))
    return q, x * q if exponent == -1 else x * (q * q)


def reciprocal(x: TaylorModel) -> TaylorModel:
    """1 / x = q / (x q)."""
    q, ratio = precondition(x, -1)
    return q * from_analytic(RECIPROCAL)(ratio)


def inverse_root(x: TaylorModel) -> TaylorModel:
    """x^(-1/2) = q (x q^2)^(-1/2), where q(0) > 0 selects the branch that is positive for positive x.

    Infinite where x is not positive at t = 0.
    """
    q, ratio = precondition(x, -0.5)
    return q * from_analytic(RSQRT)(ratio)


def log(x: TaylorModel) -> TaylorModel:
    """The logarithm, from the integral of x' / x."""
    return Function("log", lambda p: integrate(p, torch.log, reciprocal), power_bound(-1))(x)


def _normal(p: TaylorModel) -> TaylorModel:
    return integrate(p, normal, lambda x: interpolate(x, DENSITY))


def _softplus(x: Tensor) -> Tensor:
    return torch.logaddexp(x, torch.zeros_like(x))


def from_analytic(g: Analytic) -> Function:
    """A function that is known at complex points."""
    return Function(g.name, lambda p: interpolate(p, g), g.slope)


NORMAL = Function("normal distribution function", _normal, DENSITY.bound)
GELU = Function("gelu", lambda p: p * _normal(p), gelu_slope)
GELU_DERIVATIVE = Function("gelu_backward", lambda p: _normal(p) + p * interpolate(p, DENSITY), gelu_curvature)
SILU = Function("silu", lambda p: p * interpolate(p, SIGMOID), silu_slope)
SOFTPLUS = Function("softplus", lambda p: integrate(p, _softplus, lambda x: interpolate(x, SIGMOID)), SIGMOID.bound)
