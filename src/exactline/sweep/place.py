"""From crossings to breaks: where each lies, which of them are one, and which lie on a break that exists."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..ops.base import HUGE, Crossings
from ..ops.masks import holds
from .noise import StateNoise

ULPS = 4 * torch.finfo(torch.float64).eps  # alphas closer than this, relative to themselves, are one


@dataclass(frozen=True)
class Births:
    """New points in order, and which crossings they stand for."""

    piece: Tensor  # (g,) the point to the left
    alpha: Tensor  # (g,)
    unit: Tensor  # (g,) the lowest of those that cross here
    count: Tensor  # (g,) how many
    chief: Tensor  # (g,) the crossing that says where the break is
    rate: Tensor  # (g,) of that crossing
    crossings: Crossings
    owner: Tensor  # (k,) which birth a crossing belongs to, or -1
    joins: Tensor  # (k,) the old point it lies on, or -1
    simple: bool  # whether every crossing has a birth of its own

    def __len__(self) -> int:
        return len(self.piece)


def place(found: Crossings, noise: StateNoise) -> Births:
    """Every crossing gets a break: its own, one it shares, or one that is there already."""
    state = noise.state
    before, after = found.before.to(torch.float64).abs(), found.after.to(torch.float64).abs()
    total = before + after
    if noise.largest > HUGE:
        before, after = before / 2, after / 2
        total = before + after
    left, right = state.alphas[found.piece], state.alphas[found.piece + 1]
    width = right - left
    part = before / total
    near_left = part <= 0.5
    # measured from the nearer end, so that a break close to one keeps its digits
    alpha = torch.where(near_left, left + part * width, right - after / total * width)
    rate = total / width
    order = torch.argsort(alpha)
    if noise.broken:  # pieces of one line are in order of alpha already
        order = order[torch.argsort(found.piece[order], stable=True)]
    found, alpha, rate, left, right = found.pick(order), alpha[order], rate[order], left[order], right[order]
    joins = _joins(found, alpha, left, right, noise)
    own = torch.arange(len(alpha), device=alpha.device)
    if joins is None:
        group, chief = _groups(found, alpha, rate, noise)
        joins, owner, free = torch.full_like(own, -1), group, own
        if group is chief:
            return Births(found.piece, alpha, found.unit, torch.ones_like(own), own, rate, found, own, joins, True)
    else:
        free = torch.nonzero(joins < 0)[:, 0]
        owner = torch.full_like(own, -1)
        group, chief = _groups(found.pick(free), alpha[free], rate[free], noise)
        owner[free] = group
        chief = free[chief]
    count = torch.zeros(len(chief), dtype=torch.int64, device=group.device)
    unit = torch.full_like(count, torch.iinfo(torch.int64).max)
    count.index_add_(0, group, torch.ones_like(group))
    unit.scatter_reduce_(0, group, found.unit[free], "amin")
    return Births(found.piece[chief], alpha[chief], unit, count, chief, rate[chief], found, owner, joins, False)


def _joins(found: Crossings, alpha: Tensor, left: Tensor, right: Tensor, noise: StateNoise) -> Tensor | None:
    """The old point a crossing cannot be told from, or -1; None where no crossing is near any."""
    slack = ULPS * alpha
    fuzz = noise.state.fuzz
    from_left, from_right = alpha - left, right - alpha
    near = torch.minimum(from_left - fuzz[found.piece], from_right - fuzz[found.piece + 1]) <= slack
    if not holds(~near):
        joins = torch.full_like(found.piece, -1)
        for point, gap in ((found.piece, from_left), (found.piece + 1, from_right)):
            rows, where = torch.unique(point[near], return_inverse=True)
            same = gap[near] <= noise.fuzz(rows)[where] + slack[near]
            joins[near] = torch.where(same & (joins[near] < 0), point[near], joins[near])
        return joins
    return None


def _groups(found: Crossings, alpha: Tensor, rate: Tensor, noise: StateNoise) -> tuple[Tensor, Tensor]:
    """Group crossings that share a break: a group for each crossing, and each group's chief crossing."""
    count = len(alpha)
    numbers = torch.arange(count, device=alpha.device)
    if count < 2:
        return numbers, numbers
    slack = ULPS * alpha
    reach = noise.doubtful / rate
    linked = (found.piece[1:] == found.piece[:-1]) & (alpha[1:] - alpha[:-1] <= reach[1:] + reach[:-1] + slack[1:])
    # one unit at two knots is at neither if they are made one
    apart = (found.unit[1:] == found.unit[:-1]) & (found.partner[1:] < 0) & (found.level[1:] != found.level[:-1])
    linked &= ~apart
    if holds(~linked):
        return numbers, numbers
    look = torch.zeros(count, dtype=torch.bool, device=alpha.device)
    look[1:] |= linked
    look[:-1] |= linked
    reach = torch.zeros_like(alpha)
    reach[look] = _reach(found.pick(look), rate[look], noise)
    linked &= alpha[1:] - alpha[:-1] <= reach[1:] + reach[:-1] + slack[1:]
    chain = torch.zeros_like(numbers)
    chain[1:] = (~linked).cumsum(0)
    return _settled_groups(chain, alpha, reach, slack)


def _settled_groups(chain: Tensor, alpha: Tensor, reach: Tensor, slack: Tensor) -> tuple[Tensor, Tensor]:
    """Split chains until every member is within reach of its group's most certain crossing."""
    numbers = torch.arange(len(chain), device=chain.device)
    chiefs = torch.full_like(numbers, -1)
    key = chain * 2 + 1
    while bool((waiting := chiefs < 0).any()):
        _, group = torch.unique(key[waiting], return_inverse=True)
        here = numbers[waiting]
        size = int(group.max()) + 1
        surest = torch.full((size,), torch.inf, dtype=alpha.dtype, device=alpha.device)
        surest.scatter_reduce_(0, group, reach[here], "amin")
        first = torch.full((size,), len(chain), device=chain.device)
        best = reach[here] == surest[group]
        first.scatter_reduce_(0, group[best], here[best], "amin")
        chief = first[group]
        apart = (alpha[here] - alpha[chief]).abs()
        inside = (apart <= reach[here] + reach[chief] + slack[here]) | (here == chief)
        chiefs[here[inside]] = chief[inside]
        side = torch.where(alpha[here] < alpha[chief], 0, 1)
        key[here] = group * 2 + side
    chief, group = torch.unique(chiefs, return_inverse=True)
    by_alpha = torch.argsort(chief)  # crossings are sorted, so chiefs are too
    return by_alpha.argsort()[group], chief[by_alpha]


def _reach(found: Crossings, rate: Tensor, noise: StateNoise) -> Tensor:
    """How far in alpha each crossing may be from the truth."""
    rows, where = torch.unique(found.piece, return_inverse=True)
    bound = torch.maximum(noise.bound(rows), noise.bound(rows + 1))
    size = bound[where, found.element] + bound[where, found.partner.clamp(min=0)] * (found.partner >= 0)
    return (size.to(torch.float64) / rate).nan_to_num(nan=0.0, posinf=torch.inf)
