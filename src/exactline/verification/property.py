"""Properties in disjunctive form: boxes of inputs, and the linear constraints that a counterexample satisfies there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True, eq=False)
class Property:
    """A property of a network, as its violations: a point that satisfies one of the disjuncts is a counterexample.

    >>> unsafe = Property.of([-1.0], [1.0], [[1.0, -1.0]], [0.0])  # y0 <= y1 for some x in [-1, 1]
    >>> unsafe.inputs, unsafe.outputs, len(unsafe.disjuncts)
    (1, 2, 1)
    """

    inputs: int  # number of inputs
    outputs: int  # number of outputs
    boxes: tuple[Box, ...]
    disjuncts: tuple[Disjunct, ...]
    source: str = ""  # the file it was read from

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
        for index, disjunct in enumerate(self.disjuncts):
            by_box.setdefault(disjunct.box, []).append(index)
        return [(self.boxes[b], indices) for b, indices in by_box.items() if not self.boxes[b].empty]

    def __repr__(self) -> str:
        rows = sum(len(d.limit) for d in self.disjuncts)
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
