"""Measures of a curve: total variation, steepest slope, length and mean of its outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.polynomial import chebyshev
from numpy.polynomial.legendre import leggauss
from torch import Tensor

from ..errors import LineError
from .chebyshev import derivative, real_roots

if TYPE_CHECKING:
    from .approximation import Approximation


@dataclass(frozen=True)
class CurveMetrics:
    """What a curve does on its way from alpha 0 to alpha 1; tensors have one number for each output."""

    pieces: int
    kinks: int  # breakpoints where a unit of the network changes side
    reached: float  # the share of the line that was followed
    stopped: str  # the option that stopped the subdivision early, or ""
    line_length: float  # Euclidean, in input units, of the swept part
    total_variation: Tensor  # (outputs,) the sum of all rises and falls
    largest_slope: Tensor  # (outputs,) the largest absolute derivative by alpha
    lipschitz: Tensor  # (outputs,) the largest absolute derivative by length
    mean: Tensor  # (outputs,) the mean over alpha
    length: float  # of the curve in output space

    def to_dict(self) -> dict[str, Any]:
        """All numbers as plain lists and numbers, for JSON."""
        return {name: value.tolist() if isinstance(value, Tensor) else value for name, value in vars(self).items()}


def measure_curve(curve: Approximation) -> CurveMetrics:
    """Measure a curve piece by piece; extrema inside of pieces are roots of derivatives."""
    ends = curve.breakpoints.numpy()
    step = torch.cat([(b - a).flatten() for a, b in zip(curve.lines.starts, curve.lines.ends, strict=True)]).double()
    scale = float(step.abs().max()) if len(step) else 0.0
    if scale == 0.0:
        raise LineError(
            "The line has length 0: it has no slope.", where="curve.metrics", hint="Give two different points."
        )
    line_length, reached = scale * float(torch.linalg.vector_norm(step / scale)), float(ends[-1] - ends[0])
    outputs = curve.coefficients.shape[1]
    variation, steepest, mean, length = np.zeros(outputs), np.zeros(outputs), np.zeros(outputs), 0.0
    for i in range(len(curve)):
        coeffs, half = curve.piece_coefficients(i), (ends[i + 1] - ends[i]) / 2
        slope = derivative(coeffs)
        antiderivative = chebyshev.chebint(coeffs, axis=0)
        mean += half * (chebyshev.chebval(1.0, antiderivative) - chebyshev.chebval(-1.0, antiderivative))
        nodes, weights = leggauss(2 * len(coeffs) + 2)
        speed = np.linalg.norm(chebyshev.chebval(nodes, slope), axis=0)
        length += float(weights @ speed) if outputs > 1 else 0.0
        for k in range(outputs):
            turns = np.concatenate([[-1.0], real_roots(slope[:, k]), [1.0]])
            variation[k] += np.abs(np.diff(chebyshev.chebval(turns, coeffs[:, k]))).sum()
            bends = np.concatenate([[-1.0], real_roots(derivative(slope[:, k])), [1.0]])
            steepest[k] = max(steepest[k], np.abs(chebyshev.chebval(bends, slope[:, k])).max() / half)
    return CurveMetrics(
        pieces=len(curve),
        kinks=len(curve.kinks),
        reached=reached,
        stopped=curve.stopped,
        line_length=line_length * reached,
        total_variation=torch.from_numpy(variation),
        largest_slope=torch.from_numpy(steepest),
        lipschitz=torch.from_numpy(steepest / line_length),
        mean=torch.from_numpy(mean / reached),
        length=length if outputs > 1 else float(variation.sum()),
    )
