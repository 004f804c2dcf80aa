"""Contests: differences of affine functions that cut a polygon where they change sign.

On a line a breaking operator finds its crossings itself; in a plane it says what to compare, and polygons are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...ops.base import Breaking, flat
from ...ops.maximum import Maximum
from ...ops.order import Order
from ...ops.pointwise import Pointwise, level_of


@dataclass(frozen=True, eq=False)
class Contest:
    """Many comparisons at once; every difference is affine where the node's input and earlier contests are."""

    gaps: Callable[[Tensor], Tensor]  # (n, *in) -> (n, m)
    blur: Callable[[Tensor], Tensor]  # errors (n, *in) -> errors of the differences (n, m)
    units: Tensor  # (m,) which unit of the node
    levels: Tensor | None = None  # (m,) the knots that single elements, numbered as units are, are compared with


def separators_of(op: Breaking, shape: Sequence[int]) -> tuple[Contest, ...]:
    """What cuts a polygon at an operator whose input has this shape; each holds where the earlier ones are settled."""
    match op:
        case Pointwise():
            like = torch.empty(1, *shape)
            return (knots_contest([level_of(knot, like) for knot in op.knots], like.numel()),)
        case Maximum():
            return knockout(op.table, op.sign, op.floor)
        case Order():
            return (swaps(op.table),)
        case _:
            raise TypeError(f"{op.title} has no separators")


def merges_cells(op: Breaking) -> bool:
    """Whether the separators cut too much, so that polygons with one activation pattern are merged afterwards."""
    return isinstance(op, (Maximum, Order))


def knots_contest(levels: list[float | Tensor], count: int) -> Contest:
    """Every element against every knot; a knot is a number, or (1, elements) numbers."""
    rows = [torch.as_tensor(level, dtype=torch.float64).cpu().expand(1, count) for level in levels]

    def gaps(x: Tensor) -> Tensor:
        elements = flat(x)
        if all(isinstance(level, float) and level == 0 for level in levels):
            return elements if len(levels) == 1 else elements.repeat(1, len(levels))
        return torch.cat([elements - row.to(x.device, x.dtype) for row in rows], 1)

    return Contest(
        gaps,
        lambda errors: flat(errors).repeat(1, len(levels)),
        torch.arange(count).repeat(len(levels)),
        torch.cat(rows, 1)[0],
    )


def knockout(table: Tensor, sign: int, floor: bool) -> tuple[Contest, ...]:
    """A tournament in every window: neighbours first, then the winners; at last, with a floor, against 0."""
    windows, size = table.shape
    rounds: list[Contest] = []
    step = 1
    while step < size:
        rounds.append(_duels(table, sign, step))
        step *= 2
    if floor:
        gaps, blur = _against_zero(table, sign)
        rounds.append(Contest(gaps, blur, torch.arange(windows)))
    return tuple(rounds)


def swaps(table: Tensor) -> Contest:
    """Every pair of every window."""
    windows, size = table.shape
    first, second = torch.triu_indices(size, size, 1)

    def gaps(x: Tensor) -> Tensor:
        opened = flat(x)[:, table.to(x.device)]
        return (opened[..., first] - opened[..., second]).flatten(1)

    def blur(errors: Tensor) -> Tensor:
        opened = flat(errors)[:, table.to(errors.device)]
        return (opened[..., first] + opened[..., second]).flatten(1)

    return Contest(gaps, blur, torch.arange(windows).repeat_interleave(len(first)))


def _duels(table: Tensor, sign: int, step: int) -> Contest:
    """The winners of neighbouring groups of ``step`` elements against each other."""
    windows, size = table.shape
    pairs = -(-size // step) // 2

    def best(x: Tensor, factor: int) -> tuple[Tensor, Tensor]:
        opened = factor * flat(x)[:, table.to(x.device)]  # (n, windows, size)
        groups = [opened[..., at : at + step].amax(2) for at in range(0, size, step)][: 2 * pairs]
        return torch.stack(groups[0::2], 2), torch.stack(groups[1::2], 2)

    def gaps(x: Tensor) -> Tensor:
        one, two = best(x, sign)
        return (one - two).flatten(1)

    def blur(errors: Tensor) -> Tensor:
        one, two = best(errors, 1)
        return (one + two).flatten(1)

    return Contest(gaps, blur, torch.arange(windows).repeat_interleave(pairs))


def _against_zero(table: Tensor, sign: int) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    def gaps(x: Tensor) -> Tensor:
        return (sign * flat(x)[:, table.to(x.device)]).amax(2)

    def blur(errors: Tensor) -> Tensor:
        return flat(errors)[:, table.to(errors.device)].amax(2)

    return gaps, blur
