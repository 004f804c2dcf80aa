"""From constraints to cases: bounds of single inputs become boxes, the rest rows of matrices."""

from __future__ import annotations

import torch
from torch import Tensor

from ..formats import limits
from .property import Box, Case, Property
from .terms import Atom, Clause, Formula, Term, TermError

NUMBERS = 1 << 27  # in all boxes and all matrices of a property


def property_of(formula: Formula, inputs: int, outputs: int, where: str) -> Property:
    """The property whose cases are the clauses of a formula; clauses that cannot hold are left out."""
    boxes: dict[bytes, int] = {}
    made: list[Box] = []
    cases: list[Case] = []
    numbers = 0
    for clause in formula:
        box, rows = _split(clause, inputs)
        if box.empty or any(_false(row) for row in rows):
            continue
        rows = [row for row in rows if row.term.parts]
        key = torch.cat([box.lower, box.upper]).numpy().tobytes()
        if key not in boxes:
            boxes[key] = len(made)
            made.append(box)
        case = _case(boxes[key], rows, inputs, outputs)
        numbers += case.on_outputs.numel() + (0 if case.on_inputs is None else case.on_inputs.numel()) + len(key) // 8
        limits.within(numbers, NUMBERS, "numbers in all cases", where)
        cases.append(case)
    return Property(inputs, outputs, tuple(made), tuple(cases), where)


def _split(clause: Clause, inputs: int) -> tuple[Box, list[Atom]]:
    """The box of a clause, and the constraints that are no bounds."""
    lower, upper = [-torch.inf] * inputs, [torch.inf] * inputs
    rows: list[Atom] = []
    for atom in clause:
        place, part = next(iter(atom.term.parts.items()), (-1, 0.0))
        if len(atom.term.parts) != 1 or place < 0:
            rows.append(atom)
            continue
        bound = -atom.term.constant / part + 0.0  # never -0
        if part > 0:
            upper[place] = min(upper[place], bound)
        else:
            lower[place] = max(lower[place], bound)
        if atom.strict:
            rows.append(atom)
    box = Box(torch.tensor(lower, dtype=torch.float64), torch.tensor(upper, dtype=torch.float64))
    for side, word in ((box.lower, "lower"), (box.upper, "upper")):
        if not bool(torch.isfinite(side).all()) and not any(_false(row) for row in rows):
            place = int((~torch.isfinite(side)).int().argmax())
            raise TermError(
                f"X_{place} has no {word} bound{'' if not clause else ' in one of the cases'}.",
                "Every input needs constants as bounds, (>= X_0 0) and (<= X_0 1).",
            )
    return box, rows


def _false(atom: Atom) -> bool:
    """Whether a constraint without variables fails."""
    term: Term = atom.term
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
