"""One stretch of a line through the whole network: every break in it, and the values there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from ...errors import NumberError
from ...network.graph import Network
from ...numerics.plan import sweep_plan
from ...ops.base import Affine, Breaking
from .error_oracle import FLOAT64_EPS, MAX_DRIFT_ROUNDINGS, ErrorOracle
from .patch import BreakSource, Group, Groups, MapShape, PointPatch, as_whole_maps, rows_by_pixel
from .plan import PatchPlan
from .ties import TieResolver
from .timeline import BreakAlphas, NewPatchBreaks, NodeInput, ValueOverflow, cumulative_sum

FLOAT32_DRIFT_SHARE = 1e-3  # of the largest value: what patches in single precision may lose along a stretch


class SegmentTooLarge(Exception):
    """A stretch has more breaks than memory is meant for."""


@dataclass(frozen=True, eq=False)
class TensorOnSegment:
    """One tensor of the network along a stretch."""

    ends: Tensor  # (2, *shape) values where it starts and stops
    slope: Tensor  # (1, *shape) just after the start
    groups: Groups


@dataclass(frozen=True, eq=False)
class SegmentBreaks:
    """The breaks of a stretch in order, and what the live tensors are there."""

    alphas: Tensor  # (n,)
    node: Tensor  # (n,)
    unit: Tensor  # (n,) the lowest that crosses
    count: Tensor  # (n,) how many do
    element: Tensor  # (n,)
    partner: Tensor  # (n,)
    slope: Tensor  # (n,)
    moments: Tensor  # (m,) alphas of all crossings, in order
    order: Tensor  # (m,) from the order of birth to that of alpha
    representative: Tensor  # (n,) the first crossing of each break
    times: BreakAlphas
    fields: dict[int, TensorOnSegment]  # of nodes that are read later, or are outputs
    start: float
    stop: float


class Segment:
    """The sweep of one stretch, node by node."""

    def __init__(
        self,
        network: Network,
        path: PatchPlan,
        looks: ErrorOracle,
        start: float,
        stop: float,
        most: float,
        light: PatchPlan,
        traced: bool = False,
    ) -> None:
        self.network, self.plan, self.errors, self.float32_plan = network, path, looks, light
        self.start, self.stop, self.max_numbers = start, stop, most
        self.times = BreakAlphas()
        self.new_breaks: dict[int, NewPatchBreaks] = {}
        self.ties = TieResolver(looks, start, stop, light is not path)
        self.records_patterns = traced
        self.patterns: dict[int, Tensor] = {}  # by node: the slopes of its units just after the start
        self.fields: dict[int, TensorOnSegment] = {}

    def run(self) -> SegmentBreaks:
        """All nodes as far as patches can go."""
        network, last = self.network, sweep_plan(self.network).last_use
        self._begin()
        for i, node in enumerate(network.nodes[: self.plan.stop]):
            if i not in last:
                self.fields.pop(i, None)
                continue
            if isinstance(node.op, Affine):
                inputs = [self.fields[j] for j in node.inputs]
                groups = self.float32_plan.affine_rules[i].apply(*(f.groups for f in inputs))
                ends, slope = node.op.evaluate(*(f.ends for f in inputs)), node.op.linear(*(f.slope for f in inputs))
                self.fields[i] = TensorOnSegment(ends, slope, groups)
            elif isinstance(node.op, Breaking):
                self.fields[i] = self._apply_activation(i, node.op)
            for j in set(node.inputs):
                if last[j] == i:
                    del self.fields[j]
        self.ties.check_drift()
        return self._collect()

    def _begin(self) -> None:
        lines, line = self.errors.lines, self.errors.line
        device = lines.starts[0].device
        alphas = torch.tensor([self.start, self.stop], dtype=torch.float64, device=device)
        points, _ = lines.at(torch.full((2,), line, device=device), alphas)
        for i, ends, a, b in zip(self.network.inputs, points, lines.starts, lines.ends, strict=True):
            self.fields[i] = TensorOnSegment(ends, (b[line] - a[line])[None], {})

    def _apply_activation(self, i: int, op: Breaking) -> TensorOnSegment:
        node = self.network.nodes[i]
        source = node.inputs[0]
        field, turner = self.fields[source], self.plan.activation_rules[i]
        grid = self.plan.map_shapes[source]
        left, right, slope = (rows_by_pixel(t, grid) for t in (field.ends[0], field.ends[1], field.slope[0]))
        if sum(g.jump.numel() for g in field.groups.values()) > self.max_numbers:
            raise SegmentTooLarge
        usual, least, before, after = self.errors.layout(i, grid)
        closed = before if self.start == 0.0 else None, after if self.stop == 1.0 else None
        judge = partial(self.errors.judge, i)
        ends, clear = (self.start, self.stop), self.errors.thresholds[i]
        drift = clear if self.float32_plan is self.plan else FLOAT32_DRIFT_SHARE * float(field.ends.abs().max())
        usual = torch.add(usual, slope.abs(), alpha=MAX_DRIFT_ROUNDINGS * FLOAT64_EPS * (self.stop - self.start))
        bounds = (clear, usual, least, drift)
        stage = NodeInput(
            grid, *ends, left, right, slope, field.groups, self.times, *bounds, judge, self.records_patterns, closed
        )
        try:
            turned = turner.apply(stage)
        except ValueOverflow:
            raise NumberError(
                "A value overflows or is not a number.",
                where=f"the input of node {node.name}",
                hint="Scale the points or the weights; values must stay below 1.8e308.",
            ) from None
        born = turned.new_breaks
        if turned.pattern is not None:
            self.patterns[i] = turned.pattern
        groups = {births: self._to_float32(group) for births, group in turned.groups.items()}
        if len(born.alpha):
            self.new_breaks[i] = self.ties.place(i, born)
            self.times[i] = self.new_breaks[i].alpha
            groups[BreakSource(i, len(born.alpha)),] = self._to_float32(PointPatch(born.pixel, born.channel, born.jump))
        out = turner.map_shape
        slope = turned.slope.view(out[1], out[2], out[0]).permute(2, 0, 1).reshape(1, *node.shape)
        return TensorOnSegment(op.evaluate(field.ends), slope, groups)

    def _to_float32(self, group: Group) -> Group:
        dtype = self.errors.lines.starts[0].dtype if self.float32_plan is self.plan else torch.float32
        if isinstance(group, PointPatch):
            return PointPatch(group.pixel, group.channel, group.jump.to(dtype))
        return group.with_jump(group.jump.to(dtype))

    def _collect(self) -> SegmentBreaks:
        nodes = list(self.new_breaks)
        device = self.errors.lines.starts[0].device
        if not nodes:
            none = torch.zeros(0, dtype=torch.int64, device=device)
            reals = none.to(torch.float64)
            empty = (reals, none, none, none, none, none, reals, reals, none, none)
            return SegmentBreaks(*empty, self.times, self.fields, self.start, self.stop)
        every = NewPatchBreaks.join([self.new_breaks[j] for j in nodes])
        node = torch.cat([torch.full_like(self.new_breaks[j].pixel, j) for j in nodes])
        places = torch.cat([torch.full_like(self.new_breaks[j].pixel, self._places(j)) for j in nodes])
        unit = every.channel * places + every.pixel
        moments, order = every.alpha.sort(stable=True)  # of those that are one the first to be born comes first
        first = torch.ones_like(order, dtype=torch.bool)
        first[1:] = moments[1:] != moments[:-1]
        which, chief = first.cumsum(0) - 1, first.nonzero()[:, 0]
        peers = node[order] == node[order[chief]][which]  # others count, but do not bear
        lowest = unit[order[chief]].scatter_reduce(0, which[peers], unit[order[peers]], "amin")
        count = torch.bincount(which, minlength=len(chief))
        columns = (c[order[chief]] for c in (node, every.element, every.partner, every.slope))
        node, element, partner, rate = columns
        facts = (moments[chief], node, lowest, count, element, partner, rate, moments, order, chief)
        return SegmentBreaks(*facts, self.times, self.fields, self.start, self.stop)

    def _places(self, node: int) -> int:
        grid = self.plan.activation_rules[node].map_shape
        return grid[1] * grid[2]


def values_at(found: SegmentBreaks, field: TensorOnSegment, grid: MapShape, shape: tuple[int, ...]) -> Tensor:
    """Values (n, *shape) of one tensor at the breaks of a stretch: sums from its start, corrected at its stop."""
    flat = field.ends.flatten(1)
    jumps = flat.new_zeros(len(found.moments), flat.shape[1])
    place = torch.empty_like(found.order)
    place[found.order] = torch.arange(len(place), device=place.device)
    by_node = dict(zip(found.times, place.split([len(t) for t in found.times.values()]), strict=True))
    for births, group in field.groups.items():
        full = as_whole_maps(group, grid).jump.to(flat.dtype).permute(0, 3, 1, 2)
        jumps[torch.cat([by_node[birth.node] for birth in births])] = full.reshape(len(full), -1)
    slopes = cumulative_sum(torch.cat([field.slope.flatten(1), jumps])[None])[0]
    edges = torch.cat([flat.new_tensor([found.start]), found.moments, flat.new_tensor([found.stop])])
    values = cumulative_sum(slopes.mul((edges[1:] - edges[:-1])[:, None])[None])[0] + flat[0]
    off = flat[1] - values[-1]
    part = ((found.alphas - found.start) / (found.stop - found.start))[:, None]
    return (values[found.representative] + part * off).view(len(found.alphas), *shape)
