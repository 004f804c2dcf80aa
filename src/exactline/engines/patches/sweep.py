"""The sweep of lines by patches: segment by segment, and densely where patches cannot decide."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ...lines import Lines
from ...network.graph import Network
from ..assemble import merge_shared_point
from ..dense.points import PointTable, to_device
from ..dense.state import SweepState, input_magnitudes, line_magnitudes
from ..dense.sweep import SweepLimits, SweepPart, sweep_from
from ..layer_record import LayerRecorder
from .break_values import values_at
from .plan import PatchPlan, patch_plan
from .segment import Segment, SegmentBreaks
from .segmentation import Segmentation, SegmentCounts


def sweep_patches(
    network: Network,
    lines: Lines,
    limits: SweepLimits,
    *,
    memory: int,
    values: bool,
    float32_network: Network | None,
    counts: SegmentCounts,
    recorder: LayerRecorder | None = None,
    releases_memory: bool = False,
) -> Iterator[SweepPart]:
    """Sweep lines one after another; yields finished parts in order and ends early at a limit.

    Args:
        network: The network.
        lines: The lines.
        limits: When to stop; ``max_points`` bounds the parts that are swept densely.
        memory: Memory budget in bytes.
        values: Whether the values of the outputs are wanted.
        float32_network: The network in float32, for patches in single precision; None for float64.
        counts: Counts the segments.
        recorder: Collects the units that change their branch; None if they are not wanted.
        releases_memory: Whether memory that was freed is given back to the system; see `Segmentation`.
    """
    plan = patch_plan(network)
    float32_plan = plan if float32_network is None else patch_plan(float32_network)
    for line in range(len(lines)):
        segmentation = None
        with limits.enforced():
            segmentation = Segmentation(
                network,
                plan,
                lines,
                line,
                limits=limits,
                memory=memory,
                counts=counts,
                values=values,
                recorder=recorder,
                releases_memory=releases_memory,
            )
        if segmentation is not None:
            yield from _sweep_line(segmentation, values, float32_plan)
        if limits.stopped:
            return


def _sweep_line(segmentation: Segmentation, values: bool, float32_plan: PatchPlan) -> Iterator[SweepPart]:
    """Sweep one line; every part is held back until the next one has updated its last break."""
    limits, recorder = segmentation.limits, segmentation.recorder
    held: SweepPart | None = None
    for segment, breaks in segmentation.segments(float32_plan):
        parts: Iterator[SweepPart] = iter(())
        if recorder is not None and breaks is not None:
            _record_segment(recorder, segmentation.line, segment)
        if breaks is None:
            parts = _sweep_densely(segmentation, segment.start, segment.stop)
        elif segmentation.plan.first_dense_node < len(segmentation.network.nodes):
            parts = _continue_densely(segmentation, breaks)
        else:
            with limits.enforced():
                parts = iter([_make_part(segmentation, breaks, values)])
                if held is not None and breaks.has_candidates_at_start():
                    held.ambiguous[-1] = 1  # its last piece ends at the first break of this segment
        del segment, breaks  # they hold the patches
        for part in parts:
            segmentation.counts.breaks += int((part.origins[:, 0] >= 0).sum())
            held = yield from _hold_back(held, part, recorder)
        if held is not None and segmentation.has_enough_breaks():
            yield held
            held = None
    if held is not None and limits.stopped:
        held = held.head(len(held.alphas) - 1)  # what the last break counts is not final
    if held is not None and len(held.alphas):
        yield held


def _record_segment(recorder: LayerRecorder, line: int, segment: Segment) -> None:
    """Record the units of a segment that change their branch."""
    for node, crossings in (*segment.new_breaks.items(), *segment.at_entries.items()):
        pixels = segment.plan.activation_rules[node].map_shape.pixels
        recorder.add(line, node, crossings.channel * pixels + crossings.pixel, crossings.alpha)
    for node, switches in segment.switches.items():
        recorder.add(line, node, switches.unit, switches.alpha, is_crossing=False)
    recorder.commit()


def _hold_back(
    held: SweepPart | None, part: SweepPart, recorder: LayerRecorder | None
) -> Generator[SweepPart, None, SweepPart | None]:
    """Yield the part that was held back, updated by the next one; returns the part to hold back now."""
    if held is not None and part.continues:
        merge_shared_point(held, part, recorder)
    part, ambiguous = _drop_segment_ends(part)
    if held is not None:
        # the last piece of one part and the first of the next are one: most of their ambiguous units are the same
        held.ambiguous[-1] = max(int(held.ambiguous[-1]), ambiguous)
    if not len(part.alphas):
        return held
    if held is not None:
        yield held
    return part


def _drop_segment_ends(part: SweepPart) -> tuple[SweepPart, int]:
    """A part without points that are not breaks, and the number of ambiguous units at its first point if dropped."""
    kept = (part.origins[:, 0] >= 0) | (part.alphas == 0) | (part.alphas == 1)
    if part.continues:
        kept[0] = False
    dropped_ambiguous = 0 if part.continues or not len(kept) or bool(kept[0]) else int(part.ambiguous[0])
    if bool(kept.all()):
        return part, dropped_ambiguous
    line, alphas, origins, ambiguous = (
        t[kept.to(t.device)] for t in (part.line, part.alphas, part.origins, part.ambiguous)
    )
    values = tuple(v[kept.to(v.device)] for v in part.values)
    return replace(
        part, line=line, alphas=alphas, origins=origins, ambiguous=ambiguous, values=values, continues=False
    ), dropped_ambiguous


def _make_part(segmentation: Segmentation, breaks: SegmentBreaks, keep_values: bool) -> SweepPart:
    """The finished part of a segment, with the ends of the line if it has them."""
    network, map_shapes = segmentation.network, segmentation.plan.map_shapes
    has_start, has_end = int(breaks.start == 0.0), int(breaks.stop == 1.0)
    values = [
        values_at(breaks, breaks.tensors[i], map_shapes[i], network.nodes[i].shape)
        for i in (network.outputs if keep_values else ())
    ]
    alphas = torch.cat([breaks.alphas.new_zeros(has_start), breaks.alphas, breaks.alphas.new_ones(has_end)])
    origins = torch.stack([breaks.node, breaks.unit, breaks.count], 1)
    no_origin = origins.new_zeros(1, 3)
    no_origin[:, 0] = -1
    origins = torch.cat([*[no_origin] * has_start, origins, *[no_origin] * has_end])
    line = torch.full((len(alphas),), segmentation.line)
    ambiguous = breaks.mark_candidates(alphas)
    return SweepPart(line, alphas.cpu(), origins.cpu(), ambiguous.cpu(), tuple(values), False)


def _continue_densely(segmentation: Segmentation, breaks: SegmentBreaks) -> Iterator[SweepPart]:
    """Sweep the nodes after the last patch rule densely, from the breaks of a segment."""
    network, lines = segmentation.network, segmentation.lines
    alphas = np.concatenate([[breaks.start], breaks.alphas.cpu().numpy(), [breaks.stop]])
    table = PointTable.without_origins(np.full(len(alphas), segmentation.line), alphas)
    inner = slice(1, -1)
    table.node[inner], table.unit[inner] = breaks.node.cpu().numpy(), breaks.unit.cpu().numpy()
    table.count[inner] = breaks.count.cpu().numpy()
    table.ambiguous[:] = breaks.mark_candidates(torch.from_numpy(alphas).to(breaks.alphas.device)).cpu().numpy()
    device = lines.starts[0].device
    wanted = list(breaks.tensors)
    del breaks  # it holds the patches
    live: dict[int, Tensor] = {}
    first, limits = 0, segmentation.limits
    while first < len(table.alpha) - 1 and not limits.stopped:
        stop = min(first + max(limits.max_points, 2), len(table.alpha))
        with limits.enforced():
            some = table.rows(first, stop)
            points, _ = lines.at(to_device(device, some.line), to_device(device, some.alpha))
            live = network.evaluate(points, wanted)  # evaluated again: cumulative sums are less accurate
        if limits.stopped:
            return
        bounds = {i: segmentation.errors.magnitudes[i].at_least(here) for i, here in input_magnitudes(live).items()}
        state = SweepState(lines, segmentation.plan.first_dense_node, some, live, bounds)
        state.continues, state.shared_crossings = first > 0, int(some.count[0]) if first > 0 else 0
        state.filter, state.recorder = replace(segmentation.errors.filter), segmentation.recorder
        yield from sweep_from(network, state, limits)
        first = stop - 1


def _sweep_densely(segmentation: Segmentation, start: float, stop: float) -> Iterator[SweepPart]:
    """Sweep a segment with the dense engine alone."""
    network, lines = segmentation.network, segmentation.lines
    alphas, line = np.array([start, stop]), np.full(2, segmentation.line)
    device = lines.starts[0].device
    points, _ = lines.at(to_device(device, line), to_device(device, alphas))
    live = dict(zip(network.inputs, points, strict=True))
    bounds = line_magnitudes(lines, to_device(device, line[:1]), live)
    state = SweepState(lines, 0, PointTable.without_origins(line, alphas), live, bounds)
    state.filter, state.recorder = replace(segmentation.errors.filter), segmentation.recorder
    yield from sweep_from(network, state, segmentation.limits)
