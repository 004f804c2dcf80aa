"""The shapes that ONNX files declare: dynamic dimensions, fixed batches, several inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from typer.testing import CliRunner

import exactline as xl
from exactline.cli import app
from tests.formats.test_onnx_refusals import make_model, node, read, refuse

KERNEL = np.random.default_rng(0).standard_normal((2, 3, 2, 2)).astype(np.float32)


def make_classifier(batch: int, *middle: onnx.NodeProto) -> onnx.ModelProto:
    """A convolution, ReLU, a reshape to the batch size and a product; ``middle`` takes r and gives m."""
    nodes = [
        node("Conv", "x k", "c"),
        node("Relu", "c", "r"),
        *(middle or [node("Identity", "r", "m")]),
        node("Reshape", "m flat", "f"),
        node("MatMul", "f w", "y"),
    ]
    weight = np.random.default_rng(1).standard_normal((18, 5)).astype(np.float32)
    return make_model(nodes, (batch, 3, 4, 4), k=KERNEL, flat=np.array([batch, -1]), w=weight)


def test_a_fixed_batch_is_read_for_any_number_of_points():
    model = make_classifier(10)
    network = read(model)
    assert network.input_shape == (3, 4, 4)
    assert any("batch of 10" in note for note in network.notes)
    x = np.random.default_rng(2).standard_normal((10, 3, 4, 4)).astype(np.float32)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    found = network(torch.from_numpy(x)).numpy()  # type: ignore[union-attr]
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert read(model, shape=(3, 4, 4)).input_shape == (3, 4, 4)
    with pytest.raises(xl.ArgumentError, match="does not fit"):
        read(model, shape=(3, 5, 5))


@pytest.mark.parametrize(
    "middle",
    [
        [node("Shape", "r", "q"), node("Reshape", "r q", "m")],
        [node("Resize", "r   sizes", "m", mode="linear")],
        [node("Add", "r rows", "m")],
        [node("Flatten", "r", "q"), node("Reshape", "q back", "m")],
    ],
    ids=lambda nodes: nodes[0].op_type,
)
def test_operators_that_name_the_batch_size_keep_the_batch(middle: list[onnx.NodeProto]):
    model = make_classifier(10, *middle)
    rows = np.broadcast_to(np.float32([[[1]], [[2]]]), (10, 2, 1, 1))
    for name, value in {"sizes": np.array([10, 2, 3, 3]), "rows": rows, "back": np.array([10, 2, 3, 3])}.items():
        model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
    network = read(model)
    assert network.input_shape == (3, 4, 4)
    x = np.random.default_rng(2).standard_normal((10, 3, 4, 4)).astype(np.float32)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    assert np.allclose(network(torch.from_numpy(x)).numpy(), expected, rtol=1e-4, atol=1e-5)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "mixing",
    [
        [node("ReduceMean", "r zero", "q", keepdims=1), node("Sub", "r q", "m")],
        [node("Transpose", "r", "q", perm=[1, 0, 2, 3]), node("Reshape", "q back", "m")],
        [node("CumSum", "r number", "m")],
        [node("Slice", "r zero one zero", "q"), node("Sub", "r q", "m")],
        [node("Reshape", "r joined", "q"), node("Reshape", "q back", "m")],
    ],
    ids=lambda nodes: nodes[0].op_type,
)
def test_a_batch_whose_points_are_mixed_is_refused(mixing: list[onnx.NodeProto]):
    model = make_classifier(10, *mixing)
    for name, value in {"zero": [0], "one": [1], "number": 0, "back": [10, 2, 3, 3], "joined": [1, -1, 3, 3]}.items():
        model.graph.initializer.append(numpy_helper.from_array(np.array(value), name))
    with pytest.raises(xl.UnsupportedError, match="of its batch of 10 are mixed") as caught:
        read(model)
    assert caught.value.where.split()[1].startswith(mixing[0].op_type) or mixing[0].name in caught.value.where
    network = read(model, shape=(10, 3, 4, 4))  # the whole batch as one point
    x = np.random.default_rng(2).standard_normal((10, 3, 4, 4)).astype(np.float32)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    found = network(torch.from_numpy(x)[None])[0].numpy()  # type: ignore[index]
    assert np.allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_first_dimension_that_no_operator_takes_for_a_batch_belongs_to_the_point():
    model = make_model([node("Relu", "x", "y")], (3, 4))
    assert read(model).input_shape == (3, 4)
    assert read(model, shape=(3, 4)).input_shape == (3, 4)
    assert read(model, shape=(4,)).input_shape == (4,)


def test_rows_that_are_mixed_later_belong_to_the_point():
    model = make_model(
        [node("MatMul", "x w", "m"), node("ReduceSum", "m axis", "y")],
        (3, 4),
        w=np.eye(4, dtype=np.float32),
        axis=np.array([0]),
    )
    network = read(model)
    assert network.input_shape == (3, 4)
    x = torch.arange(12, dtype=torch.float64).reshape(1, 3, 4)
    assert torch.equal(network(x).reshape(4), x.sum((0, 1)))  # type: ignore[union-attr]


def test_a_dimension_of_minus_one_is_dynamic():
    model = make_model([node("Relu", "x", "y")], (-1, 3, -1, -1))
    assert read(model, shape=(3, 5, 5)).input_shape == (3, 5, 5)
    with pytest.raises(xl.ArgumentError, match=r"\[3, \?, \?\]") as caught:
        read(model)
    assert "--shape 3,224,224" in str(caught.value)
    assert read(make_model([node("Relu", "x", "y")], (-1, 3))).input_shape == (3,)


def test_a_hint_names_the_inputs_where_there_are_several():
    with pytest.raises(xl.ArgumentError) as caught:
        read(two_inputs())
    assert '--shape "x=10;age=10"' in str(caught.value)
    with pytest.raises(xl.ArgumentError) as caught:
        read(make_model([node("Relu", "x", "y")], ("n", "d")))
    assert caught.value.hint.endswith("load(path, shape=(10,)), or --shape 10.")


def test_a_hint_fits_the_layout_of_the_file():
    with pytest.raises(xl.ArgumentError, match="224,224,3"):
        read(make_model([node("Relu", "x", "y")], ("n", "h", "w", 3)))


@pytest.mark.parametrize(
    ("names", "sizes"), [(("n", "n"), (3, 1, 8)), (("n", ""), (2, 1, 8)), (("n", "m"), (3, 224, 8))]
)
def test_a_hint_takes_a_dimension_like_the_batch_for_a_batch(names: tuple[str, str], sizes: tuple[int, ...]):
    """The state of a recurrent network has its batch in the middle."""
    model = make_model([node("Relu", "x", "y")], (names[0], "samples"))
    state = helper.make_tensor_value_info("state", TensorProto.FLOAT, (sizes[0], names[1] or None, 8))
    model.graph.input.append(state)
    with pytest.raises(xl.ArgumentError) as caught:
        read(model)
    assert f"'state': {sizes}" in caught.value.hint


def two_inputs() -> onnx.ModelProto:
    model = make_model([node("Concat", "x age", "y", axis=1)], ("n", "d"))
    model.graph.input.append(helper.make_tensor_value_info("age", TensorProto.FLOAT, ("n", "k")))
    return model


@pytest.mark.parametrize("shape", [[(3,), (2,)], {"age": (2,), "x": (3,)}])
def test_each_input_has_its_own_shape(shape: Any):
    network = read(two_inputs(), shape=shape)
    assert network.input_shape == ((3,), (2,))


@pytest.mark.parametrize(
    ("shape", "words"),
    [([(3,)], "1 shapes do not fit 2 inputs"), ({"old": (3,)}, "no input 'old'"), ({"x": (3,)}, "'age' has a dynamic")],
)
def test_shapes_that_do_not_fit_the_inputs_are_refused(shape: Any, words: str):
    with pytest.raises(xl.ArgumentError, match=words):
        read(two_inputs(), shape=shape)


def test_one_shape_is_for_the_dynamic_input():
    model = two_inputs()
    model.graph.input[1].type.tensor_type.shape.dim[1].dim_value = 2
    assert read(model, shape=(3,)).input_shape == ((3,), (2,))


def test_the_command_line_takes_a_shape_for_each_input(tmp_path):
    file = tmp_path / "two.onnx"
    file.write_bytes(two_inputs().SerializeToString())
    for text in ("3;2", "age=2;x=3"):
        shown = CliRunner().invoke(app, ["info", str(file), "--shape", text])
        assert shown.exit_code == 0, shown.output
    for text in ("3;x=2", "x=3;x=2", "x=no;age=1"):
        assert CliRunner().invoke(app, ["info", str(file), "--shape", text]).exit_code != 0


def test_a_refusal_in_a_file_with_a_fixed_batch_names_the_true_nodes():
    assert refuse(make_classifier(10, node("Gelu", "r", "m"))) == ["m: Gelu"]
