"""Cover [0, 1] with sub-intervals on whose discs the remainders of Taylor models are small enough."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .tolerances import MAX_DISCS_PER_PASS, MIN_WIDTH

Enclose = Callable[[Tensor, Tensor], Tensor]  # centers (discs,) and half widths (discs,) to remainders (discs, results)
IsUsable = Callable[[Tensor, Tensor], Tensor]  # remainders (discs, results), half widths (discs,) to booleans (discs,)


@dataclass(frozen=True)
class SubInterval:
    """A sub-interval of the line and the remainders of the results on its disc."""

    left: float
    right: float
    remainders: Tensor  # (results,); infinite if no bound was found
    is_certified: bool

    @property
    def center(self) -> float:
        """The midpoint, which is exact: ends are dyadic."""
        return (self.left + self.right) / 2

    @property
    def half_width(self) -> float:
        """Half of the width, which is exact."""
        return (self.right - self.left) / 2


def cover_line(enclose: Enclose, is_usable: IsUsable, deadline: float) -> list[SubInterval]:
    """Bisect [0, 1] until every sub-interval is usable, is narrower than MIN_WIDTH, or the time is over.

    The first pass tries [0, 1], its halves and its quarters at once, because discs that share a pass share its overhead.

    Args:
        enclose: Computes remainders on discs.
        is_usable: Tells which remainders are small enough.
        deadline: The value of ``time.monotonic()`` after which the rest stays uncertified.
    """

    def try_intervals(intervals: Sequence[tuple[float, float]]) -> list[SubInterval]:
        ends = torch.tensor(intervals, dtype=torch.float64)
        half = (ends[:, 1] - ends[:, 0]) / 2
        is_late = time.monotonic() > deadline
        remainders = torch.full((len(ends), 1), torch.inf, dtype=torch.float64) if is_late else enclose(ends.mean(1), half)
        usable = is_usable(remainders, half)
        return [SubInterval(*intervals[i], remainders[i], bool(usable[i])) for i in range(len(ends))]

    whole = [(0.0, 1.0)]
    halves = [part for interval in whole for part in _bisect(*interval)]
    quarters = [part for interval in halves for part in _bisect(*interval)]
    first = {(part.left, part.right): part for part in try_intervals([*whole, *halves, *quarters])}
    done: list[SubInterval] = []
    waiting = whole
    while waiting:
        batch, waiting = waiting[:MAX_DISCS_PER_PASS], waiting[MAX_DISCS_PER_PASS:]
        known = [first[interval] for interval in batch if interval in first]
        unknown = [interval for interval in batch if interval not in first]
        for part in [*known, *(try_intervals(unknown) if unknown else [])]:
            is_final = part.is_certified or part.half_width <= MIN_WIDTH / 2 or time.monotonic() > deadline
            if is_final:
                done.append(part)
            else:
                waiting += _bisect(part.left, part.right)
    return sorted(done, key=lambda part: part.left)


def _bisect(left: float, right: float) -> list[tuple[float, float]]:
    """The two halves of an interval."""
    middle = (left + right) / 2
    return [(left, middle), (middle, right)]
