"""Cover [0, 1] with sub-intervals on whose discs the remainders of Taylor models are small enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .line_enclosure import LineEnclosure
from .tolerances import MAX_DISCS_PER_PASS, MAX_SPLIT_WIDTH, MIN_WIDTH

Interval = tuple[float, float]
IsUsable = Callable[[Tensor, Tensor], Tensor]  # remainders (discs, results), half widths (discs,) to booleans (discs,)


@dataclass(frozen=True)
class SubInterval:
    """A sub-interval of the line with bounds on the results."""

    left: float
    right: float
    remainders: Tensor  # (results,) on the disc, or for a kink the distance from kink_values; may be infinite
    is_certified: bool
    kink_values: Tensor | None = None  # (results,) on a bracket of a kink, where results are only known within bounds
    reason: str = ""  # the node whose bound is infinite even at the center, where bisection cannot help

    @property
    def is_kink(self) -> bool:
        """Whether this is a narrow bracket around a kink."""
        return self.kink_values is not None

    @property
    def center(self) -> float:
        """The midpoint, which is exact: ends are multiples of ALPHA_GRID."""
        return (self.left + self.right) / 2

    @property
    def half_width(self) -> float:
        """Half of the width, which is exact."""
        return (self.right - self.left) / 2


def cover_line(function: LineEnclosure, is_usable: IsUsable, deadline: float) -> list[SubInterval]:
    """Divide [0, 1] until every sub-interval is usable, is narrower than MIN_WIDTH, or the time is over.

    A sub-interval that fails is divided at the kinks that are found in it, and otherwise bisected. A narrow one is
    given up if the bound is infinite even at its center. The first pass tries [0, 1], its halves and its quarters at
    once, because discs that share a pass share its overhead.

    Args:
        function: The results along the line.
        is_usable: Tells which remainders are small enough.
        deadline: The value of ``time.monotonic()`` after which the rest stays uncertified.
    """

    def try_discs(intervals: Sequence[Interval]) -> list[SubInterval]:
        ends = torch.tensor(intervals, dtype=torch.float64)
        half = (ends[:, 1] - ends[:, 0]) / 2
        is_late = time.monotonic() > deadline
        remainders = (
            torch.full((len(ends), 1), torch.inf).double() if is_late else function.on_discs(ends.mean(1), half)
        )
        usable = is_usable(remainders, half)
        return [SubInterval(*intervals[i], remainders[i], bool(usable[i])) for i in range(len(ends))]

    halves = bisect(0.0, 1.0)
    quarters = [part for interval in halves for part in bisect(*interval)]
    first = {(part.left, part.right): part for part in try_discs([(0.0, 1.0), *halves, *quarters])}
    done: list[SubInterval] = []
    waiting: list[Interval] = [(0.0, 1.0)]
    while waiting:
        batch, waiting = waiting[:MAX_DISCS_PER_PASS], waiting[MAX_DISCS_PER_PASS:]
        known = [first[interval] for interval in batch if interval in first]
        unknown = [interval for interval in batch if interval not in first]
        for part in [*known, *(try_discs(unknown) if unknown else [])]:
            is_narrow = not part.is_certified and part.right - part.left <= MAX_SPLIT_WIDTH
            reason = function.find_unbounded(part.center) if is_narrow else ""
            if part.is_certified or reason or part.half_width <= MIN_WIDTH / 2 or time.monotonic() > deadline:
                done.append(replace(part, reason=reason))
                continue
            kinks = function.find_kinks(part.left, part.right) if function.has_kinks else []
            done += [bound_kink(function, *kink) for kink in kinks]
            waiting += split_at(part.left, part.right, kinks) if kinks else bisect(part.left, part.right)
    return sorted(done, key=lambda part: part.left)


def bound_kink(function: LineEnclosure, left: float, right: float) -> SubInterval:
    """Bound the results on a bracket around a kink."""
    values, bounds = function.on_interval((left + right) / 2, (right - left) / 2)
    return SubInterval(left, right, bounds, bool(bounds.isfinite().all()), kink_values=values)


def bisect(left: float, right: float) -> list[Interval]:
    """The two halves of an interval."""
    middle = (left + right) / 2
    return [(left, middle), (middle, right)]


def split_at(left: float, right: float, kinks: Sequence[Interval]) -> list[Interval]:
    """The parts of an interval between the brackets of kinks."""
    ends = [left, *(end for kink in kinks for end in kink), right]
    return [(a, b) for a, b in zip(ends[::2], ends[1::2], strict=True) if a < b]
