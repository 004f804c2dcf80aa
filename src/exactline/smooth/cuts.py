"""Where an interval is cut: at kinks, at poles, and around bends and peaks that are narrower than a gap of samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from ..arrays import Bools, Floats, Ints
from ..tolerances import ALPHA_RESOLUTION
from .crossings import Brackets, evaluate_units, find_brackets, locate_kinks
from .dips import Dips, find_dips, locate_dips
from .kinks import Watched
from .line_function import LineFunction
from .tolerances import BEND_CHANGE, GRADING_RATIO, MAX_GRADED_CUTS, MIN_CUT_RESOLUTIONS

LOCATION_EVALUATIONS = 48  # of the model, roughly, to locate a feature and to follow one more piece
MAX_LOCATED = 4096  # features that are located at a time; with more the interval is halved instead


@dataclass(frozen=True)
class Features:
    """What happens to watched units between the points of an interval."""

    brackets: Brackets
    dips: Dips
    is_coarse: bool = False  # whether there are too few points for an oscillation

    @property
    def need_halving(self) -> bool:
        """Whether the interval is to be halved instead of cut."""
        return self.is_coarse or len(self) > MAX_LOCATED

    def __len__(self) -> int:
        return len(self.brackets) + len(self.dips) + self.is_coarse

    def take(self, count: float) -> Features:
        """At most so many features: those that are left out are not worth more evaluations than there are."""
        if len(self) <= count:
            return self
        first = np.arange(max(0, int(count)))
        brackets = self.brackets.select(first[: len(self.brackets)])
        return Features(brackets, self.dips.select(first[: max(0, len(first) - len(self.brackets))]))


@dataclass(frozen=True)
class FeatureCuts:
    """The parts of an interval."""

    ends: list[float]  # ascending from the left to the right end of the interval
    kinks: list[float]  # those of them where an operator is not smooth


@dataclass(frozen=True)
class _Centers:
    """Features of smooth operators that were located, one row for each unit."""

    alphas: Floats  # (n,)
    change: Floats  # (n,) of the argument that matters; 0 if it is the argument itself
    operator: Ints  # (n,)
    unit: Ints  # (n,)
    first: Ints  # (n,)
    second: Ints  # (n,)

    def select(self, rows: Ints) -> _Centers:
        """Some of the rows."""
        return _Centers(*(getattr(self, f.name)[rows] for f in fields(self)))


def find_features(
    alphas: Floats,  # (points,) ascending within each interval
    intervals: Sequence[slice],  # the points of each interval
    watched: Sequence[Watched],
) -> list[Features]:
    """The features of each interval."""
    dips, brackets = find_dips(alphas, intervals, watched), find_brackets(alphas, intervals, watched)
    coarse = [any(_is_coarse(w, span) for w in watched) for span in intervals]
    return [
        Features(_keep_steepest_bends(b), _keep_deepest_dips(d), c)
        for b, d, c in zip(brackets, dips, coarse, strict=True)
    ]


def _keep_steepest_bends(found: Brackets) -> Brackets:
    """All kinks, and one bend in each gap: the parts beside it show the others to their own samples, or need cuts."""
    bends = np.flatnonzero(~found.is_kink)
    change = np.abs(found.at_right[bends] - found.at_left[bends])
    kept = _largest_of_groups(found.left[bends], change)
    return found.select(np.sort(np.concatenate([np.flatnonzero(found.is_kink), bends[kept]])))


def _keep_deepest_dips(found: Dips) -> Dips:
    """All dips towards kinks, and one of the others in each gap."""
    others = np.flatnonzero(~found.is_kink)
    fall = found.heights[others][:, [0, 2]].sum(1) - 2 * found.heights[others, 1]
    kept = _largest_of_groups(found.alphas[others, 1], fall)
    return found.select(np.sort(np.concatenate([np.flatnonzero(found.is_kink), others[kept]])))


def _largest_of_groups(groups: Floats, sizes: Floats) -> Ints:
    """The row with the largest size of each group."""
    order = np.lexsort((-sizes, groups))
    return order[np.unique(groups[order], return_index=True)[1]]


def _is_coarse(watched: Watched, span: slice) -> bool:
    if watched.closeness.step == float("inf"):
        return False
    return bool((watched.values[span].diff(dim=0).abs() > watched.closeness.step).any())


def cut_at_features(
    function: LineFunction, left: float, right: float, features: Features, graded: bool = False
) -> FeatureCuts:
    """Cut an interval at its features; only its own two ends remain if none lies inside.

    Args:
        function: the model on the line.
        left, right: the ends of the interval.
        features: found between its samples.
        graded: cut beside bends and peaks too, at distances that fall to their width, so that a quadrature rule
            without nodes at the ends of an interval sees them.
    """
    features = features.take(function.spare_evaluations / LOCATION_EVALUATIONS)
    brackets, dips = features.brackets, features.dips
    roots = locate_kinks(function, brackets) if len(brackets) else np.zeros(0)
    rows, minima = locate_dips(function, dips) if len(dips) else (np.zeros(0, np.int64), np.zeros(0))
    dips = dips.select(rows)
    inner = np.concatenate([roots, minima])
    if graded:
        bends = _join(brackets, roots, np.full(len(roots), BEND_CHANGE), ~brackets.is_kink)
        peaks = _join(dips, minima, dips.change, ~dips.is_kink)
        inner = np.concatenate([inner, _grade(function, left, right, bends), _grade(function, left, right, peaks)])
    margin = MIN_CUT_RESOLUTIONS * ALPHA_RESOLUTION * right
    ends = [left]
    for alpha in np.unique(inner).tolist():
        if alpha - ends[-1] > margin and right - alpha > margin:
            ends.append(alpha)
    kinks = set(roots[brackets.is_kink].tolist())
    return FeatureCuts([*ends, right], [alpha for alpha in ends[1:] if alpha in kinks])


def _join(units: Brackets | Dips, alphas: Floats, change: Floats, kept: Bools) -> _Centers:
    found = _Centers(alphas, change, units.operator, units.unit, units.first, units.second)
    return found.select(np.flatnonzero(kept))


def _grade(function: LineFunction, left: float, right: float, centers: _Centers) -> Floats:
    """Positions on both sides of each center, at distances that fall by a ratio until the argument hardly changes."""
    count = len(centers.alphas)
    if not count:
        return np.zeros(0)
    shares = GRADING_RATIO ** -np.arange(1.0, MAX_GRADED_CUTS + 1)
    widths = np.stack([left - centers.alphas, right - centers.alphas], 1)  # (n, 2)
    alphas = centers.alphas[:, None, None] + widths[:, :, None] * shares  # (n, 2, distances)
    flat = np.concatenate([centers.alphas, alphas.reshape(-1)])
    index = np.concatenate([np.arange(count), np.repeat(np.arange(count), alphas[0].size)])
    units = _Centers(
        flat, *(getattr(centers, name)[index] for name in ("change", "operator", "unit", "first", "second"))
    )
    values = evaluate_units(function, flat, units)
    here, beside = values[:count, None, None], values[count:].reshape(alphas.shape)
    change = np.where(centers.change > 0, centers.change, np.abs(values[:count]))
    return alphas[np.abs(beside - here) > change[:, None, None]]
