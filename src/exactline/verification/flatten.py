"""A network as VNNLIB sees it: one row of numbers in, one row of numbers out."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import ArgumentError, UnsupportedError
from ..fp_context import full_precision
from ..network.graph import Network, Tail
from .property import Property

if TYPE_CHECKING:
    from ..results.restrictions import Restrictions


@dataclass(frozen=True, eq=False)
class FlatNetwork:
    """A network whose inputs are concatenated into one row, and its outputs into another."""

    network: Network
    device: torch.device  # for restrictions

    @property
    def input_shapes(self) -> list[tuple[int, ...]]:
        """The shape of each input tensor for one point."""
        return [tuple(self.network.nodes[i].shape) for i in self.network.inputs]

    @property
    def input_count(self) -> int:
        """The number of inputs of one point."""
        return sum(map(prod, self.input_shapes))

    @property
    def output_count(self) -> int:
        """The number of outputs of one point."""
        return sum(prod(self.network.nodes[i].shape) for i in self.network.outputs)

    @property
    def numbers_per_point(self) -> int:
        """The number of activations of one point: a measure of the cost of an evaluation."""
        return sum(prod(node.shape) for node in self.network.nodes)

    @property
    def unit_count(self) -> int:
        """The number of units that can break: a first guess at the number of breaks of a line."""
        return sum(self.network.units.values())

    def split_inputs(self, points: Tensor) -> tuple[Tensor, ...]:  # (n, inputs) -> (n, *in) each
        """Split rows into the network's input tensors."""
        parts = points.split([prod(s) for s in self.input_shapes], dim=1)
        return tuple(p.reshape(len(points), *s) for p, s in zip(parts, self.input_shapes, strict=True))

    def restrict(self, starts: Tensor, ends: Tensor, seconds: float | None) -> Restrictions:  # (lines, inputs) each
        """Restrict the network to lines; ``seconds`` limits the time, None does not look at the clock."""
        from ..api import restrict_many  # here, because the engines take a third of a second to import

        sides = [self.split_inputs(t) for t in (starts, ends)]
        points = [t if self.network.several_inputs else t[0] for t in sides]
        return restrict_many(self.network, *points, device=self.device, seconds=seconds)

    def output_values(self, lines: Restrictions) -> Tensor:  # (breaks, outputs)
        """Return the outputs at all breaks of some lines."""
        return torch.cat([v.reshape(len(v), -1) for v in lines.breaks.values or ()], dim=1)

    def __call__(self, points: Tensor) -> Tensor:  # (n, inputs) -> (n, outputs), differentiable
        values = self.network.evaluate(self.split_inputs(points.to(self.network.dtype)), self.network.outputs)
        return torch.cat([values[i].reshape(len(points), -1) for i in self.network.outputs], dim=1)

    def vjp(self, points: Tensor, cotangents: Tensor) -> Tensor:  # (n, inputs), (n, outputs) -> (n, inputs)
        """Return the vector-Jacobian product at each point."""
        with full_precision(), torch.enable_grad():
            x = points.detach().clone().requires_grad_()
            total = (self(x) * cotangents).sum()
            (gradient,) = torch.autograd.grad(total, x, allow_unused=True, materialize_grads=True)
        return gradient


def check_property(network: Network, prop: Property) -> None:
    """Check that a property fits a network: its sizes, finite boxes, and constraints that are linear on pieces.

    Raises ArgumentError, UnsupportedError.
    """
    flat = FlatNetwork(network, network.device)
    counts = (("inputs", flat.input_count, prop.inputs), ("outputs", flat.output_count, prop.outputs))
    for word, actual, expected in counts:
        if actual != expected:
            raise ArgumentError(
                f"The network has {actual:,} {word}, but the property has {expected:,}.",
                where=prop.source or "argument property",
                hint="Give a property of this network.",
            )
    if not bool(torch.isfinite(prop.table.upper - prop.table.lower).all()):
        raise ArgumentError(
            "The bounds of an input are too far apart: their distance overflows a double.",
            where=prop.source or "argument property",
            hint="Give a box narrower than 1.7e308.",
        )
    tails = [(t, network.nodes[i].shape) for t, i in zip(network.tails, network.outputs, strict=True) if t is not None]
    if not tails or all(_only_compares_outputs(prop, t, shape, network) for t, shape in tails):
        return
    raise UnsupportedError(
        f"The network ends in {', '.join(t.name for t, _ in tails)}: its outputs are not piecewise linear.",
        nodes=tuple(t.name for t, _ in tails),
        where=prop.source or "argument property",
        hint="Only compare outputs with each other, or give a network that ends before it.",
    )


def _only_compares_outputs(prop: Property, tail: Tail, shape: tuple[int, ...], network: Network) -> bool:
    """Whether every constraint compares two outputs, whose order the tail preserves."""
    if len(network.outputs) > 1 or (tail.name in ("softmax", "log_softmax") and sum(d > 1 for d in shape) > 1):
        return False
    for disjunct in prop.disjuncts:
        weights = disjunct.output_weights
        is_pair = ((weights != 0).sum(1) == 2) & (weights.sum(1) == 0) & (disjunct.limit == 0)
        if disjunct.input_weights is not None or not bool(is_pair.all()):
            return False
    return True
