"""Quadrature rules on [0, 1]: the nodes and weights of each rule for a number of nodes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..tolerances import NEWTON_STEP_TOLERANCE

Array: TypeAlias = NDArray[np.float64]


def riemann(n: int, offset: float) -> tuple[Array, Array]:
    """Riemann sum: one node in each of n equal intervals, at a fraction of it: 0 left, 1/2 midpoint, 1 right.

    >>> riemann(4, 0.5)[0].tolist()
    [0.125, 0.375, 0.625, 0.875]
    """
    return (np.arange(n) + offset) / n, np.full(n, 1 / n)


def trapezoid(n: int) -> tuple[Array, Array]:
    """Trapezoidal rule: the n ends of n - 1 equal intervals."""
    weights = np.full(n, 1 / (n - 1))
    weights[[0, -1]] /= 2
    return np.arange(n) / (n - 1), weights


def simpson(n: int) -> tuple[Array, Array]:
    """Simpson's rule: parabolas through three neighbours; for even n, a cubic through the last four nodes.

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
    """Gauss-Legendre quadrature: the roots of the Legendre polynomial of degree n.

    Uses Newton's method from Tricomi's approximation, on the roots of one half. The eigenvalues that numpy computes
    take seconds for the thousand degrees of an error curve.
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
        if float(np.abs(step).max()) < NEWTON_STEP_TOLERANCE:
            break
    weights = 1 / ((1 - x * x) * slope * slope)
    x, weights = np.concatenate([-x, x[: n // 2][::-1]]), np.concatenate([weights, weights[: n // 2][::-1]])
    return (1 + x) / 2, weights / weights.sum()


RULES: dict[str, Callable[[int], tuple[Array, Array]]] = {
    "left": partial(riemann, offset=0.0),
    "right": partial(riemann, offset=1.0),
    "midpoint": partial(riemann, offset=0.5),
    "trapezoid": trapezoid,
    "simpson": simpson,
    "gauss-legendre": gauss_legendre,
}
MIN_GRADIENTS = {"trapezoid": 2, "simpson": 3, "adaptive": 2}  # smallest number of nodes of a rule; 1 by default
