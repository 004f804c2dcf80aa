"""Exact integrals of gradients by patches: where a unit switches, the gradient changes only in its receptive field."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ...lines import Lines
from ...network.graph import Network
from ...numerics.plan import sweep_plan
from ...ops.base import Affine, Breaking, Input
from ..dense.cotangents import OutputCotangent
from ..dense.gradients import BackwardSweep
from ..dense.sweep import SweepLimits
from .combine import AddRule
from .patch import Groups, PatchGroup, PatchVjp, as_whole_maps, rows_by_pixel
from .plan import PatchPlan, patch_plan
from .pointwise import PointwisePatchRule
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
    progress: Callable[[float, int], None] | None = None,
) -> tuple[tuple[Tensor, ...], int] | None:
    """Integrate the gradient of one output element over every line, by patches.

    Returns the integrals (lines, *in) for each input and the number of pieces; None if the dense engine is needed,
    because a node has no patch VJP or a gradient depends on a convention.

    Args:
        network: The network.
        lines: The lines.
        targets: (lines,) flat position of the element in the output.
        output: Index of the output.
        limits: When to stop; ``max_points`` bounds the parts that are swept densely.
        memory: Memory budget in bytes.
        progress: Called after each segment with the number of lines done, fractions included, and of pieces so far.
    """
    plan, counts = patch_plan(network), SegmentCounts()
    reaches_outputs = plan.first_dense_node == len(network.nodes)
    if not reaches_outputs or not all(isinstance(r, PointwisePatchRule) for r in plan.activation_rules.values()):
        return None
    totals, pieces = [torch.zeros_like(t) for t in lines.starts], 0
    for line in range(len(lines)):
        segmentation = Segmentation(network, plan, lines, line, limits=limits, memory=memory, counts=counts)
        report = None if progress is None else partial(_report_segment, progress, line, pieces)
        integral = _integrate_line(segmentation, int(targets[line]), output, report)
        if integral is None:
            return None
        gradients, line_pieces = integral
        for total, gradient in zip(totals, gradients, strict=True):
            total[line] = gradient
        pieces += line_pieces
        if progress is not None:
            progress(line + 1, pieces)
    return tuple(totals), pieces


def _report_segment(progress: Callable[[float, int], None], line: int, pieces: int, alpha: float, breaks: int) -> None:
    progress(line + alpha, pieces + breaks)


def _integrate_line(
    segmentation: Segmentation, target: int, output: int, report: Callable[[float, int], None] | None = None
) -> tuple[list[Tensor], int] | None:
    """The integral over one line for each input, and its number of pieces; None if a gradient is a convention."""
    network, lines, line = segmentation.network, segmentation.lines, segmentation.line
    node = network.outputs[output]
    cotangent = torch.zeros(1, *network.nodes[node].shape, dtype=network.dtype, device=network.device)
    cotangent.view(-1)[target] = 1.0
    totals, breaks = [torch.zeros_like(t[line]) for t in lines.starts], 0
    for segment, segment_breaks in segmentation.segments(segmentation.plan, records_patterns=True):
        if segment_breaks is None:
            integral = _integrate_densely(segmentation, segment.start, segment.stop, target, output)
            if integral is None:
                return None
            parts, count = integral
        else:
            backward = _BackwardPass(network, segmentation.plan, segment)
            parts, count = backward.run(node, cotangent), len(segment_breaks.alphas)
        breaks += count
        if report is not None:
            report(float(segment.stop), breaks)
        for total, part in zip(totals, parts, strict=True):
            total += part
    return totals, breaks + 1


def _integrate_densely(
    segmentation: Segmentation, start: float, stop: float, target: int, output: int
) -> tuple[list[Tensor], int] | None:
    """The integral over a segment by the dense engine, and its breaks; None if a gradient is a convention."""
    network, lines = segmentation.network, segmentation.lines
    device = lines.starts[0].device
    ends = torch.tensor([start, stop], dtype=torch.float64, device=device)
    points, _ = lines.at(torch.full((2,), segmentation.line, device=device), ends)
    segment = Lines(tuple(p[:1] for p in points), tuple(p[1:] for p in points))
    sweep = BackwardSweep(network, OutputCotangent(network, output, torch.tensor([target])), segmentation.limits)
    _, gradients = next(iter(sweep.run(segment)))
    return None if sweep.ambiguous else ([g[0] * (stop - start) for g in gradients], sweep.pieces - 1)


class _BackwardPass:
    """Backpropagation along one segment.

    The gradient at a node is either kept along the segment, as its value at the start and its changes at breaks, or,
    where no break can change the node's own Jacobian any more, only as its integral.
    """

    def __init__(self, network: Network, plan: PatchPlan, segment: Segment) -> None:
        self.network, self.plan, self.segment = network, plan, segment
        self.gradients: dict[int, tuple[Tensor, Groups]] = {}  # by node: (1, *shape) at the start, and its changes
        self.integrals: dict[int, Tensor] = {}  # by affine node: (1, *shape)
        self.affine_nodes = _affine_nodes(network)

    def run(self, output_node: int, cotangent: Tensor) -> list[Tensor]:
        """The integrals (*in) of the gradient at every input, from the cotangent (1, *out) of an output."""
        self._add(output_node, cotangent, {})
        last_use = sweep_plan(self.network).last_use
        for i in range(len(self.network.nodes) - 1, -1, -1):
            node = self.network.nodes[i]
            if isinstance(node.op, Input) or i not in last_use:
                continue
            shapes = [self.network.nodes[j].shape for j in node.inputs]
            if i in self.integrals and isinstance(node.op, Affine):
                for j, integral in zip(node.inputs, node.op.vjp(self.integrals.pop(i), shapes), strict=True):
                    self._add_integral(j, integral)
            elif i in self.gradients:
                base, groups = self.gradients.pop(i)
                if isinstance(node.op, Affine):
                    input_groups = self._affine_vjp(i, node.op, groups, shapes)
                    for j, gradient, some in zip(node.inputs, node.op.vjp(base, shapes), input_groups, strict=True):
                        self._add(j, gradient, some)
                elif isinstance(node.op, Breaking):
                    self._activation_vjp(i, base, groups)
        return [self._input_integral(i) for i in self.network.inputs]

    def _input_integral(self, i: int) -> Tensor:
        if i in self.integrals:
            return self.integrals[i][0]
        return torch.zeros(self.network.nodes[i].shape, dtype=self.network.dtype, device=self.network.device)

    def _add(self, j: int, base: Tensor, groups: Groups) -> None:
        """Add to the gradient at a node: its value (1, *shape) at the start, and its changes."""
        if j in self.affine_nodes:
            map_shape, segment = self.plan.map_shapes[j], self.segment
            rows = rows_by_pixel(base, map_shape)
            integral = integrate_groups(
                rows, groups, segment.break_alphas, map_shape, start=segment.start, stop=segment.stop
            )
            self._add_integral(j, self._as_point(integral, j))
        elif j in self.gradients:
            old_base, old_groups = self.gradients[j]
            add = AddRule((1.0, 1.0), self.plan.map_shapes[j])
            self.gradients[j] = old_base + base, add.apply(old_groups, groups)
        else:
            self.gradients[j] = base, groups

    def _add_integral(self, j: int, integral: Tensor) -> None:
        self.integrals[j] = self.integrals[j] + integral if j in self.integrals else integral

    def _activation_vjp(self, i: int, base: Tensor, groups: Groups) -> None:
        """Propagate the gradient at a breaking node to its input."""
        source, map_shape, segment = self.network.nodes[i].inputs[0], self.plan.map_shapes[i], self.segment
        gradient = GradientOnSegment(
            map_shape,
            segment.start,
            segment.stop,
            base=rows_by_pixel(base, map_shape),
            groups=groups,
            break_alphas=segment.break_alphas,
            pattern=segment.patterns[i],
            slope_changes=segment.new_breaks.get(i),
        )
        if source in self.affine_nodes:
            self._add_integral(source, self._as_point(integrate(gradient), source))
            return
        first, changes = activation_vjp(i, gradient)
        self._add(source, self._as_point(first, source), changes)

    def _affine_vjp(self, i: int, op: Affine, groups: Groups, shapes: list[tuple[int, ...]]) -> list[Groups]:
        """The changes of the gradient at every input of an affine node."""
        rule, inputs = self.plan.affine_rules[i], self.network.nodes[i].inputs
        if all(j in self.affine_nodes for j in inputs) and not groups:
            return [{} for _ in inputs]
        if isinstance(rule, PatchVjp):
            return rule.vjp(groups)
        input_groups: list[Groups] = [{} for _ in inputs]
        map_shape, shape = self.plan.map_shapes[i], self.network.nodes[i].shape
        for sources, group in groups.items():
            points = as_whole_maps(group, map_shape).jump.permute(0, 3, 1, 2).reshape(len(group), *shape)
            for k, gradient in enumerate(op.vjp(points, shapes)):
                input_map = self.plan.map_shapes[inputs[k]]
                jump = gradient.reshape(len(group), *input_map).permute(0, 2, 3, 1).contiguous()
                corner = torch.zeros(len(group), 2, dtype=torch.int64, device=gradient.device)
                input_groups[k][sources] = PatchGroup(corner, jump)
        return input_groups

    def _as_point(self, rows: Tensor, node: int) -> Tensor:
        """Rows (pixels, channels) as (1, *shape) of a node."""
        return rows.T.reshape(1, *self.network.nodes[node].shape)


def _affine_nodes(network: Network) -> set[int]:
    """Nodes that are affine functions of the inputs: no breaking node comes before them."""
    affine: set[int] = set()
    for i, node in enumerate(network.nodes):
        if isinstance(node.op, Input) or (isinstance(node.op, Affine) and all(j in affine for j in node.inputs)):
            affine.add(i)
    return affine
