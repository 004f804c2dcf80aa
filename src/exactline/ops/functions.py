"""The named pointwise functions as knots and slopes."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from .pointwise import Pointwise

ZERO, ONE = Fraction(0), Fraction(1)


def relu() -> Pointwise:
    """max(x, 0)."""
    return Pointwise((ZERO,), (ZERO, ONE), ZERO, torch.relu, torch.relu_, "relu")


def leaky_relu(slope: float | Fraction, name: str = "leaky_relu") -> Pointwise:
    """x above zero, slope * x below."""
    fast = partial(F.leaky_relu, negative_slope=float(slope))
    return Pointwise((ZERO,), (Fraction(slope), ONE), ZERO, fast, name=name)


def prelu(slopes: Tensor) -> Pointwise:
    """Leaky with a slope for each unit, broadcastable to (1, *shape)."""
    return Pointwise((ZERO,), (slopes, ONE), ZERO, name="prelu")


def absolute() -> Pointwise:
    """|x|, with slope 0 where x is zero along a piece."""
    return Pointwise((ZERO,), (-ONE, ONE), ZERO, torch.abs, name="abs", flat_slope=ZERO)


def hardsigmoid() -> Pointwise:
    """(x + 3) / 6 between 0 and 1."""
    return Pointwise((Fraction(-3), Fraction(3)), (ZERO, Fraction(1, 6), ZERO), ZERO, name="hardsigmoid")


def softshrink(lambd: float) -> Pointwise:
    """x drawn towards zero by lambd."""
    width = Fraction(lambd)
    return Pointwise((-width, width), (ONE, ZERO, ONE), ZERO, name="softshrink")


def clamp(low: float | Tensor | None, high: float | Tensor | None, name: str = "clamp") -> Pointwise:
    """x held between finite bounds, one of which may be missing; the upper one wins, as in torch."""
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        return _clamp_by_tensors(low, high, name)
    fast = partial(torch.clamp, min=low, max=high)
    if low is None:
        top = Fraction(high or 0)
        return Pointwise((top,), (ONE, ZERO), top, fast, name=name)
    bottom = Fraction(low)
    if high is None:
        return Pointwise((bottom,), (ZERO, ONE), bottom, fast, name=name)
    top = Fraction(high)
    bottom = min(bottom, top)
    if bottom == top:
        return Pointwise((top,), (ZERO, ZERO), top, fast, name=name)
    return Pointwise((bottom, top), (ZERO, ONE, ZERO), bottom, fast, name=name)


def _clamp_by_tensors(low: float | Tensor | None, high: float | Tensor | None, name: str) -> Pointwise:
    given = [torch.as_tensor(v, dtype=torch.float64) for v in (low, high) if v is not None]
    bounds = torch.broadcast_tensors(*given)
    if low is None:
        return Pointwise((bounds[0],), (ONE, ZERO), bounds[0], name=name)
    if high is None:
        return Pointwise((bounds[0],), (ZERO, ONE), bounds[0], name=name)
    floor = torch.minimum(bounds[0], bounds[1])
    return Pointwise((floor, bounds[1]), (ZERO, ONE, ZERO), floor, name=name)
