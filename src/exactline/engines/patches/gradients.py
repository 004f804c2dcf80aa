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
    pieces: int


@dataclass(eq=False)
class _LineIntegral:
    """The integrals over the segments of a line so far."""

    gradients: list[Tensor]  # (*in) for each input
    layers: dict[int, Tensor]  # by node with a `LayerIntegral`: (*shape)
    breaks: int = 0

    @staticmethod
    def zero(network: Network, hooks: Mapping[int, LayerHook]) -> _LineIntegral:
        """Nothing integrated yet."""

        def zeros(node: int) -> Tensor:
            return torch.zeros(network.nodes[node].shape, dtype=network.dtype, device=network.device)

        layers = {i: zeros(i) for i, hook in hooks.items() if isinstance(hook, LayerIntegral)}
        return _LineIntegral([zeros(i) for i in network.inputs], layers)

    def add(self, other: _LineIntegral) -> None:
        """Add the integrals over another segment."""
        for total, part in zip(self.gradients, other.gradients, strict=True):
            total += part
        for i, part in other.layers.items():
            self.layers[i] += part
        self.breaks += other.breaks


def patch_integral(
    network: Network,
    lines: Lines,
    cotangent: OutputCotangent | TailCotangent,
    limits: SweepLimits,
    memory: int,
    hooks: Mapping[int, LayerHook],
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
        progress: Called after each segment with the number of lines done, fractions included, and of pieces so far.
    """
    plan, counts = patch_plan(network), SegmentCounts()
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
        integral = _integrate_line(
            segmentation, replace(cotangent, targets=cotangent.targets[line : line + 1]), hooks, report
        )
        if integral is None:
            return None
        integrals.append(integral)
        pieces += integral.breaks + 1
        if progress is not None:
            progress(line + 1, pieces)
    for i, hook in hooks.items():
        if isinstance(hook, LayerIntegral):
            for line, integral in enumerate(integrals):
                hook.total[line] += integral.layers[i].to(hook.total)
    gradients = [torch.zeros_like(t) for t in lines.starts]
    for line, integral in enumerate(integrals):
        for total, gradient in zip(gradients, integral.gradients, strict=True):
            total[line] = gradient
    return PatchIntegral(tuple(gradients), pieces)


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
    segmentation: Segmentation,
    cotangent: OutputCotangent | TailCotangent,
    hooks: Mapping[int, LayerHook],
    report: Callable[[float, int], None] | None,
) -> _LineIntegral | None:
    """The integrals over one line; None if a gradient is a convention."""
    network, plan = segmentation.network, segmentation.plan
    total = _LineIntegral.zero(network, hooks)
    kept = {i for i, hook in hooks.items() if isinstance(hook, LayerIntegral) and hook.over_values}
    needs_all_gradients = any(isinstance(hook, LayerIntegral) and not hook.over_values for hook in hooks.values())
    for segment, breaks in segmentation.segments(plan, records_patterns=True, kept_nodes=kept):
        stop = segment.stop
        if segment.tied and (needs_all_gradients or depends_on_convention(network, segment)):
            return None
        if breaks is None:
            part = _integrate_densely(segmentation, segment.start, stop, cotangent, hooks)
        else:
            sweep = AdjointSweep(network, plan, segment, hooks)
            gradients = sweep.run(network.outputs[cotangent.output], SegmentCotangent(cotangent, segment, breaks))
            part = _LineIntegral(gradients, sweep.layers, len(breaks.alphas))
        del segment, breaks  # they hold the patches
        if part is None:
            return None
        total.add(part)
        if report is not None:
            report(stop, total.breaks)
    return total


def _integrate_densely(
    segmentation: Segmentation,
    start: float,
    stop: float,
    cotangent: OutputCotangent | TailCotangent,
    hooks: Mapping[int, LayerHook],
) -> _LineIntegral | None:
    """The integrals over a segment by the dense engine; None if a gradient is a convention."""
    network, lines = segmentation.network, segmentation.lines
    device = lines.starts[0].device
    ends = torch.tensor([start, stop], dtype=torch.float64, device=device)
    points, _ = lines.at(torch.full((2,), segmentation.line, device=device), ends)
    segment = Lines(tuple(p[:1] for p in points), tuple(p[1:] for p in points))
    part = _LineIntegral.zero(network, hooks)
    own_hooks = {
        i: replace(hook, total=part.layers[i][None]) if isinstance(hook, LayerIntegral) else hook
        for i, hook in hooks.items()
    }
    sweep = BackwardSweep(network, cotangent, segmentation.limits, own_hooks)
    _, gradients = next(iter(sweep.run(segment)))
    if sweep.ambiguous:
        return None
    part.gradients, part.breaks = [g[0] * (stop - start) for g in gradients], sweep.pieces - 1
    for i, hook in hooks.items():
        if isinstance(hook, LayerIntegral) and not hook.over_values:  # the sweep's alpha runs from 0 to 1
            part.layers[i] *= stop - start
    return part
