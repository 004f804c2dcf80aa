"""Fused passes over patches on a GPU: they replace chains of torch operations, whose launches would cost more.

They decide nothing near a knot: where a value is within its error of one, the general code is used instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .patch import real_tensor
from .timeline import NewPatchBreaks, NodeInput, Timeline, check_drift, to_host

if TYPE_CHECKING:
    from .pointwise import PointwisePatchRule

MAX_KNOTS = 2  # of a function that the kernels evaluate


@cache
def _kernels(device: torch.device) -> Any:
    """The module of kernels; None if they cannot be compiled and run on a device."""
    try:
        kernels: Any = import_module(".gpu_kernels", __package__)
        ends = torch.tensor([0.0, 1.0], dtype=torch.float64, device=device)
        number, index = ends[:1], torch.zeros(1, dtype=torch.int64, device=device)
        low, high, drift = torch.empty(3, 1, dtype=torch.float64, device=device)
        with torch.cuda.device_of(ends):  # kernels are launched on the current device, not on that of their arguments
            kernels.find_ranges[(1, 1)](
                number, index, number, index, index, number, number, ends[1:], ends, low, high, drift, 1
            )
        return kernels if float(high) == 1.0 else None
    except torch.cuda.OutOfMemoryError:  # passes: later there may be memory
        raise
    except Exception:  # noqa: BLE001 Triton is missing, or a driver or compiler that it needs: they fail in many ways
        return None


def fused_kernels(numbers: Tensor) -> Any:
    """The kernels for a tensor; None if there are none for its device and type."""
    return _kernels(numbers.device) if numbers.is_cuda and numbers.dtype == torch.float64 else None


@dataclass(frozen=True, eq=False)
class _Entries:
    """What every kernel reads of a node's input along a segment."""

    kernels: Any  # the module of kernels
    node_input: NodeInput
    rows: Tensor  # (entries + 1, channels) jumps
    timeline: Timeline

    @property
    def shape(self) -> tuple[int, int]:
        """Pixels and channels."""
        return self.node_input.map_shape.pixels, self.node_input.map_shape.channels

    def launch(self, kernel: Any, *arguments: Tensor | int, right: bool = True, **options: int) -> None:
        """Launch a kernel with the entries, the values and slopes at the start, and the alphas of the ends."""
        x, timeline, (pixels, channels) = self.node_input, self.timeline, self.shape
        ends = real_tensor((x.start, x.stop), self.rows.device)
        sides = (x.left, x.right) if right else (x.left,)
        grid = (pixels, -(-channels // self.kernels.CHANNELS.value))
        with torch.cuda.device_of(self.rows):
            kernel[grid](
                self.rows, timeline.order, timeline.alpha, timeline.starts, timeline.counts, *sides, x.slope, ends,
                *arguments, **options,
            )  # fmt: skip


def value_ranges(node_input: NodeInput, rows: Tensor, timeline: Timeline) -> tuple[Tensor, Tensor] | None:
    """The smallest and the largest value of every element along the segment, (pixels, channels); None if not fused."""
    kernels = fused_kernels(rows)
    if kernels is None or node_input.max_drift > node_input.threshold:
        return None
    low, high, drift = torch.empty(3, *node_input.left.shape, dtype=rows.dtype, device=rows.device)
    entries = _Entries(kernels, node_input, rows, timeline)
    entries.launch(kernels.find_ranges, low, high, drift, entries.shape[1])
    check_drift(node_input, float(drift.amax()))
    return low, high


def apply_pointwise(
    rule: PointwisePatchRule, node_input: NodeInput, rows: Tensor, timeline: Timeline
) -> tuple[Tensor, list[NewPatchBreaks]] | None:
    """Evaluate a function of one or two knots along a segment, if no value is near a knot; None otherwise.

    ``rows`` become the jumps of the output. Returns its slope at the start and its new breaks, by knot.
    """
    x, kernels = node_input, fused_kernels(rows)
    if kernels is None or len(rule.knots) > MAX_KNOTS or x.max_drift > x.threshold:
        return None
    entries = _Entries(kernels, x, rows, timeline)
    pixels, channels = entries.shape
    knots = real_tensor(rule.knots, rows.device)
    by_knot = (len(rule.knots), pixels, channels)
    crossings = torch.empty(by_knot, dtype=torch.int32, device=rows.device)
    distance, drift = torch.empty_like(x.left), torch.empty_like(x.left)
    entries.launch(kernels.count_crossings, knots, crossings, distance, drift, channels, pixels, KNOTS=len(rule.knots))
    largest_drift, nearest, *counts = to_host(drift.amax(), distance.amin(), *crossings.flatten(1).sum(1))
    check_drift(x, largest_drift)
    if not nearest > x.threshold:
        return None
    total = int(sum(counts))
    ranks = crossings.flatten().cumsum(0).sub_(crossings.flatten())
    factors = torch.stack(
        [(s if isinstance(s, Tensor) else real_tensor((s,), rows.device)).expand(channels) for s in rule.slopes]
    )
    slope = torch.empty_like(x.slope)
    alpha, signed_slope = rows.new_empty(total), rows.new_empty(total)
    element = ranks.new_empty(total)
    entries.launch(
        kernels.apply_branches, knots, factors, ranks, slope, alpha, element, signed_slope, channels, pixels,
        right=False, KNOTS=len(rule.knots),
    )  # fmt: skip
    new_breaks, at = list[NewPatchBreaks](), 0
    for knot, count in enumerate(map(int, counts)):
        part = slice(at, at + count)
        pixel, channel = element[part] // channels, element[part] % channels
        new_breaks.append(rule.breaks_at(alpha[part], pixel, channel, signed_slope[part], knot))
        at += count
    return slope, new_breaks


def correlate_channels(
    jump: Tensor, weight: Tensor, corners: Tensor, stride: tuple[int, int], dilation: tuple[int, int], out: Tensor
) -> bool:
    """Multiply windows of patches by the taps of a depthwise convolution; False if there is no kernel for it.

    Args:
        jump: (n, rows, columns, channels) patches.
        weight: (kernel rows, kernel columns, channels).
        corners: (n, 2) row and column in each patch at which its first window starts.
        stride: Of the convolution.
        dilation: Of the convolution.
        out: (n, rows, columns, channels) is written.
    """
    kernels = fused_kernels(jump)
    if kernels is None:
        return False
    n, rows, columns, channels = jump.shape
    grid = (
        n,
        -(-out.shape[1] * out.shape[2] // kernels.POSITIONS.value),
        -(-channels // kernels.CHANNELS.value),
    )
    with torch.cuda.device_of(jump):
        kernels.correlate_channels[grid](
            jump.contiguous(), weight, corners.contiguous(), out, rows, columns, out.shape[1], out.shape[2], channels,
            *weight.shape[:2], *stride, *dilation,
        )  # fmt: skip
    return True
