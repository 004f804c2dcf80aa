"""Comparisons, masks and choices that make up one continuous function, with and without a batch dimension."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto

import exactline as xl
from tests.formats.test_onnx_refusals import make_model, node, read, refuse

SHAPES = [(3,), (2, 3), (1, 3), (1, 2, 3)]
COMPARE = node("Greater", "x zero", "g")


def real(name: str, out: str) -> onnx.NodeProto:
    return node("Cast", name, out, to=TensorProto.FLOAT)


RELUS = {
    "where": [COMPARE, node("Where", "g x zero", "y")],
    "mask": [COMPARE, real("g", "c"), node("Mul", "x c", "y")],
    "mask by integers": [
        COMPARE,
        node("Cast", "g", "i", to=TensorProto.INT64),
        real("i", "c"),
        node("Mul", "c x", "y"),
    ],
    "not": [node("LessOrEqual", "x zero", "l"), node("Not", "l", "g"), node("Where", "g x zero", "y")],
    "absolute": [node("Sign", "x", "s"), node("Mul", "s x", "a"), node("Add", "a x", "t"), node("Mul", "t half", "y")],
    "wide zeros": [COMPARE, node("Where", "g x wide", "y")],
    "thresholded": [node("ThresholdedRelu", "x", "y", alpha=0.0)],
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("nodes", RELUS.values(), ids=list(RELUS))
def test_a_relu_in_disguise_is_a_relu(nodes: list[onnx.NodeProto], shape: tuple[int, ...]):
    wide = np.zeros((1,) * (len(shape) - 1) + (3,), np.float32)
    network = read(make_model(nodes, shape, zero=np.float32(0), half=np.float32(0.5), wide=wide))
    x = torch.linspace(-1, 1, 4 * int(np.prod(shape)), dtype=torch.float64)
    x = x.reshape(4, *network.input_shape)  # type: ignore[arg-type]
    assert torch.equal(network(x), x.clamp(min=0))  # type: ignore[arg-type]
    line = xl.restrict(network, -torch.ones(network.input_shape), torch.ones(network.input_shape))  # type: ignore[arg-type]
    assert line.alphas.tolist() == [0.0, 0.5, 1.0]


def test_a_constant_of_more_dimensions_widens_a_curve():
    nodes = [COMPARE, node("Where", "g x wide", "y")]
    network = read(make_model(nodes, (3,), zero=np.float32(0), wide=np.zeros((2, 3), np.float32)))
    x = torch.tensor([[-1.0, 0.5, 2.0]], dtype=torch.float64)
    assert network(x).reshape(2, 3).tolist() == [[0, 0.5, 2]] * 2  # type: ignore[union-attr]


@pytest.mark.parametrize("shape", [(3,), (1, 3)], ids=str)
def test_slopes_by_channel_are_a_prelu(shape: tuple[int, ...]):
    nodes = [node("Less", "x zero", "l"), node("Mul", "x slopes", "m"), node("Where", "l m x", "y")]
    network = read(make_model(nodes, shape, zero=np.float32(0), slopes=np.float32([0.5, 0.25, -1])))
    x = torch.tensor([[-2.0, -2.0, -2.0], [1.0, 2.0, 3.0]], dtype=torch.float64)
    assert network(x).tolist() == [[-1.0, -0.5, 2.0], [1.0, 2.0, 3.0]]  # type: ignore[union-attr]
    assert network.units == {"where": 3}


def test_a_curve_goes_on_into_other_operators():
    nodes = [COMPARE, node("Where", "g x zero", "r"), node("Mul", "r slopes", "y")]
    network = read(make_model(nodes, (3,), zero=np.float32(0), slopes=np.float32([1, 2, 3])))
    assert network(torch.tensor([[-1.0, 1.0, 2.0]])).tolist() == [[0, 2, 6]]  # type: ignore[union-attr]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_choice_that_jumps_is_refused(shape: tuple[int, ...]):
    nodes = [COMPARE, node("Where", "g x one", "y")]
    assert refuse(make_model(nodes, shape, zero=np.float32(0), one=np.float32(1))) == ["y: Where"]


def test_a_threshold_other_than_0_jumps():
    with pytest.raises(xl.UnsupportedError, match="jumps at 2"):
        read(make_model([node("ThresholdedRelu", "x", "y", alpha=2.0)]))
