"""Functions: operators that are made of other operators, in the file itself or in ONNX's specification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .tensors import FLOAT
from .values import Value

BOOL, INT64 = 9, 7  # TensorProto.DataType
GRAPH_ATTRIBUTE = 5  # AttributeProto.AttributeType
MAX_DEPTH = 16  # of functions that call functions


@dataclass(frozen=True)
class FunctionBody:
    """The operators of a function, for one node that calls it."""

    graph: Any  # GraphProto, whose outputs are those that the node uses
    used_outputs: tuple[int, ...]  # their numbers among the outputs of the node
    versions: dict[str, int]  # of the operator sets, by domain
    is_in_file: bool  # whether the file defines it


def is_function_in(functions: Sequence[Any], node: Any) -> bool:
    """Whether a node calls one of the functions of the file."""
    return any((f.domain, f.name, f.overload) == (node.domain, node.op_type, node.overload) for f in functions)


def find_function(
    node: Any, functions: Sequence[Any], versions: Mapping[str, int], inputs: Sequence[Value], used: Sequence[int]
) -> FunctionBody | None:
    """Find the function that a node calls; None where there is none.

    Args:
        node: the NodeProto.
        functions: the FunctionProtos of the file.
        versions: of the operator sets around the node, by domain.
        inputs: the values of the node's inputs.
        used: the numbers of the node's outputs that are used.
    """
    for function in functions:
        if is_function_in([function], node):
            return _make_body(function, node, versions, used, True)
    function = _find_in_specification(node, versions, inputs)
    return None if function is None else _make_body(function, node, versions, used, False)


def _find_in_specification(node: Any, versions: Mapping[str, int], inputs: Sequence[Value]) -> Any:
    """The function by which ONNX's specification defines an operator, for inputs of these types and shapes."""
    from onnx import FunctionProto, defs

    domain = "" if node.domain == "ai.onnx" else node.domain
    if domain not in versions or not defs.has(node.op_type, domain):
        return None
    try:
        schema: Any = defs.get_schema(node.op_type, versions[domain], domain)
    except defs.SchemaError:  # a newer operator set has it
        return None
    known = [*schema.function_opset_versions, *schema.context_dependent_function_opset_versions]
    version = max((v for v in known if v <= versions.get("", 0)), default=None)
    if version is None:
        return None
    if schema.has_function:
        data = schema.get_function_with_opset_version(version)
    else:
        types = [_make_type(v).SerializeToString() for v in inputs]
        data = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), types)
    function = FunctionProto.FromString(data)
    function.attribute_proto.extend(a.default_value for a in schema.attributes.values() if a.default_value.name)
    return function if function.node else None


def _make_type(value: Value) -> Any:
    """The type and shape of a value."""
    from onnx import TypeProto, helper

    if value is None:
        return TypeProto()
    element = FLOAT
    if isinstance(value, Tensor) and not value.is_floating_point():
        element = BOOL if value.dtype.itemsize == 1 else INT64
    return helper.make_tensor_type_proto(element, tuple(value.shape))


def _make_body(
    function: Any, node: Any, versions: Mapping[str, int], used: Sequence[int], is_in_file: bool
) -> FunctionBody:
    """A function as a graph, with the attributes of the node that calls it."""
    from onnx import GraphProto

    graph = GraphProto()
    for name in function.input:
        graph.input.add().name = name
    used = tuple(k for k in used if k < len(function.output))
    for k in used:
        graph.output.add().name = function.output[k]
    graph.node.extend(function.node)
    attributes = {a.name: a for a in (*function.attribute_proto, *node.attribute)}
    _bind_attributes(graph, attributes)
    own = {o.domain: o.version for o in function.opset_import}
    return FunctionBody(graph, used, {**versions, **own}, is_in_file)


def _bind_attributes(graph: Any, attributes: Mapping[str, Any]) -> None:
    """Replace the attributes that refer to those of the node; one that the node does not have is left out."""
    for node in graph.node:
        for position in reversed(range(len(node.attribute))):
            attribute = node.attribute[position]
            if attribute.ref_attr_name:
                name, source = attribute.name, attributes.get(attribute.ref_attr_name)
                if source is None:
                    del node.attribute[position]
                else:
                    attribute.CopyFrom(source)
                    attribute.name = name
            elif attribute.type == GRAPH_ATTRIBUTE:
                _bind_attributes(attribute.g, attributes)
