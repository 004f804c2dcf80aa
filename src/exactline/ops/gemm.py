"""Convolutions as matrix products (im2col + GEMM), a few points at a time.

On GPUs this is several times faster than float64 convolution kernels: windows are unfolded into columns and multiplied
directly into the output. On CPUs torch does the same, but unfolds all points at once, into many times the memory of the
input; `convolve_in_blocks` gives it a few points at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..budget import check_deadline

GEMM_DEVICES = frozenset({"cuda"})  # types of device on which matrix products are the faster way
MAX_UNFOLDED_ELEMENTS = 1 << 25  # elements unfolded at a time: 256 MiB of float64
MAX_CPU_BLOCK_BYTES = 1 << 22  # bytes that a CPU unfolds at a time for each of its threads; they stay in its cache
MAX_CPU_POINT_BYTES = 1 << 24  # bytes unfolded for one point; larger maps are convolved in strips of rows
MIN_OUTPUT_CHANNELS = 16  # output channels of a group; with fewer, unfolding costs more than the product saves
MIN_MULTIPLICATIONS = 1 << 24  # multiplications of a call; with fewer, several kernel launches cost more than one


@dataclass(frozen=True)
class _ConvolutionShape:
    """The sizes of one convolution."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pad: tuple[int, ...]  # in the order of `F.pad`: last dim first, before and after
    out: tuple[int, ...]  # spatial size of the output
    groups: int

    @staticmethod
    def of(x: Tensor, weight: Tensor, settings: Mapping[str, Any]) -> _ConvolutionShape:
        """Compute the sizes; ``settings`` as in `convolve_by_gemm`."""
        kernel, before, after = tuple(weight.shape[2:]), settings["padding"], settings["padding_end"]
        stride, dilation = tuple(settings["stride"]), tuple(settings["dilation"])
        sizes = zip(x.shape[2:], kernel, stride, before, after, dilation, strict=True)
        out = tuple((n + p + q - d * (k - 1) - 1) // s + 1 for n, k, s, p, q, d in sizes)
        pad = tuple(n for both in zip(reversed(before), reversed(after), strict=True) for n in both)
        return _ConvolutionShape(kernel, stride, dilation, pad, out, settings["groups"])

    @property
    def is_pointwise(self) -> bool:
        """Whether this is a 1x1 convolution, which needs no unfolding."""
        return not any(self.pad) and set(self.kernel) == set(self.stride) == {1}


def convolve_by_gemm(
    x: Tensor,  # (n, channels, *size)
    weight: Tensor,  # (output channels, channels / groups, *kernel)
    bias: Tensor | None,  # (output channels,)
    settings: Mapping[str, Any],
) -> Tensor | None:
    """Convolve by matrix products, to (n, output channels, *out); None where torch's own kernel is the better way.

    ``settings`` has stride, padding, padding_end and dilation with one number for each spatial dim, groups and
    transposed, as in `Product.settings`.
    """
    if x.device.type not in GEMM_DEVICES or x.dtype != torch.float64 or settings["transposed"]:
        return None
    if x.requires_grad and torch.is_grad_enabled():
        return None  # autograd does not follow products that are written into an existing tensor
    shape = _ConvolutionShape.of(x, weight, settings)
    if not _pays_off(x, weight, shape):
        return None
    out = x.new_empty(len(x), len(weight), prod(shape.out))
    matrix = weight.reshape(shape.groups, len(weight) // shape.groups, -1)
    size = (shape.groups, matrix.shape[2], out.shape[2])
    step = len(x) if shape.is_pointwise else min(len(x), MAX_UNFOLDED_ELEMENTS // prod(size))
    buffer = None if shape.is_pointwise else x.new_empty(step, x.shape[1], *shape.kernel, *shape.out)
    for start in range(0, len(x), step):
        batch = x[start : start + step]
        columns = batch if buffer is None else buffer[: len(batch)].copy_(_unfold(batch, shape))
        columns = columns.reshape(len(batch), *size)
        target = out[start : start + step].view(len(batch), shape.groups, matrix.shape[1], -1)
        for group in range(shape.groups):
            factor = matrix[group].expand(len(batch), -1, -1)
            torch.bmm(factor, columns[:, group], out=target[:, group])
    if bias is not None:
        out += bias[:, None]
    return out.view(len(x), len(weight), *shape.out)


def convolve_in_blocks(
    function: Callable[..., Tensor],  # torch's convolution
    x: Tensor,  # (n, channels, *size)
    weight: Tensor,  # (output channels, channels / groups, *kernel)
    bias: Tensor | None,  # (output channels,)
    *,
    keywords: Mapping[str, Any],  # of the function
    settings: Mapping[str, Any],  # as in `convolve_by_gemm`
) -> Tensor:
    """Convolve with torch's kernel; on a CPU in float64 a few points at a time.

    The bits are those of the kernel, except for maps so large that they are convolved in strips.
    """
    if x.device.type != "cpu" or x.dtype != torch.float64 or settings["transposed"] or not len(x):
        return function(x, weight, bias, **keywords)
    if x.requires_grad and torch.is_grad_enabled():
        return function(x, weight, bias, **keywords)  # one node for autograd instead of one for each block
    shape = _ConvolutionShape.of(x, weight, settings)
    if shape.is_pointwise or min(shape.out) < 1:
        return function(x, weight, bias, **keywords)
    bytes_per_point = weight[:1].numel() * prod(shape.out) * x.element_size()  # groups are unfolded one after another
    if bytes_per_point > MAX_CPU_POINT_BYTES:
        strips = min(-(-bytes_per_point // MAX_CPU_POINT_BYTES), shape.out[0])
        return _convolve_strips(function, x, weight, bias, shape=shape, strips=strips)
    # two points at least for each of several threads: they would divide a single point, with other roundings
    threads = torch.get_num_threads()
    step = max(1 if threads == 1 else 2, MAX_CPU_BLOCK_BYTES // bytes_per_point) * threads
    if len(x) <= step:
        return function(x, weight, bias, **keywords)
    out = x.new_empty(len(x), len(weight), *shape.out)
    targets = out.tensor_split(-(-len(x) // step))
    for points, target in zip(x.tensor_split(len(targets)), targets, strict=True):
        check_deadline()
        target.copy_(function(points, weight, bias, **keywords))
    return out


def _convolve_strips(
    function: Callable[..., Tensor],
    x: Tensor,  # (n, channels, *size)
    weight: Tensor,  # (output channels, channels / groups, *kernel)
    bias: Tensor | None,  # (output channels,)
    *,
    shape: _ConvolutionShape,
    strips: int,
) -> Tensor:
    """Convolve point by point and in strips along the first spatial dim, for maps that are too large to be unfolded."""
    out = x.new_empty(len(x), len(weight), *shape.out)
    reach = shape.dilation[0] * (shape.kernel[0] - 1) + 1
    for point, target in zip(x.split(1), out.split(1), strict=True):
        padded = F.pad(point, shape.pad) if any(shape.pad) else point
        at = 0
        for strip in target.tensor_split(strips, 2):
            check_deadline()
            rows = padded[:, :, at * shape.stride[0] : (at + strip.shape[2] - 1) * shape.stride[0] + reach]
            strip.copy_(function(rows, weight, bias, stride=shape.stride, dilation=shape.dilation, groups=shape.groups))
            at += strip.shape[2]
    return out


def _pays_off(x: Tensor, weight: Tensor, shape: _ConvolutionShape) -> bool:
    """Whether matrix products are expected to be faster than torch's convolution."""
    channels, terms = len(weight), weight[:1].numel()
    positions = prod(shape.out)
    if min(shape.out) < 1 or len(x) * channels * terms * positions < MIN_MULTIPLICATIONS:
        return False
    if shape.is_pointwise and shape.groups == 1:
        return False  # torch's own kernel is a matrix product already
    fits = shape.is_pointwise or shape.groups * terms * positions <= MAX_UNFOLDED_ELEMENTS
    return fits and channels // shape.groups >= MIN_OUTPUT_CHANNELS


def unfold_columns(x: Tensor, weight: Tensor, settings: Mapping[str, Any], max_columns: int) -> Tensor | None:
    """The windows of a convolution, (terms, n, *out); None if it has more than ``max_columns`` of them.

    Also None for convolutions with groups and transposed ones. ``x`` and ``settings`` as in `convolve_by_gemm`.
    """
    if settings["transposed"] or settings["groups"] > 1:
        return None
    shape = _ConvolutionShape.of(x, weight, settings)
    if not 0 < len(x) * prod(shape.out) <= max_columns:
        return None
    return _unfold(x, shape).movedim(0, x.dim() - 1).reshape(-1, len(x), *shape.out)


def _unfold(x: Tensor, shape: _ConvolutionShape) -> Tensor:
    """The windows (n, channels, *kernel, *out) of some points, as an overlapping view."""
    padded = F.pad(x, shape.pad) if any(shape.pad) else x
    steps = padded.stride()
    within = tuple(s * d for s, d in zip(steps[2:], shape.dilation, strict=True))
    across = tuple(s * d for s, d in zip(steps[2:], shape.stride, strict=True))
    return padded.as_strided((*x.shape[:2], *shape.kernel, *shape.out), (*steps[:2], *within, *across))
