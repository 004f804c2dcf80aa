"""Gradients summed over all pieces of many lines, by one forward and one backward sweep.

A breaking node splits pieces, and below it the activation pattern is constant on every old piece. The backward sweep
therefore sums the weighted gradients of the new pieces onto the old ones as soon as it has passed the node. Each layer
sees as many vectors as it had pieces in the forward sweep, never one for each piece of the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from ...lines import Lines
from ...network.graph import Network, Node
from ...numerics.plan import sweep_plan
from ...ops.base import Affine, Breaking, Input
from .state import PatternRecord, SweepState, start_state
from .sweep import SweepLimits, evaluate_next, insert_breaks

NodeGradients: TypeAlias = dict[int, Tensor]  # by node: (points, *shape), for the piece that starts at each point


class Cotangent(Protocol):
    """The gradient at the outputs, weighted by the widths of the pieces, on every piece of a finished sweep."""

    def __call__(self, state: SweepState, widths: Tensor) -> NodeGradients: ...


@dataclass(frozen=True)
class LayerOnPieces:
    """One layer on all pieces, as the backward sweep passes it to a hook."""

    line: Tensor  # (points,) index of the line
    widths: Tensor  # (points,) width of the piece that starts there; 0 at the end of a line
    values: Tensor  # (points, *shape)
    gradients: Tensor  # (points, *shape) weighted, and summed over the finer pieces of later layers


LayerHook: TypeAlias = Callable[[LayerOnPieces], Tensor | None]  # returns gradients to continue with, or None


@dataclass
class BackwardSweep:
    """One forward and one backward sweep; counts pieces and ambiguous units on the way."""

    network: Network
    cotangent: Cotangent
    limits: SweepLimits
    hooks: dict[int, LayerHook] = field(default_factory=dict[int, LayerHook])  # by node
    other_side: bool = False  # take units that stay on a knot along a piece on their other side
    pieces: int = 0
    ambiguous: int = 0  # pairs of a piece and a unit that stays on a knot along it
    report_share: Callable[[float], None] | None = None  # called with the share that is done of a batch of lines

    def run(
        self, lines: Lines, progress: Callable[[float, int], None] | None = None
    ) -> Iterator[tuple[int, list[Tensor]]]:
        """Yield for each batch of lines the index of the first, and the gradients at every input, (lines, *in) each.

        Args:
            lines: The lines, on the network's device.
            progress: Called after each node of a sweep with the number of lines done, fractions of a batch included,
                and of pieces so far.
        """
        step = max(1, self.limits.max_points // 2)
        for first in range(0, len(lines), step):
            last = min(first + step, len(lines))
            state = start_state(lines, first, last, self.network.inputs)
            state.records_patterns = True
            if progress is not None:
                self.report_share = partial(self._report_lines, progress, first, last)
            gradients = self._backpropagate(state)
            shapes = [self.network.nodes[i].shape for i in self.network.inputs]
            zeros = [lines.starts[0].new_zeros(2 * (last - first), *s) for s in shapes]
            yield first, [gradients.get(i, zero)[0::2] for i, zero in zip(self.network.inputs, zeros, strict=True)]
            if progress is not None:
                progress(last, self.pieces)

    def _report_lines(self, progress: Callable[[float, int], None], first: int, last: int, share: float) -> None:
        progress(first + share * (last - first), self.pieces)

    def _backpropagate(self, state: SweepState, low: float = 0.0, high: float = 1.0) -> NodeGradients:
        """Sweep to the outputs and back; return the gradients of the state's live tensors on its pieces.

        Args:
            state: The points, and the values of the live tensors there.
            low: The share of the batch of lines that is done before.
            high: The share that is done afterwards.
        """
        nodes, plan = self.network.nodes, sweep_plan(self.network)
        step = (high - low) / (2 * max(1, len(nodes) - state.node))  # one for each node, on both ways
        passed: list[tuple[int, SweepState, PatternRecord | None]] = []  # each node with the points after it
        hooked: dict[int, Tensor] = {}  # values of nodes with a hook
        gradients: NodeGradients | None = None
        while state.node < len(nodes):
            i = state.node
            self._report(low + step * len(passed))
            if isinstance(nodes[i].op, Breaking) and i in plan.last_use:
                after = insert_breaks(self.network, plan, state, self.limits)
                if not isinstance(after, SweepState):
                    before, last = low + step * len(passed), high - step * len(passed)
                    gradients = self._backpropagate_parts(i, after, _extent(state), before, last)
                    break
                passed.append((i, after, after.record))
                state = after
            else:
                passed.append((i, state, None))
            evaluate_next(self.network, plan, state)
            if i in self.hooks and i in state.live:
                hooked[i] = state.live[i]
        if gradients is None:
            self.pieces += int(_same_line(state).sum())
            gradients = self.cotangent(state, _piece_widths(state))
        for k, (i, after, record) in reversed(list(enumerate(passed))):
            self._report(high - step * (k + 1))
            self._call_hook(i, after, hooked.get(i), gradients)
            gradients = self._step_back(i, after, record, gradients)
        return gradients

    def _report(self, share: float) -> None:
        if self.report_share is not None:
            self.report_share(share)

    def _backpropagate_parts(
        self, i: int, parts: Iterator[SweepState], extent: tuple[float, float], low: float, high: float
    ) -> NodeGradients:
        """Backpropagate the parts into which memory limits split the points at node ``i``, and sum the results.

        Args:
            i: The node.
            parts: The parts, in the order of alpha.
            extent: Where all parts together start and end; see `_extent`.
            low: The share of the batch of lines that is done before.
            high: The share that is done afterwards.
        """
        total: NodeGradients = {}
        done = low
        for part in parts:
            here = (_extent(part)[1] - extent[0]) / max(extent[1] - extent[0], torch.finfo(torch.float64).tiny)
            until = min(max(done, low + (high - low) * here), high)
            values, record = part.live.get(i), part.record
            whole = SweepState(part.lines, part.node, part.table, dict(part.live), records_patterns=True)
            gradients = self._backpropagate(part, done, until)
            done = until
            self._call_hook(i, whole, values, gradients)
            before = self._step_back(i, whole, record, gradients)
            accumulate(total, list(before), list(before.values()))
        return total

    def _call_hook(self, i: int, after: SweepState, values: Tensor | None, gradients: NodeGradients) -> None:
        if i in self.hooks and values is not None:
            here = gradients.get(i, torch.zeros_like(values))
            layer = LayerOnPieces(after.point_tensors().line.clone(), _piece_widths(after), values, here)
            replaced = self.hooks[i](layer)
            if replaced is not None:
                gradients.clear()  # paths around the layer do not count
                gradients[i] = replaced

    def _step_back(
        self, i: int, after: SweepState, record: PatternRecord | None, gradients: NodeGradients
    ) -> NodeGradients:
        """Pass node ``i`` backwards; behind a breaking node, sum onto the pieces that were there before it."""
        node = self.network.nodes[i]
        gradient = None if isinstance(node.op, Input) else gradients.pop(i, None)
        if gradient is not None:
            accumulate(gradients, node.inputs, self._vjp(node, after, record, gradient))
        if record is None:
            return gradients
        return {j: _sum_onto_old_pieces(g, record) for j, g in gradients.items()}

    def _vjp(self, node: Node, after: SweepState, record: PatternRecord | None, gradient: Tensor) -> list[Tensor]:
        shapes = [self.network.nodes[j].shape for j in node.inputs]
        if isinstance(node.op, Affine):
            return node.op.vjp(gradient, shapes)
        if not isinstance(node.op, Breaking) or record is None:
            raise TypeError("a node is neither affine nor breaking")
        pattern = record.pattern
        if record.other_side is not None:
            is_piece = _same_line(after)  # the other rows lie between two lines
            self.ambiguous += int((record.other_side != pattern)[is_piece].sum())
            pattern = record.other_side if self.other_side else pattern
        product = node.op.vjp(pattern, gradient[:-1], shapes[0])
        return [torch.cat([product, product.new_zeros(1, *product.shape[1:])])]


def accumulate(gradients: NodeGradients, nodes: Sequence[int], contributions: Sequence[Tensor]) -> None:
    """Add one contribution to the gradient of each node, in place."""
    for node, contribution in zip(nodes, contributions, strict=True):
        gradients[node] = gradients[node] + contribution if node in gradients else contribution


def _extent(state: SweepState) -> tuple[float, float]:
    """Where the points of a state start and end: the index of the line plus alpha."""
    table = state.point_tensors()
    return float(table.line[0] + table.alpha[0]), float(table.line[-1] + table.alpha[-1])


def _piece_widths(state: SweepState) -> Tensor:  # (points,)
    """Return the width of the piece that starts at each point; 0 at the end of a line."""
    alphas = state.point_tensors().alpha
    widths = torch.zeros_like(alphas)
    widths[:-1] = alphas.diff().masked_fill_(~_same_line(state), 0.0)
    return widths


def _same_line(state: SweepState) -> Tensor:  # (points - 1,)
    """Mark the points whose successor is on the same line."""
    line = state.point_tensors().line
    return line[:-1] == line[1:]


def _sum_onto_old_pieces(gradient: Tensor, record: PatternRecord) -> Tensor:
    if not record.has_new_points:
        return gradient
    return gradient.new_zeros(record.points_before, *gradient.shape[1:]).index_add_(0, record.source_point, gradient)
