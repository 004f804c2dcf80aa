"""Patches through a matrix: only the rows that a patch covers are multiplied."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import torch
from torch import Tensor

from .combine import match_branches
from .patch import Group, Groups, MapShape, PatchGroup, PointPatch, as_whole_maps, covers, is_whole

DEFAULT_MULTIPLICATIONS = 16  # multiplications for each number that an operator makes, where nothing else is known
MAX_WHOLE_MAP_NUMBERS = 1 << 28  # numbers of whole maps at a time


@dataclass(frozen=True, eq=False)
class LinearRule:
    """A linear layer that reads a whole map as one vector, and gives a vector."""

    weight: Tensor  # (out, channels * rows * columns)
    source_shape: MapShape
    map_shape: MapShape

    @cached_property
    def table(self) -> Tensor:
        """(rows, columns, channels, out)."""
        return self.weight.view(-1, *self.source_shape).permute(2, 3, 1, 0).contiguous()

    def output_size(self, *sizes: tuple[int, int]) -> tuple[int, int]:
        return 1, 1

    def multiplications(self, *sizes: tuple[int, int]) -> float:
        return float(sizes[0][0] * sizes[0][1] * self.source_shape[0] * self.map_shape[0])

    def apply(self, *groups: Groups) -> Groups:
        return {births: self._apply_group(group) for births, group in groups[0].items()}

    def _apply_group(self, group: Group) -> PatchGroup:
        if isinstance(group, PointPatch):
            row = group.pixel * self.source_shape[0] + group.channel
            jump = self.table.view(-1, self.map_shape[0]).index_select(0, row) * group.jump[:, None]
        elif covers(group.size, self.source_shape) or group.jump.is_cuda:  # a GPU would rather multiply zeros than wait
            jump = self._multiply_whole(group)
        else:
            jump = self._multiply_by_position(group)
        return PatchGroup(jump.new_zeros(len(jump), 2, dtype=torch.int64), jump.view(len(jump), 1, 1, -1))

    def vjp(self, groups: Groups) -> list[Groups]:
        """Gradients of the output as gradients of the input: whole maps."""
        return [{births: self._vjp_group(group) for births, group in groups.items()}]

    def _vjp_group(self, group: Group) -> PatchGroup:
        table = self.table.view(-1, self.map_shape[0])
        if isinstance(group, PointPatch):
            jump = table.T.index_select(0, group.channel) * group.jump[:, None]
        else:
            jump = group.jump.view(len(group), -1) @ table.T
        top = torch.zeros(len(group), 2, dtype=torch.int64, device=jump.device)
        return PatchGroup(top, jump.view(len(group), self.source_shape[1], self.source_shape[2], self.source_shape[0]))

    def _multiply_whole(self, patches: PatchGroup) -> Tensor:
        """Whole maps times the whole matrix, some at a time."""
        table = self.table.view(-1, self.map_shape[0])
        step = max(1, MAX_WHOLE_MAP_NUMBERS // len(table))
        parts = [
            PatchGroup(patches.corner[at : at + step], patches.jump[at : at + step])
            for at in range(0, len(patches), step)
        ]
        return torch.cat(
            [as_whole_maps(p, self.source_shape).jump.reshape(len(p), -1) @ table for p in parts or [patches]]
        )

    def _multiply_by_position(self, patches: PatchGroup) -> Tensor:
        """Patches at the same place share their rows of the matrix."""
        jump = patches.jump.new_empty(len(patches), self.map_shape[0])
        order = torch.argsort(patches.corner[:, 0] * (1 << 20) + patches.corner[:, 1])
        places, counts = torch.unique_consecutive(patches.corner[order], dim=0, return_counts=True)
        rows, columns = patches.size
        at = 0
        for (top, left), count in zip(places.tolist(), counts.tolist(), strict=True):
            some = order[at : at + count]
            at += count
            y0, y1 = max(top, 0), min(top + rows, self.source_shape[1])
            x0, x1 = max(left, 0), min(left + columns, self.source_shape[2])
            part = patches.jump.index_select(0, some)[:, y0 - top : y1 - top, x0 - left : x1 - left]
            total = jump.new_zeros(count, self.map_shape[0])
            for y in range(y0, y1):  # a row of the map at a time: its rows of the matrix lie together
                total.addmm_(part[:, y - y0].reshape(count, -1), self.table[y, x0:x1].view(-1, self.map_shape[0]))
            jump.index_copy_(0, some, total)
        return jump


@dataclass(frozen=True, eq=False)
class WholeMapRule:
    """Any other affine operator: patches become whole maps, which it takes as points."""

    linear: object  # (points, *in) -> (points, *out), for each input
    shapes: tuple[tuple[int, ...], ...]
    shape: tuple[int, ...]
    sources: tuple[MapShape, ...]
    map_shape: MapShape

    def output_size(self, *sizes: tuple[int, int]) -> tuple[int, int]:
        return self.map_shape[1], self.map_shape[2]

    def multiplications(self, *sizes: tuple[int, int]) -> float:
        return float(prod(self.shape) * DEFAULT_MULTIPLICATIONS)

    def apply(self, *groups: Groups) -> Groups:
        found: Groups = {}
        for births, parts in match_branches(groups, self.sources).items():
            known = next(p for p in parts if p is not None)
            xs = [
                known.jump.new_zeros(len(known), *self.shapes[k]) if p is None else self._points(p, k)
                for k, p in enumerate(parts)
            ]
            out = self.linear(*xs)  # pyright: ignore
            jump = out.reshape(len(known), *self.map_shape).permute(0, 2, 3, 1).contiguous()
            found[births] = PatchGroup(torch.zeros(len(known), 2, dtype=torch.int64, device=jump.device), jump)
        return found

    def _points(self, group: Group, k: int) -> Tensor:
        full = as_whole_maps(group, self.sources[k])
        return full.jump.permute(0, 3, 1, 2).reshape(len(group), *self.shapes[k])


@dataclass(frozen=True, eq=False)
class ChannelScaleRule:
    """An operator that leaves every element where it is, perhaps times a number for each channel."""

    weight: Tensor | None  # (channels,) or None
    map_shape: MapShape

    def output_size(self, *sizes: tuple[int, int]) -> tuple[int, int]:
        return sizes[0]

    def multiplications(self, *sizes: tuple[int, int]) -> float:
        return float(sizes[0][0] * sizes[0][1] * self.map_shape[0])

    def apply(self, *groups: Groups) -> Groups:
        return groups[0] if self.weight is None else {births: self._scale(g) for births, g in groups[0].items()}

    def vjp(self, groups: Groups) -> list[Groups]:
        """Gradients take the same way."""
        return [self.apply(groups)]

    def _scale(self, group: Group) -> Group:
        if self.weight is None:
            return group
        if isinstance(group, PointPatch):
            return PointPatch(group.pixel, group.channel, group.jump * self.weight[group.channel])
        return group.with_jump(group.jump * self.weight)


__all__ = ["ChannelScaleRule", "LinearRule", "WholeMapRule", "is_whole"]
