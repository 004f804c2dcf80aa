"""Bounds on vectors of errors: for every element, and in the Euclidean norm along one axis.

Radii alone grow by the row sums of |W| in every linear layer, although W hardly enlarges the Euclidean norm. Carrying
both bounds and keeping the smaller one slows the growth: at points of an encoder of width 32, from a factor of about
2,000 for each layer to about 100.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from .tolerances import OUTWARD_FACTOR, SPECTRAL_SQUARINGS, UNDERFLOW, UNIT_ROUNDOFF


def outward(bound: Tensor) -> Tensor:
    """Enlarge a computed nonnegative bound so that it holds despite the roundings in it; NaN becomes infinity."""
    return torch.nan_to_num(bound * OUTWARD_FACTOR + UNDERFLOW, nan=torch.inf, posinf=torch.inf)


def euclidean(sizes: Tensor, axis: int) -> Tensor:
    """Bound the Euclidean norm of vectors by bounds on their elements; ``axis`` stays with size 1."""
    return outward(torch.linalg.vector_norm(sizes, dim=axis, keepdim=True))


@dataclass(frozen=True, eq=False)
class ErrorBound:
    """A set of vectors: those with every element and the norm along ``axis`` within bounds."""

    elements: Tensor  # (discs, *units)
    norm: Tensor | None = None  # (discs, *units) with size 1 along axis; None if only elements are bounded
    axis: int = -1  # counted from the end

    @staticmethod
    def best(elements: Tensor, norm: Tensor, axis: int) -> ErrorBound:
        """Use each of the bounds to improve the other one."""
        elements = torch.minimum(elements, norm)
        return ErrorBound(elements, torch.minimum(norm, euclidean(elements, axis)), axis)

    def intersect(self, other: ErrorBound) -> ErrorBound:
        """Keep the smaller one of two bounds on the same errors."""
        elements = torch.minimum(self.elements, other.elements)
        if self.norm is None or other.norm is None or self.axis != other.axis:
            bound = self if self.norm is not None else other
            return ErrorBound(elements, bound.norm, bound.axis)
        return ErrorBound.best(elements, torch.minimum(self.norm, other.norm), self.axis)

    def norm_along(self, axis: int) -> Tensor:
        """Bound the norm along an axis, which stays with size 1."""
        if self.norm is not None and self.axis == axis:
            return self.norm
        return euclidean(self.elements, axis)

    def with_rank(self, rank: int) -> ErrorBound:
        """Insert dims of size 1 in front of the units."""
        index = (slice(None), *[None] * (rank - self.elements.dim() + 1))
        return ErrorBound(self.elements[index], None if self.norm is None else self.norm[index], self.axis)

    def __add__(self, other: ErrorBound) -> ErrorBound:
        elements = outward(self.elements + other.elements)
        axis = self.axis if self.norm is not None else other.axis
        if (self.norm is None and other.norm is None) or elements.dim() < 2:
            return ErrorBound(elements)
        norms = (x.broadcast_along(axis, elements).norm_along(axis) for x in (self, other))
        return ErrorBound.best(elements, outward(sum(norms, torch.zeros(()))), axis)

    def broadcast_along(self, axis: int, like: Tensor) -> ErrorBound:
        """Repeat elements along an axis in which they have size 1."""
        if self.elements.dim() == like.dim() and self.elements.shape[axis] == like.shape[axis]:
            return self
        return ErrorBound(self.elements.expand(-1, *like.shape[1:]))

    def scale(self, sizes: Tensor) -> ErrorBound:
        """Multiply elementwise by functions with the bounds ``sizes``, (discs, *units)."""
        elements = outward(torch.where(self.elements == 0, 0.0, self.elements * sizes))
        if self.norm is None or self.elements.shape[1:] != elements.shape[1:]:
            return ErrorBound(elements)
        largest = sizes.expand_as(elements).amax(self.axis, keepdim=True)
        return ErrorBound.best(elements, outward(self.norm * largest), self.axis)

    def apply_matrix(self, weight: Tensor) -> ErrorBound:
        """Multiply vectors along the last axis by a constant matrix, (inputs, outputs)."""
        norm = self.norm_along(-1)
        columns = outward(torch.linalg.vector_norm(weight, dim=0))
        elements = outward(torch.minimum(self.elements @ weight.abs(), norm * columns))
        return ErrorBound.best(elements, outward(norm * spectral_norm(weight)), -1)

    def transpose(self) -> ErrorBound:
        """Swap the last two axes of the units."""
        axis = {-1: -2, -2: -1}.get(self.axis, self.axis)
        return ErrorBound(self.elements.mT, None if self.norm is None else self.norm.mT, axis)

    def move(self, op: Callable[[Tensor], Tensor], axis: int | None = None) -> ErrorBound:
        """Move the elements; ``axis`` is where the vectors along the old axis, or parts of them, lie afterwards."""
        elements = op(self.elements)
        if self.norm is None or axis is None:
            return ErrorBound(elements)
        norm = op(self.norm.expand_as(self.elements)).amax(axis, keepdim=True)
        return ErrorBound(elements, norm, axis)


_spectral_norms = WeakTensorKeyDictionary()


def spectral_norm(weight: Tensor) -> Tensor:
    """Bound the spectral norm of a matrix from above.

    With G = W^T W, the norm is |G^m|^(1 / 2m) <= (Frobenius norm of G^m)^(1 / 2m), which exceeds it by at most a factor
    n^(1 / 4m) for n rows or columns. Every power is scaled to Frobenius norm 1, so its spectral norm is at least
    n^(-1/2), and rounding its square by at most n u changes the square's norm by at most n^2 u of it. Over all
    squarings that is at most 2 n^2 u of the spectral norm of G.
    """
    if weight not in _spectral_norms:
        power = weight.T @ weight if weight.shape[0] > weight.shape[1] else weight @ weight.T
        logarithm = torch.zeros((), dtype=torch.float64)
        for step in range(SPECTRAL_SQUARINGS):
            size = torch.linalg.matrix_norm(power).clamp(min=UNDERFLOW)
            logarithm += size.log() / 2**step
            power = (power / size) @ (power / size)
        logarithm += torch.linalg.matrix_norm(power).clamp(min=UNDERFLOW).log() / 2**SPECTRAL_SQUARINGS
        bound = (logarithm / 2).exp() * (1 + 8 * len(power) ** 2 * UNIT_ROUNDOFF)
        _spectral_norms[weight] = outward(bound)
    return _spectral_norms[weight]
