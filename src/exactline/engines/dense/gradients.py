"""Gradients summed over all pieces of many lines, in one sweep forwards and one backwards.

Below a breaking node the branches are the same on all pieces that lie in one piece of before. So the weighted gradients
of the finer pieces are added first, and the way back goes on with the coarser ones: every layer sees as many vectors
as it had pieces on the way there, never one for each piece of the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from ...lines import Lines
from ...network.graph import Network
from ...numerics.plan import sweep_plan
from ...ops.base import Affine, Breaking, Input
from .state import PatternRecord, SweepState, start_state
from .sweep import SweepLimits, evaluate_next, insert_breaks

Gradients: TypeAlias = dict[int, Tensor]  # by node: (points, *shape), each for the piece that begins at a point


class Seed(Protocol):
    """What the gradient is of: the weighted gradient at the outputs, on every piece of a finished state."""

    def __call__(self, state: SweepState, widths: Tensor) -> Gradients: ...


@dataclass(frozen=True)
class Layer:
    """One layer on all pieces of a state: what a watcher is shown on the way back."""

    line: Tensor  # (points,) which line
    widths: Tensor  # (points,) of the piece that begins there, 0 at the end of a line
    values: Tensor  # (points, *shape)
    gradients: Tensor  # (points, *shape) summed over the finer pieces, with their weights


Watcher: TypeAlias = Callable[[Layer], Tensor | None]  # may replace the gradients that go on


@dataclass
class Backward:
    """One way there and back; pieces and units that sit on a knot are counted on the way."""

    network: Network
    seed: Seed
    limits: SweepLimits
    watch: dict[int, Watcher] = field(default_factory=dict[int, Watcher])  # by node
    other_side: bool = False  # units that sit on a knot along a piece are taken on their other side
    pieces: int = 0
    stuck: int = 0  # pairs of a piece and a unit that sits on a knot all along it

    def run(
        self, lines: Lines, progress: Callable[[int, int], None] | None = None
    ) -> Iterator[tuple[int, list[Tensor]]]:
        """For groups of lines: the first of them, and the gradients at every input, (lines, *in) each."""
        step = max(1, self.limits.max_points // 2)
        for first in range(0, len(lines), step):
            last = min(first + step, len(lines))
            state = start_state(lines, first, last, self.network.inputs)
            state.records_patterns = True
            found = self._pull(state)
            shapes = [self.network.nodes[i].shape for i in self.network.inputs]
            none = lines.starts[0]
            empty = [none.new_zeros(2 * (last - first), *s) for s in shapes]
            yield first, [found.get(i, e)[0::2] for i, e in zip(self.network.inputs, empty, strict=True)]
            if progress is not None:
                progress(last, self.pieces)

    def _pull(self, state: SweepState) -> Gradients:
        """Gradients at what is live when the state begins, summed onto its pieces."""
        nodes, facts = self.network.nodes, sweep_plan(self.network)
        there: list[tuple[int, SweepState, PatternRecord | None]] = []  # nodes passed, with the points after them
        shown: dict[int, Tensor] = {}
        grads: Gradients | None = None
        while state.node < len(nodes):
            i = state.node
            if isinstance(nodes[i].op, Breaking) and i in facts.last_use:
                after = insert_breaks(self.network, facts, state, self.limits)
                if not isinstance(after, SweepState):
                    grads = self._parts(i, after)
                    break
                there.append((i, after, after.record))
                state = after
            else:
                there.append((i, state, None))
            evaluate_next(self.network, facts, state)
            if i in self.watch and i in state.live:
                shown[i] = state.live[i]
        if grads is None:
            self.pieces += int(_joined(state).sum())
            grads = self.seed(state, _widths(state))
        for i, after, step in reversed(there):
            self._show(i, after, shown.get(i), grads)
            grads = self._through(i, after, step, grads)
        return grads

    def _parts(self, i: int, parts: Iterator[SweepState]) -> Gradients:
        """The same where the points are taken in parts from node ``i`` on: their sums are put together."""
        total: Gradients = {}
        for part in parts:
            shown, step = part.live.get(i), part.record
            whole = SweepState(part.lines, part.node, part.facts, part.places, dict(part.live), records_patterns=True)
            grads = self._pull(part)
            self._show(i, whole, shown, grads)
            for j, g in self._through(i, whole, step, grads).items():
                total[j] = total[j] + g if j in total else g
        return total

    def _show(self, i: int, after: SweepState, values: Tensor | None, grads: Gradients) -> None:
        if i in self.watch and values is not None:
            here = grads.get(i, torch.zeros_like(values))
            layer = Layer(after.point_tensors()[0][:, 0].clone(), _widths(after), values, here)
            changed = self.watch[i](layer)
            if changed is not None:
                grads.clear()  # what goes around the layer does not count
                grads[i] = changed

    def _through(self, i: int, after: SweepState, step: PatternRecord | None, grads: Gradients) -> Gradients:
        """From after a node to before it; after a breaking one, onto the pieces that were there before."""
        node = self.network.nodes[i]
        op, grad = node.op, None if isinstance(node.op, Input) else grads.pop(i, None)
        if grad is not None:
            shapes = [self.network.nodes[j].shape for j in node.inputs]
            pulled = self._pulled(op, after, step, grad, shapes)
            for j, g in zip(node.inputs, pulled, strict=True):
                grads[j] = grads[j] + g if j in grads else g
        if step is None:
            return grads
        return {j: _onto(g, step) for j, g in grads.items()}

    def _pulled(
        self, op: object, after: SweepState, step: PatternRecord | None, grad: Tensor, shapes: list[tuple[int, ...]]
    ) -> list[Tensor]:
        if isinstance(op, Affine):
            return op.vjp(grad, shapes)
        if not isinstance(op, Breaking) or step is None:
            raise TypeError("a node is neither affine nor breaking")
        pattern = step.pattern
        if step.other_side is not None:
            pieces = _joined(after)  # the other rows lie between two lines
            self.stuck += int((step.other_side != pattern)[pieces].sum())
            pattern = step.other_side if self.other_side else pattern
        made = op.vjp(pattern, grad[:-1], shapes[0])
        return [torch.cat([made, made.new_zeros(1, *made.shape[1:])])]


def _widths(state: SweepState) -> Tensor:
    """(points,) how long the piece is that begins at a point; 0 where none does."""
    alphas = state.point_tensors()[1][:, 0]
    widths = torch.zeros_like(alphas)
    widths[:-1] = alphas.diff().masked_fill_(~_joined(state), 0.0)
    return widths


def _joined(state: SweepState) -> Tensor:
    """(points - 1,) whether a point and the next are on one line."""
    line = state.point_tensors()[0][:, 0]
    return line[:-1] == line[1:]


def _onto(grad: Tensor, step: PatternRecord) -> Tensor:
    if not step.has_new_points:
        return grad
    return grad.new_zeros(step.points_before, *grad.shape[1:]).index_add_(0, step.source_point, grad)
