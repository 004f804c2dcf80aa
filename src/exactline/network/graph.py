"""What a network is: nodes in the order they are evaluated, and the outputs among them."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from ..errors import ArgumentError
from ..ops.base import Affine, Breaking, Input, Op
from . import methods

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Node:
    """One operator with its place in the graph."""

    name: str
    op: Op
    inputs: tuple[int, ...]  # places of earlier nodes
    shape: Shape  # of one point's output
    path: str = ""  # the module it came from

    def __repr__(self) -> str:
        where = f" in {self.path}" if self.path else ""
        return f"<{self.name}: {self.op.title} -> {tuple(self.shape)}{where}>"


@dataclass(frozen=True, eq=False)
class Tail:
    """A smooth last operator, kept apart: values are before it."""

    name: str  # softmax, log_softmax, sigmoid, tanh
    apply: Callable[[Tensor], Tensor]
    dim: int | None = None


@dataclass(frozen=True, eq=False)
class Network:
    """A piecewise-linear network as a graph of operators.

    Callable on a batch: ``net(x)`` with x (n, *in). Several inputs are given as several arguments
    and several outputs come back as a tuple.

    >>> from exactline.network import as_network
    >>> network = as_network(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()), [torch.zeros(2)])
    >>> network
    <Network (2,) -> (3,): 3 nodes, 3 relu units>
    >>> network(torch.zeros(4, 2)).shape
    torch.Size([4, 3])
    """

    nodes: tuple[Node, ...]  # inputs first
    outputs: tuple[int, ...]
    tails: tuple[Tail | None, ...]
    several_inputs: bool = False
    several_outputs: bool = False
    notes: tuple[str, ...] = ()
    source: Callable[[], nn.Module | None] = field(default=lambda: None)  # the module, while it lives
    device: torch.device = field(default=torch.device("cpu"))
    dtype: torch.dtype = torch.float64
    moved: dict[Any, Network] = field(default_factory=dict)  # copies on other devices, made once

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """Places of the input nodes."""
        return tuple(i for i, node in enumerate(self.nodes) if isinstance(node.op, Input))

    @property
    def input_shape(self) -> Shape | tuple[Shape, ...]:
        """Shape of one input point; a tuple of shapes where the network takes several inputs."""
        shapes = tuple(self.nodes[i].shape for i in self.inputs)
        return shapes if self.several_inputs else shapes[0]

    @property
    def output_shape(self) -> Shape | tuple[Shape, ...]:
        """Shape of one output; a tuple of shapes where there are several."""
        shapes = tuple(self.nodes[i].shape for i in self.outputs)
        return shapes if self.several_outputs else shapes[0]

    @cached_property
    def breaking(self) -> tuple[int, ...]:
        """Places of the nodes that can break."""
        return tuple(i for i, node in enumerate(self.nodes) if isinstance(node.op, Breaking))

    @property
    def units(self) -> dict[str, int]:
        """How many breaking units there are, by operator."""
        counts: dict[str, int] = {}
        for node in self.nodes:
            if isinstance(node.op, Breaking):
                units = node.op.units(self.nodes[node.inputs[0]].shape)
                counts[node.op.title] = counts.get(node.op.title, 0) + units
        return counts

    @property
    def affine(self) -> tuple[int, ...]:
        """Places of the affine nodes."""
        return tuple(i for i, node in enumerate(self.nodes) if isinstance(node.op, Affine))

    def __call__(self, *xs: Tensor, tail: bool = False) -> Tensor | tuple[Tensor, ...]:
        """Evaluate a batch (n, *in), before the smooth tails or, with ``tail=True``, after them."""
        values = self.evaluate([self._batch(x, i) for x, i in zip(xs, self.inputs, strict=False)], self.outputs)
        outs = tuple(values[i] for i in self.outputs)
        if tail:
            outs = tuple(o if t is None else t.apply(o) for o, t in zip(outs, self.tails, strict=True))
        return outs if self.several_outputs else outs[0]

    def _batch(self, x: Tensor, place: int) -> Tensor:
        """One input as the network wants it."""
        batch = torch.as_tensor(x).to(self.device, self.dtype)
        if tuple(batch.shape[1:]) != self.nodes[place].shape or not batch.dim():
            raise ArgumentError(
                f"The network takes batches of shape (n, {', '.join(map(str, self.nodes[place].shape))}),"
                f" not {tuple(batch.shape)}.",
                where=f"input {self.nodes[place].name}",
                hint="Give a batch: add a dimension in front of a single point.",
            )
        return batch

    def evaluate(
        self,
        xs: Sequence[Tensor],  # each (n, *in)
        wanted: Sequence[int],
        pattern: dict[int, Tensor] | None = None,
    ) -> dict[int, Tensor]:
        """Values of the wanted nodes; with a ``pattern``, breaking nodes follow the branches it names."""
        if len(xs) != len(self.inputs):
            raise ArgumentError(
                f"The network takes {len(self.inputs)} inputs, not {len(xs)}.",
                where="Network",
                hint="Give one batch for each input.",
            )
        last = self.last_use(wanted)
        values: dict[int, Tensor] = dict(zip(self.inputs, xs, strict=True))
        for i, node in enumerate(self.nodes):
            if i not in last:
                values.pop(i, None)
                continue
            if not isinstance(node.op, Input):
                args = [values[j] for j in node.inputs]
                if pattern is not None and i in pattern and isinstance(node.op, Breaking):
                    values[i] = node.op.apply_affine(pattern[i], args[0])
                else:
                    values[i] = node.op.evaluate(*args)
            for j in set(node.inputs):
                if last[j] == i:
                    del values[j]
        return {i: values[i] for i in wanted}

    def last_use(self, wanted: Sequence[int]) -> dict[int, int]:
        """For every node that the wanted ones need: the last place where it is read."""
        never = len(self.nodes)
        last = dict.fromkeys(wanted, never)
        for i in range(len(self.nodes) - 1, -1, -1):
            if i in last:
                for j in self.nodes[i].inputs:
                    last.setdefault(j, i)
        return last

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Network:
        """The same network with its constants elsewhere or in another precision."""
        place = self.device if device is None else torch.device(device)
        kind = self.dtype if dtype is None else dtype
        if (place, kind) == (self.device, self.dtype):
            return self
        nodes = tuple(replace(n, op=n.op.to(place, kind)) for n in self.nodes)
        return replace(self, nodes=nodes, device=place, dtype=kind, moved={})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network as ``.onnx``, or as ``.eran`` where it is one layer after another."""
        methods.save_network(self, path)

    def checksum(self) -> str:
        """A short name for all the numbers in the network."""
        total = 0
        for node in self.nodes:
            for value in (getattr(node.op, f.name) for f in fields(node.op)):
                for tensor in value if isinstance(value, tuple) else (value,):
                    if isinstance(tensor, Tensor):
                        total = zlib.crc32(tensor.detach().cpu().contiguous().numpy().tobytes(), total)
                    elif isinstance(tensor, (int, float, Fraction, str)):
                        total = zlib.crc32(str(tensor).encode(), total)
        return f"{total:08x}"

    def sourced(self, source: Callable[[], nn.Module | None]) -> Network:
        """The same network, remembering the module it was read from."""
        return replace(self, source=source)

    def __repr__(self) -> str:
        units = ", ".join(f"{count:,} {name}" for name, count in self.units.items()) or "no breaking"
        return f"<Network {self.input_shape} -> {self.output_shape}: {len(self.nodes)} nodes, {units} units>"

    def _repr_html_(self) -> str:
        return methods.network_html(self)
