"""Patch rules for linear layers, channel scales, and affine operators in general."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from ...budget import block_bytes, check_deadline
from ...ops.masks import is_on_host
from .combine import match_branches
from .patch import Group, Groups, MapShape, PatchGroup, PointPatch, as_whole_maps, covers

DEFAULT_MULTIPLICATIONS = 16  # per output element, for operators of unknown cost
MAX_GPU_WHOLE_MAP_NUMBERS = 1 << 28  # numbers of whole maps that a GPU multiplies at a time


@dataclass(frozen=True, eq=False)
class LinearRule:
    """A linear layer that flattens a map to a vector and returns a vector."""

    weight: Tensor  # (out, channels * rows * columns)
    source_shape: MapShape
    map_shape: MapShape

    @cached_property
    def pixel_weight(self) -> Tensor:
        """The weight as (rows, columns, channels, out)."""
        if self.source_shape.pixels == 1:
            return self.weight.T[None, None]  # not copied: such matrices can be large
        return self.weight.view(-1, *self.source_shape).permute(2, 3, 1, 0).contiguous()

    @property
    def flat_weight(self) -> Tensor:
        """The weight as (rows * columns * channels, out)."""
        return self.pixel_weight.view(-1, self.map_shape.channels)

    def output_size(self, *sizes: tuple[int, int]) -> tuple[int, int]:
        return 1, 1

    def multiplications(self, *sizes: tuple[int, int]) -> float:
        rows, columns = sizes[0]
        return float(rows * columns * self.source_shape.channels * self.map_shape.channels)

    def apply(self, *groups: Groups) -> Groups:
        return {sources: self._apply_group(group) for sources, group in groups[0].items()}

    def _apply_group(self, group: Group) -> PatchGroup:
        if isinstance(group, PointPatch):
            row = group.pixel * self.source_shape.channels + group.channel
            jump = self.flat_weight.index_select(0, row) * group.jump[:, None]
        elif covers(group.size, self.source_shape) or not is_on_host(group.jump):  # a GPU does not wait for zeros
            jump = self._multiply_whole_maps(group)
        else:
            jump = self._multiply_by_position(group)
        return PatchGroup(jump.new_zeros(len(jump), 2, dtype=torch.int64), jump.view(len(jump), 1, 1, -1))

    def _multiply_whole_maps(self, patches: PatchGroup) -> Tensor:
        """Expand patches to whole maps and multiply by the whole matrix, some at a time; (n, out)."""
        step = _whole_maps_per_block(patches.jump, len(self.flat_weight))
        parts = [patches.rows(slice(at, at + step)) for at in range(0, len(patches), step)]
        return torch.cat(
            [
                as_whole_maps(p, self.source_shape).jump.reshape(len(p), -1) @ self.flat_weight
                for p in parts or [patches]
            ]
        )

    def _multiply_by_position(self, patches: PatchGroup) -> Tensor:
        """Multiply patches with the same corner together, by the rows of the matrix that they cover; (n, out)."""
        jump = patches.jump.new_empty(len(patches), self.map_shape.channels)
        order = torch.argsort(patches.corner[:, 0] * (1 << 20) + patches.corner[:, 1])
        corners, counts = torch.unique_consecutive(patches.corner[order], dim=0, return_counts=True)
        rows, columns = patches.size
        at = 0
        for (top, left), count in zip(corners.tolist(), counts.tolist(), strict=True):
            index = order[at : at + count]
            at += count
            y0, y1 = max(top, 0), min(top + rows, self.source_shape.rows)
            x0, x1 = max(left, 0), min(left + columns, self.source_shape.columns)
            inside = patches.jump.index_select(0, index)[:, y0 - top : y1 - top, x0 - left : x1 - left]
            total = jump.new_zeros(count, self.map_shape.channels)
            for y in range(y0, y1):  # the weights of one row of the map are contiguous
                weight = self.pixel_weight[y, x0:x1].view(-1, self.map_shape.channels)
                total.addmm_(inside[:, y - y0].reshape(count, -1), weight)
            jump.index_copy_(0, index, total)
        return jump


@dataclass(frozen=True, eq=False)
class WholeMapRule:
    """Any other affine operator: patches are expanded to whole maps and passed through it as a batch."""

    linear: Callable[..., Tensor]  # (points, *in) for each input -> (points, *out)
    input_shapes: tuple[tuple[int, ...], ...]
    output_shape: tuple[int, ...]
    input_maps: tuple[MapShape, ...]
    map_shape: MapShape

    def output_size(self, *sizes: tuple[int, int]) -> tuple[int, int]:
        return self.map_shape.size

    def multiplications(self, *sizes: tuple[int, int]) -> float:
        return float(prod(self.output_shape) * DEFAULT_MULTIPLICATIONS)

    def apply(self, *groups: Groups) -> Groups:
        output: Groups = {}
        for sources, branches in match_branches(groups, self.input_maps).items():
            known = next(b for b in branches if b is not None)
            step = _whole_maps_per_block(known.jump, sum(prod(s) for s in (*self.input_shapes, self.output_shape)))
            parts = [self._apply_part(branches, slice(at, at + step)) for at in range(0, max(len(known), 1), step)]
            jump = torch.cat(parts)
            output[sources] = PatchGroup(torch.zeros(len(known), 2, dtype=torch.int64, device=jump.device), jump)
        return output

    def _apply_part(self, branches: list[Group | None], rows: slice) -> Tensor:
        """The slope jumps (n, rows, columns, channels) of some breaks."""
        check_deadline()
        some = [None if b is None else b.rows(rows) for b in branches]
        known = next(b for b in some if b is not None)
        inputs = [
            known.jump.new_zeros(len(known), *self.input_shapes[k]) if b is None else self._as_points(b, k)
            for k, b in enumerate(some)
        ]
        return self.linear(*inputs).reshape(len(known), *self.map_shape).permute(0, 2, 3, 1).contiguous()

    def _as_points(self, group: Group, k: int) -> Tensor:
        """The jumps of a group as a batch (n, *in) for input ``k``."""
        whole = as_whole_maps(group, self.input_maps[k])
        return whole.jump.permute(0, 3, 1, 2).reshape(len(group), *self.input_shapes[k])


def _whole_maps_per_block(like: Tensor, numbers: int) -> int:
    """How many breaks are expanded at a time to whole maps of so many numbers."""
    max_numbers = block_bytes() // like.element_size() if is_on_host(like) else MAX_GPU_WHOLE_MAP_NUMBERS
    return max(1, max_numbers // max(1, numbers))


@dataclass(frozen=True, eq=False)
class ChannelScaleRule:
    """An operator that keeps every element where it is, optionally scaled by a factor per channel."""

    weight: Tensor | None  # (channels,)
    map_shape: MapShape

    def output_size(self, *sizes: tuple[int, int]) -> tuple[int, int]:
        return sizes[0]

    def multiplications(self, *sizes: tuple[int, int]) -> float:
        rows, columns = sizes[0]
        return float(rows * columns * self.map_shape.channels)

    def apply(self, *groups: Groups) -> Groups:
        return groups[0] if self.weight is None else {sources: self._scale(g) for sources, g in groups[0].items()}

    def _scale(self, group: Group) -> Group:
        if self.weight is None:
            return group
        if isinstance(group, PointPatch):
            return PointPatch(group.pixel, group.channel, group.jump * self.weight[group.channel])
        return group.with_jump(group.jump * self.weight)
