"""Cover [0, 1] with sub-intervals on whose discs the remainders of Taylor models are small enough."""

from __future__ import annotations

import time
from collections.abc import Callable
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

    The first pass tries one sub-interval of each width 1, 1/2, 1/4, ... and starts with the widest usable one. When a
    sub-interval fails, waiting ones that are not narrower are bisected as well: neighbours behave alike.

    Args:
        enclose: Computes remainders on discs.
        is_usable: Tells which remainders are small enough.
        deadline: The value of ``time.monotonic()`` after which the rest stays uncertified.
    """
    widths = torch.tensor([2.0**-k for k in range(MAX_DISCS_PER_PASS)], dtype=torch.float64)
    usable = is_usable(enclose(widths / 2, widths / 2), widths / 2)
    count = round(1 / float(widths[usable].max() if bool(usable.any()) else widths[-1]))
    waiting = [(k / count, (k + 1) / count) for k in range(count)]
    done: list[SubInterval] = []
    while waiting:
        batch, waiting = waiting[:MAX_DISCS_PER_PASS], waiting[MAX_DISCS_PER_PASS:]
        ends = torch.tensor(batch, dtype=torch.float64)
        half = (ends[:, 1] - ends[:, 0]) / 2
        is_late = time.monotonic() > deadline
        remainders = torch.full((len(batch), 1), torch.inf) if is_late else enclose(ends.mean(1), half)
        usable = is_usable(remainders, half)
        final = usable | is_late | (half <= MIN_WIDTH / 2)
        done += [
            SubInterval(*batch[i], remainders[i], bool(usable[i])) for i in final.nonzero().flatten().tolist()
        ]
        failed = [batch[i] for i in (~final).nonzero().flatten().tolist()]
        limit = min((right - left for left, right in failed), default=torch.inf)
        waiting = [part for interval in sorted(failed + waiting) for part in _bisect(*interval, limit)]
    return sorted(done, key=lambda part: part.left)


def _bisect(left: float, right: float, limit: float) -> list[tuple[float, float]]:
    """Bisect an interval unless it is narrower than the limit."""
    if right - left < limit:
        return [(left, right)]
    middle = (left + right) / 2
    return [(left, middle), (middle, right)]
