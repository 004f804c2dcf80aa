"""Decides all groups of disjuncts of a property, and collects what proves that they cannot hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from ...network.graph import Network
from .cells import SHARES
from .constraints import FeasibleRegion, merge_intervals
from .groups import ConstraintTable, Group
from .line_decide import find_regions
from .line_sweep import LinePieces, LineSweep
from .lowering import lower_network
from .plane_search import PlaneSearch, PlaneTree
from .program import Program

MAX_SEPARATE_INTERVALS = 64  # of a line that are swept apart from each other; more are swept with the gaps between them


@dataclass(eq=False)
class LinePart:
    """The pieces of a line that were decided."""

    group: Group
    pieces: list[LinePieces] = field(default_factory=list[LinePieces])

    @property
    def piece_count(self) -> int:
        """The number of pieces."""
        return sum(len(p.ends) for p in self.pieces)


@dataclass(eq=False)
class PlanePart:
    """The cells of a plane that were decided."""

    group: Group
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    tree: PlaneTree


@dataclass(eq=False)
class CompleteSolver:
    """Decides disjuncts on lines and planes; ``parts`` collects what was decided."""

    network: Network
    table: ConstraintTable
    deadline: float  # of time.monotonic()
    parts: list[LinePart | PlanePart] = field(default_factory=list[LinePart | PlanePart])
    programs: dict[int, Program] = field(default_factory=dict[int, Program])  # by scale of the ramps

    def run(self, group: Group) -> Iterator[FeasibleRegion]:
        """Decide a group completely; yield the regions in which its disjuncts hold.

        Raises OutOfTime, NetworkTooLarge, NumberError, UnsupportedError.
        """
        yield from self._decide_line(group) if len(group.axes) == 1 else self._decide_plane(group)

    def holds_at(self, index: int, point: Sequence[float]) -> bool:
        """Whether a disjunct's constraints hold at a point in exact arithmetic; raises as `run` does."""
        exact = [Fraction(v) for v in point]
        sweep = LineSweep(self._get_program(1), exact, 0, self.deadline)
        pieces = next(sweep.run([(exact[0], exact[0])]))
        for c in self.table.make_disjunct(index, ()).limits:
            value = (pieces.offsets[c.row, 0] + pieces.slopes[c.row, 0] * exact[0]) / pieces.denominator
            if value > Fraction(c.limit) or (c.strict and value == Fraction(c.limit)):
                return False
        return True

    def _decide_line(self, group: Group) -> Iterator[FeasibleRegion]:
        part = LinePart(group)
        self.parts.append(part)
        boxes, axis = self.table.box[group.disjuncts], group.axes[0]
        ends = zip(self.table.lower[boxes, axis].tolist(), self.table.upper[boxes, axis].tolist(), strict=True)
        intervals = merge_intervals(list(ends))
        if len(intervals) > MAX_SEPARATE_INTERVALS:
            intervals = [(intervals[0][0], intervals[-1][1])]
        sweep = LineSweep(self._get_program(1), [Fraction(v) for v in group.point.tolist()], axis, self.deadline)
        for pieces in sweep.run([(Fraction(low), Fraction(high)) for low, high in intervals]):
            part.pieces.append(pieces)
            yield from find_regions(self.table, group, pieces)

    def _decide_plane(self, group: Group) -> Iterator[FeasibleRegion]:
        disjuncts = [self.table.make_disjunct(index, group.axes) for index in group.disjuncts]
        point = [Fraction(v) for v in group.point.tolist()]
        axes = (group.axes[0], group.axes[1])
        search = PlaneSearch(self._get_program(SHARES), point, axes, disjuncts, self.deadline)
        self.parts.append(PlanePart(group, search.lower, search.upper, search.tree))
        yield from search.run()

    def _get_program(self, ramp_scale: int) -> Program:
        """The network as a program whose outputs are the rows of the constraints."""
        if ramp_scale not in self.programs:
            program = lower_network(self.network, ramp_scale, self.deadline)
            self.programs[ramp_scale] = program.with_rows(self.table.output_weights, self.table.input_weights)
        return self.programs[ramp_scale]

    @property
    def piece_count(self) -> int:
        """The number of pieces of all lines."""
        return sum(part.piece_count for part in self.parts if isinstance(part, LinePart))

    @property
    def cell_count(self) -> int:
        """The number of cells of all planes."""
        return sum(part.tree.cell_count for part in self.parts if isinstance(part, PlanePart))
