"""Rules of sums, products, matrix products and convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .analytic import EXP
from .compose import from_analytic, log, reciprocal
from .error_bound import ErrorBound, outward
from .rule_table import Operand, as_model, positive_dims, rule
from .taylor_model import TaylorModel


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
    """Whole powers by repeated squaring, others by exp(exponent log x)."""
    base = as_model(a)
    if exponent < 0:
        return reciprocal(power(base, -exponent))
    if exponent != int(exponent):
        return from_analytic(EXP)(log(base).scale(exponent))
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
    grad: TaylorModel,
    x: TaylorModel,
    weight: Tensor,
    bias_shape: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    *rest: Any,
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
