"""Taylor models on complex discs: a polynomial and a bound on its distance from the function."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from .error_bound import ErrorBound, euclidean, outward
from .tolerances import UNIT_ROUNDOFF

LinearMap = Callable[[Tensor], Tensor]


def rounding_factor(roundings: float) -> float:
    """Bound the relative error after ``roundings`` successive roundings: n u / (1 - n u), Higham's gamma."""
    total = roundings * UNIT_ROUNDOFF
    return total / (1.0 - total)


@dataclass(frozen=True, eq=False)
class TaylorModel:
    """Functions of t on the disc |t| <= 1, one for each disc and unit.

    Where the error bound is finite, the function is analytic inside the disc, and its distance from the polynomial with
    the given coefficients is within the bound for all complex t with |t| <= 1. An infinite bound says nothing. The
    bound covers truncation and float64 rounding.
    """

    coefficients: Tensor  # (order, discs, *units), real: networks are real on the real line
    error: ErrorBound

    @staticmethod
    def constant(value: Tensor) -> TaylorModel:  # (*units)
        """A model of order 1 without error, the same on every disc."""
        return TaylorModel(value[None, None], ErrorBound(torch.zeros_like(value)[None]))

    @staticmethod
    def polynomial(coefficients: Tensor) -> TaylorModel:  # (order, discs, *units)
        """A model without error."""
        return TaylorModel(coefficients, ErrorBound(torch.zeros_like(coefficients[0])))

    @property
    def order(self) -> int:
        """The number of coefficients."""
        return len(self.coefficients)

    @property
    def shape(self) -> torch.Size:
        """The shape of the units, without discs."""
        return self.coefficients.shape[2:]

    @property
    def radius(self) -> Tensor:  # (discs, *units)
        """The bound on the error of every unit."""
        return self.error.elements

    @cached_property
    def size(self) -> Tensor:  # (discs, *units)
        """The sum of the absolute coefficients, which bounds the polynomial on the disc."""
        return outward(self.coefficients.abs().sum(0))

    @cached_property
    def spread(self) -> Tensor:  # (discs, *units)
        """A bound on the distance of the polynomial from its value at t = 0."""
        return outward(self.coefficients[1:].abs().sum(0))

    @property
    def bound(self) -> Tensor:  # (discs, *units)
        """A bound on the function on the disc."""
        return outward(self.size + self.radius)

    def with_error(self, elements: Tensor) -> TaylorModel:  # (discs, *units)
        """Add errors of the elements."""
        return TaylorModel(self.coefficients, self.error + ErrorBound(elements))

    def with_rounding(self, roundings: float) -> TaylorModel:
        """Add the error of coefficients that were rounded ``roundings`` times each."""
        return self.with_error(rounding_factor(roundings) * self.size)

    def with_rank(self, rank: int) -> TaylorModel:
        """Insert dims of size 1 in front of the units, so that units of two models broadcast."""
        missing = [1] * (rank - len(self.shape))
        if not missing:
            return self
        coefficients = self.coefficients.reshape(*self.coefficients.shape[:2], *missing, *self.shape)
        return TaylorModel(coefficients, self.error.with_rank(rank))

    def pad(self, order: int) -> Tensor:  # (order, discs, *units)
        """The coefficients, filled up with zeros to an order."""
        if self.order == order:
            return self.coefficients
        zeros = self.coefficients.new_zeros(order - self.order, *self.coefficients.shape[1:])
        return torch.cat((self.coefficients, zeros))

    def move(self, op: LinearMap, axis: int | None = None) -> TaylorModel:
        """Move, repeat or drop units.

        Args:
            op: Maps (rows, *units) to (rows, *new units), row by row, without arithmetic.
            axis: Where vectors along the axis of the error bound, or parts of them, lie afterwards; None if nowhere.
        """
        coefficients = op(self.coefficients.flatten(0, 1)).unflatten(0, self.coefficients.shape[:2])
        return TaylorModel(coefficients, self.error.move(op, axis))

    def map_linear(self, op: LinearMap, absolute: LinearMap, terms: int) -> TaylorModel:
        """Apply a linear map: to every coefficient as it is, to the error with absolute weights.

        Rounding a sum of n terms in any order changes each coefficient by at most gamma_n times the sum of the absolute
        terms; over all coefficients that is gamma_n times the absolute map of `size`.

        Args:
            op: Maps (rows, *units) to (rows, *new units), row by row.
            absolute: The map with absolute weights.
            terms: The number of terms of one result.
        """
        coefficients = op(self.coefficients.flatten(0, 1)).unflatten(0, self.coefficients.shape[:2])
        errors = absolute(self.radius + rounding_factor(terms) * self.size)
        return TaylorModel(coefficients, ErrorBound(outward(errors)))

    def apply_matrix(self, weight: Tensor) -> TaylorModel:  # (inputs, outputs)
        """Multiply vectors along the last axis by a constant matrix."""
        rounded = ErrorBound(outward(rounding_factor(len(weight)) * (self.size @ weight.abs())))
        return TaylorModel(self.coefficients @ weight, self.error.apply_matrix(weight) + rounded)

    def scale(self, factor: float) -> TaylorModel:
        """Multiply by a float64 number."""
        error = self.error.scale(torch.full_like(self.radius, abs(factor)))
        return TaylorModel(self.coefficients * factor, error).with_rounding(1)

    def __neg__(self) -> TaylorModel:
        return TaylorModel(-self.coefficients, self.error)

    def __add__(self, other: TaylorModel) -> TaylorModel:
        order, rank = max(self.order, other.order), max(len(self.shape), len(other.shape))
        one, two = self.with_rank(rank), other.with_rank(rank)
        return TaylorModel(one.pad(order) + two.pad(order), one.error + two.error).with_rounding(1)

    def __sub__(self, other: TaylorModel) -> TaylorModel:
        return self + -other

    def __mul__(self, other: TaylorModel) -> TaylorModel:
        """Multiply elementwise. With f = p + e and g = q + d the error is p d + (q + d) e, beside the truncation."""
        rank = max(len(self.shape), len(other.shape))
        one, two = self.with_rank(rank), other.with_rank(rank)
        coefficients, local = multiply_polynomials(one, two, torch.mul, 1)
        return TaylorModel(coefficients, two.error.scale(one.size) + one.error.scale(two.bound) + local)

    def __matmul__(self, other: TaylorModel) -> TaylorModel:
        """Multiply matrices (..., i, k) and (..., k, j), with the error terms of the elementwise product."""
        coefficients, local = multiply_polynomials(self, other, torch.matmul, self.shape[-1])
        first = multiply_error(self.size, other.error)
        transposed = multiply_error(other.bound.mT, self.error.transpose())
        return TaylorModel(coefficients, first + transposed.transpose() + local)


def multiply_polynomials(
    a: TaylorModel, b: TaylorModel, op: Callable[[Tensor, Tensor], Tensor], terms: int
) -> tuple[Tensor, ErrorBound]:
    """Multiply two polynomials with a bilinear map, and cut the product to the larger order.

    What is cut is at most the sum of |a_j| |b_k| over j + k >= order. Every coefficient that is kept is a sum of at
    most order * terms products.

    Args:
        a: The first factor.
        b: The second factor.
        op: ``torch.mul`` or ``torch.matmul``, which broadcasts over coefficients and discs.
        terms: The number of products that are added in one result.
    """
    order = max(a.order, b.order)
    first, second = a.pad(order) if b.order == 1 else a.coefficients, b.coefficients
    if b.order == 1:
        product, count = op(first, second), 1
        cut = torch.zeros_like(product[0])
    else:
        series, count = b.pad(order), a.order
        product = op(first[:1], series)
        tails = series.abs().flip(0).cumsum(0)  # tails[j - 1]: the sum of the j last absolute coefficients
        cut = torch.zeros_like(product[0])
        for j in range(1, a.order):
            product[j:] += op(first[j : j + 1], series[: order - j])
            cut += op(first[j].abs(), tails[j - 1])
    rounding = rounding_factor(count * terms + 1) * op(a.size, b.size)
    return product, ErrorBound(outward(cut + rounding))


def multiply_error(sizes: Tensor, error: ErrorBound) -> ErrorBound:
    """Bound A e for a matrix function A bounded by ``sizes`` (..., i, k) and errors e (..., k, j).

    Each element is at most the sum of the absolute products, and at most the product of the norms along k if the error
    has one there. Each row of the result is a combination of the rows of e, so its norm along j is at most the
    combination of their norms.
    """
    elements = outward(sizes @ error.elements)
    if error.norm is None:
        return ErrorBound(elements)
    if error.axis == -2:
        return ErrorBound(torch.minimum(elements, outward(euclidean(sizes, -1) * error.norm)))
    if error.axis == -1:
        return ErrorBound.best(elements, outward(sizes @ error.norm), -1)
    return ErrorBound(elements)
