"""Groups the disjuncts of a property by the line or plane of inputs that their boxes share."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from ..property import Property
from .constraints import ExactDisjunct, RowLimit

MAX_FREE_INPUTS = 2
Floats = NDArray[np.float64]


@dataclass(eq=False)
class Group:
    """Disjuncts whose boxes differ in the same one or two inputs only."""

    axes: tuple[int, ...]  # the free inputs
    point: Floats  # (inputs,) the fixed inputs; free ones are 0
    disjuncts: list[int] = field(default_factory=list[int])  # indices in the property


@dataclass(frozen=True, eq=False)
class ConstraintTable:
    """The constraints of all disjuncts of a property, with each row of weights only once."""

    output_weights: Floats  # (rows, outputs)
    input_weights: Floats  # (rows, inputs)
    row: NDArray[np.int64]  # (constraints,) of each constraint, disjunct after disjunct
    limit: Floats  # (constraints,)
    strict: NDArray[np.bool_]  # (constraints,)
    offsets: NDArray[np.int64]  # (disjuncts + 1,)
    lower: Floats  # (boxes, inputs)
    upper: Floats  # (boxes, inputs)
    box: NDArray[np.int64]  # (disjuncts,)

    @staticmethod
    def of(prop: Property) -> ConstraintTable:
        """Collect the constraints of a property."""
        table = prop.table
        outputs, row = np.unique(table.output_weights.numpy() + 0.0, axis=0, return_inverse=True)
        inputs, row = np.zeros((len(outputs), prop.inputs)), row.reshape(-1)
        if table.input_weights:  # such rows are kept apart, without looking for equal ones
            at = list(table.input_weights)
            row[at] = np.arange(len(at)) + len(outputs)
            outputs = np.concatenate([outputs, table.output_weights.numpy()[at]])
            inputs = np.concatenate([inputs, torch.stack([*table.input_weights.values()]).numpy()])
        return ConstraintTable(
            output_weights=outputs,
            input_weights=inputs,
            row=row,
            limit=table.limit.numpy(),
            strict=table.strict.numpy(),
            offsets=table.offsets.numpy(),
            lower=table.lower.numpy(),
            upper=table.upper.numpy(),
            box=table.box.numpy(),
        )

    @cached_property
    def free(self) -> NDArray[np.bool_]:  # (boxes, inputs)
        """Which inputs of each box are not fixed."""
        return self.upper > self.lower

    def make_disjunct(self, index: int, axes: tuple[int, ...]) -> ExactDisjunct:
        """Make one disjunct, with the bounds of some inputs."""
        box, constraints = self.box[index], range(self.offsets[index], self.offsets[index + 1])
        limits = tuple(RowLimit(int(self.row[c]), float(self.limit[c]), bool(self.strict[c])) for c in constraints)
        sides = [tuple(float(side[box, a]) for a in axes) for side in (self.lower, self.upper)]
        return ExactDisjunct(index, sides[0], sides[1], limits)


def group_disjuncts(table: ConstraintTable) -> tuple[list[Group], list[int]]:
    """Group the disjuncts on boxes with at most two free inputs; returns the groups, and all other disjuncts.

    A box without free inputs joins a line through it, if there is one. Disjuncts with an empty box are left out.
    """
    free_counts = table.free.sum(1)
    is_empty: NDArray[np.bool_] = np.asarray((table.lower > table.upper).any(1))
    small = ~is_empty & (free_counts <= MAX_FREE_INPUTS)
    fixed = np.where(table.free, 0.0, table.lower) + 0.0
    group_of_box: dict[int, Group] = {}
    groups: dict[tuple[bytes, bytes], Group] = {}  # by free inputs and fixed ones
    for box in np.flatnonzero(small & (free_counts > 0)).tolist():
        key = table.free[box].tobytes(), fixed[box].tobytes()
        if key not in groups:
            groups[key] = Group(tuple(np.flatnonzero(table.free[box]).tolist()), fixed[box])
        group_of_box[box] = groups[key]
    for box in np.flatnonzero(small & (free_counts == 0)).tolist():
        group_of_box[box] = _join_line(fixed[box], groups)
    large: list[int] = []
    for index, box in enumerate(table.box.tolist()):
        if box in group_of_box:
            group_of_box[box].disjuncts.append(index)
        elif not is_empty[box]:
            large.append(index)
    return sorted((g for g in groups.values() if g.disjuncts), key=lambda g: len(g.axes)), large


def _join_line(point: Floats, groups: dict[tuple[bytes, bytes], Group]) -> Group:
    """Return the group of a line through a point, along the first input if there is none yet."""
    for axis in range(len(point) - 1, -1, -1):
        free, fixed = np.arange(len(point)) == axis, point.copy()
        fixed[axis] = 0.0
        key = free.tobytes(), fixed.tobytes()
        if key in groups or axis == 0:
            return groups.setdefault(key, Group((axis,), fixed))
    return Group((0,), point)
