"""Patches of several branches as patches of their sum, or side by side."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .patch import Grid, Group, Groups, Patches, Sparks, boxed, covers, kept, patches_of, whole


@dataclass(frozen=True, eq=False)
class Add:
    """A sum of branches of one shape, each times a number."""

    factors: tuple[float, ...]
    grid: Grid

    def size(self, *sizes: tuple[int, int]) -> tuple[int, int]:
        return _common(sizes, self.grid)

    def products(self, *sizes: tuple[int, int]) -> float:
        return float(sum(h * w for h, w in sizes) * self.grid[0])

    def move(self, *groups: Groups) -> Groups:
        return {node: self._sum([some.get(node) for some in groups]) for node in _nodes(groups)}

    def back(self, groups: Groups) -> list[Groups]:
        """Gradients of the sum as gradients of every term."""
        return [{node: _times(group, f) for node, group in groups.items()} for f in self.factors]

    def _sum(self, parts: list[Group | None]) -> Group:
        terms = [(p, f) for p, f in zip(parts, self.factors, strict=True) if p is not None]
        if len(terms) == 1:
            return _times(*terms[0])
        tops, jumps = _aligned([patches_of(p, self.grid) for p, _ in terms], [self.grid] * len(terms))
        total = jumps[0] * terms[0][1]
        for jump, (_, factor) in zip(jumps[1:], terms[1:], strict=True):
            total = torch.add(total, jump, alpha=factor)
        return Patches(tops, total)


@dataclass(frozen=True, eq=False)
class Concat:
    """Branches side by side, channel after channel."""

    sources: tuple[Grid, ...]
    grid: Grid

    def size(self, *sizes: tuple[int, int]) -> tuple[int, int]:
        return _common(sizes, self.grid)

    def products(self, *sizes: tuple[int, int]) -> float:
        return float(sum(h * w for h, w in sizes) * self.grid[0])

    def move(self, *groups: Groups) -> Groups:
        return {node: self._beside([some.get(node) for some in groups]) for node in _nodes(groups)}

    def _beside(self, parts: list[Group | None]) -> Group:
        firsts = [sum(g[0] for g in self.sources[:k]) for k in range(len(self.sources))]
        known = [k for k, p in enumerate(parts) if p is not None]
        only = parts[known[0]]
        if len(known) == 1 and isinstance(only, Sparks):
            return Sparks(only.pixel, only.channel + firsts[known[0]], only.jump)
        held = [patches_of(p, self.sources[k]) for k, p in enumerate(parts) if p is not None]
        tops, jumps = _aligned(held, [self.sources[k] for k in known])
        out = jumps[0].new_zeros(*jumps[0].shape[:3], self.grid[0])
        for k, jump in zip(known, jumps, strict=True):
            out[..., firsts[k] : firsts[k] + self.sources[k][0]] = jump
        return Patches(tops, out)


def _nodes(groups: tuple[Groups, ...]) -> list[int]:
    return list(dict.fromkeys(node for some in groups for node in some))


def _times(group: Group, factor: float) -> Group:
    if factor == 1:
        return group
    if isinstance(group, Sparks):
        return Sparks(group.pixel, group.channel, group.jump * factor)
    return Patches(group.top, group.jump * factor)


def _aligned(parts: list[Patches], grids: list[Grid]) -> tuple[Tensor, list[Tensor]]:
    """Patches of the same breaks in boxes that hold them all."""
    tops = torch.stack([p.top for p in parts]).amin(0)
    ends = torch.stack([p.top + torch.tensor(p.size, device=p.top.device) for p in parts]).amax(0)
    size = (ends - tops).amax(0).tolist() if len(tops) else [max(p.size[k] for p in parts) for k in range(2)]
    if any(covers((size[0], size[1]), g) for g in grids):
        held = [whole(p, g) for p, g in zip(parts, grids, strict=True)]
        return held[0].top, [p.jump for p in held]
    return tops, [boxed(p, tops, (size[0], size[1])) for p in parts]


def _common(sizes: tuple[tuple[int, int], ...], grid: Grid) -> tuple[int, int]:
    size = max(s[0] for s in sizes), max(s[1] for s in sizes)
    return kept(size, grid)
