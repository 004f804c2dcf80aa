"""Affine operators: products, scales, sums; what has no ONNX name of its own becomes a dense matrix."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from ...errors import UnsupportedError
from ...network.graph import Node, Shape
from ...ops.affine import Average, Combine, Product, Rearrange, Reshape, Scale
from ...ops.base import Affine
from .. import limits
from .averages import average, grid, opened
from .graph import Sheet
from .rearrange import joined, rearrange

DENSE = 2**24  # numbers of a matrix that is found column by column
STEP = 2**22  # numbers of such a matrix worked out at a time


def affine(sheet: Sheet, node: Node, xs: Sequence[str], shapes: Sequence[Shape]) -> str:
    """Write one affine node; the name of its value."""
    op, made = node.op, None
    match op:
        case Reshape():
            made = sheet.reshape(xs[0], op.shape, shapes[0])
        case Rearrange():
            made = rearrange(sheet, op, xs, shapes)
        case Combine():
            made = _combine(sheet, op, xs)
        case Scale():
            made = _scale(sheet, op, xs[0], shapes[0])
        case Product():
            made = _product(sheet, op, xs[0], shapes[0], node.shape)
        case Average():
            made = average(sheet, op, xs[0], shapes[0], node.shape)
        case _:
            pass
    return _dense(sheet, node, xs, shapes) if made is None else made


def _combine(sheet: Sheet, op: Combine, xs: Sequence[str]) -> str:
    total = xs[0] if op.factors[0] == 1 else sheet.node("Mul", xs[0], sheet.const(op.factors[0]))
    for x, factor in zip(xs[1:], op.factors[1:], strict=True):
        part = x if abs(factor) == 1 else sheet.node("Mul", x, sheet.const(abs(factor)))
        total = sheet.node("Add" if factor > 0 else "Sub", total, part)
    return total


def _scale(sheet: Sheet, op: Scale, x: str, before: Shape) -> str:
    if op.settings and before:
        return _norm(sheet, op, x)
    if op.weight is not None:
        negative = op.weight.numel() == 1 and float(op.weight) == -1 and op.weight.dim() == 0
        x = sheet.node("Neg", x) if negative else sheet.node("Mul", x, sheet.const(op.weight))
    if op.divisor is not None:
        x = sheet.node("Div", x, sheet.const(op.divisor))
    return x if op.offset is None else sheet.node("Add", x, sheet.const(op.offset))


def _norm(sheet: Sheet, op: Scale, x: str) -> str:
    """BatchNormalization of the original numbers.

    Its epsilon is a float32; what that leaves of the true one goes to the variance, which then is written as a sum.
    """
    weight, bias, mean, var = (op.settings[k] for k in ("weight", "bias", "mean", "var"))
    eps = torch.tensor(float(op.settings["eps"]), dtype=torch.float64)
    rounded = eps.to(torch.float32).to(torch.float64)
    numbers = (
        sheet.const(weight),
        sheet.const(bias),
        sheet.const(mean),
        sheet.const(var + (eps - rounded), split=True),
    )
    return sheet.node("BatchNormalization", x, *numbers, epsilon=float(rounded))


def _product(sheet: Sheet, op: Product, x: str, before: Shape, after: Shape) -> str | None:
    weight = op.weight
    if op.name.startswith("conv") and op.settings:
        return _convolution(sheet, op, x, before, after)
    if op.call is F.linear and len(before) == 1 and weight.dim() == 2:
        bias = [] if op.offset is None else [sheet.const(op.offset.flatten())]
        return sheet.node("Gemm", x, sheet.const(weight), *bias, transB=1)
    if op.call is F.linear and weight.dim() == 2:
        made = sheet.node("MatMul", x, sheet.const(weight.T))
    elif op.call is torch.matmul:
        made = sheet.node("MatMul", x, sheet.const(weight))
    elif op.name == "matmul":
        made = sheet.node("MatMul", sheet.const(weight), x)
    else:
        return None
    return made if op.offset is None else sheet.node("Add", made, sheet.const(op.offset))


def _convolution(sheet: Sheet, op: Product, x: str, before: Shape, after: Shape) -> str:
    """Conv or ConvTranspose; in double, where onnxruntime has neither, a product with gathered windows."""
    known, kernel = op.settings, list(op.weight.shape[2:])
    opens = before[0] * prod(kernel) * prod(after[1:])
    if sheet.double and opens <= limits.WIDTH:
        return _unfolded(sheet, op, x, before, after)
    bias = [] if op.offset is None else [sheet.const(op.offset.flatten())]
    more = {"output_padding": known["output_padding"]} if known["transposed"] else {}
    return sheet.node(
        "ConvTranspose" if known["transposed"] else "Conv",
        *(x, sheet.const(op.weight), *bias),
        kernel_shape=kernel,
        strides=known["stride"],
        pads=[*known["padding"], *known["padding_end"]],
        dilations=known["dilation"],
        group=known["groups"],
        **more,
    )


def _unfolded(sheet: Sheet, op: Product, x: str, before: Shape, after: Shape) -> str:
    known, groups = op.settings, op.settings["groups"]
    per_dim: list[Tensor] = []
    dims = zip(after[1:], op.weight.shape[2:], known["stride"], known["padding"], known["dilation"], strict=True)
    for out, kernel, stride, padding, dilation in dims:
        to, tap = torch.arange(out)[:, None], torch.arange(kernel)[None] * dilation
        if known["transposed"]:
            reached = to + padding - tap
            per_dim.append(torch.where(reached % stride == 0, reached // stride, torch.full_like(reached, -1)))
        else:
            per_dim.append(to * stride - padding + tap)
    table = grid(per_dim, before[1:])  # (kernel, windows)
    weight = op.weight.flatten(2)
    if known["transposed"]:  # (channels, out / groups, kernel)
        weight = weight.unflatten(0, (groups, -1)).transpose(1, 2)
    else:
        weight = weight.unflatten(0, (groups, -1))
    weight = weight.flatten(2)  # (groups, out / groups, channels / groups * kernel)
    rows = (weight.shape[2], table.shape[1])
    taken = opened(sheet, x, before, table)
    if groups == 1:
        made = sheet.node("MatMul", sheet.const(weight[0]), sheet.reshape(taken, rows))
    else:
        made = sheet.node("MatMul", sheet.const(weight), sheet.reshape(taken, (groups, *rows)))
    made = sheet.reshape(made, after)
    return made if op.offset is None else sheet.node("Add", made, sheet.const(op.offset))


def _dense(sheet: Sheet, node: Node, xs: Sequence[str], shapes: Sequence[Shape]) -> str:
    """The matrix of a node whose structure is not known, found by what it makes of unit vectors."""
    op, sizes = node.op, [prod(s) for s in shapes]
    if not isinstance(op, Affine) or sum(sizes) * prod(node.shape) > DENSE:
        raise UnsupportedError(
            f"{op.title} has no form in ONNX that we know, and is too large to be written as a matrix.",
            nodes=(node.name,),
            where=repr(node),
            hint="Write it with operators that ONNX has: linear, convolution, pooling.",
        )

    def split(rows: Tensor) -> list[Tensor]:
        return [part.reshape(-1, *s) for part, s in zip(rows.split(sizes, 1), shapes, strict=True)]

    total, step = sum(sizes), max(1, STEP // max(sum(sizes), prod(node.shape), 1))
    parts: list[Tensor] = []
    for at in range(0, total, step):
        count = min(step, total - at)
        unit = torch.zeros(count, total, dtype=torch.float64)
        unit[torch.arange(count), torch.arange(at, at + count)] = 1
        parts.append(op.linear(*split(unit)).reshape(count, -1))
    made = sheet.node("MatMul", joined(sheet, xs, shapes), sheet.const(torch.cat(parts)))
    shift = op.evaluate(*split(torch.zeros(1, total, dtype=torch.float64))).reshape(1, -1)
    if bool((shift != 0).any()):
        made = sheet.node("Add", made, sheet.const(shift))
    return sheet.reshape(made, node.shape, (prod(node.shape),))
