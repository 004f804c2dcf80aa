"""Where each sampling rule looks along a line, and how much weight it gives to what it sees."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]


def left(n: int) -> tuple[Array, Array]:
    """The start of each of n equal stretches."""
    return np.arange(n) / n, np.full(n, 1 / n)


def right(n: int) -> tuple[Array, Array]:
    """The end of each of n equal stretches."""
    return np.arange(1, n + 1) / n, np.full(n, 1 / n)


def midpoint(n: int) -> tuple[Array, Array]:
    """The middle of each of n equal stretches."""
    return (np.arange(n) + 0.5) / n, np.full(n, 1 / n)


def trapezoid(n: int) -> tuple[Array, Array]:
    """Both ends of n - 1 equal stretches."""
    weights = np.full(n, 1 / (n - 1))
    weights[[0, -1]] /= 2
    return np.arange(n) / (n - 1), weights


def simpson(n: int) -> tuple[Array, Array]:
    """Parabolas through three neighbours; where n is even, the last four share a cubic.

    >>> simpson(3)[1].tolist()
    [0.1666..., 0.6666..., 0.1666...]
    """
    weights, width = np.zeros(n), 1 / (n - 1)
    pairs = n if n % 2 else n - 3
    for first in range(0, pairs - 2, 2):
        weights[first : first + 3] += np.array([1, 4, 1]) * (width / 3)
    if n % 2 == 0:
        weights[-4:] += np.array([1, 3, 3, 1]) * (3 * width / 8)
    return np.arange(n) / (n - 1), weights


@lru_cache(maxsize=2048)
def gauss_legendre(n: int) -> tuple[Array, Array]:
    """The roots of the Legendre polynomial of degree n.

    Newton's method from Tricomi's approximation, on the roots of one half: numpy's eigenvalues take seconds for the
    thousand degrees of an error curve.
    """
    k = np.arange(1, (n + 1) // 2 + 1)
    x = (1 - (n - 1) / (8 * n**3)) * np.cos(np.pi * (4 * k - 1) / (4 * n + 2))
    slope = np.ones_like(x)
    for _ in range(4):
        before, value = np.ones_like(x), x
        for degree in range(2, n + 1):
            before, value = value, ((2 * degree - 1) * x * value - (degree - 1) * before) / degree
        slope = n * (x * value - before) / (x * x - 1)
        step = value / slope
        x = x - step
        if float(np.abs(step).max()) < 1e-14:
            break
    weights = 1 / ((1 - x * x) * slope * slope)
    x, weights = np.concatenate([-x, x[: n // 2][::-1]]), np.concatenate([weights, weights[: n // 2][::-1]])
    return (1 + x) / 2, weights / weights.sum()


RULES: dict[str, Callable[[int], tuple[Array, Array]]] = {
    "left": left,
    "right": right,
    "midpoint": midpoint,
    "trapezoid": trapezoid,
    "simpson": simpson,
    "gauss-legendre": gauss_legendre,
}
LEAST = {"trapezoid": 2, "simpson": 3, "adaptive": 2}  # the fewest gradients of a rule, where one is not enough
