"""How far values on a line can be trusted: sampled once, and looked at closely where that does not tell."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...line import Lines
from ...network.graph import Network
from ...ops.base import Breaking, flat
from ...ops.patches.scan import Doubt
from ..noise import SAFETY, estimate
from ..plan import plan
from ..walk import Walk, signs

SAMPLES = 6  # points of a line, both ends among them
WIDE = 16.0  # how much larger than theirs an error may be before anybody looks
DRIFT = 1024.0  # roundings of the largest value that sums along a stretch may gather
EPS = torch.finfo(torch.float64).eps
TRIES = 16  # ways to move all values a little, to see whether anything changes
MANY = 64  # places that are looked at closely; more are in doubt at once


@dataclass(frozen=True, eq=False)
class Looks:
    """Errors of one line's values at the inputs of breaking nodes."""

    network: Network
    lines: Lines
    line: int
    clear: dict[int, float]  # by node: values further than this from a knot are clear
    usual: dict[int, Tensor]  # by node: the same for each of its elements, (elements,)
    start: dict[int, Tensor]  # by node: error bounds (elements,) at the start of the line
    stop: dict[int, Tensor]  # and at its end

    @staticmethod
    def along(network: Network, lines: Lines, line: int, until: int) -> Looks:
        """Sample a line."""
        device = lines.starts[0].device
        alphas = torch.linspace(0, 1, SAMPLES, dtype=torch.float64, device=device)
        which = torch.full((SAMPLES,), line, device=device)
        walk, last = Walk(network, *lines.at(which, alphas)), plan(network).last
        clear, usual = dict[int, float](), dict[int, Tensor]()
        start, stop = dict[int, Tensor](), dict[int, Tensor]()
        for i in network.breaking:
            if i not in last or i >= until:
                continue
            source = network.nodes[i].inputs[0]
            size = flat(walk.to(source))
            largest = float(walk.values[source].abs().max()) if size.numel() else 0.0
            worst = float(size.max()) if size.numel() else 0.0
            clear[i] = WIDE * SAFETY * worst + DRIFT * EPS * largest
            usual[i] = WIDE * SAFETY * size.amax(0) + DRIFT * EPS * flat(walk.values[source]).abs().amax(0)
            start[i], stop[i] = size[0] * SAFETY, size[-1] * SAFETY
        return Looks(network, lines, line, clear, usual, start, stop)

    def bounds(self, node: int, alphas: Tensor, elements: Tensor) -> Tensor:
        """Error bounds of some elements of a breaking node's input, each at an alpha, (k,)."""
        which = torch.full_like(alphas, self.line, dtype=torch.int64)
        points = self.lines.at(which, alphas)
        errors = flat(estimate(self.network, self.network.nodes[node].inputs[0], *points))
        return errors.gather(1, elements[:, None])[:, 0] * SAFETY

    def judge(self, node: int, alphas: Tensor, elements: Tensor, gaps: Tensor) -> None:
        """Raise Doubt where a gap could be no gap at all."""
        if len(alphas) > MANY:
            raise Doubt(float(alphas.median()))
        bound = self.bounds(node, alphas, elements)
        drift = self.clear[node] / 16
        unclear = gaps <= torch.maximum(2 * bound, torch.full_like(bound, drift).minimum(bound * WIDE))
        if bool(unclear.any()):
            raise Doubt(float(alphas[unclear][0]))

    def clear_at(self, alpha: float) -> None:
        """Raise Doubt where some unit is on a knot at this place, so that it is no place to cut a line."""
        if alpha in (0.0, 1.0):
            return
        device = self.lines.starts[0].device
        at = torch.tensor([alpha], dtype=torch.float64, device=device)
        points, _ = self.lines.at(torch.tensor([self.line], device=device), at)
        values = self.network.evaluate(points, [self.network.nodes[i].inputs[0] for i in self.clear])
        for i, clear in self.clear.items():
            op = self.network.nodes[i].op
            x = values[self.network.nodes[i].inputs[0]].expand(
                TRIES, *self.network.nodes[self.network.nodes[i].inputs[0]].shape
            )
            moves = signs(i, TRIES, x).flatten(0, 1) * clear
            low, high = x - moves, x + moves
            if isinstance(op, Breaking) and bool((op.branch(low, low) != op.branch(high, high)).any()):
                raise Doubt(alpha)
