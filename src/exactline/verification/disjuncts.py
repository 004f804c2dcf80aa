"""Turns a formula into a property: bounds of single inputs become boxes, all other constraints rows of matrices."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from math import inf, isfinite, nextafter
from typing import TypeAlias

import torch
from torch import Tensor

from ..formats import limits
from .property import Property, PropertyTable
from .terms import Atom, Clause, Formula, TermError

Bounds: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]  # lower and upper bounds, (inputs,) each

MAX_PROPERTY_NUMBERS = 1 << 27  # in all boxes and matrices of a property: 1 GiB


def build_property(formula: Formula, inputs: int, outputs: int, where: str) -> Property:
    """Build the property whose disjuncts are the clauses of a formula; clauses that cannot hold are left out.

    Raises TermError for an input without bounds, FileError for too many numbers.
    """
    boxes: dict[Bounds, int] = {}
    table = _RowTable(inputs, outputs)
    numbers = 0
    for clause in formula:
        bounds, rows = _split_bounds(clause, inputs)
        if not table.rounded and any(atom.term.rounded for atom in clause):
            table.rounded = True
        if not all(row.term.coefficients for row in rows):
            if any(map(_is_false, rows)):
                continue
            rows = [row for row in rows if row.term.coefficients]
        box = boxes.get(bounds, -1)
        if box < 0:
            _check_bounds(bounds, clause)
            if any(low > high for low, high in zip(*bounds, strict=True)):
                continue
            box = boxes[bounds] = len(boxes)
            numbers += 2 * inputs
        numbers += table.append(box, rows)
        limits.check_limit(numbers, MAX_PROPERTY_NUMBERS, "numbers in all disjuncts", where)
    return Property.from_table(table.make_table(list(boxes)), where)


def _split_bounds(clause: Clause, inputs: int) -> tuple[Bounds, list[Atom]]:
    """Separate the bounds of single inputs from the other constraints.

    Strict bounds are also kept as constraints. So are bounds that are not floats, such as that of 3 x <= 1, which the
    box exceeds by a rounding.
    """
    lower, upper = [-inf] * inputs, [inf] * inputs
    rows: list[Atom] = []
    for atom in clause:
        coefficients = atom.term.coefficients
        if len(coefficients) != 1:
            rows.append(atom)
            continue
        ((variable, coefficient),) = coefficients.items()
        if variable < 0:
            rows.append(atom)
            continue
        bound, is_exact = -atom.term.constant * coefficient + 0.0, True  # never -0
        if coefficient not in (1.0, -1.0):
            bound, is_exact = _divide(-atom.term.constant, coefficient)
        if not is_exact:
            bound = nextafter(bound, inf if coefficient > 0 else -inf)
        if coefficient > 0:
            if bound < upper[variable]:
                upper[variable] = bound
        elif bound > lower[variable]:
            lower[variable] = bound
        if atom.strict or not is_exact:
            rows.append(atom)
    return (tuple(lower), tuple(upper)), rows


def _divide(numerator: float, denominator: float) -> tuple[float, bool]:
    """The rounded quotient, never -0, and whether it is exact."""
    quotient = numerator / denominator + 0.0
    return quotient, isfinite(quotient) and Fraction(quotient) * Fraction(denominator) == Fraction(numerator)


def _check_bounds(bounds: Bounds, clause: Clause) -> None:
    for side, word in zip(bounds, ("lower", "upper"), strict=True):
        if not all(map(isfinite, side)):
            variable = next(i for i, bound in enumerate(side) if not isfinite(bound))
            raise TermError(
                f"X_{variable} has no {word} bound{' in one of the disjuncts' if clause else ''}.",
                "Every input needs constant bounds, such as (>= X_0 0) and (<= X_0 1).",
            )


def _is_false(atom: Atom) -> bool:
    """Whether a constraint without variables is violated."""
    term = atom.term
    return not term.coefficients and (term.constant > 0 or (atom.strict and term.constant == 0))


@dataclass
class _RowTable:
    """The constraints of all disjuncts, from which their matrices are made at once: one by one takes too long."""

    inputs: int
    outputs: int
    boxes: list[int] = field(default_factory=list[int])  # of each disjunct
    counts: list[int] = field(default_factory=lambda: [0])  # constraints of each disjunct, after a 0
    atoms: list[Atom] = field(default_factory=list[Atom])
    rounded: bool = False  # whether a number of some clause is rounded

    def append(self, box: int, rows: list[Atom]) -> int:
        """Add a disjunct; returns the count of numbers in its matrices."""
        width = self.outputs
        if any(variable >= 0 for row in rows for variable in row.term.coefficients):
            width += self.inputs
        self.boxes.append(box)
        self.counts.append(len(rows))
        self.atoms += rows
        return len(rows) * width

    def make_table(self, boxes: list[Bounds]) -> PropertyTable:
        """Make the table of all constraints, and of some boxes."""
        entries = [(k, v, c) for k, atom in enumerate(self.atoms) for v, c in atom.term.coefficients.items()]
        weights = torch.zeros(len(self.atoms), self.outputs, dtype=torch.float64)
        outputs = [(k, ~v, c) for k, v, c in entries if v < 0]
        if outputs:
            rows, columns, values = zip(*outputs, strict=True)
            weights[list(rows), list(columns)] = torch.tensor(values, dtype=torch.float64)
        input_weights: dict[int, Tensor] = {}
        for row, variable, coefficient in entries:
            if variable >= 0:
                no_weights = torch.zeros(self.inputs, dtype=torch.float64)
                input_weights.setdefault(row, no_weights)[variable] = coefficient
        sides = torch.tensor(boxes, dtype=torch.float64).reshape(len(boxes), 2, self.inputs)
        return PropertyTable(
            lower=sides[:, 0].contiguous(),
            upper=sides[:, 1].contiguous(),
            box=torch.tensor(self.boxes, dtype=torch.int64),
            offsets=torch.tensor(self.counts, dtype=torch.int64).cumsum(0),
            output_weights=weights,
            limit=torch.tensor([-atom.term.constant + 0.0 for atom in self.atoms], dtype=torch.float64),
            strict=torch.tensor([atom.strict for atom in self.atoms], dtype=torch.bool),
            input_weights=input_weights,
            rounded=self.rounded,
        )
