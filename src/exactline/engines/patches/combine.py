"""Patches of several branches as patches of their sum, or side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from .patch import (
    BreakSource,
    Group,
    Groups,
    MapShape,
    PatchGroup,
    PointPatch,
    as_patch_group,
    as_whole_maps,
    covers,
    crop,
    is_whole,
    pair_tensor,
    stored_size,
)


@dataclass(frozen=True, eq=False)
class AddRule:
    """A sum of branches of one shape, each times a number."""

    factors: tuple[float, ...]
    map_shape: MapShape

    def output_size(self, *sizes: tuple[int, int]) -> tuple[int, int]:
        return _common_size(sizes, self.map_shape)

    def multiplications(self, *sizes: tuple[int, int]) -> float:
        return float(sum(h * w for h, w in sizes) * self.map_shape[0])

    def apply(self, *groups: Groups) -> Groups:
        return {
            births: self._sum(parts) for births, parts in match_branches(groups, [self.map_shape] * len(groups)).items()
        }

    def vjp(self, groups: Groups) -> list[Groups]:
        """Gradients of the sum as gradients of every term."""
        return [{births: _scale(group, f) for births, group in groups.items()} for f in self.factors]

    def _sum(self, parts: list[Group | None]) -> Group:
        terms = [(p, f) for p, f in zip(parts, self.factors, strict=True) if p is not None]
        if len(terms) == 1:
            return _scale(*terms[0])
        tops, jumps = _align([as_patch_group(p, self.map_shape) for p, _ in terms], [self.map_shape] * len(terms))
        total = jumps[0] if terms[0][1] == 1 else jumps[0] * terms[0][1]
        for jump, (_, factor) in zip(jumps[1:], terms[1:], strict=True):
            total = torch.add(total, jump, alpha=factor)
        return PatchGroup(tops, total)


@dataclass(frozen=True, eq=False)
class ConcatRule:
    """Branches side by side, channel after channel."""

    sources: tuple[MapShape, ...]
    map_shape: MapShape

    def output_size(self, *sizes: tuple[int, int]) -> tuple[int, int]:
        return _common_size(sizes, self.map_shape)

    def multiplications(self, *sizes: tuple[int, int]) -> float:
        return float(sum(h * w for h, w in sizes) * self.map_shape[0])

    def apply(self, *groups: Groups) -> Groups:
        return {births: self._concatenate(parts) for births, parts in match_branches(groups, self.sources).items()}

    def _concatenate(self, parts: list[Group | None]) -> Group:
        firsts = [sum(g[0] for g in self.sources[:k]) for k in range(len(self.sources))]
        known = [k for k, p in enumerate(parts) if p is not None]
        only = parts[known[0]]
        if len(known) == 1 and isinstance(only, PointPatch):
            return PointPatch(only.pixel, only.channel + firsts[known[0]], only.jump)
        held = [as_patch_group(p, self.sources[k]) for k, p in enumerate(parts) if p is not None]
        tops, jumps = _align(held, [self.sources[k] for k in known])
        out = jumps[0].new_zeros(*jumps[0].shape[:3], self.map_shape[0])
        for k, jump in zip(known, jumps, strict=True):
            out[..., firsts[k] : firsts[k] + self.sources[k][0]] = jump
        return PatchGroup(tops, out)


def match_branches(
    groups: Sequence[Groups], grids: Sequence[MapShape]
) -> dict[tuple[BreakSource, ...], list[Group | None]]:
    """The groups of several branches side by side: what is one group in any of them is one in all."""
    keys = dict.fromkeys(births for some in groups for births in some)
    order = {birth: place for place, birth in enumerate(dict.fromkeys(birth for births in keys for birth in births))}
    sets: list[set[BreakSource]] = []  # breaks that belong together
    for births in keys:
        apart = [s for s in sets if s.isdisjoint(births)]
        sets = [*apart, set(births).union(*(s for s in sets if not s.isdisjoint(births)))]
    known = [_single(some, grid) for some, grid in zip(groups, grids, strict=True)]
    found: dict[tuple[BreakSource, ...], list[Group | None]] = {}
    for births in sorted((tuple(sorted(s, key=order.__getitem__)) for s in sets), key=lambda b: order[b[0]]):
        found[births] = [
            some[births] if births in some else _splice(births, k, known, grid)
            for k, (some, grid) in enumerate(zip(groups, grids, strict=True))
        ]
    return found


def _splice(
    births: tuple[BreakSource, ...],
    branch: int,
    known: list[dict[BreakSource, Callable[[], PatchGroup]]],
    grid: MapShape,
) -> PatchGroup | None:
    """The patches of some breaks in one branch, zero for those it does not know; None where it knows none of them."""
    slices = {birth: known[branch][birth]() for birth in births if birth in known[branch]}
    if not slices:
        return None
    size = max(p.size[0] for p in slices.values()), max(p.size[1] for p in slices.values())
    like = next(iter(slices.values())).jump
    for birth in births:
        if birth not in slices:  # zero, wherever another branch has it
            top = next(some[birth] for some in known if birth in some)().corner
            slices[birth] = PatchGroup(top, like.new_zeros(birth.count, *size, grid[0]))
    parts = [slices[birth] for birth in births]
    if covers(size, grid):
        parts = [as_whole_maps(p, grid) for p in parts]
        return PatchGroup(torch.cat([p.corner for p in parts]), torch.cat([p.jump for p in parts]))
    jumps = [p.jump if p.size == size else crop(p, p.corner, size) for p in parts]
    return PatchGroup(torch.cat([p.corner for p in parts]), torch.cat(jumps))


def _single(groups: Groups, grid: MapShape) -> dict[BreakSource, Callable[[], PatchGroup]]:
    """How to get at the patches of each node on their own."""
    found: dict[BreakSource, Callable[[], PatchGroup]] = {}
    for births, group in groups.items():
        at = 0
        for birth in births:
            found[birth] = partial(_slice, group, at, birth.count, grid)
            at += birth.count
    return found


def _slice(group: Group, at: int, count: int, grid: MapShape) -> PatchGroup:
    patches = as_patch_group(group, grid)
    return PatchGroup(patches.corner[at : at + count], patches.jump[at : at + count])


def _scale(group: Group, factor: float) -> Group:
    if factor == 1:
        return group
    if isinstance(group, PointPatch):
        return PointPatch(group.pixel, group.channel, group.jump * factor)
    return group.with_jump(group.jump * factor)


def _align(parts: list[PatchGroup], grids: Sequence[MapShape]) -> tuple[Tensor, list[Tensor]]:
    """Patches of the same breaks in boxes that hold them all."""
    if not any(is_whole(p, g) for p, g in zip(parts, grids, strict=True)):
        begins = torch.stack([p.corner for p in parts])
        ends = begins + torch.stack([pair_tensor(p.size, p.corner.device) for p in parts])[:, None]
        top = begins.amin(0)
        rows, columns, *moved = _alignment(ends.amax(0) - top, (begins != top).flatten(1).any(1))
        size = rows or parts[0].size[0], columns or parts[0].size[1]
        if not any(covers(size, g) for g in grids):
            return top, [
                p.jump if p.size == size and not off else crop(p, top, size)
                for p, off in zip(parts, moved, strict=True)
            ]
    held = [as_whole_maps(p, g) for p, g in zip(parts, grids, strict=True)]
    return held[0].corner, [p.jump for p in held]


def _alignment(sizes: Tensor, moved: Tensor) -> list[int]:
    """The largest of sizes (n, 2), and what is told of each part; asked for at once."""
    most = sizes.amax(0) if len(sizes) else sizes.new_zeros(2)
    return torch.cat([most, moved.to(most.dtype)]).tolist()


def _common_size(sizes: tuple[tuple[int, int], ...], grid: MapShape) -> tuple[int, int]:
    size = max(s[0] for s in sizes), max(s[1] for s in sizes)
    return stored_size(size, grid)
