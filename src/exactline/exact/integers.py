"""Floats read as what they are: whole numbers over one common denominator."""

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
except ImportError:  # an extra: plain Python integers give the same numbers
    flint = None

SMALL = 1024  # entries of a matrix for which Python is as fast as flint
Wholes: TypeAlias = NDArray[np.object_]  # elements are Python's int or flint's fmpz


@dataclass(frozen=True, eq=False)
class Rationals:
    """Numbers ``top / bottom``, in one row.

    >>> read(torch.tensor([0.5, -0.75]))
    <Rationals [2, -3] / 4>
    """

    top: Wholes  # (n,)
    bottom: int

    def __repr__(self) -> str:
        return f"<Rationals {self.top.tolist()} / {self.bottom}>"

    def __len__(self) -> int:
        return len(self.top)

    @property
    def fractions(self) -> list[Fraction]:
        """The same numbers one by one."""
        return [ratio(n, self.bottom) for n in self.top.tolist()]

    def __getitem__(self, index: NDArray[np.int64]) -> Rationals:
        return Rationals(self.top[index], self.bottom)


def read(
    tensor: Tensor,  # any shape
    where: str = "",
) -> Rationals:
    """Every element of a tensor as the rational it is; NaN and infinity raise `NumberError`."""
    flat = tensor.detach().cpu().reshape(-1)
    if not flat.is_floating_point():
        return Rationals(flat.to(torch.int64).numpy().astype(object), 1)
    values = flat.to(torch.float64).numpy()
    if not np.isfinite(values).all():
        raise NumberError("A constant is NaN or infinite.", where=where, hint="Give finite weights and points.")
    mantissa, exponent = np.frexp(values)
    whole = np.ldexp(mantissa, 53).astype(np.int64)
    used = whole != 0
    if not used.any():
        return Rationals(zeros(len(whole)), 1)
    lowest = np.where(used, whole & -whole, 1)  # the lowest bit set: a power of two, exact as a float
    spare = np.frexp(lowest.astype(np.float64))[1] - 1
    power = np.where(used, exponent - 53 + spare, 0)
    least = int(power[used].min())
    shift = np.where(used, power - min(least, 0), 0)
    shifted = [n << s for n, s in zip((whole >> spare).tolist(), shift.tolist(), strict=True)]
    return Rationals(wholes(shifted), 1 << max(-least, 0))


def common(numbers: list[Fraction]) -> Rationals:
    """Fractions brought to one denominator."""
    bottom = lcm(*(number.denominator for number in numbers))
    return Rationals(wholes([n.numerator * (bottom // n.denominator) for n in numbers]), bottom)


def wholes(numbers: list[Any]) -> Wholes:  # (n,)
    """A list of whole numbers as an array that never rounds them."""
    out = np.empty(len(numbers), dtype=object)
    out[:] = numbers
    return out


def zeros(*shape: int) -> Wholes:
    """An array of whole zeros."""
    return np.zeros(shape, dtype=np.int64).astype(object)


def ratio(top: Any, bottom: Any) -> Fraction:
    """A fraction of two whole numbers of either kind."""
    return Fraction(int(top), int(bottom))


class Matrix:
    """A matrix of whole numbers, ready to be multiplied many times."""

    def __init__(self, entries: Wholes) -> None:  # (rows, columns)
        self.entries = entries
        self._fast: Any = None

    def __matmul__(self, x: Wholes) -> Wholes:  # (columns, n) -> (rows, n)
        if flint is None or self.entries.size <= SMALL or not x.size:
            return self.entries @ x
        if self._fast is None:
            self._fast = flint.fmpz_mat(*self.entries.shape, self.entries.reshape(-1).tolist())
        product = self._fast * flint.fmpz_mat(*x.shape, x.reshape(-1).tolist())
        return wholes(product.entries()).reshape(len(self.entries), x.shape[1])
