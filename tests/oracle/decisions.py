"""Decisions, extrema and levels in rationals: the truth that the float ones are held against.

Not clever on purpose: every meeting of two outputs cuts a piece, and between cuts one looks at the middle.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise

from exactline.decide import Decisions, Extrema, LevelSet
from exactline.exact import ExactRestriction


@dataclass(frozen=True)
class ExactInterval:
    start: Fraction
    stop: Fraction
    label: tuple[int, ...]
    tied: tuple[int, ...]
    margin: Fraction | None  # None where there is no other output


def exact_decisions(exact: ExactRestriction, order: str = "max", top: int = 1) -> list[ExactInterval]:
    """The class intervals of a line as rationals."""
    sign = 1 if order == "max" else -1
    found: list[ExactInterval] = []
    for piece, (left, right) in enumerate(pairwise(exact.alphas)):
        forms = [(sign * p, sign * q) for p, q in exact.affine_form(piece)]
        for start, stop in pairwise(_cuts(forms, left, right)):
            _add(found, _between(forms, start, stop, top))
    return found


def _cuts(forms: list[tuple[Fraction, Fraction]], left: Fraction, right: Fraction) -> list[Fraction]:
    meets = {(p2 - p1) / (q1 - q2) for (p1, q1), (p2, q2) in combinations(forms, 2) if q1 != q2}
    return [left, *sorted(at for at in meets if left < at < right), right]


def _between(forms: list[tuple[Fraction, Fraction]], start: Fraction, stop: Fraction, top: int) -> ExactInterval:
    middle = (start + stop) / 2
    heights = [p + q * middle for p, q in forms]
    order = sorted(range(len(forms)), key=lambda i: (-heights[i], i))
    label = tuple(order[:top])
    shared = [i for i in range(len(forms)) if any(heights[i] == heights[j] for j in label)]
    tied = tuple(i for i in shared if heights.count(heights[i]) > 1)
    margin = None
    if len(order) > top:
        (p1, q1), (p2, q2) = forms[order[top - 1]], forms[order[top]]
        margin = max(p1 - p2 + (q1 - q2) * at for at in (start, stop))
    return ExactInterval(start, stop, label, tied, margin)


def _add(found: list[ExactInterval], new: ExactInterval) -> None:
    if found and (found[-1].label, found[-1].tied) == (new.label, new.tied):
        old = found.pop()
        margin = None if old.margin is None or new.margin is None else max(old.margin, new.margin)
        new = ExactInterval(old.start, new.stop, new.label, new.tied, margin)
    found.append(new)


def boundaries_hold(exact: ExactRestriction, truth: list[ExactInterval], order: str) -> bool:
    """Whether the outputs that lead on the two sides of every boundary, and none above them, are equal there."""
    best = max if order == "max" else min
    for left, right in pairwise(truth):
        heights = exact.value(left.stop)
        tops = zip(left.label, right.label, strict=True)
        if any(heights[i] != heights[j] for i, j in tops) or heights[left.label[0]] != best(heights):
            return False
    return True


def disagreement(decided: Decisions, truth: list[ExactInterval], slack: float) -> str | None:
    """What is wrong with decisions, or None; margins may be off by ``slack``."""
    ours = [(i.label if isinstance(i.label, tuple) else (i.label,), i.tied) for i in decided]
    theirs = [(i.label, i.tied) for i in truth]
    if ours != theirs:
        widths = [f"{float(i.stop - i.start):.2g}" for i in truth]
        return f"labels and ties are {ours}, not {theirs} (widths {widths})"
    for mine, true in zip(decided, truth, strict=True):
        ends = (mine.start, true.start, mine.start_error), (mine.stop, true.stop, mine.stop_error)
        for at, exact, error in ends:
            if abs(Fraction(at) - exact) > Fraction(error):
                return f"{at!r} is {float(abs(Fraction(at) - exact)):.1e} off, the estimate {error:.1e}"
        if true.margin is None:
            if mine.margin != float("inf"):
                return f"a margin over nothing: {mine.margin}"
        elif abs(Fraction(mine.margin) - true.margin) > Fraction(slack) or mine.margin < 0:
            return f"the margin is {mine.margin!r}, not {float(true.margin)!r}"
        if not mine.start <= mine.margin_at <= mine.stop:
            return f"the margin lies outside, at {mine.margin_at}"
    return None


def exact_heights(exact: ExactRestriction, weights: list[Fraction]) -> list[Fraction]:
    """A functional at every break."""
    return [sum((w * v for w, v in zip(weights, row, strict=True)), Fraction(0)) for row in exact.values]


def wrong_extrema(found: Extrema, exact: ExactRestriction, weights: list[Fraction]) -> str | None:
    """What is wrong with one functional's extrema, or None."""
    heights = exact_heights(exact, weights)
    for name, truth in (("minimum", min(heights)), ("maximum", max(heights))):
        off = abs(Fraction(getattr(found, name)) - truth)
        if off > Fraction(found.error):
            return f"the {name} is {float(off):.1e} off, the estimate {found.error:.1e}"
    for name, truth in (("argmin", min(heights)), ("argmax", max(heights))):
        there = exact.value(getattr(found, name))
        height = sum((w * v for w, v in zip(weights, there, strict=True)), Fraction(0))
        if abs(height - truth) > 4 * Fraction(found.error):
            return f"{name} is another place: {float(height)!r} there, not {float(truth)!r}"
    return None


def exact_level(
    exact: ExactRestriction, weights: list[Fraction], c: Fraction
) -> tuple[list[Fraction], list[tuple[Fraction, Fraction]]]:
    """Single places where a functional equals c, and stretches where it does all along."""
    heights = [h - c for h in exact_heights(exact, weights)]
    stretches: list[tuple[Fraction, Fraction]] = []
    places: set[Fraction] = set()
    for (left, right), (a, b) in zip(pairwise(exact.alphas), pairwise(heights), strict=True):
        if a == b == 0:
            joined = stretches and stretches[-1][1] == left
            stretches[-1:] = [(stretches[-1][0], right)] if joined else [*stretches[-1:], (left, right)]
        elif a == 0 or b == 0:
            places.add(left if a == 0 else right)
        elif (a < 0) != (b < 0):
            places.add(left + a / (a - b) * (right - left))
    ends = {end for stretch in stretches for end in stretch}
    return sorted(places - ends), stretches


def wrong_level(
    found: LevelSet, exact: ExactRestriction, weights: list[Fraction], c: Fraction, *, sharp: bool
) -> str | None:
    """What is wrong with the places where a functional equals c, or None.

    Where the level is not ``sharp``, that is within rounding of a turning point or of a flat stretch, one place may
    stand for two or none, and a stretch for a place at its end; but none is missed, and the functional is as good as
    equal at each.
    """
    places, stretches = exact_level(exact, weights, c)
    if sharp and (len(found) != len(places) or len(found.intervals) != len(stretches)):
        return f"{found.alphas.tolist()}, {found.intervals}: not {[float(p) for p in places]}, {stretches}"
    ours = list(zip(found.alphas.tolist(), found.errors.tolist(), strict=True))
    flat = [] if sharp else [(Fraction(a), Fraction(b)) for a, b in found.intervals]
    near = Fraction(1, 10**11)
    for truth in places:
        met = any(abs(Fraction(at) - truth) <= Fraction(error) for at, error in ours)
        if not met and not any(a - near <= truth <= b + near for a, b in flat):
            return f"{float(truth)!r} is missed: {ours}"
    scale = max(abs(h) for h in exact_heights(exact, weights)) + abs(c)
    for at, _ in ours:
        height = sum((w * v for w, v in zip(weights, exact.value(at), strict=True)), -c)
        if abs(height) > scale * Fraction(1, 10**11):
            return f"at {at!r} it is {float(height):.1e} away"
    if not sharp:
        for a, b in flat:
            heights = [
                sum((w * v for w, v in zip(weights, exact.value(x), strict=True)), -c) for x in (a, (a + b) / 2, b)
            ]
            if max(map(abs, heights)) > scale * near:
                return f"on the stretch from {float(a)!r} to {float(b)!r} it is not {float(c)!r}"
        return None
    for mine, true in zip(found.intervals, stretches, strict=True):
        if any(abs(Fraction(a) - b) > Fraction(1, 10**11) for a, b in zip(mine, true, strict=True)):
            return f"the stretch {mine} is not {true}"
    return None
