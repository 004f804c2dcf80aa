"""What the checker found: how many pieces and breaks are proved, and what is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from .reach import Reach

SHOWN = 10  # failures printed


@dataclass(frozen=True)
class Certificate:
    """A proof in rationals for the pieces that were checked; ``complete`` only if nothing is in doubt.

    >>> import torch, exactline as xl
    >>> proof = xl.restrict(torch.nn.ReLU(), [-1.0, 2.0], [2.0, -2.0]).certify()
    >>> proof.complete, proof.proved, proof.total, proof.witnessed
    (True, 3, 3, 2)
    """

    total: int  # pieces of the restriction
    checked: int
    proved: int  # pieces inside which nothing turns
    breaks: int  # inner ends of the checked pieces
    witnessed: int  # ... at which some unit turns indeed, seen from every checked side
    merged: int  # breaks that stand for several exact ones, seen where both sides were checked
    gap: float  # largest distance of a witnessed break from the exact one
    tolerance: float
    failures: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether every checked piece is proved and every break of theirs is real."""
        return self.checked > 0 and self.proved == self.checked and self.witnessed == self.breaks

    @property
    def whole(self) -> bool:
        """Whether the proof is complete and leaves no piece of the line out."""
        return self.complete and self.checked == self.total

    def __str__(self) -> str:
        pieces = f"{self.proved:,} of {self.checked:,} pieces hold"
        breaks = f"{self.witnessed:,} of {self.breaks:,} breaks are real"
        if self.complete:
            left = self.total - self.checked
            several = f"; {self.merged:,} stand for several exact ones" if self.merged else ""
            rest = f"; {left:,} pieces were not looked at" if left else ""
            return f"proved: {pieces}, {breaks}, the furthest {self.gap:.1e} from its exact place{several}{rest}"
        more = len(self.failures) - SHOWN
        lines = [*self.failures[:SHOWN], *([f"and {more:,} more"] if more > 0 else [])]
        return "\n  ".join([f"not proved: {pieces}, {breaks}", *lines])

    @staticmethod
    def of(
        breaks: Sequence[Fraction],  # (n,)
        chosen: Sequence[int],  # (m,) the pieces that were checked
        reaches: Sequence[Reach],  # (m,) how far their branches hold
        slack: Fraction,
    ) -> Certificate:
        """Compare the pieces with the stretches on which their branches hold."""
        failures: list[str] = []
        proved, gap = 0, Fraction(0)
        real: dict[int, bool] = {}
        exact: dict[int, list[Fraction]] = {}  # where the piece to the left ends and that to the right begins
        for k, reach in zip(chosen, reaches, strict=True):
            a, b = breaks[k], breaks[k + 1]
            doubts = _doubts(a, b, reach, slack)
            proved += not doubts
            failures += [f"piece {k} from {float(a)!r} to {float(b)!r}: {doubt}" for doubt in doubts]
            for at, (found, cause) in ((k, reach.left), (k + 1, reach.right)):
                if not 0 < at < len(breaks) - 1:
                    continue
                witness = bool(cause) and abs(found - breaks[at]) <= slack and not reach.inner
                if witness:
                    gap = max(gap, abs(found - breaks[at]))
                    exact.setdefault(at, []).append(found)
                elif not doubts:
                    failures.append(f"break {at} at {float(breaks[at])!r}: piece {k} goes on, nothing turns there")
                real[at] = real.get(at, True) and witness
        both = {at: ends for at, ends in exact.items() if len(ends) == 2}
        for at in (at for at, (end, begin) in both.items() if end > begin):  # one stretch, told as two pieces
            real[at] = False
            failures.append(f"break {at} at {float(breaks[at])!r}: its two pieces are one, nothing turns there")
        return Certificate(
            total=len(breaks) - 1,
            checked=len(chosen),
            proved=proved,
            breaks=len(real),
            witnessed=sum(real.values()),
            merged=sum(end < begin for end, begin in both.values()),
            gap=float(gap),
            tolerance=float(slack),
            failures=tuple(failures),
        )


def _doubts(a: Fraction, b: Fraction, reach: Reach, slack: Fraction) -> list[str]:
    """Why a piece is not proved."""
    if reach.inner:
        return [f"{reach.inner} turns at its midpoint"]
    (low, below), (high, above) = reach.left, reach.right
    found = [(low, below)] if low > a + slack else []
    found += [(high, above)] if high < b - slack else []
    return [f"{cause} turns at {float(alpha)!r}" for alpha, cause in found]
