"""Changes of slope as small patches: where each lies on its map, and what it holds there.

A map is (channels, rows, columns); a vector is a map of one pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from math import prod
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

MapShape: TypeAlias = tuple[int, int, int]  # channels, rows, columns
WHOLE_MAP_SHARE = 0.5  # of a map: patches that cover more are kept as whole maps


@dataclass(frozen=True, eq=False)
class PatchGroup:
    """The changes of slope of some breaks, all of one size; what lies outside of the map is zero."""

    corner: Tensor  # (n, 2) row and column of the first pixel, perhaps outside of the map
    jump: Tensor  # (n, rows, columns, channels)
    pixel_cache: dict[tuple[int, int], Tensor] = field(default_factory=dict)  # pixels of a map of this size, once found

    def with_jump(self, jump: Tensor) -> PatchGroup:
        """Other changes of slope at the same places."""
        return PatchGroup(self.corner, jump, self.pixel_cache)

    def __len__(self) -> int:
        return len(self.corner)

    @property
    def size(self) -> tuple[int, int]:
        return self.jump.shape[1], self.jump.shape[2]


@dataclass(frozen=True, eq=False)
class PointPatch:
    """The changes of slope of breaks that were just born: one number each, at one unit."""

    pixel: Tensor  # (n,) row * columns + column
    channel: Tensor  # (n,)
    jump: Tensor  # (n,)

    def __len__(self) -> int:
        return len(self.jump)


@dataclass(frozen=True)
class BreakSource:
    """The breaks of one node."""

    node: int
    count: int


Group: TypeAlias = PatchGroup | PointPatch
Groups: TypeAlias = dict[tuple[BreakSource, ...], Group]  # by the breaks they hold, node after node


class AffinePatchRule(Protocol):
    """What an affine operator does to patches."""

    @property
    def map_shape(self) -> MapShape:
        """The map of the operator's output."""
        ...

    def apply(self, *groups: Groups) -> Groups:
        """The patches of every input as patches of the output."""
        ...

    def output_size(self, *sizes: tuple[int, int]) -> tuple[int, int]:
        """How large a patch becomes."""
        ...

    def multiplications(self, *sizes: tuple[int, int]) -> float:
        """How many multiplications one patch costs."""
        ...


def map_shape_of(shape: Sequence[int]) -> MapShape:
    """The map that a point's shape is read as."""
    match tuple(shape):
        case (channels, rows, columns):
            return channels, rows, columns
        case (channels, columns):
            return channels, 1, columns
        case _:
            return prod(shape), 1, 1


def covers(size: tuple[int, int], grid: MapShape) -> bool:
    """Whether patches of this size had better be whole maps."""
    return size[0] * size[1] > WHOLE_MAP_SHARE * grid[1] * grid[2]


def stored_size(size: tuple[int, int], grid: MapShape) -> tuple[int, int]:
    """The size of patches as they are kept: their own, or that of the map."""
    return (grid[1], grid[2]) if covers(size, grid) else size


def is_whole(patches: PatchGroup, grid: MapShape) -> bool:
    """Whether every patch is the map."""
    return patches.size == (grid[1], grid[2])


def patch_pixels(patches: PatchGroup, grid: MapShape) -> Tensor:
    """The pixel of every place of every patch, (n, rows * columns); one past the last for places outside."""
    area = grid[1], grid[2]
    if area not in patches.pixel_cache:
        if is_whole(patches, grid):
            patches.pixel_cache[area] = torch.arange(area[0] * area[1], device=patches.corner.device).expand(
                len(patches), -1
            )
        else:
            patches.pixel_cache[area] = box_pixels(patches.corner, patches.size, grid)
    return patches.pixel_cache[area]


def box_pixels(top: Tensor, size: tuple[int, int], grid: MapShape) -> Tensor:
    """The same for boxes of one size that begin at ``top``."""
    rows, columns, before = _pixel_tables(size, grid, top.device)
    y, x = (top + before).clamp_(0, len(rows) - 1).unbind(1)
    places = rows.index_select(0, y)[:, :, None] + columns.index_select(0, x)[:, None, :]
    return places.clamp_(max=grid[1] * grid[2]).flatten(1)


@lru_cache(4096)
def _pixel_tables(size: tuple[int, int], grid: MapShape, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """What the rows and the columns of a box add to the number of a pixel, by where it begins; far off outside."""
    places = grid[1] * grid[2]
    found: list[Tensor] = []
    for length, each, here in ((grid[1], grid[2], size[0]), (grid[2], 1, size[1])):
        most = max(grid[1], grid[2]) + max(size)
        steps = torch.arange(-here, most + here, device=device)
        inside = (steps >= 0) & (steps < length)
        found.append(torch.where(inside, steps * each, places).unfold(0, here, 1)[: most + 1])
    return found[0], found[1], pair_tensor(size, device)


@lru_cache(4096)
def pair_tensor(numbers: tuple[int, int], device: torch.device) -> Tensor:
    """Two numbers on a device."""
    return torch.tensor(numbers, device=device)


def zero_outside(patches: PatchGroup, grid: MapShape) -> PatchGroup:
    """Zero what lies outside of the map; the patches are written."""
    if not is_whole(patches, grid):
        outside = patch_pixels(patches, grid) == grid[1] * grid[2]
        patches.jump.masked_fill_(outside.view(len(patches), *patches.size, 1), 0.0)
    return patches


def as_patch_group(group: Group, grid: MapShape) -> PatchGroup:
    """A group as patches; sparks are one pixel each, zero but for one channel."""
    if isinstance(group, PatchGroup):
        return group
    jump = group.jump.new_zeros(len(group), grid[0])
    jump.scatter_(1, group.channel[:, None], group.jump[:, None])
    top = torch.stack([group.pixel // grid[2], group.pixel % grid[2]], 1)
    return PatchGroup(top, jump.view(len(group), 1, 1, grid[0]))


def as_whole_maps(group: Group, grid: MapShape) -> PatchGroup:
    """Patches as large as the map."""
    patches = as_patch_group(group, grid)
    channels, rows, columns = grid
    if is_whole(patches, grid):
        return patches
    n, places = len(patches), rows * columns
    at = patch_pixels(patches, grid)
    first = torch.arange(n, device=at.device)[:, None] * places
    at = torch.where(at < places, at + first, n * places)  # what lies outside goes to a row that is dropped
    full = patches.jump.new_zeros(n * places + 1, channels)
    full.index_copy_(0, at.flatten(), patches.jump.reshape(-1, channels))
    return PatchGroup(torch.zeros_like(patches.corner), full[:-1].view(n, rows, columns, channels))


@dataclass(frozen=True, eq=False)
class PatchLayout:
    """Where the patches of some breaks lie, whatever they hold."""

    sources: tuple[BreakSource, ...]
    corner: Tensor  # (n, 2)
    size: tuple[int, int]
    pixels: Tensor  # (n, rows * columns)


def patch_layout(births: tuple[BreakSource, ...], patches: PatchGroup, grid: MapShape) -> PatchLayout:
    """Where some patches lie on a map."""
    return PatchLayout(births, patches.corner, patches.size, patch_pixels(patches, grid))


def regroup(rows: Tensor, frames: list[PatchLayout], pixel: Tensor, grid: MapShape) -> Groups:
    """Rows of channels that stand one patch after another, as patches again; neighbours of one size become one group.

    ``pixel`` has the pixels of all frames, one after another.
    """
    found: Groups = {}
    at = 0
    for size, some in groupby(frames, lambda frame: frame.size):
        alike = list(some)
        births = tuple(birth for frame in alike for birth in frame.sources)
        top = alike[0].corner if len(alike) == 1 else torch.cat([frame.corner for frame in alike])
        count = len(top) * size[0] * size[1]
        known = {(grid[1], grid[2]): pixel[at : at + count].view(len(top), -1)}
        found[births] = PatchGroup(top, rows[at : at + count].view(len(top), *size, rows.shape[1]), known)
        at += count
    return found


def rows_by_pixel(point: Tensor, grid: MapShape) -> Tensor:
    """A point's numbers as (pixels, channels)."""
    return point.reshape(grid[0], -1).T.contiguous()


def crop(patches: PatchGroup, top: Tensor, size: tuple[int, int]) -> Tensor:
    """What patches hold in boxes (n, rows, columns, channels) that begin at ``top``; zero outside of them."""
    n, (rows, columns), channels = len(patches), patches.size, patches.jump.shape[3]
    y = top[:, 0, None] - patches.corner[:, 0, None] + torch.arange(size[0], device=top.device)
    x = top[:, 1, None] - patches.corner[:, 1, None] + torch.arange(size[1], device=top.device)
    inside = ((y >= 0) & (y < rows))[:, :, None] & ((x >= 0) & (x < columns))[:, None, :]
    at = y.clamp(0, rows - 1)[:, :, None] * columns + x.clamp(0, columns - 1)[:, None, :]
    at = at + torch.arange(n, device=top.device)[:, None, None] * (rows * columns)
    found = patches.jump.reshape(-1, channels).index_select(0, at.flatten()).view(n, *size, channels)
    return found.mul_(inside[..., None])
