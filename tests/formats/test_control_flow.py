"""ONNX's If, Loop and Scan are read where no condition and no number of rounds depends on the input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import exactline as xl
from exactline.formats.onnx import read_onnx
from exactline.network import Network
from exactline.network.smooth_network import require_piecewise_linear

FLOAT, BOOL, INT64 = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64


def info(name: str, kind: int = FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, None)


def make_graph(nodes: list[Any], inputs: list[Any], outputs: list[str], **constants: Any) -> GraphProto:
    initializers = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items()]
    return helper.make_graph(nodes, "body", inputs, [info(o) for o in outputs], initializers)


def make_model(
    nodes: list[Any], shape: tuple[int, ...], outputs: tuple[str, ...] = ("y",), **constants: Any
) -> ModelProto:
    graph = make_graph(nodes, [helper.make_tensor_value_info("x", FLOAT, shape)], list(outputs), **constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def node(kind: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(), outputs.split(), **attributes)


def read(model: ModelProto) -> Network:
    return require_piecewise_linear(read_onnx(model.SerializeToString(), "file.onnx", folder=None))


def assert_agrees(model: ModelProto) -> Network:
    """Read a file and compare it with ONNX's own reference."""
    network, random = read(model), np.random.default_rng(0)
    for _ in range(3):
        x = random.standard_normal([d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim])
        expected = ReferenceEvaluator(model).run(None, {"x": x.astype(np.float32)})
        found: Any = network(torch.tensor(x.astype(np.float32)).double().reshape(1, *network.input_shape))
        for value, reference in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
            assert np.allclose(value.numpy().reshape(-1), reference.reshape(-1), atol=1e-5)
    return network


def refuse(model: ModelProto) -> list[str]:
    with pytest.raises(xl.UnsupportedError) as caught:
        read(model)
    return [" ".join(line.split()[:2]) for line in caught.value.nodes]


@pytest.mark.parametrize("condition", [True, False])
def test_the_branch_of_a_constant_condition_is_read(condition: bool) -> None:
    then = make_graph([node("Relu", "x", "a"), node("Mul", "a two", "t")], [], ["t"], two=np.float32(2))
    other = (
        make_graph([node("Exp", "x", "e")], [], ["e"]) if condition else make_graph([node("Abs", "x", "e")], [], ["e"])
    )
    flow = node("If", "c", "z", then_branch=then, else_branch=other)
    network = assert_agrees(make_model([flow, node("Add", "z one", "y")], (1, 3), c=condition, one=np.float32(1)))
    assert len(network.units) == 1


def test_a_condition_on_the_shape_is_a_constant() -> None:
    # what torch.onnx.export writes for squeeze(1)
    then = make_graph([node("Squeeze", "x axis", "s")], [], ["s"], axis=np.array([1]))
    other = make_graph([node("Identity", "x", "i")], [], ["i"])
    nodes = [node("Shape", "x", "shape"), node("Gather", "shape axis1", "size"), node("Equal", "size axis1", "c")]
    flow = node("If", "c", "z", then_branch=then, else_branch=other)
    assert_agrees(make_model([*nodes, flow, node("Relu", "z", "y")], (1, 1, 3), axis1=np.array(1)))


def test_a_loop_is_unrolled() -> None:
    body = make_graph(
        [node("MatMul", "v w", "a"), node("Add", "a x", "b"), node("Relu", "b", "v2"), node("Identity", "go", "go2")],
        [info("i", INT64), info("go", BOOL), info("v")],
        ["go2", "v2", "a"],
    )
    w = np.random.default_rng(1).standard_normal((3, 3)).astype(np.float32)
    model = make_model([node("Loop", "m go x", "y all", body=body)], (1, 3), ("y", "all"), m=np.array(3), go=True, w=w)
    network = assert_agrees(model)
    assert [n.op.title for n in network.nodes].count("relu") == 3


def test_a_loop_ends_when_its_condition_says_so() -> None:
    body = make_graph(
        [node("Add", "v v", "v2"), node("Less", "i two", "go2")],
        [info("i", INT64), info("go", BOOL), info("v")],
        ["go2", "v2"],
    )
    flow = helper.make_node("Loop", ["", "go", "x"], ["y"], body=body)
    network = read(make_model([flow], (1, 2), go=True, two=np.array(2)))
    assert network(torch.tensor([[1.0, -2.0]]).double()).tolist() == [[8.0, -16.0]]  # type: ignore[union-attr]


def test_a_scan_is_unrolled() -> None:
    flow = node("Scan", "zero x", "y all", body=running_sum(), num_scan_inputs=1)
    assert_agrees(make_model([flow], (4, 3), ("y", "all"), zero=np.zeros(3, np.float32)))


def running_sum() -> GraphProto:
    """The sum so far, never below 0."""
    nodes = [node("Add", "s v", "a"), node("Relu", "a", "s2"), node("Identity", "s2", "o")]
    return make_graph(nodes, [info("s"), info("v")], ["s2", "o"])


@pytest.mark.parametrize("reads_backwards", [0, 1])
@pytest.mark.parametrize("writes_backwards", [0, 1])
def test_a_scan_in_other_directions_and_along_other_axes(reads_backwards: int, writes_backwards: int) -> None:
    # ONNX's reference knows neither
    settings = {
        "scan_input_axes": [1],
        "scan_output_axes": [-1],
        "scan_input_directions": [reads_backwards],
        "scan_output_directions": [writes_backwards],
    }
    flow = node("Scan", "zero x", "last y", body=running_sum(), num_scan_inputs=1, **settings)
    network = read(make_model([flow], (1, 4, 3), zero=np.zeros((1, 3), np.float32)))
    x = torch.randn(1, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    state, rows = torch.zeros(3, dtype=torch.float64), list[torch.Tensor]()
    for row in x[0].flip(0) if reads_backwards else x[0]:
        state = (state + row).relu()
        rows.append(state)
    expected = torch.stack(rows[::-1] if writes_backwards else rows, 1)
    assert torch.allclose(network(x).reshape(3, 4), expected)  # type: ignore[union-attr]


def test_a_refusal_inside_a_loop_names_the_node_once() -> None:
    body = make_graph(
        [node("Exp", "v", "e"), node("Abs", "e", "v2"), node("Identity", "go", "go2")],
        [info("i", INT64), info("go", BOOL), info("v")],
        ["go2", "v2"],
    )
    flow = helper.make_node("Loop", ["m", "", "x"], ["z"], name="loop", body=body)
    model = make_model([flow, node("Relu", "z", "r"), node("Sin", "r", "y")], (1, 2), m=np.array(4))
    assert refuse(model) == ["loop/0/e: Exp", "y: Sin"]


def test_control_flow_that_the_input_decides_is_refused() -> None:
    body = make_graph(
        [node("Relu", "v", "v2"), node("ReduceMax", "v", "m", keepdims=0), node("Greater", "m zero", "go2")],
        [info("i", INT64), info("go", BOOL), info("v")],
        ["go2", "v2"],
        zero=np.float32(0),
    )
    flow = helper.make_node("Loop", ["m", "", "x"], ["y"], name="loop", body=body)
    assert refuse(make_model([flow], (1, 2), m=np.array(3))) == ["loop: Loop"]


def test_a_loop_without_an_end_is_refused() -> None:
    body = make_graph([node("Identity", "go", "go2")], [info("i", INT64), info("go", BOOL)], ["go2", "i"])
    flow = helper.make_node("Loop", ["", ""], ["z"], name="loop", body=body)
    assert refuse(make_model([flow, node("Add", "x x", "y")], (1, 2), ("y", "z"))) == ["loop: Loop"]


def test_an_operator_after_an_unsupported_value_inside_a_branch() -> None:
    branch = make_graph([node("Relu", "e", "t")], [], ["t"])
    flow = node("If", "c", "y", then_branch=branch, else_branch=branch)
    assert refuse(make_model([node("Exp", "x", "e"), flow], (1, 2), c=True)) == ["e: Exp"]
