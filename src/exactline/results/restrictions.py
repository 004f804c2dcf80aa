"""The result for many lines: flat arrays for all of them, and a Restriction for each line on demand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, overload

import torch
from torch import Tensor

from ..engines.assemble import BreakTable
from ..fp_context import full_precision
from ..lines import Lines
from ..network.graph import Network
from . import methods
from .errors import LineErrors
from .restriction import Restriction

if TYPE_CHECKING:
    from ..decide.intervals import ManyDecisions


@dataclass(frozen=True, eq=False)
class Restrictions(Sequence[Restriction]):
    """A network restricted to many lines: a sequence with a `Restriction` for each line.

    >>> import exactline as xl
    >>> lines = xl.restrict_many(torch.nn.ReLU(), [[-1.0], [-2.0]], [[1.0], [-1.0]])
    >>> [len(line) for line in lines], lines.offsets.tolist(), lines.alphas.tolist()
    ([2, 1], [0, 3, 5], [0.0, 0.5, 1.0, 0.0, 1.0])
    """

    breaks: BreakTable  # the breaks of all lines
    lines: Lines  # the end points of all lines
    network: Network
    seconds: float = 0.0  # duration of the sweep
    units: dict[str, int] = field(default_factory=dict)  # number of units that can break, by kind of operator
    dtype: torch.dtype = torch.float64  # precision of the sweep
    rewrite: bool = True  # option of the sweep
    until: str | None = None  # option of the sweep
    engine: str = "dense"  # the engine that ran, and why
    setup_seconds: float = 0.0  # before the sweep: capturing the model and planning

    @property
    def status(self) -> Literal["exact"]:
        """How far the result can be trusted: always "exact".

        Exact means that `alphas` has all breaks of the network on every line, that values are computed in float64 (or
        `dtype`), and that ``lines[i].error_at`` estimates how far rounding moves
        the function. Nothing is sampled.
        """
        return "exact"

    @property
    def alphas(self) -> Tensor:
        """The breaks of all lines, concatenated, (breaks,)."""
        return self.breaks.alphas

    @property
    def offsets(self) -> Tensor:
        """The first break of each line, (lines + 1,): line i has the breaks ``offsets[i]`` to ``offsets[i + 1]``."""
        return self.breaks.offsets

    @property
    def values(self) -> Tensor | tuple[Tensor, ...] | None:
        """The network's values at the breaks of all lines, (breaks, *out); None if values=False."""
        values = self.breaks.values
        return values if values is None or self.network.several_outputs else values[0]

    @cached_property
    def errors(self) -> Tensor:
        """The estimated error at every break of every line, (breaks,): see `Restriction.error_at`."""
        if self.breaks.errors is not None:
            return self.breaks.errors
        line = torch.repeat_interleave(torch.arange(len(self)), self.offsets.diff())
        with full_precision():
            network = self.network.to(dtype=self.dtype)
            return LineErrors(network, self.lines, line, self.alphas, self.breaks.values, self.dtype).estimate()

    @property
    def error(self) -> float:
        """The largest estimated error anywhere on any of the lines."""
        return float(self.errors.max()) if len(self.errors) else 0.0

    @property
    def pieces(self) -> Tensor:
        """The number of pieces of each line, (lines,)."""
        return (self.offsets[1:] - self.offsets[:-1] - 1).clamp(min=0)

    def decisions(
        self,
        order: str = "max",
        top: int = 1,
        *,
        output: str | int | None = None,
        threshold: float | None = None,
        rivals: Sequence[int] | None = None,
    ) -> ManyDecisions:
        """The output that leads on every point of every line: intervals with exact boundaries, including ties.

        Args:
            order: "max" if the largest output decides, "min" for the smallest.
            top: How many of the leading outputs to report, in order.
            output: Which output tensor decides, by its name or index, if the network has several.
            threshold: For a network with one output, which has no rival: class 1 is where the output is above it (below
                it with "min"), class 0 elsewhere. Behind a sigmoid it is a probability, 0.5 by default.
            rivals: The outputs that compete, if not all do; a single one needs a threshold.

        >>> import exactline as xl
        >>> lines = xl.restrict_many(torch.nn.ReLU(), [[1.0, -1.0], [0.0, 1.0]], [[0.0, 2.0], [0.0, 2.0]])
        >>> [decisions.labels for decisions in lines.decisions()]
        [[0, 1], [1]]

        Raises ArgumentError, MissingError, NumberError.
        """
        return methods.decide_lines(self, order, top, output, threshold, rivals)

    def __len__(self) -> int:
        return len(self.lines)

    @overload
    def __getitem__(self, index: int) -> Restriction: ...
    @overload
    def __getitem__(self, index: slice) -> list[Restriction]: ...
    def __getitem__(self, index: int | slice) -> Restriction | list[Restriction]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not -len(self) <= index < len(self):
            raise IndexError(f"there are {len(self)} lines; {index} is not one of them")
        index %= len(self)
        start, stop = self.offsets[index : index + 2].tolist()
        is_complete = stop > start and float(self.alphas[stop - 1]) == 1.0
        return Restriction(
            alphas=self.alphas[start:stop],
            lines=Lines(*(tuple(t[index : index + 1] for t in side) for side in (self.lines.starts, self.lines.ends))),
            origin_table=self.breaks.origins[start:stop],
            ambiguous_per_piece=self.breaks.ambiguous[start : max(stop - 1, start)],
            stored_values=None if self.breaks.values is None else tuple(v[start:stop] for v in self.breaks.values),
            stored_errors=None if self.breaks.errors is None else self.breaks.errors[start:stop],
            names=tuple(node.name for node in self.network.nodes),
            network=self.network,
            units=self.units,
            several_inputs=self.network.several_inputs,
            several_outputs=self.network.several_outputs,
            dtype=self.dtype,
            rewrite=self.rewrite,
            until=self.until,
            engine=self.engine,
            seconds=self.seconds / max(len(self), 1),
            setup_seconds=self.setup_seconds / max(len(self), 1),
            stopped="" if is_complete else self.breaks.stopped,
            layers=None if self.breaks.layers is None or stop - start < 2 else self.breaks.layers.line(index),
        )

    def __iter__(self) -> Iterator[Restriction]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        pieces = int(self.pieces.sum())
        stopped = f", stopped by {self.breaks.stopped}" if self.breaks.stopped else ""
        return f"<Restrictions: {len(self):,} lines, {pieces:,} pieces, {self.seconds * 1000:.0f} ms{stopped}>"

    def _repr_html_(self) -> str:
        return methods.lines_html(self)
