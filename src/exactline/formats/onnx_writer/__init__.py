"""Write networks as ONNX files.

Every node of a network becomes one ONNX node or a few. The model is float32 if float32 holds every tensor of the
network exactly, and double throughout otherwise; a single number that float32 cannot hold is written as a sum of
float32 numbers. onnxruntime has no double kernels on the CPU for Conv, ConvTranspose, AveragePool, LeakyRelu, PRelu and
HardSigmoid, so a double model uses Gather, MatMul, ReduceSum and Relu instead. (A convolution whose windows have more
than 2**24 elements stays a Conv in double.)
"""

from __future__ import annotations

from math import prod

import torch

from ...errors import FileError, MissingError, UnsupportedError
from ...network.graph import Network, Node, Tail
from ...ops.base import Affine, Input
from ...ops.maximum import Maximum
from ...ops.order import Order
from ...ops.pointwise import Pointwise
from ...version import __version__

try:
    from onnx import ModelProto, ValueInfoProto, helper
except ImportError:
    raise MissingError(
        "Writing ONNX files needs the package onnx.", where="save", hint="pip install 'exactline[onnx]'."
    ) from None

from .affine import write_affine
from .breaking import write_maximum, write_order, write_pointwise
from .graph import MAX_CONSTANT_BYTES, NeedsDouble, OnnxGraphWriter

OPSET_VERSION, IR_VERSION = 17, 8
TAIL_OPERATORS = {"softmax": "Softmax", "log_softmax": "LogSoftmax", "sigmoid": "Sigmoid", "tanh": "Tanh"}


def encode_onnx(network: Network) -> bytes:
    """Encode a network as the content of an ONNX file, with a dynamic batch dimension N.

    >>> import exactline as xl
    >>> from exactline.network import as_network
    >>> import onnx
    >>> net = as_network(xl.zoo.loan_network(), [torch.zeros(2)])
    >>> [node.op_type for node in onnx.load_from_string(encode_onnx(net)).graph.node]
    ['Gemm', 'Relu']

    Raises UnsupportedError naming a node that ONNX cannot express, FileError for more than 2 GB.
    """
    network = network.to("cpu", torch.float64)
    try:
        model = _build_model(network, OnnxGraphWriter(double=False))
    except NeedsDouble:
        model = _build_model(network, OnnxGraphWriter(double=True))
    if model.ByteSize() > MAX_CONSTANT_BYTES:
        raise FileError(
            "The network takes more than 2 GB, which one ONNX file cannot hold.",
            where=repr(network),
            hint="Save a smaller part of the network.",
        )
    return model.SerializeToString()


def _build_model(network: Network, graph: OnnxGraphWriter) -> ModelProto:
    """Write all nodes of a network; raises NeedsDouble where a float32 graph cannot hold a constant."""
    names: dict[int, str] = {}  # of the value of each node
    inputs: list[ValueInfoProto] = []
    for index, node in enumerate(network.nodes):
        graph.prefix, graph.where = node.name, repr(node)
        if not prod(node.shape):
            raise UnsupportedError(
                "A value without elements cannot be written.",
                nodes=(node.name,),
                where=repr(node),
                hint="Leave it out.",
            )
        if isinstance(node.op, Input):
            names[index] = graph.make_name()
            inputs.append(helper.make_tensor_value_info(names[index], graph.float_type, ["N", *node.shape]))
        else:
            names[index] = _write_node(graph, node, [names[i] for i in node.inputs], network)
    outputs: list[ValueInfoProto] = []
    used_names = {value.name for value in inputs}
    for index, tail in zip(network.outputs, network.tails, strict=True):
        node = network.nodes[index]
        graph.prefix = f"{node.name}_{'out' if tail is None else tail.name}"
        name = names[index] if tail is None else _write_tail(graph, tail, names[index], node)
        name = graph.add_node("Identity", name) if name in used_names else name
        used_names.add(name)
        outputs.append(helper.make_tensor_value_info(name, graph.float_type, ["N", *node.shape]))
    graph.prune([value.name for value in outputs])
    return helper.make_model(
        helper.make_graph(graph.nodes, "network", inputs, outputs, graph.constants),
        opset_imports=[helper.make_opsetid("", OPSET_VERSION)],
        ir_version=IR_VERSION,
        producer_name="exactline",
        producer_version=__version__,
    )


def _write_node(graph: OnnxGraphWriter, node: Node, xs: list[str], network: Network) -> str:
    op, shapes = node.op, [network.nodes[i].shape for i in node.inputs]
    match op:
        case Pointwise():
            return write_pointwise(graph, op, xs[0], shapes[0])
        case Maximum():
            return write_maximum(graph, op, xs[0], shapes[0])
        case Order():
            return write_order(graph, op, xs[0], shapes[0])
        case Affine():
            return write_affine(graph, node, xs, shapes)
        case _:
            raise UnsupportedError(
                f"{op.title} cannot be expressed in ONNX.",
                nodes=(node.name,),
                where=repr(node),
                hint="Use operators that ONNX has.",
            )


def _write_tail(graph: OnnxGraphWriter, tail: Tail, x: str, node: Node) -> str:
    operator = TAIL_OPERATORS.get(tail.name)
    if operator is None:
        raise UnsupportedError(
            f"{tail.name} cannot be expressed in ONNX.",
            nodes=(node.name,),
            where=f"the tail of {node!r}",
            hint="Save the network without its tail.",
        )
    if tail.dim is None:
        return graph.add_node(operator, x)
    if tail.flattens:
        raise UnsupportedError(
            f"A {tail.name} over several dimensions is no operator of ONNX from set 13 on.",
            nodes=(node.name,),
            where=f"the tail of {node!r}",
            hint="Save the network without its tail, or flatten its output first.",
        )
    return graph.add_node(operator, x, axis=tail.dim % (len(node.shape) + 1))
