"""Exact integrals of gradients by patches: a unit that turns changes the gradient only in its receptive field below."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...lines import Lines
from ...network.graph import Network
from ...numerics.plan import sweep_plan
from ...ops.base import Affine, Breaking, Input
from ..dense.cotangents import Output
from ..dense.gradients import Backward
from ..dense.sweep import SweepLimits
from .combine import AddRule
from .patch import Groups, MapShape, PatchGroup, as_whole_maps, rows_by_pixel
from .plan import PatchPlan, patch_plan
from .pointwise import PointwiseRule
from .segment import Segment
from .segmentation import Segmentation, SegmentCounts
from .vjp import GradientOnSegment, activation_vjp, integrate, integrate_groups


def patch_integral(
    network: Network,
    lines: Lines,
    targets: Tensor,
    output: int,
    limits: SweepLimits,
    memory: int,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[tuple[Tensor, ...], int] | None:
    """Integrals (lines, *in) of the gradient of one output, and the number of pieces; None where points are needed."""
    path, tally = patch_plan(network), SegmentCounts()
    if path.stop < len(network.nodes) or not all(isinstance(t, PointwiseRule) for t in path.activation_rules.values()):
        return None
    totals, pieces = [torch.zeros_like(t) for t in lines.starts], 0
    for line in range(len(lines)):
        found = _integrate_line(
            Segmentation(network, path, lines, line, limits, memory, tally), int(targets[line]), output
        )
        if found is None:
            return None
        for total, part in zip(totals, found[0], strict=True):
            total[line] = part
        pieces += found[1]
        if progress is not None:
            progress(line + 1, pieces)
    return tuple(totals), pieces


def _integrate_line(journey: Segmentation, target: int, output: int) -> tuple[list[Tensor], int] | None:
    network, lines, line = journey.network, journey.lines, journey.line
    place = network.outputs[output]
    seed = torch.zeros(1, *network.nodes[place].shape, dtype=network.dtype, device=network.device)
    seed.view(-1)[target] = 1.0
    totals, breaks = [torch.zeros_like(t[line]) for t in lines.starts], 0
    for start, stop, stretch, found in journey.segments(journey.plan, traced=True):
        if found is None:
            by_points = _integrate_densely(journey, start, stop, target, output)
            if by_points is None:
                return None
            parts, count = by_points
        else:
            parts, count = _BackwardPass(network, journey.plan, stretch).run(place, seed), len(found.alphas)
        breaks += count
        for total, part in zip(totals, parts, strict=True):
            total += part
    return totals, breaks + 1


def _integrate_densely(
    journey: Segmentation, start: float, stop: float, target: int, output: int
) -> tuple[list[Tensor], int] | None:
    """The integral over a stretch without patches, and its breaks; None where gradients are a convention."""
    device = journey.lines.starts[0].device
    ends = torch.tensor([start, stop], dtype=torch.float64, device=device)
    points, _ = journey.lines.at(torch.full((2,), journey.line, device=device), ends)
    part = Lines(tuple(p[:1] for p in points), tuple(p[1:] for p in points))
    way = Backward(journey.network, Output(journey.network, output, torch.tensor([target])), journey.limits)
    grads = next(iter(way.run(part)))[1]
    return None if way.stuck else ([g[0] * (stop - start) for g in grads], way.pieces - 1)


class _BackwardPass:
    """The way back along one stretch."""

    def __init__(self, network: Network, path: PatchPlan, stretch: Segment) -> None:
        self.network, self.plan, self.segment = network, path, stretch
        self.grads: dict[int, tuple[Tensor, Groups]] = {}  # by node: (1, *shape) at the start, and what changes it
        self.sums: dict[int, Tensor] = {}  # by node without breaks before it: (1, *shape), integrated
        self.quiet = _quiet(network)

    def run(self, place: int, seed: Tensor) -> list[Tensor]:
        """The integral at every input, from the gradient at an output."""
        self._give(place, seed, {})
        last = sweep_plan(self.network).last_use
        for i in range(len(self.network.nodes) - 1, -1, -1):
            node = self.network.nodes[i]
            if isinstance(node.op, Input) or i not in last:
                continue
            shapes = [self.network.nodes[j].shape for j in node.inputs]
            if i in self.sums and isinstance(node.op, Affine):
                for j, g in zip(node.inputs, node.op.vjp(self.sums.pop(i), shapes), strict=True):
                    self.sums[j] = self.sums[j] + g if j in self.sums else g
            elif i in self.grads:
                base, groups = self.grads.pop(i)
                if isinstance(node.op, Affine):
                    below = self._back(i, node.op, groups, shapes)
                    for j, g, some in zip(node.inputs, node.op.vjp(base, shapes), below, strict=True):
                        self._give(j, g, some)
                elif isinstance(node.op, Breaking):
                    self._turn(i, base, groups)
        return [self._at(i) for i in self.network.inputs]

    def _at(self, i: int) -> Tensor:
        shape = self.network.nodes[i].shape
        return (
            self.sums[i][0]
            if i in self.sums
            else torch.zeros(shape, dtype=self.network.dtype, device=self.network.device)
        )

    def _give(self, j: int, base: Tensor, groups: Groups) -> None:
        """A gradient arrives at a node; where no break comes before it, only its integral matters."""
        if j in self.quiet:
            grid = self.plan.map_shapes[j]
            ends = self.segment.start, self.segment.stop
            total = integrate_groups(rows_by_pixel(base, grid), groups, self.segment.times, grid, *ends)
            point = _point(total, grid, self.network.nodes[j].shape)
            self.sums[j] = self.sums[j] + point if j in self.sums else point
        elif j in self.grads:
            held, some = self.grads[j]
            self.grads[j] = held + base, AddRule((1.0, 1.0), self.plan.map_shapes[j]).apply(some, groups)
        else:
            self.grads[j] = base, groups

    def _turn(self, i: int, base: Tensor, groups: Groups) -> None:
        source = self.network.nodes[i].inputs[0]
        grid, stretch = self.plan.map_shapes[i], self.segment
        pull = GradientOnSegment(
            grid, stretch.start, stretch.stop, rows_by_pixel(base, grid), groups, stretch.times, stretch.patterns[i],
            stretch.new_breaks.get(i),
        )  # fmt: skip
        shape = self.network.nodes[source].shape
        if source in self.quiet:
            point = _point(integrate(pull), grid, shape)
            self.sums[source] = self.sums[source] + point if source in self.sums else point
            return
        first, below = activation_vjp(i, pull)
        self._give(source, _point(first, grid, shape), below)

    def _back(self, i: int, op: Affine, groups: Groups, shapes: list[tuple[int, ...]]) -> list[Groups]:
        mover: Any = self.plan.affine_rules[i]
        inputs = self.network.nodes[i].inputs
        if all(j in self.quiet for j in inputs) and not groups:
            return [{} for _ in inputs]
        if hasattr(mover, "vjp"):
            return mover.vjp(groups)
        found: list[Groups] = [{} for _ in inputs]
        grid, shape = self.plan.map_shapes[i], self.network.nodes[i].shape
        for node, group in groups.items():
            points = as_whole_maps(group, grid).jump.permute(0, 3, 1, 2).reshape(len(group), *shape)
            for k, g in enumerate(op.vjp(points, shapes)):
                c, h, w = self.plan.map_shapes[inputs[k]]
                jump = g.reshape(len(group), c, h, w).permute(0, 2, 3, 1).contiguous()
                found[k][node] = PatchGroup(torch.zeros(len(group), 2, dtype=torch.int64, device=g.device), jump)
        return found


def _quiet(network: Network) -> set[int]:
    """Nodes that no break comes before."""
    quiet: set[int] = set()
    for i, node in enumerate(network.nodes):
        if isinstance(node.op, Input) or (isinstance(node.op, Affine) and all(j in quiet for j in node.inputs)):
            quiet.add(i)
    return quiet


def _point(rows: Tensor, grid: MapShape, shape: tuple[int, ...]) -> Tensor:
    return rows.T.reshape(1, *shape)
