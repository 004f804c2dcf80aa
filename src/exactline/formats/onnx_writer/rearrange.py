"""Write rearrangements as Concat, Transpose, Slice or Pad where the index map allows it, otherwise as Gather."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import prod

import torch
from torch import Tensor

from ...network.graph import Shape
from ...ops.affine import Rearrange
from .graph import OnnxGraphWriter

MAX_PERMUTED_DIMS = 5  # of which all permutations are tried


def write_rearrange(graph: OnnxGraphWriter, op: Rearrange, xs: Sequence[str], shapes: Sequence[Shape]) -> str:
    """Write a rearrangement, and return the name of its value.

    Args:
        graph: the ONNX graph.
        op: the rearrangement.
        xs: names of its inputs.
        shapes: of its inputs, without the batch dimension.
    """
    if op.constant is not None:
        output = _write_pad(graph, op, xs, shapes)
    elif len(xs) > 1:
        output = _write_concat(graph, op, xs, shapes)
    else:
        writers = (_write_transpose, _write_per_dim, _write_along_dim)
        output = next((name for write in writers if (name := write(graph, op, xs[0], shapes[0]))), None)
    return output or _write_gather(graph, op, xs, shapes)


def concatenate(graph: OnnxGraphWriter, xs: Sequence[str], shapes: Sequence[Shape]) -> str:
    """Concatenate values as one row of elements for each point, (N, elements)."""
    flat = [graph.flatten(x, s) for x, s in zip(xs, shapes, strict=True)]
    return flat[0] if len(flat) == 1 else graph.add_node("Concat", *flat, axis=1)


def _write_gather(graph: OnnxGraphWriter, op: Rearrange, xs: Sequence[str], shapes: Sequence[Shape]) -> str:
    """Write any rearrangement as a Gather, and a Where for its constants."""
    row = concatenate(graph, xs, shapes)
    if torch.equal(op.index, torch.arange(sum(prod(s) for s in shapes))):
        return graph.reshape(row, op.shape, (len(op.index),))
    output = graph.gather(row, op.index.clamp(min=0).view(op.shape), 1)
    if op.constant is None:
        return output
    is_constant = (op.index < 0).view(1, *op.shape)
    values = op.constant.view(1, *op.shape)
    first = values[is_constant][0]
    is_uniform = bool((values[is_constant] == first).all())
    constants = first if is_uniform else torch.where(is_constant, values, torch.zeros_like(values))
    return graph.add_node("Where", graph.add_mask(~is_constant), output, graph.add_constant(constants))


def _write_concat(graph: OnnxGraphWriter, op: Rearrange, xs: Sequence[str], shapes: Sequence[Shape]) -> str | None:
    if any(len(s) != len(op.shape) for s in shapes):
        return None
    starts = [sum(prod(s) for s in shapes[:i]) for i in range(len(shapes))]
    positions = [torch.arange(a, a + prod(s)).view(s) for a, s in zip(starts, shapes, strict=True)]
    for axis in range(len(op.shape)):
        others = {(*s[:axis], *s[axis + 1 :]) for s in shapes}
        fits = others == {(*op.shape[:axis], *op.shape[axis + 1 :])}
        if fits and torch.equal(torch.cat(positions, axis).flatten(), op.index):
            return graph.add_node("Concat", *xs, axis=axis + 1)
    return None


def _write_transpose(graph: OnnxGraphWriter, op: Rearrange, x: str, shape: Shape) -> str | None:
    if len(shape) != len(op.shape) or len(shape) > MAX_PERMUTED_DIMS or prod(shape) != len(op.index):
        return None
    positions = torch.arange(prod(shape)).view(shape)
    for order in permutations(range(len(shape))):
        if tuple(shape[d] for d in order) == op.shape and torch.equal(positions.permute(order).flatten(), op.index):
            return graph.add_node("Transpose", x, perm=[0, *(d + 1 for d in order)])
    return None


def _write_per_dim(graph: OnnxGraphWriter, op: Rearrange, x: str, shape: Shape) -> str | None:
    """Write a selection in each dimension separately: Slice where it has a constant step, Gather in the others."""
    if len(shape) != len(op.shape):
        return None
    index = op.index.view(op.shape)
    expected = torch.zeros((), dtype=torch.int64)
    slices: list[tuple[int, int, int, int]] = []
    gathers: list[tuple[Tensor, int]] = []
    for d, (n, m) in enumerate(zip(shape, op.shape, strict=True)):
        stride = prod(shape[d + 1 :])
        selected = index.movedim(d, 0).reshape(m, -1)[:, 0] // stride % n
        expected = expected + (selected * stride).view(-1, *[1] * (len(shape) - d - 1))
        start, step = int(selected[0]), int(selected[1] - selected[0]) if m > 1 else 1
        if step == 0 or not torch.equal(selected, torch.arange(m) * step + start):
            gathers.append((selected, d + 1))
        elif (start, step, m) != (0, 1, n):
            last = int(selected[-1])
            slices.append((start, last + 1 if step > 0 else last - 1 if last else -n - 1, d + 1, step))
    if not torch.equal(expected.expand(op.shape).flatten(), op.index):
        return None
    if slices:
        x = graph.add_node("Slice", x, *(graph.add_ints(list(column)) for column in zip(*slices, strict=True)))
    for selected, axis in gathers:
        x = graph.gather(x, selected, axis)
    return x


def _write_along_dim(graph: OnnxGraphWriter, op: Rearrange, x: str, shape: Shape) -> str | None:
    """Write a Gather along one dimension, which several dimensions or none replace."""
    inner_dims = len(op.shape) - len(shape) + 1
    for d in range(len(shape) if inner_dims >= 0 else 0):
        left, right, inner = shape[:d], shape[d + 1 :], op.shape[d : d + inner_dims]
        if (*left, *inner, *right) == op.shape:
            selected = op.index.view(prod(left), -1, prod(right))[0, :, 0] // prod(right) % shape[d]
            positions = torch.arange(prod(shape)).view(shape).index_select(d, selected)
            if torch.equal(positions.flatten(), op.index):
                return graph.gather(x, selected.view(inner), d + 1)
    return None


def _write_pad(graph: OnnxGraphWriter, op: Rearrange, xs: Sequence[str], shapes: Sequence[Shape]) -> str | None:
    """Write the whole input surrounded by one constant as a Pad."""
    if len(xs) != 1 or len(shapes[0]) != len(op.shape) or op.constant is None:
        return None
    shape, is_inside = shapes[0], (op.index >= 0).view(op.shape)
    values = op.constant[op.index < 0]
    if int(is_inside.sum()) != prod(shape) or not bool((values == values[0]).all()):
        return None
    corner: Tensor = is_inside.nonzero()[0]
    box = tuple(slice(int(c), int(c) + n) for c, n in zip(corner, shape, strict=True))
    inner = op.index.view(op.shape)[box]
    if inner.shape != torch.Size(shape) or not torch.equal(inner.flatten(), torch.arange(prod(shape))):
        return None
    before = [int(c) for c in corner]
    after = [m - n - b for m, n, b in zip(op.shape, shape, before, strict=True)]
    return graph.add_node(
        "Pad", xs[0], graph.add_ints([0, *before, 0, *after]), graph.add_constant(values[0]), mode="constant"
    )
