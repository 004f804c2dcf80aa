"""Decides constraints on rectangles of two inputs: cells are cut until every one of them is decided exactly."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from .cells import Cell, CellEvaluator, TooManySymbols
from .constraints import ExactDisjunct, FeasibleRegion
from .digits import join_digits, round_digits, split_integers
from .errors import NetworkTooLarge, OutOfTime
from .polygon import CutLine, Polygon, cut_polygon, make_rectangle
from .program import Program

MAX_SYMBOLS = 300  # of a large cell; one with more is halved
MIN_HALVED_SIDE = 1 / 64  # of the rectangle's side: smaller cells are cut along the zero of a ramp


@dataclass(frozen=True)
class CutEntry:
    """A cut of the tree of cells; the part below comes first."""

    line: CutLine


@dataclass(frozen=True)
class LeafEntry:
    """A cell that is decided."""

    patterns: tuple[str, ...] | None  # of each ramp; None for a cell outside of all boxes


@dataclass
class PlaneTree:
    """All cuts and cells of a rectangle, a cut before its two parts."""

    entries: list[CutEntry | LeafEntry] = field(default_factory=list[CutEntry | LeafEntry])

    @property
    def cell_count(self) -> int:
        """The number of cells in the boxes."""
        return sum(isinstance(entry, LeafEntry) and entry.patterns is not None for entry in self.entries)


class PlaneSearch:
    """Decides disjuncts on one plane of inputs."""

    def __init__(
        self,
        program: Program,  # its outputs are the constraints' rows
        point: Sequence[Fraction],
        axes: tuple[int, int],
        disjuncts: Sequence[ExactDisjunct],
        deadline: float,
    ) -> None:
        fixed = [Fraction(0) if i in axes else value for i, value in enumerate(point)]
        self.scale = int(np.lcm.reduce([value.denominator for value in fixed], dtype=object))
        numbers = np.zeros((len(fixed), 3), dtype=object)
        numbers[:, 0] = [int(value * self.scale) for value in fixed]
        for column, axis in enumerate(axes):
            numbers[axis, column + 1] = self.scale
        self.evaluator = CellEvaluator(program, split_integers(numbers), self.scale, deadline)
        self.denominator = program.denominators[program.output] * self.scale
        self.disjuncts, self.deadline = disjuncts, deadline
        self.lower = tuple(min(d.lower[k] for d in disjuncts) for k in (0, 1))
        self.upper = tuple(max(d.upper[k] for d in disjuncts) for k in (0, 1))
        self.sides = [_find_sides(d) for d in disjuncts]
        self.tree = PlaneTree()

    def run(self) -> Iterator[FeasibleRegion]:
        """Cut the rectangle around all boxes until every cell is decided; yield what violates the property."""
        corners = [(Fraction(x), Fraction(y)) for x, y in (self.lower, self.upper)]
        stack: list[tuple[Polygon, tuple[int, ...]]] = [(make_rectangle(*corners), tuple(range(len(self.disjuncts))))]
        while stack:
            if time.monotonic() > self.deadline:
                raise OutOfTime
            polygon, candidates = stack.pop()
            line, inside, partly = self._compare_boxes(polygon, candidates)
            patterns: tuple[str, ...] | None = None
            if line is None and inside:
                line, regions, patterns = self._decide(polygon, inside)
                yield from regions
            if line is None:
                self.tree.entries.append(LeafEntry(patterns))
                continue
            line = line.reduce()
            below, above = cut_polygon(polygon, line)
            self.tree.entries.append(CutEntry(line))
            stack += [(above, (*inside, *partly)), (below, (*inside, *partly))]

    def _compare_boxes(
        self, polygon: Polygon, candidates: tuple[int, ...]
    ) -> tuple[CutLine | None, list[int], list[int]]:
        """Find disjuncts whose boxes hold a polygon, those that overlap it in part, and the side of one of these."""
        inside, partly, cuts = [], [], []
        for index in candidates:
            lines = self.sides[index]
            values = [[line.value(corner) for corner in polygon] for line in lines]  # positive outside of the box
            if any(min(side) >= 0 for side in values):
                continue
            crossed = [line for line, side in zip(lines, values, strict=True) if max(side) > 0]
            (partly if crossed else inside).append(index)
            cuts += crossed[:1]
        return (cuts[len(cuts) // 2] if cuts else None), inside, partly

    def _decide(
        self, polygon: Polygon, candidates: list[int]
    ) -> tuple[CutLine | None, list[FeasibleRegion], tuple[str, ...]]:
        """Decide a cell inside the boxes of some disjuncts; returns the next cut, or None, and feasible regions."""
        halving = self._find_halving_line(polygon)
        try:
            cell = self.evaluator.evaluate(polygon, MAX_SYMBOLS if halving else 1 << 30)
        except TooManySymbols:
            if halving is None:
                raise NetworkTooLarge from None
            return halving, [], ()
        rounded = round_digits(cell.rows, self.denominator)
        low, _ = cell.enclose(rounded)
        regions: list[FeasibleRegion] = []
        for index in candidates:
            disjunct = self.disjuncts[index]
            if any(low[c.row] > c.limit for c in disjunct.limits):
                continue
            rows = sorted({c.row for c in disjunct.limits})
            with_symbols = [row for row in rows if cell.rows[row, :, 3:].any()]
            if with_symbols:
                return self._choose_line(cell, rounded, with_symbols), [], ()
            lines = {row: CutLine(*(join_digits(cell.rows[row, :, c]) for c in range(3))) for row in rows}
            region = disjunct.find_region(polygon, lines, self.denominator)
            regions += [] if region is None else [region]
        return None, regions, tuple(cell.patterns)

    def _choose_line(self, cell: Cell, rounded: NDArray[np.float64], rows: list[int]) -> CutLine:
        """Choose the ramp without symbols that matters most for some rows; return the line where it is zero."""
        influence = np.zeros(len(cell.symbols))
        with np.errstate(over="ignore", invalid="ignore"):
            for row in rows:
                free = np.abs(rounded[row, 3:])
                influence[: len(free)] += free
            for j in range(len(influence) - 1, -1, -1):
                inner = np.abs(cell.symbols[j].form[3:])
                influence[: len(inner)] += influence[j] * inner
            score = np.nan_to_num(influence * cell.bounds, nan=np.inf)
        lines = [(score[j], -j, symbol.line) for j, symbol in enumerate(cell.symbols) if symbol.line is not None]
        return max(lines)[2]

    def _find_halving_line(self, polygon: Polygon) -> CutLine | None:
        """Find the line that halves the longer side of a large cell; None for a small one."""
        points = [corner.point for corner in polygon]
        sides = [(min(p[k] for p in points), max(p[k] for p in points)) for k in (0, 1)]
        shares = [float(high - low) / (self.upper[k] - self.lower[k]) for k, (low, high) in enumerate(sides)]
        longer = 0 if shares[0] >= shares[1] else 1
        low, high = sides[longer]
        middle = Fraction(float((low + high) / 2))
        if shares[longer] <= MIN_HALVED_SIDE or not low < middle < high:
            return None
        slopes = (middle.denominator, 0) if longer == 0 else (0, middle.denominator)
        return CutLine(-middle.numerator, *slopes)


def _find_sides(disjunct: ExactDisjunct) -> list[CutLine]:
    """The four sides of a box, as lines whose values are positive outside of it."""
    lines: list[CutLine] = []
    for k in (0, 1):
        low, high = Fraction(disjunct.lower[k]), Fraction(disjunct.upper[k])
        for sign, end in ((-1, low), (1, high)):
            slope = sign * end.denominator
            lines.append(CutLine(-sign * end.numerator, *((slope, 0) if k == 0 else (0, slope))))
    return lines
