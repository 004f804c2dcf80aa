"""The local sweep of a line: stretch after stretch, and points where patches cannot tell."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ...line import Lines
from ...network.graph import Network
from ...ops.patches.scan import Doubt
from ..doubt import Usual
from ..engine import Limits, Part, advance_all
from ..plan import plan
from ..state import State, first_sizes, on, unborn
from .look import Looks
from .plan import Route, route
from .stretch import Found, Stretch, TooLarge, values_at

FIRST = 33  # points that foretell where breaks are many
PATIENCE = 12  # doubts before the rest of a line is taken by points
DEEPEST = 2  # how often a stretch is cut around a doubtful place before that place is taken by points
NARROW, SHIFT = 1 / 12, 0.381966  # of a stretch: half of what lies around such a place; how far a bad end is moved
SOON = 512  # breaks of a stretch where a deadline may end the sweep
HEAVY = {"cpu": 3000, "cuda": 60000}  # breaks of one stretch, where memory allows


@dataclass
class Tally:
    """What became of the stretches."""

    local: int = 0
    dense: int = 0
    redone: int = 0
    breaks: int = field(default=0)


def sweep_locally(
    network: Network, lines: Lines, limits: Limits, memory: int, values: bool, light: Network | None, tally: Tally
) -> Iterator[Part]:
    """All lines, one after another, part by part in order."""
    path = route(network)
    lighter = path if light is None else route(light)
    for line in range(len(lines)):
        yield from _one(network, lines, line, limits, memory, values, path, lighter, tally)
        if limits.stopped:
            return


def _one(
    network: Network,
    lines: Lines,
    line: int,
    limits: Limits,
    memory: int,
    values: bool,
    path: Route,
    light: Route,
    tally: Tally,
) -> Iterator[Part]:
    looks = Looks.along(network, lines, line, path.stop)
    most = memory / 8 / 3  # numbers of patches at one node
    wanted = min(HEAVY.get(network.device.type, 3000), max(16, int(most / max(path.numbers, 1.0) / 2)))
    if path.stop < len(network.nodes):
        wanted = min(wanted, max(16, limits.points // 2))
    if limits.deadline < float("inf"):
        wanted = min(wanted, SOON)
    waiting = [(start, stop, 0) for start, stop in _foretold(network, lines, line, wanted)[::-1]]
    held: Part | None = None
    pace = _Pace(limits)
    while waiting:
        if limits.late():
            break
        start, stop, depth = pace.next(waiting)
        try:
            if depth > DEEPEST:
                looks.clear_at(stop)
                tally.dense += 1
                parts = _dense(network, lines, line, start, stop, limits)
            else:
                found = Stretch(network, path, looks, start, stop, most, light).run()
                parts = _parts(network, lines, line, path, found, limits, values)
                tally.local += 1
        except TooLarge:
            middle = 0.5 * (start + stop)
            waiting += [(middle, stop, depth), (start, middle, depth)]
            continue
        except Doubt as doubt:
            tally.redone += 1
            if tally.redone > PATIENCE + 2 * tally.local:  # ties are how this network is made
                waiting = [(start, 1.0, DEEPEST + 1)]
            elif doubt.alpha == stop and waiting:
                beyond = waiting.pop()
                moved = (
                    stop + (beyond[1] - stop) * SHIFT
                    if beyond[1] - stop < stop - start
                    else stop - (stop - start) * SHIFT
                )
                waiting += [(moved, beyond[1], beyond[2]), (start, moved, depth)]
            else:
                waiting += _cut(start, stop, depth, doubt.alpha)[::-1]
            continue
        for part in parts:
            held = yield from _handed(held, part)
    if held is not None and not limits.stopped:
        yield held


class _Pace:
    """Stretches are short at first where there is a deadline, then as long as the time left allows."""

    def __init__(self, limits: Limits) -> None:
        self.deadline, self.began, self.together = limits.deadline, time.monotonic(), 1

    def next(self, waiting: list[tuple[float, float, int]]) -> tuple[float, float, int]:
        """The next stretch, made of several where there is time."""
        start, stop, depth = waiting.pop()
        if self.deadline == float("inf"):
            return start, stop, depth
        now = time.monotonic()
        spent, left = now - self.began, self.deadline - now
        self.began = now
        self.together = max(1, self.together * 2 if spent < left / 16 else self.together // 2)
        for _ in range(self.together - 1):
            if depth or not waiting or waiting[-1][2]:
                break
            stop = waiting.pop()[1]
        return start, stop, depth


def _handed(held: Part | None, part: Part) -> Generator[Part, None, Part | None]:
    """Parts wait for the next, whose first pieces may begin at their last break."""
    part, extra = _own(part)
    if held is not None and extra:
        held.doubts[-1] += extra
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
    extra = 0 if not len(kept) or bool(kept[0]) else int(part.doubts[0])
    if bool(kept.all()):
        return part, extra
    line, alphas, born, doubts = (t[kept.to(t.device)] for t in (part.line, part.alphas, part.born, part.doubts))
    values = tuple(v[kept.to(v.device)] for v in part.values)
    return replace(part, line=line, alphas=alphas, born=born, doubts=doubts, values=values, continues=False), extra


def _cut(start: float, stop: float, depth: int, alpha: float) -> list[tuple[float, float, int]]:
    """A stretch in parts, with a short one around a doubtful place, which goes deeper."""
    width = stop - start
    low, high = alpha - width * NARROW, alpha + width * NARROW * 1.1
    edges = [start, *(at for at in (low, high) if start + width / 64 < at < stop - width / 64), stop]
    return [(a, b, depth + (a <= alpha <= b)) for a, b in pairwise(edges)]


def _foretold(network: Network, lines: Lines, line: int, wanted: int) -> list[tuple[float, float]]:
    """Stretches that should have about as many breaks as are wanted: units that change between a few points tell."""
    device = lines.starts[0].device
    alphas = torch.linspace(0, 1, FIRST, dtype=torch.float64, device=device)
    points, _ = lines.at(torch.full((FIRST,), line, device=device), alphas)
    last = plan(network).last
    live = dict(zip(network.inputs, points, strict=True))
    changes = torch.zeros(FIRST - 1, dtype=torch.int64, device=device)
    for i, node in enumerate(network.nodes):
        if i not in last or i in network.inputs:
            continue
        xs = [live[j] for j in node.inputs]
        live[i] = node.op.evaluate(*xs)
        if i in network.breaking:
            pattern = network.nodes[i].op.branch(xs[0], xs[0])  # pyright: ignore
            changes += (pattern[1:] != pattern[:-1]).flatten(1).sum(1)
        for j in set(node.inputs):
            if last[j] == i:
                del live[j]
    rising = np.concatenate([[0.0], (changes.cpu().numpy() * 1.1 + 1e-3).cumsum()])
    count = max(1, int(np.ceil(rising[-1] / wanted)))
    edges = np.interp(np.linspace(0, rising[-1], count + 1), rising, alphas.cpu().numpy())
    edges[0], edges[-1] = 0.0, 1.0
    return [(float(a), float(b)) for a, b in pairwise(edges)]


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
    live: dict[int, Tensor] = {}
    for i, tensor in found.fields.items():
        shape = network.nodes[i].shape
        inside = values_at(found, tensor, path.grids[i], shape)
        live[i] = torch.cat([tensor.ends[:1], inside, tensor.ends[1:]])
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
