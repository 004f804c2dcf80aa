"""Read ONNX files operator by operator; nothing in a file is ever run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ...errors import ArgumentError, UnsupportedError
from ...network.builder import MULTIPLIES_INPUTS, MUST_BE_LAST, UnsupportedOperator, UnusableValue
from ...network.graph import Network
from ...network.scalar_functions import SourceOperator
from ...optional import require_package
from .. import limits
from ..graph_builder import OperatorRecorder
from . import affine as affine
from . import arithmetic as arithmetic
from . import pools as pools
from . import shapes as shapes
from .tensors import FLOAT_TYPES, TensorReader, make_damaged_error
from .unsupported import UNSUPPORTED_REASONS, explain_unsupported
from .values import OPERATORS, DependentValue, OnnxNode, Value

OLDEST_OPSET, NEWEST_OPSET = 7, 28
ONNX_DOMAINS = ("", "ai.onnx")
STRING_ATTRIBUTE, TENSOR_ATTRIBUTE, GRAPH_ATTRIBUTE, GRAPHS_ATTRIBUTE = 3, 4, 5, 10  # AttributeProto.AttributeType
LIST_ATTRIBUTES = (6, 7, 8)  # floats, ints, strings
ATTRIBUTE_FIELDS = {1: "f", 2: "i", 3: "s", 4: "t", 6: "floats", 7: "ints", 8: "strings"}
TAIL_OPERATORS = ("Softmax", "LogSoftmax", "Sigmoid", "Tanh")


def read_onnx(data: bytes, where: str, *, folder: Path | None, shape: Sequence[int] | None = None) -> Network:
    """Read a network from the content of an ONNX file.

    Args:
        data: the content of the file.
        where: the name of the file, for error messages.
        folder: where the file may keep external data; None if it must not have any.
        shape: of one input point, for files with dynamic dimensions.

    Raises FileError for a damaged file, UnsupportedError naming every operator that is not piecewise linear,
    NumberError for NaN weights, ArgumentError where ``shape`` does not fit or is missing.
    """
    return _GraphReader(_parse_model(data, where), where, folder, shape).read_network()


def _parse_model(data: bytes, where: str) -> Any:
    """Parse an ONNX model; raises FileError for anything that is not one."""
    with require_package("Reading ONNX needs the package onnx.", where=where, hint='pip install "exactline[onnx]"'):
        from onnx import ModelProto
    try:
        model = ModelProto.FromString(data)
    except Exception as problem:  # the parser has its own error types
        raise make_damaged_error("The file is not an ONNX file.", where) from problem
    if not model.HasField("graph") or not model.graph.node:
        raise make_damaged_error("The file has no graph.", where)
    limits.check_limit(len(model.graph.node), limits.MAX_LAYERS, "nodes", where)
    if not all(isinstance(name, str) for name in _iterate_names(model.graph)):
        raise make_damaged_error("The file has a name that is not UTF-8 text.", where)
    return model


def _iterate_names(graph: Any) -> Iterator[Any]:
    """Iterate over all names in a graph; a name that is not UTF-8 is bytes."""
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (a.name for a in node.attribute)
    yield from (v.name for v in (*graph.initializer, *graph.input, *graph.output))


class _GraphReader:
    """Reads the nodes that the outputs depend on, and keeps the value of each name."""

    def __init__(self, model: Any, where: str, folder: Path | None, point_shape: Sequence[int] | None) -> None:
        self.graph, self.where, self.point_shape = model.graph, where, point_shape
        self.recorder, self.tensors = OperatorRecorder(where), TensorReader(where, folder)
        self.opset = self._read_opset(model)
        self.values: dict[str, Value] = {"": None}
        self.node_names: set[str] = set()  # of the nodes read so far
        self.folded_numbers = 0  # in all constants that nodes computed

    def _read_opset(self, model: Any) -> int:
        """The version of ONNX's own operators that the file uses."""
        versions = [o.version for o in model.opset_import if o.domain in ONNX_DOMAINS]
        if not versions:
            raise make_damaged_error("The file does not specify its operator set.", self.where)
        version = max(versions)
        if not OLDEST_OPSET <= version <= NEWEST_OPSET:
            raise UnsupportedError(
                f"Operator set {version} is not supported.",
                where=self.where,
                hint=f"Convert the file to a set from {OLDEST_OPSET} to {NEWEST_OPSET}, with onnx.version_converter.",
            )
        return version

    def read_network(self) -> Network:
        """Read the network; see `read_onnx`."""
        order = self._sort_nodes()
        self._read_initializers()
        self._read_inputs()
        for number in order:
            self._read_node(self.graph.node[number], number)
        outputs = [self._find_output(o.name) for o in self.graph.output]
        values = [o.value if isinstance(o, DependentValue) else o for o in outputs]
        return self.recorder.build_network(values, [_shorten(o.name) for o in self.graph.output])

    def _sort_nodes(self) -> list[int]:
        """The indices of the nodes that the outputs depend on, in an order in which they can be evaluated."""
        if not self.graph.output:
            raise make_damaged_error("The graph has no output.", self.where)
        producer: dict[str, int] = {}  # index of the node that makes each value
        for number, node in enumerate(self.graph.node):
            for name in filter(None, node.output):
                limits.check_limit(len(name), limits.MAX_NAME_CHARACTERS, "characters of a name", self.where)
                if name in producer:
                    raise make_damaged_error(f"Two nodes produce {name[:80]!r}.", self.where)
                producer[name] = number
        order: list[int] = []
        is_finished: dict[int, bool] = {}  # False while the inputs of a node are visited
        stack = [producer[o.name] for o in reversed(self.graph.output) if o.name in producer]
        while stack:
            number = stack[-1]
            if number not in is_finished:
                sources = {producer[i] for i in self.graph.node[number].input if i in producer}
                is_finished[number] = False
                if any(is_finished.get(s) is False for s in sources):
                    name = self.graph.node[number].output[0]
                    raise make_damaged_error(f"{name[:80]!r} depends on itself.", self.where)
                stack += sorted((s for s in sources if s not in is_finished), reverse=True)
                continue
            stack.pop()
            if not is_finished[number]:
                is_finished[number] = True
                order.append(number)
        return sorted(order) if self._is_sorted(order, producer) else order

    def _is_sorted(self, order: list[int], producer: dict[str, int]) -> bool:
        """Whether the order of the file is an evaluation order, as the format requires."""
        return all(producer.get(i, -1) < n for n in order for i in self.graph.node[n].input)

    def _read_initializers(self) -> None:
        """Read the weights."""
        if self.graph.sparse_initializer:
            raise UnsupportedError(
                "Sparse weights are not supported.", where=self.where, hint="Store them as dense tensors."
            )
        for proto in self.graph.initializer:
            if proto.name in self.values:
                raise make_damaged_error(f"Two tensors are called {proto.name[:80]!r}.", self.where)
            self.values[proto.name] = self.tensors.read_tensor(proto)

    def _read_inputs(self) -> None:
        """Add the inputs of the network."""
        weights = set(self.values)
        for info in self.graph.input:
            if info.name in weights:
                continue  # old files list their weights among the inputs
            if info.name in self.values:
                raise make_damaged_error(f"Two inputs are called {info.name[:80]!r}.", self.where)
            tensor_type = info.type.tensor_type
            if not info.type.HasField("tensor_type") or not tensor_type.HasField("shape"):
                raise make_damaged_error(f"Input {info.name[:80]!r} has no shape.", self.where)
            if tensor_type.elem_type not in FLOAT_TYPES:
                raise UnsupportedError(
                    f"Input {info.name[:80]!r} is not a floating-point tensor.",
                    where=self.where,
                    hint="Only networks of real inputs are piecewise linear.",
                )
            self.values[info.name] = self._read_input(info.name, tensor_type.shape.dim)

    def _read_input(self, name: str, dims: Any) -> DependentValue:
        """Add one input; a first dimension of size 1, or of any size, is the batch dimension."""
        shape = [d.dim_value if d.HasField("dim_value") else 0 for d in dims]
        limits.check_limit(len(shape), limits.MAX_DIMS, f"dimensions of input {name[:80]}", self.where)
        if shape and shape[0] == 0:
            shape[0] = 1
        has_batch_dim = bool(shape) and shape[0] == 1
        if self.point_shape is not None:
            wanted = [1, *self.point_shape] if has_batch_dim else [*self.point_shape]
            if len(wanted) != len(shape) or any(n not in (0, w) for n, w in zip(shape, wanted, strict=True)):
                raise ArgumentError(
                    f"{list(self.point_shape)} does not fit input {name[:80]!r} of shape {shape[has_batch_dim:]}.",
                    where="argument shape",
                    hint="Give the shape of one point, without a batch dimension.",
                )
            shape = wanted
        if any(d < 1 for d in shape):
            raise ArgumentError(
                f"Input {name[:80]!r} has a dynamic dimension besides the first: {shape}.",
                where=self.where,
                hint="Give the size of one point: load(path, shape=(12, 12, 3)), or --shape 12,12,3.",
            )
        output = self.recorder.add_input(name[:80], shape[1:] if has_batch_dim else shape)
        return DependentValue(output, tuple(shape), has_batch_dim)

    def _find_output(self, name: str) -> Value:
        if name not in self.values or name == "":
            raise make_damaged_error(f"No node produces the output {name[:80]!r}.", self.where)
        return self.values[name]

    def _read_node(self, node: Any, number: int) -> None:
        """Read one node, and store the values of its outputs."""
        name = node.name or (node.output[0] if node.output else "") or f"{node.op_type}_{number}"
        name = f"{name}_{number}" if name in self.node_names else name
        self.node_names.add(name)
        inputs = [self._find_value(i) for i in node.input]
        self.recorder.begin_node(_shorten(name))
        read = OPERATORS.get(node.op_type) if node.domain in ONNX_DOMAINS else None
        try:
            if read is None:
                raise UnsupportedOperator(explain_unsupported(node.op_type, node.domain))
            attributes = {a.name: self._read_attribute(a, node.op_type) for a in node.attribute}
            onnx_node = OnnxNode(
                recorder=self.recorder,
                opset=self.opset,
                op_type=node.op_type,
                name=name,
                attributes=attributes,
                output_count=len(node.output),
            )
            if node.input and inputs[0] is None:
                raise onnx_node.make_error("An input is missing.")
            result = self._check_after_rejection(onnx_node, inputs) or read(onnx_node, inputs)
            results = result if isinstance(result, tuple) else (result,)
            self._count_folded(results, [*inputs, *attributes.values()])
        except UnsupportedOperator as problem:
            if problem.path:
                self.recorder.begin_node(_shorten(problem.path))
            results = (DependentValue(self.recorder.reject(problem.name or node.op_type, str(problem)), (), False),)
        except (AttributeError, IndexError) as problem:
            raise make_damaged_error("An input is missing or of the wrong kind.", self._locate(node, name)) from problem
        except (ValueError, TypeError, OverflowError, RuntimeError) as problem:
            text = (str(problem).strip().splitlines() or [type(problem).__name__])[0][:200]
            message = f"Its attributes or inputs are invalid: {text}"
            raise make_damaged_error(message, self._locate(node, name)) from problem
        for index, output in enumerate(node.output):
            if output:
                reason = f"uses output {index} of {node.op_type}, which is not supported"
                missing = DependentValue(UnusableValue(reason), (), False)
                self.values[output] = results[index] if index < len(results) else missing

    def _count_folded(self, results: Sequence[Value], inputs: Sequence[Value]) -> None:
        """Count the numbers in constants that a node computed; views of its inputs take no memory."""
        inputs_at = {v.untyped_storage().data_ptr() for v in inputs if isinstance(v, Tensor)}
        new = [v for v in results if isinstance(v, Tensor) and v.untyped_storage().data_ptr() not in inputs_at]
        self.folded_numbers += sum(v.numel() for v in new)
        what = "numbers in constants that nodes compute"
        limits.check_limit(self.folded_numbers, limits.MAX_FOLDED_NUMBERS, what, self.where)

    def _check_after_rejection(self, node: OnnxNode, inputs: list[Value]) -> DependentValue | None:
        """Check a node whose inputs include the output of an unsupported one: its shape is not known.

        Returns None where there is no such input.
        """
        dependent = [v.value for v in inputs if isinstance(v, DependentValue)]
        unusable = [v for v in dependent if isinstance(v, UnusableValue) and not v.reason]
        if not unusable:
            return None
        for value in unusable:
            if value.smooth_source:
                self.recorder.begin_node(value.smooth_source.path)
                self.recorder.reject(value.smooth_source.name, MUST_BE_LAST)
        self.recorder.begin_node(_shorten(node.name))
        if node.op_type in UNSUPPORTED_REASONS:
            raise UnsupportedOperator(UNSUPPORTED_REASONS[node.op_type])
        if node.op_type in ("Mul", "MatMul", "Gemm", "Div") and len(dependent) > 1:
            raise UnsupportedOperator(MULTIPLIES_INPUTS)
        source = SourceOperator(node.op_type, node.name) if node.op_type in TAIL_OPERATORS else None
        return DependentValue(UnusableValue("", smooth_source=source), (), False)

    def _find_value(self, name: str) -> Value:
        if name not in self.values:
            raise make_damaged_error(f"Nothing produces {name[:80]!r}, which a node reads.", self.where)
        return self.values[name]

    def _locate(self, node: Any, name: str) -> str:
        """The file and the node, for error messages."""
        return f"{self.where}: {node.op_type[:80]} {name[:80]}"

    def _read_attribute(self, proto: Any, op_type: str) -> Any:
        """The value of an attribute: a number, a text, a list or a tensor."""
        if proto.type in (GRAPH_ATTRIBUTE, GRAPHS_ATTRIBUTE) or proto.ref_attr_name:
            raise UnsupportedOperator("contains a subgraph, which is not supported")
        if proto.type not in ATTRIBUTE_FIELDS:
            where = f"{self.where}: {op_type[:80]}"
            raise make_damaged_error(f"Attribute {proto.name[:80]!r} has an unknown type.", where)
        value = getattr(proto, ATTRIBUTE_FIELDS[proto.type])
        if proto.type == STRING_ATTRIBUTE:
            return value.decode("utf-8", "replace")
        if proto.type == TENSOR_ATTRIBUTE:
            return self.tensors.read_tensor(value)
        if proto.type in LIST_ATTRIBUTES:
            what = f"numbers of attribute {proto.name[:80]}"
            limits.check_limit(len(value), limits.MAX_TENSOR_NUMBERS, what, self.where)
            return list(value)
        return value


def _shorten(name: str) -> str:
    """Shorten a name and replace unprintable characters, for messages and tables."""
    return "".join(c if c.isprintable() else "?" for c in name[:120])
