"""Patches through operators that treat every channel alike: average pools, upsampling, slices, padding."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

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
    """Every output pixel is a sum of input pixels with fixed coefficients."""

    matrix: Tensor  # (output pixels, input pixels)
    source_shape: MapShape
    map_shape: MapShape

    @cached_property
    def bounds(self) -> tuple[Tensor, Tensor]:
        """For rows, then for columns: the first and the last output that reads each input, (inputs, 2)."""
        used = (self.matrix != 0).view(self.map_shape[1], self.map_shape[2], self.source_shape[1], self.source_shape[2])
        return first_and_last(used.any(3).any(1)), first_and_last(used.any(2).any(0))

    @cached_property
    def table(self) -> Tensor:
        """Coefficients with a row and a column of zeros for what lies outside."""
        return torch.nn.functional.pad(self.matrix, (0, 1, 0, 1))

    @cached_property
    def reach(self) -> ReceptiveReach:
        """How many outputs patches of a size reach."""
        return ReceptiveReach(self.bounds)

    def output_size(self, *sizes: tuple[int, int]) -> tuple[int, int]:
        return stored_size(self.reach(sizes[0]), self.map_shape)

    def multiplications(self, *sizes: tuple[int, int]) -> float:
        reach = self.output_size(*sizes)
        return float(sizes[0][0] * sizes[0][1] * reach[0] * reach[1] * self.map_shape[0])

    def apply(self, *groups: Groups) -> Groups:
        return {births: self._apply_group(group) for births, group in groups[0].items()}

    def _apply_group(self, group: Group) -> PatchGroup:
        patches = as_patch_group(group, self.source_shape)
        reach = self.reach(patches.size)
        if covers(reach, self.map_shape):
            full = as_whole_maps(patches, self.source_shape)
            jump = self.matrix.to(full.jump.dtype) @ full.jump.reshape(len(full), -1, self.source_shape[0])
            return PatchGroup(
                torch.zeros_like(full.corner), jump.view(len(full), self.map_shape[1], self.map_shape[2], -1)
            )
        top = torch.stack([self._first(patches.corner[:, k], k) for k in range(2)], 1)
        out = box_pixels(top, reach, self.map_shape)
        into = patch_pixels(patches, self.source_shape)
        table = self.table.to(patches.jump.dtype)
        mixing = table[out[:, :, None], into[:, None, :]]  # (n, places of the output, places of the patch)
        jump = mixing @ patches.jump.flatten(1, 2)
        return zero_outside(PatchGroup(top, jump.view(len(patches), *reach, -1)), self.map_shape)

    def _first(self, top: Tensor, dim: int) -> Tensor:
        bounds = self.bounds[dim]
        return bounds[top.clamp(0, len(bounds) - 1), 0]


def first_and_last(used: Tensor) -> Tensor:
    """For every input: the first and the last output that reads it or one after, or one before."""
    outputs = len(used)
    numbers = torch.arange(outputs, device=used.device)[:, None]
    first = torch.where(used, numbers, outputs).amin(0)
    last = torch.where(used, numbers, -1).amax(0)
    first = first.flip(0).cummin(0).values.flip(0)  # rows that nothing reads must not widen a patch
    last = last.cummax(0).values
    return torch.stack([first, last], 1)


@dataclass(frozen=True, eq=False)
class ReceptiveReach:
    """The largest numbers of rows and of columns of outputs that boxes reach anywhere, found once for each size."""

    bounds: tuple[Tensor, Tensor]  # for rows, then for columns, as `bounds_of` has them
    known: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict[tuple[int, int], tuple[int, int]])

    def __call__(self, size: tuple[int, int]) -> tuple[int, int]:
        if size not in self.known:
            self.known[size] = _along(self.bounds[0], size[0]), _along(self.bounds[1], size[1])
        return self.known[size]


def _along(bounds: Tensor, size: int) -> int:
    inputs = len(bounds)
    starts = torch.arange(-size + 1, inputs, device=bounds.device)
    first = bounds[starts.clamp(min=0), 0]
    last = bounds[(starts + size - 1).clamp(max=inputs - 1), 1]
    return max(1, int((last - first + 1).max()))
