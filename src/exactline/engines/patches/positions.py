"""The positions of slope jumps on a segment, which the adjoint of a sweep by patches needs, without the jumps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from .patch import (
    Group,
    Groups,
    MapShape,
    PatchGroup,
    PointPatch,
    Sources,
    as_whole_maps,
    box_pixels,
    crop,
    pair_tensor,
)


@dataclass(frozen=True, eq=False)
class GroupPositions:
    """Where the patches of one group are."""

    corner: Tensor  # (n, 2) row and column of a patch's first pixel
    size: tuple[int, int]  # rows and columns of every patch
    channel: Tensor | None  # (n,) of single numbers; None for patches of all channels

    @staticmethod
    def of(group: Group, map_shape: MapShape) -> GroupPositions:
        """The positions of a group."""
        if isinstance(group, PatchGroup):
            return GroupPositions(group.corner, group.size, None)
        corner = torch.stack([group.pixel // map_shape.columns, group.pixel % map_shape.columns], 1)
        return GroupPositions(corner, (1, 1), group.channel)

    def rows(self, rows: slice | Tensor) -> GroupPositions:
        """The positions of some breaks."""
        return GroupPositions(self.corner[rows], self.size, None if self.channel is None else self.channel[rows])

    def __len__(self) -> int:
        return len(self.corner)

    def is_whole(self, map_shape: MapShape) -> bool:
        """Whether every patch is the whole map."""
        return self.channel is None and self.size == map_shape.size

    def pixels(self, map_shape: MapShape) -> Tensor:
        """The map pixel of every patch pixel, (n, rows * columns); ``map_shape.pixels`` outside the map."""
        if self.is_whole(map_shape):
            return torch.arange(map_shape.pixels, device=self.corner.device).expand(len(self), -1)
        return box_pixels(self.corner, self.size, map_shape)

    def flat_pixel(self, map_shape: MapShape) -> Tensor:
        """(n,) the first pixel of every patch."""
        return self.corner[:, 0] * map_shape.columns + self.corner[:, 1]

    def as_group(self, numbers: Tensor, map_shape: MapShape) -> Group:
        """Numbers of the group's shape as a group at its positions."""
        if self.channel is not None:
            return PointPatch(self.flat_pixel(map_shape), self.channel, numbers)
        return PatchGroup(self.corner, numbers)


PositionsBySources: TypeAlias = dict[Sources, GroupPositions]  # of all groups of one tensor
Adjoints: TypeAlias = dict[Sources, Tensor]  # for every group of one tensor, numbers of its jumps' shape


def positions_of(groups: Groups, map_shape: MapShape) -> PositionsBySources:
    """The positions of all groups of a tensor."""
    return {sources: GroupPositions.of(group, map_shape) for sources, group in groups.items()}


def read_at(positions: GroupPositions, patches: PatchGroup, map_shape: MapShape, first_channel: int = 0) -> Tensor:
    """The numbers of larger patches, of the same breaks, at the positions of a group; zero outside of them.

    Args:
        positions: The positions, on a map of the shape ``map_shape``.
        patches: Patches that may have more channels, of which those from ``first_channel`` on are read.
        map_shape: The shape of the map.
        first_channel: The channel of ``patches`` that corresponds to channel 0 of the group.
    """
    jump = patches.jump[..., first_channel : first_channel + map_shape.channels]
    if positions.channel is not None:
        offset = positions.corner - patches.corner
        rows, columns = patches.size
        inside = ((offset >= 0) & (offset < pair_tensor((rows, columns), offset.device))).all(1)
        y, x = offset[:, 0].clamp(0, rows - 1), offset[:, 1].clamp(0, columns - 1)
        index = torch.arange(len(positions), device=offset.device)
        return jump[index, y, x, positions.channel] * inside
    if positions.size == patches.size and (
        positions.is_whole(map_shape) or _are_equal(positions.corner, patches.corner)
    ):
        return jump
    return crop(PatchGroup(patches.corner, jump), positions.corner, positions.size)


def _are_equal(corner: Tensor, other: Tensor) -> bool:
    """Whether two tensors of corners (n, 2) are equal; most are one tensor, and a GPU need not be asked."""
    return corner is other or torch.equal(corner, other)


def whole_adjoint(positions: GroupPositions, adjoint: Tensor, map_shape: MapShape) -> Tensor:
    """The adjoint of a group as whole maps (n, rows, columns, channels), zero outside its patches."""
    return as_whole_maps(positions.as_group(adjoint, map_shape), map_shape).jump
