"""Patch rules for operators of several inputs: sums and concatenations of branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from .patch import (
    BreakSource,
    Group,
    Groups,
    MapShape,
    PatchGroup,
    PointPatch,
    Sources,
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
    """A weighted sum of branches of one shape."""

    factors: tuple[float, ...]
    map_shape: MapShape

    def output_size(self, *sizes: tuple[int, int]) -> tuple[int, int]:
        return _common_size(sizes, self.map_shape)

    def multiplications(self, *sizes: tuple[int, int]) -> float:
        return float(sum(rows * columns for rows, columns in sizes) * self.map_shape.channels)

    def apply(self, *groups: Groups) -> Groups:
        matched = match_branches(groups, [self.map_shape] * len(groups))
        return {sources: self._sum(branches) for sources, branches in matched.items()}

    def _sum(self, branches: list[Group | None]) -> Group:
        terms = [(b, f) for b, f in zip(branches, self.factors, strict=True) if b is not None]
        if len(terms) == 1:
            return _scale(*terms[0])
        patches = [as_patch_group(branch, self.map_shape) for branch, _ in terms]
        factors = [factor for _, factor in terms]
        frame, jumps = _align(patches, [self.map_shape] * len(terms))
        total = jumps[0] if factors[0] == 1 else jumps[0] * factors[0]
        for jump, factor in zip(jumps[1:], factors[1:], strict=True):
            total = torch.add(total, jump, alpha=factor)
        return frame.with_jump(total)


@dataclass(frozen=True, eq=False)
class ConcatRule:
    """Branches concatenated along their channels, of which some may then be selected in any order."""

    input_maps: tuple[MapShape, ...]
    map_shape: MapShape
    channels: Tensor | None = None  # (channels,) of the concatenation; None for all of them in order

    def output_size(self, *sizes: tuple[int, int]) -> tuple[int, int]:
        return _common_size(sizes, self.map_shape)

    def multiplications(self, *sizes: tuple[int, int]) -> float:
        return float(sum(rows * columns for rows, columns in sizes) * self.map_shape.channels)

    def apply(self, *groups: Groups) -> Groups:
        matched = match_branches(groups, self.input_maps)
        return {sources: self._concatenate(branches) for sources, branches in matched.items()}

    @cached_property
    def first_channels(self) -> tuple[int, ...]:
        """The first channel of every branch in the concatenation."""
        return tuple(sum(m.channels for m in self.input_maps[:k]) for k in range(len(self.input_maps)))

    @property
    def total_channels(self) -> int:
        """Number of channels of the concatenation."""
        return sum(m.channels for m in self.input_maps)

    @cached_property
    def output_channels(self) -> Tensor | None:
        """(total channels,) where each channel of the concatenation goes, -1 for nowhere; None if one goes twice."""
        if self.channels is None:
            return None
        target = self.channels.new_full((self.total_channels,), -1)
        target[self.channels] = torch.arange(len(self.channels), device=target.device)
        is_used_once = int((target >= 0).sum()) == len(self.channels)
        return target if is_used_once else None

    def _concatenate(self, branches: list[Group | None]) -> Group:
        known = [k for k, b in enumerate(branches) if b is not None]
        only = branches[known[0]]
        keeps_points = self.channels is None or self.output_channels is not None
        if len(known) == 1 and isinstance(only, PointPatch) and keeps_points:
            return self._select_point(only, self.first_channels[known[0]])
        patches = [as_patch_group(b, self.input_maps[k]) for k, b in enumerate(branches) if b is not None]
        frame, jumps = _align(patches, [self.input_maps[k] for k in known])
        if len(self.input_maps) == 1:
            out = jumps[0]
        else:
            out = jumps[0].new_zeros(*jumps[0].shape[:3], self.total_channels)
            for k, jump in zip(known, jumps, strict=True):
                first = self.first_channels[k]
                out[..., first : first + self.input_maps[k].channels] = jump
        return frame.with_jump(out if self.channels is None else out.index_select(3, self.channels))

    def _select_point(self, points: PointPatch, first_channel: int) -> PointPatch:
        """Single numbers in the channels of the output; those of channels that are not selected become zero."""
        channel = points.channel + first_channel
        if self.output_channels is None:
            return PointPatch(points.pixel, channel, points.jump)
        target = self.output_channels[channel]
        return PointPatch(points.pixel, target.clamp(min=0), points.jump * (target >= 0))


def match_branches(groups: Sequence[Groups], map_shapes: Sequence[MapShape]) -> dict[Sources, list[Group | None]]:
    """Regroup the breaks of several branches so that every group holds the same breaks in all of them.

    Returns for each group its patches in every branch; None where a branch has none of its breaks.
    """
    all_sources = dict.fromkeys(sources for branch in groups for sources in branch)
    order = {source: k for k, source in enumerate(dict.fromkeys(s for sources in all_sources for s in sources))}
    unions: list[set[BreakSource]] = []  # disjoint sets of breaks that are in one group in some branch
    for sources in all_sources:
        disjoint = [u for u in unions if u.isdisjoint(sources)]
        unions = [*disjoint, set(sources).union(*(u for u in unions if not u.isdisjoint(sources)))]
    by_source = [_patches_by_source(branch, m) for branch, m in zip(groups, map_shapes, strict=True)]
    matched: dict[Sources, list[Group | None]] = {}
    for sources in sorted((tuple(sorted(u, key=order.__getitem__)) for u in unions), key=lambda s: order[s[0]]):
        matched[sources] = [
            branch[sources] if sources in branch else _assemble_group(sources, k, by_source, map_shape)
            for k, (branch, map_shape) in enumerate(zip(groups, map_shapes, strict=True))
        ]
    return matched


def _assemble_group(
    sources: Sources,
    branch: int,
    by_source: list[dict[BreakSource, Callable[[], PatchGroup]]],
    map_shape: MapShape,
) -> PatchGroup | None:
    """The patches of some breaks in one branch, zero for breaks that only other branches have; None if all are."""
    slices = {s: by_source[branch][s]() for s in sources if s in by_source[branch]}
    if not slices:
        return None
    size = max(p.size[0] for p in slices.values()), max(p.size[1] for p in slices.values())
    like = next(iter(slices.values())).jump
    for source in sources:
        if source not in slices:
            corner = next(patches[source] for patches in by_source if source in patches)().corner
            slices[source] = PatchGroup(corner, like.new_zeros(source.count, *size, map_shape.channels))
    parts = [slices[source] for source in sources]
    if covers(size, map_shape):
        jump = torch.cat([as_whole_maps(p, map_shape).jump for p in parts])
        return PatchGroup(torch.zeros(len(jump), 2, dtype=torch.int64, device=jump.device), jump)
    jumps = [p.jump if p.size == size else crop(p, p.corner, size) for p in parts]
    return PatchGroup(torch.cat([p.corner for p in parts]), torch.cat(jumps))


def _patches_by_source(groups: Groups, map_shape: MapShape) -> dict[BreakSource, Callable[[], PatchGroup]]:
    """By source: a function that slices its patches out of their group."""
    slices: dict[BreakSource, Callable[[], PatchGroup]] = {}
    for sources, group in groups.items():
        at = 0
        for source in sources:
            slices[source] = partial(_slice, group, at, source.count, map_shape)
            at += source.count
    return slices


def _slice(group: Group, at: int, count: int, map_shape: MapShape) -> PatchGroup:
    patches = as_patch_group(group, map_shape)
    return PatchGroup(patches.corner[at : at + count], patches.jump[at : at + count])


def _scale(group: Group, factor: float) -> Group:
    if factor == 1:
        return group
    if isinstance(group, PointPatch):
        return PointPatch(group.pixel, group.channel, group.jump * factor)
    return group.with_jump(group.jump * factor)


def _align(parts: list[PatchGroup], map_shapes: Sequence[MapShape]) -> tuple[PatchGroup, list[Tensor]]:
    """Patches of the same breaks in their common bounding boxes: patches that lie there, and jumps of one size."""
    first = parts[0]
    are_aligned = all(p.corner is first.corner and p.size == first.size for p in parts)
    if are_aligned and (is_whole(first, map_shapes[0]) or not covers(first.size, map_shapes[0])):
        return first, [p.jump for p in parts]
    if not any(is_whole(p, m) for p, m in zip(parts, map_shapes, strict=True)):
        firsts = torch.stack([p.corner for p in parts])
        lasts = firsts + torch.stack([pair_tensor(p.size, p.corner.device) for p in parts])[:, None]
        corner = firsts.amin(0)
        rows, columns, *moved = _read_alignment(lasts.amax(0) - corner, (firsts != corner).flatten(1).any(1))
        size = rows or parts[0].size[0], columns or parts[0].size[1]
        if not any(covers(size, m) for m in map_shapes):
            # the tensor of a part itself where it is the same, which later need not be compared
            corner = next((p.corner for p, m in zip(parts, moved, strict=True) if not m), corner)
            fits = [p.size == size and not m for p, m in zip(parts, moved, strict=True)]
            jumps = [p.jump if fit else crop(p, corner, size) for p, fit in zip(parts, fits, strict=True)]
            frame = parts[fits.index(True)] if any(fits) else PatchGroup(corner, jumps[0])
            return frame, jumps
    whole = [as_whole_maps(p, m) for p, m in zip(parts, map_shapes, strict=True)]
    return whole[0], [p.jump for p in whole]


def _read_alignment(sizes: Tensor, moved: Tensor) -> list[int]:
    """The largest of sizes (n, 2), and whether each part moved, read in one synchronization."""
    largest = sizes.amax(0) if len(sizes) else sizes.new_zeros(2)
    return torch.cat([largest, moved.to(largest.dtype)]).tolist()


def _common_size(sizes: tuple[tuple[int, int], ...], map_shape: MapShape) -> tuple[int, int]:
    size = max(s[0] for s in sizes), max(s[1] for s in sizes)
    return stored_size(size, map_shape)
