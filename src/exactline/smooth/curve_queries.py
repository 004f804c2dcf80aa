"""Questions about a curve: which output leads where, extrema and level sets, all by roots of polynomials."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.polynomial import chebyshev

from ..arrays import Floats, Ints
from ..decide.comparison import NEEDS_THRESHOLD_HINT, Comparison
from ..decide.extrema import Extrema, LevelSet, parse_weights
from ..decide.intervals import Decisions, IntervalTable
from ..errors import ArgumentError
from ..tolerances import ALPHA_RESOLUTION
from .certified.curve import CurvePiece
from .certified.decisions import label_pieces
from .chebyshev import chebyshev_points, derivative, real_roots

if TYPE_CHECKING:
    from .approximation import Approximation

SAMPLES_PER_DEGREE = 2  # positions on a piece for each degree, where the leaders are looked up
MIN_SAMPLES = 16
PICTURE_ALPHAS = 801  # positions at which a curve is drawn, besides its breakpoints


@dataclass(frozen=True)
class SampledCurve:
    """What pictures and tables of decisions need of a curve: the positions at which it is drawn, and its facts."""

    alphas: torch.Tensor  # (n,)
    curve: Approximation
    reached: float = 1.0

    def __len__(self) -> int:
        return len(self.curve)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.curve, name)

    @property
    def breaks(self) -> torch.Tensor:
        """The breakpoints of the curve, (pieces + 1,)."""
        return self.curve.breakpoints


@dataclass(frozen=True, eq=False)
class CurveDecisions(Decisions):
    """The output that leads at every point of an approximated line, as a sequence of intervals."""

    columns: tuple[int, int] = (0, 0)  # first and last column of the compared output among all outputs

    @property
    def curve(self) -> Approximation:
        """The curve that was decided."""
        source: Any = self.source
        return source

    @property
    def line(self) -> Any:
        """The positions at which the decisions are drawn."""
        alphas = np.union1d(np.linspace(0.0, 1.0, PICTURE_ALPHAS), self.curve.breakpoints.numpy())
        return SampledCurve(torch.from_numpy(alphas), self.curve)

    @property
    def values(self) -> Floats:
        """The outputs at the positions of `line`; with a threshold its column comes first."""
        rows = self.curve.rows_at(self.line.alphas.numpy())[:, slice(*self.columns)]
        has_level = self.comparison is not None and self.comparison.level is not None
        return self.comparison.select(rows) if self.comparison is not None and has_level else rows


def decide_curve(
    curve: Approximation, order: str, output: str | int | None, threshold: Any, rivals: Sequence[int] | None
) -> Decisions:
    """The intervals on which one output leads; see `Approximation.decisions`."""
    if order not in ("max", "min"):
        raise ArgumentError(f"There is no order {order!r}.", where="argument order", hint="Give 'max' or 'min'.")
    columns = _output_columns(curve, output, "curve.decisions")
    comparison = _check_comparison(columns[1] - columns[0], threshold, rivals)
    sign = 1.0 if order == "max" else -1.0

    def select(rows: Floats) -> Floats:
        chosen = rows[:, slice(*columns)]
        return sign * (chosen if comparison.is_whole else comparison.select(chosen))

    labels = np.arange(columns[1] - columns[0])
    if comparison.level is not None:
        labels = np.array([0, 1])
    elif comparison.rivals is not None:
        labels = np.array(comparison.rivals)
    if curve.status == "certified":
        table = _build_proven_table(curve, select, labels, comparison.class_count)
    else:
        table = _build_table(curve, select, labels, comparison.class_count)
    return CurveDecisions(table, 0, curve, order, 1, 0, comparison, columns)  # pyright: ignore[reportArgumentType]


def _check_comparison(count: int, threshold: Any, rivals: Sequence[int] | None) -> Comparison:
    elements = None if rivals is None else tuple(int(r) for r in rivals)
    if elements is not None and (not elements or any(not 0 <= r < count for r in elements)):
        raise ArgumentError(
            f"rivals are {rivals!r}; the outputs are 0 to {count - 1}.",
            where="argument rivals",
            hint="Give the indices of outputs.",
        )
    compared = count if elements is None else len(elements)
    if (threshold is None) == (compared == 1):
        raise ArgumentError(
            "A single output has no rival." if compared == 1 else f"threshold= is for one output, not for {compared}.",
            where="curve.decisions",
            hint=NEEDS_THRESHOLD_HINT if compared == 1 else "Choose one output with rivals=[index].",
        )
    level = None if threshold is None else float(threshold)
    return Comparison(count, elements, level, level)


def _build_table(
    curve: Approximation, select: Callable[[Floats], Floats], labels: Ints, class_count: int
) -> IntervalTable:
    ends = curve.breakpoints.numpy()
    cuts: list[tuple[float, float, int]] = []  # where each interval starts, the error of that, the column that leads
    for i in range(len(curve)):
        coeffs = _select_coefficients(curve.piece_coefficients(i), select)
        half, error = (ends[i + 1] - ends[i]) / 2, float(curve.errors[i])
        for t, leader, rival in _leaders_of_piece(coeffs):
            alpha = float(np.clip((ends[i] + ends[i + 1]) / 2 + t * half, ends[i], ends[i + 1]))
            if cuts and cuts[-1][2] == leader:
                continue
            slope = 0.0
            if cuts and rival >= 0:
                slope = abs(float(chebyshev.chebval(t, derivative(coeffs[:, leader] - coeffs[:, rival])))) / half
            radius = 0.0 if not cuts else 1.0 if slope == 0 else min(1.0, 2 * error / slope)
            cuts.append((alpha, radius + ALPHA_RESOLUTION * alpha, leader))
    starts = np.array([c[0] for c in cuts])
    errors = np.array([c[1] for c in cuts])
    stops, stop_errors = np.append(starts[1:], 1.0), np.append(errors[1:], 0.0)
    columns = np.array([c[2] for c in cuts])
    margins, at = _find_margins(curve, select, starts, stops, columns)
    return IntervalTable(
        offsets=np.array([0, len(cuts)]),
        starts=starts,
        stops=stops,
        labels=labels[columns][:, None],
        tied=np.zeros((len(cuts), class_count), dtype=bool),
        margins=margins,
        margins_at=at,
        start_errors=errors,
        stop_errors=stop_errors,
    )


def _build_proven_table(
    curve: Approximation, select: Callable[[Floats], Floats], labels: Ints, class_count: int
) -> IntervalTable:
    """Intervals with proven labels; a boundary is the middle of a proven bracket, its error half the width of that.

    A bracket that does not lie between two different labels is an interval of its own, tied between all candidates.
    """
    ends, pieces = curve.breakpoints.numpy(), list[CurvePiece]()
    for i in range(len(curve)):
        coeffs = _select_coefficients(curve.piece_coefficients(i), select)
        errors = np.full(coeffs.shape[1], float(curve.errors[i]))
        pieces.append(CurvePiece(float(ends[i]), float(ends[i + 1]), coeffs, errors, np.zeros_like(errors)))
    found = label_pieces(pieces)
    cuts: list[tuple[float, float, int, tuple[int, ...]]] = []  # start, its error, leading column, tied columns
    boundary: tuple[float, float] | None = None  # of the next interval, and its error
    for k, interval in enumerate(found):
        middle, half = (interval.left + interval.right) / 2, (interval.right - interval.left) / 2
        if interval.is_certain:
            start, error = boundary or (interval.left, 0.0)
            cuts.append((start, error, interval.labels[0], ()))
            boundary = None
        elif 0 < k < len(found) - 1 and found[k - 1].labels != found[k + 1].labels:
            boundary = middle, half + ALPHA_RESOLUTION * middle
        else:
            leader = int(select(curve.rows_at(np.array([middle])))[0].argmax())
            cuts.append((interval.left, 0.0, leader, interval.labels))
    starts, errors = (np.array([c[i] for c in cuts]) for i in (0, 1))
    columns, stops = np.array([c[2] for c in cuts]), np.append(starts[1:], 1.0)
    margins, at = _find_margins(curve, select, starts, stops, columns)
    tied = np.zeros((len(cuts), class_count), dtype=bool)
    for row, cut in zip(tied, cuts, strict=True):
        row[labels[list(cut[3])]] = True
    stop_errors = np.append(errors[1:], 0.0)
    return IntervalTable(
        np.array([0, len(cuts)]), starts, stops, labels[columns][:, None], tied, margins, at, errors, stop_errors
    )


def _select_coefficients(coeffs: Floats, select: Callable[[Floats], Floats]) -> Floats:
    """Apply a selection of columns to coefficients; a constant column has only its first coefficient."""
    chosen = select(coeffs)
    constant = select(np.zeros_like(coeffs))
    chosen[1:] -= constant[1:]
    return chosen


def _leaders_of_piece(coeffs: Floats) -> Iterator[tuple[float, int, int]]:  # (degree + 1, columns)
    """The positions where another column takes the lead, the column, and the one that led before (-1 at the start)."""
    count = max(MIN_SAMPLES, SAMPLES_PER_DEGREE * len(coeffs))
    samples = chebyshev.chebval(chebyshev_points(count), coeffs).T  # (samples, columns)
    gaps = samples.max(1)[:, None] - samples
    reach = np.abs(np.diff(gaps, axis=0)).max(0)  # how much a gap can close between two samples
    rivals = np.flatnonzero(gaps.min(0) <= reach)
    if not len(rivals):
        rivals = np.array([int(samples[0].argmax())])
    pairs = [(a, b) for i, a in enumerate(rivals) for b in rivals[i + 1 :]]
    roots = [real_roots(coeffs[:, a] - coeffs[:, b]) for a, b in pairs]
    inner = np.unique(np.concatenate([np.zeros(0), *roots]))
    inner = inner[(inner > -1) & (inner < 1)]
    edges = np.concatenate([[-1.0], inner, [1.0]])
    middles = (edges[:-1] + edges[1:]) / 2
    leaders = rivals[chebyshev.chebval(middles, coeffs[:, rivals]).argmax(0)]
    before = -1
    for t, leader in zip(edges[:-1].tolist(), leaders.tolist(), strict=True):
        if leader != before:
            yield t, leader, before
            before = leader


def _find_margins(
    curve: Approximation, select: Callable[[Floats], Floats], starts: Floats, stops: Floats, columns: Ints
) -> tuple[Floats, Floats]:
    """The largest lead on each interval among a number of positions, and where it occurs."""
    margins, at = np.zeros(len(starts)), starts.copy()
    for i, (start, stop, leader) in enumerate(zip(starts, stops, columns, strict=True)):
        alphas = np.linspace(start, stop, 4 * MIN_SAMPLES + 1)
        rows = select(curve.rows_at(alphas))
        others = np.delete(rows, leader, axis=1)
        lead = rows[:, leader] - (others.max(1) if others.shape[1] else 0.0)
        best = int(lead.argmax())
        margins[i], at[i] = max(float(lead[best]), 0.0), alphas[best]
    return margins, at


def find_curve_extrema(curve: Approximation, weights: Any, output: str | int | None) -> Extrema:
    """The extrema of linear functionals; see `Approximation.extrema`."""
    columns = _output_columns(curve, output, "curve.extrema")
    rows, is_single = parse_weights(weights, columns[1] - columns[0])
    best: list[tuple[float, float, float, float]] = []
    for row in rows:
        alphas, values = [], []
        for alpha, half, coeffs in _functional_pieces(curve, columns, row):
            t = np.concatenate([[-1.0], real_roots(derivative(coeffs)), [1.0]])
            alphas.append(alpha + half * t)
            values.append(chebyshev.chebval(t, coeffs))
        where, value = np.concatenate(alphas), np.concatenate(values)
        low, high = int(value.argmin()), int(value.argmax())
        best.append((value[low], where[low], value[high], where[high]))
    table = np.array(best).T
    errors = curve.error * np.abs(rows).sum(1)
    results = [*table, errors]
    return Extrema(*((float(c[0]) if is_single else torch.from_numpy(c.copy())) for c in results))


def find_curve_level(curve: Approximation, weights: Any, c: Any, output: str | int | None) -> LevelSet:
    """The level set of a linear functional; see `Approximation.level`."""
    columns = _output_columns(curve, output, "curve.level")
    rows, is_single = parse_weights(weights, columns[1] - columns[0])
    if not is_single:
        raise ArgumentError("One functional at a time.", where="argument weights", hint="Give weights of shape (out,).")
    if isinstance(c, bool) or not isinstance(c, (int, float)) or not isfinite(c):
        raise ArgumentError(f"The level is {c!r}.", where="argument c", hint="Give a finite number.")
    weight = float(np.abs(rows[0]).sum())
    found: list[tuple[float, float, int]] = []
    intervals: list[tuple[float, float]] = []
    for i, (middle, half, coeffs) in enumerate(_functional_pieces(curve, columns, rows[0])):
        error, height = weight * float(curve.errors[i]), coeffs.copy()
        height[0] -= c
        if np.abs(height).sum() <= error:  # equal to the level up to its error
            start = middle - half
            if intervals and intervals[-1][1] == start:
                start = intervals.pop()[0]
            intervals.append((start, middle + half))
            continue
        slope = derivative(height)
        for t in real_roots(height).tolist():
            rate = float(chebyshev.chebval(t, slope)) / half
            radius = min(1.0, error / abs(rate)) if rate else 1.0
            alpha = middle + half * t
            if not found or alpha - found[-1][0] > ALPHA_RESOLUTION * max(alpha, ALPHA_RESOLUTION):
                found.append((alpha, radius + ALPHA_RESOLUTION * alpha, int(np.sign(rate))))
    return LevelSet(
        alphas=torch.tensor([f[0] for f in found], dtype=torch.float64),
        errors=torch.tensor([f[1] for f in found], dtype=torch.float64),
        signs=torch.tensor([f[2] for f in found], dtype=torch.int64),
        intervals=tuple(intervals),
    )


def _functional_pieces(
    curve: Approximation, columns: tuple[int, int], weights: Floats
) -> Iterator[tuple[float, float, Floats]]:
    """The middle and half the width of each piece, and the coefficients of a functional on it."""
    ends = curve.breakpoints.numpy()
    for i in range(len(curve)):
        coeffs = curve.piece_coefficients(i)[:, slice(*columns)] @ weights
        yield float((ends[i] + ends[i + 1]) / 2), float((ends[i + 1] - ends[i]) / 2), coeffs


def _output_columns(curve: Approximation, output: str | int | None, where: str) -> tuple[int, int]:
    """The first and the last column of an output tensor among all flattened outputs."""
    sizes = [int(np.prod(shape)) for shape in curve.output_shapes]
    names = curve.output_names or tuple(f"output_{i}" for i in range(len(sizes)))
    index = 0 if output is None and len(sizes) == 1 else output
    if isinstance(index, str) and index in names:
        index = names.index(index)
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(sizes):
        raise ArgumentError(
            "The network has several outputs." if output is None else f"There is no output {output!r}.",
            where=where,
            hint=f"Give output=, a number from 0 to {len(sizes) - 1}.",
        )
    first = sum(sizes[:index])
    return first, first + sizes[index]
