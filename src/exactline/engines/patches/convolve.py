"""Patch rule for convolutions, by matrix products over the outputs that a patch reaches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil

import torch
import torch.nn.functional as F
from torch import Tensor

from ...ops.masks import is_on_host
from .fused import correlate_channels
from .patch import (
    Group,
    Groups,
    MapShape,
    PatchGroup,
    PointPatch,
    as_whole_maps,
    box_pixels,
    covers,
    is_whole,
    pair_tensor,
    stored_size,
    zero_outside,
)
from .taps import Taps, place_in_group

MAX_UNFOLDED_NUMBERS = {"cpu": 1 << 22, "cuda": 1 << 27}  # by device: numbers of unfolded patches at a time
MAX_PADDING_WASTE = 1.6  # ratio of multiplications with and without padding above which padding is avoided
GPU_FREE_MULTIPLICATIONS = 2e8  # wasted multiplications that a GPU does faster than it launches another product
OUTSIDE_PATCH = 1 << 60  # larger than any pixel number, even after adding two of them


@dataclass(frozen=True, eq=False)
class ConvolutionRule:
    """A convolution with one or two spatial dims, possibly with groups of channels, without its bias.

    The window of an output starts at ``output * stride - padding`` and has a tap every ``dilation`` pixels. A patch
    reaches the outputs whose windows overlap it.
    """

    weight: Tensor  # (out, in / groups, rows, columns)
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    source_shape: MapShape
    map_shape: MapShape
    groups: int = 1

    @property
    def kernel_size(self) -> tuple[int, int]:
        """Rows and columns of taps."""
        return self.weight.shape[2], self.weight.shape[3]

    @cached_property
    def taps(self) -> Taps:
        """The weights as they are multiplied."""
        return Taps.of(self.weight, self.groups)

    @property
    def held_bytes(self) -> int:
        """Bytes of the weights in the orders in which they are multiplied: for patches, and for single pixels."""
        if covers(self.reach((1, 1)), self.map_shape):  # single pixels reach whole maps too
            return self.weight.nbytes
        taps = self.kernel_size[0] * self.kernel_size[1]
        return self.weight.nbytes + self.weight.nbytes * (taps + 1) // taps

    @property
    def span(self) -> tuple[int, int]:
        """Distance from the first tap to the last, in rows and columns."""
        rows, columns = self.kernel_size
        return (rows - 1) * self.dilation[0], (columns - 1) * self.dilation[1]

    def reach(self, size: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns of outputs that a patch of this size can reach."""
        rows, columns = (
            (n - 1 + span) // stride + 1 for n, span, stride in zip(size, self.span, self.stride, strict=True)
        )
        return rows, columns

    def output_size(self, *sizes: tuple[int, int]) -> tuple[int, int]:
        return stored_size(self.reach(sizes[0]), self.map_shape)

    def multiplications(self, *sizes: tuple[int, int]) -> float:
        if sizes[0] == self.source_shape.size:
            return float(self.map_shape.pixels * self.weight.numel())
        rows, columns = sizes[0]
        return rows * columns * self.weight.numel() / (self.stride[0] * self.stride[1])

    def apply(self, *groups: Groups) -> Groups:
        return {sources: self._apply_group(group) for sources, group in groups[0].items()}

    def _apply_group(self, group: Group) -> PatchGroup:
        if isinstance(group, PatchGroup) and self._is_pixelwise:
            return group.with_jump(self._mix_channels(group.jump))
        if isinstance(group, PatchGroup) and is_whole(group, self.source_shape):
            return self._convolve_whole_maps(group)
        reach = self.reach((1, 1) if isinstance(group, PointPatch) else group.size)
        if covers(reach, self.map_shape):
            return self._convolve_whole_maps(as_whole_maps(group, self.source_shape))
        if isinstance(group, PointPatch):
            return self._convolve_points(group, reach)
        return zero_outside(self._convolve_patches(group, reach), self.map_shape)

    @cached_property
    def _is_pixelwise(self) -> bool:
        """Whether every output reads only the pixel at its own position."""
        return (self.kernel_size, self.stride, self.padding) == ((1, 1), (1, 1), (0, 0))

    def _mix_channels(self, jump: Tensor) -> Tensor:
        """The 1x1 convolution of jumps (n, rows, columns, in)."""
        return self.taps.multiply(jump.reshape(-1, 1, 1, jump.shape[3])).view(*jump.shape[:3], -1)

    def _convolve_whole_maps(self, patches: PatchGroup) -> PatchGroup:
        jump = patches.jump.new_empty(len(patches), *self.map_shape.size, self.map_shape.channels)
        corner = torch.zeros_like(patches.corner)
        if not self._correlate_channels(patches, corner, jump):
            self._multiply_padded(jump, patches.jump, (-self.padding[0], -self.padding[1]))
        return PatchGroup(corner, jump)

    def _convolve_points(self, points: PointPatch, reach: tuple[int, int]) -> PatchGroup:
        """Every jump of a single pixel times a slice of the kernel."""
        corner, tap, pixel = (t.index_select(0, points.pixel) for t in self.point_table)
        weights, group = self.taps.of_channels(points.channel, tap)
        jump = place_in_group(weights.mul_(points.jump[:, None, None]), group, self.groups)
        jump = jump.view(len(points), *reach, self.map_shape.channels)
        return PatchGroup(corner, jump, {self.map_shape.size: pixel})

    @cached_property
    def point_table(self) -> tuple[Tensor, Tensor, Tensor]:
        """For every input pixel: the first output it reaches, and the taps and output pixels of all outputs it reaches.

        A tap is numbered by rows, then columns; the number of taps stands for none.
        """
        device, reach = self.weight.device, self.reach((1, 1))
        input_pixels = torch.arange(self.source_shape.pixels, device=device)
        position = torch.stack([input_pixels // self.source_shape.columns, input_pixels % self.source_shape.columns], 1)
        corner = self._first_output(position)
        taps, is_tap = list[Tensor](), list[Tensor]()
        for dim in range(2):
            output = corner[:, dim, None] + torch.arange(reach[dim], device=device)
            offset = position[:, dim, None] + self.padding[dim] - output * self.stride[dim]  # within the window
            tap = offset // self.dilation[dim]
            is_tap.append((offset % self.dilation[dim] == 0) & (tap >= 0) & (tap < self.kernel_size[dim]))
            taps.append(tap)
        tap = (taps[0][:, :, None] * self.kernel_size[1] + taps[1][:, None, :]).flatten(1)
        pixel = box_pixels(corner, reach, self.map_shape)
        reads = (is_tap[0][:, :, None] & is_tap[1][:, None, :]).flatten(1) & (pixel < self.map_shape.pixels)
        return corner, torch.where(reads, tap, self.kernel_size[0] * self.kernel_size[1]), pixel

    def _first_output(self, corner: Tensor) -> Tensor:
        """The first output, (n, 2), whose window can overlap patches with these corners."""
        rows, columns = (p - m + s - 1 for p, m, s in zip(self.padding, self.span, self.stride, strict=True))
        output = corner + pair_tensor((rows, columns), corner.device)
        return output if self.stride == (1, 1) else output // pair_tensor(self.stride, corner.device)

    def _convolve_patches(self, patches: PatchGroup, reach: tuple[int, int]) -> PatchGroup:
        """Convolve patches phase by phase: their position relative to the stride decides where their windows start."""
        corner = self._first_output(patches.corner)
        jump = patches.jump.new_empty(len(patches), *reach, self.map_shape.channels)
        if self._correlate_channels(patches, corner, jump):
            return PatchGroup(corner, jump)
        if self.stride == (1, 1):
            self._multiply_windows(jump, patches.jump, (-self.span[0], -self.span[1]))
            return PatchGroup(corner, jump)
        phase = self._phases(corner, patches.corner)
        if not is_on_host(jump):
            self._multiply_gathered(jump, patches.jump, phase)
            return PatchGroup(corner, jump)
        for k in range(self.stride[0] * self.stride[1]):
            rows = (phase == k).nonzero()[:, 0]
            if not len(rows):
                continue
            part = jump.new_empty(len(rows), *reach, self.map_shape.channels)
            self._multiply_windows(part, patches.jump.index_select(0, rows), self._first_window(k))
            jump.index_copy_(0, rows, part)
        return PatchGroup(corner, jump)

    def _correlate_channels(self, patches: PatchGroup, first_output: Tensor, out: Tensor) -> bool:
        """Convolve every channel by itself, in one pass; False if channels are mixed, or if there is no kernel for it.

        Args:
            patches: The patches.
            first_output: (n, 2) row and column of the first output of each.
            out: (n, rows, columns, channels) is written.
        """
        if not self.taps.is_depthwise:
            return False
        stride, padding = (pair_tensor(pair, first_output.device) for pair in (self.stride, self.padding))
        first = first_output * stride - padding - patches.corner  # of the first window, within the patch
        return correlate_channels(patches.jump, self.taps.channel_weight, first, self.stride, self.dilation, out)

    def _phases(self, first_output: Tensor, corner: Tensor) -> Tensor:
        """(n,) where the first window of each patch starts within it, as a number below the product of the strides."""
        stride = pair_tensor(self.stride, corner.device)
        earliest = pair_tensor((self.padding[0] - self.span[0], self.padding[1] - self.span[1]), corner.device)
        offset = first_output * stride - corner - earliest
        return offset[:, 0] * self.stride[1] + offset[:, 1]

    def _first_window(self, phase: int) -> tuple[int, int]:
        """Row and column within a patch of some phase at which its first window starts."""
        return phase // self.stride[1] - self.span[0], phase % self.stride[1] - self.span[1]

    def _multiply_windows(self, out: Tensor, jump: Tensor, first: tuple[int, int]) -> None:
        """Write the outputs (n, *reach, out) of patches whose first window starts at ``first`` within them."""
        n, rows, columns, channels = jump.shape
        out_rows, out_columns, out_channels = out.shape[1:]
        row_taps = self._taps_inside(0, first[0], rows, out_rows)
        column_taps = self._taps_inside(1, first[1], columns, out_columns)
        needed = sum(map(len, row_taps)) * sum(map(len, column_taps))
        padded = out_rows * out_columns * self.kernel_size[0] * self.kernel_size[1]
        wasted = (padded - needed) * n * channels * out_channels / self.groups / (out_rows * out_columns)
        if padded <= MAX_PADDING_WASTE * needed or (not is_on_host(jump) and wasted < GPU_FREE_MULTIPLICATIONS):
            self._multiply_padded(out, jump, first)
            return
        d0, d1 = self.dilation
        for i, taps_y in enumerate(row_taps):
            for j, taps_x in enumerate(column_taps):
                if not taps_y or not taps_x:
                    out[:, i, j] = 0
                    continue
                y, x = taps_y[0], taps_x[0]
                top, left = first[0] + i * self.stride[0] + y * d0, first[1] + j * self.stride[1] + x * d1
                window = jump[
                    :,
                    top : top + (len(taps_y) - 1) * d0 + 1 : d0,
                    left : left + (len(taps_x) - 1) * d1 + 1 : d1,
                ]
                rows_used, columns_used = slice(y, y + len(taps_y)), slice(x, x + len(taps_x))
                out[:, i, j] = self.taps.multiply(window, rows_used, columns_used)

    def _taps_inside(self, dim: int, first: int, length: int, outputs: int) -> list[range]:
        """For every output along one dim: the taps of its window that fall on a patch of this length."""
        taps: list[range] = []
        for i in range(outputs):
            start = first + i * self.stride[dim]
            low = max(0, ceil(-start / self.dilation[dim]))
            high = min(self.kernel_size[dim] - 1, (length - 1 - start) // self.dilation[dim])
            taps.append(range(low, high + 1))
        return taps

    def _multiply_padded(self, out: Tensor, jump: Tensor, first: tuple[int, int]) -> None:
        """Write the outputs (n, *reach, out) by one product over all windows of zero-padded patches."""
        n, rows, columns, channels = jump.shape
        before = [max(-f, 0) for f in first]
        after = [
            first[d] + (out.shape[1 + d] - 1) * self.stride[d] + self.span[d] + 1 - (rows, columns)[d] for d in range(2)
        ]
        padded = F.pad(jump, (0, 0, before[1], max(after[1], 0), before[0], max(after[0], 0)))
        padded = padded[:, max(first[0], 0) :, max(first[1], 0) :]
        batch, row, column, channel = padded.stride()
        strides = (
            batch,
            row * self.stride[0],
            column * self.stride[1],
            row * self.dilation[0],
            column * self.dilation[1],
            channel,
        )
        shape = (n, out.shape[1], out.shape[2], *self.kernel_size, channels)
        windows = padded.as_strided(shape, strides, padded.storage_offset())
        step = patches_per_product(jump, windows[:1].numel())
        for at in range(0, n, step):
            self.taps.correlate(windows[at : at + step], out[at : at + step])

    def _multiply_gathered(self, out: Tensor, jump: Tensor, phase: Tensor) -> None:
        """Write the outputs (n, *reach, out) of patches of any phases, (n,), by gathering their windows.

        On a GPU this saves the synchronization that sorting the patches by phase would take.
        """
        n, rows, columns, channels = jump.shape
        windows = self._windows((rows, columns), (out.shape[1], out.shape[2]))
        step = patches_per_product(jump, windows.shape[1] * channels)
        for at in range(0, n, step):
            flat = jump[at : at + step].reshape(-1, channels)
            padded = torch.cat([flat, flat.new_zeros(1, channels)])
            first_pixels = torch.arange(0, len(flat), rows * columns, device=jump.device)
            index = windows.index_select(0, phase[at : at + step]).add_(first_pixels[:, None]).clamp_(max=len(flat))
            gathered = padded.index_select(0, index.view(-1)).view(
                *out[at : at + step].shape[:3], *self.kernel_size, -1
            )
            self.taps.correlate(gathered, out[at : at + step])

    @cached_property
    def _window_cache(self) -> dict[tuple[int, int], Tensor]:
        """By size of patches: see `_windows`."""
        return {}

    def _windows(self, size: tuple[int, int], reach: tuple[int, int]) -> Tensor:
        """By phase: the patch pixels that all windows read, (phases, windows * taps); huge outside the patch."""
        if size not in self._window_cache:
            device, phases = self.weight.device, list[Tensor]()
            for k in range(self.stride[0] * self.stride[1]):
                contributions = list[Tensor]()  # of rows and of columns to the pixel number
                for d, first in enumerate(self._first_window(k)):
                    taps = torch.arange(self.kernel_size[d], device=device) * self.dilation[d]
                    at = first + torch.arange(reach[d], device=device)[:, None] * self.stride[d] + taps
                    pixels = at * (size[1] if d == 0 else 1)
                    contributions.append(pixels.masked_fill((at < 0) | (at >= size[d]), OUTSIDE_PATCH))
                by_row, by_column = contributions
                phases.append((by_row[:, None, :, None] + by_column[None, :, None, :]).flatten())
            self._window_cache[size] = torch.stack(phases)
        return self._window_cache[size]


def patches_per_product(jump: Tensor, numbers_per_patch: int) -> int:
    """How many patches to unfold at a time."""
    return max(1, MAX_UNFOLDED_NUMBERS.get(jump.device.type, 1 << 22) // max(1, numbers_per_patch))
