"""Calls of torch functions with fixed settings, as objects that can be pickled with a network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..ops import gemm


@dataclass(frozen=True, eq=False)
class Convolution:
    """A convolution of an input with a kernel, and a bias if one is given."""

    name: str  # of the function in torch.nn.functional
    keywords: dict[str, Any]
    settings: dict[str, Any]  # the keywords with one number for each spatial dimension

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        product = gemm.convolve_by_gemm(x, weight, bias, self.settings)
        if product is not None:
            return product
        return gemm.convolve_in_blocks(
            getattr(F, self.name), x, weight, bias, keywords=self.keywords, settings=self.settings
        )


@dataclass(frozen=True, eq=False)
class Einsum:
    """torch.einsum of an input and a weight."""

    equation: str
    data_first: bool  # whether the input is the first operand

    def __call__(self, x: Tensor, weight: Tensor) -> Tensor:
        return torch.einsum(self.equation, *((x, weight) if self.data_first else (weight, x)))


@dataclass(frozen=True, eq=False)
class Tensordot:
    """torch.tensordot of an input and a weight."""

    dims: tuple[list[int], list[int]]

    def __call__(self, x: Tensor, weight: Tensor) -> Tensor:
        return torch.tensordot(x, weight, dims=self.dims)  # pyright: ignore[reportArgumentType]


@dataclass(frozen=True, eq=False)
class BoundOperator:
    """A torch operator as a function of some of its arguments, with all others fixed."""

    target: Callable[..., Any]
    args: dict[str, Any]  # by name, `ARGUMENT` for those that are given later, also inside lists

    def __call__(self, *xs: Tensor) -> Any:
        tensors = iter(xs)

        def substitute(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return [substitute(v) for v in value]
            return next(tensors) if isinstance(value, Argument) else value

        return self.target(**{k: substitute(v) for k, v in self.args.items()})

    def __reduce__(self) -> tuple[Any, ...]:
        name, overload = self.target._schema.name, self.target._overloadname  # pyright: ignore[reportFunctionMemberAccess]
        return _bind_by_name, (name, overload or "default", self.args)


class Argument:
    """Stands for an argument of a `BoundOperator` that is given later."""


ARGUMENT = Argument()


def _bind_by_name(name: str, overload: str, args: dict[str, Any]) -> BoundOperator:
    namespace, short = name.split("::")
    return BoundOperator(getattr(getattr(getattr(torch.ops, namespace), short), overload), args)


@dataclass(frozen=True, eq=False)
class NativePool:
    """Torch's max pool, with the indices, which torch counts within a channel, as flat positions in the point."""

    settings: tuple[Any, ...]  # kernel, stride, padding, dilation, ceil_mode
    plane: int  # elements of one channel

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, index = F.max_pool2d(x, *self.settings, return_indices=True)
        start = torch.arange(x.shape[1], device=x.device).view(1, -1, 1, 1) * self.plane
        return values.flatten(1), (index + start).flatten(1)


@dataclass(frozen=True, eq=False)
class ComposedPool:
    """A max pool of a max pool."""

    inner: Callable[[Tensor], tuple[Tensor, Tensor]]
    outer: Callable[[Tensor], tuple[Tensor, Tensor]]
    shape: tuple[int, ...]  # of the inner pool's output

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        values, position = self.inner(x)
        values, index = self.outer(values.view(len(x), *self.shape))
        return values, position.gather(1, index)


@dataclass(frozen=True, eq=False)
class Softmax:
    """Softmax or log-softmax over one dimension, or over it and all later ones together."""

    name: str  # softmax or log_softmax
    dim: int
    flattens: bool = False  # over all dimensions from dim on, as in ONNX before operator set 13

    def __call__(self, x: Tensor) -> Tensor:
        function = getattr(torch, self.name)
        return function(x.flatten(self.dim), self.dim).view(x.shape) if self.flattens else function(x, self.dim)
