"""How every operator acts on Taylor models: a table from operator to rule.

A rule takes the arguments of the operator, with Taylor models in the place of tensors that depend on alpha; plain
tensors and numbers are constants. Gradients need no rules of their own: torch differentiates the graph, and the graph
of the gradient holds operators of this table.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .analytic import COS, EXP, SIGMOID, SIN
from .compose import (
    GELU,
    GELU_DERIVATIVE,
    NORMAL,
    SILU,
    SOFTPLUS,
    from_analytic,
    inverse_root,
    log,
    reciprocal,
)
from .error_bound import ErrorBound, euclidean, outward
from .taylor_model import TaylorModel
from .tolerances import DISC_RATIO

Operand = TaylorModel | Tensor | float
Rule = Callable[..., Any]

RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Enter a function into the table, for operators by their names in torch's schema."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def as_model(value: Operand) -> TaylorModel:
    """A constant as a model without error."""
    if isinstance(value, TaylorModel):
        return value
    return TaylorModel.constant(torch.as_tensor(value, dtype=torch.float64))


# --- sums and products ------------------------------------------------------------------------------------------------


@rule("add")
def add(a: Operand, b: Operand, alpha: float = 1) -> TaylorModel:
    return as_model(a) + (as_model(b) if alpha == 1 else as_model(b).scale(alpha))


@rule("sub")
def subtract(a: Operand, b: Operand, alpha: float = 1) -> TaylorModel:
    return as_model(a) - (as_model(b) if alpha == 1 else as_model(b).scale(alpha))


@rule("rsub")
def reversed_subtract(a: Operand, b: Operand, alpha: float = 1) -> TaylorModel:
    return subtract(b, a, alpha)


@rule("neg")
def negate(a: TaylorModel) -> TaylorModel:
    return -a


@rule("mul")
def multiply(a: Operand, b: Operand) -> TaylorModel:
    if isinstance(b, int | float):
        return as_model(a).scale(b)
    return as_model(a) * as_model(b)


@rule("div")
def divide(a: Operand, b: Operand) -> TaylorModel:
    return multiply(a, reciprocal(as_model(b)))


@rule("pow")
def power(a: Operand, exponent: float) -> TaylorModel:
    """Whole powers by repeated squaring; halves by square roots."""
    base = as_model(a)
    if exponent < 0:
        return reciprocal(power(base, -exponent))
    if exponent != int(exponent):
        return power(base * inverse_root(base), 2 * exponent)
    if exponent == 0:
        return TaylorModel.constant(torch.ones(base.shape, dtype=torch.float64))
    half = base if exponent == 1 else power(base, exponent // 2)
    return half if exponent == 1 else half * half * base if exponent % 2 else half * half


@rule("mm", "bmm", "matmul")
def matrix_product(a: Operand, b: Operand) -> TaylorModel:
    if isinstance(a, TaylorModel) and isinstance(b, Tensor):
        if b.dim() == 2:
            return a.apply_matrix(b)
        return a.map_linear(lambda x: x @ b, lambda x: x @ b.abs(), b.shape[-2])
    if isinstance(b, TaylorModel) and isinstance(a, Tensor):
        return b.map_linear(lambda x: a @ x, lambda x: a.abs() @ x, a.shape[-1])
    return as_model(a) @ as_model(b)


@rule("addmm", "baddbmm")
def add_matrix_product(c: Operand, a: Operand, b: Operand, beta: float = 1, alpha: float = 1) -> TaylorModel:
    return add(multiply(as_model(c), beta), multiply(matrix_product(a, b), alpha))


@rule("sum")
def sum_over(a: TaylorModel, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> TaylorModel:
    dims = positive_dims(dim, len(a.shape))
    total: Callable[[Tensor], Tensor] = lambda x: x.sum([d + 1 for d in dims], keepdim=keepdim)  # noqa: E731
    out = a.map_linear(total, total, math.prod(a.shape[d] for d in dims))
    if dims != [len(a.shape) - 1]:
        return out
    exact = TaylorModel.polynomial(a.coefficients).map_linear(total, total, a.shape[-1])
    norm = math.sqrt(a.shape[-1]) * a.error.norm_along(-1)  # |sum e| <= sqrt(n) |e|
    return TaylorModel(out.coefficients, ErrorBound(torch.minimum(out.radius, outward(exact.radius + total(norm)))))


@rule("mean")
def mean_over(a: TaylorModel, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> TaylorModel:
    dims = positive_dims(dim, len(a.shape))
    return divide(sum_over(a, dims, keepdim), float(math.prod(a.shape[d] for d in dims)))


@rule("var")
def variance(a: TaylorModel, dim: Any = None, correction: float = 1, keepdim: bool = False) -> TaylorModel:
    dims = positive_dims(dim, len(a.shape))
    centred = a - mean_over(a, dims, True)
    count = math.prod(a.shape[d] for d in dims)
    return divide(sum_over(centred * centred, dims, keepdim), float(count - correction))


@rule("convolution")
def convolution(
    x: TaylorModel, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, *rest: Any
) -> TaylorModel:
    def convolve(kernel: Tensor) -> Callable[[Tensor], Tensor]:
        def apply(rows: Tensor) -> Tensor:  # (rows, batch, channels, *positions)
            out = torch.ops.aten.convolution(rows.flatten(0, 1), kernel, None, stride, padding, dilation, *rest)
            return out.unflatten(0, rows.shape[:2])

        return apply

    out = x.map_linear(convolve(weight), convolve(weight.abs()), weight[0].numel() * weight.shape[0])
    if bias is None:
        return out
    return out + TaylorModel.constant(bias.view(-1, *[1] * (weight.dim() - 2)))


@rule("convolution_backward")
def convolution_backward(
    grad: TaylorModel, x: TaylorModel, weight: Tensor, bias_shape: Any, stride: Any, padding: Any, dilation: Any, *rest: Any
) -> tuple[TaylorModel, None, None]:
    """The gradient by the input, which is linear in ``grad``; only the shape of x matters."""

    def transpose(kernel: Tensor) -> Callable[[Tensor], Tensor]:
        def apply(rows: Tensor) -> Tensor:  # (rows, batch, channels, *positions)
            like = rows.new_zeros(len(rows) * x.shape[0], *x.shape[1:])
            settings = (None, stride, padding, dilation, *rest[:3], [True, False, False])
            out = torch.ops.aten.convolution_backward(rows.flatten(0, 1), like, kernel, *settings)[0]
            return out.unflatten(0, (len(rows), -1))

        return apply

    return grad.map_linear(transpose(weight), transpose(weight.abs()), weight.numel()), None, None


# --- univariate functions ---------------------------------------------------------------------------------------------

exp, sigmoid = from_analytic(EXP), from_analytic(SIGMOID)
UNIVARIATE: dict[str, Rule] = {
    "exp": exp,
    "reciprocal": reciprocal,
    "sqrt": lambda x: x * inverse_root(x),
    "rsqrt": inverse_root,
    "sigmoid": sigmoid,
    "sin": from_analytic(SIN),
    "cos": from_analytic(COS),
    "silu": SILU,
    "log": log,
}
RULES.update(UNIVARIATE)


@rule("gelu")
def gelu(x: TaylorModel, approximate: str = "none") -> TaylorModel:
    if approximate == "none":
        return GELU(x)
    cubic = x + (x * x * x).scale(0.044715)
    return x * sigmoid(cubic.scale(2 * math.sqrt(2 / math.pi)))  # (1 + tanh(y)) / 2 = sigmoid(2 y)


@rule("gelu_backward")
def gelu_backward(grad: Operand, x: TaylorModel, approximate: str = "none") -> TaylorModel:
    if approximate == "none":
        return multiply(grad, GELU_DERIVATIVE(x))
    rate = 2 * math.sqrt(2 / math.pi)
    square = x * x
    s = sigmoid((x + (square * x).scale(0.044715)).scale(rate))
    inner = add(square.scale(3 * 0.044715), 1.0).scale(rate)
    return multiply(grad, s + x * s * subtract(1.0, s) * inner)


@rule("tanh")
def tanh(x: TaylorModel) -> TaylorModel:
    return subtract(sigmoid(x.scale(2.0)).scale(2.0), 1.0)


@rule("erf")
def erf(x: TaylorModel) -> TaylorModel:
    return subtract(NORMAL(x.scale(math.sqrt(2.0))).scale(2.0), 1.0)


@rule("softplus")
def softplus(x: TaylorModel, beta: float = 1, threshold: float = 20) -> TaylorModel:
    """log(1 + exp(beta x)) / beta, also beyond the threshold, where torch returns x."""
    return SOFTPLUS(multiply(x, float(beta))).scale(1.0 / beta)


@rule("softplus_backward")
def softplus_backward(grad: Operand, x: TaylorModel, beta: float = 1, threshold: float = 20) -> TaylorModel:
    return multiply(grad, sigmoid(multiply(x, float(beta))))


# --- piecewise-linear operators -----------------------------------------------------------------------------------------


@rule("relu")
def relu(x: TaylorModel) -> TaylorModel:
    """The branch that is active at the center, where the sign on the sub-interval is proven."""
    return select_branch(x, x, 0.0)


@rule("leaky_relu")
def leaky_relu(x: TaylorModel, slope: float = 0.01) -> TaylorModel:
    return select_branch(x, x, slope)


@rule("threshold_backward")
def threshold_backward(grad: Operand, x: TaylorModel, threshold: float) -> TaylorModel:
    return select_branch(subtract(x, threshold), as_model(grad), 0.0)


@rule("leaky_relu_backward")
def leaky_relu_backward(grad: Operand, x: TaylorModel, slope: float, is_result: bool) -> TaylorModel:
    return select_branch(x, as_model(grad), slope)


@rule("abs")
def absolute(x: TaylorModel) -> TaylorModel:
    return select_branch(x, x, -1.0)


def select_branch(x: TaylorModel, value: TaylorModel, slope: float) -> TaylorModel:
    """``value`` where x is positive, ``slope * value`` where x is negative.

    The result is the branch of the center's sign on the whole disc, which is analytic. It agrees with the operator on
    the sub-interval if x keeps its sign there: for real |t| <= 1 / DISC_RATIO. Without a proof of that the error is
    infinite.
    """
    center = x.coefficients[0]
    factors = torch.where(center > 0, torch.ones_like(center), slope)
    error = value.error.scale(factors.abs()) + ErrorBound(torch.where(keeps_sign(x), 0 * x.radius, torch.inf))
    out = TaylorModel(value.coefficients * factors, error)
    return out if slope in (0, -1) else out.with_rounding(1)


def keeps_sign(x: TaylorModel) -> Tensor:  # (discs, *units)
    """Whether a proof exists that x has one sign for real |t| <= 1 / DISC_RATIO."""
    weights = DISC_RATIO ** -torch.arange(1, x.order, dtype=torch.float64)
    reach = torch.tensordot(weights, x.coefficients[1:].abs(), 1)
    return x.coefficients[0].abs() > outward(reach + x.radius)


# --- normalisations ---------------------------------------------------------------------------------------------------


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


def positive_dims(dim: Any, rank: int) -> list[int]:
    """The dims of an argument as a list of nonnegative ones; all of them for None or an empty list."""
    dims = list(range(rank)) if dim is None else [dim] if isinstance(dim, int) else list(dim) or list(range(rank))
    return [d % rank for d in dims]
