"""ONNX files against ONNX's own reference, operator by operator, and what a file may not hold."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import exactline as xl
from exactline.formats.onnx import read_onnx
from exactline.formats.onnx.arithmetic import CONSTANT_OPERATORS
from exactline.formats.onnx.values import OPERATORS
from exactline.network.smooth_network import require_piecewise_linear
from tests.formats.onnx_cases import CASES, Case, Draft, opsets

NEWEST = min(onnx.defs.onnx_opset_version(), 28)
WRONG = {"BatchNormalization": 14, "BatchNormalization of a vector": 14}  # the reference errs before these sets
TRIED = [pytest.param(case, v, id=f"{case.name}-{v}") for case in CASES for v in opsets(case, NEWEST)]
IN_FLOAT32 = (
    "GridSample",
    "DeformConv",
    "AffineGrid",
    "Resize {'mode': 'cubic'",
)  # cases that the reference computes in float32
CONSTANT = {"Constant", "ConstantOfShape", "Shape", "Range", "Cast", "CastLike", "Size"}  # tried within other cases


def read(model: onnx.ModelProto, **options: object) -> xl.Network:
    return require_piecewise_linear(read_onnx(model.SerializeToString(), "file.onnx", folder=None, **options))  # type: ignore[arg-type]


def truth(case: Case, opset: int, points: np.ndarray) -> tuple[np.ndarray, float]:
    """What ONNX's reference says and how exactly; what onnxruntime says where the reference cannot be asked."""
    if opset >= WRONG.get(case.name, 0):
        try:
            session = ReferenceEvaluator(case.model(opset))
            close = 1e-5 if case.name.startswith(IN_FLOAT32) else 1e-10
            return np.stack([session.run(None, {"x": p.reshape(case.shape)})[0].reshape(-1) for p in points]), close
        except (ValueError, TypeError, NotImplementedError, RuntimeError):
            pass
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    kind = np.float32
    runtime = onnxruntime.InferenceSession(case.model(min(opset, 23), kind=kind).SerializeToString(), options)
    feeds = [{"x": p.reshape(case.shape).astype(kind)} for p in points]
    return np.stack([runtime.run(None, f)[0].reshape(-1) for f in feeds]), 1e-5


@pytest.mark.parametrize(("case", "opset"), TRIED)
@pytest.mark.every(3)
def test_an_operator_is_onnxs_own(case: Case, opset: int):
    model = case.model(opset)
    network = read(model)
    points = np.random.default_rng(1).standard_normal((4, *np.atleast_1d(network.input_shape).tolist()))
    want, close = truth(case, opset, points)
    found = network(torch.from_numpy(points), tail=True).reshape(4, -1).numpy()  # type: ignore[union-attr]
    worst = np.abs(found - want).max() / (1 + np.abs(want).max())
    assert worst <= close, f"differs by {worst:.1g}"


@pytest.mark.parametrize("case", [c for c in CASES if len(c.shape) > 1 and c.shape[0] == 1], ids=lambda c: c.name)
def test_a_file_for_any_batch_means_the_same(case: Case):
    opset = max(opsets(case, NEWEST))
    fixed, free = read(case.model(opset)), read(case.model(opset, batch="N"))
    x = torch.randn(3, *fixed.input_shape, dtype=torch.float64)  # type: ignore[arg-type]
    assert torch.equal(fixed(x), free(x))  # type: ignore[arg-type]


SWEPT = (
    *(
        "GatherND",
        "ScatterND max",
        "CumSum both",
        "Einsum ij,j,jk->ik",
        "Col2Im pads",
        "MaxRoiPool",
        "Where by channel",
    ),
    *("Resize crop linear", "ConvTranspose larger output", "GridSample linear zeros", "RotaryEmbedding"),
    *("RNN in both directions", "DeformConv of two rows", "Attention of values"),
)


@pytest.mark.parametrize("case", [c for c in CASES if c.name in SWEPT], ids=lambda c: c.name)
def test_a_line_through_an_operator_has_the_breaks_of_rational_arithmetic_and_can_be_written(case: Case, tmp_path):
    network = read(case.model(max(opsets(case, NEWEST))))
    generator = torch.Generator().manual_seed(0)
    start, end = (torch.randn(network.input_shape, generator=generator, dtype=torch.float64) for _ in range(2))  # type: ignore[arg-type]
    line, exact = xl.restrict(network, start, end), xl.exact.restrict(network, start, end)
    assert len(line.alphas) == len(exact.alphas)
    assert np.allclose(line.alphas.numpy(), [float(a) for a in exact.alphas], rtol=0, atol=1e-12)
    network.save(tmp_path / "again.onnx")
    points = torch.stack([start, end])
    again, found = xl.load(tmp_path / "again.onnx")(points), network(points)
    assert torch.allclose(again.reshape(2, -1), found.reshape(2, -1), rtol=1e-5, atol=1e-5)  # type: ignore[union-attr]


def test_every_operator_that_is_read_has_a_case():
    tried = {n.op_type for case in CASES for v in opsets(case, NEWEST) for n in case.model(v).graph.node}
    rest = {"Greater", "GreaterOrEqual", "LessOrEqual", "Equal", "And", "Or", "Not", "Pow", "Mod", "ReduceProd"}
    rest |= {
        "Xor",
        "TensorScatter",
        "ReduceL1",
        "OptionalGetElement",
        "ai.onnx.ml.ArrayFeatureExtractor",
        *(f"ai.onnx.preview.training.{name}" for name in ("Momentum", "Adam", "Adagrad")),
    }  # tried by onnx's node tests
    assert set(OPERATORS) - tried - CONSTANT == rest | set(CONSTANT_OPERATORS)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_weights_of_any_precision_are_read_as_they_are(kind: type):
    case = Case("mlp", (1, 6), lambda d, x: d.node("MatMul", [x, d.weight(6, 4)]), kind=kind)
    network = read(case.model(13))
    (weight,) = (numpy_helper.to_array(w).astype(np.float64) for w in case.model(13).graph.initializer)
    x = torch.randn(5, 6, dtype=torch.float64)
    error = (network(x) - x @ torch.from_numpy(weight)).abs()  # type: ignore[operator]
    size = x.abs() @ torch.from_numpy(np.abs(weight))  # of the six products, which may cancel
    assert (error <= 2 * 6 * np.finfo(np.float64).eps * size).all()


@pytest.mark.parametrize("field", ["raw", "typed"])
@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_tensors_are_read_from_bytes_and_from_lists(kind: int, field: str):
    values = [0.5, -1.25, 3.0]
    if field == "typed":
        tensor = helper.make_tensor("w", kind, [3], values)
    else:
        array = np.array(values, dtype=helper.tensor_dtype_to_np_dtype(kind))
        tensor = helper.make_tensor("w", kind, [3], array.tobytes(), raw=True)
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [info], [out], [tensor])
    network = read(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]))
    assert network(torch.zeros(1, 3))[0].tolist() == values


def constants(d: Draft, x: str) -> str:
    """Numbers worked out from constants alone, as exporters leave them in files."""
    two = d.node("Floor", [d.node("Sqrt", [d.const(5.0)])])
    four = d.node("Pow", [two, d.const(2.0)])
    big = d.node("Greater", [four, d.const(3.0)])
    either = d.node("Or", [d.node("Not", [big]), d.node("Equal", [two, d.const(2.0)])])
    rest = d.node("Mod", [d.const(np.int64(7)), d.const(np.int64(4))])
    three = d.node("Cast", [rest], to=TensorProto.DOUBLE)
    total = d.node("ReduceProd", [d.node("Concat", [d.const([2.0]), d.const([0.5])], axis=0)], keepdims=0)
    factor = d.node("Where", [either, d.node("Mul", [three, total]), four])
    return d.node("Mul", [x, factor])


def test_arithmetic_on_constants_is_worked_out():
    model = Case("constants", (1, 4), constants).model(13)
    points = np.random.default_rng(1).standard_normal((4, 4))
    found = read(model)(torch.from_numpy(points))
    assert np.allclose(found.numpy(), points * 3.0, rtol=1e-14)  # type: ignore[union-attr]
    assert len(read(model).nodes) == 2


def test_where_is_taken_where_it_is_a_relu_in_disguise():
    def draw(d: Draft, x: str) -> str:
        return d.node("Where", [d.node("Greater", [x, d.const(0.0)]), x, d.const(0.0)])

    line = xl.restrict(read(Case("where", (1, 1), draw).model(13)), [-1.0], [1.0])
    assert line.alphas.tolist() == [0.0, 0.5, 1.0]


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda d, x: d.node("Gelu", [x]), ["Gelu is smooth"]),
        (lambda d, x: d.node("Mul", [x, d.node("Relu", [x])]), ["Mul multiplies two values"]),
        (lambda d, x: d.node("Relu", [d.node("Softmax", [x])]), ["is smooth, so it can only be the last"]),
        (
            lambda d, x: d.node("Exp", [d.node("Sign", [d.node("Erf", [x])])]),
            ["Erf is smooth", "Sign is discontinuous", "Exp"],
        ),
        (lambda d, x: d.node("Relu", [d.node("Sigmoid", [d.node("Erf", [x])])]), ["Erf", "Sigmoid is smooth, so"]),
        (lambda d, x: d.node("Nonsense", [x]), ["Nonsense is not known to be piecewise linear"]),
        (lambda d, x: d.node("Relu", [x], domain="my.own"), ["'my.own', not to ONNX's own"]),
        (lambda d, x: d.node("Gather", [d.weight(4, 4), d.node("Cast", [x], to=TensorProto.INT64)]), ["Cast rounds"]),
        (lambda d, x: d.node("Pow", [x, d.const(2.0)]), ["Pow is a power"]),
    ],
)
def test_what_is_not_piecewise_linear_is_refused_by_name(draw, words):
    with pytest.raises(xl.UnsupportedError) as caught:
        read(Case("refused", (1, 4), draw).model(20))
    assert all(any(word in node for node in caught.value.nodes) for word in words), caught.value.nodes


def test_an_operator_that_no_output_needs_is_no_offence():
    def draw(d: Draft, x: str) -> str:
        d.node("Erf", [x])
        return d.node("Relu", [x])

    assert read(Case("dead", (1, 4), draw).model(13)).units == {"relu": 4}


def test_nodes_may_stand_in_any_order_but_not_in_a_circle():
    model = Case("order", (1, 4), lambda d, x: d.node("Relu", [d.node("Neg", [x])])).model(13)
    nodes = list(model.graph.node)
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))
    assert len(xl.restrict(read(model), [-1.0] * 4, [1.0] * 4)) == 2
    model.graph.node[1].input[0] = model.graph.node[0].output[0]
    with pytest.raises(xl.FileError, match="depends on itself"):
        read(model)


def test_a_free_dim_is_given_by_hand_or_asked_for():
    model = Case("free", (1, 3, 4), lambda d, x: d.node("Relu", [x])).model(13)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "H"
    assert read(model, shape=(5, 4)).input_shape == (5, 4)
    with pytest.raises(xl.ArgumentError, match="dynamic dimension"):
        read(model)
    with pytest.raises(xl.ArgumentError, match="does not fit"):
        read(model, shape=(5, 5))


def outside(folder, location: str, **entries: str) -> onnx.ModelProto:
    model = Case("outside", (1, 4), lambda d, x: d.node("Add", [x, d.weight(1, 4)])).model(13)
    (tensor,) = model.graph.initializer
    (folder / "w.bin").write_bytes(tensor.raw_data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "length": "32", **entries}.items():
        tensor.external_data.add(key=key, value=value)
    return model


def test_data_outside_the_file_is_read_from_the_models_own_folder(tmp_path):
    model = outside(tmp_path, "w.bin", offset="0")
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    assert xl.load(tmp_path / "m.onnx")(torch.zeros(1, 4)).abs().min() > 0  # type: ignore[union-attr]
    with pytest.raises(xl.FileError, match="only data inside"):
        read(model)


@pytest.mark.parametrize(
    "location", ["../w.bin", "/etc/hostname", "link.bin", "hard.bin", "no.bin", "sub/../../w.bin", ""]
)
def test_data_anywhere_else_is_not(tmp_path, location):
    inner = tmp_path / "inner"
    inner.mkdir()
    model = outside(inner, location)
    (tmp_path / "w.bin").write_bytes(b"\0" * 32)
    (inner / "link.bin").symlink_to(inner / "w.bin")
    (inner / "hard.bin").hardlink_to(tmp_path / "w.bin")
    (inner / "m.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(xl.FileError):
        xl.load(inner / "m.onnx")


def test_the_commands_take_a_shape_too(tmp_path):
    from typer.testing import CliRunner

    from exactline.cli import app

    model = Case("free", (1, 3, 4), lambda d, x: d.node("Relu", [x])).model(13)
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "H"
    file = tmp_path / "free.onnx"
    file.write_bytes(model.SerializeToString())
    shown = CliRunner().invoke(app, ["info", str(file), "--shape", "5,4"])
    assert shown.exit_code == 0
    assert "5x4" in shown.stdout
    assert CliRunner().invoke(app, ["info", str(file), "--shape", "5,no"]).exit_code != 0
