"""Cut a line into pieces on which a Chebyshev interpolant follows the model to a tolerance."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from ..arrays import Floats
from ..progress import ProgressCallback
from ..tolerances import ALPHA_RESOLUTION
from .chebyshev import (
    chebyshev_points,
    coefficients,
    derivative,
    estimate_truncation,
    evaluate,
    evaluation_rounding,
    predict_truncation,
)
from .crossings import MAX_LOCATED, Brackets, cut_at_kinks, find_brackets
from .line_function import LineFunction

FIRST_DEGREE, FIRST_DEGREE_OF_MANY, MAX_DEGREE = 16, 8, 128
MANY_PIECES = 64  # with more pieces of the exact prefix, each starts with the lower degree
# Positions on [-1, 1] that no interpolant uses: they measure its error, and samples of the rounding error.
FRESH_POSITIONS = np.array([-0.9871, -0.4631, 0.0923, 0.5407, 0.9634])
# Factors of the error estimate. The last coefficients exceed the truncation error if they fall by half from one to the
# next; the factor allows for slower decay. The largest error on a piece is rarely more than twice that of five points.
TRUNCATION_FACTOR, RESIDUAL_FACTOR = 8.0, 4.0
# Rounding errors in multiples of the root mean square of samples with noise of up to one ulp in every operator.
ROUNDING_FACTOR = 8.0
PLATEAU_FACTOR = 8.0  # coefficients below so many rounding errors cannot fall any further
MIN_DECAY = 0.3  # of the coefficients over half of the degrees: slower decay calls for shorter pieces
CHOPPED_SHARE = 0.1  # of the error estimate that dropped coefficients may add
MIN_RESOLUTIONS = 64  # width of the shortest piece, in multiples of the resolution of alpha


@dataclass
class ChebyshevPiece:
    """An interval of alpha, and what is known of the model on it."""

    left: float
    right: float
    degree: int
    values: Floats = field(default_factory=lambda: np.zeros((0, 0)))  # (points, outputs) at the Chebyshev points
    coeffs: Floats = field(default_factory=lambda: np.zeros((0, 0)))  # (degree + 1, outputs)
    error: float = float("inf")  # estimate of the largest error
    rounding: float = 0.0  # the part of it that no further evaluation removes

    @property
    def width(self) -> float:
        """The length of the interval."""
        return self.right - self.left

    def alphas(self, positions: Floats) -> Floats:
        """The alphas at positions in [-1, 1]; both ends are exact."""
        inner = (self.left + self.right) / 2 + positions * (self.width / 2)
        return np.where(positions == -1, self.left, np.where(positions == 1, self.right, inner))


@dataclass
class AdaptiveInterpolation:
    """Pieces in work: splits at kinks, doubles degrees while coefficients fall, and halves pieces otherwise.

    Args:
        function: the model on the line.
        tol: the largest error of an accepted piece.
        max_evaluations: stop after about so many evaluations of the model.
        deadline: stop at this time, of ``time.monotonic``.
        report: called with the share of the line that is done, and the number of pieces.
    """

    function: LineFunction
    tol: float
    max_evaluations: int
    deadline: float
    report: ProgressCallback | None = None
    done: list[ChebyshevPiece] = field(default_factory=list[ChebyshevPiece])
    kinks: list[float] = field(default_factory=list[float])
    stopped: str = ""  # the option that stopped the subdivision early

    def run(self, breakpoints: Floats) -> None:  # (n,) from 0 to 1
        """Approximate the model between neighbouring breakpoints."""
        degree = FIRST_DEGREE if len(breakpoints) <= MANY_PIECES else FIRST_DEGREE_OF_MANY
        pending = [ChebyshevPiece(a, b, degree) for a, b in pairwise(breakpoints.tolist())]
        while pending:
            spare = self.max_evaluations - self.function.evaluations - _count_evaluations(pending)
            self._check_limits(spare)
            count = max(1, self.function.batch_points // (MAX_DEGREE if self.stopped else 2 * FIRST_DEGREE))
            if not self.stopped:
                count = max(1, min(count, spare // (2 * _count_evaluations([ChebyshevPiece(0.0, 1.0, FIRST_DEGREE)]))))
            batch, pending = pending[:count], pending[count:]
            pending = [*self._advance(batch), *pending]
            if self.report is not None:
                self.report(min(sum(p.width for p in self.done), 1.0), len(self.done))
        self.done.sort(key=lambda p: p.left)

    def _check_limits(self, spare: int) -> None:
        """Stop while there are enough evaluations left to finish the pending pieces."""
        if self.stopped:
            return
        if spare <= 0:
            self.stopped = "max_evaluations"
        elif time.monotonic() > self.deadline:
            self.stopped = "seconds"

    def _is_over(self) -> bool:
        """Whether a limit is reached already, so that kinks are not located any more."""
        return self.function.evaluations >= self.max_evaluations or time.monotonic() > self.deadline

    def _advance(self, batch: list[ChebyshevPiece]) -> list[ChebyshevPiece]:
        """Sample pieces at new points; returns the pieces that need more work."""
        split = self._sample(batch)
        pending = [child for piece in batch for child in split.get(id(piece), ())]
        whole = [p for p in batch if id(p) not in split]
        for piece in whole:
            piece.coeffs = coefficients(piece.values)
        ready = [p for p in whole if self._is_ready(p)]
        self._measure_errors(ready)
        for piece in whole:
            pending += self._judge(piece)
        return pending

    def _sample(self, batch: Sequence[ChebyshevPiece]) -> dict[int, list[ChebyshevPiece]]:
        """Evaluate pieces at their new Chebyshev points; returns the parts of pieces that have kinks inside."""
        alphas, spans = [], list[slice]()
        for piece in batch:
            points = chebyshev_points(piece.degree)
            new = points[1::2] if len(piece.values) else points
            spans.append(slice(sum(map(len, alphas)), sum(map(len, alphas)) + len(new)))
            alphas.append(piece.alphas(new))
        flat = np.concatenate(alphas)
        brackets = None
        if self.function.has_kinks and not self.stopped:
            values, watched = self.function.values_and_kinks(flat)
            brackets = find_brackets(flat, spans, watched)
        else:
            values = self.function.values(flat)
        split: dict[int, list[ChebyshevPiece]] = {}
        for number, (piece, span) in enumerate(zip(batch, spans, strict=True)):
            if brackets is not None and len(brackets[number]) and not self._is_over():
                children = self._split(piece, brackets[number])
                if children:
                    split[id(piece)] = children
                    continue
            piece.values = _interleave(piece.values, values[span])
        return split

    def _split(self, piece: ChebyshevPiece, brackets: Brackets) -> list[ChebyshevPiece]:
        """Cut a piece at its kinks; none if they lie at its ends."""
        if len(brackets) > MAX_LOCATED:
            return self._halve(piece)
        cuts = cut_at_kinks(self.function, piece.left, piece.right, brackets)
        if len(cuts) == 2:
            return []
        self.kinks += cuts[1:-1]
        degree = FIRST_DEGREE if len(cuts) < FIRST_DEGREE_OF_MANY else FIRST_DEGREE_OF_MANY
        return [ChebyshevPiece(a, b, degree) for a, b in pairwise(cuts)]

    def _is_ready(self, piece: ChebyshevPiece) -> bool:
        """Whether the error of a piece is worth measuring: it seems small, or it does not fall any more."""
        tail = estimate_truncation(piece.coeffs)
        falls = predict_truncation(piece.coeffs) < MIN_DECAY**2 * tail
        is_stuck = self._is_short(piece) or (not falls and piece.degree > FIRST_DEGREE)
        return bool(self.stopped) or is_stuck or TRUNCATION_FACTOR * tail <= self.tol

    def _is_short(self, piece: ChebyshevPiece) -> bool:
        """Whether a piece is so short that float64 does not resolve positions inside of it."""
        return piece.width <= MIN_RESOLUTIONS * ALPHA_RESOLUTION * max(piece.right, ALPHA_RESOLUTION)

    def _measure_errors(self, pieces: Sequence[ChebyshevPiece]) -> None:
        """Compare pieces with the model at fresh points, and sample the rounding error there."""
        if not pieces:
            return
        alphas = np.concatenate([p.alphas(FRESH_POSITIONS) for p in pieces])
        exact, noisy = self.function.values(alphas), self.function.perturbed_values(alphas, len(self.done))
        count = len(FRESH_POSITIONS)
        for i, piece in enumerate(pieces):
            coeffs, rows = piece.coeffs, slice(i * count, (i + 1) * count)
            found = evaluate(np.broadcast_to(coeffs, (count, *coeffs.shape)), FRESH_POSITIONS)
            residual = float(np.abs(found - exact[rows]).max(initial=0.0))
            noise = float(np.sqrt(((noisy[rows] - exact[rows]) ** 2).mean(0)).max(initial=0.0))
            piece.rounding = ROUNDING_FACTOR * noise + self._break_rounding(piece)
            truncation = TRUNCATION_FACTOR * estimate_truncation(coeffs) + RESIDUAL_FACTOR * residual
            piece.error = truncation + piece.rounding
            if max(estimate_truncation(coeffs), residual) <= PLATEAU_FACTOR * noise:
                piece.rounding = piece.error

    def _break_rounding(self, piece: ChebyshevPiece) -> float:
        """Errors from evaluating the interpolant, and from rounding the ends of the piece where the slope changes."""
        coeffs = piece.coeffs
        slopes = np.abs(derivative(coeffs)).sum(0) * (2 / piece.width)
        ends = slopes * ALPHA_RESOLUTION * piece.right
        return float((evaluation_rounding(coeffs) + np.minimum(ends, np.ptp(piece.values, axis=0))).max())

    def _judge(self, piece: ChebyshevPiece) -> list[ChebyshevPiece]:
        """Accept a piece, or return what to work on instead: a higher degree or two halves."""
        if piece.error <= max(self.tol, piece.rounding) or self._is_short(piece) or self.stopped:
            if piece.error == float("inf"):
                piece.error = float(np.ptp(piece.values, axis=0).max())
            if self.stopped and piece.error > self.tol:
                piece.error += float(np.ptp(piece.values, axis=0).max())
            allowed = CHOPPED_SHARE * piece.error
            if piece.error <= self.tol:
                allowed = min(allowed, self.tol - piece.error)
            self.done.append(_chop(piece, allowed))
            return []
        coeffs = piece.coeffs
        tail, predicted = estimate_truncation(coeffs), predict_truncation(coeffs)
        falls = predicted < MIN_DECAY**2 * tail
        target = max(self.tol, piece.rounding) / TRUNCATION_FACTOR
        if piece.degree < MAX_DEGREE and (predicted <= target or (falls and piece.degree < 2 * FIRST_DEGREE)):
            piece.degree, piece.error, piece.rounding = 2 * piece.degree, float("inf"), 0.0
            return [piece]
        return self._halve(piece)

    def _halve(self, piece: ChebyshevPiece) -> list[ChebyshevPiece]:
        middle = (piece.left + piece.right) / 2
        return [ChebyshevPiece(piece.left, middle, FIRST_DEGREE), ChebyshevPiece(middle, piece.right, FIRST_DEGREE)]


def _count_evaluations(pieces: Sequence[ChebyshevPiece]) -> int:
    """The number of evaluations that complete pieces: at their points, and to measure their errors."""
    return sum(p.degree + 1 - len(p.values) + 2 * len(FRESH_POSITIONS) for p in pieces)


def _interleave(old: Floats, new: Floats) -> Floats:
    """Join values at the points of half the degree with those at the points between them."""
    if not len(old):
        return new
    joined = np.empty((len(old) + len(new), old.shape[1]))
    joined[::2], joined[1::2] = old, new
    return joined


def _chop(piece: ChebyshevPiece, allowed: float) -> ChebyshevPiece:
    """Drop the last coefficients as long as they change the curve by at most the allowed error."""
    coeffs = piece.coeffs
    dropped = np.cumsum(np.abs(coeffs[::-1]).max(1))[::-1]  # what dropping each coefficient and all after it adds
    kept = max(1, int(np.count_nonzero(dropped > allowed)))
    if kept < len(coeffs):
        piece.error += float(dropped[kept])
        piece.coeffs = coeffs[:kept]
    return piece
