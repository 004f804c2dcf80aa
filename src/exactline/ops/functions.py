"""The named pointwise functions, each as knots and slopes."""

from __future__ import annotations

from fractions import Fraction
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from .pointwise import Pointwise

ZERO, ONE = Fraction(0), Fraction(1)


def relu() -> Pointwise:
    """The function max(x, 0)."""
    return Pointwise((ZERO,), (ZERO, ONE), ZERO, torch.relu, torch.relu_, "relu")


def leaky_relu(slope: float | Fraction, name: str = "leaky_relu") -> Pointwise:
    """The function x above zero and slope * x below."""
    kernel = partial(F.leaky_relu, negative_slope=float(slope))
    return Pointwise((ZERO,), (Fraction(slope), ONE), ZERO, kernel, name=name)


def prelu(slopes: Tensor) -> Pointwise:
    """Leaky ReLU with learned slopes, broadcastable to (1, *shape)."""
    return Pointwise((ZERO,), (slopes, ONE), ZERO, name="prelu")


def absolute() -> Pointwise:
    """The function |x|, with slope 0 where x is zero along a whole piece."""
    return Pointwise((ZERO,), (-ONE, ONE), ZERO, torch.abs, name="abs", flat_slope=ZERO)


def hardsigmoid() -> Pointwise:
    """The function (x + 3) / 6, clamped to [0, 1]."""
    return Pointwise((Fraction(-3), Fraction(3)), (ZERO, Fraction(1, 6), ZERO), ZERO, name="hardsigmoid")


def softshrink(lambd: float) -> Pointwise:
    """The function that moves x towards zero by lambd, and to zero if it is closer than that."""
    width = Fraction(lambd)
    return Pointwise((-width, width), (ONE, ZERO, ONE), ZERO, name="softshrink")


def clamp(low: float | Tensor | None, high: float | Tensor | None, name: str = "clamp") -> Pointwise:
    """The function x clamped to [low, high]; one bound may be None. If low > high the result is high, as in torch."""
    if isinstance(low, Tensor) or isinstance(high, Tensor):
        return _clamp_to_tensors(low, high, name)
    kernel = partial(torch.clamp, min=low, max=high)
    if low is None:
        top = Fraction(high or 0)
        return Pointwise((top,), (ONE, ZERO), top, kernel, name=name)
    bottom = Fraction(low)
    if high is None:
        return Pointwise((bottom,), (ZERO, ONE), bottom, kernel, name=name)
    top = Fraction(high)
    bottom = min(bottom, top)
    if bottom == top:
        return Pointwise((top,), (ZERO, ZERO), top, kernel, name=name)
    return Pointwise((bottom, top), (ZERO, ONE, ZERO), bottom, kernel, name=name)


def _clamp_to_tensors(low: float | Tensor | None, high: float | Tensor | None, name: str) -> Pointwise:
    tensors = [torch.as_tensor(v, dtype=torch.float64) for v in (low, high) if v is not None]
    bounds = torch.broadcast_tensors(*tensors)
    if low is None:
        return Pointwise((bounds[0],), (ONE, ZERO), bounds[0], name=name)
    if high is None:
        return Pointwise((bounds[0],), (ZERO, ONE), bounds[0], name=name)
    floor = torch.minimum(bounds[0], bounds[1])
    return Pointwise((floor, bounds[1]), (ZERO, ONE, ZERO), floor, name=name)
