"""Rules of softmax, LayerNorm and BatchNorm."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .compose import inverse_root, log, reciprocal
from .error_bound import ErrorBound, euclidean, outward
from .function_rules import exp
from .linear_rules import add, divide, mean_over, multiply, sum_over
from .rule_table import as_model, rule
from .taylor_model import TaylorModel


@rule("_softmax", "_safe_softmax")
def softmax(x: TaylorModel, dim: int, *rest: Any) -> TaylorModel:
    weights = exp(shift_logits(x, dim))
    return weights * reciprocal(sum_over(weights, dim, True))


@rule("_log_softmax")
def log_softmax(x: TaylorModel, dim: int, *rest: Any) -> TaylorModel:
    shifted = shift_logits(x, dim)
    return shifted - log(sum_over(exp(shifted), dim, True))


def shift_logits(x: TaylorModel, dim: int) -> TaylorModel:
    """Subtract a common polynomial, which changes no softmax.

    At the center it is the logarithm of the sum of the exponentials, and its other coefficients are averages weighted
    by the softmax, so that the sum of the new exponentials is 1 at the center with derivative 0.
    """
    axis = dim % len(x.shape) + 1
    center = x.coefficients[0]
    shift = (x.coefficients * center.softmax(axis)).sum(axis + 1, keepdim=True)
    shift[0] = center.logsumexp(axis, keepdim=True)
    return x - TaylorModel.polynomial(shift)


@rule("native_layer_norm")
def layer_norm(
    x: TaylorModel, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[TaylorModel, TaylorModel, TaylorModel]:
    if len(shape) == 1:
        mean, centred, scale, out = normalize_vectors(x, eps)
    else:
        dims = list(range(-len(shape), 0))
        mean = mean_over(x, dims, True)
        centred = x - mean
        scale = inverse_root(add(mean_over(centred * centred, dims, True), eps))
        out = centred * scale
    out = out if weight is None else multiply(out, weight)
    return out if bias is None else add(out, bias), mean, scale


def normalize_vectors(x: TaylorModel, eps: float) -> tuple[TaylorModel, TaylorModel, TaylorModel, TaylorModel]:
    """Mean, x minus mean, s = (mean square + eps)^(-1/2) and their product, along the last axis.

    The projection c of x does not enlarge the Euclidean norm of the error. The derivative of c s with respect to c is
    s (I - v v^T) with v = c s / sqrt(n), where v^T v = 1 - eps s^2. For v = a + i b with real a and b,

        |I - v v^T| <= |I - a a^T| + |b|^2 + 2 |a| |b|,    |a|^2 = Re v^T v + |b|^2,    |I - a a^T| = max(1, |a|^2 - 1),

    and b is at most the distance of v from its real value at the center. This is about half of what separate bounds on
    c and s give.
    """
    count = x.shape[-1]
    mean = mean_over(x, -1, True)
    centred = x.apply_matrix(centring_matrix(count))
    scale = inverse_root(add(divide(dot(centred, centred), float(count)), eps))
    out = centred * scale
    exact = TaylorModel.polynomial(centred.coefficients)
    local = exact * inverse_root(add(divide(dot(exact, exact), float(count)), eps))
    sizes, deviations = out.bound / math.sqrt(count), (out.spread + out.radius) / math.sqrt(count)
    size, deviation = euclidean(sizes, -1), euclidean(deviations, -1)
    factor = torch.maximum(torch.ones(()), size * size - 1) + deviation * deviation + 2 * size * deviation
    norm = outward(scale.bound * factor * centred.error.norm_along(-1))
    error = ErrorBound.best(norm.expand_as(out.radius), norm, -1) + local.error
    return mean, centred, scale, TaylorModel(out.coefficients, out.error.intersect(error))


def dot(a: TaylorModel, b: TaylorModel) -> TaylorModel:
    """The scalar product along the last axis, which stays with size 1."""
    return (a.move(lambda v: v[..., None, :], -1) @ b.move(lambda v: v[..., None], -2)).move(lambda v: v[..., 0])


@functools.lru_cache
def centring_matrix(count: int) -> Tensor:
    """The projection that subtracts the mean."""
    return torch.eye(count, dtype=torch.float64) - 1.0 / count


@rule("native_batch_norm")
def batch_norm(
    x: TaylorModel,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[TaylorModel, None, None]:
    """Normalise channels by constants; training mode has been refused before."""
    channels = (-1, *[1] * (len(x.shape) - 2))
    scale = inverse_root(add(var, eps))
    scale = scale if weight is None else multiply(scale, weight)
    out = (x - as_model(mean.view(channels))) * scale.move(lambda v: v.view(1, *channels))
    return out if bias is None else add(out, bias.view(channels)), None, None
