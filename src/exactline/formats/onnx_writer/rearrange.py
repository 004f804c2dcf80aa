"""Operators that only move elements: as what they were where that is seen at a glance, as a Gather otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import prod

import torch
from torch import Tensor

from ...network.graph import Shape
from ...ops.affine import Rearrange
from .graph import Sheet

PERMUTED = 5  # dims that are tried in every order


def rearrange(sheet: Sheet, op: Rearrange, xs: Sequence[str], shapes: Sequence[Shape]) -> str:
    """A Concat, Transpose, Slice or Pad if it is one, in general Gather on everything in a row."""
    if op.constant is not None:
        made = _pad(sheet, op, xs, shapes)
    elif len(xs) > 1:
        made = _concat(sheet, op, xs, shapes)
    else:
        tries = (_transpose, _each_dim, _one_dim)
        made = next((m for m in (known(sheet, op, xs[0], shapes[0]) for known in tries) if m), None)
    return made or _gathered(sheet, op, xs, shapes)


def joined(sheet: Sheet, xs: Sequence[str], shapes: Sequence[Shape]) -> str:
    """Several values as one row of elements for each point."""
    flat = [sheet.flat(x, s) for x, s in zip(xs, shapes, strict=True)]
    return flat[0] if len(flat) == 1 else sheet.node("Concat", *flat, axis=1)


def _gathered(sheet: Sheet, op: Rearrange, xs: Sequence[str], shapes: Sequence[Shape]) -> str:
    row = joined(sheet, xs, shapes)
    if torch.equal(op.index, torch.arange(sum(prod(s) for s in shapes))):
        return sheet.reshape(row, op.shape, (len(op.index),))
    made = sheet.gather(row, op.index.clamp(min=0).view(op.shape), 1)
    if op.constant is None:
        return made
    outside = (op.index < 0).view(1, *op.shape)
    values = op.constant.view(1, *op.shape)
    first = values[outside][0]
    filled = first if bool((values[outside] == first).all()) else torch.where(outside, values, torch.zeros_like(values))
    return sheet.node("Where", sheet.mask(~outside), made, sheet.const(filled))


def _concat(sheet: Sheet, op: Rearrange, xs: Sequence[str], shapes: Sequence[Shape]) -> str | None:
    if any(len(s) != len(op.shape) for s in shapes):
        return None
    starts = [sum(prod(s) for s in shapes[:i]) for i in range(len(shapes))]
    views = [torch.arange(a, a + prod(s)).view(s) for a, s in zip(starts, shapes, strict=True)]
    for axis in range(len(op.shape)):
        rest = {(*s[:axis], *s[axis + 1 :]) for s in shapes}
        if rest == {(*op.shape[:axis], *op.shape[axis + 1 :])} and torch.equal(
            torch.cat(views, axis).flatten(), op.index
        ):
            return sheet.node("Concat", *xs, axis=axis + 1)
    return None


def _transpose(sheet: Sheet, op: Rearrange, x: str, shape: Shape) -> str | None:
    if len(shape) != len(op.shape) or len(shape) > PERMUTED or prod(shape) != len(op.index):
        return None
    places = torch.arange(prod(shape)).view(shape)
    for order in permutations(range(len(shape))):
        if tuple(shape[d] for d in order) == op.shape and torch.equal(places.permute(order).flatten(), op.index):
            return sheet.node("Transpose", x, perm=[0, *(d + 1 for d in order)])
    return None


def _each_dim(sheet: Sheet, op: Rearrange, x: str, shape: Shape) -> str | None:
    """Places chosen in every dim on its own: Slice where they go by a step, Gather in the other dims."""
    if len(shape) != len(op.shape):
        return None
    index = op.index.view(op.shape)
    expected = torch.zeros((), dtype=torch.int64)
    slices: list[tuple[int, int, int, int]] = []
    gathers: list[tuple[Tensor, int]] = []
    for d, (n, m) in enumerate(zip(shape, op.shape, strict=True)):
        stride = prod(shape[d + 1 :])
        run = index.movedim(d, 0).reshape(m, -1)[:, 0] // stride % n
        expected = expected + (run * stride).view(-1, *[1] * (len(shape) - d - 1))
        start, step = int(run[0]), int(run[1] - run[0]) if m > 1 else 1
        if step == 0 or not torch.equal(run, torch.arange(m) * step + start):
            gathers.append((run, d + 1))
        elif (start, step, m) != (0, 1, n):
            last = int(run[-1])
            slices.append((start, last + 1 if step > 0 else last - 1 if last else -n - 1, d + 1, step))
    if not torch.equal(expected.expand(op.shape).flatten(), op.index):
        return None
    if slices:
        x = sheet.node("Slice", x, *(sheet.ints(list(column)) for column in zip(*slices, strict=True)))
    for run, axis in gathers:
        x = sheet.gather(x, run, axis)
    return x


def _one_dim(sheet: Sheet, op: Rearrange, x: str, shape: Shape) -> str | None:
    """Gather along one dim, which several dims or none come to stand for."""
    more = len(op.shape) - len(shape) + 1
    for d in range(len(shape) if more >= 0 else 0):
        left, right, inner = shape[:d], shape[d + 1 :], op.shape[d : d + more]
        if (*left, *inner, *right) == op.shape:
            run = op.index.view(prod(left), -1, prod(right))[0, :, 0] // prod(right) % shape[d]
            chosen = torch.arange(prod(shape)).view(shape).index_select(d, run)
            if torch.equal(chosen.flatten(), op.index):
                return sheet.gather(x, run.view(inner), d + 1)
    return None


def _pad(sheet: Sheet, op: Rearrange, xs: Sequence[str], shapes: Sequence[Shape]) -> str | None:
    """The whole input in a frame of one constant."""
    if len(xs) != 1 or len(shapes[0]) != len(op.shape) or op.constant is None:
        return None
    shape, inside = shapes[0], (op.index >= 0).view(op.shape)
    values = op.constant[op.index < 0]
    if int(inside.sum()) != prod(shape) or not bool((values == values[0]).all()):
        return None
    corner: Tensor = inside.nonzero()[0]
    box = tuple(slice(int(c), int(c) + n) for c, n in zip(corner, shape, strict=True))
    held = op.index.view(op.shape)[box]
    if held.shape != torch.Size(shape) or not torch.equal(held.flatten(), torch.arange(prod(shape))):
        return None
    before = [int(c) for c in corner]
    after = [m - n - b for m, n, b in zip(op.shape, shape, before, strict=True)]
    return sheet.node("Pad", xs[0], sheet.ints([0, *before, 0, *after]), sheet.const(values[0]), mode="constant")
