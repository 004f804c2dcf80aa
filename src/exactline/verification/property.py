"""Properties in disjunctive form: boxes of inputs, and the linear constraints that a counterexample satisfies there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar, overload

import torch
from torch import Tensor

from ..errors import ArgumentError


@dataclass(frozen=True, eq=False)
class Box:
    """A closed box of inputs; a coordinate is fixed where both bounds are equal."""

    lower: Tensor  # (inputs,) float64
    upper: Tensor  # (inputs,) float64

    @property
    def width(self) -> Tensor:
        """The length of each side, (inputs,)."""
        return self.upper - self.lower

    @property
    def empty(self) -> bool:
        """Whether the box contains no point."""
        return bool((self.lower > self.upper).any())

    def holds(self, points: Tensor) -> Tensor:  # (n, inputs) -> (n,)
        """Mark the points inside the box."""
        return ((points >= self.lower) & (points <= self.upper)).all(-1)


@dataclass(frozen=True, eq=False)
class Disjunct:
    """One way to violate a property: a point of a box with ``output_weights @ y + input_weights @ x <= limit``."""

    box: int  # index among the property's boxes
    output_weights: Tensor  # (rows, outputs) float64
    limit: Tensor  # (rows,) float64
    strict: Tensor  # (rows,) bool: the constraint is < rather than <=
    input_weights: Tensor | None = None  # (rows, inputs); None where no constraint contains inputs

    def excess(self, x: Tensor, y: Tensor) -> Tensor:  # (n, inputs), (n, outputs) -> (n, rows)
        """Return how far each constraint is from being satisfied; at most 0 where it is."""
        excess = y @ self.output_weights.T - self.limit
        return excess if self.input_weights is None else excess + x @ self.input_weights.T

    def margin(self, x: Tensor, y: Tensor) -> Tensor:  # (n, inputs), (n, outputs) -> (n,)
        """Return the largest excess: at most 0 where all constraints hold, -inf where there are none."""
        excess = self.excess(x, y)
        return excess.amax(-1) if excess.shape[-1] else excess.new_full(excess.shape[:-1], -torch.inf)

    def holds(self, x: Tensor, y: Tensor, tolerance: float = 0.0) -> Tensor:  # (n, inputs), (n, outputs) -> (n,)
        """Mark the points where all constraints hold; with a tolerance, where no excess is above it."""
        excess = self.excess(x, y)
        if tolerance:
            return (excess <= tolerance).all(-1)
        return torch.where(self.strict, excess < 0, excess <= 0).all(-1)


Made = TypeVar("Made")


class LazySequence(Sequence[Made], Generic[Made]):
    """A sequence whose elements are made when they are read: a property may have a hundred thousand disjuncts."""

    def __init__(self, count: int, make: Callable[[int], Made]) -> None:
        self.length, self.make = count, make

    def __len__(self) -> int:
        return self.length

    @overload
    def __getitem__(self, index: int) -> Made: ...

    @overload
    def __getitem__(self, index: slice) -> list[Made]: ...

    def __getitem__(self, index: int | slice) -> Made | list[Made]:
        chosen = range(self.length)[index]
        return self.make(chosen) if isinstance(chosen, int) else [self.make(i) for i in chosen]

    def __iter__(self) -> Iterator[Made]:
        return map(self.make, range(self.length))


@dataclass(frozen=True, eq=False)
class PropertyTable:
    """All boxes and constraints of a property, as arrays."""

    lower: Tensor  # (boxes, inputs) float64
    upper: Tensor  # (boxes, inputs) float64
    box: Tensor  # (disjuncts,) int64: the box of each disjunct
    offsets: Tensor  # (disjuncts + 1,) int64: the first constraint of each disjunct
    output_weights: Tensor  # (constraints, outputs) float64
    limit: Tensor  # (constraints,) float64
    strict: Tensor  # (constraints,) bool
    input_weights: dict[int, Tensor]  # (inputs,) by constraint, for those that contain inputs
    rounded: bool = False  # whether arithmetic between numbers in the file was rounded

    def make_box(self, index: int) -> Box:
        """Make one of the boxes."""
        return Box(self.lower[index], self.upper[index])

    def make_disjunct(self, index: int) -> Disjunct:
        """Make one of the disjuncts."""
        first, last = int(self.offsets[index]), int(self.offsets[index + 1])
        inputs = None
        if any(k in self.input_weights for k in range(first, last)):
            none = torch.zeros(self.lower.shape[1], dtype=torch.float64)
            inputs = torch.stack([self.input_weights.get(k, none) for k in range(first, last)])
        rows = slice(first, last)
        return Disjunct(int(self.box[index]), self.output_weights[rows], self.limit[rows], self.strict[rows], inputs)

    @staticmethod
    def of(inputs: int, outputs: int, boxes: Sequence[Box], disjuncts: Sequence[Disjunct]) -> PropertyTable:
        """Collect boxes and disjuncts."""
        counts = torch.tensor([0, *(len(d.limit) for d in disjuncts)], dtype=torch.int64)
        offsets = counts.cumsum(0)
        input_weights: dict[int, Tensor] = {}
        for first, d in zip(offsets.tolist(), disjuncts, strict=False):
            if d.input_weights is not None:
                input_weights |= {first + k: row for k, row in enumerate(d.input_weights) if bool(row.any())}
        no_rows, no_boxes = torch.zeros(0, outputs, dtype=torch.float64), torch.zeros(0, inputs, dtype=torch.float64)
        return PropertyTable(
            lower=torch.cat([no_boxes, *(b.lower[None] for b in boxes)]),
            upper=torch.cat([no_boxes, *(b.upper[None] for b in boxes)]),
            box=torch.tensor([d.box for d in disjuncts], dtype=torch.int64),
            offsets=offsets,
            output_weights=torch.cat([no_rows, *(d.output_weights for d in disjuncts)]),
            limit=torch.cat([no_rows.reshape(-1), *(d.limit for d in disjuncts)]),
            strict=torch.cat([torch.zeros(0, dtype=torch.bool), *(d.strict for d in disjuncts)]),
            input_weights=input_weights,
        )


@dataclass(frozen=True, eq=False)
class Property:
    """A property of a network, as its violations: a point that satisfies one of the disjuncts is a counterexample.

    >>> unsafe = Property.of([-1.0], [1.0], [[1.0, -1.0]], [0.0])  # y0 <= y1 for some x in [-1, 1]
    >>> unsafe.inputs, unsafe.outputs, len(unsafe.disjuncts)
    (1, 2, 1)
    """

    inputs: int  # number of inputs
    outputs: int  # number of outputs
    boxes: Sequence[Box]
    disjuncts: Sequence[Disjunct]
    source: str = ""  # the file it was read from

    @cached_property
    def table(self) -> PropertyTable:
        """All boxes and constraints as arrays."""
        return PropertyTable.of(self.inputs, self.outputs, self.boxes, self.disjuncts)

    @staticmethod
    def from_table(table: PropertyTable, source: str = "") -> Property:
        """Make the property of a table; its boxes and disjuncts are made when they are read."""
        boxes = LazySequence(len(table.lower), table.make_box)
        disjuncts = LazySequence(len(table.box), table.make_disjunct)
        made = Property(table.lower.shape[1], table.output_weights.shape[1], boxes, disjuncts, source)
        vars(made)["table"] = table
        return made

    @staticmethod
    def of(lower: Any, upper: Any, matrix: Any, limit: Any) -> Property:
        """Make the property with one box, violated where ``matrix @ y <= limit``.

        Args:
            lower: Lower bounds of the inputs, (inputs,).
            upper: Upper bounds of the inputs, (inputs,).
            matrix: Weights of the outputs in each constraint, (rows, outputs).
            limit: The right-hand side of each constraint, (rows,).

        >>> Property.of([0.0, 0.0], [1.0, 1.0], [[1.0, -1.0, 0.0]], [0.0])
        <Property: 2 inputs, 3 outputs, disjuncts: 1, boxes: 1, constraints: 1>

        Raises ArgumentError for shapes that do not match, and for numbers that are not finite.
        """
        low, high = _as_floats(lower, "lower"), _as_floats(upper, "upper")
        weights, limits = _as_floats(matrix, "matrix"), _as_floats(limit, "limit")
        if low.dim() != 1 or low.shape != high.shape or weights.dim() != 2 or limits.shape != weights.shape[:1]:
            raise ArgumentError(
                f"Bounds of shapes {tuple(low.shape)} and {tuple(high.shape)}, a matrix of shape"
                f" {tuple(weights.shape)} and limits of shape {tuple(limits.shape)} do not match.",
                where="Property.of",
                hint="Give bounds (inputs,) and (inputs,), a matrix (rows, outputs) and limits (rows,).",
            )
        strict = torch.zeros(len(limits), dtype=torch.bool)
        return Property(len(low), weights.shape[1], (Box(low, high),), (Disjunct(0, weights, limits, strict),))

    def disjuncts_by_box(self) -> list[tuple[Box, list[int]]]:
        """Return the boxes that are not empty, each with the indices of its disjuncts."""
        by_box: dict[int, list[int]] = {}
        for index, box in enumerate(self.table.box.tolist()):
            by_box.setdefault(box, []).append(index)
        return [(self.boxes[b], indices) for b, indices in by_box.items() if not self.boxes[b].empty]

    def __repr__(self) -> str:
        rows = len(self.table.limit)
        return (
            f"<Property: {self.inputs} inputs, {self.outputs} outputs,"
            f" disjuncts: {len(self.disjuncts)}, boxes: {len(self.boxes)}, constraints: {rows}>"
        )


def _as_floats(value: Any, name: str) -> Tensor:
    try:
        floats = torch.as_tensor(value, dtype=torch.float64).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as problem:
        raise ArgumentError(
            f"{name} is not an array of numbers: {problem}", where=f"argument {name}", hint="Give numbers."
        ) from problem
    if not bool(torch.isfinite(floats).all()):
        raise ArgumentError(
            f"{name} contains NaN or infinite numbers.", where=f"argument {name}", hint="Give finite numbers."
        )
    return floats
