"""Index tables of windows: which elements each window of a pooling or a reduction contains."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor


def pool_windows(
    size: Sequence[int],  # spatial size of the input
    out: Sequence[int],  # spatial size of the output
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """Windows of a pooling: flat spatial positions (windows, kernel elements).

    Padding is replaced by an element of the window, so that it never wins a maximum. A window that contains nothing
    but padding is -1 throughout.

    >>> pool_windows([4], [2], [2], [2], [0], [1])
    tensor([[0, 1],
            [2, 3]])
    >>> pool_windows([3], [2], [2], [2], [1], [1])
    tensor([[0, 0],
            [1, 2]])
    """
    per_dim = [
        torch.arange(o)[:, None] * s - p + torch.arange(k)[None] * d
        for o, k, s, p, d in zip(out, kernel, stride, padding, dilation, strict=True)
    ]
    return _combine_dims(per_dim, size)


def adaptive_windows(size: Sequence[int], out: Sequence[int]) -> Tensor:
    """Windows of an adaptive pooling: flat spatial positions (windows, elements).

    In a dim of n inputs and m outputs, window i runs from floor(i n / m) to ceil((i + 1) n / m).
    """
    per_dim = []
    for n, m in zip(size, out, strict=True):
        i = torch.arange(m)
        start, stop = i * n // m, -(-(i + 1) * n // m)
        steps = start[:, None] + torch.arange(int((stop - start).max()))[None]
        per_dim.append(torch.where(steps < stop[:, None], steps, torch.full_like(steps, -1)))
    return _combine_dims(per_dim, size)


def repeat_for_channels(windows: Tensor, channels: int, size: Sequence[int]) -> Tensor:
    """Repeat windows (windows, elements) for every channel of a (channels, *size) tensor."""
    offsets = torch.arange(channels)[:, None, None] * prod(size)
    return (windows[None] + offsets).reshape(-1, windows.shape[1])


def reduction_windows(shape: Sequence[int], dims: Sequence[int]) -> Tensor:
    """Windows of a reduction over some dims: one window for each index of the other dims.

    >>> reduction_windows((2, 2), [0])
    tensor([[0, 2],
            [1, 3]])
    """
    positions = torch.arange(prod(shape)).view(shape)
    others = [d for d in range(len(shape)) if d not in dims]
    return positions.permute(*others, *dims).reshape(prod(shape[d] for d in others), -1)


def distinct_members(table: Tensor) -> Tensor:
    """Windows (windows, size) without repeated members; shorter windows repeat their first member."""
    ordered = table.sort(1).values
    repeated = torch.zeros_like(ordered, dtype=torch.bool)
    repeated[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    order = repeated.to(torch.int8).argsort(dim=1, stable=True)
    distinct = torch.where(repeated, ordered[:, :1], ordered).gather(1, order)
    return distinct[:, : int((~repeated).sum(1).max())].contiguous()


def _combine_dims(per_dim: list[Tensor], size: Sequence[int]) -> Tensor:
    """Combine the positions in each dim, (out, kernel) each; those below 0 or beyond the size are padding."""
    position = torch.zeros(1, 1, dtype=torch.int64)
    inside = torch.ones(1, 1, dtype=torch.bool)
    for steps, n in zip(per_dim, size, strict=True):
        valid = (steps >= 0) & (steps < n)
        position = (position[:, None, :, None] * n + steps[None, :, None, :]).flatten(2).flatten(0, 1)
        inside = (inside[:, None, :, None] & valid[None, :, None, :]).flatten(2).flatten(0, 1)
    first = inside.to(torch.int8).argmax(1, keepdim=True)
    table = torch.where(inside, position, position.gather(1, first))
    return torch.where(inside.any(1, keepdim=True), table, torch.full_like(table, -1))
