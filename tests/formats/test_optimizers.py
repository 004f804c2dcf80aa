"""Steps of optimizers in ONNX files: linear in some of their inputs, refused in the others."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import exactline as xl
from exactline.formats.onnx import read_onnx
from exactline.network.smooth_network import require_piecewise_linear

DOMAIN = "ai.onnx.preview.training"
GRADIENT = np.array([[0.5, -1.0]], dtype=np.float32)


def read_momentum(data: str, mode: str) -> xl.Network:
    """One step with learning rate 0.25, as a function of one of its inputs."""
    constants = {"R": np.float32(0.25), "T": np.int64(3), "X": np.array([[2.0, 4.0]], dtype=np.float32)}
    constants |= {"G": GRADIENT, "V": np.array([[1.0, 8.0]], dtype=np.float32)}
    node = helper.make_node(
        "Momentum",
        [*constants],
        ["X_new", "V_new"],
        domain=DOMAIN,
        alpha=0.5,
        beta=2.0,
        norm_coefficient=0.0,
        mode=mode,
    )
    initializers = [numpy_helper.from_array(np.asarray(v), name) for name, v in constants.items() if name != data]
    info = helper.make_tensor_value_info(data, TensorProto.FLOAT, np.shape(constants[data]))
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("X_new", "V_new")]
    graph = helper.make_graph([node], "graph", [info], results, initializers)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return require_piecewise_linear(read_onnx(model.SerializeToString(), "file.onnx", folder=None))


@pytest.mark.parametrize("mode", ["standard", "nesterov"])
def test_a_step_is_linear_in_its_parameters(mode: str):
    x = np.array([[3.0, -7.0]])
    moved, velocity = read_momentum("X", mode)(torch.from_numpy(x))
    expected = 0.5 * np.array([[1.0, 8.0]]) + 2 * GRADIENT
    step = expected if mode == "standard" else GRADIENT + 0.5 * expected
    assert np.array_equal(velocity.numpy(), expected)
    assert np.array_equal(moved.numpy(), x - 0.25 * step)
