"""Gauss-Legendre quadrature and Chebyshev interpolation with proven errors."""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from torch import Tensor

from .tolerances import DISC_RATIO, ORDER, OUTWARD_FACTOR

# The largest Bernstein ellipse around [-1, 1] in the disc |z| <= s has the semi-axis s, hence this parameter, rounded
# downward.
BERNSTEIN_PARAMETER = (DISC_RATIO + math.sqrt(DISC_RATIO**2 - 1)) / OUTWARD_FACTOR


def gauss_error(nodes: int) -> float:
    """The factor from a remainder on the disc to the error of the Gauss-Legendre rule on [-1, 1].

    Let f = p + e with a polynomial p of degree below 2m, and e analytic with |e| <= r in the Bernstein ellipse with
    parameter rho. The rule with m nodes is exact for p, so only e matters. Its Chebyshev coefficients satisfy
    |a_k| <= 2 r rho^-k. The rule is exact for T_k with k < 2m, and for all odd k by symmetry. For even k >= 2m the
    integral of T_k is at most 2 / (k^2 - 1) and the rule, whose positive weights add up to 2, gives at most 2. For
    m >= 2 the error is therefore at most

        sum over even k >= 2m of 2 r rho^-k (2 + 2 / (4 m^2 - 1))  <=  (64 / 15) r rho^(-2m) / (1 - rho^-2).

    Trefethen, Approximation Theory and Approximation Practice, theorem 19.3, states rho^(-2m+2) for m nodes.
    """
    rho = BERNSTEIN_PARAMETER
    return OUTWARD_FACTOR * 64 / 15 * rho ** (-2 * nodes) / (1 - rho**-2)


def interpolation_error(nodes: int) -> float:
    """The factor from a remainder on the disc to the error of interpolation at Chebyshev points of [-1, 1].

    With n + 1 nodes of the second kind, polynomials of degree up to n are reproduced, and T_k with k > n is replaced by
    some T_j with j <= n, so that its error is at most 2. With |a_k| <= 2 r rho^-k the error is at most
    the sum over k > n of 4 r rho^-k = 4 r rho^-n / (rho - 1).
    """
    return OUTWARD_FACTOR * 4 * BERNSTEIN_PARAMETER ** (1 - nodes) / (BERNSTEIN_PARAMETER - 1)


def lebesgue_constant(nodes: int) -> float:
    """A bound on the factor from errors of the values to errors of the interpolant: 1 + (2 / pi) log(nodes)."""
    return 1 + 2 / math.pi * math.log(nodes)


MIN_GAUSS_NODES = ORDER // 2  # so that the rule is exact for the polynomial of a Taylor model
MIN_CHEBYSHEV_NODES = ORDER


@functools.lru_cache
def gauss_nodes(nodes: int) -> tuple[Tensor, Tensor]:  # (nodes,) twice
    """Nodes and weights on [-1, 1], accurate to some roundings."""
    points, weights = np.polynomial.legendre.leggauss(nodes)
    return torch.from_numpy(points), torch.from_numpy(weights)


@functools.lru_cache
def chebyshev_nodes(nodes: int) -> Tensor:  # (nodes,)
    """Chebyshev points of the second kind, ascending: -cos(j pi / n)."""
    return torch.from_numpy(np.polynomial.chebyshev.chebpts2(nodes))


@functools.lru_cache
def chebyshev_transform(nodes: int) -> Tensor:  # (nodes, nodes)
    """The matrix from values at `chebyshev_nodes` to coefficients of the interpolant."""
    degree = nodes - 1
    j = np.arange(nodes)
    matrix = np.cos(np.pi * np.outer(j, degree - j) / degree) * (2 / degree)
    matrix[[0, -1]] /= 2
    matrix[:, [0, -1]] /= 2
    return torch.from_numpy(matrix)
