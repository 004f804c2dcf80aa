"""Integrated gradients of smooth networks with a proven bound on their error."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import ArgumentError
from ...lines import PointLike, as_lines
from ...options import check_seconds
from .error_bound import outward
from .line import Line
from .line_enclosure import LineEnclosure
from .quadrature import MIN_GAUSS_NODES, gauss_error, gauss_nodes
from .record import record_gradients
from .rule_table import as_model
from .subdivide import SubInterval, cover_line
from .tape import Observer, Tape
from .taylor_model import TaylorModel, rounding_factor
from .tolerances import MAX_NODES, MAX_POINTS_PER_PASS, ORDER, TRUNCATION_SHARE, UNDERFLOW, UNIT_ROUNDOFF


@dataclass(frozen=True)
class CertifiedAttributions:
    """Integrated gradients with proven bounds.

    In exact arithmetic every attribution is within ``truncation`` of the value that the quadrature rule would give
    without rounding, and float64 rounding changes that value by at most ``rounding``. Both are proven. In deep networks
    the bound on rounding is far above the actual rounding errors, so the two are reported separately.
    """

    attributions: tuple[Tensor, ...]  # (*in) each
    truncation: tuple[Tensor, ...]  # (*in) each: bounds on the error of the quadrature rule
    rounding: tuple[Tensor, ...]  # (*in) each: bounds on the error of float64 arithmetic
    tol: float
    sub_intervals: tuple[SubInterval, ...]
    gradients: int  # evaluations of the gradient

    @property
    def error(self) -> float:
        """The proven L1 error of the quadrature rule, relative to the L1 norm of the attributions."""
        return _relative(self.truncation, self.attributions)

    @property
    def rounding_error(self) -> float:
        """The proven L1 error of rounding, relative to the L1 norm of the attributions."""
        return _relative(self.rounding, self.attributions)

    @property
    def uncertified(self) -> tuple[SubInterval, ...]:
        """Sub-intervals without a bound; their ``reason`` names the node at which the bound is lost, if it is known."""
        return tuple(part for part in self.sub_intervals if not part.is_certified)

    @property
    def status(self) -> str:
        """'certified', 'certified up to rounding', or 'not certified' if the tolerance was not reached."""
        if self.error + self.rounding_error <= self.tol:
            return "certified"
        return "certified up to rounding" if self.error <= self.tol else "not certified"


def certified_integrated_gradients(
    model: nn.Module | Tape,
    start: PointLike,  # (*in), or a tuple
    end: PointLike,  # (*in), or a tuple
    target: int | tuple[int, ...],
    tol: float = 1e-6,
    *,
    seconds: float | None = None,
) -> CertifiedAttributions:
    """Compute integrated gradients with a proven bound on the error of the quadrature.

    Args:
        model: A module in eval mode that takes batches of points; or the tape of `record_gradients`, for many lines.
        start: The baseline, without batch dimension.
        end: The input, without batch dimension.
        target: The index of the output.
        tol: The largest L1 error, relative to the L1 norm of the attributions.
        seconds: Stop certifying after this time; what is left is integrated without a bound.

    >>> from torch import nn
    >>> result = certified_integrated_gradients(nn.Sequential(nn.Linear(2, 1), nn.Tanh()), [0.0, 0.0], [1.0, 1.0], 0)
    >>> result.status
    'certified'

    Raises LineError, ArgumentError, CaptureError and UnsupportedError.
    """
    lines = as_lines(start, end, ("start", "end"), many=False)
    line = Line.of(lines)
    check_tolerance(tol)
    deadline = find_deadline(seconds)
    tape = model if isinstance(model, Tape) else record_gradients(model, line.starts)
    integrand = IntegrandEnclosure(tape, line, one_hot(target, tape.output_shape))
    integrand.check_finite()
    estimate = integrand.estimate_size()
    # where attributions cancel to 0, rounding limits what can be reached
    target_error = max(TRUNCATION_SHARE * tol * estimate.norm, UNIT_ROUNDOFF * estimate.size, UNDERFLOW)

    def is_usable(remainders: Tensor, half: Tensor) -> Tensor:  # (discs, inputs), (discs,)
        return remainders.sum(1) * gauss_error(MAX_NODES) <= 2 * target_error

    parts = cover_line(integrand, is_usable, deadline)
    return integrand.integrate(parts, target_error, tol, bound_rounding=estimate.rounding <= tol * estimate.norm)


@dataclass(frozen=True)
class SizeEstimate:
    """L1 norms from a few gradients."""

    norm: float  # of the attributions
    size: float  # of the integral of the absolute integrand
    rounding: float  # of the proven bound on rounding


class IntegrandEnclosure(LineEnclosure):
    """The gradient of one output along a line, times the change of the input."""

    def __init__(self, tape: Tape, line: Line, cotangent: Tensor) -> None:
        super().__init__(tape, line)
        self.cotangent = cotangent
        self.changes = torch.cat([c.flatten() for c in line.changes])  # (inputs,)

    def evaluate(self, points: Sequence[TaylorModel], count: int, observe: Observer | None = None) -> TaylorModel:
        """The integrand for all inputs in one row."""
        _, gradients = self.tape.run([*points, self.cotangent], observe)
        rows = [as_model(g) for g in gradients]
        order = max(g.order for g in rows)
        coefficients = torch.cat([g.pad(order).expand(-1, count, *g.shape).flatten(2) for g in rows], 2)
        radii = torch.cat([g.radius.expand(count, *g.shape).flatten(1) for g in rows], 1)
        row = TaylorModel.polynomial(coefficients * self.changes).with_rounding(2)
        return row.with_error(outward(radii * self.changes.abs()))

    def sample(self, alphas: Tensor, bound_rounding: bool) -> tuple[Tensor, Tensor]:  # (points, inputs) twice
        """The integrand at points, and bounds on the rounding errors, which are infinite if they are not wanted."""
        if bound_rounding:
            samples = self.at_points(alphas)
            return samples.coefficients[0], samples.radius
        points = [model.coefficients[0] for model in self.line.at_points(alphas)]
        _, gradients = self.tape.evaluate(points, self.cotangent)
        values = torch.cat([g.flatten(1) for g in gradients], 1) * self.changes
        return values, torch.full_like(values, torch.inf)

    def estimate_size(self) -> SizeEstimate:
        """Estimate the size of the attributions from a few gradients."""
        points, weights = gauss_nodes(ORDER)
        values, errors = self.sample((points + 1) / 2, True)
        sums = (weights / 2 @ values, weights / 2 @ values.abs(), weights / 2 @ errors)
        return SizeEstimate(*(float(row.abs().sum()) for row in sums))

    def integrate(
        self, parts: Sequence[SubInterval], target_error: float, tol: float, bound_rounding: bool
    ) -> CertifiedAttributions:
        """Apply the Gauss-Legendre rule with the fewest nodes that suffice on each sub-interval.

        On the bracket of a kink the integrand is within the remainders of known numbers, so its integral is within the
        width times the remainders of the width times these numbers.
        """
        discs, kinks = [p for p in parts if not p.is_kink], [p for p in parts if p.is_kink]
        counts = [choose_nodes(part, target_error) for part in discs]
        alphas = [p.center + p.half_width * gauss_nodes(m)[0] for p, m in zip(discs, counts, strict=True)]
        weights = torch.cat([p.half_width * gauss_nodes(m)[1] for p, m in zip(discs, counts, strict=True)])
        batches = [self.sample(a, bound_rounding) for a in torch.cat(alphas).split(MAX_POINTS_PER_PASS)]
        values, errors = (torch.cat(columns) for columns in zip(*batches, strict=True))
        truncation = torch.zeros(values.shape[1], dtype=torch.float64)
        for part, nodes in zip(discs, counts, strict=True):
            truncation = truncation + part.remainders * (part.half_width * gauss_error(nodes))
        integral = weights @ values
        rounding = weights @ (errors + rounding_factor(len(weights) + len(kinks) + 32) * values.abs())
        for kink in kinks:
            integral = integral + 2 * kink.half_width * torch.as_tensor(kink.kink_values)
            truncation = truncation + 2 * kink.half_width * kink.remainders
        columns = (integral, outward(truncation), outward(rounding))
        attributions, bounds, roundings = (split_like(column, self.line.starts) for column in columns)
        return CertifiedAttributions(attributions, bounds, roundings, tol, tuple(parts), len(weights))


def choose_nodes(part: SubInterval, target_error: float) -> int:
    """The fewest nodes whose error on a sub-interval is at most its share of the whole error, if it has a bound."""
    if not part.is_certified:
        return MIN_GAUSS_NODES
    total = float(part.remainders.sum())
    fits = (m for m in range(MIN_GAUSS_NODES, MAX_NODES) if total * gauss_error(m) <= 2 * target_error)
    return next(fits, MAX_NODES)


def one_hot(target: Any, shape: torch.Size) -> Tensor:
    """The cotangent that selects one output."""
    index = target if isinstance(target, tuple) else (target,)
    is_valid = len(index) == len(shape) and all(
        isinstance(i, int) and -n <= i < n for i, n in zip(index, shape, strict=True)
    )
    if not is_valid:
        raise ArgumentError(
            f"target {target!r} selects no single output of shape {tuple(shape)}.",
            where="argument target",
            hint="Give an int, or a tuple of ints for outputs with several dimensions.",
        )
    cotangent = torch.zeros(shape, dtype=torch.float64)
    cotangent[index] = 1.0
    return cotangent


def find_deadline(seconds: Any) -> float:
    """The value of ``time.monotonic()`` at which a time limit ends; infinite without one. Raises ArgumentError."""
    limit = check_seconds(seconds)
    return math.inf if limit is None else time.monotonic() + limit


def check_tolerance(tol: Any) -> None:
    """Raise ArgumentError unless ``tol`` is a positive number."""
    if isinstance(tol, bool) or not isinstance(tol, int | float) or not 0 < tol < math.inf:
        raise ArgumentError(
            f"tol must be a positive number, not {tol!r}.", where="argument tol", hint="Give a number such as 1e-6."
        )


def split_like(row: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:  # (inputs,)
    """Split a row into tensors of given shapes."""
    parts = row.split([t.numel() for t in tensors])
    return tuple(part.view(t.shape) for part, t in zip(parts, tensors, strict=True))


def _relative(bounds: Sequence[Tensor], attributions: Sequence[Tensor]) -> float:
    """The L1 norm of bounds, relative to that of attributions; 0 if there is no error at all."""
    error = float(sum(b.sum() for b in bounds))
    norm = float(sum(a.abs().sum() for a in attributions))
    return 0.0 if error == 0 else error / norm if norm else math.inf
