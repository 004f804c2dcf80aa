"""Networks as ONNX files.

Every node becomes one ONNX node or a few. The model is float32 if float32 holds every tensor of the network exactly
(single numbers that it cannot hold are written as sums of those it can), and double throughout otherwise. onnxruntime
has no double kernels on CPU for Conv, ConvTranspose, AveragePool, LeakyRelu, PRelu and HardSigmoid: a double model has
none of them, and says the same by Gather, MatMul, ReduceSum and Relu. (A convolution whose windows have more than 2**24
elements stays a Conv even in double.)
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

from .affine import affine
from .breaking import maximum, order, pointwise
from .graph import MOST, Inexact, Sheet

OPSET, IR = 17, 8
TAILS = {"softmax": "Softmax", "log_softmax": "LogSoftmax", "sigmoid": "Sigmoid", "tanh": "Tanh"}


def onnx_bytes(network: Network) -> bytes:
    """A network as the bytes of an ONNX file, with a free batch dimension N.

    >>> import exactline as xl
    >>> from exactline.network import as_network
    >>> import onnx
    >>> net = as_network(xl.zoo.loan_network(), [torch.zeros(2)])
    >>> [node.op_type for node in onnx.load_from_string(onnx_bytes(net)).graph.node]
    ['Gemm', 'Relu']

    Raises UnsupportedError naming a node that ONNX cannot say, FileError for more than 2 GB.
    """
    network = network.to("cpu", torch.float64)
    try:
        model = _model(network, Sheet(double=False))
    except Inexact:
        model = _model(network, Sheet(double=True))
    if model.ByteSize() > MOST:
        raise FileError(
            "The network takes more than 2 GB, which one ONNX file cannot hold.",
            where=repr(network),
            hint="Save a smaller part of the network.",
        )
    return model.SerializeToString()


def _model(network: Network, sheet: Sheet) -> ModelProto:
    names: dict[int, str] = {}
    inputs: list[ValueInfoProto] = []
    for place, node in enumerate(network.nodes):
        sheet.prefix, sheet.where = node.name, repr(node)
        if not prod(node.shape):
            raise UnsupportedError(
                "A value without elements cannot be written.",
                nodes=(node.name,),
                where=repr(node),
                hint="Leave it out.",
            )
        if isinstance(node.op, Input):
            names[place] = sheet.name()
            inputs.append(helper.make_tensor_value_info(names[place], sheet.kind, ["N", *node.shape]))
        else:
            names[place] = _written(sheet, node, [names[i] for i in node.inputs], network)
    outputs: list[ValueInfoProto] = []
    taken = {value.name for value in inputs}
    for place, tail in zip(network.outputs, network.tails, strict=True):
        node = network.nodes[place]
        sheet.prefix = f"{node.name}_{'out' if tail is None else tail.name}"
        name = names[place] if tail is None else _tail(sheet, tail, names[place], node)
        name = sheet.node("Identity", name) if name in taken else name
        taken.add(name)
        outputs.append(helper.make_tensor_value_info(name, sheet.kind, ["N", *node.shape]))
    sheet.prune([value.name for value in outputs])
    graph = helper.make_graph(sheet.nodes, "network", inputs, outputs, sheet.constants)
    opsets = [helper.make_opsetid("", OPSET)]
    return helper.make_model(
        graph, opset_imports=opsets, ir_version=IR, producer_name="exactline", producer_version=__version__
    )


def _written(sheet: Sheet, node: Node, xs: list[str], network: Network) -> str:
    op, shapes = node.op, [network.nodes[i].shape for i in node.inputs]
    match op:
        case Pointwise():
            return pointwise(sheet, op, xs[0], shapes[0])
        case Maximum():
            return maximum(sheet, op, xs[0], shapes[0])
        case Order():
            return order(sheet, op, xs[0], shapes[0])
        case Affine():
            return affine(sheet, node, xs, shapes)
        case _:
            raise UnsupportedError(
                f"{op.title} has no form in ONNX that we know.",
                nodes=(node.name,),
                where=repr(node),
                hint="Write it with operators that ONNX has.",
            )


def _tail(sheet: Sheet, tail: Tail, x: str, node: Node) -> str:
    operator = TAILS.get(tail.name)
    if operator is None:
        raise UnsupportedError(
            f"{tail.name} has no form in ONNX that we know.",
            nodes=(node.name,),
            where=f"the tail of {node!r}",
            hint="Write the network without its tail.",
        )
    if tail.dim is None:
        return sheet.node(operator, x)
    return sheet.node(operator, x, axis=tail.dim % (len(node.shape) + 1))
