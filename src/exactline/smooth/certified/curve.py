"""Outputs of smooth networks along a line as Chebyshev interpolants with a proven error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.polynomial import chebyshev
from torch import Tensor, nn

from ...lines import PointLike, as_lines
from .attributions import check_tolerance, find_deadline
from .error_bound import outward
from .line import Line
from .line_enclosure import LineEnclosure
from .quadrature import (
    MIN_CHEBYSHEV_NODES,
    chebyshev_nodes,
    chebyshev_transform,
    interpolation_error,
    lebesgue_constant,
)
from .record import record_values
from .rule_table import as_model
from .subdivide import SubInterval, cover_line
from .tape import Observer, Tape
from .taylor_model import TaylorModel, rounding_factor
from .tolerances import (
    CHECKED_POINTS,
    MAX_NODES,
    MAX_POINTS_PER_PASS,
    TRUNCATION_SHARE,
    UNDERFLOW,
    UNIT_ROUNDOFF,
)


@dataclass(frozen=True)
class CurvePiece:
    """A polynomial for each output on a sub-interval, and proven bounds on its error there."""

    left: float
    right: float
    coefficients: np.ndarray  # (degree + 1, outputs), in Chebyshev polynomials of -1 <= t <= 1
    truncation: np.ndarray  # (outputs,) bounds on the error of interpolation
    rounding: np.ndarray  # (outputs,) bounds on the error of float64 arithmetic

    @property
    def error(self) -> np.ndarray:  # (outputs,)
        """Bounds on the whole error."""
        return self.truncation + self.rounding


@dataclass(frozen=True)
class CertifiedCurve:
    """The outputs of a network along a line, within proven bounds."""

    pieces: tuple[CurvePiece, ...]
    output_shape: tuple[int, ...]
    tol: float
    evaluations: int

    @property
    def breakpoints(self) -> np.ndarray:  # (pieces + 1,)
        """Alphas between which the outputs are polynomials."""
        return np.array([self.pieces[0].left, *(piece.right for piece in self.pieces)])

    @property
    def error(self) -> float:
        """The largest proven error of interpolation of an output."""
        return max(float(piece.truncation.max()) for piece in self.pieces)

    @property
    def rounding_error(self) -> float:
        """The largest proven error of rounding of an output."""
        return max(float(piece.rounding.max()) for piece in self.pieces)

    @property
    def status(self) -> str:
        """'certified', 'certified up to rounding', or 'not certified' if the tolerance was not reached."""
        if self.error + self.rounding_error <= self.tol:
            return "certified"
        return "certified up to rounding" if self.error <= self.tol else "not certified"

    def at(self, alphas: Sequence[float]) -> np.ndarray:  # (points, *outputs)
        """Evaluate the curve at alphas in [0, 1]."""
        points = np.atleast_1d(np.asarray(alphas, dtype=float))
        index = np.clip(np.searchsorted(self.breakpoints, points, side="right") - 1, 0, len(self.pieces) - 1)
        values = [evaluate_piece(self.pieces[i], points[k : k + 1])[0] for k, i in enumerate(index)]
        return np.array(values).reshape(-1, *self.output_shape)


def evaluate_piece(piece: CurvePiece, alphas: np.ndarray, derivative: int = 0) -> np.ndarray:  # (points, outputs)
    """Evaluate a piece, or its derivative by the local variable t, at alphas (points,)."""
    local = (2 * alphas - piece.left - piece.right) / (piece.right - piece.left)
    coefficients = chebyshev.chebder(piece.coefficients, derivative) if derivative else piece.coefficients
    return chebyshev.chebval(local, coefficients).T


def certify_curve(
    model: nn.Module | Tape,
    start: PointLike,  # (*in), or a tuple
    end: PointLike,  # (*in), or a tuple
    tol: float = 1e-8,
    *,
    seconds: float | None = None,
) -> CertifiedCurve:
    """Interpolate the outputs along a line with a proven bound on the error.

    Args:
        model: A module in eval mode that takes batches of points; or the tape of `record_values`, for many lines.
        start: The point at alpha 0, without batch dimension.
        end: The point at alpha 1, without batch dimension.
        tol: The largest absolute error of an output.
        seconds: Stop certifying after this time; pieces that are left have an infinite bound.

    >>> curve = certify_curve(nn.Sequential(nn.Linear(2, 3), nn.Tanh()), [0.0, 0.0], [1.0, 1.0])
    >>> curve.status
    'certified'

    Raises LineError, ArgumentError, CaptureError and UnsupportedError.
    """
    line = Line.of(as_lines(start, end, ("start", "end"), many=False))
    check_tolerance(tol)
    deadline = find_deadline(seconds)
    tape = model if isinstance(model, Tape) else record_values(model, line.starts)
    outputs = Outputs(tape, line)
    outputs.check_finite()
    # below the rounding of the outputs, bisection would gain nothing
    target = max(TRUNCATION_SHARE * tol, UNIT_ROUNDOFF * outputs.estimate_size(), UNDERFLOW)

    def is_usable(remainders: Tensor, half: Tensor) -> Tensor:
        return remainders.amax(1) * interpolation_error(MAX_NODES) <= target

    pieces = interpolate_pieces(outputs, cover_line(outputs, is_usable, deadline), target)
    evaluations = sum(len(piece.coefficients) for piece in pieces)
    return CertifiedCurve(tuple(pieces), tuple(tape.output_shape), tol, evaluations)


class Outputs(LineEnclosure):
    """The outputs of a network along a line."""

    def estimate_size(self) -> float:
        """The largest output at a few points of the line."""
        alphas = torch.linspace(0, 1, CHECKED_POINTS, dtype=torch.float64)
        return float(self.at_points(alphas).coefficients[0].abs().max())

    def evaluate(self, points: Sequence[TaylorModel], count: int, observe: Observer | None = None) -> TaylorModel:
        """All outputs in one row."""
        output = as_model(self.tape.run(points, observe))
        coefficients = output.coefficients.expand(-1, count, *output.shape).flatten(2)
        return TaylorModel.polynomial(coefficients).with_error(output.radius.expand(count, *output.shape).flatten(1))


def interpolate_pieces(outputs: Outputs, parts: Sequence[SubInterval], target: float) -> list[CurvePiece]:
    """Interpolate on each sub-interval with the fewest nodes that suffice; brackets of kinks get constants."""
    discs = [part for part in parts if not part.is_kink]
    counts = [choose_nodes(part, target) for part in discs]
    alphas = torch.cat([p.center + p.half_width * chebyshev_nodes(n) for p, n in zip(discs, counts, strict=True)])
    batches = [outputs.at_points(a) for a in alphas.split(MAX_POINTS_PER_PASS)]
    values = torch.cat([b.coefficients[0] for b in batches]).split(counts)
    errors = torch.cat([b.radius for b in batches]).split(counts)
    pieces = [make_constant(part, part.kink_values) for part in parts if part.kink_values is not None]
    pieces += [interpolate_piece(*columns) for columns in zip(discs, values, errors, strict=True)]
    return sorted(pieces, key=lambda piece: piece.left)


def make_constant(part: SubInterval, values: Tensor) -> CurvePiece:  # (outputs,)
    """The bracket of a kink, on which the outputs are within the remainders of constants."""
    return CurvePiece(part.left, part.right, values.numpy()[None], part.remainders.numpy(), 0 * values.numpy())


def interpolate_piece(part: SubInterval, values: Tensor, errors: Tensor) -> CurvePiece:  # (nodes, outputs) twice
    """Interpolate values at Chebyshev points that have rounding errors."""
    nodes = len(values)
    coefficients = chebyshev_transform(nodes) @ values
    # the transform and a later evaluation add up to 2 nodes terms each, with weights of at most 2 in total
    rounded = rounding_factor(8 * nodes) * nodes * values.abs().amax(0)
    rounding = outward(lebesgue_constant(nodes) * errors.amax(0) + rounded)
    truncation = outward(part.remainders * interpolation_error(nodes)).expand(values.shape[1])
    return CurvePiece(part.left, part.right, coefficients.numpy(), truncation.numpy(), rounding.numpy())


def choose_nodes(part: SubInterval, target: float) -> int:
    """The fewest nodes whose error is at most the target, if there is a bound."""
    if not part.is_certified:
        return MIN_CHEBYSHEV_NODES
    largest = float(part.remainders.max())
    fits = (n for n in range(MIN_CHEBYSHEV_NODES, MAX_NODES) if largest * interpolation_error(n) <= target)
    return next(fits, MAX_NODES)
