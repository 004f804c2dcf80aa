"""Separators: the differences of affine functions whose zeros subdivide polygons at a breaking operator.

In input space, the zeros of such a difference lie on a hyperplane, as long as the activation pattern before the node
does not change; a polygon is cut where the hyperplane meets its plane. On a line a breaking operator computes its
crossings itself. On a plane it is described by what it compares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...ops.base import Breaking, flatten_units
from ...ops.maximum import Maximum
from ...ops.order import Order
from ...ops.pointwise import Pointwise, knot_level


@dataclass(frozen=True, eq=False)
class Separator:
    """Many comparisons at once.

    The differences are affine on every polygon on which the node's input is affine and the differences of earlier
    separators of the node do not change sign.
    """

    differences: Callable[[Tensor], Tensor]  # values (n, *in) -> differences (n, m)
    difference_errors: Callable[[Tensor], Tensor]  # errors (n, *in) of values -> errors (n, m) of differences
    units: Tensor  # (m,) the unit of the node that each difference belongs to
    levels: Tensor | None = None  # (m,) for knots: the value that each element, numbered as its unit, is compared with


def operator_separators(op: Breaking, shape: Sequence[int]) -> tuple[Separator, ...]:
    """The separators of an operator with inputs of this shape, to be applied in order."""
    match op:
        case Pointwise():
            like = torch.empty(1, *shape)
            return (knot_separator([knot_level(knot, like) for knot in op.knots], like.numel()),)
        case Maximum():
            return maximum_separators(op.table, op.sign, op.floor)
        case Order():
            return (order_separator(op.table),)
        case _:
            raise TypeError(f"{op.title} has no separators")


def needs_merging(op: Breaking) -> bool:
    """Whether the separators cut too much, so that polygons with one activation pattern are merged afterwards."""
    return isinstance(op, (Maximum, Order))


def knot_separator(levels: list[float | Tensor], count: int) -> Separator:
    """Every element against every knot.

    Args:
        levels: The knots: numbers, or (1, elements) for knots that differ between elements.
        count: The number of elements.
    """
    rows = [torch.as_tensor(level, dtype=torch.float64).cpu().expand(1, count) for level in levels]

    def differences(x: Tensor) -> Tensor:
        elements = flatten_units(x)
        if all(isinstance(level, float) and level == 0 for level in levels):
            return elements if len(levels) == 1 else elements.repeat(1, len(levels))
        return torch.cat([elements - row.to(x.device, x.dtype) for row in rows], 1)

    def difference_errors(errors: Tensor) -> Tensor:
        return flatten_units(errors).repeat(1, len(levels))

    return Separator(
        differences,
        difference_errors,
        units=torch.arange(count).repeat(len(levels)),
        levels=torch.cat(rows, 1)[0],
    )


def maximum_separators(table: Tensor, sign: int, floor: bool) -> tuple[Separator, ...]:
    """A knockout tournament in every window: neighbours first, then winners; finally, with a floor, against 0.

    Args:
        table: (windows, size) flat input index of every member.
        sign: -1 for minima.
        floor: Whether the constant 0 takes part.
    """
    rounds: list[Separator] = []
    step = 1
    while step < table.shape[1]:
        rounds.append(_tournament_round(table, sign, step))
        step *= 2
    if floor:
        rounds.append(_floor_separator(table, sign))
    return tuple(rounds)


def order_separator(table: Tensor) -> Separator:
    """Every pair of members of every window (windows, size)."""
    windows, size = table.shape
    first, second = torch.triu_indices(size, size, 1)

    def differences(x: Tensor) -> Tensor:
        members = _members(x, table)
        return (members[..., first] - members[..., second]).flatten(1)

    def difference_errors(errors: Tensor) -> Tensor:
        members = _members(errors, table)
        return (members[..., first] + members[..., second]).flatten(1)

    return Separator(differences, difference_errors, torch.arange(windows).repeat_interleave(len(first)))


def _tournament_round(table: Tensor, sign: int, step: int) -> Separator:
    """The maxima of neighbouring groups of ``step`` members against each other."""
    windows, size = table.shape
    pairs = -(-size // step) // 2

    def group_maxima(x: Tensor, factor: int) -> tuple[Tensor, Tensor]:
        members = factor * _members(x, table)
        groups = [members[..., at : at + step].amax(2) for at in range(0, size, step)][: 2 * pairs]
        return torch.stack(groups[0::2], 2), torch.stack(groups[1::2], 2)

    def differences(x: Tensor) -> Tensor:
        one, two = group_maxima(x, sign)
        return (one - two).flatten(1)

    def difference_errors(errors: Tensor) -> Tensor:
        one, two = group_maxima(errors, 1)
        return (one + two).flatten(1)

    return Separator(differences, difference_errors, torch.arange(windows).repeat_interleave(pairs))


def _floor_separator(table: Tensor, sign: int) -> Separator:
    """The maximum of every window against 0."""

    def differences(x: Tensor) -> Tensor:
        return (sign * _members(x, table)).amax(2)

    def difference_errors(errors: Tensor) -> Tensor:
        return _members(errors, table).amax(2)

    return Separator(differences, difference_errors, torch.arange(len(table)))


def _members(x: Tensor, table: Tensor) -> Tensor:
    """The members of all windows, (n, windows, size)."""
    return flatten_units(x)[:, table.to(x.device)]
