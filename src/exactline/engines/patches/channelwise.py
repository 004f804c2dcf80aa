"""Patch rule for operators that treat every channel alike: average pooling, upsampling, slicing, padding."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from ...budget import block_bytes
from ...numerics.plan import BYTES_PER_NUMBER
from ...ops.masks import is_on_host
from .patch import (
    Group,
    Groups,
    MapShape,
    PatchGroup,
    as_patch_group,
    as_whole_maps,
    box_pixels,
    covers,
    patch_pixels,
    stored_size,
    zero_outside,
)


@dataclass(frozen=True, eq=False)
class ChannelwiseRule:
    """A linear map between the pixels of the input and of the output, the same for every channel."""

    matrix: Tensor  # (output pixels, input pixels)
    source_shape: MapShape
    map_shape: MapShape

    @cached_property
    def readers(self) -> tuple[Tensor, Tensor]:
        """For rows and for columns: the first and the last output that reads each input, (inputs, 2)."""
        used = (self.matrix != 0).view(*self.map_shape.size, *self.source_shape.size)
        return first_and_last_reader(used.any(3).any(1)), first_and_last_reader(used.any(2).any(0))

    @cached_property
    def padded_matrix(self) -> Tensor:
        """The matrix with a row and a column of zeros for pixels outside the maps."""
        return torch.nn.functional.pad(self.matrix, (0, 1, 0, 1))

    @cached_property
    def reach(self) -> ReceptiveReach:
        """The size of output patches, by size of input patches."""
        return ReceptiveReach(self.readers)

    def output_size(self, *sizes: tuple[int, int]) -> tuple[int, int]:
        return stored_size(self.reach(sizes[0]), self.map_shape)

    def multiplications(self, *sizes: tuple[int, int]) -> float:
        (rows, columns), (out_rows, out_columns) = sizes[0], self.output_size(*sizes)
        return float(rows * columns * out_rows * out_columns * self.map_shape.channels)

    def apply(self, *groups: Groups) -> Groups:
        return {sources: self._apply_group(group) for sources, group in groups[0].items()}

    def _apply_group(self, group: Group) -> PatchGroup:
        patches = as_patch_group(group, self.source_shape)
        size = self.reach(patches.size)
        if covers(size, self.map_shape):
            whole = as_whole_maps(patches, self.source_shape)
            jump = self.matrix.to(whole.jump.dtype) @ whole.jump.reshape(len(whole), -1, self.source_shape.channels)
            return PatchGroup(torch.zeros_like(whole.corner), jump.view(len(whole), *self.map_shape.size, -1))
        corner = first_readers(self.readers, patches.corner)
        output_pixels = box_pixels(corner, size, self.map_shape)
        input_pixels = patch_pixels(patches, self.source_shape)
        table = self.padded_matrix.to(patches.jump.dtype)
        bytes_per_patch = 2 * output_pixels.shape[1] * input_pixels.shape[1] * BYTES_PER_NUMBER  # indices and numbers
        step = max(1, block_bytes() // max(1, bytes_per_patch)) if is_on_host(table) else len(patches)
        jump = patches.jump.new_empty(len(patches), output_pixels.shape[1], self.map_shape.channels)
        for at in range(0, len(patches), max(step, 1)):
            some = slice(at, at + step)
            matrices = table[output_pixels[some, :, None], input_pixels[some, None, :]]  # (n, output, patch pixels)
            torch.matmul(matrices, patches.jump[some].flatten(1, 2), out=jump[some])
        return zero_outside(PatchGroup(corner, jump.view(len(patches), *size, -1)), self.map_shape)


def window_readers(windows: Tensor, source_shape: MapShape, map_shape: MapShape) -> tuple[Tensor, Tensor]:
    """For rows and for columns: the first and the last of some windows of pixels that reads each input, (inputs, 2).

    Args:
        windows: (output pixels, window size) input pixels.
        source_shape: The map of the input.
        map_shape: The map of the output.
    """
    y, x = windows // source_shape.columns, windows % source_shape.columns
    by_row = torch.zeros(map_shape.rows, source_shape.rows, dtype=torch.bool, device=y.device)
    by_column = torch.zeros(map_shape.columns, source_shape.columns, dtype=torch.bool, device=y.device)
    out = torch.arange(len(windows), device=y.device)[:, None].expand_as(y)
    by_row[out // map_shape.columns, y] = True
    by_column[out % map_shape.columns, x] = True
    return first_and_last_reader(by_row), first_and_last_reader(by_column)


def first_and_last_reader(used: Tensor) -> Tensor:
    """The first and the last output that reads each input along one dim, (inputs, 2).

    The first is the minimum over the input and all later ones, the last is the maximum over it and all earlier ones.

    Args:
        used: (outputs, inputs) whether an output reads an input.
    """
    outputs = len(used)
    numbers = torch.arange(outputs, device=used.device)[:, None]
    first = torch.where(used, numbers, outputs).amin(0)
    last = torch.where(used, numbers, -1).amax(0)
    first = first.flip(0).cummin(0).values.flip(0)  # inputs without readers must not widen a patch
    last = last.cummax(0).values
    return torch.stack([first, last], 1)


def first_readers(readers: tuple[Tensor, Tensor], corner: Tensor) -> Tensor:
    """The first output row and column, (n, 2), that read input patches with these corners."""
    return torch.stack([r[corner[:, dim].clamp(0, len(r) - 1), 0] for dim, r in enumerate(readers)], 1)


@dataclass(frozen=True, eq=False)
class ReceptiveReach:
    """The size of output patches: the most output rows and columns that read an input patch anywhere on the map."""

    readers: tuple[Tensor, Tensor]  # for rows and for columns, see `first_and_last_reader`
    cache: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict[tuple[int, int], tuple[int, int]])

    def __call__(self, size: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns of output patches, given those of input patches."""
        if size not in self.cache:
            self.cache[size] = _reach_along(self.readers[0], size[0]), _reach_along(self.readers[1], size[1])
        return self.cache[size]


def _reach_along(readers: Tensor, size: int) -> int:
    """The most outputs that read ``size`` consecutive inputs along one dim."""
    inputs = len(readers)
    starts = torch.arange(-size + 1, inputs, device=readers.device)
    first = readers[starts.clamp(min=0), 0]
    last = readers[(starts + size - 1).clamp(max=inputs - 1), 1]
    return max(1, int((last - first + 1).max()))
