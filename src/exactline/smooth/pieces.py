"""Cut a line into pieces on which a Chebyshev interpolant follows the model to a tolerance."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

import numpy as np

from ..arrays import Floats
from ..progress import ProgressCallback
from ..tolerances import ALPHA_RESOLUTION, SMALLEST_NORMAL
from .chebyshev import (
    chebyshev_points,
    coefficients,
    derivative,
    estimate_truncation,
    evaluate,
    evaluation_rounding,
    predict_truncation,
)
from .cuts import Features, cut_at_features, find_features
from .line_function import LineFunction
from .tolerances import (
    CHOPPED_SHARE,
    END_ANGLES,
    FRESH_POSITIONS,
    HALVING_SHARE,
    MIN_DECAY,
    MIN_RESOLUTIONS,
    PLATEAU_FACTOR,
    POLE_GROWTH,
    RESIDUAL_FACTOR,
    ROUNDING_FACTOR,
    TRUNCATION_FACTOR,
)

FIRST_DEGREE, FIRST_DEGREE_OF_MANY, MAX_DEGREE = 16, 8, 128
MAX_SPARE = 1 << 40  # evaluations: as good as no limit
MANY_PIECES = 64  # with more pieces of the exact prefix, each starts with the lower degree
FRESH_COUNT = len(FRESH_POSITIONS) + 2
EXTRA_EVALUATIONS = 2 * FRESH_COUNT + 2  # of each piece, to measure its error: with and without noise, and both ends


@lru_cache(maxsize=16)
def fresh_positions(degree: int) -> Floats:  # (FRESH_COUNT,)
    """Positions that no interpolant of a degree uses: inside, and between the last two points at both ends."""
    end = np.cos(END_ANGLES * np.pi / degree)
    return np.array([-end, *FRESH_POSITIONS, end])


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
    end_rounding: float = 0.0  # by how much more rounding moves the ends, which may be kinks
    parent_tail: float = float("inf")  # the last coefficients of the piece of which this is a half

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
        function: the model on the line, with its limits.
        tol: the largest error of an accepted piece.
        report: called with the share of the line that is done, and the number of pieces.
    """

    function: LineFunction
    tol: float
    report: ProgressCallback | None = None
    done: list[ChebyshevPiece] = field(default_factory=list[ChebyshevPiece])
    kinks: list[float] = field(default_factory=list[float])
    stopped: str = ""  # the option that stopped the subdivision early
    scale: float = 0.0  # the largest value at the first samples

    def run(self, breakpoints: Floats) -> None:  # (n,) from 0 to 1
        """Approximate the model between neighbouring breakpoints."""
        degree = FIRST_DEGREE if len(breakpoints) <= MANY_PIECES else FIRST_DEGREE_OF_MANY
        pending = [ChebyshevPiece(a, b, degree) for a, b in pairwise(breakpoints.tolist())]
        while pending:
            spare = self.function.limits.max_evaluations - self.function.evaluations - _count_evaluations(pending)
            self._check_limits(spare)
            count = max(1, self.function.batch_points // (MAX_DEGREE if self.stopped else 2 * FIRST_DEGREE))
            if not self.stopped:
                affordable = int(min(spare, MAX_SPARE)) // (2 * (FIRST_DEGREE + 1 + EXTRA_EVALUATIONS))
                count = max(1, min(count, affordable))
            batch, pending = pending[:count], pending[count:]
            pending = [*self._advance(batch), *pending]
            if self.report is not None:
                self.report(min(sum(p.width for p in self.done), 1.0), len(self.done))
        self.done.sort(key=lambda p: p.left)
        self._share_rounding([*self.kinks, *breakpoints[1:-1].tolist()])

    def _share_rounding(self, kinks: Sequence[float]) -> None:
        """Raise the errors on both sides of each kink to the rounding error on the other side, which moves the kink."""
        moved = set(kinks)
        raised = [p.error for p in self.done]
        for i, (left, right) in enumerate(pairwise(self.done)):
            if left.right in moved:
                raised[i] = max(raised[i], min(right.rounding + right.end_rounding, right.error))
                raised[i + 1] = max(raised[i + 1], min(left.rounding + left.end_rounding, left.error))
        for piece, error in zip(self.done, raised, strict=True):
            piece.error = error

    def _check_limits(self, spare: float) -> None:
        """Stop while there are enough evaluations left to finish the pending pieces."""
        if self.stopped:
            return
        if spare <= 0:
            self.stopped = "max_evaluations"
        elif time.monotonic() > self.function.limits.deadline:
            self.stopped = "seconds"

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
        features = None
        if self.function.has_kinks and not self.stopped:
            values, watched = self.function.values_and_kinks(flat)
            features = find_features(flat, spans, watched)
        else:
            values = self.function.values(flat)
        split: dict[int, list[ChebyshevPiece]] = {}
        for number, (piece, span) in enumerate(zip(batch, spans, strict=True)):
            if features is not None and len(features[number]) and self.function.spare_evaluations > 0:
                children = self._split(piece, features[number])
                if children:
                    split[id(piece)] = children
                    continue
            piece.values = _interleave(piece.values, values[span])
        self.scale = self.scale or float(np.abs(values).max(initial=0.0))
        return split

    def _split(self, piece: ChebyshevPiece, features: Features) -> list[ChebyshevPiece]:
        """Cut a piece at its features; none if they lie at its ends."""
        if features.need_halving:
            return [] if self._is_short(piece) else self._halve(piece)
        cuts = cut_at_features(self.function, piece.left, piece.right, features)
        if len(cuts.ends) == 2:
            return []
        self.kinks += cuts.kinks
        degree = FIRST_DEGREE if len(cuts.ends) < FIRST_DEGREE_OF_MANY else FIRST_DEGREE_OF_MANY
        return [ChebyshevPiece(a, b, degree) for a, b in pairwise(cuts.ends)]

    def _is_ready(self, piece: ChebyshevPiece) -> bool:
        """Whether the error of a piece is worth measuring: it seems small, or it does not fall any more."""
        tail = estimate_truncation(piece.coeffs)
        falls = predict_truncation(piece.coeffs) < MIN_DECAY**2 * tail
        is_tried = piece.degree > FIRST_DEGREE or tail >= HALVING_SHARE * piece.parent_tail
        is_stuck = self._is_short(piece) or (not falls and is_tried)
        return bool(self.stopped) or is_stuck or TRUNCATION_FACTOR * tail <= self.tol

    def _is_short(self, piece: ChebyshevPiece) -> bool:
        """Whether a piece is so short that float64 does not resolve positions inside of it."""
        return piece.width <= MIN_RESOLUTIONS * ALPHA_RESOLUTION * max(piece.right, ALPHA_RESOLUTION)

    def _measure_errors(self, pieces: Sequence[ChebyshevPiece]) -> None:
        """Compare pieces with the model at fresh points, and sample the rounding error there."""
        if not pieces:
            return
        alphas = [p.alphas(fresh_positions(p.degree)) for p in pieces]
        exact = self.function.values(np.concatenate(alphas))
        ends = [np.array([p.left, p.right]) for p in pieces]  # kinks, which rounding moves
        noisy = self.function.perturbed_values(np.concatenate([*alphas, *ends]), len(self.done))
        noisy_ends = noisy[len(exact) :]
        for i, piece in enumerate(pieces):
            coeffs, rows = piece.coeffs, slice(i * FRESH_COUNT, (i + 1) * FRESH_COUNT)
            found = evaluate(np.broadcast_to(coeffs, (FRESH_COUNT, *coeffs.shape)), fresh_positions(piece.degree))
            residual = float(np.abs(found - exact[rows]).max(initial=0.0))
            at_ends = noisy_ends[2 * i : 2 * i + 2] - piece.values[[0, -1]]
            noise, end_noise = _root_mean_square(noisy[rows] - exact[rows]), _root_mean_square(at_ends)
            piece.rounding = ROUNDING_FACTOR * noise + self._break_rounding(piece)
            truncation = TRUNCATION_FACTOR * estimate_truncation(coeffs) + RESIDUAL_FACTOR * residual
            piece.end_rounding = max(ROUNDING_FACTOR * end_noise - piece.rounding, 0.0)
            piece.error = truncation + piece.rounding + SMALLEST_NORMAL
            own = float(evaluation_rounding(coeffs).max())  # that of the interpolant
            if max(estimate_truncation(coeffs), residual) <= PLATEAU_FACTOR * (noise + own):
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
            if piece.error > self.tol and self._may_be_unbounded(piece):
                piece.error = float("inf")
            if self.stopped and piece.error > self.tol:
                piece.error += float(np.ptp(piece.values, axis=0).max())
            piece.error += piece.end_rounding
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
            piece.degree, piece.error, piece.rounding, piece.end_rounding = 2 * piece.degree, float("inf"), 0.0, 0.0
            return [piece]
        return self._halve(piece)

    def _may_be_unbounded(self, piece: ChebyshevPiece) -> bool:
        """Whether values grow, and are not known better than to their size, as beside a pole."""
        largest = float(np.abs(piece.values).max())
        return largest > POLE_GROWTH * self.scale and (piece.error >= largest or self._is_short(piece))

    def _halve(self, piece: ChebyshevPiece) -> list[ChebyshevPiece]:
        middle, tail = (piece.left + piece.right) / 2, float("inf")
        if len(piece.coeffs):
            tail = estimate_truncation(piece.coeffs)
        ends = ((piece.left, middle), (middle, piece.right))
        return [ChebyshevPiece(a, b, FIRST_DEGREE, parent_tail=tail) for a, b in ends]


def _count_evaluations(pieces: Sequence[ChebyshevPiece]) -> int:
    """The number of evaluations that complete pieces: at their points, and to measure their errors."""
    return sum(p.degree + 1 - len(p.values) + EXTRA_EVALUATIONS for p in pieces)


def _root_mean_square(differences: Floats) -> float:  # (points, outputs)
    """The largest root mean square of a column; without overflow or underflow of the squares."""
    largest = float(np.abs(differences).max(initial=0.0))
    if not 0 < largest < float("inf"):
        return largest
    return largest * float(np.sqrt(((differences / largest) ** 2).mean(0)).max())


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
