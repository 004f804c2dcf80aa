"""Find the kinks of a model between samples: units that change side, located by a bracketing root finder.

The bends of smooth operators are located likewise if they are narrower than the gap between two samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ..arrays import Bools, Floats, Ints
from ..tolerances import ALPHA_RESOLUTION
from .features import Closeness
from .kinks import Leaders, Signs, Watched
from .line_function import LineFunction
from .tolerances import MAX_ROOT_STEPS, ZERO_SHARE


@dataclass(frozen=True)
class Brackets:
    """Units that change side between two alphas, one row for each."""

    left: Floats  # (n,)
    right: Floats  # (n,)
    at_left: Floats  # (n,) distance from the kink
    at_right: Floats  # (n,) of the other sign
    operator: Ints  # (n,) index among the watched operators
    unit: Ints  # (n,) flat position of the argument; of the group for a selection
    first: Ints  # (n,) the member selected on the left; -1 for signs
    second: Ints  # (n,) the member selected on the right; -1 for signs
    level: Floats  # (n,) the argument at which the line is cut
    is_kink: Bools  # (n,) False for the bend of a smooth operator

    def __len__(self) -> int:
        return len(self.left)

    def select(self, rows: Ints) -> Brackets:
        """Some of the rows."""
        return Brackets(*(getattr(self, f.name)[rows] for f in fields(self)))


def find_brackets(
    alphas: Floats,  # (points,) ascending within each interval
    intervals: Sequence[slice],  # the points of each interval
    watched: Sequence[Watched],
) -> list[Brackets]:
    """The brackets of each interval: pairs of neighbouring points between which a unit changes side."""
    found = [_bracket_signs(alphas, intervals, w, i) for i, w in enumerate(watched) if isinstance(w, Signs)]
    found += [_bracket_leaders(alphas, intervals, w, i) for i, w in enumerate(watched) if isinstance(w, Leaders)]
    return [_concatenate([per_operator[k] for per_operator in found]) for k in range(len(intervals))]


def _concatenate(parts: Sequence[Brackets]) -> Brackets:
    if not parts:
        none, nowhere = np.zeros(0), np.zeros(0, np.int64)
        return Brackets(none, none, none, none, nowhere, nowhere, nowhere, nowhere, none, is_kink=np.zeros(0, bool))
    return Brackets(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Brackets)))


def _bracket_signs(alphas: Floats, intervals: Sequence[slice], watched: Signs, operator: int) -> list[Brackets]:
    values, closeness = watched.values, watched.closeness
    size = values.abs()
    finite = torch.where(size.isfinite(), size, 0.0)
    largest = finite.max() if finite.numel() else torch.zeros(())
    if not closeness.has_zero or bool(largest <= closeness.reach):
        return [_concatenate([])] * len(intervals)
    if closeness.reach:
        return [_bracket_bends(alphas[span], values[span], closeness, operator) for span in intervals]
    signs = torch.where(size <= ZERO_SHARE * largest, 0.0, values.sign())
    brackets: list[Brackets] = []
    for span in intervals:
        rows = signs[span]
        for i in range(1, len(rows)):  # a point exactly on a kink takes the side of the point before it
            rows[i] = torch.where(rows[i] == 0, rows[i - 1], rows[i])
        brackets.append(_bracket_pairs(alphas[span], values[span], rows[:-1] * rows[1:] < 0, operator, 0.0))
    return brackets


def _bracket_bends(alphas: Floats, values: Tensor, closeness: Closeness, operator: int) -> Brackets:
    """Pairs of points between which an argument leaves its range of bends without a sample on the way."""
    found: list[Brackets] = []
    for side in (1.0, -1.0):
        is_far, is_before = side * values > closeness.reach, side * values < closeness.level / 2
        leaves = (is_far[:-1] & is_before[1:]) | (is_before[:-1] & is_far[1:])
        found.append(_bracket_pairs(alphas, values, leaves, operator, side * closeness.level))
    return _concatenate(found)


def _bracket_pairs(alphas: Floats, values: Tensor, changes: Tensor, operator: int, level: float) -> Brackets:
    """The brackets of neighbouring points, (points - 1, units) of which are chosen."""
    pair, unit = (t.cpu().numpy() for t in torch.nonzero(changes, as_tuple=True))
    none = np.full(len(pair), -1)
    return Brackets(
        left=alphas[pair],
        right=alphas[pair + 1],
        at_left=values[pair, unit].cpu().numpy() - level,
        at_right=values[pair + 1, unit].cpu().numpy() - level,
        operator=np.full(len(pair), operator),
        unit=unit,
        first=none,
        second=none,
        level=np.full(len(pair), level),
        is_kink=np.full(len(pair), level == 0),
    )


def _bracket_leaders(alphas: Floats, intervals: Sequence[slice], watched: Leaders, operator: int) -> list[Brackets]:
    brackets: list[Brackets] = []
    for span in intervals:
        values, selected, here = watched.values[span], watched.selected[span], alphas[span]
        changed = torch.nonzero(selected[:-1] != selected[1:], as_tuple=True)
        pair, group, unit = (t.cpu().numpy() for t in changed)
        first, second = (selected[pair + k, group, unit].cpu().numpy() for k in (0, 1))
        at = [(values[pair + k, group, first] - values[pair + k, group, second]).cpu().numpy() for k in (0, 1)]
        found = Brackets(
            left=here[pair],
            right=here[pair + 1],
            at_left=at[0],
            at_right=at[1],
            operator=np.full(len(pair), operator),
            unit=group,
            first=first,
            second=second,
            level=np.zeros(len(pair)),
            is_kink=np.full(len(pair), watched.closeness.is_kink),
        )
        is_far = np.minimum(np.abs(at[0]), np.abs(at[1])) > watched.closeness.reach
        brackets.append(found.select(np.flatnonzero((np.sign(at[0]) * np.sign(at[1]) < 0) & is_far)))
    return brackets


def locate_kinks(function: LineFunction, brackets: Brackets) -> Floats:
    """The alphas where units cross their kinks or bends, one for each bracket.

    Each step evaluates the model once for every unit that is not located yet. The step is that of the Illinois method,
    a secant method that keeps the bracket; every third step halves the bracket.
    """
    left, right = brackets.left.copy(), brackets.right.copy()
    at_left, at_right = brackets.at_left.copy(), brackets.at_right.copy()
    roots, active = (left + right) / 2, np.arange(len(brackets))
    for step in range(MAX_ROOT_STEPS):
        a, b, fa, fb = left[active], right[active], at_left[active], at_right[active]
        with np.errstate(all="ignore"):
            secant = b - fb * ((b - a) / (fb - fa))
        middle = (a + b) / 2
        guess = np.where((secant > a) & (secant < b) & (step % 3 < 2), secant, middle)
        rows = brackets.select(active)
        value = evaluate_units(function, guess, rows) - rows.level
        same = np.sign(value) == np.sign(fa)
        left[active] = np.where(same, guess, a)
        right[active] = np.where(same, b, guess)
        at_left[active] = np.where(same, value, fa / 2)  # halving the kept end makes the next secant cross over
        at_right[active] = np.where(same, fb / 2, value)
        moved = np.abs(guess - roots[active])
        roots[active] = guess
        width = right[active] - left[active]
        resolution = ALPHA_RESOLUTION * np.maximum(guess, ALPHA_RESOLUTION)
        active = active[(value != 0) & (width > resolution) & ((moved > resolution / 2) | (step < 2))]
        if not len(active) or function.spare_evaluations < len(active):
            break
    return roots


class Units(Protocol):
    """Units of watched operators, one row for each; columns as in `Brackets`."""

    @property
    def operator(self) -> Ints:
        """(n,) index among the watched operators."""
        ...

    @property
    def unit(self) -> Ints:
        """(n,) flat position of the argument."""
        ...

    @property
    def first(self) -> Ints:
        """(n,) one member of a selection."""
        ...

    @property
    def second(self) -> Ints:
        """(n,) the other member."""
        ...


def evaluate_units(function: LineFunction, alphas: Floats, units: Units) -> Floats:  # (n,)
    """The argument of each unit, or the lead of the first over the second member, at one alpha for each."""
    result = np.zeros(len(alphas))
    for first in range(0, len(alphas), function.batch_points):
        _, watched = function.values_and_kinks(alphas[first : first + function.batch_points])
        for k in range(first, min(first + function.batch_points, len(alphas))):
            source = watched[units.operator[k]]
            if isinstance(source, Signs):
                value = source.values[k - first, units.unit[k]]
            else:
                members = source.values[k - first, units.unit[k]]
                value = members[units.first[k]] - members[units.second[k]]
            result[k] = float(value)
    return result
