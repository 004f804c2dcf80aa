"""ONNX files with smooth operators: values agree with onnxruntime, and restrict refuses them."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
import torch
from torch import nn

import exactline as xl

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
FLOAT = 1  # TensorProto.DataType


class Recurrent(nn.Module):
    def __init__(self, kind) -> None:
        super().__init__()
        self.inner, self.head = kind(3, 4, batch_first=True, bidirectional=True), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.inner(x)[0][:, -1])


MODELS = {
    "lstm": (lambda: Recurrent(nn.LSTM), (4, 3)),
    "gru": (lambda: Recurrent(nn.GRU), (4, 3)),
    "rnn": (lambda: Recurrent(nn.RNN), (4, 3)),
    "mlp": (lambda: nn.Sequential(nn.Linear(5, 6), nn.GELU(), nn.LayerNorm(6), nn.Mish(), nn.Softplus(), nn.Hardswish(),
                                  nn.Linear(6, 3), nn.LogSoftmax(1)), (5,)),
    "convolution": (lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.InstanceNorm2d(4, affine=True), nn.SiLU(),
                                          nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(64, 3), nn.Softmax(1)),
                    (1, 6, 6)),
    "encoder": (lambda: nn.Sequential(nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True), nn.Flatten()),
                (3, 4)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_exported_models_agree_with_onnxruntime(name: str, tmp_path) -> None:
    build, shape = MODELS[name]
    torch.manual_seed(0)
    model, path = build().eval(), tmp_path / "model.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, (torch.zeros(1, *shape),), path, dynamo=False, opset_version=17, input_names=["x"])
    network = xl.load(path)
    assert "SmoothNetwork" in repr(network)
    x = torch.rand(3, *shape)
    session = runtime.InferenceSession(path)
    expected = np.concatenate([session.run(None, {"x": row[None].numpy()})[0] for row in x])
    assert np.abs(network(x).numpy() - expected).max() < 1e-5
    curve = xl.approximate(network, x[0], x[1])
    assert np.abs(curve.at(1.0).numpy() - expected[1]).max() < 1e-5
    points = x[0].double() + 0.3 * (x[1].double() - x[0].double())
    assert np.abs(curve.at(0.3).numpy() - network(points[None])[0].numpy()).max() <= curve.error
    copied = pickle.loads(pickle.dumps(network))
    assert torch.equal(copied(x), network(x))
    with pytest.raises(xl.UnsupportedError, match=r"exactline\.approximate"):
        xl.restrict(network, x[0], x[1])


def run_operator(node, arrays, opset: int = 20) -> tuple[np.ndarray, np.ndarray]:
    """The values of a model of one node, by onnxruntime and by exactline; its first input is that of the network."""
    helper = onnx.helper
    first, *rest = arrays
    weights = [onnx.numpy_helper.from_array(a, f"w{i}") for i, a in enumerate(rest)]
    graph = helper.make_graph(
        [node],
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, first.shape)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    expected = runtime.InferenceSession(model.SerializeToString()).run(None, {"x": first})[0]
    from exactline.formats.onnx import read_onnx

    network = read_onnx(model.SerializeToString(), "file.onnx", folder=None)
    options = {"tail": True} if isinstance(network, xl.Network) else {}
    return expected, network(torch.from_numpy(first), **options).numpy()


SQUARE = "ReduceSumSquare ReduceL2 ReduceLogSumExp"
UNARY = "Sigmoid Tanh Erf Exp Softplus Softsign Mish Elu Celu Selu HardSwish Gelu Sin Cos Atan Sinh Cosh Asinh"


@pytest.mark.parametrize("name", UNARY.split())
def test_functions_of_one_number(name: str) -> None:
    node = onnx.helper.make_node(name, ["x"], ["y"])
    if name == "Mish":
        pytest.importorskip("onnxruntime", minversion="1.17")
    array = np.linspace(-4, 4, 12, dtype=np.float32).reshape(1, 12)
    expected, found = run_operator(node, [array])
    assert np.abs(expected - found).max() < 1e-5


@pytest.mark.parametrize("name", SQUARE.split())
@pytest.mark.parametrize("keep", [0, 1])
def test_reductions(name: str, keep: int) -> None:
    node = onnx.helper.make_node(name, ["x", "w0"], ["y"], keepdims=keep)
    array = np.linspace(0.1, 2, 12, dtype=np.float32).reshape(1, 3, 4)
    expected, found = run_operator(node, [array, np.array([2])])
    assert np.abs(expected - found).max() < 1e-5


@pytest.mark.parametrize(("axis", "opset"), [(1, 11), (2, 11), (1, 13), (-1, 13)])
def test_softmax_of_old_and_new_sets_inside_a_network(axis: int, opset: int) -> None:
    helper = onnx.helper
    nodes = [helper.make_node("Softmax", ["x"], ["s"], axis=axis), helper.make_node("Relu", ["s"], ["y"])]
    array = np.linspace(-1, 2, 12, dtype=np.float32).reshape(1, 3, 4)
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", FLOAT, array.shape)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=7)
    expected = runtime.InferenceSession(model.SerializeToString()).run(None, {"x": array})[0]
    from exactline.formats.onnx import read_onnx

    found = read_onnx(model.SerializeToString(), "file.onnx", folder=None)(torch.from_numpy(array)).numpy()
    assert np.abs(expected - found.reshape(expected.shape)).max() < 1e-6


def test_jumps_are_still_refused_on_loading() -> None:
    node = onnx.helper.make_node("Round", ["x"], ["y"])
    with pytest.raises(xl.UnsupportedError, match="discontinuous"):
        run_operator(node, [np.zeros((1, 3), dtype=np.float32)])
