"""Operators that only move elements: as what they were where that is seen at a glance, as a Gather otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import prod

import torch
from torch import Tensor

from ...network.graph import Shape
from ...ops.affine import Rearrange
from .sheet import Sheet

PERMUTED = 5  # dims that are tried in every order


def rearrange(sheet: Sheet, op: Rearrange, xs: Sequence[str], shapes: Sequence[Shape]) -> str:
    """A Concat, Transpose, Slice or Pad if it is one, in general Gather on everything in a row."""
    if op.constant is not None:
        made = _pad(sheet, op, xs, shapes)
    elif len(xs) > 1:
        made = _concat(sheet, op, xs, shapes)
    else:
        made = _transpose(sheet, op, xs[0], shapes[0]) or _slice(sheet, op, xs[0], shapes[0])
    return made or _gathered(sheet, op, xs, shapes)


def joined(sheet: Sheet, xs: Sequence[str]) -> str:
    """Several values as one row of elements for each point."""
    flat = [sheet.flat(x) for x in xs]
    return flat[0] if len(flat) == 1 else sheet.node("Concat", *flat, axis=1)


def _gathered(sheet: Sheet, op: Rearrange, xs: Sequence[str], shapes: Sequence[Shape]) -> str:
    row = joined(sheet, xs)
    if not torch.equal(op.index, torch.arange(sum(prod(s) for s in shapes))):
        row = sheet.gather(row, op.index.clamp(min=0), 1)
    if op.constant is not None:
        outside = op.index < 0
        values = op.constant[outside]
        same = bool((values == values[0]).all())
        filled = values[0] if same else torch.where(outside, op.constant, torch.zeros_like(op.constant))[None]
        row = sheet.node("Where", sheet.mask(~outside[None]), row, sheet.const(filled))
    return sheet.reshape(row, op.shape, (len(op.index),))


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


def _slice(sheet: Sheet, op: Rearrange, x: str, shape: Shape) -> str | None:
    """Every dim from a start by a step: also what flips."""
    if len(shape) != len(op.shape) or not len(op.index):
        return None
    index = op.index.view(op.shape)
    first = int(op.index[0])
    expected = torch.zeros((), dtype=torch.int64)
    taken: list[tuple[int, int, int, int]] = []
    for d, (n, m) in enumerate(zip(shape, op.shape, strict=True)):
        stride = prod(shape[d + 1 :])
        start = first // stride % n
        step = (int(index.select(d, 1).flatten()[0]) - first) // stride if m > 1 else 1
        last = start + step * (m - 1)
        if step == 0 or not 0 <= last < n:
            return None
        run = torch.arange(m) * step + start
        expected = expected + (run * stride).view(-1, *[1] * (len(shape) - d - 1))
        stop = last + 1 if step > 0 else last - 1 if last else -n - 1
        if (start, step, m) != (0, 1, n):
            taken.append((start, stop, d + 1, step))
    if not torch.equal(expected.expand(op.shape).flatten(), op.index):
        return None
    return sheet.node("Slice", x, *(sheet.ints(list(column)) for column in zip(*taken, strict=True)))


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
