"""The limits and the progress of a plane sweep: how many polygons there are at least, and how much work is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ...budget import check_deadline
from ...errors import LimitError
from ...humanize import count_noun
from .state import MeshState


@dataclass
class PlaneMonitor:
    """Stops a plane sweep at its limits, and reports its progress.

    Polygons are only ever split, except inside a node whose polygons are merged afterwards. So the number of polygons
    between two nodes is at most that of the answer, and a plane exceeds `max_polygons` only if its answer does.
    """

    nodes: int = 1  # of the network
    seconds: float | None = None  # the time limit, for messages; the budget has the deadline
    max_polygons: int | None = None
    report: Callable[[float, int], None] | None = None  # called with the share of the work done and the polygons so far
    polygons: int = 1  # found so far
    share: float = 0.0  # of the work that is done
    _other_polygons: int = 0  # of the parts that are finished or waiting
    _other_share: float = 0.0

    def set_others(self, polygons: int, share: float, waiting: Iterable[MeshState]) -> None:
        """Note the parts besides the current one: polygons and share of the area that are finished, and other parts."""
        waiting = list(waiting)
        self._other_polygons = polygons + sum(len(state.mesh) for state in waiting)
        self._other_share = share + sum(self._work(state) for state in waiting)

    def check(self, state: MeshState, *, will_merge: bool = False) -> None:
        """Look at the current part, between two nodes or between two rounds of cuts inside a node.

        Args:
            state: The current part.
            will_merge: Whether polygons of the current node may be merged again, and so do not count yet.

        Raises LimitError if there are too many polygons, DeadlineReached.
        """
        check_deadline()
        if will_merge:
            return
        before = self.polygons, self.share
        self.polygons = self._other_polygons + len(state.mesh)
        self.share = max(self.share, min(self._other_share + self._work(state), 1.0))
        if self.max_polygons is not None and self.polygons > self.max_polygons:
            raise LimitError(
                f"The plane has more than {self.max_polygons:,} polygons: {self.polygons:,} or more.",
                where="argument max_polygons",
                hint="Allow more polygons, or take a smaller part of the plane.",
                reached=self.polygons,
            )
        if self.report is not None and before != (self.polygons, self.share):
            self.report(self.share, self.polygons)

    def time_error(self) -> LimitError:
        """The error of a sweep whose time is up."""
        return LimitError(
            f"The plane is not finished after {self.seconds or 0:g} seconds: "
            f"it has {count_noun(self.polygons, 'polygon')} or more, and {self.share:.1%} of the work is done.",
            where="argument seconds",
            hint="Allow more time, or take a smaller part of the plane.",
            reached=self.polygons,
        )

    def _work(self, state: MeshState) -> float:
        """The share of all work that was done on a part: its area times the share of the nodes behind it."""
        return state.area * state.node / max(self.nodes, 1)
