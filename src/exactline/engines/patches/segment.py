"""The sweep of one segment of a line: all of its breaks, and the tensors along it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from ...budget import check_deadline
from ...errors import NumberError
from ...network.graph import Network
from ...numerics.plan import sweep_plan
from ...ops.base import Affine, Breaking, Op
from ...tolerances import FLOAT32_DRIFT_SHARE, FLOAT64_EPS, MAX_DRIFT_ROUNDINGS
from .error_oracle import ErrorOracle
from .patch import (
    AffinePatchRule,
    BreakSource,
    Group,
    Groups,
    PointPatch,
    real_tensor,
    rows_by_pixel,
)
from .plan import PatchPlan
from .positions import PositionsBySources, positions_of
from .ties import TieResolver
from .timeline import (
    ActivationOutput,
    BreakAlphas,
    CrossingsAtEntries,
    NewPatchBreaks,
    NodeInput,
    PatchSwitches,
    SegmentTooLarge,
    ValueOverflow,
)


@dataclass(frozen=True, eq=False)
class TensorOnSegment:
    """One tensor of the network along a segment: a piecewise-linear function of alpha."""

    ends: Tensor  # (2, *shape) values at the start and at the stop
    slope: Tensor  # (1, *shape) just after the start
    groups: Groups  # its slope jumps


@dataclass(frozen=True, eq=False)
class SegmentBreaks:
    """The breaks of a segment in order of alpha, and the tensors that are live after its last node."""

    alphas: Tensor  # (n,)
    node: Tensor  # (n,) the first node that has a crossing here
    unit: Tensor  # (n,) its lowest unit that crosses
    count: Tensor  # (n,) number of crossings
    crossing_alphas: Tensor  # (m,) alphas of all crossings, in order
    order: Tensor  # (m,) indices that sort the crossings, concatenated by node, by alpha
    representative: Tensor  # (n,) the first crossing of each break, in order of alpha
    break_alphas: BreakAlphas
    tensors: dict[int, TensorOnSegment]  # by node: the outputs, and what nodes after the last one read
    start: float  # alpha
    stop: float  # alpha
    candidates: list[Tensor]  # (2, k) alphas between which units may be ambiguous

    def mark_candidates(self, alphas: Tensor) -> Tensor:
        """1 where units may be ambiguous on the piece that starts at an alpha, else 0; alphas (n,) in order."""
        changes = torch.zeros(len(alphas) + 1, dtype=torch.int64, device=alphas.device)
        for first, last in self.candidates:
            start = torch.searchsorted(alphas, first.contiguous(), right=True).sub_(1).clamp_(min=0)
            stop = torch.searchsorted(alphas, last.contiguous())
            changes.index_add_(0, start, torch.ones_like(start)).index_add_(0, stop, -torch.ones_like(stop))
        return (changes.cumsum(0)[:-1] > 0).to(torch.int64)

    def has_candidates_at_start(self) -> bool:
        """Whether units may be ambiguous between the start of the segment and its first break."""
        first_break = self.alphas[0] if len(self.alphas) else torch.inf
        return any(bool((first < first_break).any()) for first, _ in self.candidates)


class Segment:
    """The sweep of one segment, node by node.

    Args:
        network: The network.
        plan: Its patch plan.
        errors: Errors of values on the line.
        start: Alpha at the start of the segment.
        stop: Alpha at its stop.
        max_numbers: Numbers of all live patches above which `SegmentTooLarge` is raised.
        max_breaks: Crossings above which it is raised too.
        float32_plan: The plan of the network in float32, for patches in single precision; otherwise ``plan``.
        records_patterns: Whether `patterns` and `positions` are recorded.
        kept_nodes: Nodes whose tensors are kept in `kept`.
        records_switches: Whether `switches` are recorded.
    """

    def __init__(
        self,
        network: Network,
        plan: PatchPlan,
        errors: ErrorOracle,
        start: float,
        stop: float,
        *,
        max_numbers: float,
        max_breaks: float,
        float32_plan: PatchPlan,
        records_patterns: bool = False,
        records_switches: bool = False,
        kept_nodes: Collection[int] = (),
    ) -> None:
        self.network, self.plan, self.errors, self.float32_plan = network, plan, errors, float32_plan
        self.start, self.stop, self.max_numbers, self.max_breaks = start, stop, max_numbers, max_breaks
        self.uses_float32 = float32_plan is not plan
        self.peak_numbers = 0  # of all live patches
        self.break_alphas = BreakAlphas()
        self.new_breaks: dict[int, NewPatchBreaks] = {}  # by node
        self.at_entries: dict[int, CrossingsAtEntries] = {}  # by node
        self.ties = TieResolver(errors, start, stop, self.uses_float32)
        self.records_patterns, self.records_switches = records_patterns, records_switches
        self.switches: dict[int, PatchSwitches] = {}  # by node: units that change their branch without a crossing
        # by node, (pixels, channels) just after the start: slopes of units, or input pixels of leaders (-1: none)
        self.patterns: dict[int, Tensor] = {}
        self.candidates: list[Tensor] = []  # (2, k) alphas between which units may be ambiguous
        self.tied: dict[int, Tensor] = {}  # by node: input elements that lead together all along, (k, 2)
        self.positions: dict[int, PositionsBySources] = {}  # by node: where its slope jumps are
        self.kept_nodes = kept_nodes
        self.kept: dict[int, TensorOnSegment] = {}
        self.tensors: dict[int, TensorOnSegment] = {}  # by node
        self.known_ends = errors.end_values if (start, stop) == (0.0, 1.0) else {}  # by node, (2, *shape)

    def run(self) -> SegmentBreaks:
        """Sweep all nodes that have patch rules."""
        network, last_use = self.network, sweep_plan(self.network).last_use
        self._set_inputs()
        for i, node in enumerate(network.nodes[: self.plan.first_dense_node]):
            if i not in last_use:
                self.tensors.pop(i, None)
                continue
            check_deadline()
            if isinstance(node.op, Affine):
                self.tensors[i] = self._apply_affine(i, node.op)
            elif isinstance(node.op, Breaking):
                self.tensors[i] = self._apply_activation(i, node.op)
            if self.records_patterns and i in self.tensors:
                self.positions[i] = positions_of(self.tensors[i].groups, self.plan.map_shapes[i])
            if i in self.kept_nodes:
                self.kept[i] = self.tensors[i]
            for j in set(node.inputs):
                if last_use[j] == i:
                    del self.tensors[j]
        self.ties.check_drift()
        return self._collect_breaks()

    def _set_inputs(self) -> None:
        """The network's inputs along the segment: no jumps."""
        lines, line = self.errors.lines, self.errors.line
        device = lines.starts[0].device
        alphas = real_tensor((self.start, self.stop), device)
        points, _ = lines.at(torch.full((2,), line, device=device), alphas)
        for i, ends, a, b in zip(self.network.inputs, points, lines.starts, lines.ends, strict=True):
            self.tensors[i] = TensorOnSegment(ends, (b[line] - a[line])[None], {})

    def _apply_affine(self, i: int, op: Affine) -> TensorOnSegment:
        inputs = [self.tensors[j] for j in self.network.nodes[i].inputs]
        rule = self.float32_plan.affine_rules[i]
        if len(inputs) == 1:
            self._require_room(_count_output_numbers(rule, inputs[0].groups))
        groups = rule.apply(*(t.groups for t in inputs))
        return TensorOnSegment(self._evaluate_ends(i, op, inputs), op.linear(*(t.slope for t in inputs)), groups)

    def _apply_activation(self, i: int, op: Breaking) -> TensorOnSegment:
        node, rule = self.network.nodes[i], self.plan.activation_rules[i]
        source = self.tensors[node.inputs[0]]
        output = self._evaluate_rule(i)
        new_breaks = output.new_breaks
        if output.pattern is not None:
            self.patterns[i] = output.pattern
        if output.tied is not None:
            self.tied[i] = output.tied
        if output.at_entries is not None:
            self.at_entries[i] = output.at_entries
        if output.switches is not None:
            self.switches[i] = output.switches
        groups = {sources: self._in_patch_dtype(group) for sources, group in output.groups.items()}
        if len(new_breaks.alpha):
            self.new_breaks[i] = self.ties.place(i, new_breaks)
            self.break_alphas[i] = self.new_breaks[i].alpha
            if sum(map(len, self.break_alphas.values())) > self.max_breaks:
                raise SegmentTooLarge
            points = PointPatch(new_breaks.pixel, new_breaks.channel, new_breaks.jump)
            groups[BreakSource(i, len(new_breaks.alpha)),] = self._in_patch_dtype(points)
        channels, rows, columns = rule.map_shape
        slope = output.slope.view(rows, columns, channels).permute(2, 0, 1).reshape(1, *node.shape)
        return TensorOnSegment(self._evaluate_ends(i, op, [source]), slope, groups)

    def _evaluate_ends(self, i: int, op: Op, inputs: list[TensorOnSegment]) -> Tensor:
        """The values of node ``i`` at both ends of the segment, (2, *shape), if they are not known already."""
        return self.known_ends[i] if i in self.known_ends else op.evaluate(*(t.ends for t in inputs))

    def _evaluate_rule(self, i: int) -> ActivationOutput:
        """Evaluate the rule of breaking node ``i``; raises `NumberError` if a value overflows."""
        try:
            return self.plan.activation_rules[i].apply(self._node_input(i))
        except ValueOverflow:
            raise NumberError(
                "A value overflows or is not a number.",
                where=f"the input of node {self.network.nodes[i].name}",
                hint="Scale the points or the weights; values must stay below 1.8e308.",
            ) from None

    def _node_input(self, i: int) -> NodeInput:
        """The input of breaking node ``i``, with its error thresholds."""
        source = self.network.nodes[i].inputs[0]
        x, map_shape = self.tensors[source], self.plan.map_shapes[source]
        left, right, slope = (rows_by_pixel(t, map_shape) for t in (x.ends[0], x.ends[1], x.slope[0]))
        self._require_room(sum(_count_numbers(g, map_shape.channels) for g in x.groups.values()))
        upper, lower = self.errors.margins_by_pixel(i, map_shape)
        threshold = self.errors.thresholds[i]
        max_drift = FLOAT32_DRIFT_SHARE * float(x.ends.abs().max()) if self.uses_float32 else threshold
        drift_per_slope = MAX_DRIFT_ROUNDINGS * FLOAT64_EPS * (self.stop - self.start)
        return NodeInput(
            map_shape,
            self.start,
            self.stop,
            left=left,
            right=right,
            slope=slope,
            groups=x.groups,
            break_alphas=self.break_alphas,
            threshold=threshold,
            thresholds=torch.add(upper, slope.abs(), alpha=drift_per_slope),
            min_difference=lower,
            max_drift=max_drift,
            refine=partial(self.errors.classify, i),
            least_errors=partial(self.errors.least_errors, i),
            max_numbers=self.max_numbers,
            records_patterns=self.records_patterns,
            records_switches=self.records_switches,
            end_bounds=partial(self.errors.end_bounds, i, map_shape),
            candidates=self.candidates,
            repeated=self.errors.repeated_by_pixel(i, map_shape),
        )

    def _require_room(self, numbers: int) -> None:
        """Raise `SegmentTooLarge` if the patches of all live tensors and ``numbers`` more exceed the limit."""
        groups = {id(g): g.jump.numel() for t in self.tensors.values() for g in t.groups.values()}
        self.peak_numbers = max(self.peak_numbers, sum(groups.values()) + numbers)
        if self.peak_numbers > self.max_numbers:
            raise SegmentTooLarge

    def _in_patch_dtype(self, group: Group) -> Group:
        """A group in the precision of the patches."""
        dtype = torch.float32 if self.uses_float32 else self.errors.lines.starts[0].dtype
        if isinstance(group, PointPatch):
            return PointPatch(group.pixel, group.channel, group.jump.to(dtype))
        return group.with_jump(group.jump.to(dtype))

    def _collect_breaks(self) -> SegmentBreaks:
        """The breaks of all nodes in order of alpha; crossings of one alpha share a break."""
        alphas, node, unit = self._crossings(self.new_breaks)
        crossing_alphas, order = alphas.sort(stable=True)  # of equals, the first node comes first
        is_first = torch.ones_like(order, dtype=torch.bool)
        is_first[1:] = crossing_alphas[1:] != crossing_alphas[:-1]
        break_of, representative = is_first.cumsum(0) - 1, is_first.nonzero()[:, 0]
        first = order[representative]
        same_node = node[order] == node[first][break_of]  # crossings of later nodes are only counted
        lowest_unit = unit[first].scatter_reduce(0, break_of[same_node], unit[order[same_node]], "amin")
        known = self._crossings(self.at_entries)
        break_of = torch.cat([break_of, torch.searchsorted(crossing_alphas[representative], known.alpha)])
        all_nodes, all_units = torch.cat([node[order], known.node]), torch.cat([unit[order], known.unit])
        return SegmentBreaks(
            alphas=crossing_alphas[representative],
            node=node[first],
            unit=lowest_unit,
            count=_count_units(break_of, all_nodes, all_units, len(representative)),
            crossing_alphas=crossing_alphas,
            order=order,
            representative=representative,
            break_alphas=self.break_alphas,
            tensors=self.tensors,
            start=self.start,
            stop=self.stop,
            candidates=self.candidates,
        )

    def _crossings(self, by_node: Mapping[int, NewPatchBreaks | CrossingsAtEntries]) -> _Crossings:
        """Crossings in the order of the nodes given."""
        none = NewPatchBreaks.empty(self.errors.lines.starts[0])
        columns = [(none.alpha, none.pixel, none.channel)]
        for i, crossings in by_node.items():
            unit = crossings.channel * self.plan.activation_rules[i].map_shape.pixels + crossings.pixel
            columns.append((crossings.alpha, torch.full_like(unit, i), unit))
        return _Crossings(*(torch.cat(column) for column in zip(*columns, strict=True)))


class _Crossings(NamedTuple):
    """Units that cross a knot or another element, (m,) each."""

    alpha: Tensor
    node: Tensor
    unit: Tensor


def _count_units(break_of: Tensor, node: Tensor, unit: Tensor, breaks: int) -> Tensor:
    """How many units of all nodes cross at each break, (breaks,), from the break, node and unit of every crossing.

    A window whose leader changes several times at a break counts once.
    """
    counts = torch.bincount(break_of, minlength=breaks)
    several = (counts[break_of] > 1).nonzero()[:, 0]
    if len(several):
        crossings = torch.stack([break_of, node, unit])[:, several]
        counts[break_of[several]] = 0
        places, number = torch.unique(torch.unique(crossings, dim=1)[0], return_counts=True)
        counts[places] = number
    return counts


def _count_numbers(group: Group, channels: int) -> int:
    """Numbers of a group as patches."""
    return group.jump.numel() * (channels if isinstance(group, PointPatch) else 1)


def _count_output_numbers(rule: AffinePatchRule, groups: Groups) -> int:
    """Numbers of the patches that a rule makes of some groups."""
    sizes = ((len(g), rule.output_size((1, 1) if isinstance(g, PointPatch) else g.size)) for g in groups.values())
    return rule.map_shape.channels * sum(count * rows * columns for count, (rows, columns) in sizes)
