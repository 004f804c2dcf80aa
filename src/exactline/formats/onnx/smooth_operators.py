"""Smooth ONNX operators as functions of torch, for one point in the shapes of the file.

An entry takes the node and its inputs, None for one that is left out, and returns one tensor or several.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from .smooth_recurrent import gru, lstm, rnn
from .values import OnnxNode

SmoothFunction: TypeAlias = Callable[..., Any]  # (node, *inputs) -> Tensor or tuple


def _unary(function: Callable[[Tensor], Tensor]) -> SmoothFunction:
    return lambda node, x: function(x)


def _softplus(x: Tensor) -> Tensor:
    return torch.logaddexp(x, torch.zeros_like(x))


def _axes(node: OnnxNode, rank: int, given: Tensor | None) -> list[int]:
    """The axes of a reduction, from its second input or its attribute; all of them by default."""
    axes = node.get_ints("axes") if given is None else [int(a) for a in given.reshape(-1)]
    if not axes and node.get_attribute("noop_with_empty_axes", 0):
        return []
    return axes or list(range(rank))


def _reduction(function: Callable[[Tensor, list[int], bool], Tensor]) -> SmoothFunction:
    def reduce(node: OnnxNode, x: Tensor, axes: Tensor | None = None) -> Tensor:
        dims = _axes(node, x.dim(), axes)
        return function(x, dims, bool(node.get_attribute("keepdims", 1))) if dims else x

    return reduce


def _product(x: Tensor, dims: Sequence[int], keep: bool) -> Tensor:
    for dim in sorted((d % x.dim() for d in dims), reverse=True):
        x = x.prod(dim, keepdim=keep)
    return x


def _softmax(logarithm: bool) -> SmoothFunction:
    apply = torch.log_softmax if logarithm else torch.softmax

    def softmax(node: OnnxNode, x: Tensor) -> Tensor:
        axis = int(node.get_attribute("axis", -1 if node.opset >= 13 else 1))
        if node.opset >= 13:
            return apply(x, axis)
        axis %= x.dim() + (axis == x.dim())
        return apply(x.reshape(*x.shape[:axis], -1), axis).reshape(x.shape)  # over all dimensions from the axis on

    return softmax


def _gelu(node: OnnxNode, x: Tensor) -> Tensor:
    return functional.gelu(x, approximate=node.get_attribute("approximate", "none"))


def _normalize(x: Tensor, dims: Sequence[int], epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """Values of mean 0 and variance 1, the mean, and one over the standard deviation."""
    mean = x.mean(list(dims), keepdim=True)
    inverse = torch.rsqrt((x - mean).square().mean(list(dims), keepdim=True) + epsilon)
    return (x - mean) * inverse, mean, inverse


def _layer_norm(node: OnnxNode, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> tuple[Tensor, ...]:
    first = int(node.get_attribute("axis", -1)) % x.dim()
    found, mean, inverse = _normalize(x, range(first, x.dim()), node.get_number("epsilon", 1e-5))
    return found * scale + (0.0 if bias is None else bias), mean, inverse


def _rms_norm(node: OnnxNode, x: Tensor, scale: Tensor) -> Tensor:
    first = int(node.get_attribute("axis", -1)) % x.dim()
    mean = x.square().mean(list(range(first, x.dim())), keepdim=True)
    return x * torch.rsqrt(mean + node.get_number("epsilon", 1e-5)) * scale


def _instance_norm(node: OnnxNode, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    found = _normalize(x, range(2, x.dim()), node.get_number("epsilon", 1e-5))[0]
    shape = (1, -1, *[1] * (x.dim() - 2))
    return found * scale.reshape(shape) + bias.reshape(shape)


def _group_norm(node: OnnxNode, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    groups, channels = int(node.get_attribute("num_groups")), x.shape[1]
    grouped = x.reshape(x.shape[0], groups, -1)
    found = _normalize(grouped, [2], node.get_number("epsilon", 1e-5))[0].reshape(x.shape)
    shape = (1, -1, *[1] * (x.dim() - 2))
    repeats = channels // scale.numel()  # before operator set 21 there is one number for each group
    return found * scale.repeat_interleave(repeats).reshape(shape) + bias.repeat_interleave(repeats).reshape(shape)


def _lp_norm(node: OnnxNode, x: Tensor) -> Tensor:
    p, axis = int(node.get_attribute("p", 2)), int(node.get_attribute("axis", -1))
    return x / torch.linalg.vector_norm(x, p, axis, keepdim=True)


def _mean_variance(node: OnnxNode, x: Tensor) -> Tensor:
    return _normalize(x, node.get_ints("axes", [0, 2, 3]), 0.0)[0]


def _power(node: OnnxNode, x: Tensor, exponent: Tensor) -> Tensor:
    return torch.pow(x, exponent)


def _gemm(node: OnnxNode, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    a = a.mT if node.get_attribute("transA", 0) else a
    b = b.mT if node.get_attribute("transB", 0) else b
    product = node.get_number("alpha", 1.0) * (a @ b)
    return product if c is None else product + node.get_number("beta", 1.0) * c


def _einsum(node: OnnxNode, *xs: Tensor) -> Tensor:
    return torch.einsum(str(node.get_attribute("equation")), *xs)


def _hard_swish(node: OnnxNode, x: Tensor) -> Tensor:
    return x * (x / 6 + 0.5).clamp(0.0, 1.0)


def _swish(node: OnnxNode, x: Tensor) -> Tensor:
    return x * torch.sigmoid(node.get_number("alpha", 1.0) * x)


# Operators that are smooth whatever their inputs.
SMOOTH: dict[str, SmoothFunction] = {
    **{
        name: _unary(getattr(torch, name.lower()))
        for name in ("Sigmoid", "Tanh", "Erf", "Exp", "Log", "Sqrt", "Reciprocal", "Sin", "Cos", "Tan", "Asin", "Acos")
    },
    **{name: _unary(getattr(torch, name.lower())) for name in ("Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh")},
    "Softplus": _unary(_softplus),
    "Softsign": _unary(lambda x: x / (1 + x.abs())),
    "Mish": _unary(lambda x: x * torch.tanh(_softplus(x))),
    "Elu": lambda node, x: functional.elu(x, node.get_number("alpha", 1.0)),
    "Celu": lambda node, x: functional.celu(x, node.get_number("alpha", 1.0)),
    "Selu": _unary(functional.selu),
    "Gelu": _gelu,
    "HardSwish": _hard_swish,
    "Swish": _swish,
    "Softmax": _softmax(logarithm=False),
    "LogSoftmax": _softmax(logarithm=True),
    "LayerNormalization": _layer_norm,
    "RMSNormalization": _rms_norm,
    "InstanceNormalization": _instance_norm,
    "GroupNormalization": _group_norm,
    "LpNormalization": _lp_norm,
    "MeanVarianceNormalization": _mean_variance,
    "ReduceL2": _reduction(lambda x, dims, keep: x.square().sum(dims, keepdim=keep).sqrt()),
    "ReduceSumSquare": _reduction(lambda x, dims, keep: x.square().sum(dims, keepdim=keep)),
    "ReduceLogSumExp": _reduction(lambda x, dims, keep: torch.logsumexp(x, dims, keepdim=keep)),
    "ReduceLogSum": _reduction(lambda x, dims, keep: x.sum(dims, keepdim=keep).log()),
    "ReduceProd": _reduction(_product),
    "LSTM": lstm,
    "GRU": gru,
}
# Operators that are piecewise linear in some uses: a product with a constant is affine, one of branches is not.
SOMETIMES_SMOOTH: dict[str, SmoothFunction] = {
    "Mul": lambda node, a, b: a * b,
    "Div": lambda node, a, b: a / b,
    "MatMul": lambda node, a, b: a @ b,
    "Gemm": _gemm,
    "Einsum": _einsum,
    "Pow": _power,
    "RNN": rnn,
}
