"""Chebyshev interpolants on [-1, 1]: coefficients from values, evaluation, roots, and how fast coefficients fall."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.polynomial import chebyshev

from ..arrays import Floats
from ..tolerances import FLOAT64_EPS
from .tolerances import ROOT_IMAGINARY_PART

TAIL_COEFFICIENTS = 4  # the last ones, which estimate the truncation error; several, as odd or even ones may vanish


@lru_cache(maxsize=16)
def chebyshev_points(degree: int) -> Floats:  # (degree + 1,)
    """The extrema of the Chebyshev polynomial, ascending: both ends, and the points of half the degree among them.

    >>> chebyshev_points(2).tolist()
    [-1.0, 0.0, 1.0]
    """
    return np.sin(np.pi * np.arange(-degree, degree + 1, 2) / (2 * degree))


@lru_cache(maxsize=16)
def _transform(degree: int) -> Floats:  # (degree + 1, degree + 1)
    """The matrix that takes values at `chebyshev_points` to coefficients."""
    k = np.arange(degree + 1)
    turns = np.outer(k, k[::-1]) % (2 * degree)  # in half turns of pi / degree, reduced exactly
    matrix = np.cos(np.pi * np.minimum(turns, 2 * degree - turns) / degree) * (2 / degree)
    matrix[:, [0, -1]] /= 2
    matrix[[0, -1]] /= 2
    return matrix


def coefficients(values: Floats) -> Floats:
    """The coefficients (degree + 1, ...) of the interpolant of values at `chebyshev_points`, (degree + 1, ...).

    >>> np.round(coefficients(np.array([1.0, 0.0, 1.0])), 9).tolist()
    [0.5, 0.0, 0.5]
    """
    return np.tensordot(_transform(len(values) - 1), values, 1)


def estimate_truncation(coeffs: Floats) -> float:  # (degree + 1, outputs)
    """The size of the last coefficients, which bounds the error of an interpolant whose coefficients fall fast."""
    return float(np.abs(coeffs[-TAIL_COEFFICIENTS:]).max(initial=0.0))


def predict_truncation(coeffs: Floats) -> float:  # (degree + 1, outputs)
    """The truncation error after doubling the degree, if the coefficients keep falling as fast as they do."""
    size = np.abs(coeffs).max(1)
    half, last = len(size) // 2, TAIL_COEFFICIENTS
    middle, tail = size[half - last : half + 1].max(), size[-last:].max()
    return tail * min(1.0, (tail / middle) ** 2) if middle > 0 else 0.0


def evaluation_rounding(coeffs: Floats) -> Floats:  # (degree + 1, outputs) -> (outputs,)
    """A bound on the rounding error of evaluating an interpolant, by the size of its coefficients."""
    return FLOAT64_EPS * ((1 + np.arange(len(coeffs)))[:, None] * np.abs(coeffs)).sum(0)


def evaluate(coeffs: Floats, t: Floats) -> Floats:  # (n, degree + 1, ...), (n,) -> (n, ...)
    """Evaluate one interpolant at each point by Clenshaw's recurrence."""
    x = t.reshape(-1, *[1] * (coeffs.ndim - 2))
    before = current = np.zeros_like(coeffs[:, 0])
    for k in range(coeffs.shape[1] - 1, 0, -1):
        before, current = current, coeffs[:, k] + 2 * x * current - before
    return coeffs[:, 0] + x * current - before


def real_roots(coeffs: Floats) -> Floats:  # (degree + 1,) -> (roots,)
    """The real roots of an interpolant in [-1, 1], ascending, as eigenvalues of its colleague matrix.

    >>> np.round(real_roots(np.array([0.0, 0.0, 1.0])), 6).tolist()
    [-0.707107, 0.707107]
    """
    size = np.abs(coeffs)
    kept = np.flatnonzero(size > FLOAT64_EPS * size.max(initial=0.0))
    if not len(kept) or kept[-1] == 0:
        return np.zeros(0)
    roots = chebyshev.chebroots(coeffs[: kept[-1] + 1])
    real = roots.real[np.abs(roots.imag) <= ROOT_IMAGINARY_PART]
    inside = real[np.abs(real) <= 1 + ROOT_IMAGINARY_PART]
    return np.unique(np.clip(inside, -1.0, 1.0))


def derivative(coeffs: Floats) -> Floats:  # (degree + 1, ...) -> (degree, ...), at least one row
    """The coefficients of the derivative."""
    return np.asarray(chebyshev.chebder(coeffs, axis=0), dtype=np.float64) if len(coeffs) > 1 else np.zeros_like(coeffs)
