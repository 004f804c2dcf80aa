"""How far values on a line can be trusted: sampled once, and looked at closely where that does not tell."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...lines import Lines
from ...network.graph import Network
from ...numerics.plan import plan
from ...numerics.roundoff_probes import PROBES, Walk, signs
from ...ops.base import Breaking, flat
from ..dense.error_model import LOOK, SAFETY
from ..dense.workspace import free_on
from .patch import Grid
from .timeline import Doubt, told

SAMPLES = 6  # points of a line, both ends among them
SHARE = 4.0  # how much smaller one may be
WIDE = 16.0  # how much larger than theirs an error may be before anybody looks
DRIFT = 1024.0  # roundings of the largest value that sums along a stretch may gather
EPS = torch.finfo(torch.float64).eps
TRIES = 16  # ways to move all values a little, to see whether anything changes
MARGIN = 1 / 8  # of what is too little to be told: how much more or less would be in doubt
MANY = 256  # places that are looked at closely; more are in doubt at once


@dataclass(frozen=True, eq=False)
class Looks:
    """Errors of one line's values at the inputs of breaking nodes."""

    network: Network
    lines: Lines
    line: int
    clear: dict[int, float]  # by node: values further than this from a knot are clear
    margins: dict[int, Tensor]  # by node: the same for each of its elements, and the least it may be, (2, elements)
    start: dict[int, Tensor]  # by node: error bounds (elements,) at the start of the line
    stop: dict[int, Tensor]  # and at its end
    layouts: dict[int, Tensor] = field(default_factory=dict)  # all of these by pixel, once they are wanted

    @staticmethod
    def along(network: Network, lines: Lines, line: int, until: int) -> Looks:
        """Sample a line."""
        device = lines.starts[0].device
        alphas = torch.linspace(0, 1, SAMPLES, dtype=torch.float64, device=device)
        which = torch.full((SAMPLES,), line, device=device)
        walk, last = Walk(network, *lines.at(which, alphas)), plan(network).last
        worst, margins = dict[int, Tensor](), dict[int, Tensor]()
        start, stop = dict[int, Tensor](), dict[int, Tensor]()
        for i in network.breaking:
            if i not in last or i >= until:
                continue
            source = network.nodes[i].inputs[0]
            size, values = SAFETY * flat(walk.to(source)), flat(walk.values[source]).abs()
            usual = WIDE * size.amax(0) + DRIFT * EPS * values.amax(0)
            margins[i] = torch.stack([usual, size[1:-1].amin(0) / SHARE])
            worst[i] = usual.amax() if usual.numel() else usual.new_zeros(())
            start[i], stop[i] = size[0], size[-1]
        clear = dict(zip(worst, told(*worst.values()) if worst else [], strict=True))
        return Looks(network, lines, line, clear, margins, start, stop)

    def laid_out(self, node: int, grid: Grid) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What is usual, the least, and the bounds at the start and at the end of the line: (pixels, channels) each."""
        if node not in self.layouts:
            columns = torch.stack([*self.margins[node], self.start[node], self.stop[node]])
            self.layouts[node] = columns.view(4, grid[0], -1).transpose(1, 2).contiguous()
        usual, least, start, stop = self.layouts[node]
        return usual, least, start, stop

    def closely(
        self, nodes: Tensor, alphas: Tensor, elements: Tensor, partners: Tensor, probes: int = PROBES
    ) -> tuple[Tensor, Tensor]:
        """Differences (k,) at the inputs of breaking nodes, each at an alpha, and their error bounds; in one walk."""
        order = torch.argsort(nodes, stable=True)
        values, bounds = torch.empty_like(alphas), torch.empty_like(alphas)
        at, step = 0, self._together(probes)
        while at < len(order):
            some = order[at : at + step]
            try:
                columns = nodes[some], alphas[some], elements[some], partners[some]
                values[some], bounds[some] = self._walked(*columns, probes)
            except torch.cuda.OutOfMemoryError:
                if step == 1:
                    raise
                torch.cuda.empty_cache()
                step = max(1, min(step, len(some)) // 2)
                continue
            at += step
        return values, bounds

    def _walked(
        self, nodes: Tensor, alphas: Tensor, elements: Tensor, partners: Tensor, probes: int
    ) -> tuple[Tensor, Tensor]:
        """The same for a few, in order of nodes."""
        values, bounds = torch.empty_like(alphas), torch.empty_like(alphas)
        walk = Walk(self.network, *self.lines.at(torch.full_like(nodes, self.line), alphas), probes)
        found = torch.stack(torch.unique_consecutive(nodes, return_counts=True)).T.tolist()
        at = 0
        for node, count in found:
            source = self.network.nodes[node].inputs[0]
            errors, here = walk.to(source), slice(at, at + count)
            pair = elements[here], partners[here]
            bounds[here] = SAFETY * _difference(flat(errors[:count]), *pair, 1.0)
            values[here] = _difference(flat(walk.values[source][:count]), *pair, -1.0)
            walk, at = walk.after(count), at + count
        return values, bounds

    def _together(self, probes: int) -> int:
        """How many points are looked at in one walk."""
        each = 2 * (probes + 1) * plan(self.network).bytes_live
        device = self.network.device
        memory = free_on(device) // 4 if device.type == "cuda" else LOOK
        return max(1, memory // max(each, 1))

    def judge(
        self, node: int, alphas: Tensor, elements: Tensor, partners: Tensor, knot: float
    ) -> tuple[Tensor, Tensor]:
        """Differences at a closer look, zero where they are none, and bounds; Doubt where that cannot be told."""
        if len(alphas) > MANY:
            raise Doubt(float(alphas.median()))
        values, bounds = self.closely(torch.full_like(elements, node), alphas, elements, partners)
        gaps = values - knot
        unclear = ((gaps.abs() - bounds).abs() <= MARGIN * bounds) & (bounds > 0)
        if bool(unclear.any()):
            raise Doubt(float(alphas[unclear][0]))
        return torch.where(gaps.abs() <= bounds, 0.0, gaps), bounds

    def clear_at(self, alpha: float) -> None:
        """Raise Doubt where some unit is on a knot at this place, so that it is no place to cut a line."""
        if alpha in (0.0, 1.0):
            return
        device = self.lines.starts[0].device
        at = torch.tensor([alpha], dtype=torch.float64, device=device)
        points, _ = self.lines.at(torch.tensor([self.line], device=device), at)
        values = self.network.evaluate(points, [self.network.nodes[i].inputs[0] for i in self.clear])
        for i, (usual, _) in self.margins.items():
            op = self.network.nodes[i].op
            x = values[self.network.nodes[i].inputs[0]].expand(
                TRIES, *self.network.nodes[self.network.nodes[i].inputs[0]].shape
            )
            moves = signs(self.network, i, TRIES, x).flatten(0, 1) * usual.view(x.shape[1:])
            low, high = x - moves, x + moves
            if isinstance(op, Breaking) and bool((op.branch(low, low) != op.branch(high, high)).any()):
                raise Doubt(alpha)


def _difference(numbers: Tensor, elements: Tensor, partners: Tensor, sign: float) -> Tensor:
    """An element of each row of numbers (k, n), and its partner with a sign where it has one."""
    one = numbers.gather(1, elements[:, None])[:, 0]
    other = numbers.gather(1, partners.clamp(min=0)[:, None])[:, 0]
    return one + sign * other * (partners >= 0)
