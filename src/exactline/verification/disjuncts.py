"""Turns a formula into a property: bounds of single inputs become boxes, all other constraints rows of matrices."""

from __future__ import annotations

from math import inf, isfinite
from typing import TypeAlias

import torch
from torch import Tensor

from ..formats import limits
from .property import Box, Disjunct, Property
from .terms import Atom, Clause, Formula, TermError

Bounds: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]  # lower and upper bounds, (inputs,) each

MAX_PROPERTY_NUMBERS = 1 << 27  # in all boxes and matrices of a property: 1 GiB


def build_property(formula: Formula, inputs: int, outputs: int, where: str) -> Property:
    """Build the property whose disjuncts are the clauses of a formula; clauses that cannot hold are left out.

    Raises TermError for an input without bounds, FileError for too many numbers.
    """
    boxes: dict[Bounds, int] = {}
    disjuncts: list[Disjunct] = []
    numbers = 0
    for clause in formula:
        bounds, rows = _split_bounds(clause, inputs)
        if any(map(_is_false, rows)):
            continue
        _check_bounds(bounds, clause)
        if any(low > high for low, high in zip(*bounds, strict=True)):
            continue
        if bounds not in boxes:
            boxes[bounds] = len(boxes)
            numbers += 2 * inputs
        disjunct = _build_disjunct(boxes[bounds], [row for row in rows if row.term.coefficients], inputs, outputs)
        numbers += disjunct.output_weights.numel()
        numbers += 0 if disjunct.input_weights is None else disjunct.input_weights.numel()
        limits.check_limit(numbers, MAX_PROPERTY_NUMBERS, "numbers in all disjuncts", where)
        disjuncts.append(disjunct)
    built = tuple(Box(*(torch.tensor(side, dtype=torch.float64) for side in bounds)) for bounds in boxes)
    return Property(inputs, outputs, built, tuple(disjuncts), where)


def _split_bounds(clause: Clause, inputs: int) -> tuple[Bounds, list[Atom]]:
    """Separate the bounds of single inputs from the other constraints; strict bounds are also kept as constraints."""
    lower, upper = [-inf] * inputs, [inf] * inputs
    rows: list[Atom] = []
    for atom in clause:
        coefficients = atom.term.coefficients
        variable, coefficient = next(iter(coefficients.items()), (-1, 0.0))
        if len(coefficients) != 1 or variable < 0:
            rows.append(atom)
            continue
        bound = -atom.term.constant / coefficient + 0.0  # never -0
        if coefficient > 0:
            upper[variable] = min(upper[variable], bound)
        else:
            lower[variable] = max(lower[variable], bound)
        if atom.strict:
            rows.append(atom)
    return (tuple(lower), tuple(upper)), rows


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


def _build_disjunct(box: int, rows: list[Atom], inputs: int, outputs: int) -> Disjunct:
    limits.check_limit(len(rows) * (inputs + outputs), MAX_PROPERTY_NUMBERS, "numbers in one disjunct", "the property")
    output_weights = torch.zeros(len(rows), outputs, dtype=torch.float64)
    input_weights: Tensor | None = None
    for k, row in enumerate(rows):
        for variable, coefficient in row.term.coefficients.items():
            if variable < 0:
                output_weights[k, ~variable] = coefficient
                continue
            if input_weights is None:
                input_weights = torch.zeros(len(rows), inputs, dtype=torch.float64)
            input_weights[k, variable] = coefficient
    limit = torch.tensor([-row.term.constant + 0.0 for row in rows], dtype=torch.float64)
    strict = torch.tensor([row.strict for row in rows], dtype=torch.bool)
    return Disjunct(box, output_weights, limit, strict, input_weights)
