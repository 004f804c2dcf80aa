"""The `Network` graph: operators in evaluation order, and which of them are outputs."""

from __future__ import annotations

import os
import weakref
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from ..budget import check_deadline
from ..errors import ArgumentError
from ..ops.base import Affine, Breaking, Input, Op
from . import methods

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Node:
    """One operator in the graph."""

    name: str
    op: Op
    inputs: tuple[int, ...]  # indices of earlier nodes
    shape: Shape  # of the output for one point, without the batch dimension
    path: str = ""  # of the module it was captured from, as in named_modules()

    def __repr__(self) -> str:
        where = f" in {self.path}" if self.path else ""
        return f"<{self.name}: {self.op.title} -> {tuple(self.shape)}{where}>"


@dataclass(frozen=True, eq=False)
class Tail:
    """A smooth operator after an output; values of the network are taken before it."""

    name: str  # softmax, log_softmax, sigmoid, tanh
    apply: Callable[[Tensor], Tensor]
    dim: int | None = None  # of a softmax, counted with the batch dimension
    flattens: bool = False  # whether a softmax goes over all dimensions from ``dim`` on, as in ONNX before set 13

    def find_arguments(
        self,
        shape: Shape,  # of the output
        elements: Tensor,  # (n,) flat positions in the output
    ) -> tuple[Tensor, Tensor]:  # (n, arguments), (n,)
        """The flat positions of the values that elements behind the tail depend on, and which of them is the element.

        Args:
            shape: The shape of the output.
            elements: Flat positions in the output.

        >>> Tail("softmax", lambda x: torch.softmax(x, 1), 1).find_arguments((3, 2), torch.tensor([2, 5]))
        (tensor([[0, 2, 4],
                [1, 3, 5]]), tensor([1, 2]))
        """
        if self.dim is None:
            return elements[:, None], torch.zeros_like(elements)
        dim = self.dim % (len(shape) + 1) - 1
        count = torch.Size(shape[dim:] if self.flattens else shape[dim : dim + 1]).numel()
        stride = 1 if self.flattens else torch.Size(shape[dim + 1 :]).numel()
        own = elements // stride % count
        first = elements - own * stride
        return first[:, None] + stride * torch.arange(count, device=elements.device), own


class WeakModule:
    """A weak reference to a module that can be pickled: its copy in another process refers to nothing.

    >>> layer = nn.ReLU()
    >>> WeakModule(layer)() is layer
    True
    """

    def __init__(self, module: nn.Module | None) -> None:
        self.reference = None if module is None else weakref.ref(module)

    def __call__(self) -> nn.Module | None:
        """The module, while it exists."""
        return None if self.reference is None else self.reference()

    def __reduce__(self) -> tuple[Any, ...]:
        return WeakModule, (None,)


@dataclass(frozen=True, eq=False)
class Network:
    """A piecewise-linear network as a graph of operators.

    Call it on a batch x (n, *in) to evaluate it: ``net(x)``. A network of several inputs takes one argument for each;
    one of several outputs returns a tuple.

    >>> from exactline.network import as_network
    >>> network = as_network(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU()), [torch.zeros(2)])
    >>> network
    <Network (2,) -> (3,): 3 nodes, 3 relu units>
    >>> network(torch.zeros(4, 2)).shape
    torch.Size([4, 3])
    """

    nodes: tuple[Node, ...]  # in evaluation order
    outputs: tuple[int, ...]  # indices of nodes
    tails: tuple[Tail | None, ...]  # one for each output
    several_inputs: bool = False
    several_outputs: bool = False
    notes: tuple[str, ...] = ()  # what the user should know about the capture, such as casts that were ignored
    source: Callable[[], nn.Module | None] = WeakModule(None)  # noqa: RUF009  the captured module while it exists
    device: torch.device = field(default=torch.device("cpu"))
    dtype: torch.dtype = torch.float64
    output_names: tuple[str, ...] = ()  # names of the outputs in the file; empty: those of their nodes
    device_copies: dict[Any, Network] = field(default_factory=dict)  # this network on other devices and in other dtypes

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """Indices of the input nodes."""
        return tuple(i for i, node in enumerate(self.nodes) if isinstance(node.op, Input))

    @property
    def input_shape(self) -> Shape | tuple[Shape, ...]:
        """Shape of one input point; a tuple of shapes for a network of several inputs."""
        shapes = tuple(self.nodes[i].shape for i in self.inputs)
        return shapes if self.several_inputs else shapes[0]

    @property
    def output_shape(self) -> Shape | tuple[Shape, ...]:
        """Shape of the output for one point; a tuple of shapes for a network of several outputs."""
        shapes = tuple(self.nodes[i].shape for i in self.outputs)
        return shapes if self.several_outputs else shapes[0]

    def output(self, which: str | int) -> Network:
        """The network with one of its outputs, without the nodes that only the others need.

        Args:
            which: the name of an output, or its index, from 0.

        >>> from exactline.network import as_network
        >>> network = as_network(lambda x: (x.relu(), x[:, :1] - 1), [torch.zeros(2)])
        >>> network
        <Network (2,) -> ((2,), (1,)): 4 nodes, 2 relu units>
        >>> network.output(1)
        <Network (2,) -> (1,): 3 nodes, no breaking units>

        Raises ArgumentError where there is no such output, or where several have this name.
        """
        return methods.select_output(self, which)

    def list_output_names(self) -> tuple[str, ...]:
        """The name of each output: the name in the file, or that of its node."""
        if len(self.output_names) == len(self.outputs):
            return self.output_names
        return tuple(self.nodes[i].name for i in self.outputs)

    @cached_property
    def breaking_nodes(self) -> tuple[int, ...]:
        """Indices of the nodes with units that can break, such as ReLU."""
        return tuple(i for i, node in enumerate(self.nodes) if isinstance(node.op, Breaking))

    @property
    def units(self) -> dict[str, int]:
        """Number of units that can break, by operator."""
        counts: dict[str, int] = {}
        for node in self.nodes:
            if isinstance(node.op, Breaking):
                units = node.op.units(self.nodes[node.inputs[0]].shape)
                counts[node.op.title] = counts.get(node.op.title, 0) + units
        return counts

    @property
    def affine_nodes(self) -> tuple[int, ...]:
        """Indices of the affine nodes."""
        return tuple(i for i, node in enumerate(self.nodes) if isinstance(node.op, Affine))

    def __call__(self, *xs: Tensor, tail: bool = False) -> Tensor | tuple[Tensor, ...]:
        """Evaluate a batch.

        Args:
            xs: one tensor (n, *in) for each input.
            tail: apply the smooth operators after the outputs, such as softmax.

        Raises ArgumentError where a batch has the wrong shape.
        """
        batches = [self._to_batch(x, self.nodes[i]) for x, i in zip(xs, self.inputs, strict=False)]
        values = self.evaluate(batches, self.outputs)
        outputs = tuple(values[i] for i in self.outputs)
        if tail:
            outputs = tuple(o if t is None else t.apply(o) for o, t in zip(outputs, self.tails, strict=True))
        return outputs if self.several_outputs else outputs[0]

    def _to_batch(self, x: Tensor, node: Node) -> Tensor:
        """Check one input (n, *in) and move it to the network's device and dtype."""
        batch = torch.as_tensor(x).to(self.device, self.dtype)
        if tuple(batch.shape[1:]) != node.shape or not batch.dim():
            raise ArgumentError(
                f"The network takes batches of shape (n, {', '.join(map(str, node.shape))}), not {tuple(batch.shape)}.",
                where=f"input {node.name}",
                hint="Give a batch: add a dimension in front of a single point.",
            )
        return batch

    def evaluate(
        self,
        xs: Sequence[Tensor],  # each (n, *in)
        wanted: Sequence[int],
        pattern: dict[int, Tensor] | None = None,
    ) -> dict[int, Tensor]:
        """Compute the outputs of some nodes.

        Args:
            xs: one tensor (n, *in) for each input.
            wanted: indices of the nodes.
            pattern: an activation pattern, by index of the breaking node; a node in it applies the affine map of
                its pattern instead of evaluating its operator.

        Returns a tensor (n, *shape) for each wanted node. Raises ArgumentError for a wrong number of inputs.
        """
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
                check_deadline()
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
        """For every node that the wanted nodes depend on, the index of the last node that reads it.

        A wanted node itself is needed to the end: it gets the number of nodes.
        """
        last = dict.fromkeys(wanted, len(self.nodes))
        for i in range(len(self.nodes) - 1, -1, -1):
            if i in last:
                for j in self.nodes[i].inputs:
                    last.setdefault(j, i)
        return last

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Network:
        """Copy the network to a device, or to another precision of its constants.

        Args:
            device: Where the copy's constants are; by default where they are now.
            dtype: torch.float64 or torch.float32; by default as it is now.
        """
        device = self.device if device is None else torch.device(device)
        dtype = self.dtype if dtype is None else dtype
        if (device, dtype) == (self.device, self.dtype):
            return self
        nodes = tuple(replace(n, op=n.op.to(device, dtype)) for n in self.nodes)
        return replace(self, nodes=nodes, device=device, dtype=dtype, device_copies={})

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: the network itself, without copies on other devices and cached properties."""
        return {f.name: getattr(self, f.name) for f in fields(self)} | {"device_copies": {}}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the network to a file.

        Args:
            path: ends in ``.onnx``, or in ``.eran`` for a network whose layers form a chain.

        Raises UnsupportedError for a node that the format cannot express, FileError for another ending.
        """
        methods.save_network(self, path)

    def checksum(self) -> str:
        """A CRC-32 of all numbers in the network, as eight hexadecimal digits."""
        total = 0
        for node in self.nodes:
            for value in (getattr(node.op, f.name) for f in fields(node.op)):
                for tensor in value if isinstance(value, tuple) else (value,):
                    if isinstance(tensor, Tensor):
                        total = zlib.crc32(tensor.detach().cpu().contiguous().numpy().tobytes(), total)
                    elif isinstance(tensor, (int, float, Fraction, str)):
                        total = zlib.crc32(str(tensor).encode(), total)
        return f"{total:08x}"

    def with_source(self, source: Callable[[], nn.Module | None]) -> Network:
        """Copy the network with a reference to the module it was captured from."""
        return replace(self, source=source)

    def __repr__(self) -> str:
        units = ", ".join(f"{count:,} {name}" for name, count in self.units.items()) or "no breaking"
        return f"<Network {self.input_shape} -> {self.output_shape}: {len(self.nodes)} nodes, {units} units>"

    def _repr_html_(self) -> str:
        return methods.network_html(self)
