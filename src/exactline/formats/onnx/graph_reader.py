"""Read the graph of an ONNX model node by node into a network."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import FileError, NumberError, UnsupportedError
from ...network.builder import (
    IS_INFINITE,
    MUST_BE_LAST,
    NOT_KNOWN,
    NodeOutput,
    UnsupportedOperator,
    UnusableValue,
)
from ...network.graph import Network
from ...network.scalar_functions import ScalarFunction, SourceOperator
from .. import limits
from ..graph_builder import OperatorRecorder
from .control_flow import CONTROL_FLOW, GRAPH_ATTRIBUTE, iterate_read_names, read_control_flow
from .functions import MAX_DEPTH, FunctionBody, find_function, is_function_in
from .inputs import InputShapes
from .judge import ONNX_DOMAINS, TAIL_OPERATORS, TAKES_SMOOTH, Judge, depends_on_input, shorten_name
from .tensors import FLOAT_TYPES, TensorReader, list_float_types, make_damaged_error
from .unsupported import UNSUPPORTED_REASONS, explain_unsupported
from .values import OPERATORS, ConstantData, DependentValue, OnnxNode, OperatorReader, Value

OLDEST_OPSET, NEWEST_OPSET = 1, 28
MAX_JUDGED_NODES = 1000  # read in full after an unsupported node; further ones are judged by their type alone
STRING_ATTRIBUTE, TENSOR_ATTRIBUTE, GRAPHS_ATTRIBUTE = 3, 4, 10  # AttributeProto.AttributeType
LIST_ATTRIBUTES = (6, 7, 8)  # floats, ints, strings
ATTRIBUTE_FIELDS = {1: "f", 2: "i", 3: "s", 4: "t", 6: "floats", 7: "ints", 8: "strings"}


class GraphReader:
    """Reads the nodes that the outputs depend on, and keeps the value of each name."""

    def __init__(self, model: Any, where: str, folder: Path | None, inputs: InputShapes) -> None:
        self.graph, self.where, self.input_shapes = model.graph, where, inputs.shapes
        self.recorder, self.tensors = OperatorRecorder(where), TensorReader(where, folder)
        self.recorder.float_types = list_float_types(model)
        self.batch_size = inputs.batch_size
        self.judge = Judge(self.recorder, self.batch_size)
        if self.batch_size > 1:
            note = f"the file is for a batch of {self.batch_size}, and is read for any number of points"
            self.recorder.graph.notes.append(note)
        self.versions = self._read_versions(model)  # of the operator sets, by domain
        self.functions, self.depth = list(model.functions), 0  # those of the file; how many are being read
        self.values: dict[str, Value] = {"": None}
        self.after_rejection: set[str] = set()  # names of values that depend on an unsupported node
        self.number_problems: list[NumberError] = []
        self.judged_nodes = 0  # that depend on an unsupported node
        self.node_names: set[str] = set()  # of the nodes read so far
        self.folded_numbers = 0  # in all constants that nodes computed
        graph_outputs = (o.name for o in self.graph.output)
        self.read_names = {*graph_outputs, *(i for node in self.graph.node for i in iterate_read_names(node))}
        self.scope = ""  # the nodes around a subgraph, for the names of its nodes
        self.subgraph_nodes = 0  # read so far, in every round of a loop

    def _read_versions(self, model: Any) -> dict[str, int]:
        """The versions of the operator sets that the file uses, by domain; "" is ONNX's own."""
        versions = {o.domain: o.version for o in model.opset_import}
        own = [versions.pop(domain) for domain in ONNX_DOMAINS if domain in versions]
        if not own and any(node.domain in ONNX_DOMAINS for node in model.graph.node):
            raise make_damaged_error("The file does not specify its operator set.", self.where)
        version = max(own, default=NEWEST_OPSET)  # a file may have operators of other domains alone
        if not OLDEST_OPSET <= version <= NEWEST_OPSET:
            raise UnsupportedError(
                f"Operator set {version} is not supported.",
                where=self.where,
                hint=f"Convert the file to a set from {OLDEST_OPSET} to {NEWEST_OPSET}, with onnx.version_converter.",
            )
        return {**versions, "": version}

    def read_network(self) -> Network:
        """Read the network; see `read_onnx`."""
        order = self._sort_nodes(self.graph)
        self._read_initializers(self.graph)
        self._read_inputs()
        for number in order:
            self._read_node(self.graph.node[number], number)
        outputs = self._find_outputs()
        if self.number_problems and len(self.recorder.rejections) <= len(self.number_problems):
            raise self.number_problems[0]
        return self.recorder.build_network(outputs, [shorten_name(o.name) for o in self.graph.output])

    def _sort_nodes(self, graph: Any) -> list[int]:
        """The indices of the nodes that the outputs depend on, in an order in which they can be evaluated."""
        if not graph.output:
            raise make_damaged_error("The graph has no output.", self.where)
        producer: dict[str, int] = {}  # index of the node that makes each value
        for number, node in enumerate(graph.node):
            for name in filter(None, node.output):
                limits.check_limit(len(name), limits.MAX_NAME_CHARACTERS, "characters of a name", self.where)
                if name in producer:
                    raise make_damaged_error(f"Two nodes produce {name[:80]!r}.", self.where)
                producer[name] = number
        order: list[int] = []
        is_finished: dict[int, bool] = {}  # False while the inputs of a node are visited
        stack = [producer[o.name] for o in reversed(graph.output) if o.name in producer]
        while stack:
            number = stack[-1]
            if number not in is_finished:
                sources = {producer[i] for i in iterate_read_names(graph.node[number]) if i in producer}
                is_finished[number] = False
                if any(is_finished.get(s) is False for s in sources):
                    name = graph.node[number].output[0]
                    raise make_damaged_error(f"{name[:80]!r} depends on itself.", self.where)
                stack += sorted((s for s in sources if s not in is_finished), reverse=True)
                continue
            stack.pop()
            if not is_finished[number]:
                is_finished[number] = True
                order.append(number)
        return sorted(order) if self._is_sorted(graph, order, producer) else order

    def _is_sorted(self, graph: Any, order: list[int], producer: dict[str, int]) -> bool:
        """Whether the order of the file is an evaluation order, as the format requires."""
        return all(producer.get(i, -1) < n for n in order for i in iterate_read_names(graph.node[n]))

    def _read_initializers(self, graph: Any) -> None:
        """Read the weights."""
        if graph.sparse_initializer:
            raise UnsupportedError(
                "Sparse weights are not supported.", where=self.where, hint="Store them as dense tensors."
            )
        for proto in graph.initializer:
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
                self.recorder.begin_node(shorten_name(info.name))
                self.recorder.reject("Input", "is not a floating-point tensor")
                self.values[info.name] = DependentValue(UnusableValue(""), (), False)
                self.after_rejection.add(info.name)
                continue
            shape = self.input_shapes[info.name]
            has_batch_dim = bool(shape) and shape[0] == 1
            output = self.recorder.add_input(info.name[:80], shape[has_batch_dim:])
            self.values[info.name] = DependentValue(output, shape, has_batch_dim)

    def _find_outputs(self) -> list[Value]:
        """The values that the network returns; one that cannot be returned is reported with the node that makes it."""
        outputs: list[Value] = []
        for output in self.graph.output:
            if output.name not in self.values or output.name == "":
                raise make_damaged_error(f"No node produces the output {output.name[:80]!r}.", self.where)
            value = self.values[output.name]
            value = value.value if isinstance(value, DependentValue) else value
            if isinstance(value, ScalarFunction) and (value.is_boolean or value.find_jump() is not None):
                self.judge.report_jump(value)
                value = UnusableValue("")
            if isinstance(value, UnusableValue):  # a network may end in a smooth operator
                value = UnusableValue("") if value.reason == MUST_BE_LAST else self.judge.report_unusable(value)
            outputs.append(value)
        root = next((v for v in outputs if isinstance(v, NodeOutput)), None)
        if root is None:
            return outputs
        return [self._add_constant(v, root) if isinstance(v, Tensor) else v for v in outputs]

    def _add_constant(self, value: Tensor, root: NodeOutput) -> NodeOutput:
        """A constant output beside others, as a node that takes nothing from ``root``."""
        value = value.to(torch.float64)
        if self.batch_size > 1 and value.dim() and len(value) == self.batch_size:
            value = value[:1] if bool((value == value[:1]).all()) else value[None]
        point = value if value.dim() and len(value) == 1 else value[None]
        self.recorder.begin_node("constant")
        return self.recorder.graph.rearrange(lambda _: point, [root], "constant")

    def _read_node(self, node: Any, number: int) -> None:
        """Read one node, and store the values of its outputs."""
        name = node.name or (node.output[0] if node.output else "") or f"{node.op_type}_{number}"
        name = self.scope + name
        name = f"{name}_{number}" if name in self.node_names else name
        self.node_names.add(name)
        inputs = [self._find_value(i) for i in node.input]
        onnx_node = OnnxNode(
            recorder=self.recorder,
            opset=self.versions[""],
            op_type=node.op_type,
            name=name,
            attributes={},
            output_count=len(node.output),
            batch_size=self.batch_size,
        )
        follows_rejection = any(i in self.after_rejection for i in iterate_read_names(node))
        rejected_before = len(self.recorder.rejections)
        try:
            results = self._read_results(node, onnx_node, inputs)
            follows_rejection |= len(self.recorder.rejections) > rejected_before  # in a subgraph or a function
        except UnsupportedOperator as problem:
            self.judge.report_jumps(node, inputs)
            self.recorder.begin_node(shorten_name(problem.path or name))
            if node.op_type != "Where" or not follows_rejection:  # else its branches may meet, as those of Elu do
                self.recorder.reject(TAIL_OPERATORS.get(problem.name, problem.name) or node.op_type, str(problem))
            self._judge_branches(node, name)
            results, follows_rejection = self.judge.replace_outputs(onnx_node, inputs, node.domain), True
        except NumberError as problem:
            self.number_problems.append(problem)
            self.recorder.begin_node(shorten_name(name))
            self.recorder.reject(node.op_type, IS_INFINITE)
            results, follows_rejection = self.judge.replace_outputs(onnx_node, inputs), True
        except FileError:
            if not follows_rejection:  # otherwise the shapes may be wrong, and the file sound
                raise
            results = self.judge.replace_outputs(onnx_node, [])
        except (AttributeError, IndexError, KeyError) as problem:
            raise make_damaged_error("An input is missing or of the wrong kind.", self._locate(node, name)) from problem
        except (ValueError, TypeError, ArithmeticError, RuntimeError) as problem:
            text = (str(problem).strip().splitlines() or [type(problem).__name__])[0][:200]
            message = f"Its attributes or inputs are invalid: {text}"
            raise make_damaged_error(message, self._locate(node, name)) from problem
        for index, output in enumerate(node.output):
            if output:
                self.values[output] = (
                    results[index] if index < len(results) else self.judge.make_missing_output(onnx_node, index)
                )
                if follows_rejection:
                    self.after_rejection.add(output)

    def _read_results(self, node: Any, onnx_node: OnnxNode, inputs: list[Value]) -> Sequence[Value]:
        """The values of a node's outputs.

        Raises UnsupportedOperator where the node is not supported.
        """
        self.recorder.begin_node(shorten_name(onnx_node.name))
        read = OPERATORS.get(node.op_type if node.domain in ONNX_DOMAINS else f"{node.domain}.{node.op_type}")
        unknown = [v.value for v in inputs if isinstance(v, DependentValue) and isinstance(v.value, UnusableValue)]
        self.judged_nodes += any(i in self.after_rejection for i in node.input)
        if node.op_type == "If" and unknown and not unknown[0].depends_on_input:
            return self._guess_branch(node, onnx_node)
        if unknown and is_function_in(self.functions, node):
            return self._read_function(node, onnx_node, inputs)
        if unknown or self.judged_nodes > MAX_JUDGED_NODES:
            if node.op_type == "RNN":
                onnx_node.attributes.update({a.name: self._read_attribute(a, node.op_type) for a in node.attribute})
            return self.judge.judge_unknown(onnx_node, inputs, unknown)
        if node.op_type not in TAKES_SMOOTH:
            inputs = [self.judge.replace_smooth(v) for v in inputs]
            self.recorder.begin_node(shorten_name(onnx_node.name))
        if node.op_type in CONTROL_FLOW and node.domain in ONNX_DOMAINS:
            return self._read_control_flow(node, onnx_node, inputs)
        if read is None:
            return self._read_function(node, onnx_node, inputs)
        onnx_node.attributes.update({a.name: self._read_attribute(a, node.op_type) for a in node.attribute})
        if node.input and inputs[0] is None:
            raise onnx_node.make_error("An input is missing.")
        try:
            result = read(onnx_node, inputs)
        except ConstantData:
            result = self._fold_as_network(read, onnx_node, inputs)
        results = result if isinstance(result, tuple) else (result,)
        self._count_folded(results, [*inputs, *onnx_node.attributes.values()])
        return [self._name_source(v, onnx_node) for v in results]

    def _read_control_flow(self, node: Any, onnx_node: OnnxNode, inputs: list[Value]) -> Sequence[Value]:
        """The values of the outputs of an If, a Loop or a Scan."""
        subgraphs = {a.name: a.g for a in node.attribute if a.type == GRAPH_ATTRIBUTE}
        others = [a for a in node.attribute if a.name not in subgraphs]
        onnx_node.attributes.update({a.name: self._read_attribute(a, node.op_type) for a in others})

        def read(graph: Any, values: Sequence[Value], part: str) -> list[Value] | None:
            self.recorder.begin_node(shorten_name(onnx_node.name))
            return self._read_subgraph(graph, values, f"{onnx_node.name}/{part}".removesuffix("/") + "/")

        results = read_control_flow(onnx_node, subgraphs, inputs, read)
        self.recorder.begin_node(shorten_name(onnx_node.name))
        return results

    def _read_subgraph(self, graph: Any, inputs: Sequence[Value], scope: str) -> list[Value] | None:
        """The values of a subgraph's outputs, which sees the values around it; None where it is not supported."""
        outer, rejected_before = (self.values, self.scope), len(self.recorder.rejections)
        self.values, self.scope = dict(self.values), scope
        try:
            self.values.update({i.name: v for i, v in zip(graph.input, inputs, strict=True)})
            self._read_initializers(graph)
            for number in self._sort_nodes(graph):
                self.subgraph_nodes += 1
                limits.check_limit(self.subgraph_nodes, limits.MAX_LAYERS, "nodes in subgraphs", self.where)
                self._read_node(graph.node[number], number)
            outputs = [self._find_value(o.name) for o in graph.output]
        finally:
            self.values, self.scope = outer
        return outputs if len(self.recorder.rejections) == rejected_before else None

    def _judge_branches(self, node: Any, name: str) -> None:
        """Reject what is not supported in either branch of an If that the input decides."""
        for attribute in node.attribute:
            if node.op_type == "If" and attribute.type == GRAPH_ATTRIBUTE and not attribute.g.input:
                with suppress(FileError):  # a branch may fit some shapes only
                    self._read_subgraph(attribute.g, [], f"{name}/")

    def _guess_branch(self, node: Any, onnx_node: OnnxNode) -> Sequence[Value]:
        """The outputs of an If that an unknown shape decides: those of a branch in which nothing is rejected."""
        rejections = dict(self.recorder.rejections)
        for attribute in node.attribute:
            if attribute.type == GRAPH_ATTRIBUTE and not attribute.g.input:
                with suppress(FileError):  # a branch may fit some shapes only
                    outputs = self._read_subgraph(attribute.g, [], f"{onnx_node.name}/")
                    if outputs is not None:
                        self.recorder.rejections = rejections
                        return outputs
        return [DependentValue(UnusableValue(""), (), False)] * onnx_node.output_count

    def _read_function(self, node: Any, onnx_node: OnnxNode, inputs: list[Value]) -> Sequence[Value]:
        """The values of the outputs of a node that is made of other operators.

        Raises UnsupportedOperator where there is no such function, or where ONNX defines it by operators that are not
        supported; those of a function in the file are rejected by themselves.
        """
        reason = explain_unsupported(node.op_type, node.domain)
        used = [k for k, name in enumerate(node.output) if name and (self.scope or name in self.read_names)]
        depends = all(depends_on_input(v) for v in inputs if v is not None)
        is_hopeless = reason == UNSUPPORTED_REASONS.get(node.op_type) and depends and 0 in used
        body = None if is_hopeless else find_function(node, self.functions, self.versions, inputs, used)
        if body is None:
            raise UnsupportedOperator(reason)
        if self.depth >= MAX_DEPTH or len(inputs) > len(body.graph.input):
            raise onnx_node.make_error("Its function calls itself, or has fewer inputs than the node.")
        rejections, notes = dict(self.recorder.rejections), list(self.recorder.graph.notes)
        problems = list(self.number_problems)
        try:
            results = self._read_body(body, node, inputs, onnx_node.name)
        except (FileError, UnsupportedError):
            if body.is_in_file:
                raise
            results = None
        if results is None and not body.is_in_file:
            new = [line.partition(": ")[2] for line in self.recorder.rejections if line not in rejections]
            self.recorder.rejections, self.recorder.graph.notes[:] = rejections, notes
            self.number_problems = problems
            raise UnsupportedOperator(_explain_function(reason, new))
        unknown = DependentValue(UnusableValue(""), (), False)
        found = [unknown] * len(body.used_outputs) if results is None else results
        by_number = dict(zip(body.used_outputs, found, strict=True))
        return [by_number.get(k, unknown) for k in range(onnx_node.output_count)]

    def _read_body(self, body: FunctionBody, node: Any, inputs: list[Value], name: str) -> list[Value] | None:
        """The values of a function's outputs, which sees nothing but its inputs; None where it is not supported."""
        outer = (self.values, self.versions, self.after_rejection)
        names = [i.name for i in body.graph.input]
        after = {n for n, source in zip(names, node.input, strict=False) if source in self.after_rejection}
        self.values, self.versions, self.after_rejection = {"": None}, body.versions, after
        self.depth += 1
        try:
            missing = len(names) - len(inputs)
            return self._read_subgraph(body.graph, [*inputs, *[None] * missing], f"{name}/")
        finally:
            self.values, self.versions, self.after_rejection = outer
            self.depth -= 1

    def _name_source(self, value: Value, node: OnnxNode) -> Value:
        """A value that keeps the node to blame where it is a function with a jump."""
        function = value.value if isinstance(value, DependentValue) else None
        if not isinstance(function, ScalarFunction):
            return value
        return replace(value, value=replace(function, source=SourceOperator(node.op_type, node.name)))

    def _fold_as_network(self, read: OperatorReader, node: OnnxNode, inputs: list[Value]) -> Value:
        """Evaluate an operator whose data is a constant: read it as a network, and apply that to the constant."""
        if any(isinstance(v, DependentValue) for v in inputs):
            raise UnsupportedOperator("applies weights that depend on the input to a constant")
        data, recorder = inputs[0].to(torch.float64), OperatorRecorder(self.where)
        has_batch_dim = data.dim() > 0 and data.shape[0] == 1
        recorder.begin_node("constant")
        x = recorder.add_input("constant", data.shape[has_batch_dim:])
        inner = replace(node, recorder=recorder, batch_size=1)
        result = read(inner, [DependentValue(x, tuple(data.shape), has_batch_dim), *inputs[1:]])
        results = result if isinstance(result, tuple) else (result,)
        network = recorder.build_network([v.value for v in results])
        point = data if has_batch_dim else data[None]
        values = network.evaluate([point], network.outputs)
        folded = [values[i] for i in network.outputs]
        folded = [f if t is None else t.apply(f) for f, t in zip(folded, network.tails, strict=True)]
        return tuple(f.reshape(v.shape) for f, v in zip(folded, results, strict=True))

    def _count_folded(self, results: Sequence[Value], inputs: Sequence[Value]) -> None:
        """Count the numbers in constants that a node computed; views of its inputs take no memory."""
        inputs_at = {v.untyped_storage().data_ptr() for v in inputs if isinstance(v, Tensor)}
        new = [v for v in results if isinstance(v, Tensor) and v.untyped_storage().data_ptr() not in inputs_at]
        self.folded_numbers += sum(v.numel() for v in new)
        what = "numbers in constants that nodes compute"
        limits.check_limit(self.folded_numbers, limits.MAX_FOLDED_NUMBERS, what, self.where)

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


def _explain_function(reason: str, rejected: Sequence[str]) -> str:
    """The reason why an operator is not supported: its own, or that of the first operator that it is made of."""
    if reason != NOT_KNOWN or not rejected:
        return reason
    op_type, _, inner = rejected[0].partition(" ")
    return f"contains {op_type}, which {inner}"
