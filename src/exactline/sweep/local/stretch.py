"""One stretch of a line through the whole network: every break in it, and the values there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ...errors import NumberError
from ...network.graph import Network
from ...ops.base import Affine, Breaking
from ...ops.patches.patch import Grid, Group, Groups, Patches, Sparks, whole
from ...ops.patches.scan import Born, Doubt, Stage, running
from ..plan import plan
from .look import Looks
from .plan import Route

LIGHTLY = 1e-3  # of the largest value: what patches in single precision may lose along a stretch
ULPS = 4 * torch.finfo(torch.float64).eps  # alphas closer than this, relative to themselves, are one


class TooLarge(Exception):
    """A stretch has more breaks than memory is meant for."""


@dataclass(frozen=True, eq=False)
class Field:
    """One tensor of the network along a stretch."""

    ends: Tensor  # (2, *shape) values where it starts and stops
    slope: Tensor  # (1, *shape) just after the start
    groups: Groups


@dataclass(frozen=True, eq=False)
class Found:
    """The breaks of a stretch in order, and what the live tensors are there."""

    alphas: Tensor  # (n,)
    node: Tensor  # (n,)
    unit: Tensor  # (n,)
    element: Tensor  # (n,)
    partner: Tensor  # (n,)
    rate: Tensor  # (n,)
    order: Tensor  # (n,) from the order of birth to that of alpha
    times: dict[int, Tensor]
    fields: dict[int, Field]  # of nodes that are read later, or are outputs
    start: float
    stop: float


class Stretch:
    """The sweep of one stretch, node by node."""

    def __init__(
        self, network: Network, path: Route, looks: Looks, start: float, stop: float, most: float, light: Route
    ) -> None:
        self.network, self.path, self.looks, self.light = network, path, looks, light
        self.start, self.stop, self.most = start, stop, most
        self.times: dict[int, Tensor] = {}
        self.born: dict[int, Born] = {}
        self.fields: dict[int, Field] = {}

    def run(self) -> Found:
        """All nodes as far as patches can go."""
        network, last = self.network, plan(self.network).last
        self._begin()
        for i, node in enumerate(network.nodes[: self.path.stop]):
            if i not in last:
                self.fields.pop(i, None)
                continue
            if isinstance(node.op, Affine):
                inputs = [self.fields[j] for j in node.inputs]
                groups = self.light.movers[i].move(*(f.groups for f in inputs))
                ends, slope = node.op.evaluate(*(f.ends for f in inputs)), node.op.linear(*(f.slope for f in inputs))
                self.fields[i] = Field(ends, slope, groups)
            elif isinstance(node.op, Breaking):
                self.fields[i] = self._turn(i, node.op)
            for j in set(node.inputs):
                if last[j] == i:
                    del self.fields[j]
        return self._found()

    def _begin(self) -> None:
        lines, line = self.looks.lines, self.looks.line
        device = lines.starts[0].device
        alphas = torch.tensor([self.start, self.stop], dtype=torch.float64, device=device)
        points, _ = lines.at(torch.full((2,), line, device=device), alphas)
        for i, ends, a, b in zip(self.network.inputs, points, lines.starts, lines.ends, strict=True):
            self.fields[i] = Field(ends, (b[line] - a[line])[None], {})

    def _turn(self, i: int, op: Breaking) -> Field:
        node = self.network.nodes[i]
        source = node.inputs[0]
        field, turner = self.fields[source], self.path.turners[i]
        grid = self.path.grids[source]
        left, right, slope = (_rows(t, grid) for t in (field.ends[0], field.ends[1], field.slope[0]))
        if not bool(torch.isfinite(field.ends.sum() + field.slope.sum())):
            raise NumberError(
                "A value overflows or is not a number.",
                where=f"the input of node {node.name}",
                hint="Scale the points or the weights; values must stay below 1.8e308.",
            )
        self._check(i, field, grid)
        closed = (
            _rows(self.looks.start[i], grid) if self.start == 0.0 else None,
            _rows(self.looks.stop[i], grid) if self.stop == 1.0 else None,
        )
        judge = partial(self.looks.judge, i)
        ends, clear = (self.start, self.stop), self.looks.clear[i]
        drift = clear if self.light is self.path else LIGHTLY * float(field.ends.abs().max())
        stage = Stage(grid, *ends, left, right, slope, field.groups, self.times, clear, drift, judge, closed)
        turned = turner.turn(stage)
        born = turned.born
        groups = {node: self._lighter(group) for node, group in turned.groups.items()}
        if len(born.alpha):
            self._told_apart(i, born)
            self.times[i], self.born[i] = born.alpha, born
            groups[i] = self._lighter(Sparks(born.pixel, born.channel, born.jump))
        out = turner.grid
        slope = turned.slope.view(out[1], out[2], out[0]).permute(2, 0, 1).reshape(1, *node.shape)
        return Field(op.evaluate(field.ends), slope, groups)

    def _lighter(self, group: Group) -> Group:
        dtype = self.looks.lines.starts[0].dtype if self.light is self.path else torch.float32
        if isinstance(group, Sparks):
            return Sparks(group.pixel, group.channel, group.jump.to(dtype))
        return Patches(group.top, group.jump.to(dtype))

    def _check(self, i: int, field: Field, grid: Grid) -> None:
        """Whether the patches at hand are more than memory is meant for."""
        held = sum(g.jump.numel() for g in field.groups.values())
        if held > self.most:
            raise TooLarge

    def _told_apart(self, i: int, born: Born) -> None:
        """New breaks must not coincide with each other or with those that there are."""
        parts = [self.born[j] for j in self.born]
        alpha = torch.cat([*(p.alpha for p in parts), born.alpha])
        clear = [torch.full_like(p.rate, self.looks.clear[j]) for j, p in zip(self.born, parts, strict=True)]
        fuzz = torch.cat([*clear, torch.full_like(born.rate, self.looks.clear[i])])
        fuzz /= torch.cat([*(p.rate for p in parts), born.rate])
        alpha, order = alpha.sort()
        fuzz = fuzz[order]
        near = (alpha[1:] - alpha[:-1]) <= fuzz[1:] + fuzz[:-1] + ULPS * alpha[1:]
        near |= (fuzz[1:] > 1e-3) | (fuzz[:-1] > 1e-3)
        inside = (alpha > self.start) & (alpha < self.stop)
        if not bool(inside.all()):
            raise Doubt(float(alpha[~inside][0]))
        if not bool(near.any()):
            return
        nodes = torch.cat(
            [torch.full_like(self.born[j].pixel, j) for j in self.born] + [torch.full_like(born.pixel, i)]
        )
        every = Born.join([*parts, born])
        for place in near.nonzero()[:, 0].tolist()[:64]:
            gap = float(alpha[place + 1] - alpha[place])
            total = ULPS * float(alpha[place + 1])
            for k in (int(order[place]), int(order[place + 1])):
                where = every.alpha[k : k + 1]
                bound = self.looks.bounds(int(nodes[k]), where, every.element[k : k + 1])
                if int(every.partner[k]) >= 0:
                    bound = bound + self.looks.bounds(int(nodes[k]), where, every.partner[k : k + 1])
                total += 2 * float(bound) / float(every.rate[k])
            if gap <= total:
                raise Doubt(float(alpha[place]))
        if int(near.sum()) > 64:
            raise Doubt(float(alpha[near.nonzero()[0, 0]]))

    def _found(self) -> Found:
        nodes = list(self.born)
        device = self.looks.lines.starts[0].device
        if not nodes:
            none = torch.zeros(0, dtype=torch.int64, device=device)
            reals = none.to(torch.float64)
            return Found(reals, none, none, none, none, reals, none, {}, self.fields, self.start, self.stop)
        every = Born.join([self.born[j] for j in nodes])
        node = torch.cat([torch.full_like(self.born[j].pixel, j) for j in nodes])
        places = torch.cat([torch.full_like(self.born[j].pixel, self._places(j)) for j in nodes])
        alphas, order = every.alpha.sort()
        unit = every.channel * places + every.pixel
        columns = (c[order] for c in (node, unit, every.element, every.partner, every.rate))
        return Found(alphas, *columns, order, self.times, self.fields, self.start, self.stop)

    def _places(self, node: int) -> int:
        grid = self.path.turners[node].grid
        return grid[1] * grid[2]


def values_at(found: Found, field: Field, grid: Grid, shape: tuple[int, ...], some: slice) -> Tensor:
    """Values (n, *shape) of one tensor at the breaks of a stretch: sums from its start, corrected at its stop."""
    count = len(found.alphas)
    flat = field.ends.flatten(1)
    jumps = flat.new_zeros(count, flat.shape[1])
    at = 0
    place = torch.empty_like(found.order)
    place[found.order] = torch.arange(count, device=found.order.device)
    for node, times in found.times.items():
        if node in field.groups:
            full = whole(field.groups[node], grid).jump.to(flat.dtype)
            jumps[place[at : at + len(times)]] = full.permute(0, 3, 1, 2).reshape(len(times), -1)
        at += len(times)
    slopes = running(torch.cat([field.slope.flatten(1), jumps])[None])[0]
    edges = torch.cat([found.alphas.new_tensor([found.start]), found.alphas, found.alphas.new_tensor([found.stop])])
    values = running(slopes.mul((edges[1:] - edges[:-1])[:, None])[None])[0] + flat[0]
    off = flat[1] - values[-1]
    part = ((found.alphas - found.start) / (found.stop - found.start))[:, None]
    return (values[:-1] + part * off).view(count, *shape)[some]


def _rows(values: Tensor, grid: Grid) -> Tensor:
    """A point's numbers as (pixels, channels)."""
    return values.reshape(grid[0], -1).T.contiguous()
