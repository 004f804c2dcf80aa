"""Patches through operators that treat every channel alike: average pools, upsampling, slices, padding."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from .patch import Grid, Group, Groups, Patches, cleared, covers, kept, patches_of, pixels, pixels_of, whole


@dataclass(frozen=True, eq=False)
class Channelwise:
    """Every output pixel is a sum of input pixels with fixed coefficients."""

    matrix: Tensor  # (output pixels, input pixels)
    source: Grid
    grid: Grid

    @cached_property
    def bounds(self) -> tuple[Tensor, Tensor]:
        """For rows, then for columns: the first and the last output that reads each input, (inputs, 2)."""
        used = (self.matrix != 0).view(self.grid[1], self.grid[2], self.source[1], self.source[2])
        return bounds_of(used.any(3).any(1)), bounds_of(used.any(2).any(0))

    @cached_property
    def table(self) -> Tensor:
        """Coefficients with a row and a column of zeros for what lies outside."""
        return torch.nn.functional.pad(self.matrix, (0, 1, 0, 1))

    @cached_property
    def reach(self) -> Reach:
        """How many outputs patches of a size reach."""
        return Reach(self.bounds)

    def size(self, *sizes: tuple[int, int]) -> tuple[int, int]:
        return kept(self.reach(sizes[0]), self.grid)

    def products(self, *sizes: tuple[int, int]) -> float:
        reach = self.size(*sizes)
        return float(sizes[0][0] * sizes[0][1] * reach[0] * reach[1] * self.grid[0])

    def move(self, *groups: Groups) -> Groups:
        return {births: self._moved(group) for births, group in groups[0].items()}

    def _moved(self, group: Group) -> Patches:
        patches = patches_of(group, self.source)
        reach = self.reach(patches.size)
        if covers(reach, self.grid):
            full = whole(patches, self.source)
            jump = self.matrix.to(full.jump.dtype) @ full.jump.reshape(len(full), -1, self.source[0])
            return Patches(torch.zeros_like(full.top), jump.view(len(full), self.grid[1], self.grid[2], -1))
        top = torch.stack([self._first(patches.top[:, k], k) for k in range(2)], 1)
        out = pixels_of(top, reach, self.grid)
        into = pixels(patches, self.source)
        table = self.table.to(patches.jump.dtype)
        mixing = table[out[:, :, None], into[:, None, :]]  # (n, places of the output, places of the patch)
        jump = mixing @ patches.jump.flatten(1, 2)
        return cleared(Patches(top, jump.view(len(patches), *reach, -1)), self.grid)

    def _first(self, top: Tensor, dim: int) -> Tensor:
        bounds = self.bounds[dim]
        return bounds[top.clamp(0, len(bounds) - 1), 0]


def bounds_of(used: Tensor) -> Tensor:
    """For every input: the first and the last output that reads it or one after, or one before."""
    outputs = len(used)
    numbers = torch.arange(outputs, device=used.device)[:, None]
    first = torch.where(used, numbers, outputs).amin(0)
    last = torch.where(used, numbers, -1).amax(0)
    first = first.flip(0).cummin(0).values.flip(0)  # rows that nothing reads must not widen a patch
    last = last.cummax(0).values
    return torch.stack([first, last], 1)


@dataclass(frozen=True, eq=False)
class Reach:
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
