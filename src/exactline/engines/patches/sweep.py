"""The local sweep of a line: stretch after stretch, and points where patches cannot tell."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from ...lines import Lines
from ...network.graph import Network
from ...numerics.static_filter import Usual
from ..assemble import share
from ..dense.state import State, first_sizes, on, unborn
from ..dense.sweep import Limits, Part, advance_all
from .plan import Route, route
from .segment import Found, values_at
from .segmentation import Journey, Tally


def sweep_locally(
    network: Network, lines: Lines, limits: Limits, memory: int, values: bool, light: Network | None, tally: Tally
) -> Iterator[Part]:
    """All lines, one after another, part by part in order."""
    path = route(network)
    lighter = path if light is None else route(light)
    for line in range(len(lines)):
        yield from _one(Journey(network, path, lines, line, limits, memory, tally), values, lighter)
        if limits.stopped:
            return


def _one(journey: Journey, values: bool, light: Route) -> Iterator[Part]:
    """One line; parts wait for the next, whose first pieces may begin at their last break."""
    network, lines, line, limits = journey.network, journey.lines, journey.line, journey.limits
    held: Part | None = None
    for start, stop, _, found in journey.stretches(light):
        if found is None:
            parts = _dense(network, lines, line, start, stop, limits)
        else:
            parts = _parts(network, lines, line, journey.path, found, limits, values)
        for part in parts:
            held = yield from _handed(held, part)
    if held is not None and not limits.stopped:
        yield held


def _handed(held: Part | None, part: Part) -> Generator[Part, None, Part | None]:
    """Parts wait for the next, whose first pieces may begin at their last break."""
    if held is not None and part.continues:
        share(held, part)
    part, extra = _own(part)
    if held is not None:
        held.doubts[-1] = max(int(held.doubts[-1]), extra)  # mostly units that are on a knot on both sides
    if not len(part.alphas):
        return held
    if held is not None:
        yield held
    return part


def _own(part: Part) -> tuple[Part, int]:
    """A part without points that are no breaks, and the doubts of the piece that starts at the first of them."""
    kept = (part.born[:, 0] >= 0) | (part.alphas == 0) | (part.alphas == 1)
    if part.continues:
        kept[0] = False
    extra = 0 if part.continues or not len(kept) or bool(kept[0]) else int(part.doubts[0])
    if bool(kept.all()):
        return part, extra
    line, alphas, born, doubts = (t[kept.to(t.device)] for t in (part.line, part.alphas, part.born, part.doubts))
    values = tuple(v[kept.to(v.device)] for v in part.values)
    return replace(part, line=line, alphas=alphas, born=born, doubts=doubts, values=values, continues=False), extra


def _parts(
    network: Network, lines: Lines, line: int, path: Route, found: Found, limits: Limits, values: bool
) -> Iterator[Part]:
    if path.stop < len(network.nodes):
        yield from _handover(network, lines, line, path, found, limits)
        return
    outs: list[Tensor] = []
    edges = [at for at, end in ((0, 0.0), (1, 1.0)) if (found.start, found.stop)[at] == end]
    for i in network.outputs if values else ():
        part = values_at(found, found.fields[i], path.grids[i], network.nodes[i].shape)
        ends = found.fields[i].ends
        outs.append(torch.cat([ends[:1] if 0 in edges else ends[:0], part, ends[1:] if 1 in edges else ends[:0]]))
    born = torch.stack([found.node, found.unit, found.count], 1)
    none = born.new_tensor([[-1, 0, 0]])
    before, after = int(0 in edges), int(1 in edges)
    alphas = torch.cat([found.alphas.new_zeros(before), found.alphas, found.alphas.new_ones(after)])
    born = torch.cat([*[none] * before, born, *[none] * after])
    which = torch.full((len(alphas),), line)
    doubts = torch.zeros(len(alphas), dtype=torch.int64)
    yield Part(which, alphas.cpu(), born.cpu(), doubts, tuple(outs), False)


def _handover(network: Network, lines: Lines, line: int, path: Route, found: Found, limits: Limits) -> Iterator[Part]:
    """What patches cannot pass goes on as points."""
    n = len(found.alphas)
    alphas = np.concatenate([[found.start], found.alphas.cpu().numpy(), [found.stop]])
    marks, spots = unborn(np.full(n + 2, line), alphas)
    inner = slice(1, -1)
    marks[inner, 2], marks[inner, 4] = found.node.cpu().numpy(), found.count.cpu().numpy()
    marks[inner, 3] = found.unit.cpu().numpy()
    marks[inner, 5], marks[inner, 6] = found.element.cpu().numpy(), found.partner.cpu().numpy()
    spots[inner, 1] = found.rate.cpu().numpy()
    spots[inner, 2] = 1e-9 / spots[inner, 1]
    device = lines.starts[0].device
    points, _ = lines.at(on(device, marks[:, 0]), on(device, alphas))
    live = network.evaluate(points, list(found.fields))  # sums along the stretch have lost more than points may
    state = State(lines, path.stop, marks, spots, live, first_sizes(live))
    state.usual = Usual({})
    yield from advance_all(network, state, limits)


def _dense(network: Network, lines: Lines, line: int, start: float, stop: float, limits: Limits) -> Iterator[Part]:
    """A stretch by points alone."""
    edges = np.array([start, stop])
    which = np.full(2, line)
    device = lines.starts[0].device
    points, _ = lines.at(on(device, which), on(device, edges))
    live = dict(zip(network.inputs, points, strict=True))
    state = State(lines, 0, *unborn(which, edges), live, first_sizes(live))
    state.usual = Usual({})
    yield from advance_all(network, state, limits)
