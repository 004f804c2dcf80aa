"""Results of `decisions`: the intervals of a line with the output that leads on each, and its largest lead."""

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
    from .comparison import Comparison

Label = int | tuple[int, ...]
MAX_SHOWN_INTERVALS = 12  # intervals printed by str and repr


@dataclass(frozen=True)
class Interval:
    """An interval of alpha along which one output leads, or the first few outputs keep their order.

    >>> import exactline as xl
    >>> decided = xl.restrict(torch.nn.ReLU(), [1.0, -1.0], [0.0, 1.0]).decisions()
    >>> decided[0].label, decided[0].margin, decided[0].best, round(decided[0].width, 9)
    (0, 1.0, 0, 0.666666667)
    >>> print(decided[1])
    0.666667 to 1: 1, margin 1
    """

    start: float
    stop: float
    label: int | tuple[int, ...]  # the leading output; with top > 1 a tuple, best first
    tied: tuple[int, ...]  # all outputs that share a rank along the whole interval, ascending
    margin: float  # the largest lead of the (last) label over the next output in the interval
    margin_at: float  # the alpha where the margin occurs
    start_error: float  # estimated error of start; 0 at the start of the line
    stop_error: float  # estimated error of stop; 0 at the end of the line

    @property
    def best(self) -> int:
        """The output that leads: the label, or the first of several labels."""
        return self.label if isinstance(self.label, int) else self.label[0]

    @property
    def width(self) -> float:
        """The length of the interval in alpha."""
        return self.stop - self.start

    def __str__(self) -> str:
        tied = f", {' and '.join(map(str, self.tied))} tied" if self.tied else ""
        return f"{self.start:.6g} to {self.stop:.6g}: {self.label}{tied}, margin {self.margin:.3g}"


@dataclass(frozen=True, eq=False)
class IntervalTable:
    """The intervals of many lines, line after line, as arrays."""

    offsets: Ints  # (lines + 1,) the intervals of line i are offsets[i] to offsets[i + 1]
    starts: Floats  # (intervals,)
    stops: Floats  # (intervals,)
    labels: Ints  # (intervals, top)
    tied: Bools  # (intervals, outputs)
    margins: Floats  # (intervals,)
    margins_at: Floats  # (intervals,)
    start_errors: Floats  # (intervals,)
    stop_errors: Floats  # (intervals,)

    def interval(self, index: int) -> Interval:
        """Return one row as an `Interval`."""
        labels: list[int] = self.labels[index].tolist()
        return Interval(
            float(self.starts[index]),
            float(self.stops[index]),
            labels[0] if len(labels) == 1 else tuple(labels),
            tuple(np.flatnonzero(self.tied[index]).tolist()),
            float(self.margins[index]),
            float(self.margins_at[index]),
            float(self.start_errors[index]),
            float(self.stop_errors[index]),
        )


@dataclass(frozen=True, eq=False)
class Decisions(Sequence[Interval]):
    """The output that leads at every point of a line, as a sequence of intervals.

    >>> import exactline as xl
    >>> decided = xl.restrict(torch.nn.ReLU(), [1.0, -1.0], [0.0, 1.0]).decisions()
    >>> print(decided)
    2 intervals, the largest output decides
      0 to 0.666667: 0, margin 1
      0.666667 to 1: 1, margin 1
    >>> decided.at(0.9).label, decided.labels, len(decided.boundaries)
    (1, [0, 1], 1)
    """

    table: IntervalTable
    line_index: int  # of the line in the table
    source: Restriction | Restrictions  # the line, or the lines it is one of
    order: str  # "max" or "min": whether the largest or the smallest output leads
    top: int  # how many outputs each label holds
    output: int = 0  # which output tensor of the network was compared
    comparison: Comparison | None = None  # which of its elements; None for all

    @property
    def line(self) -> Restriction:
        """The restriction that was decided."""
        from ..results.restriction import Restriction

        return self.source if isinstance(self.source, Restriction) else self.source[self.line_index]

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
        """The outputs at the breaks of the line, (breaks, outputs); with a threshold (breaks, 2), its column first."""
        from .values import outputs_of_line

        values = outputs_of_line(self.line, self.output, "decisions.values")
        has_level = self.comparison is not None and self.comparison.level is not None
        return self.comparison.select(values) if self.comparison is not None and has_level else values

    def at(self, alpha: float) -> Interval:
        """Return the interval that holds ``alpha``; at a boundary, the one that begins there.

        Args:
            alpha: A position on the line.

        >>> import exactline as xl
        >>> xl.restrict(torch.nn.ReLU(), [1.0, -1.0], [0.0, 1.0]).decisions().at(0.9).label
        1

        Raises ArgumentError if alpha is off the line, or beyond the point where the sweep was stopped.
        """
        starts, stops = self.table.starts[self._span], self.table.stops[self._span]
        try:
            within = len(starts) > 0 and bool(starts[0] <= float(alpha) <= stops[-1])
        except (TypeError, ValueError):
            within = False
        if not within:
            known = f"the decided range is {starts[0]:g} to {stops[-1]:g}" if len(starts) else "no alpha is decided"
            raise ArgumentError(
                f"alpha is {alpha!r}; {known}.", where="argument alpha", hint="Give an alpha within the range."
            )
        return self[int(np.searchsorted(starts, alpha, side="right")) - 1]

    def describe(self) -> str:
        """The rule of the decision in words."""
        from .comparison import Comparison

        return (self.comparison or Comparison(0)).describe(self.order, self.top)

    def plot(self, ax: Axes | None = None, *, labels: Sequence[str] | None = None) -> Axes:
        """Draw the outputs, with the intervals as a coloured band and the breaks as ticks below them.

        Args:
            ax: The matplotlib axes to draw into; new ones by default.
            labels: Names of the outputs.

        Raises MissingError without matplotlib.
        """
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
            raise IndexError(f"index {index} is out of range for {len(self)} intervals")
        return self.table.interval(self._span.start + index % len(self))

    def __iter__(self) -> Iterator[Interval]:
        return (self.table.interval(i) for i in range(self._span.start, self._span.stop))

    def __repr__(self) -> str:
        widths = Counter[Label]()
        for interval in self:
            widths[interval.label] += interval.width  # pyright: ignore[reportArgumentType]
        shares = ", ".join(f"{label}: {share:.4g}" for label, share in widths.most_common(MAX_SHOWN_INTERVALS))
        return f"<Decisions: {count_noun(len(self), 'interval')}; shares of the line {{{shares}}}>"

    def __str__(self) -> str:
        what = self.describe()
        rows = [f"  {interval}" for interval in self[:MAX_SHOWN_INTERVALS]]
        rest = [f"  and {len(self) - MAX_SHOWN_INTERVALS:,} more"] if len(self) > MAX_SHOWN_INTERVALS else []
        return "\n".join([f"{count_noun(len(self), 'interval')}, {what}", *rows, *rest])

    @property
    def _span(self) -> slice:
        start, stop = self.table.offsets[self.line_index : self.line_index + 2].tolist()
        return slice(start, stop)


@dataclass(frozen=True, eq=False)
class ManyDecisions(Sequence[Decisions]):
    """The decisions of many lines, as a sequence of `Decisions`; ``table`` holds all intervals as arrays.

    >>> import exactline as xl
    >>> lines = xl.restrict_many(torch.nn.ReLU(), [[1.0, -1.0], [3.0, 1.0]], [[0.0, 1.0], [3.0, 2.0]])
    >>> decided = lines.decisions()
    >>> decided
    <ManyDecisions: 2 lines, 3 intervals>
    >>> [decisions.labels for decisions in decided]
    [[0, 1], [0]]
    """

    table: IntervalTable
    lines: Restrictions
    order: str
    top: int
    output: int = 0
    comparison: Comparison | None = None

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
            raise IndexError(f"index {index} is out of range for {len(self)} lines")
        return Decisions(self.table, index % len(self), self.lines, self.order, self.top, self.output, self.comparison)

    def __iter__(self) -> Iterator[Decisions]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"<ManyDecisions: {len(self):,} lines, {count_noun(len(self.table.starts), 'interval')}>"
