"""The disjuncts of a property for the checker of proofs, and whether their constraints can hold on a piece."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from .checker_cells import CellForms
from .checker_geometry import Point, Polygon, clip, evaluate, measure_area
from .property import Property


@dataclass(frozen=True)
class Constraint:
    """Weights of outputs and inputs whose weighted sum is at most a limit, or below it."""

    outputs: tuple[Fraction, ...]
    inputs: tuple[Fraction, ...]
    limit: Fraction
    strict: bool


@dataclass(frozen=True)
class BoxedDisjunct:
    """A box, and constraints that a counterexample satisfies in it."""

    index: int
    lower: tuple[Fraction, ...]
    upper: tuple[Fraction, ...]
    constraints: tuple[Constraint, ...]

    def lies_in(self, inputs: Sequence[int], point: Sequence[Fraction]) -> bool:
        """Whether the box differs from a point in some inputs only."""
        fixed = (i for i in range(len(point)) if i not in inputs)
        return all(self.lower[i] == self.upper[i] == point[i] for i in fixed)

    def clip_box(self, polygon: Polygon, inputs: Sequence[int]) -> Polygon:
        """The part of a polygon in the box; empty if it is a mere boundary that belongs to a neighbour, too."""
        region = polygon
        for k, i in enumerate(inputs):
            side = [Fraction(0)] * 3
            side[k + 1] = Fraction(1)
            region = clip(region, [-self.upper[i], *side[1:]]) if region else region
            region = clip(region, [self.lower[i], *(-s for s in side[1:])]) if region else region
        is_flat = any(self.lower[i] == self.upper[i] for i in inputs)
        return region if region and (is_flat or measure_area(region)) else []


def read_disjuncts(prop: Property) -> list[BoxedDisjunct]:
    """Read the disjuncts whose boxes are not empty."""
    boxes = [(_read(b.lower.tolist()), _read(b.upper.tolist())) for b in prop.boxes]
    none = (Fraction(0),) * prop.inputs
    found: list[BoxedDisjunct] = []
    for index, d in enumerate(prop.disjuncts):
        lower, upper = boxes[d.box]
        if any(a > b for a, b in zip(lower, upper, strict=True)):
            continue
        outputs, limits, strict = d.output_weights.tolist(), d.limit.tolist(), d.strict.tolist()
        inputs = [none] * len(limits) if d.input_weights is None else [_read(r) for r in d.input_weights.tolist()]
        rows = zip(outputs, inputs, limits, strict, strict=True)
        constraints = tuple(Constraint(_read(o), i, Fraction(limit), s) for o, i, limit, s in rows)
        found.append(BoxedDisjunct(index, lower, upper, constraints))
    return found


def find_violation(disjunct: BoxedDisjunct, forms: CellForms, region: Polygon) -> list[Point]:
    """Find points around which all constraints can hold, in a part of a cell; empty if they provably cannot."""
    rows = [(forms.combine(c.outputs, c.inputs), c) for c in disjunct.constraints]
    for row, c in rows:
        least = min(evaluate(row.line, p) for p in region) + row.least_of_symbols
        if least > c.limit or (c.strict and least == c.limit):
            return []
    if any(row.has_symbols for row, _ in rows):
        return region
    for row, c in rows:
        region = clip(region, [row.line[0] - c.limit, *row.line[1:]])
        if not region:
            return []
    for row, c in rows:
        if c.strict and all(evaluate(row.line, p) >= c.limit for p in region):
            return []
    return region


def _read(numbers: list[float]) -> tuple[Fraction, ...]:
    return tuple(map(Fraction, numbers))
