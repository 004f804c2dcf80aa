"""How far computed values can be trusted: a running estimate, made from each point alone.

Worst-case bounds explode with depth while the true error stays near rounding. So a few probes, each a set of random
roundings, go through the network along the branches taken: errors that cancel cancel, errors that add up add up.
Only points that hold a value close to a knot are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import frexp

import torch
from torch import Tensor

from ..line import Lines
from ..network.graph import Network
from ..ops.base import Affine, Breaking, Input, Noise
from .plan import plan
from .state import State

PROBES = 8
SCOUTS = 2  # probes where only the size of errors is asked for
SAFETY = 16.0  # estimates are multiplied by this before they decide
FILTER = {torch.float64: 4096.0, torch.float32: 64.0}  # how much wider than that the first look is
TINY = 5e-324


def estimate(
    network: Network,
    place: int,
    points: list[Tensor],  # each (k, *in)
    errors: list[Tensor],  # each (k, *in)
) -> tuple[Tensor, Tensor]:
    """Value and estimated error (k, *shape) of one node, evaluated from the input."""
    for i, value, probes in _walk(network, [place], points, errors):
        if i == place:
            return value, probes.abs().amax(0)
    raise ValueError(f"node {place} is not part of the network")


def levels(network: Network, lines: Lines) -> dict[int, float]:
    """The size of errors at the input of every breaking node, from a few points: where to look closer.

    Remembered for lines of about the same size, since it only says how wide a first look must be.
    """
    known = plan(network).levels
    size = max(float(t.abs().max()) if t.numel() else 0.0 for t in (*lines.starts, *lines.ends))
    key = (frexp(size)[1], lines.starts[0].dtype)
    if key not in known:
        known[key] = _levels(network, lines)
    return known[key]


def _levels(network: Network, lines: Lines) -> dict[int, float]:
    device = lines.starts[0].device
    line = torch.tensor([0, len(lines) // 2, len(lines) - 1], device=device)
    alphas = torch.tensor([0.83, 0.5, 0.17], dtype=torch.float64, device=device)
    sources = {node.inputs[0] for node in network.nodes if isinstance(node.op, Breaking)}
    found = dict.fromkeys(sources, 0.0)
    for i, _, probes in _walk(network, list(network.outputs), *lines.at(line, alphas), count=SCOUTS):
        if i in sources and probes.numel():
            found[i] = float(probes.abs().max())
    return found


def _walk(
    network: Network, wanted: list[int], points: list[Tensor], errors: list[Tensor], count: int = PROBES
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Every node that is needed, its values (k, *shape) and what each probe adds to them (probes, k, *shape)."""
    last = network.last_use(wanted)
    values = dict(zip(network.inputs, points, strict=True))
    probes = {i: _signs(i, count, e) * e for i, e in zip(network.inputs, errors, strict=True)}
    for i, node in enumerate(network.nodes):
        if i not in last:
            continue
        op = node.op
        if not isinstance(op, Input):
            xs = [values[j] for j in node.inputs]
            unit = torch.finfo(xs[0].dtype).eps
            values[i] = op.evaluate(*xs)
            local = values[i].abs() * (unit if op.terms else 0.0)
            if isinstance(op, Affine):
                probes[i] = _through(op, [probes[j] for j in node.inputs])
                if op.terms:
                    rounding = unit * (1 + op.terms**0.5 / 4)
                    local = torch.hypot(local, op.spread(*(x.abs() * rounding for x in xs))) + TINY
            elif isinstance(op, Breaking):
                probes[i] = op.carry(xs[0], probes[node.inputs[0]])
            probes[i] = probes[i] + _signs(i, count, local) * local
        yield i, values[i], probes[i]
        for j in set(node.inputs):
            if last[j] == i:
                del values[j], probes[j]


def _through(op: Affine, probes: list[Tensor]) -> Tensor:
    out = op.linear(*(p.flatten(0, 1) for p in probes))
    return out.view(*probes[0].shape[:2], *out.shape[1:])


def _signs(seed: int, count: int, like: Tensor) -> Tensor:
    """Random signs (probes, 1, *shape), the same for every point so that neighbours do not matter."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(0, 2, (count, 1, *like.shape[1:]), generator=generator)
    return drawn.to(like.device, like.dtype) * 2 - 1


class StateNoise(Noise):
    """The noise at the input of one breaking node, for the points of a state."""

    def __init__(self, network: Network, state: State, place: int, largest: float, step: int = 1 << 16) -> None:
        self.network, self.state, self.place, self.largest = network, state, place, largest
        self.joined = state.joined
        self.broken = not bool(self.joined.all())
        self.step = max(step // PROBES, 1)  # points looked at together
        wide = FILTER.get(state.dtype, 4096.0)
        self.doubtful = wide * (torch.finfo(state.dtype).eps * largest + 4 * state.levels.get(place, 0.0)) + TINY * 64

    def bound(self, rows: Tensor) -> Tensor:
        return self._errors(self.place, rows) * SAFETY

    def fuzz(self, rows: Tensor) -> Tensor:
        """How far in alpha the breaks at some points may be from the truth, (rows,)."""
        born, rates = self.state.born[rows], self.state.rates[rows]
        reach = torch.zeros(len(rows), dtype=torch.float64, device=rows.device)
        for node in torch.unique(born[:, 0]).tolist():
            if node < 0:
                continue
            of_node = born[:, 0] == node
            element, partner = born[of_node, 3], born[of_node, 4]
            error = self._errors(self.network.nodes[node].inputs[0], rows[of_node])
            size = error.gather(1, element[:, None])[:, 0]
            size = size + error.gather(1, partner.clamp(min=0)[:, None])[:, 0] * (partner >= 0)
            reach[of_node] = (SAFETY * size.to(torch.float64) / rates[of_node]).nan_to_num(0.0)
        return reach

    def _errors(self, place: int, rows: Tensor) -> Tensor:
        found = []
        for some in rows.split(self.step):
            points, errors = self.state.line_points(some)
            found.append(estimate(self.network, place, points, errors)[1].reshape(len(some), -1))
        return found[0] if len(found) == 1 else torch.cat(found)
