"""Sums with fixed coefficients: pools and reductions, and interpolation as one product for each dim."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from ...network.graph import Shape
from ...ops.affine import Average
from .graph import Sheet


def average(sheet: Sheet, op: Average, x: str, before: Shape, after: Shape) -> str | None:
    """A reduction, a pool or an interpolation; None for any other."""
    name, known = op.name, op.settings
    if name in ("mean", "sum", "nansum") and known:
        return _reduced(sheet, name, x, known["dims"], known["keepdim"])
    if name.startswith("avg_pool") and known:
        return _pool(sheet, op, x, before, after)
    if "adaptive_avg_pool" in name:
        return _adaptive(sheet, x, before, after, int(name[-2]))
    if name.startswith("upsample") and len(before) == len(after):
        return _interpolated(sheet, op, x, before, after)
    return None


def opened(sheet: Sheet, x: str, shape: Shape, table: Tensor) -> str:
    """(N, channels, *size) as (N, channels, kernel, windows); ``table`` (kernel, windows) has -1 for a zero."""
    places = prod(shape[1:])
    rows = sheet.reshape(x, (shape[0], places), shape)
    if bool((table < 0).any()):
        rows = sheet.node("Pad", rows, sheet.ints([0, 0, 0, 0, 0, 1]), sheet.const(0.0), mode="constant")
        table = torch.where(table < 0, torch.full_like(table, places), table)
    return sheet.gather(rows, table, 2)


def grid(per_dim: Sequence[Tensor], size: Sequence[int]) -> Tensor:
    """Flat places (kernel, windows) from those of each dim, (windows, kernel) each; -1 for outside."""
    position, inside = torch.zeros(1, 1, dtype=torch.int64), torch.ones(1, 1, dtype=torch.bool)
    for steps, n in zip(per_dim, size, strict=True):
        valid = (steps >= 0) & (steps < n)
        position = (position[:, None, :, None] * n + steps[None, :, None, :]).flatten(2).flatten(0, 1)
        inside = (inside[:, None, :, None] & valid[None, :, None, :]).flatten(2).flatten(0, 1)
    return torch.where(inside, position, torch.full_like(position, -1)).T.contiguous()


def _reduced(sheet: Sheet, name: str, x: str, dims: Sequence[int], keepdim: bool) -> str:
    axes = [d + 1 for d in dims]
    if name == "mean":
        return sheet.node("ReduceMean", x, axes=axes, keepdims=int(keepdim))
    return sheet.node("ReduceSum", x, sheet.ints(axes), keepdims=int(keepdim))


def _pool(sheet: Sheet, op: Average, x: str, before: Shape, after: Shape) -> str:
    known = op.settings
    kernel, stride, padding = known["kernel"], known["stride"], known["padding"]
    spatial = len(kernel)
    size, out = before[-spatial:], after[-spatial:]
    shape = (prod(before[:-spatial]), *size)
    x = sheet.reshape(x, shape, before)
    dims = list(zip(size, out, kernel, stride, padding, strict=True))
    plain = all(m == (n + 2 * p - k) // s + 1 for n, m, k, s, p in dims)
    if plain and known["divisor"] is None and not sheet.double:
        made = sheet.node(
            *("AveragePool", x),
            kernel_shape=kernel,
            strides=stride,
            pads=[*padding, *padding],
            count_include_pad=int(known["count_include_pad"]),
        )
        return sheet.reshape(made, after, (shape[0], *out))
    table = grid([torch.arange(m)[:, None] * s - p + torch.arange(k) for _, m, k, s, p in dims], size)
    if known["divisor"] is not None:
        counts = torch.full((table.shape[1],), float(known["divisor"]))
    elif known["count_include_pad"]:  # a window counts up to the end of the padding
        counts = torch.ones(1)
        for n, m, k, s, p in dims:
            start = torch.arange(m) * s - p
            counts = (counts[:, None] * ((start + k).clamp(max=n + p) - start)).flatten()
    else:
        counts = (table >= 0).sum(0)
    return _mean(sheet, x, shape, table, counts, after)


def _adaptive(sheet: Sheet, x: str, before: Shape, after: Shape, spatial: int) -> str:
    """From floor(i n / m) to ceil((i + 1) n / m) in every dim."""
    size, out = before[-spatial:], after[-spatial:]
    if prod(out) == 1:
        first = len(before) - spatial + 1
        return sheet.node("ReduceMean", x, axes=list(range(first, first + spatial)), keepdims=1)
    shape = (prod(before[:-spatial]), *size)
    x = sheet.reshape(x, shape, before)
    if not sheet.double and all(n % m == 0 for n, m in zip(size, out, strict=True)):
        kernel = [n // m for n, m in zip(size, out, strict=True)]
        made = sheet.node("AveragePool", x, kernel_shape=kernel, strides=kernel)
        return sheet.reshape(made, after, (shape[0], *out))
    per_dim: list[Tensor] = []
    for n, m in zip(size, out, strict=True):
        i = torch.arange(m)
        start, stop = i * n // m, -(-(i + 1) * n // m)
        steps = start[:, None] + torch.arange(int((stop - start).max()))
        per_dim.append(torch.where(steps < stop[:, None], steps, torch.full_like(steps, -1)))
    table = grid(per_dim, size)
    return _mean(sheet, x, shape, table, (table >= 0).sum(0), after)


def _mean(sheet: Sheet, x: str, shape: Shape, table: Tensor, counts: Tensor, after: Shape) -> str:
    """Sums of windows, each divided by its own count."""
    total = sheet.summed(opened(sheet, x, shape, table), [2])  # (N, channels, windows)
    made = sheet.node("Div", total, sheet.const(counts.to(torch.float64)))
    return sheet.reshape(made, after, (shape[0], len(counts)))


def _interpolated(sheet: Sheet, op: Average, x: str, before: Shape, after: Shape) -> str:
    """A matrix along each dim: they do not depend on one another."""
    shape = list(before)
    for d in range(1, len(before)):
        matrix = _weights(op, before, d)
        if not torch.equal(matrix, torch.eye(before[d], dtype=torch.float64)):
            rows = (prod(shape[:d]), before[d], prod(shape[d + 1 :]))
            made = sheet.node("MatMul", sheet.const(matrix), sheet.reshape(x, rows, shape))
            shape[d] = after[d]
            x = sheet.reshape(made, shape)
    return x


def _weights(op: Average, before: Shape, d: int) -> Tensor:
    """The coefficients along one dim, (out, in): read at the first place of every other dim."""
    size = before[d]
    probe = torch.zeros(size, 1, *before[1:], dtype=torch.float64)
    for i in range(size):
        probe[i].select(d, i).fill_(1)
    out = op.call(probe).movedim(d + 1, 1)
    return out.reshape(size, out.shape[1], -1)[:, :, 0].T.contiguous()
