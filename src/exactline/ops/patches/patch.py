"""Changes of slope as small patches: where each lies on its map, and what it holds there.

A map is (channels, rows, columns); a vector is a map of one pixel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

Grid: TypeAlias = tuple[int, int, int]  # channels, rows, columns
MOSTLY = 0.5  # of a map: patches that cover more are kept as whole maps


@dataclass(frozen=True, eq=False)
class Patches:
    """The changes of slope of some breaks, all of one size; what lies outside of the map is zero."""

    top: Tensor  # (n, 2) row and column of the first pixel, perhaps outside of the map
    jump: Tensor  # (n, rows, columns, channels)

    def __len__(self) -> int:
        return len(self.top)

    @property
    def size(self) -> tuple[int, int]:
        return self.jump.shape[1], self.jump.shape[2]


@dataclass(frozen=True, eq=False)
class Sparks:
    """The changes of slope of breaks that were just born: one number each, at one unit."""

    pixel: Tensor  # (n,) row * columns + column
    channel: Tensor  # (n,)
    jump: Tensor  # (n,)

    def __len__(self) -> int:
        return len(self.jump)


Group: TypeAlias = Patches | Sparks
Groups: TypeAlias = dict[int, Group]  # by the node that bore the breaks; in the order of their birth


class Mover(Protocol):
    """What an affine operator does to patches."""

    @property
    def grid(self) -> Grid:
        """The map of the operator's output."""
        ...

    def move(self, *groups: Groups) -> Groups:
        """The patches of every input as patches of the output."""
        ...

    def size(self, *sizes: tuple[int, int]) -> tuple[int, int]:
        """How large a patch becomes."""
        ...

    def products(self, *sizes: tuple[int, int]) -> float:
        """How many multiplications one patch costs."""
        ...


def grid_of(shape: Sequence[int]) -> Grid:
    """The map that a point's shape is read as."""
    match tuple(shape):
        case (channels, rows, columns):
            return channels, rows, columns
        case (channels, columns):
            return channels, 1, columns
        case _:
            return prod(shape), 1, 1


def covers(size: tuple[int, int], grid: Grid) -> bool:
    """Whether patches of this size had better be whole maps."""
    return size[0] * size[1] > MOSTLY * grid[1] * grid[2]


def kept(size: tuple[int, int], grid: Grid) -> tuple[int, int]:
    """The size of patches as they are kept: their own, or that of the map."""
    return (grid[1], grid[2]) if covers(size, grid) else size


def is_whole(patches: Patches, grid: Grid) -> bool:
    """Whether every patch is the map."""
    return patches.size == (grid[1], grid[2])


def pixels(patches: Patches, grid: Grid) -> Tensor:
    """The pixel of every place of every patch, (n, rows * columns); one past the last for places outside."""
    return pixels_of(patches.top, patches.size, grid)


def pixels_of(top: Tensor, size: tuple[int, int], grid: Grid) -> Tensor:
    """The same for boxes of one size that begin at ``top``."""
    y = top[:, 0, None] + torch.arange(size[0], device=top.device)
    x = top[:, 1, None] + torch.arange(size[1], device=top.device)
    inside = ((y >= 0) & (y < grid[1]))[:, :, None] & ((x >= 0) & (x < grid[2]))[:, None, :]
    places = y[:, :, None] * grid[2] + x[:, None, :]
    return torch.where(inside, places, grid[1] * grid[2]).flatten(1)


def cleared(patches: Patches, grid: Grid) -> Patches:
    """Zero what lies outside of the map; the patches are written."""
    rows, columns = patches.size
    if not is_whole(patches, grid):
        outside = pixels(patches, grid).view(len(patches), rows, columns, 1) == grid[1] * grid[2]
        patches.jump.masked_fill_(outside, 0.0)
    return patches


def patches_of(group: Group, grid: Grid) -> Patches:
    """A group as patches; sparks are one pixel each, zero but for one channel."""
    if isinstance(group, Patches):
        return group
    jump = group.jump.new_zeros(len(group), grid[0])
    jump.scatter_(1, group.channel[:, None], group.jump[:, None])
    top = torch.stack([group.pixel // grid[2], group.pixel % grid[2]], 1)
    return Patches(top, jump.view(len(group), 1, 1, grid[0]))


def whole(group: Group, grid: Grid) -> Patches:
    """Patches as large as the map."""
    patches = patches_of(group, grid)
    channels, rows, columns = grid
    if is_whole(patches, grid):
        return patches
    n, places = len(patches), rows * columns
    at = pixels(patches, grid)
    first = torch.arange(n, device=at.device)[:, None] * places
    at = torch.where(at < places, at + first, n * places)  # what lies outside goes to a row that is dropped
    full = patches.jump.new_zeros(n * places + 1, channels)
    full.index_copy_(0, at.flatten(), patches.jump.reshape(-1, channels))
    return Patches(torch.zeros_like(patches.top), full[:-1].view(n, rows, columns, channels))


def regrouped(rows: Tensor, shapes: dict[int, tuple[Tensor, tuple[int, int]]]) -> Groups:
    """Rows of channels that stand one patch after another, as patches again; ``shapes`` has their tops and sizes."""
    found: Groups = {}
    at = 0
    for node, (top, size) in shapes.items():
        count = len(top) * size[0] * size[1]
        found[node] = Patches(top, rows[at : at + count].view(len(top), *size, rows.shape[1]))
        at += count
    return found


def by_pixel(point: Tensor, grid: Grid) -> Tensor:
    """A point's numbers as (pixels, channels)."""
    return point.reshape(grid[0], -1).T.contiguous()


def boxed(patches: Patches, top: Tensor, size: tuple[int, int]) -> Tensor:
    """What patches hold in boxes (n, rows, columns, channels) that begin at ``top``; zero outside of them."""
    if patches.size == size and bool((patches.top == top).all()):
        return patches.jump
    n, (rows, columns), channels = len(patches), patches.size, patches.jump.shape[3]
    y = top[:, 0, None] - patches.top[:, 0, None] + torch.arange(size[0], device=top.device)
    x = top[:, 1, None] - patches.top[:, 1, None] + torch.arange(size[1], device=top.device)
    inside = ((y >= 0) & (y < rows))[:, :, None] & ((x >= 0) & (x < columns))[:, None, :]
    at = y.clamp(0, rows - 1)[:, :, None] * columns + x.clamp(0, columns - 1)[:, None, :]
    at = at + torch.arange(n, device=top.device)[:, None, None] * (rows * columns)
    found = patches.jump.reshape(-1, channels).index_select(0, at.flatten()).view(n, *size, channels)
    return found.mul_(inside[..., None])
