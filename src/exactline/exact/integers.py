"""Floats as exact rationals: integers over one common denominator."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import NumberError

try:
    import flint as _flint  # pyright: ignore[reportMissingTypeStubs, reportMissingImports]

    flint: Any = _flint
except ImportError:  # optional: Python's integers give the same numbers, more slowly
    flint = None

MAX_PYTHON_ENTRIES = 1024  # of a matrix for which Python is as fast as flint
IntegerArray: TypeAlias = NDArray[np.object_]  # of Python's int or flint's fmpz


@dataclass(frozen=True, eq=False)
class Rationals:
    """A vector of rational numbers with a common denominator.

    >>> read_rationals(torch.tensor([0.5, -0.75]))
    <Rationals [2, -3] / 4>
    """

    numerators: IntegerArray  # (n,)
    denominator: int

    def __repr__(self) -> str:
        return f"<Rationals {self.numerators.tolist()} / {self.denominator}>"

    def __len__(self) -> int:
        return len(self.numerators)

    @property
    def fractions(self) -> list[Fraction]:
        """The numbers as a list of fractions."""
        return [make_fraction(n, self.denominator) for n in self.numerators.tolist()]

    def __getitem__(self, index: NDArray[np.int64]) -> Rationals:
        return Rationals(self.numerators[index], self.denominator)


def read_rationals(
    tensor: Tensor,  # any shape
    where: str = "",
) -> Rationals:
    """Convert a tensor to the exact rationals that its elements are; raises NumberError for NaN and infinity."""
    flat = tensor.detach().cpu().reshape(-1)
    if not flat.is_floating_point():
        return Rationals(flat.to(torch.int64).numpy().astype(object), 1)
    values = flat.to(torch.float64).numpy()
    if not np.isfinite(values).all():
        raise NumberError("A constant is NaN or infinite.", where=where, hint="Give finite weights and points.")
    mantissa, exponent = np.frexp(values)
    integer = np.ldexp(mantissa, 53).astype(np.int64)
    nonzero = integer != 0
    if not nonzero.any():
        return Rationals(make_zeros(len(integer)), 1)
    lowest_bit = np.where(nonzero, integer & -integer, 1)  # a power of two, exact as a float
    trailing_zeros = np.frexp(lowest_bit.astype(np.float64))[1] - 1
    power = np.where(nonzero, exponent - 53 + trailing_zeros, 0)  # each value is an odd integer times 2**power
    least = int(power[nonzero].min())
    shift = np.where(nonzero, power - min(least, 0), 0)
    odd = (integer >> trailing_zeros).tolist()
    numerators = [n << s for n, s in zip(odd, shift.tolist(), strict=True)]
    return Rationals(make_integers(numerators), 1 << max(-least, 0))


def to_common_denominator(numbers: list[Fraction]) -> Rationals:
    """Bring fractions to one denominator."""
    denominator = lcm(*(number.denominator for number in numbers))
    return Rationals(make_integers([n.numerator * (denominator // n.denominator) for n in numbers]), denominator)


def make_integers(numbers: list[Any]) -> IntegerArray:  # (n,)
    """Convert a list of integers of any size to an array."""
    out = np.empty(len(numbers), dtype=object)
    out[:] = numbers
    return out


def make_zeros(*shape: int) -> IntegerArray:
    """An array of integer zeros."""
    return np.zeros(shape, dtype=np.int64).astype(object)


def make_fraction(numerator: Any, denominator: Any) -> Fraction:
    """A fraction of two integers of Python or flint."""
    return Fraction(int(numerator), int(denominator))


class IntegerMatrix:
    """A matrix of integers that is multiplied many times; its flint form is computed once."""

    def __init__(self, entries: IntegerArray) -> None:  # (rows, columns)
        self.entries = entries
        self._flint_matrix: Any = None

    def __matmul__(self, x: IntegerArray) -> IntegerArray:  # (columns, n) -> (rows, n)
        if flint is None or self.entries.size <= MAX_PYTHON_ENTRIES or not x.size:
            return self.entries @ x
        if self._flint_matrix is None:
            self._flint_matrix = flint.fmpz_mat(*self.entries.shape, self.entries.reshape(-1).tolist())
        product = self._flint_matrix * flint.fmpz_mat(*x.shape, x.reshape(-1).tolist())
        return make_integers(product.entries()).reshape(len(self.entries), x.shape[1])
