"""Slope jumps as patches: the part of a feature map in which the slope changes at a break, and by how much.

A break changes the slope of a feature map only inside its receptive field. Patches of one size are stored together in
a `PatchGroup`. A vector is a map of one pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from math import prod
from typing import NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

WHOLE_MAP_SHARE = 0.5  # share of a map: larger patches are stored as whole maps


class MapShape(NamedTuple):
    """The shape of a feature map."""

    channels: int
    rows: int
    columns: int

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.rows, self.columns

    @property
    def pixels(self) -> int:
        """Number of pixels; pixel ``row * columns + column`` is at (row, column)."""
        return self.rows * self.columns


@dataclass(frozen=True, eq=False)
class PatchGroup:
    """Slope jumps of several breaks, as patches of one size; entries outside the map are zero."""

    corner: Tensor  # (n, 2) row and column of a patch's first pixel, possibly outside the map
    jump: Tensor  # (n, rows, columns, channels)
    pixel_cache: dict[tuple[int, int], Tensor] = field(default_factory=dict)  # by size of map: see `patch_pixels`

    def rows(self, rows: slice) -> PatchGroup:
        """The patches of some breaks."""
        return PatchGroup(self.corner[rows], self.jump[rows])

    def with_jump(self, jump: Tensor) -> PatchGroup:
        """Patches at the same positions with other slope jumps."""
        return PatchGroup(self.corner, jump, self.pixel_cache)

    def __len__(self) -> int:
        return len(self.corner)

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns of every patch."""
        return self.jump.shape[1], self.jump.shape[2]


@dataclass(frozen=True, eq=False)
class PointPatch:
    """Slope jumps of new breaks: one number each, at the unit that breaks."""

    pixel: Tensor  # (n,) row * columns + column
    channel: Tensor  # (n,)
    jump: Tensor  # (n,)

    def rows(self, rows: slice) -> PointPatch:
        """The slope jumps of some breaks."""
        return PointPatch(self.pixel[rows], self.channel[rows], self.jump[rows])

    def __len__(self) -> int:
        return len(self.jump)


@dataclass(frozen=True)
class BreakSource:
    """The breaks that originate from one node."""

    node: int
    count: int


Group: TypeAlias = PatchGroup | PointPatch
Sources: TypeAlias = tuple[BreakSource, ...]  # a group holds the breaks of these nodes, one node after another
Groups: TypeAlias = dict[Sources, Group]  # all slope jumps of one tensor


class AffinePatchRule(Protocol):
    """How an affine operator transforms patches."""

    @property
    def map_shape(self) -> MapShape:
        """The shape of the operator's output."""
        ...

    def apply(self, *groups: Groups) -> Groups:
        """Slope jumps of the output, given those of every input."""
        ...

    def output_size(self, *sizes: tuple[int, int]) -> tuple[int, int]:
        """Rows and columns of an output patch, given those of the input patches."""
        ...

    def multiplications(self, *sizes: tuple[int, int]) -> float:
        """Multiplications per patch, given the sizes of the input patches."""
        ...


def map_shape_of(shape: Sequence[int]) -> MapShape:
    """The map that a tensor of this shape is treated as.

    >>> map_shape_of((8, 4))
    MapShape(channels=8, rows=1, columns=4)
    >>> map_shape_of((20,))
    MapShape(channels=20, rows=1, columns=1)
    """
    match tuple(shape):
        case (channels, rows, columns):
            return MapShape(channels, rows, columns)
        case (channels, columns):
            return MapShape(channels, 1, columns)
        case _:
            return MapShape(prod(shape), 1, 1)


def covers(size: tuple[int, int], map_shape: MapShape) -> bool:
    """Whether patches of this size are so large that they are stored as whole maps."""
    return size[0] * size[1] > WHOLE_MAP_SHARE * map_shape.rows * map_shape.columns


def stored_size(size: tuple[int, int], map_shape: MapShape) -> tuple[int, int]:
    """The size in which patches are stored: their own, or that of the whole map."""
    return map_shape.size if covers(size, map_shape) else size


def is_whole(patches: PatchGroup, map_shape: MapShape) -> bool:
    """Whether the patches are stored as whole maps."""
    return patches.size == map_shape.size


def patch_pixels(patches: PatchGroup, map_shape: MapShape) -> Tensor:
    """The map pixel of every patch pixel, (n, rows * columns); ``map_shape.pixels`` for those outside the map."""
    size = map_shape.size
    if size not in patches.pixel_cache:
        if is_whole(patches, map_shape):
            patches.pixel_cache[size] = torch.arange(map_shape.pixels, device=patches.corner.device).expand(
                len(patches), -1
            )
        else:
            patches.pixel_cache[size] = box_pixels(patches.corner, patches.size, map_shape)
    return patches.pixel_cache[size]


def box_pixels(corner: Tensor, size: tuple[int, int], map_shape: MapShape) -> Tensor:
    """The map pixels of boxes with corners (n, 2), (n, rows * columns); ``map_shape.pixels`` outside the map."""
    row_table, column_table, offset = _pixel_tables(size, map_shape, corner.device)
    y, x = (corner + offset).clamp_(0, len(row_table) - 1).unbind(1)
    pixels = row_table.index_select(0, y)[:, :, None] + column_table.index_select(0, x)[:, None, :]
    return pixels.clamp_(max=map_shape.pixels).flatten(1)


@lru_cache(4096)
def _pixel_tables(size: tuple[int, int], map_shape: MapShape, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """What the rows and columns of a box contribute to its pixel numbers, by position of its corner.

    The third tensor is added to a corner to get its row in the tables. Outside the map, contributions are so large
    that any sum exceeds the last pixel.
    """
    tables: list[Tensor] = []
    for length, stride, extent in ((map_shape.rows, map_shape.columns, size[0]), (map_shape.columns, 1, size[1])):
        last = max(map_shape.size) + max(size)
        steps = torch.arange(-extent, last + extent, device=device)
        inside = (steps >= 0) & (steps < length)
        tables.append((steps * stride).masked_fill_(~inside, map_shape.pixels).unfold(0, extent, 1)[: last + 1])
    return tables[0], tables[1], pair_tensor(size, device)


@lru_cache(4096)
def pair_tensor(numbers: tuple[int, int], device: torch.device) -> Tensor:
    """Two numbers as a tensor (2,), cached."""
    return torch.tensor(numbers, device=device)


@lru_cache(256)
def real_tensor(numbers: tuple[float, ...], device: torch.device) -> Tensor:
    """A few numbers as a float64 tensor (n,), cached: copying them to a GPU would wait for what is under way there."""
    return torch.tensor(numbers, dtype=torch.float64, device=device)


def zero_outside(patches: PatchGroup, map_shape: MapShape) -> PatchGroup:
    """Set entries outside the map to zero, in place, and return the patches."""
    if not is_whole(patches, map_shape):
        outside = patch_pixels(patches, map_shape) == map_shape.pixels
        patches.jump.masked_fill_(outside.view(len(patches), *patches.size, 1), 0.0)
    return patches


def as_patch_group(group: Group, map_shape: MapShape) -> PatchGroup:
    """A group as patches; a `PointPatch` becomes patches of one pixel, zero except for one channel."""
    if isinstance(group, PatchGroup):
        return group
    jump = group.jump.new_zeros(len(group), map_shape.channels)
    jump.scatter_(1, group.channel[:, None], group.jump[:, None])
    corner = torch.stack([group.pixel // map_shape.columns, group.pixel % map_shape.columns], 1)
    return PatchGroup(corner, jump.view(len(group), 1, 1, map_shape.channels))


def as_whole_maps(group: Group, map_shape: MapShape) -> PatchGroup:
    """A group as patches of the size of the map."""
    patches = as_patch_group(group, map_shape)
    if is_whole(patches, map_shape):
        return patches
    channels, rows, columns = map_shape
    n, pixels = len(patches), map_shape.pixels
    index = patch_pixels(patches, map_shape)
    first = torch.arange(n, device=index.device)[:, None] * pixels
    # pixels outside go to an extra row, dropped below
    index = (index + first).masked_fill_(index == pixels, n * pixels)
    full = patches.jump.new_zeros(n * pixels + 1, channels)
    full.index_copy_(0, index.flatten(), patches.jump.reshape(-1, channels))
    return PatchGroup(torch.zeros_like(patches.corner), full[:-1].view(n, rows, columns, channels))


@dataclass(frozen=True, eq=False)
class PatchLayout:
    """The positions of the patches of one group, without their slope jumps."""

    sources: Sources
    corner: Tensor  # (n, 2)
    size: tuple[int, int]
    pixels: Tensor  # (n, rows * columns) see `patch_pixels`


def patch_layout(sources: Sources, patches: PatchGroup, map_shape: MapShape) -> PatchLayout:
    """The layout of a group of patches."""
    return PatchLayout(sources, patches.corner, patches.size, patch_pixels(patches, map_shape))


def regroup(rows: Tensor, layouts: list[PatchLayout], pixel: Tensor, map_shape: MapShape) -> Groups:
    """Split rows of channels, one per patch pixel, into groups again; adjacent layouts of one size become one group.

    Args:
        rows: (k, channels), the pixels of all patches in the order of the layouts.
        layouts: Where the patches are.
        pixel: (k,) the map pixel of each row.
        map_shape: The map that the patches lie on.
    """
    groups: Groups = {}
    at = 0
    for size, adjacent in groupby(layouts, lambda layout: layout.size):
        same_size = list(adjacent)
        sources = tuple(source for layout in same_size for source in layout.sources)
        corner = same_size[0].corner if len(same_size) == 1 else torch.cat([layout.corner for layout in same_size])
        count = len(corner) * size[0] * size[1]
        pixel_cache = {map_shape.size: pixel[at : at + count].view(len(corner), -1)}
        jump = rows[at : at + count].view(len(corner), *size, rows.shape[1])
        groups[sources] = PatchGroup(corner, jump, pixel_cache)
        at += count
    return groups


def rows_by_pixel(point: Tensor, map_shape: MapShape) -> Tensor:
    """A tensor of the map's shape, at one point, as (pixels, channels)."""
    return point.reshape(map_shape.channels, -1).T.contiguous()


def crop(patches: PatchGroup, corner: Tensor, size: tuple[int, int]) -> Tensor:
    """The jumps of patches inside boxes with corners (n, 2), (n, rows, columns, channels); zero outside a patch."""
    n, (rows, columns), channels = len(patches), patches.size, patches.jump.shape[3]
    y = corner[:, 0, None] - patches.corner[:, 0, None] + torch.arange(size[0], device=corner.device)
    x = corner[:, 1, None] - patches.corner[:, 1, None] + torch.arange(size[1], device=corner.device)
    inside = ((y >= 0) & (y < rows))[:, :, None] & ((x >= 0) & (x < columns))[:, None, :]
    index = y.clamp(0, rows - 1)[:, :, None] * columns + x.clamp(0, columns - 1)[:, None, :]
    index = index + torch.arange(n, device=corner.device)[:, None, None] * (rows * columns)
    cropped = patches.jump.reshape(-1, channels).index_select(0, index.flatten()).view(n, *size, channels)
    return cropped.mul_(inside[..., None])
