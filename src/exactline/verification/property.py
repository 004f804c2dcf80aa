"""What a property is: cases, each a box of inputs and linear constraints that a counterexample fulfils there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import ArgumentError


@dataclass(frozen=True, eq=False)
class Box:
    """Inputs between bounds, both included; a coordinate may be fixed."""

    lower: Tensor  # (inputs,) float64
    upper: Tensor  # (inputs,) float64

    @property
    def width(self) -> Tensor:
        return self.upper - self.lower

    @property
    def empty(self) -> bool:
        """Whether no point lies in it."""
        return bool((self.lower > self.upper).any())

    def holds(self, points: Tensor) -> Tensor:  # (n, inputs) -> (n,)
        return ((points >= self.lower) & (points <= self.upper)).all(-1)


@dataclass(frozen=True, eq=False)
class Case:
    """A violation: a point of the box with ``on_outputs @ y + on_inputs @ x <= limit``, row by row."""

    box: int  # which of the property's boxes
    on_outputs: Tensor  # (rows, outputs) float64
    limit: Tensor  # (rows,) float64
    strict: Tensor  # (rows,) bool: less, not less or equal
    on_inputs: Tensor | None = None  # (rows, inputs); None where no row speaks of inputs

    def excess(self, x: Tensor, y: Tensor) -> Tensor:  # (n, inputs), (n, outputs) -> (n, rows)
        """By how much each row is missed; at most 0 where it holds."""
        found = y @ self.on_outputs.T - self.limit
        return found if self.on_inputs is None else found + x @ self.on_inputs.T

    def margin(self, x: Tensor, y: Tensor) -> Tensor:  # -> (n,)
        """The largest excess: at most 0 where all rows hold. Without rows every point is a violation."""
        excess = self.excess(x, y)
        return excess.amax(-1) if excess.shape[-1] else excess.new_full(excess.shape[:-1], -torch.inf)

    def holds(self, x: Tensor, y: Tensor, tolerance: float = 0.0) -> Tensor:  # -> (n,)
        """Where all rows hold, the strict ones strictly; with a tolerance, where none is missed by more."""
        excess = self.excess(x, y)
        if tolerance:
            return (excess <= tolerance).all(-1)
        return torch.where(self.strict, excess < 0, excess <= 0).all(-1)


@dataclass(frozen=True, eq=False)
class Property:
    """What must not happen: a point that fulfils one of the cases is a counterexample.

    >>> unsafe = Property.of([-1.0], [1.0], [[1.0, -1.0]], [0.0])  # y0 <= y1 for some x in [-1, 1]
    >>> unsafe.inputs, unsafe.outputs, len(unsafe.cases)
    (1, 2, 1)
    """

    inputs: int
    outputs: int
    boxes: tuple[Box, ...]
    cases: tuple[Case, ...]
    source: str = ""  # the file it was read from

    @staticmethod
    def of(lower: Any, upper: Any, matrix: Any, limit: Any) -> Property:
        """One box, and one case of rows ``matrix @ y <= limit``."""
        low, high, rows, most = (_floats(v, n) for v, n in _named(lower, upper, matrix, limit))
        if low.dim() != 1 or low.shape != high.shape or rows.dim() != 2 or most.shape != rows.shape[:1]:
            raise ArgumentError(
                f"Bounds of shapes {tuple(low.shape)} and {tuple(high.shape)}, rows of shape {tuple(rows.shape)} and"
                f" limits of shape {tuple(most.shape)} make no property.",
                where="Property.of",
                hint="Give flat bounds (inputs,) twice, a matrix (rows, outputs) and limits (rows,).",
            )
        strict = torch.zeros(len(most), dtype=torch.bool)
        return Property(len(low), rows.shape[1], (Box(low, high),), (Case(0, rows, most, strict),))

    def by_box(self) -> list[tuple[Box, list[int]]]:
        """The boxes that hold a point, each with the cases that ask for it."""
        asked: dict[int, list[int]] = {}
        for place, case in enumerate(self.cases):
            asked.setdefault(case.box, []).append(place)
        return [(self.boxes[b], places) for b, places in asked.items() if not self.boxes[b].empty]

    def __repr__(self) -> str:
        rows = sum(len(c.limit) for c in self.cases)
        return (
            f"<Property: {self.inputs} inputs, {self.outputs} outputs,"
            f" cases: {len(self.cases)}, boxes: {len(self.boxes)}, constraints: {rows}>"
        )


def _named(*values: Any) -> Sequence[tuple[Any, str]]:
    return tuple(zip(values, ("lower", "upper", "matrix", "limit"), strict=True))


def _floats(value: Any, name: str) -> Tensor:
    try:
        found = torch.as_tensor(value, dtype=torch.float64).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as problem:
        raise ArgumentError(
            f"{name} is not an array of numbers: {problem}", where=f"argument {name}", hint="Give numbers."
        ) from problem
    if not bool(torch.isfinite(found).all()):
        raise ArgumentError(
            f"{name} holds NaN or infinite numbers.", where=f"argument {name}", hint="Give a finite box."
        )
    return found
