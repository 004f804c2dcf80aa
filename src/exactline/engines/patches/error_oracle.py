"""How far values on a line can be trusted: sampled once, and looked at closely where that does not tell."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...lines import Lines
from ...network.graph import Network
from ...numerics.plan import sweep_plan
from ...numerics.roundoff_probes import PROBE_COUNT, RoundoffProbes, probe_signs
from ...ops.base import Breaking, flatten_units
from ...options import free_device_bytes
from ..dense.error_model import MAX_PROBE_BYTES, PROBE_SAFETY
from .patch import MapShape
from .timeline import NeedsDenseFallback, to_host

SAMPLE_POINTS = 6  # points of a line, both ends among them
MAX_SAMPLE_DEFICIT = 4.0  # how much smaller one may be
MAX_SAMPLE_EXCESS = 16.0  # how much larger than theirs an error may be before anybody looks
MAX_DRIFT_ROUNDINGS = 1024.0  # roundings of the largest value that sums along a stretch may gather
FLOAT64_EPS = torch.finfo(torch.float64).eps
PERTURBATIONS = 16  # ways to move all values a little, to see whether anything changes
AMBIGUITY_MARGIN = 1 / 8  # of what is too little to be told: how much more or less would be in doubt
MAX_REFINED_UNITS = 256  # places that are looked at closely; more are in doubt at once


@dataclass(frozen=True, eq=False)
class ErrorOracle:
    """Errors of one line's values at the inputs of breaking nodes."""

    network: Network
    lines: Lines
    line: int
    thresholds: dict[int, float]  # by node: values further than this from a knot are clear
    margins: dict[int, Tensor]  # by node: the same for each of its elements, and the least it may be, (2, elements)
    start: dict[int, Tensor]  # by node: error bounds (elements,) at the start of the line
    stop: dict[int, Tensor]  # and at its end
    layouts: dict[int, Tensor] = field(default_factory=dict)  # all of these by pixel, once they are wanted

    @staticmethod
    def along(network: Network, lines: Lines, line: int, until: int) -> ErrorOracle:
        """Sample a line."""
        device = lines.starts[0].device
        alphas = torch.linspace(0, 1, SAMPLE_POINTS, dtype=torch.float64, device=device)
        which = torch.full((SAMPLE_POINTS,), line, device=device)
        walk, last = RoundoffProbes(network, *lines.at(which, alphas)), sweep_plan(network).last_use
        worst, margins = dict[int, Tensor](), dict[int, Tensor]()
        start, stop = dict[int, Tensor](), dict[int, Tensor]()
        for i in network.breaking:
            if i not in last or i >= until:
                continue
            source = network.nodes[i].inputs[0]
            size, values = (
                PROBE_SAFETY * flatten_units(walk.advance_to(source)),
                flatten_units(walk.values[source]).abs(),
            )
            usual = MAX_SAMPLE_EXCESS * size.amax(0) + MAX_DRIFT_ROUNDINGS * FLOAT64_EPS * values.amax(0)
            margins[i] = torch.stack([usual, size[1:-1].amin(0) / MAX_SAMPLE_DEFICIT])
            worst[i] = usual.amax() if usual.numel() else usual.new_zeros(())
            start[i], stop[i] = size[0], size[-1]
        clear = dict(zip(worst, to_host(*worst.values()) if worst else [], strict=True))
        return ErrorOracle(network, lines, line, clear, margins, start, stop)

    def layout(self, node: int, grid: MapShape) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """What is usual, the least, and the bounds at the start and at the end of the line: (pixels, channels) each."""
        if node not in self.layouts:
            columns = torch.stack([*self.margins[node], self.start[node], self.stop[node]])
            self.layouts[node] = columns.view(4, grid[0], -1).transpose(1, 2).contiguous()
        usual, least, start, stop = self.layouts[node]
        return usual, least, start, stop

    def refine(
        self, nodes: Tensor, alphas: Tensor, elements: Tensor, partners: Tensor, probes: int = PROBE_COUNT
    ) -> tuple[Tensor, Tensor]:
        """Differences (k,) at the inputs of breaking nodes, each at an alpha, and their error bounds; in one walk."""
        order = torch.argsort(nodes, stable=True)
        values, bounds = torch.empty_like(alphas), torch.empty_like(alphas)
        at, step = 0, self._together(probes)
        while at < len(order):
            some = order[at : at + step]
            try:
                columns = nodes[some], alphas[some], elements[some], partners[some]
                values[some], bounds[some] = self._run_probes(*columns, probes)
            except torch.cuda.OutOfMemoryError:
                if step == 1:
                    raise
                torch.cuda.empty_cache()
                step = max(1, min(step, len(some)) // 2)
                continue
            at += step
        return values, bounds

    def _run_probes(
        self, nodes: Tensor, alphas: Tensor, elements: Tensor, partners: Tensor, probes: int
    ) -> tuple[Tensor, Tensor]:
        """The same for a few, in order of nodes."""
        values, bounds = torch.empty_like(alphas), torch.empty_like(alphas)
        walk = RoundoffProbes(self.network, *self.lines.at(torch.full_like(nodes, self.line), alphas), probes)
        found = torch.stack(torch.unique_consecutive(nodes, return_counts=True)).T.tolist()
        at = 0
        for node, count in found:
            source = self.network.nodes[node].inputs[0]
            errors, here = walk.advance_to(source), slice(at, at + count)
            pair = elements[here], partners[here]
            bounds[here] = PROBE_SAFETY * _difference(flatten_units(errors[:count]), *pair, 1.0)
            values[here] = _difference(flatten_units(walk.values[source][:count]), *pair, -1.0)
            walk, at = walk.drop_first(count), at + count
        return values, bounds

    def _together(self, probes: int) -> int:
        """How many points are looked at in one walk."""
        each = 2 * (probes + 1) * sweep_plan(self.network).bytes_live
        device = self.network.device
        memory = free_device_bytes(device) // 4 if device.type == "cuda" else MAX_PROBE_BYTES
        return max(1, memory // max(each, 1))

    def judge(
        self, node: int, alphas: Tensor, elements: Tensor, partners: Tensor, knot: float
    ) -> tuple[Tensor, Tensor]:
        """Differences at a closer look, zero where they are none, and bounds; Doubt where that cannot be told."""
        if len(alphas) > MAX_REFINED_UNITS:
            raise NeedsDenseFallback(float(alphas.median()))
        values, bounds = self.refine(torch.full_like(elements, node), alphas, elements, partners)
        gaps = values - knot
        unclear = ((gaps.abs() - bounds).abs() <= AMBIGUITY_MARGIN * bounds) & (bounds > 0)
        if bool(unclear.any()):
            raise NeedsDenseFallback(float(alphas[unclear][0]))
        return torch.where(gaps.abs() <= bounds, 0.0, gaps), bounds

    def require_clear_at(self, alpha: float) -> None:
        """Raise Doubt where some unit is on a knot at this place, so that it is no place to cut a line."""
        if alpha in (0.0, 1.0):
            return
        device = self.lines.starts[0].device
        at = torch.tensor([alpha], dtype=torch.float64, device=device)
        points, _ = self.lines.at(torch.tensor([self.line], device=device), at)
        values = self.network.evaluate(points, [self.network.nodes[i].inputs[0] for i in self.thresholds])
        for i, (usual, _) in self.margins.items():
            op = self.network.nodes[i].op
            x = values[self.network.nodes[i].inputs[0]].expand(
                PERTURBATIONS, *self.network.nodes[self.network.nodes[i].inputs[0]].shape
            )
            moves = probe_signs(self.network, i, PERTURBATIONS, x).flatten(0, 1) * usual.view(x.shape[1:])
            low, high = x - moves, x + moves
            if isinstance(op, Breaking) and bool(
                (op.activation_pattern(low, low) != op.activation_pattern(high, high)).any()
            ):
                raise NeedsDenseFallback(alpha)


def _difference(numbers: Tensor, elements: Tensor, partners: Tensor, sign: float) -> Tensor:
    """An element of each row of numbers (k, n), and its partner with a sign where it has one."""
    one = numbers.gather(1, elements[:, None])[:, 0]
    other = numbers.gather(1, partners.clamp(min=0)[:, None])[:, 0]
    return one + sign * other * (partners >= 0)
