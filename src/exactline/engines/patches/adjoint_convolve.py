"""The adjoint of the patch rule for convolutions: transposed convolutions onto the patches of the input."""

from __future__ import annotations

from math import prod

import torch
import torch.nn.functional as F
from torch import Tensor

from ...ops.masks import is_on_host
from .convolve import ConvolutionRule, patches_per_product
from .patch import PatchGroup, crop, is_whole, pair_tensor, zero_outside
from .positions import GroupPositions, read_at
from .taps import read_group


def convolution_adjoint(
    rule: ConvolutionRule, positions: GroupPositions, output: GroupPositions, adjoint: Tensor
) -> Tensor:
    """The adjoint of the input's jumps, (n,) or (n, rows, columns, in).

    Args:
        rule: The rule of the convolution.
        positions: The positions of the input's jumps.
        output: The positions of the output's jumps.
        adjoint: (n, rows, columns, out) the adjoint of the output's jumps.
    """
    if positions.channel is not None:
        return _points_adjoint(rule, positions, output, adjoint)
    if (rule.kernel_size, rule.stride, rule.padding) == ((1, 1), (1, 1), (0, 0)):
        return rule.taps.transpose(adjoint.reshape(-1, adjoint.shape[3])).view(*adjoint.shape[:3], -1)
    source = rule.source_shape
    if output.is_whole(rule.map_shape):
        whole = _transpose_windows(rule, adjoint, (-rule.padding[0], -rule.padding[1]), source.size)
        return read_at(positions, PatchGroup(torch.zeros_like(positions.corner), whole), source)
    span, stride = rule.span, rule.stride
    if stride == (1, 1):
        jump = _transpose_windows(rule, adjoint, (-span[0], -span[1]), positions.size)
    elif not is_on_host(adjoint):
        jump = _transpose_gathered(rule, positions, output, adjoint)
    else:
        jump = adjoint.new_empty(len(adjoint), *positions.size, source.channels)
        padding = pair_tensor(rule.padding, positions.corner.device)
        first = output.corner * pair_tensor(stride, padding.device) - padding - positions.corner
        for top, left in torch.unique(first, dim=0).tolist():  # at most one for each position within the stride
            rows = ((first[:, 0] == top) & (first[:, 1] == left)).nonzero()[:, 0]
            jump.index_copy_(0, rows, _transpose_windows(rule, adjoint[rows], (top, left), positions.size))
    patches = PatchGroup(positions.corner, jump)
    return jump if is_whole(patches, source) else zero_outside(patches, source).jump


def _points_adjoint(
    rule: ConvolutionRule, positions: GroupPositions, output: GroupPositions, adjoint: Tensor
) -> Tensor:
    """(n,) every output that a single pixel reaches, times the tap that reads the pixel."""
    tap = _taps_of_points(rule, positions, output)
    channel = positions.channel if positions.channel is not None else torch.zeros_like(tap[:, 0])
    weights, group = rule.taps.of_channels(channel, tap)
    return weights.mul_(read_group(adjoint.flatten(1, 2), group, rule.groups)).flatten(1).sum(1)


def _taps_of_points(rule: ConvolutionRule, positions: GroupPositions, output: GroupPositions) -> Tensor:
    """(n, outputs) the taps with which outputs read single pixels; the number of taps stands for none."""
    if not output.is_whole(rule.map_shape):
        return rule.point_table[1].index_select(0, positions.flat_pixel(rule.source_shape))
    taps, is_tap = list[Tensor](), list[Tensor]()
    for dim in range(2):
        read = output.corner[:, dim, None] + torch.arange(output.size[dim], device=output.corner.device)
        offset = positions.corner[:, dim, None] + rule.padding[dim] - read * rule.stride[dim]
        tap = offset // rule.dilation[dim]
        is_tap.append((offset % rule.dilation[dim] == 0) & (tap >= 0) & (tap < rule.kernel_size[dim]))
        taps.append(tap)
    area = rule.kernel_size[0] * rule.kernel_size[1]
    tap = taps[0][:, :, None] * rule.kernel_size[1] + taps[1][:, None, :]
    return tap.masked_fill_(~(is_tap[0][:, :, None] & is_tap[1][:, None, :]), area).flatten(1)


def _transpose_windows(rule: ConvolutionRule, adjoint: Tensor, first: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """The transposed convolution of (n, rows, columns, out) onto patches (n, *size, in).

    ``first`` is where the first window starts within the patches.
    """
    if rule.stride == (1, 1) and rule.dilation == (1, 1):
        return _correlate(rule, adjoint, first, size)
    _, rows, columns, channels = adjoint.shape
    out = adjoint.new_zeros(len(adjoint), *size, rule.source_shape.channels)
    step = patches_per_product(adjoint, rows * columns * rule.source_shape.channels * prod(rule.kernel_size))
    for at in range(0, len(adjoint), step):
        part = adjoint[at : at + step]
        taps = rule.taps.transpose(part.reshape(-1, channels)).view(len(part), rows, columns, *rule.kernel_size, -1)
        scattered = _scatter_taps(rule, taps)
        y, x = (_overlap(first[d], scattered.shape[1 + d], size[d]) for d in range(2))
        out[at : at + step, y[0], x[0]] = scattered[:, y[1], x[1]]
    return out


def _transpose_gathered(
    rule: ConvolutionRule, positions: GroupPositions, output: GroupPositions, adjoint: Tensor
) -> Tensor:
    """The transposed convolution of (n, rows, columns, out) onto patches at any positions, (n, *size, in).

    On a GPU this saves the synchronizations that sorting the patches by their phase would take.
    """
    _, rows, columns, channels = adjoint.shape
    first = output.corner * pair_tensor(rule.stride, adjoint.device) - pair_tensor(rule.padding, adjoint.device)
    out = adjoint.new_empty(len(adjoint), *positions.size, rule.source_shape.channels)
    step = patches_per_product(adjoint, rows * columns * rule.source_shape.channels * prod(rule.kernel_size))
    for at in range(0, len(adjoint), step):
        some = slice(at, at + step)
        taps = rule.taps.transpose(adjoint[some].reshape(-1, channels))
        scattered = _scatter_taps(rule, taps.view(-1, rows, columns, *rule.kernel_size, rule.source_shape.channels))
        out[some] = crop(PatchGroup(first[some], scattered), positions.corner[some], positions.size)
    return out


def _overlap(first: int, length: int, size: int) -> tuple[slice, slice]:
    """Where a range of ``length`` from ``first`` lies in one of ``size`` from 0: within the latter, and the former."""
    start, stop = max(first, 0), min(first + length, size)
    return slice(start, max(start, stop)), slice(start - first, max(start, stop) - first)


def _scatter_taps(rule: ConvolutionRule, taps: Tensor) -> Tensor:
    """Add up the taps (n, rows, columns, kernel rows, kernel columns, in) of all outputs where they read."""
    n, rows, columns, kernel_rows, kernel_columns, channels = taps.shape
    (s0, s1), (d0, d1), (m0, m1) = rule.stride, rule.dilation, rule.span
    out = taps.new_zeros(n, (rows - 1) * s0 + m0 + 1, (columns - 1) * s1 + m1 + 1, channels)
    for y in range(kernel_rows):
        for x in range(kernel_columns):
            into = out[:, y * d0 : y * d0 + (rows - 1) * s0 + 1 : s0, x * d1 : x * d1 + (columns - 1) * s1 + 1 : s1]
            into += taps[:, :, :, y, x]
    return out


def _correlate(rule: ConvolutionRule, adjoint: Tensor, first: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """`_transpose_windows` for stride 1: every input is read by one window of outputs, with the taps reversed."""
    kernel, channels = rule.kernel_size, rule.source_shape.channels
    before = [kernel[d] - 1 + first[d] for d in range(2)]
    after = [size[d] - first[d] - adjoint.shape[1 + d] for d in range(2)]
    padded = F.pad(adjoint, (0, 0, before[1], after[1], before[0], after[0])).contiguous()
    batch, row, column, channel = padded.stride()
    shape = (len(adjoint), *size, *kernel, adjoint.shape[3])
    windows = padded.as_strided(shape, (batch, row, column, row, column, channel))
    out = adjoint.new_empty(len(adjoint), *size, channels)
    step = patches_per_product(adjoint, windows[:1].numel())
    for at in range(0, len(adjoint), step):
        rule.taps.reversed.correlate(windows[at : at + step], out[at : at + step])
    return out
