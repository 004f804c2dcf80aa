"""Find the kinks of a model between samples: units that change side, located by a bracketing root finder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats, Ints
from ..tolerances import ALPHA_RESOLUTION
from .kinks import Leaders, Signs, Watched
from .line_function import LineFunction

ZERO_SHARE = 1e-13  # of an operator's largest argument: smaller ones are on a kink already
MAX_ROOT_STEPS = 60  # of the root finder; bisection alone needs 52
MIN_CUT_RESOLUTIONS = 4  # distance of a cut from others, in multiples of the resolution of alpha
MAX_LOCATED = 4096  # crossings that are located at a time; with more the interval is halved instead


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
    found = [_bracket_signs(alphas, intervals, w.values, i) for i, w in enumerate(watched) if isinstance(w, Signs)]
    found += [_bracket_leaders(alphas, intervals, w, i) for i, w in enumerate(watched) if isinstance(w, Leaders)]
    return [_concatenate([per_operator[k] for per_operator in found]) for k in range(len(intervals))]


def _concatenate(parts: Sequence[Brackets]) -> Brackets:
    if not parts:
        none, nowhere = np.zeros(0), np.zeros(0, np.int64)
        return Brackets(none, none, none, none, operator=nowhere, unit=nowhere, first=nowhere, second=nowhere)
    return Brackets(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Brackets)))


def _bracket_signs(alphas: Floats, intervals: Sequence[slice], values: Tensor, operator: int) -> list[Brackets]:
    size = values.abs()
    finite = torch.where(size.isfinite(), size, 0.0)
    signs = torch.where(size <= ZERO_SHARE * finite.max(), 0.0, values.sign())
    brackets: list[Brackets] = []
    for span in intervals:
        rows, here = signs[span], alphas[span]
        for i in range(1, len(rows)):  # a point exactly on a kink takes the side of the point before it
            rows[i] = torch.where(rows[i] == 0, rows[i - 1], rows[i])
        pair, unit = (t.cpu().numpy() for t in torch.nonzero(rows[:-1] * rows[1:] < 0, as_tuple=True))
        none = np.full(len(pair), -1)
        brackets.append(
            Brackets(
                left=here[pair],
                right=here[pair + 1],
                at_left=values[span][pair, unit].cpu().numpy(),
                at_right=values[span][pair + 1, unit].cpu().numpy(),
                operator=np.full(len(pair), operator),
                unit=unit,
                first=none,
                second=none,
            )
        )
    return brackets


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
        )
        brackets.append(found.select(np.flatnonzero(np.sign(at[0]) * np.sign(at[1]) < 0)))
    return brackets


def cut_at_kinks(function: LineFunction, left: float, right: float, brackets: Brackets) -> list[float]:
    """The ends of the parts of an interval between its kinks; only its own two ends if no kink lies inside."""
    margin = MIN_CUT_RESOLUTIONS * ALPHA_RESOLUTION * right
    cuts = [left]
    for root in locate_kinks(function, brackets).tolist():
        if root - cuts[-1] > margin and right - root > margin:
            cuts.append(root)
    return [*cuts, right]


def locate_kinks(function: LineFunction, brackets: Brackets) -> Floats:
    """The alphas where units cross their kinks, ascending and distinct.

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
        value = _evaluate_units(function, guess, brackets.select(active))
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
        if not len(active):
            break
    return np.unique(roots)


def _evaluate_units(function: LineFunction, alphas: Floats, brackets: Brackets) -> Floats:
    """The distance of each bracket's unit from its kink, at one alpha for each."""
    result = np.zeros(len(alphas))
    for first in range(0, len(alphas), function.batch_points):
        rows = slice(first, first + function.batch_points)
        _, watched = function.values_and_kinks(alphas[rows])
        part = brackets.select(np.arange(len(alphas))[rows])
        for k in range(len(part)):
            source = watched[part.operator[k]]
            if isinstance(source, Signs):
                value = source.values[k, part.unit[k]]
            else:
                members = source.values[k, part.unit[k]]
                value = members[part.first[k]] - members[part.second[k]]
            result[first + k] = float(value)
    return result
