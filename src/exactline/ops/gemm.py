"""Convolutions as matrix products: on a GPU, float64 kernels for convolutions reach a fraction of what products do.

Windows are copied out side by side, a few points at a time, and multiplied straight into the output.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

GEMM_DEVICES = frozenset({"cuda"})  # kinds of device where products are so much faster
MAX_UNFOLDED_ELEMENTS = 1 << 25  # numbers that are copied out at a time: 256 MiB
MIN_OUTPUT_CHANNELS = 16  # outputs of a group: below, copying windows costs more than products save
MIN_MULTIPLICATIONS = 1 << 24  # multiplications: below, one kernel is better than several


@dataclass(frozen=True)
class _ConvolutionShape:
    """The sizes of one convolution."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pad: tuple[int, ...]  # as `F.pad` takes it: the last dim first, before and after
    out: tuple[int, ...]  # spatial
    groups: int

    @staticmethod
    def of(x: Tensor, weight: Tensor, known: Mapping[str, Any]) -> _ConvolutionShape:
        """``known``: stride, padding, padding_end and dilation, one number for each spatial dim, and groups."""
        kernel, before, after = tuple(weight.shape[2:]), known["padding"], known["padding_end"]
        sizes = zip(x.shape[2:], kernel, known["stride"], before, after, known["dilation"], strict=True)
        out = tuple((n + p + q - d * (k - 1) - 1) // s + 1 for n, k, s, p, q, d in sizes)
        pad = tuple(n for both in zip(reversed(before), reversed(after), strict=True) for n in both)
        return _ConvolutionShape(kernel, tuple(known["stride"]), tuple(known["dilation"]), pad, out, known["groups"])

    @property
    def is_pointwise(self) -> bool:
        """Whether the windows are the values themselves, in their order."""
        return not any(self.pad) and set(self.kernel) == set(self.stride) == {1}


def convolve_by_gemm(
    x: Tensor,  # (n, channels, *size)
    weight: Tensor,  # (outputs, channels / groups, *kernel)
    bias: Tensor | None,  # (outputs,)
    known: Mapping[str, Any],
) -> Tensor | None:
    """A convolution by products, (n, outputs, *out); None where torch's own is to be taken.

    ``known`` are its settings, one number for each spatial dim, as `Product.settings` has them.
    """
    if x.device.type not in GEMM_DEVICES or x.dtype != torch.float64 or known["transposed"]:
        return None
    if x.requires_grad and torch.is_grad_enabled():
        return None  # products are written in place
    shape = _ConvolutionShape.of(x, weight, known)
    if not _pays_off(x, weight, shape):
        return None
    out = x.new_empty(len(x), len(weight), prod(shape.out))
    matrix = weight.reshape(shape.groups, len(weight) // shape.groups, -1)
    size = (shape.groups, matrix.shape[2], out.shape[2])
    step = len(x) if shape.is_pointwise else min(len(x), MAX_UNFOLDED_ELEMENTS // prod(size))
    held = None if shape.is_pointwise else x.new_empty(step, x.shape[1], *shape.kernel, *shape.out)
    for start in range(0, len(x), step):
        some = x[start : start + step]
        columns = some if held is None else held[: len(some)].copy_(_windows(some, shape))
        columns = columns.reshape(len(some), *size)
        made = out[start : start + step].view(len(some), shape.groups, matrix.shape[1], -1)
        for group in range(shape.groups):
            factor = matrix[group].expand(len(some), -1, -1)
            torch.bmm(factor, columns[:, group], out=made[:, group])
    if bias is not None:
        out += bias[:, None]
    return out.view(len(x), len(weight), *shape.out)


def _pays_off(x: Tensor, weight: Tensor, shape: _ConvolutionShape) -> bool:
    outputs, inputs = len(weight), weight[:1].numel()  # numbers that enter one output
    places = prod(shape.out)
    if min(shape.out) < 1 or len(x) * outputs * inputs * places < MIN_MULTIPLICATIONS:
        return False
    if shape.is_pointwise and shape.groups == 1:
        return False  # torch's own is such a product
    fits = shape.is_pointwise or shape.groups * inputs * places <= MAX_UNFOLDED_ELEMENTS
    return fits and outputs // shape.groups >= MIN_OUTPUT_CHANNELS


def _windows(x: Tensor, shape: _ConvolutionShape) -> Tensor:
    """The windows of some points, (n, channels, *kernel, *out): a view that reads most values several times."""
    padded = F.pad(x, shape.pad) if any(shape.pad) else x
    steps = padded.stride()
    within = tuple(s * d for s, d in zip(steps[2:], shape.dilation, strict=True))
    across = tuple(s * d for s, d in zip(steps[2:], shape.stride, strict=True))
    return padded.as_strided((*x.shape[:2], *shape.kernel, *shape.out), (*steps[:2], *within, *across))
