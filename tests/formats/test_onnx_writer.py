"""Written ONNX files say what the network does, to whoever reads them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from onnx.reference import ReferenceEvaluator
from torch import Tensor, nn

import exactline as xl
from exactline.errors import FileError, UnsupportedError
from exactline.formats import onnx_writer
from exactline.formats.onnx_writer import encode_onnx
from exactline.network import Network, as_network
from exactline.network.graph import Node
from exactline.ops.affine import Product
from exactline.ops.base import Input
from exactline.ops.pointwise import Pointwise
from exactline.zoo import digits_network, loan_network, tent_network

from ..oracle.families import FAMILIES, Apply, Concat, Residual, seeded

Shape = tuple[int, ...]
Made = tuple[nn.Module, Shape]
IN_DOUBLE = {"Conv", "ConvTranspose", "AveragePool", "GlobalAveragePool", "LeakyRelu", "PRelu", "HardSigmoid"}


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def after(function: Callable[[Tensor], Tensor], width: int = 6) -> Made:
    """A function between two layers."""
    inside = function(torch.zeros(1, width)).shape[1]
    return nn.Sequential(nn.Linear(3, width), Apply(function), nn.Linear(inside, 2)), (3,)


def image(*layers: nn.Module, channels: int = 2, size: Shape = (6, 7)) -> Made:
    """Layers on an image, a ReLU and a linear layer."""
    body = nn.Sequential(*layers, nn.ReLU(), nn.Flatten()).eval()
    width = body(torch.zeros(1, channels, *size)).shape[1]
    return nn.Sequential(body, nn.Linear(width, 2)), (channels, *size)


def norm(channels: int, dims: int = 2) -> nn.Module:
    layer = nn.BatchNorm2d(channels) if dims == 2 else nn.BatchNorm1d(channels)
    layer.running_mean = torch.randn(channels, generator=generator(1))
    layer.running_var = torch.rand(channels, generator=generator(2)) * 0.05 + 0.001
    return layer


class Einsum(nn.Module):
    """A product and sums over several dims at once."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4, 2, generator=generator()))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.einsum("nij,ijk->nk", x, self.weight).relu()
        return torch.cumsum(y, 1) + torch.tensordot(x, self.weight, dims=([1, 2], [0, 1]))


MODELS: dict[str, Callable[[], Made]] = {
    **{name: (lambda family=family: family(generator(5))) for name, family in FAMILIES.items()},
    "digits": lambda: (digits_network(), (1, 8, 8)),
    "loan": lambda: (loan_network(), (2,)),
    "tent": lambda: (tent_network(3), (1,)),
    "conv_settings": lambda: image(
        nn.Conv2d(2, 4, (3, 2), (2, 1), (1, 0), (1, 2), groups=2), nn.MaxPool2d((2, 3), (1, 2), (1, 1))
    ),
    "conv_same": lambda: image(nn.Conv2d(2, 3, 4, padding="same", bias=False), nn.MaxPool2d(3, 2, ceil_mode=True)),
    "conv_1d": lambda: image(nn.Conv1d(2, 3, 3, dilation=2), nn.ReLU(), nn.MaxPool1d(2), channels=2, size=(11,)),
    "conv_transposed": lambda: image(nn.ConvTranspose2d(2, 3, 3, 2, 1, output_padding=1), nn.ReLU(), norm(3)),
    "batch_norms": lambda: image(norm(2), nn.ReLU(), nn.Flatten(), norm(84, 1)),
    "pools": lambda: image(nn.AvgPool2d(3, 2, 1), nn.ReLU(), nn.AvgPool2d(2, ceil_mode=True), nn.AdaptiveAvgPool2d(1)),
    "adaptive": lambda: image(
        nn.AdaptiveAvgPool2d((3, 5)), nn.AdaptiveMaxPool2d(2), Apply(lambda x: x.mean((2, 3), keepdim=True))
    ),
    "upsampled": lambda: image(nn.Upsample(scale_factor=2), nn.Conv2d(2, 2, 3), nn.Upsample(size=(5, 3))),
    "bilinear": lambda: image(nn.Upsample(scale_factor=2, mode="bilinear"), nn.ReLU(), nn.Upsample((9, 4))),
    "interpolated": lambda: image(nn.Upsample((9, 4), mode="bilinear"), nn.Conv2d(2, 2, 3, groups=2)),
    "padded": lambda: image(nn.ConstantPad2d((1, 0, 2, 1), 0.1), nn.ReflectionPad2d(1), nn.ReplicationPad2d(1)),
    "moved": lambda: image(
        Apply(lambda x: x.permute(0, 2, 1, 3).flip(1)[:, ::2, :, 1:]), Apply(lambda x: x[:, 0].roll(1, 2))
    ),
    "leaky": lambda: image(nn.Conv2d(2, 2, 2), nn.LeakyReLU(0.01), nn.PReLU(2), nn.LeakyReLU(0.25)),
    "clamped": lambda: after(lambda x: x.clamp(min=torch.arange(6) / 8, max=torch.tensor(0.1)).clamp(max=0.3)),
    "activations": lambda: after(lambda x: F.softshrink(F.hardsigmoid(F.relu6(x)).abs(), 0.3)),
    "curves": lambda: after(lambda x: torch.where(x > 0.1, 2 * x - 0.2, x * 0) + torch.where(x < 0, -x, 3 * x)),
    "scaled": lambda: after(lambda x: 1 - (x * 0.1 + 3) / 7 + torch.arange(6) / 3),
    "ordered_again": lambda: after(lambda x: x.view(-1, 2, 3).sort(1).values.flatten(1).topk(4, largest=False).values),
    "maxima": lambda: after(lambda x: torch.maximum(x, x.flip(1)) - x.view(-1, 2, 3).amin((1, 2))[:, None]),
    "concatenated": lambda: image(
        Residual(nn.Conv2d(2, 2, 3, padding=1)), Concat(nn.Conv2d(2, 2, 1), nn.Identity()), nn.MaxPool2d(2)
    ),
    "einsum": lambda: (Einsum(), (3, 4)),
}
EVEN = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
DOUBLES = {"conv", "conv_settings", "conv_same", "conv_transposed", "pools", "adaptive", "leaky", "bilinear"}


def captured(name: str, double: bool) -> Network:
    model, shape = MODELS[name]()
    if name not in ("digits", "loan", "tent"):
        model = seeded(model, generator(3))
    if double:
        model = model.double()
        with torch.no_grad():
            for weight in model.parameters():
                weight *= 1 + 2.0**-40
    return as_network(model.eval(), [torch.zeros(shape)])


def kind_of(model: onnx.ModelProto) -> type:
    kinds = {v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)}
    (kind,) = kinds
    return {onnx.TensorProto.FLOAT: np.float32, onnx.TensorProto.DOUBLE: np.float64}[kind]


def check(network: Network) -> onnx.ModelProto:
    """The file is valid, and both evaluators say what the network says."""
    data = encode_onnx(network)
    model = onnx.load_from_string(data)
    onnx.checker.check_model(model, full_check=True)
    kind = kind_of(model)
    if kind is np.float64:
        assert not IN_DOUBLE & {node.op_type for node in model.graph.node}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    shapes = [network.nodes[i].shape for i in network.inputs]
    for count in (1, 7):
        xs = [torch.randn(count, *s, generator=generator(count)).numpy().astype(kind) for s in shapes]
        outs = network(*map(torch.from_numpy, xs), tail=True)
        expected = outs if isinstance(outs, tuple) else (outs,)
        feed = {v.name: x for v, x in zip(model.graph.input, xs, strict=True)}
        for run in (session.run, ReferenceEvaluator(model).run):
            for found, wanted in zip(run(None, feed), expected, strict=True):
                assert found.dtype == kind
                scale = max(1.0, float(wanted.abs().max()))
                tolerance = 1e-10 if kind is np.float64 else 1e-4
                np.testing.assert_allclose(found, wanted.numpy(), rtol=0, atol=tolerance * scale)
    return model


def round_trip(network: Network, path: Path) -> None:
    """Saved and loaded, once and twice: the same breaks on three lines."""
    network.save(path)
    once = xl.load(path)
    once.save(path)
    twice = xl.load(path)
    for seed in range(3):
        start, end = torch.randn(2, *network.nodes[0].shape, generator=generator(10 + seed), dtype=torch.float64)
        first, *others = (xl.restrict(net, start, end).alphas for net in (network, once, twice))
        for alphas in others:
            assert alphas.shape == first.shape
            torch.testing.assert_close(alphas, first, rtol=0, atol=1e-12)


@EVEN
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.every(24)
def test_a_captured_network_is_written(name, tmp_path):
    network = captured(name, double=False)
    model = check(network)
    if "TopK" not in {node.op_type for node in model.graph.node}:  # which is written, and not read
        round_trip(network, tmp_path / "network.onnx")


@EVEN
@pytest.mark.parametrize("name", sorted(DOUBLES))
@pytest.mark.every(10)
def test_weights_that_float32_cannot_hold_make_a_double_model(name, tmp_path):
    network = captured(name, double=True)
    assert kind_of(check(network)) is np.float64
    round_trip(network, tmp_path / "network.onnx")


def operators(name: str) -> list[str]:
    return [node.op_type for node in onnx.load_from_string(encode_onnx(captured(name, double=False))).graph.node]


def test_operators_keep_their_names():
    assert operators("tent") == ["Gemm", "Relu", "Gemm", "Relu", "Gemm", "Relu", "Gemm"]
    assert operators("conv_settings") == ["Conv", "MaxPool", "Relu", "Reshape", "Gemm"]
    assert {"Conv", "MaxPool", "Relu", "Concat", "Add"} <= set(operators("concatenated"))
    assert {"AveragePool", "ReduceMean"} <= set(operators("pools"))
    assert {"Transpose", "Slice"} <= set(operators("moved"))
    assert "Pad" in operators("padded")
    assert "BatchNormalization" in operators("batch_norms")
    assert {"LeakyRelu", "PRelu"} <= set(operators("leaky"))


class Both(nn.Module):
    """Two inputs, two outputs, one of them with a tail; the first input is also an output."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(3, 4), nn.Linear(2, 4)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        z = torch.relu(self.left(x) + self.right(y))
        return z.softmax(1), z, x + 0 * z[:, :3], torch.log_softmax(z, -1)


def test_several_inputs_and_outputs_and_tails():
    network = as_network(seeded(Both(), generator()), [torch.zeros(3), torch.zeros(2)])
    model = check(network)
    assert [d.dim_param or d.dim_value for d in model.graph.input[1].type.tensor_type.shape.dim] == ["N", 2]
    assert len({v.name for v in model.graph.output}) == 4


def test_a_tail_is_written():
    for tail in (nn.Sigmoid(), nn.Tanh(), nn.Softmax(1)):
        check(as_network(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), tail), [torch.zeros(2)]))


def test_single_numbers_that_float32_cannot_hold_survive_in_a_float32_model(tmp_path):
    model, shape = image(nn.Conv2d(2, 3, 3), norm(3), nn.LeakyReLU(0.01), Apply(lambda x: x * 0.1 + 0.7))
    network = as_network(seeded(model, generator()), [torch.zeros(shape)])
    assert kind_of(check(network)) is np.float32
    network.save(tmp_path / "network.onnx")
    x = torch.randn(5, *shape, generator=generator(), dtype=torch.float64)
    torch.testing.assert_close(xl.load(tmp_path / "network.onnx")(x), network(x), rtol=1e-14, atol=1e-14)


def test_any_pointwise_function_is_written():
    knots = tuple(Fraction(k, 4) for k in (-3, 0, 1, 6))
    op = Pointwise(knots, tuple(Fraction(s, 3) for s in (1, -2, 0, 5, 1)), Fraction(1, 7))
    network = Network((Node("x", Input(), (), (4,)), Node("0 bad/name", op, (0,), (4,))), (1,), (None,))
    model = check(network)
    assert sum(node.op_type == "Relu" for node in model.graph.node) == len(knots)


def test_what_cannot_be_written_is_named():
    op = Product(lambda x, w: torch.fft.fft(x).real * w, torch.ones(1, dtype=torch.float64), None, "odd")
    network = Network((Node("x", Input(), (), (5000,)), Node("odd", op, (0,), (5000,))), (1,), (None,))
    with pytest.raises(UnsupportedError, match="odd"):
        encode_onnx(network)


def test_more_than_two_gigabytes_are_refused(monkeypatch):
    monkeypatch.setattr(onnx_writer.graph, "MAX_CONSTANT_BYTES", 10)
    with pytest.raises(FileError, match="2 GB"):
        encode_onnx(captured("tent", double=False))
