"""One piece of a line, on which the network is a single affine map."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..engines.activation_pattern import activation_patterns
from ..fp_context import full_precision
from ..lines import Lines
from ..network.graph import Network

MAX_JACOBIAN_ELEMENTS = 1 << 25  # elements of all tensors of the network for the Jacobian's rows of a batch


@dataclass(frozen=True)
class Piece:
    """The interval between two neighbouring breaks. It lies in one linear region of the network.

    >>> import exactline as xl
    >>> piece = xl.restrict(torch.nn.Sequential(torch.nn.ReLU()), [-1.0, 2.0], [1.0, 2.0]).piece(0)
    >>> A, b = piece.affine()
    >>> A.tolist(), b.tolist(), piece.stop
    ([[0.0, 0.0], [0.0, 1.0]], [0.0, 0.0], 0.5)
    """

    network: Network
    lines: Lines  # the end points, as a single line
    index: int  # number of the piece on its line
    start: float  # alpha of the break at the left end
    stop: float  # alpha of the break at the right end
    ambiguous: int  # units whose side of a knot rounding hides here: their branch is a convention

    @property
    def width(self) -> float:
        """The length of the piece in alpha."""
        return self.stop - self.start

    def pattern(self) -> dict[str, Tensor]:
        """The activation pattern: the branch of every unit, by the name of the node.

        For a pointwise function a branch is the number of knots below, for a maximum the position in the window.
        """
        return {self.network.nodes[i].name: p[0] for i, p in self._patterns().items()}

    def affine(self) -> tuple[Tensor | tuple[Tensor, ...], Tensor | tuple[Tensor, ...]]:
        """The affine map of the network here: A (*out, *in) and b (*out) with f(x) = A x + b.

        With several inputs A is a tuple of maps whose products are summed; with several outputs A and b are tuples with
        one entry for each output.
        """
        patterns = self._patterns()
        with full_precision():
            matrices, constants = zip(*(self._affine_map(i, patterns) for i in self.network.outputs), strict=True)
        if not self.network.several_inputs:
            matrices = tuple(m[0] for m in matrices)
        return (matrices, constants) if self.network.several_outputs else (matrices[0], constants[0])

    def _patterns(self) -> dict[int, Tensor]:
        """The activation pattern (1, ...) of every breaking node, by the index of the node."""
        with full_precision():
            first_line = torch.zeros(1, dtype=torch.int64)
            ends = (torch.tensor([a], dtype=torch.float64) for a in (self.start, self.stop))
            return activation_patterns(self.network, self.lines, first_line, *ends)

    def _affine_map(self, output: int, patterns: dict[int, Tensor]) -> tuple[tuple[Tensor, ...], Tensor]:
        """The Jacobian of one output, (*out, *in) for each input, and its constant; a batch of rows at a time."""
        shapes = [self.network.nodes[i].shape for i in self.network.inputs]
        shape = self.network.nodes[output].shape
        dtype = self.lines.starts[0].dtype
        count = torch.Size(shape).numel()
        width = sum(torch.Size(n.shape).numel() for n in self.network.nodes)
        step = max(1, MAX_JACOBIAN_ELEMENTS // max(width, 1))
        batches: list[list[Tensor]] = [[] for _ in shapes]
        for first in range(0, count, step):
            size = min(step, count - first)
            xs = [torch.zeros(size, *s, dtype=dtype, requires_grad=True) for s in shapes]
            with torch.enable_grad():
                out = self._apply_pattern(xs, output, patterns, size).reshape(size, -1)
                total = out[:, first : first + size].diagonal().sum()
            grads = torch.autograd.grad(total, xs, allow_unused=True) if total.requires_grad else [None] * len(xs)
            for batch, grad, x in zip(batches, grads, xs, strict=True):
                batch.append(torch.zeros_like(x).detach() if grad is None else grad)
        matrices = tuple(
            (torch.cat(batch) if batch else torch.zeros(0, dtype=dtype)).view((*shape, *s))
            for batch, s in zip(batches, shapes, strict=True)
        )
        with torch.no_grad():
            constant = self._apply_pattern([torch.zeros(1, *s, dtype=dtype) for s in shapes], output, patterns, 1)[0]
        return matrices, constant

    def _apply_pattern(self, xs: list[Tensor], output: int, patterns: dict[int, Tensor], size: int) -> Tensor:
        """One output (size, *out) at points ``xs``, (size, *in) each, with the branches of the activation pattern."""
        batch_patterns = {i: p.expand(size, *p.shape[1:]) for i, p in patterns.items()}
        return self.network.evaluate(xs, [output], batch_patterns)[output]
