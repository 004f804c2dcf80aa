"""Affine operators: products with constants, sums of branches, averages, rearrangements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .base import Affine, root_sum_squares


@dataclass(frozen=True, eq=False)
class Product(Affine):
    """A product with a constant: linear, convolution, matmul, einsum, scaling."""

    call: Callable[[Tensor, Tensor], Tensor]  # linear in both arguments
    weight: Tensor
    offset: Tensor | None  # broadcastable to (points, *out)
    name: str = "product"
    fused: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None  # call and offset in one kernel
    settings: dict[str, Any] = field(default_factory=dict[str, Any], kw_only=True)  # what call was made with

    @property
    def title(self) -> str:
        return self.name

    def evaluate(self, *xs: Tensor) -> Tensor:
        if self.offset is None:
            return self.call(xs[0], self.weight)
        if self.fused is not None:
            return self.fused(xs[0], self.weight, self.offset.flatten())
        return self.call(xs[0], self.weight).add_(self.offset)

    def linear(self, *xs: Tensor) -> Tensor:
        return self.call(xs[0], self.weight)

    def constant_part(self, *zeros: Tensor) -> Tensor:
        return zeros[0].new_zeros(()) if self.offset is None else self.offset

    def vjp(self, grad: Tensor, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
        if self.call is F.linear:
            return [grad @ self.weight]
        if self._uses_fold(shapes[0]):
            return [self._fold(grad, shapes[0])]
        return super().vjp(grad, shapes)

    def _uses_fold(self, shape: Sequence[int]) -> bool:
        """Whether this is a convolution whose transpose is a matrix product and a fold: fast where torch's is slow."""
        known = self.settings
        plain = "stride" in known and not known.get("transposed", False) and len(shape) in (2, 3)
        return plain and known.get("padding_end", known["padding"]) == known["padding"]

    def _fold(self, grad: Tensor, shape: Sequence[int]) -> Tensor:
        known, groups = self.settings, self.settings["groups"]
        flat = len(shape) == 2  # one spatial dim: fold knows only two
        kernel = self.weight.reshape(groups, self.weight.shape[0] // groups, -1)
        out = grad.reshape(len(grad), groups, kernel.shape[1], -1)
        columns = torch.matmul(kernel.transpose(1, 2), out).reshape(len(grad), -1, out.shape[3])

        def both(sizes: Sequence[int], first: int = 1) -> tuple[int, ...]:
            return (first, *sizes) if flat else tuple(sizes)

        size, wide = both(shape[1:]), both(self.weight.shape[2:])
        dilation, padding, stride = both(known["dilation"]), both(known["padding"], 0), both(known["stride"])
        return F.fold(columns, size, wide, dilation, padding, stride).reshape(len(grad), *shape)

    def error_spread(self, *errors: Tensor) -> Tensor:
        squares, top = self._squared_weights
        return root_sum_squares(lambda e: self.call(e, squares), errors[0], top)

    @cached_property
    def _squared_weights(self) -> tuple[Tensor, float]:
        """Squared weights over their largest, and that largest weight."""
        top = float(self.weight.abs().max()) if self.weight.numel() else 1.0
        top = max(top, torch.finfo(self.weight.dtype).tiny)
        return (self.weight / top).square(), top

    @property
    def rounding_terms(self) -> float:
        outputs = self.weight.shape[0] if self.weight.dim() > 1 else self.weight.numel()
        return max(self.weight.numel() / max(outputs, 1), 1.0)


@dataclass(frozen=True, eq=False)
class Scale(Affine):
    """x * weight / divisor + offset, elementwise: batch norm, scalars, constants added."""

    weight: Tensor | None  # each broadcastable to (points, *shape)
    divisor: Tensor | None
    offset: Tensor | None
    name: str = "scale"
    settings: dict[str, Any] = field(default_factory=dict[str, Any], kw_only=True)  # a batch norm's own numbers

    @property
    def title(self) -> str:
        return self.name

    def evaluate(self, *xs: Tensor) -> Tensor:
        x = self.linear(*xs)
        return x if self.offset is None else x + self.offset

    def linear(self, *xs: Tensor) -> Tensor:
        x = xs[0]
        if self.weight is not None:
            x = x * self.weight
        if self.divisor is not None:
            x = x / self.divisor
        # an offset may be wider than x: the linear part has the output's shape all the same
        return x if self.offset is None else x.expand(torch.broadcast_shapes(x.shape, self.offset.shape))

    def vjp(self, grad: Tensor, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
        if self.weight is not None:
            grad = grad * self.weight
        if self.divisor is not None:
            grad = grad / self.divisor
        return [sum_to_shape(grad, shapes[0])]

    def error_spread(self, *errors: Tensor) -> Tensor:
        return self.linear(errors[0]).abs()

    @property
    def _constants(self) -> list[Tensor]:
        return [t for t in (self.weight, self.divisor, self.offset) if t is not None and t.is_floating_point()]

    @property
    def device(self) -> torch.device | None:
        """Where the constants are; None without any."""
        return self._constants[0].device if self._constants else None

    @property
    def dtype(self) -> torch.dtype:
        """The precision of the constants."""
        return self._constants[0].dtype if self._constants else torch.float64


@dataclass(frozen=True, eq=False)
class Combine(Affine):
    """A sum of branches, each times a number: add, sub, lerp."""

    factors: tuple[float, ...]

    @property
    def title(self) -> str:
        return "add" if self.factors[-1] == 1 else "sub" if self.factors[-1] == -1 else "combine"

    def evaluate(self, *xs: Tensor) -> Tensor:
        total = xs[0] if self.factors[0] == 1 else xs[0] * self.factors[0]
        for x, factor in zip(xs[1:], self.factors[1:], strict=True):
            total = torch.add(total, x, alpha=factor)
        return total

    def linear(self, *xs: Tensor) -> Tensor:
        return self.evaluate(*xs)

    def vjp(self, grad: Tensor, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
        return [
            sum_to_shape(grad, s) * f if f != 1 else sum_to_shape(grad, s)
            for s, f in zip(shapes, self.factors, strict=True)
        ]

    def error_spread(self, *errors: Tensor) -> Tensor:
        total = errors[0] * abs(self.factors[0])
        for error, factor in zip(errors[1:], self.factors[1:], strict=True):
            total = torch.hypot(*torch.broadcast_tensors(total, error * abs(factor)))
        return total


@dataclass(frozen=True, eq=False)
class Average(Affine):
    """A sum with fixed coefficients between 0 and 1: means, pools, sums, bilinear interpolation."""

    call: Callable[[Tensor], Tensor]
    count: int  # how many elements at most enter one output
    name: str = "average"
    fractions: bool = True  # whether the coefficients stand for fractions such as 1/3 that floats cannot hold
    settings: dict[str, Any] = field(default_factory=dict[str, Any], kw_only=True)  # what call was made with

    @property
    def title(self) -> str:
        return self.name

    def evaluate(self, *xs: Tensor) -> Tensor:
        return self.call(xs[0])

    def linear(self, *xs: Tensor) -> Tensor:
        return self.call(xs[0])

    def error_spread(self, *errors: Tensor) -> Tensor:
        return root_sum_squares(self.call, errors[0])

    @property
    def rounding_terms(self) -> float:
        return float(self.count)


@dataclass(frozen=True, eq=False)
class Rearrange(Affine):
    """Every output element is one input element or a constant: all shape operators.

    Several inputs are read as if their elements stood one after another.
    """

    index: Tensor  # (out elements,) flat input position, or -1 for a constant
    constant: Tensor | None  # (out elements,) read where index is -1
    shape: tuple[int, ...]  # of the output
    name: str = "rearrange"

    @property
    def title(self) -> str:
        return self.name

    def evaluate(self, *xs: Tensor) -> Tensor:
        out = self._gather(xs)
        if self.constant is not None:
            out = torch.where(self.index >= 0, out, self.constant)
        return out.view(len(xs[0]), *self.shape)

    def linear(self, *xs: Tensor) -> Tensor:
        out = self._gather(xs)
        if self.constant is not None:
            out = torch.where(self.index >= 0, out, torch.zeros_like(self.constant))
        return out.view(len(xs[0]), *self.shape)

    def vjp(self, grad: Tensor, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
        sizes = [torch.Size(s).numel() for s in shapes]
        total = grad.new_zeros(len(grad), sum(sizes))
        taken = self.index >= 0
        total.index_add_(1, self.index[taken], grad.reshape(len(grad), -1)[:, taken])
        return [g.reshape(len(grad), *s) for g, s in zip(total.split(sizes, 1), shapes, strict=True)]

    def error_spread(self, *errors: Tensor) -> Tensor:
        return self.linear(*errors)

    @property
    def rounding_terms(self) -> float:
        return 0.0

    def _gather(self, xs: tuple[Tensor, ...]) -> Tensor:
        flat = [x.reshape(len(x), -1) for x in xs]
        joined = flat[0] if len(flat) == 1 else torch.cat(flat, dim=1)
        if not joined.shape[1]:
            return joined.new_zeros(len(joined), len(self.index))
        return joined.index_select(1, self.index.clamp(min=0))


@dataclass(frozen=True, eq=False)
class Reshape(Affine):
    """The same elements in the same order under another shape."""

    shape: tuple[int, ...]

    def evaluate(self, *xs: Tensor) -> Tensor:
        return xs[0].reshape(len(xs[0]), *self.shape)

    def linear(self, *xs: Tensor) -> Tensor:
        return self.evaluate(*xs)

    def vjp(self, grad: Tensor, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
        return [grad.reshape(len(grad), *shapes[0])]

    def error_spread(self, *errors: Tensor) -> Tensor:
        return self.evaluate(*errors)

    @property
    def rounding_terms(self) -> float:
        return 0.0


def sum_to_shape(grad: Tensor, shape: Sequence[int]) -> Tensor:
    """Gradients (points, *wide) as gradients of what was broadcast from (points, *shape)."""
    return grad if tuple(grad.shape[1:]) == tuple(shape) else grad.sum_to_size(len(grad), *shape)
