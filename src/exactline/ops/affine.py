"""Affine operators: products with constant weights, sums of branches, averages, rearrangements."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..budget import check_deadline
from . import error_products
from .base import Affine, root_sum_squares
from .gemm import unfold_columns
from .masks import is_on_host

MAX_KEPT_SQUARES = 1 << 23  # weights of all layers whose squares a CPU keeps for error estimates: 64 MiB of float64
MAX_MATRIX_PIXELS = 8  # pixels of a map up to which a matrix product is faster than a convolution of single pixels
SQUARES_PER_BLOCK = 1 << 17  # weights of a linear layer that are squared at a time where the squares are not kept
_kept_squares: weakref.WeakKeyDictionary[Product, Tensor] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Product(Affine):
    """A product with a constant weight plus an offset: linear, convolution, matmul, einsum."""

    call: Callable[[Tensor, Tensor], Tensor]  # (input, weight) -> output, linear in both arguments
    weight: Tensor
    offset: Tensor | None  # broadcastable to (points, *out)
    name: str = "product"
    fused: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None  # product and offset in one kernel
    settings: dict[str, Any] = field(default_factory=dict[str, Any], kw_only=True)  # of call: stride, padding ...

    @property
    def title(self) -> str:
        return self.name

    def __setstate__(self, state: dict[str, Any]) -> None:
        # a built-in function of torch comes back equal, but not identical, and writers of files look for identity
        known = next((f for f in (torch.matmul, F.linear) if f == state["call"]), state["call"])
        vars(self).update(state, call=known)

    def evaluate(self, *xs: Tensor) -> Tensor:
        if self.offset is None:
            return self.call(xs[0], self.weight)
        if self.fused is not None:
            return self.fused(xs[0], self.weight, self.offset.flatten())
        return self.call(xs[0], self.weight).add_(self.offset)

    def linear(self, *xs: Tensor) -> Tensor:
        return self._multiply(xs[0], self.weight)

    @property
    def has_constant(self) -> bool:
        return self.offset is not None

    def constant_part(self, *zeros: Tensor) -> Tensor:
        return zeros[0].new_zeros(()) if self.offset is None else self.offset

    def vjp(self, grad: Tensor, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
        if self.call is F.linear:
            return [grad @ self.weight]
        if self._uses_fold(shapes[0]):
            return [self._fold(grad, shapes[0])]
        return super().vjp(grad, shapes)

    def _uses_fold(self, shape: Sequence[int]) -> bool:
        """Whether this is a convolution whose VJP is a matrix product and a fold, which is faster than torch's own."""
        settings = self.settings
        is_convolution = "stride" in settings and not settings.get("transposed", False) and len(shape) in (2, 3)
        return is_convolution and settings.get("padding_end", settings["padding"]) == settings["padding"]

    def _fold(self, grad: Tensor, shape: Sequence[int]) -> Tensor:
        """The VJP of a convolution: gradients (points, *out) to (points, *shape)."""
        settings, groups = self.settings, self.settings["groups"]
        one_dimensional = len(shape) == 2
        kernel = self.weight.reshape(groups, self.weight.shape[0] // groups, -1)
        out = grad.reshape(len(grad), groups, kernel.shape[1], -1)
        columns = torch.matmul(kernel.transpose(1, 2), out).reshape(len(grad), -1, out.shape[3])

        def as_two_dims(sizes: Sequence[int], first: int = 1) -> tuple[int, ...]:  # F.fold takes two spatial dims
            return (first, *sizes) if one_dimensional else tuple(sizes)

        return F.fold(
            columns,
            output_size=as_two_dims(shape[1:]),
            kernel_size=as_two_dims(self.weight.shape[2:]),
            dilation=as_two_dims(settings["dilation"]),
            padding=as_two_dims(settings["padding"], 0),
            stride=as_two_dims(settings["stride"]),
        ).reshape(len(grad), *shape)

    def error_spread(self, *errors: Tensor) -> Tensor:
        return root_sum_squares(self._multiply_by_squares, errors[0], self._largest_weight)

    def propagate_errors(self, deviations: list[Tensor], samples: list[Tensor]) -> tuple[Tensor, Tensor]:
        if not self._suits_single_precision:
            return super().propagate_errors(deviations, samples)
        return error_products.propagate(
            self,
            self._largest_weight,
            deviations[0],
            samples[0],
            in_blocks=self.call is F.linear,
        )

    @cached_property
    def _suits_single_precision(self) -> bool:
        return error_products.is_suited(self.weight, self._largest_weight, self.settings.get("groups", 1) > 1)

    def unfold_columns(self, x: Tensor, max_columns: int) -> Tensor | None:
        """The windows of a convolution, (terms, n, *out), if there are so few of them; None for all other products."""
        if "stride" not in self.settings or x.dim() != self.weight.dim():
            return None
        return unfold_columns(x, self.weight, self.settings, max_columns)

    def _multiply(self, x: Tensor, weight: Tensor) -> Tensor:
        """The product with the weight, or with one of its shape; of few pixels in single precision as a matrix."""
        if x.dtype != torch.float32 or not self._is_pixelwise or x.shape[2:].numel() > MAX_MATRIX_PIXELS:
            return self.call(x, weight)
        pixels = F.linear(x.flatten(2).transpose(1, 2), weight.flatten(1))
        return pixels.transpose(1, 2).reshape(*pixels.shape[:1], *weight.shape[:1], *x.shape[2:])

    @cached_property
    def _is_pixelwise(self) -> bool:
        """Whether this is a convolution of single pixels, one after another."""
        settings = self.settings
        if "stride" not in settings or settings["transposed"] or settings["groups"] > 1 or not is_on_host(self.weight):
            return False
        paddings = settings["padding"], settings.get("padding_end", settings["padding"])
        is_padded = any(any(p) if isinstance(p, (tuple, list)) else bool(p) for p in paddings)
        return self.weight.shape[2:].numel() == 1 and not is_padded and all(s == 1 for s in settings["stride"])

    def _multiply_by_squares(self, x: Tensor) -> Tensor:
        """The product with the squares of the weights relative to the largest."""
        squares = _kept_squares.get(self)
        if squares is None:
            kept = sum(t.numel() for t in _kept_squares.values())
            is_kept = not is_on_host(self.weight) or self.weight.numel() + kept <= MAX_KEPT_SQUARES
            if not is_kept and self.call is F.linear:
                return self._multiply_in_blocks(x)
            squares = (self.weight / self._largest_weight).square_()
            if is_kept:
                _kept_squares[self] = squares
        return self._multiply(x, squares)

    def _multiply_in_blocks(self, x: Tensor) -> Tensor:
        """`_multiply_by_squares` of a linear layer, a few outputs at a time; both buffers are used again and again."""
        step = max(1, SQUARES_PER_BLOCK // self.weight.shape[1])
        squares = torch.empty_like(self.weight[:step])
        flat = x.reshape(-1, x.shape[-1])
        out = flat.new_empty(len(self.weight), len(flat))
        for target, weights in zip(out.split(step), self.weight.split(step), strict=True):
            check_deadline()
            some = torch.div(weights, self._largest_weight, out=squares[: len(weights)]).square_()
            torch.mm(some, flat.T, out=target)
        return out.T.reshape(*x.shape[:-1], len(self.weight))

    @cached_property
    def _largest_weight(self) -> float:
        """The largest absolute weight, at least the smallest normal number."""
        low, high = torch.stack(torch.aminmax(self.weight)).tolist() if self.weight.numel() else (-1.0, 1.0)
        return max(-low, high, torch.finfo(self.weight.dtype).tiny)

    @property
    def rounding_terms(self) -> float:
        outputs = self.weight.shape[0] if self.weight.dim() > 1 else self.weight.numel()
        return max(self.weight.numel() / max(outputs, 1), 1.0) + (self.offset is not None)


@dataclass(frozen=True, eq=False)
class Scale(Affine):
    """x * weight / divisor + offset, elementwise: batch norm, products with and sums with constants."""

    weight: Tensor | None  # broadcastable to (points, *shape), as are divisor and offset
    divisor: Tensor | None
    offset: Tensor | None
    name: str = "scale"
    settings: dict[str, Any] = field(default_factory=dict[str, Any], kw_only=True)  # parameters of a batch norm

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
        # the offset may broadcast x to a larger shape: the linear part has the shape of the output
        return x if self.offset is None else torch.broadcast_tensors(x, self.offset)[0]

    @property
    def has_constant(self) -> bool:
        return self.offset is not None

    def constant_part(self, *zeros: Tensor) -> Tensor:
        return zeros[0].new_zeros(()) if self.offset is None else self.offset

    def vjp(self, grad: Tensor, shapes: Sequence[Sequence[int]]) -> list[Tensor]:
        if self.weight is not None:
            grad = grad * self.weight
        if self.divisor is not None:
            grad = grad / self.divisor
        return [sum_to_shape(grad, shapes[0])]

    def error_spread(self, *errors: Tensor) -> Tensor:
        return self.linear(errors[0]).abs()

    @property
    def spreads_elements(self) -> bool:
        return True

    @property
    def rounding_terms(self) -> float:
        return float(max(1, sum(t is not None for t in (self.weight, self.divisor, self.offset))))

    @property
    def _constants(self) -> list[Tensor]:
        return [t for t in (self.weight, self.divisor, self.offset) if t is not None and t.is_floating_point()]

    @property
    def device(self) -> torch.device | None:
        """Device of the constants; None if there are none."""
        return self._constants[0].device if self._constants else None

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the constants; float64 if there are none."""
        return self._constants[0].dtype if self._constants else torch.float64


@dataclass(frozen=True, eq=False)
class Combine(Affine):
    """A linear combination of branches: add, sub, lerp."""

    factors: tuple[float, ...]

    @property
    def has_constant(self) -> bool:
        return False

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

    @property
    def rounding_terms(self) -> float:
        # the sum of two branches is one operation; a factor, or a third branch, is rounded before
        return 1.0 if len(self.factors) == 2 and all(abs(f) == 1 for f in self.factors) else float(len(self.factors))

    def error_spread(self, *errors: Tensor) -> Tensor:
        total = errors[0] * abs(self.factors[0])
        for error, factor in zip(errors[1:], self.factors[1:], strict=True):
            total = torch.hypot(*torch.broadcast_tensors(total, error * abs(factor)))
        return total


@dataclass(frozen=True, eq=False)
class Average(Affine):
    """A linear map with fixed coefficients between 0 and 1: means, average pools, sums, bilinear interpolation."""

    call: Callable[[Tensor], Tensor]
    count: int  # the largest number of elements that enter one output
    name: str = "average"
    rational_coefficients: bool = True  # whether floats only approximate the coefficients, such as 1/3
    settings: dict[str, Any] = field(default_factory=dict[str, Any], kw_only=True)  # of call: kernel, stride ...

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
    """Each output element is an input element or a constant: permute, slice, pad, cat, gather and so on.

    Several inputs are flattened and concatenated.
    """

    index: Tensor  # (out elements,) flat position in the inputs, or -1 for a constant
    constant: Tensor | None  # (out elements,) the constants where index is -1
    shape: tuple[int, ...]  # shape of the output
    name: str = "rearrange"

    @property
    def has_constant(self) -> bool:
        return self.constant is not None

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
        flat = grad.reshape(len(grad), -1)
        if self.constant is not None:  # which gets nothing; a selection by a mask would wait for a GPU
            flat = flat.masked_fill(self.index < 0, 0.0)
        total.index_add_(1, self._source, flat)
        return [g.reshape(len(grad), *s) for g, s in zip(total.split(sizes, 1), shapes, strict=True)]

    def error_spread(self, *errors: Tensor) -> Tensor:
        return self.linear(*errors)

    @property
    def rounding_terms(self) -> float:
        return 0.0

    def _gather(self, xs: tuple[Tensor, ...]) -> Tensor:
        parts = [x.reshape(len(x), prod(x.shape[1:])) for x in xs]  # there may be no rows
        flat = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
        if not flat.shape[1]:
            return flat.new_zeros(len(flat), len(self.index))
        keeps_all = flat.shape[1] == len(self.index) and self._keeps_order
        return flat if keeps_all else flat.index_select(1, self._source)

    @cached_property
    def _source(self) -> Tensor:
        """(out elements,) `index`, with 0 for constants."""
        return self.index.clamp(min=0)

    @cached_property
    def _keeps_order(self) -> bool:
        """Whether the output begins with the inputs in order, as in a concatenation along the first dim."""
        return torch.equal(self.index, torch.arange(len(self.index), device=self.index.device))


@dataclass(frozen=True, eq=False)
class Reshape(Affine):
    """A change of shape that keeps the order of the elements."""

    shape: tuple[int, ...]

    @property
    def has_constant(self) -> bool:
        return False

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
    """Sum gradients (points, *out) over the dims that were broadcast, to (points, *shape)."""
    return grad if tuple(grad.shape[1:]) == tuple(shape) else grad.sum_to_size(len(grad), *shape)
