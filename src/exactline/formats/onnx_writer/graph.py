"""An ONNX graph while it is being written: its nodes, its constants and the precision of both."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from onnx import NodeProto, TensorProto, helper
from torch import Tensor

from ...errors import FileError

MOST = 2**31 - 2**20  # bytes of all constants: a file of protocol buffers ends at 2 GiB


class Inexact(Exception):
    """A constant that float32 cannot hold: the model must be written in double."""


class Sheet:
    """Values are known by their names; every one has the batch as its first dim."""

    def __init__(self, double: bool) -> None:
        self.double = double
        self.kind = TensorProto.DOUBLE if double else TensorProto.FLOAT
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self.names: set[str] = set()
        self.origin: dict[str, tuple[str, tuple[int, ...] | None]] = {}  # what was reshaped, and its shape if known
        self.bytes = 0
        self.prefix = "node"  # of the names given next
        self.where = ""  # the node being written, for messages

    def name(self, wish: str = "") -> str:
        """A name that nothing else has."""
        stem = re.sub(r"[^A-Za-z0-9_.]", "_", wish or self.prefix) or "node"
        name, suffix = stem, 1
        while name in self.names:
            name, suffix = f"{stem}_{suffix}", suffix + 1
        self.names.add(name)
        return name

    def node(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Append a node; the name of its first output."""
        made = [self.name() for _ in range(outputs)]
        label = self.name(f"{made[0]}_{operator}")
        self.nodes.append(helper.make_node(operator, list(inputs), made, name=label, **attributes))
        return made[0]

    def const(self, value: Tensor | float, split: bool = False) -> str:
        """A constant of the model's precision.

        A single number that float32 cannot hold is written as a sum of those it can: whoever works constants out
        in double finds it again, and in float32 the sum is the nearest number. Raises Inexact for a whole tensor,
        unless it may be ``split`` as well.
        """
        tensor = torch.as_tensor(value, dtype=torch.float64).detach().cpu()
        if self.double:
            return self._stored(tensor.numpy(), TensorProto.DOUBLE)
        single = tensor.to(torch.float32)
        if torch.equal(single.to(torch.float64), tensor):
            return self._stored(single.numpy(), TensorProto.FLOAT)
        if tensor.numel() != 1 and not split:
            raise Inexact
        parts, rest = list[Tensor](), tensor
        while len(parts) < 3 and bool((rest != 0).any()):
            parts.append(rest.to(torch.float32))
            rest = rest - parts[-1].to(torch.float64)
        if bool((rest != 0).any()):
            raise Inexact
        names = [self._stored(part.numpy(), TensorProto.FLOAT) for part in reversed(parts)]  # the smallest first
        total = names[0]
        for name in names[1:]:
            total = self.node("Add", total, name)
        return total

    def ints(self, values: Sequence[int] | Tensor) -> str:
        """Whole numbers: shapes, axes, indices."""
        return self._stored(np.asarray(values, dtype=np.int64), TensorProto.INT64)

    def mask(self, values: Tensor) -> str:
        """Truth values."""
        return self._stored(values.cpu().numpy(), TensorProto.BOOL)

    def flat(self, x: str, before: Sequence[int]) -> str:
        """(N, elements)."""
        if len(before) == 1:
            return x
        made = self.node("Flatten", x, axis=1)
        self.origin[made] = (x, tuple(before))
        return made

    def reshape(self, x: str, shape: Sequence[int], before: Sequence[int] | None = None) -> str:
        """The same elements as (N, *shape): nothing where they have that shape, one node where several follow."""
        known = None if before is None else tuple(before)
        x, known = self.origin.get(x, (x, known))
        if known == tuple(shape):
            return x
        made = self.node("Reshape", x, self.ints([0, *shape]))
        self.origin[made] = (x, known)
        return made

    def prune(self, wanted: Sequence[str]) -> None:
        """Drop the nodes and constants that nothing reads."""
        needed = set(wanted)
        kept: list[NodeProto] = []
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                needed.update(node.input)
                kept.append(node)
        self.nodes = kept[::-1]
        self.constants = [c for c in self.constants if c.name in needed]

    def gather(self, x: str, index: Tensor, axis: int) -> str:
        """Elements by their places along an axis; a table of places opens a new axis."""
        return self.node("Gather", x, self.ints(index), axis=axis)

    def summed(self, x: str, axes: Sequence[int]) -> str:
        """The sum over some axes, which go."""
        return self.node("ReduceSum", x, self.ints(axes), keepdims=0)

    def _stored(self, array: np.ndarray[Any, Any], kind: int) -> str:
        self.bytes += prod(array.shape) * array.itemsize
        if self.bytes > MOST:
            raise FileError(
                "The network's constants take more than 2 GB, which one ONNX file cannot hold.",
                where=self.where,
                hint="Save a smaller part of the network, or its torch module by torch.save.",
            )
        name = self.name(f"{self.prefix}_constant")
        raw = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
        self.constants.append(helper.make_tensor(name, kind, array.shape, raw, raw=True))
        return name
