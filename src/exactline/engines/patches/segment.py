"""One stretch of a line through the whole network: every break in it, and the values there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ...errors import NumberError
from ...network.graph import Network
from ...numerics.plan import plan
from ...ops.base import Affine, Breaking
from .error_oracle import DRIFT, EPS, Looks
from .patch import Birth, Grid, Group, Groups, Sparks, by_pixel, whole
from .plan import Route
from .ties import Apart
from .timeline import Born, NotFinite, Stage, Times, running

LIGHTLY = 1e-3  # of the largest value: what patches in single precision may lose along a stretch


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
    unit: Tensor  # (n,) the lowest that crosses
    count: Tensor  # (n,) how many do
    element: Tensor  # (n,)
    partner: Tensor  # (n,)
    rate: Tensor  # (n,)
    moments: Tensor  # (m,) alphas of all crossings, in order
    order: Tensor  # (m,) from the order of birth to that of alpha
    chief: Tensor  # (n,) the first crossing of each break
    times: Times
    fields: dict[int, Field]  # of nodes that are read later, or are outputs
    start: float
    stop: float


class Stretch:
    """The sweep of one stretch, node by node."""

    def __init__(
        self,
        network: Network,
        path: Route,
        looks: Looks,
        start: float,
        stop: float,
        most: float,
        light: Route,
        traced: bool = False,
    ) -> None:
        self.network, self.path, self.looks, self.light = network, path, looks, light
        self.start, self.stop, self.most = start, stop, most
        self.times = Times()
        self.born: dict[int, Born] = {}
        self.apart = Apart(looks, start, stop, light is not path)
        self.traced = traced
        self.branches: dict[int, Tensor] = {}  # by node: the slopes of its units just after the start
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
        self.apart.confirm()
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
        left, right, slope = (by_pixel(t, grid) for t in (field.ends[0], field.ends[1], field.slope[0]))
        if sum(g.jump.numel() for g in field.groups.values()) > self.most:
            raise TooLarge
        usual, least, before, after = self.looks.laid_out(i, grid)
        closed = before if self.start == 0.0 else None, after if self.stop == 1.0 else None
        judge = partial(self.looks.judge, i)
        ends, clear = (self.start, self.stop), self.looks.clear[i]
        drift = clear if self.light is self.path else LIGHTLY * float(field.ends.abs().max())
        usual = torch.add(usual, slope.abs(), alpha=DRIFT * EPS * (self.stop - self.start))
        bounds = (clear, usual, least, drift)
        stage = Stage(grid, *ends, left, right, slope, field.groups, self.times, *bounds, judge, self.traced, closed)
        try:
            turned = turner.turn(stage)
        except NotFinite:
            raise NumberError(
                "A value overflows or is not a number.",
                where=f"the input of node {node.name}",
                hint="Scale the points or the weights; values must stay below 1.8e308.",
            ) from None
        born = turned.born
        if turned.branch is not None:
            self.branches[i] = turned.branch
        groups = {births: self._lighter(group) for births, group in turned.groups.items()}
        if len(born.alpha):
            self.born[i] = self.apart.settle(i, born)
            self.times[i] = self.born[i].alpha
            groups[Birth(i, len(born.alpha)),] = self._lighter(Sparks(born.pixel, born.channel, born.jump))
        out = turner.grid
        slope = turned.slope.view(out[1], out[2], out[0]).permute(2, 0, 1).reshape(1, *node.shape)
        return Field(op.evaluate(field.ends), slope, groups)

    def _lighter(self, group: Group) -> Group:
        dtype = self.looks.lines.starts[0].dtype if self.light is self.path else torch.float32
        if isinstance(group, Sparks):
            return Sparks(group.pixel, group.channel, group.jump.to(dtype))
        return group.holding(group.jump.to(dtype))

    def _found(self) -> Found:
        nodes = list(self.born)
        device = self.looks.lines.starts[0].device
        if not nodes:
            none = torch.zeros(0, dtype=torch.int64, device=device)
            reals = none.to(torch.float64)
            empty = (reals, none, none, none, none, none, reals, reals, none, none)
            return Found(*empty, self.times, self.fields, self.start, self.stop)
        every = Born.join([self.born[j] for j in nodes])
        node = torch.cat([torch.full_like(self.born[j].pixel, j) for j in nodes])
        places = torch.cat([torch.full_like(self.born[j].pixel, self._places(j)) for j in nodes])
        unit = every.channel * places + every.pixel
        moments, order = every.alpha.sort(stable=True)  # of those that are one the first to be born comes first
        first = torch.ones_like(order, dtype=torch.bool)
        first[1:] = moments[1:] != moments[:-1]
        which, chief = first.cumsum(0) - 1, first.nonzero()[:, 0]
        peers = node[order] == node[order[chief]][which]  # others count, but do not bear
        lowest = unit[order[chief]].scatter_reduce(0, which[peers], unit[order[peers]], "amin")
        count = torch.bincount(which, minlength=len(chief))
        columns = (c[order[chief]] for c in (node, every.element, every.partner, every.rate))
        node, element, partner, rate = columns
        facts = (moments[chief], node, lowest, count, element, partner, rate, moments, order, chief)
        return Found(*facts, self.times, self.fields, self.start, self.stop)

    def _places(self, node: int) -> int:
        grid = self.path.turners[node].grid
        return grid[1] * grid[2]


def values_at(found: Found, field: Field, grid: Grid, shape: tuple[int, ...]) -> Tensor:
    """Values (n, *shape) of one tensor at the breaks of a stretch: sums from its start, corrected at its stop."""
    flat = field.ends.flatten(1)
    jumps = flat.new_zeros(len(found.moments), flat.shape[1])
    place = torch.empty_like(found.order)
    place[found.order] = torch.arange(len(place), device=place.device)
    by_node = dict(zip(found.times, place.split([len(t) for t in found.times.values()]), strict=True))
    for births, group in field.groups.items():
        full = whole(group, grid).jump.to(flat.dtype).permute(0, 3, 1, 2)
        jumps[torch.cat([by_node[birth.node] for birth in births])] = full.reshape(len(full), -1)
    slopes = running(torch.cat([field.slope.flatten(1), jumps])[None])[0]
    edges = torch.cat([flat.new_tensor([found.start]), found.moments, flat.new_tensor([found.stop])])
    values = running(slopes.mul((edges[1:] - edges[:-1])[:, None])[None])[0] + flat[0]
    off = flat[1] - values[-1]
    part = ((found.alphas - found.start) / (found.stop - found.start))[:, None]
    return (values[found.chief] + part * off).view(len(found.alphas), *shape)
