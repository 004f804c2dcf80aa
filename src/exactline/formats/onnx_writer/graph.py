"""Build an ONNX graph: its nodes, and its constants in one precision."""

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
from ...network.graph import Shape

MAX_CONSTANT_BYTES = 2**31 - 2**20  # of all constants: a protobuf message ends at 2 GiB


class NeedsDouble(Exception):
    """Raised for a constant that float32 cannot hold, so that the model must be written in double."""


class OnnxGraphWriter:
    """Collects the nodes and constants of an ONNX graph; values are referred to by name, with the batch dimension N."""

    def __init__(self, double: bool) -> None:
        self.double = double
        self.float_type = TensorProto.DOUBLE if double else TensorProto.FLOAT
        self.nodes: list[NodeProto] = []
        self.constants: list[TensorProto] = []
        self.names: set[str] = set()
        self.reshaped_from: dict[str, tuple[str, Shape | None]] = {}  # the source of a reshape, and its shape if known
        self.constant_bytes = 0
        self.prefix = "node"  # of new names
        self.where = ""  # the node being written, for error messages

    def make_name(self, wanted: str = "") -> str:
        """A name that is not in use, close to the wanted one."""
        stem = re.sub(r"[^A-Za-z0-9_.]", "_", wanted or self.prefix) or "node"
        name, suffix = stem, 1
        while name in self.names:
            name, suffix = f"{stem}_{suffix}", suffix + 1
        self.names.add(name)
        return name

    def add_node(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Append a node, and return the name of its first output."""
        names = [self.make_name() for _ in range(outputs)]
        label = self.make_name(f"{names[0]}_{operator}")
        self.nodes.append(helper.make_node(operator, list(inputs), names, name=label, **attributes))
        return names[0]

    def add_constant(self, value: Tensor | float, split: bool = False) -> str:
        """Add a constant in the precision of the model, and return its name.

        A single number that float32 cannot hold is written as a sum of float32 numbers: a reader that folds constants
        in double gets it back exactly, and in float32 the sum is the nearest number.

        Args:
            value: the constant.
            split: write a whole tensor as such a sum too.

        Raises NeedsDouble for a tensor that float32 cannot hold.
        """
        tensor = torch.as_tensor(value, dtype=torch.float64).detach().cpu()
        if self.double:
            return self._add_initializer(tensor.numpy(), TensorProto.DOUBLE)
        single = tensor.to(torch.float32)
        if torch.equal(single.to(torch.float64), tensor):
            return self._add_initializer(single.numpy(), TensorProto.FLOAT)
        if tensor.numel() != 1 and not split:
            raise NeedsDouble
        parts, rest = list[Tensor](), tensor
        while len(parts) < 3 and bool((rest != 0).any()):
            parts.append(rest.to(torch.float32))
            rest = rest - parts[-1].to(torch.float64)
        if bool((rest != 0).any()):
            raise NeedsDouble
        names = [
            self._add_initializer(part.numpy(), TensorProto.FLOAT) for part in reversed(parts)
        ]  # the smallest first
        total = names[0]
        for name in names[1:]:
            total = self.add_node("Add", total, name)
        return total

    def add_ints(self, values: Sequence[int] | Tensor) -> str:
        """Add whole numbers, such as a shape, axes or indices."""
        return self._add_initializer(np.asarray(values, dtype=np.int64), TensorProto.INT64)

    def add_mask(self, values: Tensor) -> str:
        """Add a boolean tensor."""
        return self._add_initializer(values.cpu().numpy(), TensorProto.BOOL)

    def flatten(self, x: str, before: Sequence[int]) -> str:
        """Flatten a value (N, *before) to (N, elements)."""
        if len(before) == 1:
            return x
        output = self.add_node("Flatten", x, axis=1)
        self.reshaped_from[output] = (x, tuple(before))
        return output

    def reshape(self, x: str, shape: Sequence[int], before: Sequence[int] | None = None) -> str:
        """Reshape a value (N, *before) to (N, *shape), without a node where it has that shape already.

        Successive reshapes become one node.
        """
        x, old_shape = self.reshaped_from.get(x, (x, None if before is None else tuple(before)))
        if old_shape == tuple(shape):
            return x
        output = self.add_node("Reshape", x, self.add_ints([0, *shape]))
        self.reshaped_from[output] = (x, old_shape)
        return output

    def prune(self, outputs: Sequence[str]) -> None:
        """Remove the nodes and constants that no output depends on."""
        needed = set(outputs)
        needed_nodes: list[NodeProto] = []
        for node in reversed(self.nodes):
            if needed.intersection(node.output):
                needed.update(node.input)
                needed_nodes.append(node)
        self.nodes = needed_nodes[::-1]
        self.constants = [c for c in self.constants if c.name in needed]

    def gather(self, x: str, index: Tensor, axis: int) -> str:
        """Gather elements by their indices along an axis, which becomes the dimensions of ``index``."""
        return self.add_node("Gather", x, self.add_ints(index), axis=axis)

    def reduce_sum(self, x: str, axes: Sequence[int]) -> str:
        """Sum over some axes, and drop them."""
        return self.add_node("ReduceSum", x, self.add_ints(axes), keepdims=0)

    def _add_initializer(self, array: np.ndarray[Any, Any], data_type: int) -> str:
        """Add a constant of a TensorProto data type; raises FileError for more than 2 GB in all."""
        self.constant_bytes += prod(array.shape) * array.itemsize
        if self.constant_bytes > MAX_CONSTANT_BYTES:
            raise FileError(
                "The network's constants take more than 2 GB, which one ONNX file cannot hold.",
                where=self.where,
                hint="Save a smaller part of the network, or its torch module by torch.save.",
            )
        name = self.make_name(f"{self.prefix}_constant")
        raw = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes()
        self.constants.append(helper.make_tensor(name, data_type, array.shape, raw, raw=True))
        return name
