"""A network as VNNLIB sees it: one row of numbers in, one row of numbers out."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from ..api import restrict_many
from ..errors import ArgumentError, UnsupportedError
from ..fp_context import full_precision
from ..network.graph import Network, Tail
from ..results.restrictions import Restrictions
from .property import Property


@dataclass(frozen=True, eq=False)
class Flat:
    """The network with its inputs and its outputs one after another."""

    network: Network
    device: torch.device

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [tuple(self.network.nodes[i].shape) for i in self.network.inputs]

    @property
    def inputs(self) -> int:
        return sum(map(prod, self.shapes))

    @property
    def outputs(self) -> int:
        return sum(prod(self.network.nodes[i].shape) for i in self.network.outputs)

    @property
    def work(self) -> int:
        """Numbers that one point makes on its way through the network."""
        return sum(prod(node.shape) for node in self.network.nodes)

    @property
    def units(self) -> int:
        """Units that can break: about so many breaks a line has."""
        return sum(self.network.units.values())

    def split(self, points: Tensor) -> tuple[Tensor, ...]:  # (n, inputs) -> (n, *in) each
        parts = points.split([prod(s) for s in self.shapes], dim=1)
        return tuple(p.reshape(len(points), *s) for p, s in zip(parts, self.shapes, strict=True))

    def restrict(self, starts: Tensor, ends: Tensor, seconds: float | None) -> Restrictions:  # (lines, inputs) each
        ends_of = [self.split(t) for t in (starts, ends)]
        sides = [t if self.network.several_inputs else t[0] for t in ends_of]
        return restrict_many(self.network, *sides, device=self.device, seconds=seconds)

    def values(self, found: Restrictions) -> Tensor:  # (breaks, outputs)
        return torch.cat([v.reshape(len(v), -1) for v in found.breaks.values or ()], dim=1)

    def __call__(self, points: Tensor) -> Tensor:  # (n, inputs) -> (n, outputs), differentiable
        found = self.network.evaluate(self.split(points.to(self.network.dtype)), self.network.outputs)
        return torch.cat([found[i].reshape(len(points), -1) for i in self.network.outputs], dim=1)

    def slopes(self, points: Tensor, seeds: Tensor) -> Tensor:  # (n, inputs), (n, outputs) -> (n, inputs)
        """Gradients at points of so much of each output."""
        with full_precision(), torch.enable_grad():
            asked = points.detach().clone().requires_grad_()
            total = (self(asked) * seeds).sum()
            (slope,) = torch.autograd.grad(total, asked, allow_unused=True, materialize_grads=True)
        return slope


def fitted(network: Network, asked: Property) -> None:
    """Refuse a property that is not about such a network."""
    flat = Flat(network, network.device)
    for word, has, wants in (("inputs", flat.inputs, asked.inputs), ("outputs", flat.outputs, asked.outputs)):
        if has != wants:
            raise ArgumentError(
                f"The network has {has:,} {word} and the property speaks of {wants:,}.",
                where=asked.source or "argument property",
                hint="Give the property of this network.",
            )
    if not all(bool(torch.isfinite(box.width).all()) for box in asked.boxes):
        raise ArgumentError(
            "The bounds of an input are further apart than any double.",
            where=asked.source or "argument property",
            hint="Give a box of less than 1.7e308.",
        )
    tails = [(t, network.nodes[i].shape) for t, i in zip(network.tails, network.outputs, strict=True) if t is not None]
    if not tails or all(_only_order(asked, t, shape, network) for t, shape in tails):
        return
    raise UnsupportedError(
        f"The network ends in {', '.join(t.name for t, _ in tails)}: its outputs are not linear on pieces.",
        nodes=tuple(t.name for t, _ in tails),
        where=asked.source or "argument property",
        hint="Compare outputs with each other only, or give a network that ends before it.",
    )


def _only_order(asked: Property, tail: Tail, shape: tuple[int, ...], network: Network) -> bool:
    """Whether every row says only which of two outputs is larger, which the tail does not change."""
    if len(network.outputs) > 1 or (tail.name in ("softmax", "log_softmax") and sum(d > 1 for d in shape) > 1):
        return False
    for case in asked.cases:
        rows = case.on_outputs
        pairs = ((rows != 0).sum(1) == 2) & (rows.sum(1) == 0) & (case.limit == 0)
        if case.on_inputs is not None or not bool(pairs.all()):
            return False
    return True
