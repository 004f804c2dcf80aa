"""Exact integrals of gradients by patches: the adjoint of the sweep.

On a segment the output changes by the integral of its slope, which is a linear function of the slope of the inputs once
all activation patterns are fixed. The integral of the gradient is the adjoint of that function. It is found by
going through the sweep backwards, with a number for every slope at the start and every slope jump: the integral of the
gradient from there to the end of the segment. That takes about as long as the sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from ...lines import Lines
from ...network.graph import Network
from ..dense.cotangents import OutputCotangent, TailCotangent
from ..dense.gradients import BackwardSweep, LayerHook
from ..dense.sweep import SweepLimits
from ..layer_hooks import LayerIntegral, UnitSelection
from .adjoint_sweep import AdjointSweep
from .maxpool import MaximumPatchRule
from .plan import PatchPlan, patch_plan
from .pointwise import PointwisePatchRule
from .segment_cotangent import SegmentCotangent
from .segmentation import Segmentation, SegmentCounts
from .tied_leaders import depends_on_convention


@dataclass(frozen=True, eq=False)
class PatchIntegral:
    """The gradient of one output element, integrated over lines by patches."""

    gradients: tuple[Tensor, ...]  # (lines, *in) for each input
    other_gradients: tuple[Tensor, ...]  # the same with ambiguous units on their other side
    pieces: int
    ambiguous: int  # pairs of a piece and an ambiguous unit


@dataclass(eq=False)
class _SideIntegral:
    """Integrals with ambiguous units on one of their sides."""

    gradients: list[Tensor]  # (*in) for each input
    layers: dict[int, Tensor]  # by node with a `LayerIntegral`: (*shape)

    @staticmethod
    def zero(network: Network, hooks: Mapping[int, LayerHook]) -> _SideIntegral:
        """Nothing integrated yet."""

        def zeros(node: int) -> Tensor:
            return torch.zeros(network.nodes[node].shape, dtype=network.dtype, device=network.device)

        layers = {i: zeros(i) for i, hook in hooks.items() if isinstance(hook, LayerIntegral)}
        return _SideIntegral([zeros(i) for i in network.inputs], layers)

    def add(self, part: _SideIntegral) -> None:
        """Add the integrals over a segment."""
        for total, gradient in zip(self.gradients, part.gradients, strict=True):
            total += gradient
        for i, layer in part.layers.items():
            self.layers[i] += layer


@dataclass(eq=False)
class _LineIntegral:
    """The integrals over the segments of a line so far."""

    taken: _SideIntegral
    other: _SideIntegral  # with ambiguous units on their other side
    breaks: int = 0
    ambiguous: int = 0  # pairs of a piece and an ambiguous unit

    def add(self, part: _LineIntegral) -> None:
        """Add the integrals over another segment."""
        self.taken.add(part.taken)
        self.other.add(part.other)
        self.breaks += part.breaks
        self.ambiguous += part.ambiguous


@dataclass(frozen=True, eq=False)
class _Task:
    """What is integrated along a line."""

    cotangent: OutputCotangent | TailCotangent
    hooks: Mapping[int, LayerHook]
    ignores_fixed_inputs: bool
    first_node: int  # gradients further down are not wanted

    @property
    def watched(self) -> frozenset[int]:
        """The nodes whose gradients are wanted as they are."""
        hooks = self.hooks.items()
        return frozenset(i for i, hook in hooks if isinstance(hook, LayerIntegral) and not hook.over_values)


def patch_integral(
    network: Network,
    lines: Lines,
    cotangent: OutputCotangent | TailCotangent,
    limits: SweepLimits,
    memory: int,
    hooks: Mapping[int, LayerHook],
    *,
    other_side_hooks: Mapping[int, LayerHook] | None = None,
    ignores_fixed_inputs: bool = False,
    layers_only: bool = False,
    progress: Callable[[float, int], None] | None = None,
) -> PatchIntegral | None:
    """Integrate the gradient of one output element over every line, by patches.

    Returns None if the dense engine is needed: a breaking node has no patch rule, a hook is of another kind, or a
    gradient depends on a convention.

    Args:
        network: The network.
        lines: The lines.
        cotangent: The output element.
        limits: When to stop; ``max_points`` bounds the parts that are swept densely.
        memory: Memory budget in bytes.
        hooks: By node: a `LayerIntegral`, to whose total the integrals are added, or a `UnitSelection` of one unit.
        other_side_hooks: Those that get the integrals with ambiguous units on their other side.
        ignores_fixed_inputs: Whether gradients at inputs that do not move along a line may be any subgradient.
        layers_only: Whether only the integrals of hooks are wanted.
        progress: Called after each segment with the number of lines done, fractions included, and of pieces so far.
    """
    plan, counts = patch_plan(network), SegmentCounts()
    first_node = min(hooks, default=0) if layers_only else 0
    if not _has_adjoint(network, plan) or not all(_is_known(hook) for hook in hooks.values()):
        return None
    integrals: list[_LineIntegral] = []
    pieces = 0
    for line in range(len(lines)):
        segmentation = Segmentation(
            network,
            plan,
            lines,
            line,
            limits=limits,
            memory=memory,
            counts=counts,
            values=isinstance(cotangent, TailCotangent),
        )
        report = None if progress is None else partial(_report_segment, progress, line, pieces)
        own = replace(cotangent, targets=cotangent.targets[line : line + 1])
        integral = _integrate_line(segmentation, _Task(own, hooks, ignores_fixed_inputs, first_node), report)
        if integral is None:
            return None
        integrals.append(integral)
        pieces += integral.breaks + 1
        if progress is not None:
            progress(line + 1, pieces)
    gradients = _collect([integral.taken for integral in integrals], hooks, lines)
    other_gradients = _collect([integral.other for integral in integrals], other_side_hooks or {}, lines)
    return PatchIntegral(gradients, other_gradients, pieces, sum(integral.ambiguous for integral in integrals))


def _collect(sides: list[_SideIntegral], hooks: Mapping[int, LayerHook], lines: Lines) -> tuple[Tensor, ...]:
    """Add the integrals of all lines to the totals of hooks; return the gradients, (lines, *in) for each input."""
    gradients = tuple(torch.zeros_like(t) for t in lines.starts)
    for line, side in enumerate(sides):
        for i, hook in hooks.items():
            if isinstance(hook, LayerIntegral):
                hook.total[line] += side.layers[i].to(hook.total)
        for total, gradient in zip(gradients, side.gradients, strict=True):
            total[line] = gradient
    return gradients


def _has_adjoint(network: Network, plan: PatchPlan) -> bool:
    """Whether patches reach the outputs, and every breaking node has an adjoint."""
    rules = plan.activation_rules.values()
    return plan.first_dense_node == len(network.nodes) and all(
        isinstance(rule, (PointwisePatchRule, MaximumPatchRule)) for rule in rules
    )


def _is_known(hook: LayerHook) -> bool:
    """Whether patches can do what a hook does: a selection must read the gradient of a single unit."""
    return isinstance(hook, LayerIntegral) or (
        isinstance(hook, UnitSelection) and int(hook.weights.count_nonzero()) <= 1
    )


def _report_segment(progress: Callable[[float, int], None], line: int, pieces: int, alpha: float, breaks: int) -> None:
    progress(line + alpha, pieces + breaks)


def _integrate_line(
    segmentation: Segmentation, task: _Task, report: Callable[[float, int], None] | None
) -> _LineIntegral | None:
    """The integrals over one line; None if a gradient depends on which of several tied leaders gets it."""
    network, plan, hooks, cotangent = segmentation.network, segmentation.plan, task.hooks, task.cotangent
    total = _LineIntegral(_SideIntegral.zero(network, hooks), _SideIntegral.zero(network, hooks))
    kept = {i for i, hook in hooks.items() if isinstance(hook, LayerIntegral) and hook.over_values}
    for segment, breaks in segmentation.segments(plan, records_patterns=True, kept_nodes=kept):
        stop = segment.stop
        if segment.tied and depends_on_convention(network, segment, task.watched, hooks, task.ignores_fixed_inputs):
            return None
        if breaks is None:
            part = _integrate_densely(segmentation, segment.start, stop, task)
        else:
            sweep = AdjointSweep(network, plan, segment, hooks, task.first_node)
            gradients = sweep.run(network.outputs[cotangent.output], SegmentCotangent(cotangent, segment, breaks))
            sides = _SideIntegral(gradients, sweep.layers), _SideIntegral(gradients, sweep.other_layers)
            part = _LineIntegral(*sides, len(breaks.alphas), sweep.ambiguous)
        del segment, breaks  # they hold the patches
        total.add(part)
        if report is not None:
            report(stop, total.breaks)
    return total


def _integrate_densely(segmentation: Segmentation, start: float, stop: float, task: _Task) -> _LineIntegral:
    """The integrals over a segment by the dense engine."""
    lines = segmentation.lines
    device = lines.starts[0].device
    ends = torch.tensor([start, stop], dtype=torch.float64, device=device)
    points, _ = lines.at(torch.full((2,), segmentation.line, device=device), ends)
    segment = Lines(tuple(p[:1] for p in points), tuple(p[1:] for p in points))

    def integrate(other_side: bool) -> tuple[_SideIntegral, BackwardSweep]:
        side = _SideIntegral.zero(segmentation.network, task.hooks)
        own_hooks = {
            i: replace(hook, total=side.layers[i][None]) if isinstance(hook, LayerIntegral) else hook
            for i, hook in task.hooks.items()
        }
        sweep = BackwardSweep(segmentation.network, task.cotangent, segmentation.limits, own_hooks, other_side)
        _, gradients = next(iter(sweep.run(segment)))
        side.gradients = [g[0] * (stop - start) for g in gradients]
        for i in task.watched:  # the sweep's alpha runs from 0 to 1
            side.layers[i] *= stop - start
        return side, sweep

    taken, sweep = integrate(False)
    other = integrate(True)[0] if sweep.ambiguous else taken
    return _LineIntegral(taken, other, sweep.pieces - 1, sweep.ambiguous)
