"""Functions in ONNX files: operators that are made of others, in the file or in ONNX's specification."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import exactline as xl
from exactline.formats.onnx import read_onnx
from exactline.network.smooth_network import require_piecewise_linear

DOMAIN = "custom"
OPSETS = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]


def make_function(name: str, inputs: str, nodes: list[onnx.NodeProto], attributes: list[str]) -> onnx.FunctionProto:
    return helper.make_function(DOMAIN, name, inputs.split(), ["out"], nodes, OPSETS, attributes)


def make_model(nodes: list[onnx.NodeProto], functions: list[onnx.FunctionProto]) -> onnx.ModelProto:
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weight = numpy_helper.from_array(np.float32([[1, -2, 0.5], [2, 1, 1], [0, 1, -1]]), "w")
    graph = helper.make_graph(nodes, "graph", [info], [result], [weight])
    return helper.make_model(graph, opset_imports=OPSETS, functions=functions, ir_version=10)


def read(model: onnx.ModelProto) -> xl.Network:
    return require_piecewise_linear(read_onnx(model.SerializeToString(), "file.onnx", folder=None))


def make_layer(activation: onnx.NodeProto) -> list[onnx.FunctionProto]:
    """A function that calls another one, which takes an attribute and leaves out an input."""
    inner = make_function("Act", "h", [activation], ["slope"])
    call = helper.make_node("Act", ["h"], ["out"], name="act", domain=DOMAIN)
    call.attribute.append(onnx.AttributeProto(name="slope", type=1, ref_attr_name="slope"))
    outer = make_function("Layer", "a b c", [helper.make_node("MatMul", ["a", "b"], ["h"]), call], ["slope"])
    return [inner, outer]


def test_a_function_in_the_file_is_read_with_the_attributes_of_its_call():
    leaky = helper.make_node("LeakyRelu", ["h"], ["out"])
    leaky.attribute.append(onnx.AttributeProto(name="alpha", type=1, ref_attr_name="slope"))
    nodes = [
        helper.make_node("Layer", ["x", "w"], ["m"], domain=DOMAIN, slope=0.25),
        helper.make_node("Layer", ["m", "w"], ["y"], domain=DOMAIN, slope=-0.5),
    ]
    model = make_model(nodes, make_layer(leaky))
    weight = np.array([[1, -2, 0.5], [2, 1, 1], [0, 1, -1]])
    expected = points = np.random.default_rng(0).standard_normal((5, 3))
    for slope in (0.25, -0.5):
        hidden = expected @ weight
        expected = np.where(hidden > 0, hidden, slope * hidden)
    found = read(model)(torch.from_numpy(points))
    assert np.allclose(found.numpy(), expected, rtol=1e-13, atol=0)  # type: ignore[union-attr]


def test_a_refusal_names_the_node_inside_a_function_of_the_file():
    model = make_model(
        [helper.make_node("Layer", ["x", "w"], ["y"], name="first", domain=DOMAIN, slope=0.25)],
        make_layer(helper.make_node("Exp", ["h"], ["out"], name="exp")),
    )
    with pytest.raises(xl.UnsupportedError) as caught:
        read(model)
    assert caught.value.nodes == ("first/act/exp: Exp is smooth, not piecewise linear",)
    model.graph.node.insert(0, helper.make_node("Mystery", ["x"], ["m"], name="mystery"))
    model.graph.node[1].input[0] = "m"  # of unknown shape
    with pytest.raises(xl.UnsupportedError) as caught:
        read(model)
    assert [line.split(": ")[0] for line in caught.value.nodes] == ["mystery", "first/act/exp"]


def test_a_function_that_calls_itself_is_damaged():
    endless = make_function("Act", "h", [helper.make_node("Act", ["h"], ["out"], domain=DOMAIN)], [])
    with pytest.raises(xl.FileError, match="calls itself"):
        read(make_model([helper.make_node("Act", ["x"], ["y"], domain=DOMAIN)], [endless]))


@pytest.mark.parametrize(
    ("inputs", "named"),
    [(["x", "w", "w"], "y: Attention multiplies two values that depend on the input"), (["w", "w", "x"], "")],
    ids=["queries", "values"],
)
def test_an_operator_of_the_specification_is_named_as_itself(inputs: list[str], named: str):
    """Attention is linear in its values, and nothing else."""
    node = helper.make_node("Attention", inputs, ["y"], name="y")
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 3, 3])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    weight = numpy_helper.from_array(np.float32([[[[1, -2, 0.5], [2, 1, 1], [0, 1, -1]]]]), "w")
    graph = helper.make_graph([node], "graph", [info], [result], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    if not named:
        assert not read(model).units
        return
    with pytest.raises(xl.UnsupportedError) as caught:
        read(model)
    assert caught.value.nodes == (named,)
