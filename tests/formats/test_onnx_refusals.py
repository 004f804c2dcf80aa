"""A refusal of an ONNX file names every node that is not piecewise linear, and no other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import exactline as xl
from exactline.formats.onnx import read_onnx
from exactline.network.smooth_network import require_piecewise_linear


def node(kind: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """A node that is called like its first output."""
    names = outputs.split(" ")
    return helper.make_node(kind, inputs.split(" "), names, name=names[0], **attributes)


def make_model(
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[Any] = (1, 4),
    outputs: Sequence[str] = ("y",),
    opset: int = 18,
    **constants: Any,
) -> onnx.ModelProto:
    """A model of one input x and constants by their names."""
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    weights = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(list(nodes), "graph", [info], results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def read(model: onnx.ModelProto, **options: Any) -> xl.Network:
    return require_piecewise_linear(read_onnx(model.SerializeToString(), "file.onnx", folder=None, **options))


def refuse(model: onnx.ModelProto) -> list[str]:
    """The nodes that a refusal names, each as its name and its operator."""
    with pytest.raises(xl.UnsupportedError) as caught:
        read(model)
    return [" ".join(line.split()[:2]) for line in caught.value.nodes]


def test_the_second_output_of_a_node_after_a_refused_one_does_not_make_a_file_damaged():
    nodes = [node("Exp", "x", "e"), node("Split", "e", "a b", axis=1, num_outputs=2), node("Reshape", "b target", "y")]
    assert refuse(make_model(nodes, target=np.array([2, 1]))) == ["e: Exp"]


def test_the_second_output_of_a_refused_node_does_not_make_a_file_damaged():
    nodes = [node("GRU", "x w r", "h last"), node("Reshape", "last target", "s"), node("Relu", "s", "y")]
    model = make_model(nodes, (1, 1, 4), w=np.zeros((1, 6, 4)), r=np.zeros((1, 6, 2)), target=np.array([2]))
    assert refuse(model) == ["h: GRU"]


def test_a_refused_node_of_constants_does_not_make_its_user_a_product():
    nodes = [node("Custom", "c", "w"), node("MatMul", "x w", "y")]
    assert refuse(make_model(nodes, c=np.ones((4, 4), np.float32))) == ["w: Custom"]


def test_a_quantised_weight_is_no_offence():
    nodes = [node("DequantizeLinear", "q s z", "w", axis=1), node("MatMul", "x w", "y")]
    weight, scale, zero = np.arange(8, dtype=np.int8).reshape(4, 2), np.float32([0.5, 2]), np.int8([1, -1])
    network = read(make_model(nodes, q=weight, s=scale, z=zero))
    x = torch.tensor([[1.0, -2.0, 0.5, 3.0]], dtype=torch.float64)
    expected = x @ torch.from_numpy((weight.astype(float) - zero) * scale)
    assert torch.equal(network(x), expected)  # type: ignore[arg-type]


def test_every_gate_is_refused_for_the_same_reasons():
    """x * sigmoid(x) three times: three sigmoids inside, three products, no convolution or sum."""
    nodes: list[onnx.NodeProto] = []
    last = "x"
    for i in range(3):
        nodes += [
            node("Conv", f"{last} w", f"c{i}"),
            node("Sigmoid", f"c{i}", f"s{i}"),
            node("Mul", f"c{i} s{i}", f"m{i}"),
        ]
        last = f"m{i}"
    nodes.append(node("Identity", last, "y"))
    named = refuse(make_model(nodes, (1, 2, 4, 4), w=np.ones((2, 2, 1, 1), np.float32)))
    assert named == [line for i in range(3) for line in (f"s{i}: Sigmoid", f"m{i}: Mul")]


def test_a_curve_after_a_refused_node_is_no_offence():
    """relu(exp(x)), written as z * (z > 0)."""
    nodes = [
        node("Exp", "x", "z"),
        node("Greater", "z zero", "g"),
        node("Cast", "g", "c", to=TensorProto.FLOAT),
        node("Mul", "z c", "y"),
    ]
    assert refuse(make_model(nodes, zero=np.float32(0))) == ["z: Exp"]


def test_a_function_that_jumps_is_refused_where_it_is_made():
    nodes = [node("Greater", "x zero", "g"), node("Cast", "g", "c", to=TensorProto.FLOAT), node("MatMul", "c w", "y")]
    assert refuse(make_model(nodes, zero=np.float32(0), w=np.ones((4, 1), np.float32))) == ["c: Cast"]


@pytest.mark.parametrize("kind", ["TopK", "MaxPool"])
def test_indices_are_refused_where_they_are_used_and_only_there(kind: str):
    nodes = {
        "TopK": [node("TopK", "x k", "v i", axis=2)],
        "MaxPool": [node("MaxPool", "x", "v i", kernel_shape=[2], strides=[2])],
    }[kind]
    model = make_model([*nodes, node("Relu", "v", "y")], (1, 1, 4), k=np.array([2]))
    assert read(model).output_shape == (1, 2)
    used = make_model([*nodes, node("Cast", "i", "y", to=TensorProto.FLOAT)], (1, 1, 4), k=np.array([2]))
    assert refuse(used) == [f"v: {kind}"]
    returned = make_model(nodes, (1, 1, 4), outputs=("v", "i"), k=np.array([2]))
    assert refuse(returned) == [f"v: {kind}"]


def test_products_of_unknown_shape_are_judged_by_their_inputs():
    nodes = [
        node("NonZero", "x", "n"),
        node("Custom", "x", "u"),
        node("MatMul", "u w", "one"),
        node("MatMul", "u u", "two"),
        node("Add", "one two", "y"),
    ]
    assert refuse(make_model(nodes, w=np.ones((4, 4), np.float32))) == ["u: Custom", "two: MatMul"]


def test_a_mask_of_infinities_does_not_hide_the_rest():
    nodes = [node("Add", "x mask", "a"), node("Softmax", "a", "s"), node("MatMul", "s w", "y")]
    named = refuse(make_model(nodes, mask=np.float32([0, 0, 0, -np.inf]), w=np.ones((4, 1), np.float32)))
    assert named == ["a: Add", "s: Softmax"]
    with pytest.raises(xl.NumberError):
        read(make_model([node("Add", "x mask", "y")], mask=np.float32([0, 0, 0, -np.inf])))


def test_a_pool_of_a_constant_is_computed():
    nodes = [node("MaxPool", "c", "m", kernel_shape=[2], strides=[2]), node("Add", "x m", "y")]
    network = read(make_model(nodes, (1, 1, 2), c=np.float32([[[1, 5, 2, 0]]])))
    assert network(torch.zeros(1, 1, 2)).flatten().tolist() == [5, 2]  # type: ignore[union-attr]
    assert not network.units


def test_an_input_of_whole_numbers_is_named_with_the_other_nodes():
    model = make_model([node("Exp", "x", "e"), node("Gather", "e rate", "y", axis=1)])
    model.graph.input.append(helper.make_tensor_value_info("rate", TensorProto.INT64, [1]))
    assert refuse(model) == ["rate: Input", "e: Exp"]


def test_control_flow_with_several_outputs_is_named_alone():
    body = make_model([node("Relu", "x", "y")]).graph
    flow = helper.make_node("If", ["c"], ["a", "b"], name="a", then_branch=body, else_branch=body)
    nodes = [node("ReduceMax", "x", "m", keepdims=0), node("Greater", "m zero", "c"), flow]
    model = make_model(
        [*nodes, node("Unsqueeze", "b axes", "u"), node("MatMul", "u w", "y")],
        zero=np.float32(0),
        axes=np.array([0]),
        w=np.ones((4, 1), np.float32),
    )
    assert refuse(model) == ["a: If"]


def test_the_last_smooth_operator_after_a_refused_one_is_no_offence():
    """A recurrent network that ends in a sigmoid and a Squeeze."""
    nodes = [node("GRU", "x w r", "h last"), node("Sigmoid", "last", "s"), node("Squeeze", "s", "y")]
    constants = {"w": np.zeros((1, 6, 4)), "r": np.zeros((1, 6, 2))}
    assert refuse(make_model(nodes, (1, 1, 4), **constants)) == ["h: GRU"]
    used = [*nodes[:2], node("ReduceMean", "s", "y")]
    assert refuse(make_model(used, (1, 1, 4), **constants)) == ["h: GRU", "s: Sigmoid"]


def test_a_branch_that_an_unknown_shape_decides_is_no_offence():
    """An exporter's Squeeze: only if the dimension has size 1."""
    squeeze = make_model([node("Squeeze", "s", "t")], outputs=("t",)).graph
    keep = make_model([node("Identity", "s", "k")], outputs=("k",)).graph
    for branch in (squeeze, keep):
        del branch.input[:]
    nodes = [
        node("GRU", "x w r", "h last"),
        node("Sigmoid", "last", "s"),
        node("Shape", "s", "shape"),
        node("Gather", "shape zero", "size"),
        node("Equal", "size one", "c"),
        helper.make_node("If", ["c"], ["q"], name="q", then_branch=squeeze, else_branch=keep),
    ]
    constants = {"w": np.zeros((1, 6, 4)), "r": np.zeros((1, 6, 2)), "zero": np.array(0), "one": np.array(1)}
    assert refuse(make_model(nodes, (1, 1, 4), ("q",), **constants)) == ["h: GRU"]
    used = [*nodes, node("ReduceMean", "q", "y")]
    assert refuse(make_model(used, (1, 1, 4), **constants)) == ["h: GRU", "s: Sigmoid"]


def test_both_branches_that_the_input_decides_are_judged():
    branches = [make_model([node(kind, "x", kind)], outputs=(kind,)).graph for kind in ("Exp", "Relu")]
    for branch in branches:
        del branch.input[:]
    flow = helper.make_node("If", ["c"], ["y"], name="flow", then_branch=branches[0], else_branch=branches[1])
    model = make_model([node("Equal", "rate one", "c"), flow], one=np.array(1))
    model.graph.input.append(helper.make_tensor_value_info("rate", TensorProto.INT64, []))
    assert refuse(model) == ["rate: Input", "flow: If", "flow/Exp: Exp"]


def test_a_where_after_a_refused_node_is_no_offence():
    """Elu as exporters write it: its two branches meet."""
    nodes = [
        node("Exp", "x", "e"),
        node("Sub", "e one", "s"),
        node("Less", "x zero", "c"),
        node("Where", "c s x", "y"),
    ]
    assert refuse(make_model(nodes, zero=np.float32(0), one=np.float32(1))) == ["e: Exp"]


def test_a_file_of_another_domain_is_not_damaged():
    model = make_model([helper.make_node("Binarizer", ["x"], ["y"], name="y", domain="ai.onnx.ml")])
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    assert refuse(model) == ["y: Binarizer"]


def test_an_output_that_is_constant_is_returned_beside_others_and_named_alone():
    nodes = [node("Relu", "x", "y"), node("Neg", "c", "anchors")]
    network = read(make_model(nodes, outputs=("y", "anchors"), c=np.float32([[1, 2], [3, 4]])))
    first, second = network(torch.tensor([[1.0, -1, 2, -2], [0.0, 0, 0, 5]]))
    assert first.tolist() == [[1, 0, 2, 0], [0, 0, 0, 5]]
    assert second.tolist() == [[[-1, -2], [-3, -4]]] * 2
    line = xl.restrict(network, torch.tensor([1.0, -1, 2, -2]), torch.tensor([-1.0, 1, 2, -2]))
    assert line.alphas.tolist() == [0, 0.5, 1]
    assert refuse(make_model([nodes[1]], outputs=("anchors",), c=np.float32([1]))) == ["anchors: output"]


@pytest.mark.parametrize(
    ("data_type", "packed", "numbers"),
    [
        (TensorProto.UINT4, [0x21, 0x0F], [1, 2, 15]),
        (TensorProto.INT4, [0x2F, 0x08], [-1, 2, -8]),
        (TensorProto.UINT2, [0b110100], [0, 1, 3]),
        (TensorProto.INT2, [0b101101], [1, -1, -2]),
        (TensorProto.FLOAT4E2M1, [0xF1, 0x03], [0.5, -6, 1.5]),
        (TensorProto.FLOAT8E4M3FN, [0x38, 0xC0, 0x7E], [1, -2, 448]),
        (TensorProto.FLOAT8E5M2, [0x3C, 0xC0, 0x7B], [1, -2, 57344]),
        (TensorProto.FLOAT8E8M0, [127, 126, 128], [1, 0.5, 2]),
    ],
)
@pytest.mark.parametrize("is_raw", [True, False])
def test_weights_smaller_than_a_byte_are_read(data_type: int, packed: list[int], numbers: list[float], is_raw: bool):
    tensor = TensorProto(name="q", data_type=data_type, dims=[3])
    if is_raw:
        tensor.raw_data = bytes(packed)
    else:
        tensor.int32_data.extend(packed)
    nodes = [node("DequantizeLinear", "q s", "w"), node("Mul", "x w", "y")]
    model = make_model(nodes, (1, 3), opset=21, s=np.float32(0.5))
    model.graph.initializer.append(tensor)
    assert read(model)(torch.ones(1, 3)).tolist() == [[n / 2 for n in numbers]]  # type: ignore[union-attr]


@pytest.mark.parametrize(("kind", "name"), [(TensorProto.FLOAT16, "float16"), (TensorProto.BFLOAT16, "bfloat16")])
def test_rounding_to_fewer_bits_is_refused_as_in_a_module(kind: int, name: str):
    nodes = [node("Cast", "x", "h", to=kind), node("Cast", "h", "y", to=TensorProto.FLOAT)]
    assert refuse(make_model(nodes)) == ["h: Cast"]
    with pytest.raises(xl.UnsupportedError, match=f"rounds its input to {name}"):
        read(make_model(nodes))


def test_a_file_with_weights_of_16_bits_is_read_in_real_numbers():
    """What converters make of a file: the weights in float16, the inputs and outputs in float32."""
    nodes = [
        node("Cast", "x", "h", to=TensorProto.FLOAT16),
        node("MatMul", "h w", "p"),
        node("Cast", "p", "y", to=TensorProto.FLOAT),
    ]
    network = read(make_model(nodes, w=np.full((4, 1), 0.5, np.float16)))
    assert network(torch.full((1, 4), 1 / 3, dtype=torch.float64)).item() == pytest.approx(2 / 3, rel=1e-15)
    assert "h: a cast to a floating-point type is treated as exact" in network.notes


def test_a_constant_is_rounded_as_the_file_says():
    nodes = [node("Cast", "w", "h", to=TensorProto.FLOAT16), node("Mul", "x h", "y")]
    network = read(make_model(nodes, w=np.float32(1 / 3)))
    assert network(torch.ones(1, 4, dtype=torch.float64))[0, 0] == float(np.float16(1 / 3))
