"""Write affine operators: products, scales and sums; an operator that ONNX lacks becomes a dense matrix."""

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
from .averages import build_window_table, gather_windows, write_average
from .graph import OnnxGraphWriter
from .rearrange import concatenate, write_rearrange

MAX_DENSE_NUMBERS = 2**24  # in the dense matrix of an operator
DENSE_CHUNK_NUMBERS = 2**22  # of such a matrix that are computed at a time


def write_affine(graph: OnnxGraphWriter, node: Node, xs: Sequence[str], shapes: Sequence[Shape]) -> str:
    """Write one affine node, and return the name of its value.

    Args:
        graph: the ONNX graph.
        node: the affine node.
        xs: names of its inputs.
        shapes: of its inputs, without the batch dimension.
    """
    op, output = node.op, None
    match op:
        case Reshape():
            output = graph.reshape(xs[0], op.shape, shapes[0])
        case Rearrange():
            output = write_rearrange(graph, op, xs, shapes)
        case Combine():
            output = _write_combine(graph, op, xs)
        case Scale():
            output = _write_scale(graph, op, xs[0], shapes[0])
        case Product():
            output = _write_product(graph, op, xs[0], shapes[0], node.shape)
        case Average():
            output = write_average(graph, op, xs[0], shapes[0], node.shape)
        case _:
            pass
    return _write_dense(graph, node, xs, shapes) if output is None else output


def _write_combine(graph: OnnxGraphWriter, op: Combine, xs: Sequence[str]) -> str:
    total = xs[0] if op.factors[0] == 1 else graph.add_node("Mul", xs[0], graph.add_constant(op.factors[0]))
    for x, factor in zip(xs[1:], op.factors[1:], strict=True):
        term = x if abs(factor) == 1 else graph.add_node("Mul", x, graph.add_constant(abs(factor)))
        total = graph.add_node("Add" if factor > 0 else "Sub", total, term)
    return total


def _write_scale(graph: OnnxGraphWriter, op: Scale, x: str, before: Shape) -> str:
    if op.settings and before:
        return _write_batch_norm(graph, op, x)
    if op.weight is not None:
        negates = op.weight.numel() == 1 and float(op.weight) == -1 and op.weight.dim() == 0
        x = graph.add_node("Neg", x) if negates else graph.add_node("Mul", x, graph.add_constant(op.weight))
    if op.divisor is not None:
        x = graph.add_node("Div", x, graph.add_constant(op.divisor))
    return x if op.offset is None else graph.add_node("Add", x, graph.add_constant(op.offset))


def _write_batch_norm(graph: OnnxGraphWriter, op: Scale, x: str) -> str:
    """Write BatchNormalization with the statistics of the original layer.

    Its epsilon is a float32; the rest of the true epsilon is added to the variance, which is then written as a sum.
    """
    weight, bias, mean, var = (op.settings[k] for k in ("weight", "bias", "mean", "var"))
    eps = torch.tensor(float(op.settings["eps"]), dtype=torch.float64)
    rounded = eps.to(torch.float32).to(torch.float64)
    numbers = (
        graph.add_constant(weight),
        graph.add_constant(bias),
        graph.add_constant(mean),
        graph.add_constant(var + (eps - rounded), split=True),
    )
    return graph.add_node("BatchNormalization", x, *numbers, epsilon=float(rounded))


def _write_product(graph: OnnxGraphWriter, op: Product, x: str, before: Shape, after: Shape) -> str | None:
    weight = op.weight
    if op.name.startswith("conv") and op.settings:
        return _write_convolution(graph, op, x, before, after)
    if op.call is F.linear and len(before) == 1 and weight.dim() == 2:
        bias = [] if op.offset is None else [graph.add_constant(op.offset.flatten())]
        return graph.add_node("Gemm", x, graph.add_constant(weight), *bias, transB=1)
    if op.call is F.linear and weight.dim() == 2:
        product = graph.add_node("MatMul", x, graph.add_constant(weight.T))
    elif op.call is torch.matmul:
        product = graph.add_node("MatMul", x, graph.add_constant(weight))
    elif op.name == "matmul":
        product = graph.add_node("MatMul", graph.add_constant(weight), x)
    else:
        return None
    return product if op.offset is None else graph.add_node("Add", product, graph.add_constant(op.offset))


def _write_convolution(graph: OnnxGraphWriter, op: Product, x: str, before: Shape, after: Shape) -> str:
    """Write Conv or ConvTranspose; in double, where onnxruntime has neither, a product with gathered windows."""
    settings, kernel = op.settings, list(op.weight.shape[2:])
    window_elements = before[0] * prod(kernel) * prod(after[1:])
    if graph.double and window_elements <= limits.MAX_VALUE_ELEMENTS:
        return _write_unfolded_convolution(graph, op, x, before, after)
    bias = [] if op.offset is None else [graph.add_constant(op.offset.flatten())]
    transposed = settings["transposed"]
    return graph.add_node(
        "ConvTranspose" if transposed else "Conv",
        *(x, graph.add_constant(op.weight), *bias),
        kernel_shape=kernel,
        strides=settings["stride"],
        pads=[*settings["padding"], *settings["padding_end"]],
        dilations=settings["dilation"],
        group=settings["groups"],
        **({"output_padding": settings["output_padding"]} if transposed else {}),
    )


def _write_unfolded_convolution(graph: OnnxGraphWriter, op: Product, x: str, before: Shape, after: Shape) -> str:
    """Write a convolution as a matrix product with the elements of each window."""
    settings, groups = op.settings, op.settings["groups"]
    positions: list[Tensor] = []  # (windows, kernel) in each spatial dimension
    sizes = (after[1:], op.weight.shape[2:], settings["stride"], settings["padding"], settings["dilation"])
    for out, kernel, stride, padding, dilation in zip(*sizes, strict=True):
        window, offset = torch.arange(out)[:, None], torch.arange(kernel)[None] * dilation
        if settings["transposed"]:
            source = window + padding - offset
            positions.append(torch.where(source % stride == 0, source // stride, torch.full_like(source, -1)))
        else:
            positions.append(window * stride - padding + offset)
    table = build_window_table(positions, before[1:])  # (kernel, windows)
    weight = op.weight.flatten(2)
    if settings["transposed"]:  # (channels, out / groups, kernel)
        weight = weight.unflatten(0, (groups, -1)).transpose(1, 2)
    else:
        weight = weight.unflatten(0, (groups, -1))
    weight = weight.flatten(2)  # (groups, out / groups, channels / groups * kernel)
    rows = (weight.shape[2], table.shape[1])
    windows = gather_windows(graph, x, before, table)
    if groups == 1:
        product = graph.add_node("MatMul", graph.add_constant(weight[0]), graph.reshape(windows, rows))
    else:
        product = graph.add_node("MatMul", graph.add_constant(weight), graph.reshape(windows, (groups, *rows)))
    product = graph.reshape(product, after)
    return product if op.offset is None else graph.add_node("Add", product, graph.add_constant(op.offset))


def _write_dense(graph: OnnxGraphWriter, node: Node, xs: Sequence[str], shapes: Sequence[Shape]) -> str:
    """Write an affine node as a dense matrix, which is computed by applying the node to unit vectors."""
    op, sizes = node.op, [prod(s) for s in shapes]
    if not isinstance(op, Affine) or sum(sizes) * prod(node.shape) > MAX_DENSE_NUMBERS:
        raise UnsupportedError(
            f"{op.title} cannot be expressed in ONNX, and is too large to be written as a matrix.",
            nodes=(node.name,),
            where=repr(node),
            hint="Use operators that ONNX has: linear, convolution, pooling.",
        )

    def split(rows: Tensor) -> list[Tensor]:
        return [part.reshape(-1, *s) for part, s in zip(rows.split(sizes, 1), shapes, strict=True)]

    total, step = sum(sizes), max(1, DENSE_CHUNK_NUMBERS // max(sum(sizes), prod(node.shape), 1))
    rows: list[Tensor] = []
    for first in range(0, total, step):
        count = min(step, total - first)
        unit = torch.zeros(count, total, dtype=torch.float64)
        unit[torch.arange(count), torch.arange(first, first + count)] = 1
        rows.append(op.linear(*split(unit)).reshape(count, -1))
    output = graph.add_node("MatMul", concatenate(graph, xs, shapes), graph.add_constant(torch.cat(rows)))
    offset = op.evaluate(*split(torch.zeros(1, total, dtype=torch.float64))).reshape(1, -1)
    if bool((offset != 0).any()):
        output = graph.add_node("Add", output, graph.add_constant(offset))
    return graph.reshape(output, node.shape, (prod(node.shape),))
