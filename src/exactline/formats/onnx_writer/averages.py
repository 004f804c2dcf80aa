"""Write averages: pools, reductions, and interpolation as one matrix product for each dimension."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from ...network.graph import Shape
from ...ops.affine import Average
from .graph import OnnxGraphWriter


def write_average(graph: OnnxGraphWriter, op: Average, x: str, before: Shape, after: Shape) -> str | None:
    """Write a reduction, a pool or an interpolation, and return the name of its value; None for any other average."""
    name, settings = op.name, op.settings
    if name in ("mean", "sum", "nansum") and settings:
        return _write_reduction(graph, name, x, settings["dims"], settings["keepdim"])
    if name.startswith("avg_pool") and settings:
        return _write_pool(graph, op, x, before, after)
    if "adaptive_avg_pool" in name:
        return _write_adaptive_pool(graph, x, before, after, int(name[-2]))
    if name.startswith("upsample") and len(before) == len(after):
        return _write_interpolation(graph, op, x, before, after)
    return None


def gather_windows(graph: OnnxGraphWriter, x: str, shape: Shape, table: Tensor) -> str:
    """Gather the elements of each window.

    Args:
        graph: the ONNX graph.
        x: a value (N, channels, *size).
        shape: (channels, *size).
        table: (kernel, windows) flat positions in one channel, -1 for a zero.

    Returns the name of a value (N, channels, kernel, windows).
    """
    pixels = prod(shape[1:])
    rows = graph.reshape(x, (shape[0], pixels), shape)
    if bool((table < 0).any()):
        rows = graph.add_node("Pad", rows, graph.add_ints([0, 0, 0, 0, 0, 1]), graph.add_constant(0.0), mode="constant")
        table = torch.where(table < 0, torch.full_like(table, pixels), table)
    return graph.gather(rows, table, 2)


def build_window_table(per_dim: Sequence[Tensor], size: Sequence[int]) -> Tensor:
    """Combine positions in each dimension to flat positions.

    Args:
        per_dim: (windows, kernel) positions in each spatial dimension.
        size: of each spatial dimension.

    Returns flat positions (kernel, windows), -1 where one is outside.
    """
    flat, is_inside = torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, 1, dtype=torch.bool)
    for positions, n in zip(per_dim, size, strict=True):
        valid = (positions >= 0) & (positions < n)
        flat = (flat[:, None, :, None] * n + positions[None, :, None, :]).flatten(2).flatten(0, 1)
        is_inside = (is_inside[:, None, :, None] & valid[None, :, None, :]).flatten(2).flatten(0, 1)
    return torch.where(is_inside, flat, torch.full_like(flat, -1)).T.contiguous()


def _write_reduction(graph: OnnxGraphWriter, name: str, x: str, dims: Sequence[int], keepdim: bool) -> str:
    axes = [d + 1 for d in dims]
    if name == "mean":
        return graph.add_node("ReduceMean", x, axes=axes, keepdims=int(keepdim))
    return graph.add_node("ReduceSum", x, graph.add_ints(axes), keepdims=int(keepdim))


def _write_pool(graph: OnnxGraphWriter, op: Average, x: str, before: Shape, after: Shape) -> str:
    settings = op.settings
    kernel, stride, padding = settings["kernel"], settings["stride"], settings["padding"]
    spatial = len(kernel)
    size, out = before[-spatial:], after[-spatial:]
    shape = (prod(before[:-spatial]), *size)
    x = graph.reshape(x, shape, before)
    dims = list(zip(size, out, kernel, stride, padding, strict=True))
    rounds_down = all(m == (n + 2 * p - k) // s + 1 for n, m, k, s, p in dims)  # without ceil_mode
    if rounds_down and settings["divisor"] is None and not graph.double:
        output = graph.add_node(
            *("AveragePool", x),
            kernel_shape=kernel,
            strides=stride,
            pads=[*padding, *padding],
            count_include_pad=int(settings["count_include_pad"]),
        )
        return graph.reshape(output, after, (shape[0], *out))
    table = build_window_table([torch.arange(m)[:, None] * s - p + torch.arange(k) for _, m, k, s, p in dims], size)
    if settings["divisor"] is not None:
        counts = torch.full((table.shape[1],), float(settings["divisor"]))
    elif settings["count_include_pad"]:  # a window counts up to the end of the padding
        counts = torch.ones(1)
        for n, m, k, s, p in dims:
            start = torch.arange(m) * s - p
            counts = (counts[:, None] * ((start + k).clamp(max=n + p) - start)).flatten()
    else:
        counts = (table >= 0).sum(0)
    return _write_window_means(graph, x, shape, table, counts, after)


def _write_adaptive_pool(graph: OnnxGraphWriter, x: str, before: Shape, after: Shape, spatial: int) -> str:
    """Write a pool whose window i of m goes from floor(i n / m) to ceil((i + 1) n / m) in every dimension."""
    size, out = before[-spatial:], after[-spatial:]
    if prod(out) == 1:
        first = len(before) - spatial + 1
        return graph.add_node("ReduceMean", x, axes=list(range(first, first + spatial)), keepdims=1)
    shape = (prod(before[:-spatial]), *size)
    x = graph.reshape(x, shape, before)
    if not graph.double and all(n % m == 0 for n, m in zip(size, out, strict=True)):
        kernel = [n // m for n, m in zip(size, out, strict=True)]
        output = graph.add_node("AveragePool", x, kernel_shape=kernel, strides=kernel)
        return graph.reshape(output, after, (shape[0], *out))
    per_dim: list[Tensor] = []
    for n, m in zip(size, out, strict=True):
        i = torch.arange(m)
        start, stop = i * n // m, -(-(i + 1) * n // m)
        positions = start[:, None] + torch.arange(int((stop - start).max()))
        per_dim.append(torch.where(positions < stop[:, None], positions, torch.full_like(positions, -1)))
    table = build_window_table(per_dim, size)
    return _write_window_means(graph, x, shape, table, (table >= 0).sum(0), after)


def _write_window_means(
    graph: OnnxGraphWriter, x: str, shape: Shape, table: Tensor, counts: Tensor, after: Shape
) -> str:
    """Write the sum of each window, divided by its count, (windows,)."""
    total = graph.reduce_sum(gather_windows(graph, x, shape, table), [2])  # (N, channels, windows)
    means = graph.add_node("Div", total, graph.add_constant(counts.to(torch.float64)))
    return graph.reshape(means, after, (shape[0], len(counts)))


def _write_interpolation(graph: OnnxGraphWriter, op: Average, x: str, before: Shape, after: Shape) -> str:
    """Write an interpolation as one matrix product for each dimension, which are independent of one another."""
    shape = list(before)
    for d in range(1, len(before)):
        matrix = _find_interpolation_weights(op, before, d)
        if not torch.equal(matrix, torch.eye(before[d], dtype=torch.float64)):
            rows = (prod(shape[:d]), before[d], prod(shape[d + 1 :]))
            product = graph.add_node("MatMul", graph.add_constant(matrix), graph.reshape(x, rows, shape))
            shape[d] = after[d]
            x = graph.reshape(product, shape)
    return x


def _find_interpolation_weights(op: Average, before: Shape, d: int) -> Tensor:
    """The coefficients along one dimension, (out, in), computed on one-hot inputs."""
    size = before[d]
    one_hot = torch.zeros(size, 1, *before[1:], dtype=torch.float64)
    for i in range(size):
        one_hot[i].select(d, i).fill_(1)
    out = op.call(one_hot).movedim(d + 1, 1)
    return out.reshape(size, out.shape[1], -1)[:, :, 0].T.contiguous()
