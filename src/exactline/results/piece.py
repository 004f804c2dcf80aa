"""One piece of a line: a single affine map of the whole network."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..lines import Lines
from ..network.graph import Network

MAX_BATCH_NUMBERS = 1 << 25  # numbers in one batch of rows of the map


@dataclass(frozen=True)
class Piece:
    """The stretch between two neighbouring breaks.

    >>> import exactline as xl
    >>> piece = xl.restrict(torch.nn.Sequential(torch.nn.ReLU()), [-1.0, 2.0], [1.0, 2.0]).piece(0)
    >>> A, b = piece.affine()
    >>> A.tolist(), b.tolist(), piece.stop
    ([[0.0, 0.0], [0.0, 1.0]], [0.0, 0.0], 0.5)
    """

    network: Network
    lines: Lines
    index: int
    start: float  # alpha
    stop: float  # alpha
    ambiguous: int  # units not told from a knot here: their branch is a convention

    @property
    def width(self) -> float:
        return self.stop - self.start

    def pattern(self) -> dict[str, Tensor]:
        """The branch of every unit, by node: segment numbers, or places in a window."""
        return {self.network.nodes[i].name: p[0] for i, p in self._patterns().items()}

    def affine(self) -> tuple[Tensor | tuple[Tensor, ...], Tensor | tuple[Tensor, ...]]:
        """A and b with f(x) = A x + b here: A is (*out, *in) and b is (*out).

        Several inputs give a tuple of maps to be summed, several outputs a tuple of results.
        """
        from ..fp_context import full_precision

        patterns = self._patterns()
        with full_precision():
            matrices, constants = zip(*(self._map(i, patterns) for i in self.network.outputs), strict=True)
        if not self.network.several_inputs:
            matrices = tuple(m[0] for m in matrices)
        return (matrices, constants) if self.network.several_outputs else (matrices[0], constants[0])

    def _patterns(self) -> dict[int, Tensor]:
        from ..engines.activation_pattern import activation_patterns
        from ..fp_context import full_precision

        with full_precision():
            first = torch.zeros(1, dtype=torch.int64)
            ends = (torch.tensor([a], dtype=torch.float64) for a in (self.start, self.stop))
            return activation_patterns(self.network, self.lines, first, *ends)

    def _map(self, output: int, patterns: dict[int, Tensor]) -> tuple[tuple[Tensor, ...], Tensor]:
        """Jacobian and constant of one output, by as many rows at a time as memory likes."""
        shapes = [self.network.nodes[i].shape for i in self.network.inputs]
        dtype = self.lines.starts[0].dtype
        count = torch.Size(self.network.nodes[output].shape).numel()
        wide = sum(torch.Size(n.shape).numel() for n in self.network.nodes)
        step = max(1, MAX_BATCH_NUMBERS // max(wide, 1))
        rows: list[list[Tensor]] = [[] for _ in shapes]
        for at in range(0, count, step):
            size = min(step, count - at)
            xs = [torch.zeros(size, *s, dtype=dtype, requires_grad=True) for s in shapes]
            with torch.enable_grad():
                out = self._apply_pattern(xs, output, patterns, size).reshape(size, -1)
                picked = out[:, at : at + size].diagonal().sum()
            given = torch.autograd.grad(picked, xs, allow_unused=True) if picked.requires_grad else [None] * len(xs)
            for row, grad, x in zip(rows, given, xs, strict=True):
                row.append(torch.zeros_like(x).detach() if grad is None else grad)
        shape = self.network.nodes[output].shape
        matrices = tuple(
            (torch.cat(r) if r else torch.zeros(0, dtype=dtype)).view((*shape, *s))
            for r, s in zip(rows, shapes, strict=True)
        )
        with torch.no_grad():
            constant = self._apply_pattern([torch.zeros(1, *s, dtype=dtype) for s in shapes], output, patterns, 1)[0]
        return matrices, constant

    def _apply_pattern(self, xs: list[Tensor], output: int, patterns: dict[int, Tensor], size: int) -> Tensor:
        wide = {i: p.expand(size, *p.shape[1:]) for i, p in patterns.items()}
        return self.network.evaluate(xs, [output], wide)[output]
