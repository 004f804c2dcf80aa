"""From constraints to cases: bounds of single inputs become boxes, the rest rows of matrices."""

from __future__ import annotations

from math import inf, isfinite
from typing import TypeAlias

import torch
from torch import Tensor

from ..formats import limits
from .property import Box, Case, Property
from .terms import Atom, Clause, Formula, TermError

Bounds: TypeAlias = tuple[tuple[float, ...], tuple[float, ...]]  # lower and upper ones of all inputs

NUMBERS = 1 << 27  # in all boxes and all matrices of a property


def property_of(formula: Formula, inputs: int, outputs: int, where: str) -> Property:
    """The property whose cases are the clauses of a formula; clauses that cannot hold are left out."""
    boxes: dict[Bounds, int] = {}
    cases: list[Case] = []
    numbers = 0
    for clause in formula:
        bounds, rows = _split(clause, inputs)
        if any(map(_false, rows)):
            continue
        _finite(bounds, clause)
        if any(low > high for low, high in zip(*bounds, strict=True)):
            continue
        if bounds not in boxes:
            boxes[bounds] = len(boxes)
            numbers += 2 * inputs
        case = _case(boxes[bounds], [row for row in rows if row.term.parts], inputs, outputs)
        numbers += case.on_outputs.numel() + (0 if case.on_inputs is None else case.on_inputs.numel())
        limits.within(numbers, NUMBERS, "numbers in all cases", where)
        cases.append(case)
    made = tuple(Box(*(torch.tensor(side, dtype=torch.float64) for side in bounds)) for bounds in boxes)
    return Property(inputs, outputs, made, tuple(cases), where)


def _split(clause: Clause, inputs: int) -> tuple[Bounds, list[Atom]]:
    """The bounds of a clause, and the constraints that are none."""
    lower, upper = [-inf] * inputs, [inf] * inputs
    rows: list[Atom] = []
    for atom in clause:
        parts = atom.term.parts
        place, part = next(iter(parts.items()), (-1, 0.0))
        if len(parts) != 1 or place < 0:
            rows.append(atom)
            continue
        bound = -atom.term.constant / part + 0.0  # never -0
        if part > 0:
            upper[place] = min(upper[place], bound)
        else:
            lower[place] = max(lower[place], bound)
        if atom.strict:
            rows.append(atom)
    return (tuple(lower), tuple(upper)), rows


def _finite(bounds: Bounds, clause: Clause) -> None:
    for side, word in zip(bounds, ("lower", "upper"), strict=True):
        if not all(map(isfinite, side)):
            place = next(i for i, bound in enumerate(side) if not isfinite(bound))
            raise TermError(
                f"X_{place} has no {word} bound{' in one of the cases' if clause else ''}.",
                "Every input needs constants as bounds, (>= X_0 0) and (<= X_0 1).",
            )


def _false(atom: Atom) -> bool:
    """Whether a constraint without variables fails."""
    term = atom.term
    return not term.parts and (term.constant > 0 or (atom.strict and term.constant == 0))


def _case(box: int, rows: list[Atom], inputs: int, outputs: int) -> Case:
    limits.within(len(rows) * (inputs + outputs), NUMBERS, "numbers in one case", "the property")
    on_outputs = torch.zeros(len(rows), outputs, dtype=torch.float64)
    on_inputs: Tensor | None = None
    for k, row in enumerate(rows):
        for place, part in row.term.parts.items():
            if place < 0:
                on_outputs[k, ~place] = part
                continue
            if on_inputs is None:
                on_inputs = torch.zeros(len(rows), inputs, dtype=torch.float64)
            on_inputs[k, place] = part
    limit = torch.tensor([-row.term.constant + 0.0 for row in rows], dtype=torch.float64)
    strict = torch.tensor([row.strict for row in rows], dtype=torch.bool)
    return Case(box, on_outputs, limit, strict, on_inputs)
