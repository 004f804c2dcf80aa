"""Whether breaks are apart: those that are one by construction share an alpha, all others must be told apart."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ...ops.patches.scan import Born, Doubt
from .look import MANY, Looks

ULPS = 4 * torch.finfo(torch.float64).eps  # alphas closer than this, relative to themselves, are one
SLOW = 1e-3  # in alpha: breaks that may be off by more are looked at closely


def joined(born: Born, clear: float) -> tuple[Born, Tensor]:
    """Crossings of the same two lines in windows that overlap get one alpha; and a number for each such set."""
    numbers = torch.arange(len(born.alpha), device=born.alpha.device)
    key = born.element * (1 << 31) + torch.maximum(born.partner, torch.full_like(born.partner, -1)) + 1
    other = born.partner * (1 << 31) + born.element + 1
    key = torch.where((born.partner > born.element), other, key)  # the same pair, whoever overtakes
    order = torch.argsort(born.alpha)
    order = order[torch.sort(key[order], stable=True).indices]
    alpha, fuzz = born.alpha[order], (clear / born.rate)[order]
    same = (key[order[1:]] == key[order[:-1]]) & (alpha[1:] - alpha[:-1] <= fuzz[1:] + fuzz[:-1] + ULPS * alpha[1:])
    if not bool(same.any()):
        return born, numbers
    first = torch.ones_like(order, dtype=torch.bool)
    first[1:] = ~same
    leader = order[first][first.cumsum(0) - 1]  # the earliest of each set
    tie = torch.empty_like(order)
    tie[order] = leader
    return replace(born, alpha=born.alpha[tie]), tie


def told_apart(looks: Looks, born: dict[int, Born], ties: dict[int, Tensor], start: float, stop: float) -> None:
    """Raise Doubt where breaks that are not one by construction may coincide, or lie where the stretch ends."""
    every = Born.join(list(born.values()))
    nodes = torch.cat([torch.full_like(b.pixel, i) for i, b in born.items()])
    clear = torch.cat([_usual(looks, i, b) for i, b in born.items()])
    sets = torch.cat([tie + at for tie, at in zip(ties.values(), _firsts(ties), strict=True)])
    alpha, order = every.alpha.sort()
    inside = (alpha > start) & (alpha < stop)
    fuzz = (clear / every.rate)[order]
    near = (alpha[1:] - alpha[:-1]) <= fuzz[1:] + fuzz[:-1] + ULPS * alpha[1:]
    near |= (fuzz[1:] > SLOW) | (fuzz[:-1] > SLOW)
    near &= sets[order[1:]] != sets[order[:-1]]
    if bool(near.any()) or not bool(inside.all()):
        if not bool(inside.all()):
            raise Doubt(float(alpha[~inside][0]))
        _look(looks, every, nodes, alpha, order, near.nonzero()[:, 0])


def _usual(looks: Looks, node: int, born: Born) -> Tensor:
    """How far off the differences that cross may be, (n,)."""
    usual = looks.usual[node]
    return usual[born.element] + usual[born.partner.clamp(min=0)] * (born.partner >= 0)


def _firsts(ties: dict[int, Tensor]) -> list[int]:
    firsts, at = [], 0
    for tie in ties.values():
        firsts.append(at)
        at += len(tie)
    return firsts


def _look(looks: Looks, every: Born, nodes: Tensor, alpha: Tensor, order: Tensor, pairs: Tensor) -> None:
    """The pairs of neighbours that are close, by error bounds at their places."""
    if len(pairs) > MANY:
        raise Doubt(float(alpha[pairs[len(pairs) // 2]]))
    which = torch.unique(torch.cat([order[pairs], order[pairs + 1]]))
    off = torch.zeros_like(every.alpha)
    for node in torch.unique(nodes[which]).tolist():
        some = which[nodes[which] == node]
        bound = looks.bounds(node, every.alpha[some], every.element[some])
        partner = every.partner[some]
        bound = bound + looks.bounds(node, every.alpha[some], partner.clamp(min=0)) * (partner >= 0)
        off[some] = 2 * bound / every.rate[some]
    gap = alpha[pairs + 1] - alpha[pairs]
    close = gap <= off[order[pairs]] + off[order[pairs + 1]] + ULPS * alpha[pairs + 1]
    if bool(close.any()):
        raise Doubt(float(alpha[pairs[close][0]]))
