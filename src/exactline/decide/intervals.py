"""The answer to "which output leads where": intervals of a line, each with its label and its largest lead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import numpy as np
import torch
from torch import Tensor

from ..errors import ArgumentError
from ..humanize import count_noun
from .methods import plot_decisions

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..arrays import Bools, Floats, Ints
    from ..results.restriction import Restriction
    from ..results.restrictions import Restrictions

Label = int | tuple[int, ...]
SHOWN = 12  # intervals that print


@dataclass(frozen=True)
class Interval:
    """A stretch of the line along which the same output leads, or the same few in the same order.

    >>> import exactline as xl
    >>> decided = xl.restrict(torch.nn.ReLU(), [1.0, -1.0], [0.0, 1.0]).decisions()
    >>> decided[0].label, decided[0].margin, decided[0].best, round(decided[0].width, 9)
    (0, 1.0, 0, 0.666666667)
    >>> print(decided[1])
    0.666667 to 1: 1, margin 1
    """

    start: float
    stop: float
    label: int | tuple[int, ...]  # a tuple, best first, where more than one was asked for
    tied: tuple[int, ...]  # all labels that share a place along the whole interval; lowest index first
    margin: float  # the largest lead of the (last) label over the next one in the interval
    margin_at: float  # the alpha where
    start_error: float  # how far the start may be off, estimated; 0 at the end of the line
    stop_error: float

    @property
    def best(self) -> int:
        """The output that leads: the label, or the first of several."""
        return self.label if isinstance(self.label, int) else self.label[0]

    @property
    def width(self) -> float:
        """How much of the line it covers."""
        return self.stop - self.start

    def __str__(self) -> str:
        tied = f", {' and '.join(map(str, self.tied))} tied" if self.tied else ""
        return f"{self.start:.6g} to {self.stop:.6g}: {self.label}{tied}, margin {self.margin:.3g}"


@dataclass(frozen=True, eq=False)
class Table:
    """Intervals of many lines one after another, as arrays."""

    offsets: Ints  # (lines + 1,) line i has the intervals offsets[i] to offsets[i + 1]
    starts: Floats  # (intervals,)
    stops: Floats  # (intervals,)
    labels: Ints  # (intervals, top)
    tied: Bools  # (intervals, outputs)
    margins: Floats  # (intervals,)
    margins_at: Floats  # (intervals,)
    start_errors: Floats  # (intervals,)
    stop_errors: Floats  # (intervals,)

    def interval(self, at: int) -> Interval:
        """One of them."""
        labels: list[int] = self.labels[at].tolist()
        return Interval(
            float(self.starts[at]),
            float(self.stops[at]),
            labels[0] if len(labels) == 1 else tuple(labels),
            tuple(np.flatnonzero(self.tied[at]).tolist()),
            float(self.margins[at]),
            float(self.margins_at[at]),
            float(self.start_errors[at]),
            float(self.stop_errors[at]),
        )


@dataclass(frozen=True, eq=False)
class Decisions(Sequence[Interval]):
    """Which output leads on every point of a line.

    >>> import exactline as xl
    >>> decided = xl.restrict(torch.nn.ReLU(), [1.0, -1.0], [0.0, 1.0]).decisions()
    >>> print(decided)
    2 intervals, the largest output decides
      0 to 0.666667: 0, margin 1
      0.666667 to 1: 1, margin 1
    >>> decided.at(0.9).label, decided.labels, len(decided.boundaries)
    (1, [0, 1], 1)
    """

    table: Table
    place: int  # of the line in the table
    owner: Restriction | Restrictions
    order: str  # "max" or "min": which output decides
    top: int
    output: int = 0  # which of the network's outputs, where it has several

    @property
    def line(self) -> Restriction:
        """The line that was decided."""
        from ..results.restriction import Restriction

        return self.owner if isinstance(self.owner, Restriction) else self.owner[self.place]

    @property
    def boundaries(self) -> Tensor:
        """Where the label changes, (intervals - 1,) float64."""
        return torch.from_numpy(self.table.starts[self._span][1:].copy())

    @property
    def labels(self) -> list[Label]:
        """The label of each interval."""
        return [interval.label for interval in self]

    @property
    def values(self) -> Floats:
        """The outputs that were compared, at the breaks of the line, (breaks, outputs)."""
        from .values import outputs_of_line

        return outputs_of_line(self.line, self.output, "decisions.values")

    def at(self, alpha: float) -> Interval:
        """The interval that holds an alpha; at a boundary, the one that begins there.

        Raises ArgumentError off the line, or past where its sweep was stopped.
        """
        starts, stops = self.table.starts[self._span], self.table.stops[self._span]
        try:
            within = len(starts) > 0 and bool(starts[0] <= float(alpha) <= stops[-1])
        except (TypeError, ValueError):
            within = False
        if not within:
            known = f"{starts[0]:g} to {stops[-1]:g}" if len(starts) else "no alpha at all"
            raise ArgumentError(
                f"alpha is {alpha!r}; what is decided is {known}.", where="argument alpha", hint="Ask within it."
            )
        return self[int(np.searchsorted(starts, alpha, side="right")) - 1]

    def plot(self, ax: Axes | None = None, *, labels: Sequence[str] | None = None) -> Axes:
        """Draw the intervals as a coloured band, the breaks as ticks and the outputs above; ``labels`` names these."""
        return plot_decisions(self, ax, labels)

    def __len__(self) -> int:
        return self._span.stop - self._span.start

    @overload
    def __getitem__(self, index: int) -> Interval: ...
    @overload
    def __getitem__(self, index: slice) -> list[Interval]: ...
    def __getitem__(self, index: int | slice) -> Interval | list[Interval]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"there are {len(self)} intervals; {index} is not one of them")
        return self.table.interval(self._span.start + index % len(self))

    def __iter__(self) -> Iterator[Interval]:
        return (self.table.interval(i) for i in range(self._span.start, self._span.stop))

    def __repr__(self) -> str:
        widths = Counter[Label]()
        for interval in self:
            widths[interval.label] += interval.width  # pyright: ignore[reportArgumentType]
        shares = ", ".join(f"{label}: {share:.4g}" for label, share in widths.most_common(SHOWN))
        return f"<Decisions: {count_noun(len(self), 'interval')}; shares of the line {{{shares}}}>"

    def __str__(self) -> str:
        which = "largest" if self.order == "max" else "smallest"
        what = f"the {which} output decides" if self.top == 1 else f"the {self.top} {which} outputs decide"
        rows = [f"  {interval}" for interval in self[:SHOWN]]
        rest = [f"  and {len(self) - SHOWN:,} more"] if len(self) > SHOWN else []
        return "\n".join([f"{count_noun(len(self), 'interval')}, {what}", *rows, *rest])

    @property
    def _span(self) -> slice:
        start, stop = self.table.offsets[self.place : self.place + 2].tolist()
        return slice(start, stop)


@dataclass(frozen=True, eq=False)
class ManyDecisions(Sequence[Decisions]):
    """The decisions of many lines; ``table`` holds all intervals as arrays.

    >>> import exactline as xl
    >>> lines = xl.restrict_many(torch.nn.ReLU(), [[1.0, -1.0], [3.0, 1.0]], [[0.0, 1.0], [3.0, 2.0]])
    >>> decided = lines.decisions()
    >>> decided
    <ManyDecisions: 2 lines, 3 intervals>
    >>> [each.labels for each in decided]
    [[0, 1], [0]]
    """

    table: Table
    lines: Restrictions
    order: str
    top: int
    output: int = 0

    def __len__(self) -> int:
        return len(self.table.offsets) - 1

    @overload
    def __getitem__(self, index: int) -> Decisions: ...
    @overload
    def __getitem__(self, index: slice) -> list[Decisions]: ...
    def __getitem__(self, index: int | slice) -> Decisions | list[Decisions]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"there are {len(self)} lines; {index} is not one of them")
        return Decisions(self.table, index % len(self), self.lines, self.order, self.top, self.output)

    def __iter__(self) -> Iterator[Decisions]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<ManyDecisions: {len(self):,} lines, {count_noun(len(self.table.starts), 'interval')}>"
