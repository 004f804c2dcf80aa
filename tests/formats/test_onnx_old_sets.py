"""Operator sets 1 to 6: attributes that later became inputs, and broadcasting along an axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch

import exactline as xl
from tests.formats.test_onnx_refusals import make_model, node, read

IMAGE = (1, 3, 4, 4)
CHANNELS = np.float32([0.5, -2, 3])
KERNEL = np.random.default_rng(0).standard_normal((2, 3, 2, 2)).astype(np.float32)
WEIGHT = np.random.default_rng(1).standard_normal((4, 5)).astype(np.float32)


def norm(**more: Any) -> list[onnx.NodeProto]:
    return [node("BatchNormalization", "x c c c v", "y", **more)]


# the nodes in an old set, the same in set 9, the shape of the input, and the old sets
PAIRS: dict[str, tuple[list[onnx.NodeProto], list[onnx.NodeProto], tuple[int, ...], tuple[int, ...]]] = {
    "Add at an axis": ([node("Add", "x c", "y", broadcast=1, axis=1)], [node("Add", "x cs", "y")], IMAGE, (1, 6)),
    "Mul at an axis": ([node("Mul", "x c", "y", broadcast=1, axis=1)], [node("Mul", "x cs", "y")], IMAGE, (1, 6)),
    "Div at the end": ([node("Div", "x four", "y", broadcast=1)], [node("Div", "x four", "y")], IMAGE, (1, 6)),
    "Sub": ([node("Sub", "x x", "y")], [node("Sub", "x x", "y")], (1, 4), (1, 6)),
    "Gemm": (
        [node("Gemm", "x w b", "y", broadcast=1)],
        [node("Gemm", "x w b", "y")],
        (1, 4),
        (1, 6),
    ),
    "Reshape": ([node("Reshape", "x", "y", shape=[1, -1])], [node("Flatten", "x", "y")], IMAGE, (1, 4)),
    "Concat": ([node("Concat", "x x", "y")], [node("Concat", "x x", "y", axis=1)], IMAGE, (1, 3)),
    "Clip": ([node("Clip", "x", "y", min=-0.5, max=0.5)], [node("Clip", "x", "y", min=-0.5, max=0.5)], IMAGE, (1, 6)),
    "BatchNormalization": (norm(is_test=1), norm(), IMAGE, (1, 6)),
    "PRelu by channel": ([node("PRelu", "x c", "y")], [node("PRelu", "x cs", "y")], IMAGE, (1, 6)),
    "Dropout": ([node("Dropout", "x", "y", is_test=1)], [node("Identity", "x", "y")], IMAGE, (1, 6)),
    "Pad": (
        [node("Pad", "x", "y", paddings=[0, 0, 1, 1, 0, 0, 1, 1])],
        [node("Pad", "x", "y", pads=[0, 0, 1, 1, 0, 0, 1, 1])],
        IMAGE,
        (1,),
    ),
    "Tile": ([node("Tile", "x two one", "y")], [node("Concat", "x x", "y", axis=1)], IMAGE, (1, 5)),
    "Upsample": (
        [node("Upsample", "x", "y", height_scale=2.0, width_scale=3.0, mode="nearest")],
        [node("Upsample", "x scales", "y", mode="nearest")],
        IMAGE,
        (1, 6),
    ),
    "Cast": ([node("Cast", "x", "y", to="FLOAT")], [node("Cast", "x", "y", to=1)], IMAGE, (1, 5)),
    "Convolution": (
        [node("Conv", "x k", "h"), node("Relu", "h", "r"), node("MaxPool", "r", "y", kernel_shape=[2, 2])],
        [node("Conv", "x k", "h"), node("Relu", "h", "r"), node("MaxPool", "r", "y", kernel_shape=[2, 2])],
        IMAGE,
        (1, 6),
    ),
    "Comparison": (
        [node("Greater", "x zeros", "g", broadcast=1), node("Cast", "g", "f", to="FLOAT"), node("Mul", "x f", "y")],
        [node("Relu", "x", "y")],
        IMAGE,
        (1, 5),
    ),
    "Softmax": ([node("Softmax", "x", "y")], [node("Softmax", "x", "y")], IMAGE, (1, 6)),
    "TopK": ([node("TopK", "x", "y i", k=2)], [node("TopK", "x", "y i", k=2)], (1, 4), (1, 6)),
    "Sum": ([node("Sum", "x x x", "y")], [node("Sum", "x x x", "y")], IMAGE, (1, 6)),
    "ReduceMean": ([node("ReduceMean", "x", "y", axes=[2, 3])], [node("GlobalAveragePool", "x", "y")], IMAGE, (1, 6)),
}
CONSTANTS = {
    "c": CHANNELS,
    "cs": CHANNELS.reshape(3, 1, 1),
    "v": np.float32([1, 2, 3]),
    "four": np.float32([1, 2, 3, 4]),
    "w": WEIGHT,
    "b": np.float32([1, 2, 3, 4, 5]),
    "k": KERNEL,
    "two": np.float32([2]),
    "one": np.float32([1]),
    "zeros": np.float32([0]),
    "scales": np.float32([1, 1, 2, 3]),
}


@pytest.mark.parametrize("name", PAIRS)
def test_an_old_set_means_the_same(name: str):
    old, new, shape, opsets = PAIRS[name]
    later = read(make_model(new, shape, opset=9, **CONSTANTS))
    x = torch.randn(3, *later.input_shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))  # type: ignore[arg-type]
    for opset in opsets:
        network = read(make_model(old, shape, opset=opset, **CONSTANTS))
        assert torch.equal(network(x, tail=True), later(x, tail=True))  # type: ignore[arg-type]


@pytest.mark.parametrize("nodes", [[node("Dropout", "x", "y")], [node("BatchNormalization", "x c c c v", "y m n o p")]])
def test_training_mode_of_an_old_set_is_refused(nodes: list[onnx.NodeProto]):
    with pytest.raises(xl.UnsupportedError, match="training mode"):
        read(make_model(nodes, IMAGE, opset=6, **CONSTANTS))


def test_an_axis_that_does_not_fit_is_refused():
    with pytest.raises(xl.FileError, match="does not fit"):
        read(make_model([node("Add", "x k", "y", broadcast=1, axis=3)], IMAGE, opset=6, **CONSTANTS))


def test_a_softmax_over_several_dimensions_is_attributed_but_not_written(tmp_path):
    # before operator set 13 a softmax goes over all dimensions from its axis on
    network = read(make_model([node("Relu", "x", "h"), node("Softmax", "h", "y")], IMAGE, opset=6, **CONSTANTS))
    start, end = torch.randn(2, 1, *IMAGE[1:], generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 5
    at_start, at_end = (network(x, tail=True).flatten() for x in (start, end))  # type: ignore[union-attr]
    assert float(at_end.sum()) == pytest.approx(1.0)
    target = (1, 2, 3)
    found = xl.attr.IntegratedGradients(network).attribute(end, start, target=target)
    flat = (target[0] * IMAGE[2] + target[1]) * IMAGE[3] + target[2]
    assert float(found.sum()) == pytest.approx(float(at_end[flat] - at_start[flat]), rel=1e-12)
    with pytest.raises(xl.UnsupportedError, match="softmax over several dimensions"):
        network.save(tmp_path / "network.onnx")
