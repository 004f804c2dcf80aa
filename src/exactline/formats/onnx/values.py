"""The values of an ONNX graph while it is read, and the node that an operator's reader works on.

A file describes the network for one point, most often as a batch of one. The network that is read takes any number of
points: where the first dimension of a value has size 1, it is the *batch dimension*; otherwise all dimensions belong to
the point, and the value is *unbatched*. A file for a fixed batch of more than one point is read as if its batch had
size 1, and any operator that mixes the points is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ...errors import FileError
from ...network.builder import MIXES_BATCH, NodeOutput, SmoothOutput, UnsupportedOperator, UnusableValue
from ...network.scalar_functions import ScalarFunction
from ...ops.affine import Reshape
from .. import limits
from ..graph_builder import OperatorRecorder
from .tensors import make_damaged_error

Shape: TypeAlias = tuple[int, ...]
MAX_ROWS = 256  # of one point, for operators that expect a batch


@dataclass(frozen=True)
class DependentValue:
    """A value that depends on the network's input, with its shape in the file."""

    value: NodeOutput | ScalarFunction | SmoothOutput | UnusableValue
    shape: Shape  # in the file
    has_batch_dim: bool  # whether the first dimension, of size 1, is the batch


Value: TypeAlias = Any  # DependentValue, a constant Tensor, or None for an optional input that is left out


class ConstantData(Exception):
    """Raised by a reader whose data input is a constant: the node is then evaluated instead."""


@dataclass
class OnnxNode:
    """One node of an ONNX graph: its attributes, and helpers to record it as torch operators."""

    recorder: OperatorRecorder
    opset: int
    op_type: str  # such as Relu
    name: str
    attributes: dict[str, Any]
    output_count: int
    batch_size: int = 1  # that the file declares; values are read for a batch of 1

    def get_attribute(self, key: str, default: Any = None) -> Any:
        """An attribute of any type."""
        return self.attributes.get(key, default)

    def get_ints(self, key: str, default: Sequence[int] = ()) -> list[int]:
        """An attribute that is a list of whole numbers."""
        value = self.attributes.get(key)
        if value is None:
            return list(default)
        if not isinstance(value, list) or not all(isinstance(v, int) for v in value):
            raise self.make_error(f"Attribute {key} is not a list of whole numbers.")
        return value

    def get_number(self, key: str, default: float) -> float:
        """An attribute that is a number."""
        value = self.attributes.get(key)
        if value is None:
            return default if isinstance(default, int) else float(np.float32(default))  # attributes are float32
        if not isinstance(value, (int, float)):
            raise self.make_error(f"Attribute {key} is not a number.")
        return value

    def make_error(self, problem: str) -> FileError:
        """An error about a node that breaks the format."""
        return make_damaged_error(problem, f"{self.recorder.where}: {self.op_type} {self.name[:80]}")

    def check_result_size(self, shape: Sequence[int]) -> None:
        """Raise FileError for a result of too many elements."""
        limits.count_elements(shape, "the result", self.recorder.where, limits.MAX_VALUE_ELEMENTS)

    def require_constant(self, value: Value, what: str) -> Tensor:
        """The value, if it is a constant; raises UnsupportedOperator where it depends on the input."""
        if isinstance(value, DependentValue):
            raise UnsupportedOperator(f"computes {what} from the input")
        if value is None:
            raise self.make_error(f"{what} is missing.")
        return value

    def require_whole_numbers(self, value: Value, what: str) -> list[int]:
        """The numbers of a constant, which must be whole."""
        tensor = self.require_constant(value, what).reshape(-1)
        limits.check_limit(tensor.numel(), limits.MAX_NAME_CHARACTERS, what, self.recorder.where)
        if tensor.is_floating_point():
            raise self.make_error(f"{what} are not whole numbers.")
        return [int(v) for v in tensor]

    def as_batched(self, value: Value) -> NodeOutput:
        """A node output whose batch is the first dimension in the file."""
        dependent = self.require_dependent(value)
        if dependent.has_batch_dim:
            return self.as_node_output(dependent)
        if not dependent.shape or dependent.shape[0] != 1:
            raise UnsupportedOperator(f"expects a batch of one point, not shape {list(dependent.shape)}")
        return self._reshape_output(self.as_node_output(dependent), dependent.shape[1:])

    def as_unbatched(self, value: DependentValue) -> NodeOutput:
        """A node output in which all dimensions in the file belong to the point."""
        self.check_keeps_batch(value)
        return self._reshape_output(self.as_node_output(value), value.shape)

    def check_keeps_batch(self, value: Value, keeps: bool = False) -> None:
        """Raise UnsupportedOperator where the points of a fixed batch would be mixed, unless ``keeps``."""
        if not keeps and self.batch_size > 1 and isinstance(value, DependentValue) and value.has_batch_dim:
            raise UnsupportedOperator(MIXES_BATCH)

    def require_dependent(self, value: Value) -> DependentValue:
        """The value, if it depends on the network's input.

        Raises ConstantData for a constant, FileError for an input that is left out.
        """
        if value is None:
            raise self.make_error("An input is missing.")
        if not isinstance(value, DependentValue):
            raise ConstantData
        return value

    def as_node_output(self, value: DependentValue) -> NodeOutput:
        """The node output of a value; raises UnsupportedOperator for a value that no operator may use."""
        return self.recorder.graph.as_node_output(value.value)

    def call(self, operator: str, *args: Any, **kwargs: Any) -> Any:
        """Record a torch operator; see `OperatorRecorder.call`."""
        return self.recorder.call(operator, *args, **kwargs)

    def make_batched(self, output: Any) -> DependentValue:
        """The value of an operator that was applied to batched inputs."""
        return DependentValue(output, (1, *_find_shape(output, self.recorder)), True)

    def make_unbatched(self, output: Any) -> DependentValue:
        """The value of an operator that was applied to unbatched inputs."""
        return DependentValue(output, _find_shape(output, self.recorder), False)

    def apply_along_axes(
        self, value: DependentValue, axes: Sequence[int], apply: Callable[[NodeOutput, list[int]], Any]
    ) -> DependentValue:
        """Apply a torch operator along some axes in the file; ``apply`` gets them as torch's dimensions."""
        dims = self.resolve_axes(axes, len(value.shape))
        self.check_keeps_batch(value, keeps=0 not in dims)
        if value.has_batch_dim and 0 not in dims:
            return self.make_batched(apply(self.as_node_output(value), dims))
        return self.make_unbatched(apply(self.as_unbatched(value), [d + 1 for d in dims]))

    def resolve_axes(self, axes: Sequence[int], rank: int) -> list[int]:
        """Axes counted from 0; raises FileError for one that does not exist or is named twice."""
        if any(not -rank <= a < rank for a in axes):
            raise self.make_error(f"Axis {list(axes)[:20]} does not exist: there are {rank} dimensions.")
        dims = [a % rank for a in axes]
        if len(set(dims)) != len(dims):
            raise self.make_error(f"Axes {dims[:20]} name a dimension twice.")
        return dims

    def reshape(self, value: DependentValue, shape: Sequence[int]) -> DependentValue:
        """Reshape a value to a shape in the file."""
        shape = tuple(shape)
        self.check_result_size(shape)
        if isinstance(value.value, (SmoothOutput, UnusableValue)) and shape == value.shape:
            return value
        if torch.Size(shape).numel() != torch.Size(value.shape).numel():
            raise self.make_error(f"A value of shape {list(value.shape)} cannot become {list(shape)}.")
        has_batch_dim = bool(shape) and shape[0] == 1
        self.check_keeps_batch(value, keeps=has_batch_dim)
        point_shape = shape[1:] if has_batch_dim else shape
        if isinstance(value.value, ScalarFunction):
            return DependentValue(self.reshape_function(value.value, point_shape), shape, has_batch_dim)
        return DependentValue(self._reshape_output(self.as_node_output(value), point_shape), shape, has_batch_dim)

    def reshape_function(self, function: ScalarFunction, shape: Shape) -> ScalarFunction:
        """An elementwise function of a node as the same function of the node reshaped or expanded to a shape."""
        x = NodeOutput(function.node, _find_shape(function, self.recorder))
        return replace(function, node=self._reshape_output(x, shape).index)

    def _reshape_output(self, x: NodeOutput, shape: Shape) -> NodeOutput:
        """Reshape or expand one point; if repeated, it is one node, so that functions of it can be combined."""
        shape = tuple(shape)
        if x.shape == shape:
            return x
        known = self.recorder.reshaped.get((x.index, shape))
        if known is None:
            is_reshape = torch.Size(shape).numel() == torch.Size(x.shape).numel()
            graph = self.recorder.graph
            known = graph.add_node(Reshape(shape), [x], shape) if is_reshape else graph.expand(x, shape)
            self.recorder.reshaped[x.index, shape] = known
        return known

    def rearrange(self, values: Sequence[Value], apply: Callable[..., Tensor], name: str = "") -> Value:
        """Apply a function that only moves elements, or fills in constants, to values with their shapes in the file.

        Args:
            values: some depend on the input; constants are passed to ``apply`` as they are.
            apply: takes one tensor for each value.
            name: of the node, in tables; by default that of the operator.
        """
        dependent = [v for v in values if isinstance(v, DependentValue)]
        if not dependent:
            return apply(*values)
        for value in dependent:
            self.check_keeps_batch(value)
        shapes: list[Shape] = []

        def call(*xs: Tensor) -> Tensor:
            tensors = iter(x.reshape(v.shape) for x, v in zip(xs, dependent, strict=True))
            out = apply(*(next(tensors) if isinstance(v, DependentValue) else v.to(torch.float64) for v in values))
            shapes.append(tuple(out.shape))
            return out if out.dim() and out.shape[0] == 1 else out[None]

        outputs = [self.as_node_output(v) for v in dependent]
        output = self.recorder.graph.rearrange(call, outputs, name or self.op_type.lower())
        shape = shapes[0]
        return DependentValue(output, shape, bool(shape) and shape[0] == 1)


def _find_shape(output: Any, recorder: OperatorRecorder) -> Shape:
    """The shape of a recorded output for one point."""
    if isinstance(output, SmoothOutput):
        output = output.before
    return recorder.graph.nodes[output.node].shape if isinstance(output, ScalarFunction) else output.shape


def drop_equal_rows(node: OnnxNode, value: Value) -> Value:
    """A constant that is the same for all points of a fixed batch, for one point; any other value unchanged."""
    if not isinstance(value, Tensor) or not value.dim() or value.shape[0] != node.batch_size:
        return value
    return value[:1] if bool((value == value[:1]).all()) else value


OperatorReader: TypeAlias = Callable[[OnnxNode, list[Value]], Any]  # returns a value, or a tuple for several outputs
OPERATORS: dict[str, OperatorReader] = {}  # by op_type


def operator(*names: str) -> Callable[[OperatorReader], OperatorReader]:
    """Register a function as the reader of some ONNX operators."""

    def register(function: OperatorReader) -> OperatorReader:
        for name in names:
            OPERATORS[name] = function
        return function

    return register


def read_rows(*row_inputs: int) -> Callable[[OperatorReader], OperatorReader]:
    """Let a reader that expects a batch of one point take several rows that belong to the point.

    Args:
        row_inputs: the inputs that have one entry for each row, the data among them.
    """

    def decorate(read: OperatorReader) -> OperatorReader:
        @wraps(read)
        def read_each(node: OnnxNode, inputs: list[Value]) -> Any:
            with_rows = [i for i in row_inputs if get_input(inputs, i) is not None]
            counts = {v.shape[0] for v in (inputs[i] for i in with_rows) if v.shape}
            data = inputs[0]
            has_rows = isinstance(data, DependentValue) and not data.has_batch_dim
            if not has_rows or len(counts) != 1 or counts == {1}:
                return read(node, inputs)
            node.recorder.has_rows = True
            (count,) = counts
            if count > MAX_ROWS:
                raise UnsupportedOperator(f"has {count:,} rows in one point; only {MAX_ROWS} are supported")
            rows: list[Value] = []
            for row in range(count):
                chosen = list(inputs)
                for i in with_rows:
                    chosen[i] = node.rearrange([inputs[i]], lambda x, row=row: x[row : row + 1], "row")
                rows.append(read(node, chosen))
            return node.rearrange(rows, lambda *xs: torch.cat(xs), "rows")

        return read_each

    return decorate


def get_input(inputs: list[Value], index: int) -> Value:
    """An input of a node, or None where it is left out."""
    return inputs[index] if index < len(inputs) else None
