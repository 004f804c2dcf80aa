"""The result of checking a restriction: how many pieces and breaks are proved, and what is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from .origins import OriginProof
from .pattern_interval import PatternInterval
from .values import ValueProof

MAX_SHOWN_FAILURES = 10  # printed by a certificate


@dataclass(frozen=True)
class Certificate:
    """A proof in rational arithmetic that the breaks and the values of a restriction are right.

    >>> import torch, exactline as xl
    >>> proof = xl.restrict(torch.nn.ReLU(), [-1.0, 2.0], [2.0, -2.0]).certify()
    >>> proof.complete, proof.proved, proof.total, proof.confirmed, proof.values_proved
    (True, 3, 3, 2, 8)
    """

    total: int  # pieces of the restriction
    checked: int  # pieces that were checked
    proved: int  # checked pieces on which the activation pattern is constant
    breaks: int  # inner breaks next to a checked piece
    confirmed: int  # breaks at which some unit changes its branch, seen from every checked side
    merged: int  # confirmed breaks that stand for several exact ones, where both sides were checked
    max_break_error: float  # the largest distance in alpha of a confirmed break from the exact one
    tolerance: float  # in alpha
    values_checked: int  # stored numbers that were compared with exact ones, at the ends of the checked pieces
    values_proved: int  # those whose error rounding explains
    values_unchecked: int  # further numbers there, beyond the limit of output elements
    max_value_error: float  # the largest distance of a proved value from the exact one
    failures: tuple[str, ...]
    origins_checked: int = 0  # breaks whose origin was compared with the units that change their pattern there
    origins_proved: int = 0  # those whose origin does
    errors_checked: int = 0  # breaks whose estimated error was compared with that of their checked values
    errors_proved: int = 0  # those whose estimate is not exceeded

    @property
    def complete(self) -> bool:
        """Whether everything that was checked is proved, and every break next to a checked piece is confirmed."""
        is_right = self.proved == self.checked and self.confirmed == self.breaks
        is_right &= self.origins_proved == self.origins_checked and self.errors_proved == self.errors_checked
        return self.checked > 0 and is_right and self.values_proved == self.values_checked

    @property
    def covers_whole_line(self) -> bool:
        """Whether the certificate is complete and all pieces were checked; `covers_values` tells of the values."""
        return self.complete and self.checked == self.total

    @property
    def covers_values(self) -> bool:
        """Whether all values at the ends of the checked pieces are proved; False if values were not checked."""
        return 0 < self.values_checked == self.values_proved and not self.values_unchecked

    def __str__(self) -> str:
        pieces = f"{self.proved:,} of {self.checked:,} pieces are right"
        breaks = f"{self.confirmed:,} of {self.breaks:,} breaks are real"
        values = f", {self.values_proved:,} of {self.values_checked:,} values are right" if self.values_checked else ""
        if self.origins_checked:
            breaks += f", {self.origins_proved:,} of {self.origins_checked:,} origins are right"
        if self.errors_proved < self.errors_checked:
            too_small = self.errors_checked - self.errors_proved
            values += f", {too_small:,} of {self.errors_checked:,} estimated errors are too small"
        unchecked_values = f"{self.values_unchecked:,} " if self.values_checked else ""
        is_whole = self.values_checked > 0 and not self.values_unchecked
        rest = "" if is_whole else f"; {unchecked_values}values were not checked"
        if self.complete:
            error = f"at most {self.max_break_error:.1e} from their exact positions"
            merged = f"; {self.merged:,} stand for several exact ones" if self.merged else ""
            values += f", at most {self.max_value_error:.1e} from the exact ones" if self.values_checked else ""
            unchecked = self.total - self.checked
            rest += f"; {unchecked:,} pieces were not checked" if unchecked else ""
            return f"proved: {pieces}, {breaks}, {error}{merged}{values}; {self._name_unchecked_units()}{rest}"
        more = len(self.failures) - MAX_SHOWN_FAILURES
        lines = [*self.failures[:MAX_SHOWN_FAILURES], *([f"and {more:,} more"] if more > 0 else [])]
        return "\n  ".join([f"not proved: {pieces}, {breaks}{values}{rest}", *lines])

    def _name_unchecked_units(self) -> str:
        """What is said about units at breaks and on pieces, but not proved."""
        origins = "origins, " if self.breaks and not self.origins_checked else ""
        return f"{origins}numbers of units at breaks and ambiguous units were not checked"

    @staticmethod
    def from_intervals(
        breaks: Sequence[Fraction],  # (n,)
        pieces: Sequence[int],  # (m,) the pieces that were checked
        intervals: Sequence[PatternInterval],  # (m,) where their activation patterns hold
        tolerance: Fraction,
        values: ValueProof | None = None,
        origins: OriginProof | None = None,
    ) -> Certificate:
        """Compare pieces with the intervals on which their activation patterns hold."""
        values = ValueProof() if values is None else values
        origins = OriginProof() if origins is None else origins
        failures: list[str] = []
        proved, max_error = 0, Fraction(0)
        is_real: dict[int, bool] = {}  # by index of the break
        exact: dict[int, list[Fraction]] = {}  # the end of the interval to the left, and the start of that to the right
        for piece, interval in zip(pieces, intervals, strict=True):
            start, end = breaks[piece], breaks[piece + 1]
            problems = _explain_failures(start, end, interval, tolerance)
            proved += not problems
            failures += [f"piece {piece} from {float(start)!r} to {float(end)!r}: {problem}" for problem in problems]
            for index, (alpha, unit) in ((piece, interval.left), (piece + 1, interval.right)):
                if not 0 < index < len(breaks) - 1:
                    continue
                error = abs(alpha - breaks[index])
                is_confirmed = bool(unit) and error <= tolerance and not interval.midpoint_unit
                if is_confirmed:
                    max_error = max(max_error, error)
                    exact.setdefault(index, []).append(alpha)
                elif not problems:
                    failures.append(
                        f"break {index} at {float(breaks[index])!r}: piece {piece} continues, no unit crosses there"
                    )
                is_real[index] = is_real.get(index, True) and is_confirmed
        both_sides = {index: ends for index, ends in exact.items() if len(ends) == 2}
        for index, (end, start) in both_sides.items():
            if end > start:  # the intervals overlap: one piece was split in two
                is_real[index] = False
                failures.append(
                    f"break {index} at {float(breaks[index])!r}: its two pieces are one, no unit crosses there"
                )
        return Certificate(
            total=len(breaks) - 1,
            checked=len(pieces),
            proved=proved,
            breaks=len(is_real),
            confirmed=sum(is_real.values()),
            merged=sum(end < start for end, start in both_sides.values()),
            max_break_error=float(max_error),
            tolerance=float(tolerance),
            values_checked=values.checked,
            values_proved=values.proved,
            values_unchecked=values.unchecked,
            max_value_error=values.max_error,
            failures=(*failures, *origins.failures, *values.failures),
            origins_checked=origins.checked,
            origins_proved=origins.proved,
            errors_checked=values.errors_checked,
            errors_proved=values.errors_proved,
        )


def _explain_failures(start: Fraction, end: Fraction, interval: PatternInterval, tolerance: Fraction) -> list[str]:
    """Why a piece is not proved; an empty list if it is."""
    if interval.midpoint_unit:
        return [f"{interval.midpoint_unit} crosses at its midpoint"]
    crossings = [interval.left] if interval.left.alpha > start + tolerance else []
    crossings += [interval.right] if interval.right.alpha < end - tolerance else []
    return [f"{unit} crosses at {float(alpha)!r}" for alpha, unit in crossings]
