"""Contests: differences of affine functions that cut a polygon where they change sign.

On a line a breaking operator finds its crossings itself; in a plane it says what to compare, and polygons are cut.
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
    """Many comparisons at once; every difference is affine where the node's input and earlier contests are."""

    differences: Callable[[Tensor], Tensor]  # (n, *in) -> (n, m)
    difference_errors: Callable[[Tensor], Tensor]  # errors (n, *in) -> errors of the differences (n, m)
    units: Tensor  # (m,) which unit of the node
    levels: Tensor | None = None  # (m,) the knots that single elements, numbered as units are, are compared with


def operator_separators(op: Breaking, shape: Sequence[int]) -> tuple[Separator, ...]:
    """What cuts a polygon at an operator whose input has this shape; each holds where the earlier ones are settled."""
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


def merges_cells(op: Breaking) -> bool:
    """Whether the separators cut too much, so that polygons with one activation pattern are merged afterwards."""
    return isinstance(op, (Maximum, Order))


def knot_separator(levels: list[float | Tensor], count: int) -> Separator:
    """Every element against every knot; a knot is a number, or (1, elements) numbers."""
    rows = [torch.as_tensor(level, dtype=torch.float64).cpu().expand(1, count) for level in levels]

    def gaps(x: Tensor) -> Tensor:
        elements = flatten_units(x)
        if all(isinstance(level, float) and level == 0 for level in levels):
            return elements if len(levels) == 1 else elements.repeat(1, len(levels))
        return torch.cat([elements - row.to(x.device, x.dtype) for row in rows], 1)

    return Separator(
        gaps,
        lambda errors: flatten_units(errors).repeat(1, len(levels)),
        torch.arange(count).repeat(len(levels)),
        torch.cat(rows, 1)[0],
    )


def maximum_separators(table: Tensor, sign: int, floor: bool) -> tuple[Separator, ...]:
    """A tournament in every window: neighbours first, then the winners; at last, with a floor, against 0."""
    windows, size = table.shape
    rounds: list[Separator] = []
    step = 1
    while step < size:
        rounds.append(_pairwise_separator(table, sign, step))
        step *= 2
    if floor:
        gaps, blur = _floor_separator(table, sign)
        rounds.append(Separator(gaps, blur, torch.arange(windows)))
    return tuple(rounds)


def order_separator(table: Tensor) -> Separator:
    """Every pair of every window."""
    windows, size = table.shape
    first, second = torch.triu_indices(size, size, 1)

    def gaps(x: Tensor) -> Tensor:
        opened = flatten_units(x)[:, table.to(x.device)]
        return (opened[..., first] - opened[..., second]).flatten(1)

    def blur(errors: Tensor) -> Tensor:
        opened = flatten_units(errors)[:, table.to(errors.device)]
        return (opened[..., first] + opened[..., second]).flatten(1)

    return Separator(gaps, blur, torch.arange(windows).repeat_interleave(len(first)))


def _pairwise_separator(table: Tensor, sign: int, step: int) -> Separator:
    """The winners of neighbouring groups of ``step`` elements against each other."""
    windows, size = table.shape
    pairs = -(-size // step) // 2

    def best(x: Tensor, factor: int) -> tuple[Tensor, Tensor]:
        opened = factor * flatten_units(x)[:, table.to(x.device)]  # (n, windows, size)
        groups = [opened[..., at : at + step].amax(2) for at in range(0, size, step)][: 2 * pairs]
        return torch.stack(groups[0::2], 2), torch.stack(groups[1::2], 2)

    def gaps(x: Tensor) -> Tensor:
        one, two = best(x, sign)
        return (one - two).flatten(1)

    def blur(errors: Tensor) -> Tensor:
        one, two = best(errors, 1)
        return (one + two).flatten(1)

    return Separator(gaps, blur, torch.arange(windows).repeat_interleave(pairs))


def _floor_separator(table: Tensor, sign: int) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    def gaps(x: Tensor) -> Tensor:
        return (sign * flatten_units(x)[:, table.to(x.device)]).amax(2)

    def blur(errors: Tensor) -> Tensor:
        return flatten_units(errors)[:, table.to(errors.device)].amax(2)

    return gaps, blur
