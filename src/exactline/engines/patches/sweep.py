"""The local sweep of a line: stretch after stretch, and points where patches cannot tell."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ...lines import Lines
from ...network.graph import Network
from ...numerics.static_filter import StaticFilter
from ..assemble import merge_shared_point
from ..dense.state import SweepState, input_magnitudes, new_points, to_device
from ..dense.sweep import SweepLimits, SweepPart, sweep_from
from .plan import PatchPlan, patch_plan
from .segment import SegmentBreaks, values_at
from .segmentation import Segmentation, SegmentCounts


def sweep_patches(
    network: Network,
    lines: Lines,
    limits: SweepLimits,
    memory: int,
    values: bool,
    light: Network | None,
    tally: SegmentCounts,
) -> Iterator[SweepPart]:
    """All lines, one after another, part by part in order."""
    path = patch_plan(network)
    lighter = path if light is None else patch_plan(light)
    for line in range(len(lines)):
        yield from _sweep_line(Segmentation(network, path, lines, line, limits, memory, tally), values, lighter)
        if limits.stopped:
            return


def _sweep_line(journey: Segmentation, values: bool, light: PatchPlan) -> Iterator[SweepPart]:
    """One line; parts wait for the next, whose first pieces may begin at their last break."""
    network, lines, line, limits = journey.network, journey.lines, journey.line, journey.limits
    held: SweepPart | None = None
    for start, stop, _, found in journey.segments(light):
        if found is None:
            parts = _sweep_densely(network, lines, line, start, stop, limits)
        else:
            parts = _make_parts(network, lines, line, journey.plan, found, limits, values)
        for part in parts:
            held = yield from _hold_back(held, part)
    if held is not None and not limits.stopped:
        yield held


def _hold_back(held: SweepPart | None, part: SweepPart) -> Generator[SweepPart, None, SweepPart | None]:
    """Parts wait for the next, whose first pieces may begin at their last break."""
    if held is not None and part.continues:
        merge_shared_point(held, part)
    part, extra = _drop_edges(part)
    if held is not None:
        held.ambiguous[-1] = max(int(held.ambiguous[-1]), extra)  # mostly units that are on a knot on both sides
    if not len(part.alphas):
        return held
    if held is not None:
        yield held
    return part


def _drop_edges(part: SweepPart) -> tuple[SweepPart, int]:
    """A part without points that are no breaks, and the doubts of the piece that starts at the first of them."""
    kept = (part.origins[:, 0] >= 0) | (part.alphas == 0) | (part.alphas == 1)
    if part.continues:
        kept[0] = False
    extra = 0 if part.continues or not len(kept) or bool(kept[0]) else int(part.ambiguous[0])
    if bool(kept.all()):
        return part, extra
    line, alphas, origins, ambiguous = (
        t[kept.to(t.device)] for t in (part.line, part.alphas, part.origins, part.ambiguous)
    )
    values = tuple(v[kept.to(v.device)] for v in part.values)
    return replace(
        part, line=line, alphas=alphas, origins=origins, ambiguous=ambiguous, values=values, continues=False
    ), extra


def _make_parts(
    network: Network, lines: Lines, line: int, path: PatchPlan, found: SegmentBreaks, limits: SweepLimits, values: bool
) -> Iterator[SweepPart]:
    if path.stop < len(network.nodes):
        yield from _continue_densely(network, lines, line, path, found, limits)
        return
    outs: list[Tensor] = []
    edges = [at for at, end in ((0, 0.0), (1, 1.0)) if (found.start, found.stop)[at] == end]
    for i in network.outputs if values else ():
        part = values_at(found, found.fields[i], path.map_shapes[i], network.nodes[i].shape)
        ends = found.fields[i].ends
        outs.append(torch.cat([ends[:1] if 0 in edges else ends[:0], part, ends[1:] if 1 in edges else ends[:0]]))
    born = torch.stack([found.node, found.unit, found.count], 1)
    none = born.new_tensor([[-1, 0, 0]])
    before, after = int(0 in edges), int(1 in edges)
    alphas = torch.cat([found.alphas.new_zeros(before), found.alphas, found.alphas.new_ones(after)])
    born = torch.cat([*[none] * before, born, *[none] * after])
    which = torch.full((len(alphas),), line)
    doubts = torch.zeros(len(alphas), dtype=torch.int64)
    yield SweepPart(which, alphas.cpu(), born.cpu(), doubts, tuple(outs), False)


def _continue_densely(
    network: Network, lines: Lines, line: int, path: PatchPlan, found: SegmentBreaks, limits: SweepLimits
) -> Iterator[SweepPart]:
    """What patches cannot pass goes on as points."""
    n = len(found.alphas)
    alphas = np.concatenate([[found.start], found.alphas.cpu().numpy(), [found.stop]])
    marks, spots = new_points(np.full(n + 2, line), alphas)
    inner = slice(1, -1)
    marks[inner, 2], marks[inner, 4] = found.node.cpu().numpy(), found.count.cpu().numpy()
    marks[inner, 3] = found.unit.cpu().numpy()
    marks[inner, 5], marks[inner, 6] = found.element.cpu().numpy(), found.partner.cpu().numpy()
    spots[inner, 1] = found.slope.cpu().numpy()
    spots[inner, 2] = 1e-9 / spots[inner, 1]
    device = lines.starts[0].device
    points, _ = lines.at(to_device(device, marks[:, 0]), to_device(device, alphas))
    live = network.evaluate(points, list(found.fields))  # sums along the stretch have lost more than points may
    state = SweepState(lines, path.stop, marks, spots, live, input_magnitudes(live))
    state.filter = StaticFilter({})
    yield from sweep_from(network, state, limits)


def _sweep_densely(
    network: Network, lines: Lines, line: int, start: float, stop: float, limits: SweepLimits
) -> Iterator[SweepPart]:
    """A stretch by points alone."""
    edges = np.array([start, stop])
    which = np.full(2, line)
    device = lines.starts[0].device
    points, _ = lines.at(to_device(device, which), to_device(device, edges))
    live = dict(zip(network.inputs, points, strict=True))
    state = SweepState(lines, 0, *new_points(which, edges), live, input_magnitudes(live))
    state.filter = StaticFilter({})
    yield from sweep_from(network, state, limits)
