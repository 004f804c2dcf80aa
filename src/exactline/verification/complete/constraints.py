"""Disjuncts of a property in exact arithmetic, and the regions of a line or a plane in which they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from .polygon import CutLine, Polygon, cut_polygon, find_middle

Point: TypeAlias = tuple[Fraction, ...]  # of the free inputs


@dataclass(frozen=True)
class RowLimit:
    """One constraint: a row of the program is at most a limit, or below it."""

    row: int
    limit: float
    strict: bool


@dataclass(frozen=True)
class ExactDisjunct:
    """A box of the free inputs, and the constraints that a counterexample satisfies there."""

    index: int  # in the property
    lower: tuple[float, ...]  # of the free inputs
    upper: tuple[float, ...]
    limits: tuple[RowLimit, ...]

    def find_region(self, polygon: Polygon, rows: dict[int, CutLine], denominator: int) -> FeasibleRegion | None:
        """Find the part of a polygon in the box where all constraints hold; None if there is none."""
        cuts = [(_subtract_limit(rows[c.row], c.limit, denominator), c.strict) for c in self.limits]
        region = polygon
        for line, _ in cuts:
            region = cut_polygon(region, line)[0]
            if not region:
                return None
        for line, strict in cuts:
            if strict and all(line.value(corner) >= 0 for corner in region):
                return None
        middle = find_middle(region)
        excess = {c: max((Fraction(line.value(c), c.weight) for line, _ in cuts), default=Fraction(0)) for c in region}
        corners = [c.point for c in sorted(region, key=excess.__getitem__)]
        between = [((x + middle[0]) / 2, (y + middle[1]) / 2) for x, y in corners[:2]]
        return FeasibleRegion(self.index, middle, (middle, *between, *corners))

    def find_interval(
        self, start: Fraction, end: Fraction, rows: dict[int, tuple[Fraction, Fraction]]
    ) -> FeasibleRegion | None:
        """Find the part of an interval in the box where all constraints hold; rows are offsets and slopes."""
        low, high = max(start, Fraction(self.lower[0])), min(end, Fraction(self.upper[0]))
        for c in self.limits:
            offset, slope = rows[c.row]
            rest = Fraction(c.limit) - offset
            if slope > 0:
                high = min(high, rest / slope)
            elif slope < 0:
                low = max(low, rest / slope)
            elif rest < 0:
                return None
        if low > high:
            return None
        middle = (low + high) / 2
        for c in self.limits:  # in the middle every constraint holds that holds strictly somewhere
            offset, slope = rows[c.row]
            if c.strict and offset + slope * middle >= Fraction(c.limit):
                return None
        points = (middle, (low + middle) / 2, (high + middle) / 2, low, high)
        return FeasibleRegion(self.index, (middle,), tuple((x,) for x in points))


@dataclass(frozen=True)
class FeasibleRegion:
    """A region in which a disjunct holds in exact arithmetic."""

    disjunct: int  # index in the property
    point: Point  # where it holds
    candidates: tuple[Point, ...]  # points to replay, best first


def _subtract_limit(row: CutLine, limit: float, denominator: int) -> CutLine:
    """The line whose value is at most 0 where a row over a denominator is at most a limit."""
    exact = Fraction(limit)
    q = exact.denominator
    return CutLine(row.constant * q - exact.numerator * denominator, row.slope_x * q, row.slope_y * q)


def merge_intervals(intervals: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Join intervals that overlap or touch."""
    merged: list[tuple[float, float]] = []
    for low, high in sorted(intervals):
        if merged and low <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], high)
        else:
            merged.append((low, high))
    return merged
