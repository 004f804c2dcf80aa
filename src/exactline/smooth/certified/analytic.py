"""Univariate analytic functions: values at complex points, and bounds on complex discs around real centers.

Every bound is a supremum over the disc |z - a| <= R with a real center a, or larger. Bounds are infinite where the disc
may contain a singularity.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .tolerances import CANCELLATION_GAP, ELEMENTARY_ROUNDINGS, UNIT_ROUNDOFF

ComplexPoints = tuple[Tensor, Tensor]  # real and imaginary parts
DiscBound = Callable[[Tensor, Tensor], Tensor]  # center and radius of discs to a bound
INVERSE_ROOT_TWO_PI = 1.0 / math.sqrt(2.0 * math.pi)


@dataclass(frozen=True)
class Analytic:
    """A function g that is real on the real line and analytic near it."""

    name: str
    real: Callable[[Tensor], Tensor]  # g at real points
    values: Callable[[Tensor, Tensor], ComplexPoints]  # g at complex points
    bound: DiscBound  # of |g|
    slope: DiscBound  # of |g'|
    rounding: DiscBound  # of the float64 error of `values` and of `real`


def relative(bound: DiscBound, roundings: float = 2 * ELEMENTARY_ROUNDINGS) -> DiscBound:
    """The rounding error of a function that is evaluated with a small relative error."""
    return lambda a, r: roundings * UNIT_ROUNDOFF * bound(a, r)


# --- exp: |exp z| = exp(Re z) -----------------------------------------------------------------------------------------


def exp_values(x: Tensor, y: Tensor) -> ComplexPoints:
    """Exp at x + i y."""
    size = x.exp()
    return size * y.cos(), size * y.sin()


def exp_bound(a: Tensor, r: Tensor) -> Tensor:
    """|exp z| = exp(Re z) <= exp(a + r)."""
    return (a + r).exp()


# --- 1/z and powers of 1/2: analytic on discs in the right half-plane -------------------------------------------------


def reciprocal_values(x: Tensor, y: Tensor) -> ComplexPoints:
    """1 / z = conj(z) / |z|^2."""
    square = x * x + y * y
    return x / square, -y / square


def root_values(x: Tensor, y: Tensor) -> ComplexPoints:
    """The principal square root for Re z > 0: u + i y / (2 u) with u^2 = (|z| + x) / 2, which cancels nothing."""
    u = ((torch.hypot(x, y) + x) / 2).sqrt()
    return u, y / (2 * u)


def inverse_root_values(x: Tensor, y: Tensor) -> ComplexPoints:
    """1 / sqrt(z) for Re z > 0."""
    return reciprocal_values(*root_values(x, y))


def distance_from_zero(a: Tensor, r: Tensor) -> Tensor:
    """The distance of the disc from 0; NaN where it contains 0."""
    gap = a.abs() - r
    return torch.where(gap > 0, gap, torch.nan)


def right_gap(a: Tensor, r: Tensor) -> Tensor:
    """The smallest real part in the disc, which bounds |z| from below there; NaN unless it is positive."""
    return torch.where(a > r, a - r, torch.nan)


def power_bound(exponent: float, factor: float = 1.0) -> DiscBound:
    """|factor z^exponent| on discs in the right half-plane: |z| lies between a - r and a + r."""
    if exponent < 0:
        return lambda a, r: factor * right_gap(a, r) ** exponent
    return lambda a, r: factor * (a + r) ** exponent + 0 * right_gap(a, r)


# --- the normal density phi and distribution function Phi -------------------------------------------------------------


def density_values(x: Tensor, y: Tensor) -> ComplexPoints:
    """Exp(-z^2 / 2) / sqrt(2 pi)."""
    re, im = exp_values((y - x) * (y + x) / 2, -x * y)
    return re * INVERSE_ROOT_TWO_PI, im * INVERSE_ROOT_TWO_PI


def density_bound(a: Tensor, r: Tensor) -> Tensor:
    """|phi(x + i y)| = exp(-(x^2 - y^2) / 2) / sqrt(2 pi), with the smallest x^2 - y^2 on the disc.

    The harmonic function x^2 - y^2 is smallest on the circle x = |a| + r cos, y = r sin, where it equals
    a^2 + 2 |a| r cos + r^2 (2 cos^2 - 1): at cos = -|a| / (2 r) it is a^2 / 2 - r^2, if |a| <= 2 r, and otherwise it is
    smallest at cos = -1.
    """
    size = a.abs()
    least = torch.where(size <= 2 * r, size * size / 2 - r * r, (size - r) ** 2)
    rounding = 4 * UNIT_ROUNDOFF * (size + r) ** 2  # of the exponent, whose terms may cancel
    return (rounding - least / 2).exp() * INVERSE_ROOT_TWO_PI


def density_rounding(a: Tensor, r: Tensor) -> Tensor:
    """The exponent z^2 / 2 is rounded relative to |z|^2, which is a relative error of the result."""
    return UNIT_ROUNDOFF * (3 * ELEMENTARY_ROUNDINGS + 4 * (a.abs() + r) ** 2) * density_bound(a, r)


def normal(x: Tensor) -> Tensor:
    """Phi at real points."""
    return torch.special.ndtr(x)


def normal_bound(a: Tensor, r: Tensor) -> Tensor:
    """|Phi(z)| <= Phi(a) + r sup |phi|, from integrating phi along the segment from a to z.

    On a vertical segment the same argument gives |Phi(a + i b)| <= Phi(a) + phi(a) |b| exp(b^2 / 2).
    """
    return normal(a) + r * density_bound(a, r)


# --- GELU(z) = z Phi(z), with derivatives Phi(z) + z phi(z) and (2 - z^2) phi(z) --------------------------------------


def gelu_slope(a: Tensor, r: Tensor) -> Tensor:
    """|GELU'(z)| <= |GELU'(a)| + r sup |GELU''|."""
    density = (-a * a / 2).exp() * INVERSE_ROOT_TWO_PI
    return (normal(a) + a * density).abs() + r * gelu_curvature(a, r) + ELEMENTARY_ROUNDINGS * UNIT_ROUNDOFF


def gelu_curvature(a: Tensor, r: Tensor) -> Tensor:
    """|GELU''(z)| <= (2 + |z|^2) |phi(z)|; near a also by |2 - z^2| <= |2 - a^2| + r (2 |a| + r)."""
    size = a.abs()
    factor = torch.minimum(2 + (size + r) ** 2, (2 - a * a).abs() + r * (2 * size + r))
    return (factor + ELEMENTARY_ROUNDINGS * UNIT_ROUNDOFF) * density_bound(a, r)


# --- the logistic function s(z) = 1 / (1 + exp(-z)) -------------------------------------------------------------------


def sigmoid_values(x: Tensor, y: Tensor) -> ComplexPoints:
    """S(z) by the exponential that does not overflow: s(z) = 1 - s(-z)."""
    re, im = exp_values(-x.abs(), torch.where(x < 0, y, -y))
    small, minus_im = reciprocal_values(1 + re, im)
    return torch.where(x < 0, 1 - small, small), torch.where(x < 0, -minus_im, minus_im)


def sigmoid_bound(a: Tensor, r: Tensor) -> Tensor:
    """|s(z)| = 1 / |1 + w| with w = exp(-z), in the best of three ways.

    For r < pi the argument of w is at most r, so |1 + w|^2 >= 1 + 2 |w| cos r + |w|^2; if cos r >= 0 this is smallest
    for the smallest |w|, which is exp(-a - r), and otherwise at least sin(r)^2. If all |w| < 1, |1 + w| >= 1 - |w|. If
    all |w| > 1, |1 + w| >= |w| - 1. A disc with none of these may contain a pole.
    """
    least, most = (-a - r).exp(), (r - a).exp()
    cos = r.cos()
    wide = torch.where(cos >= 0, 1 + 2 * least * cos + least * least, r.sin() ** 2)
    candidates = (
        torch.where(r < 3.1415, wide.rsqrt(), torch.inf),
        torch.where(most < 1 - CANCELLATION_GAP, 1 / (1 - most), torch.inf),
        torch.where(least > 1 + CANCELLATION_GAP, 1 / (least - 1), torch.inf),
    )
    return torch.stack(candidates).amin(0)


def sigmoid_slope(a: Tensor, r: Tensor) -> Tensor:
    """s'(z) = s(z) s(-z)."""
    return sigmoid_bound(a, r) * sigmoid_bound(-a, r)


def sigmoid_rounding(a: Tensor, r: Tensor) -> Tensor:
    """Rounding 1 + w by u (1 + |w|) changes s by |s|^2 u (1 + |w|) <= |s| u (|s| + |s(-z)|)."""
    one, other = sigmoid_bound(a, r), sigmoid_bound(-a, r)
    return 3 * ELEMENTARY_ROUNDINGS * UNIT_ROUNDOFF * (1 + one * (1 + one + other))


def silu_slope(a: Tensor, r: Tensor) -> Tensor:
    """SiLU'(z) = s(z) + z s'(z)."""
    return sigmoid_bound(a, r) + (a.abs() + r) * sigmoid_slope(a, r)


# --- sin and cos: |sin z|, |cos z| <= cosh(Im z) ----------------------------------------------------------------------


def sin_values(x: Tensor, y: Tensor) -> ComplexPoints:
    """Sin at x + i y."""
    return x.sin() * y.cosh(), x.cos() * y.sinh()


def cos_values(x: Tensor, y: Tensor) -> ComplexPoints:
    """Cos at x + i y."""
    return x.cos() * y.cosh(), -x.sin() * y.sinh()


def wave_bound(a: Tensor, r: Tensor) -> Tensor:
    """|sin z| and |cos z| are at most cosh(Im z)."""
    return r.cosh() + 0 * a


EXP = Analytic("exp", torch.exp, exp_values, exp_bound, exp_bound, relative(exp_bound))
SIN = Analytic("sin", torch.sin, sin_values, wave_bound, wave_bound, relative(wave_bound))
COS = Analytic("cos", torch.cos, cos_values, wave_bound, wave_bound, relative(wave_bound))
RECIPROCAL = Analytic(
    "reciprocal",
    torch.reciprocal,
    reciprocal_values,
    lambda a, r: 1 / distance_from_zero(a, r),
    lambda a, r: distance_from_zero(a, r) ** -2,
    relative(lambda a, r: 1 / distance_from_zero(a, r)),
)
RSQRT = Analytic(
    "rsqrt", torch.rsqrt, inverse_root_values, power_bound(-0.5), power_bound(-1.5, 0.5), relative(power_bound(-0.5))
)
SIGMOID = Analytic("sigmoid", torch.sigmoid, sigmoid_values, sigmoid_bound, sigmoid_slope, sigmoid_rounding)
DENSITY = Analytic(
    "normal density",
    lambda x: density_values(x, torch.zeros_like(x))[0],
    density_values,
    density_bound,
    lambda a, r: (a.abs() + r) * density_bound(a, r),
    density_rounding,
)
