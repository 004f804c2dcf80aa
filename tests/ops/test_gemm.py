"""Convolutions by matrix products equal torch's convolutions up to rounding."""

from __future__ import annotations

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import exactline as xl
from exactline.attr import IntegratedGradients
from exactline.network import as_network
from exactline.ops import gemm

EPS = torch.finfo(torch.float64).eps


@pytest.fixture
def gemm_calls(monkeypatch) -> list[bool]:
    """Allow matrix products for every convolution on the CPU; records for each call whether they were used."""
    calls: list[bool] = []
    original = gemm.convolve_by_gemm

    def record(*args):
        out = original(*args)
        calls.append(out is not None)
        return out

    limits = {"GEMM_DEVICES": frozenset({"cpu"}), "MIN_OUTPUT_CHANNELS": 1, "MIN_MULTIPLICATIONS": 0}
    for name, value in {**limits, "convolve_by_gemm": record}.items():
        monkeypatch.setattr(gemm, name, value)
    return calls


def convolution_settings(
    spatial: int, stride: int, padding: tuple[int, int], dilation: int, groups: int
) -> dict[str, object]:
    before, after = padding
    sizes = {"stride": stride, "padding": before, "padding_end": after, "dilation": dilation}
    return {k: [v] * spatial for k, v in sizes.items()} | {"groups": groups, "transposed": False}


def rounding_bound(x: Tensor, weight: Tensor, bias: Tensor | None, truth) -> Tensor:
    """Both algorithms round every product and every sum at most once."""
    terms = weight[:1].numel() + 1
    return 2 * terms * EPS * truth(x.abs(), weight.abs(), None if bias is None else bias.abs())


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.every(2)
def test_every_setting_matches_torch(spatial, biased, gemm_calls, monkeypatch):
    torch.manual_seed(spatial)
    function = (F.conv1d, F.conv2d, F.conv3d)[spatial - 1]
    sizes = (9, 8, 7)[:spatial]
    kinds = product((1, 2, 3), (1, 2), ((0, 0), (1, 1), (1, 2)), (1, 2), (1, 2), (1 << 25, 1 << 12))
    for kernel, stride, padding, dilation, groups, columns in kinds:
        monkeypatch.setattr(gemm, "MAX_UNFOLDED_ELEMENTS", columns)
        x = torch.randn(5, 4, *sizes, dtype=torch.float64)
        weight = torch.randn(6, 4 // groups, *[kernel] * spatial, dtype=torch.float64)
        bias = torch.randn(6, dtype=torch.float64) if biased else None

        def truth(x, w, b, pad=padding, stride=stride, dilation=dilation, groups=groups):
            padded = F.pad(x, pad * spatial)
            return function(padded, w, b, stride=stride, dilation=dilation, groups=groups)

        for values in (x, x.transpose(0, 1).contiguous().transpose(0, 1)):
            settings = convolution_settings(spatial, stride, padding, dilation, groups)
            out = gemm.convolve_by_gemm(values, weight, bias, settings)
            expected = truth(x, weight, bias)
            if out is not None:
                assert out.shape == expected.shape
                assert out.is_contiguous()
                assert ((out - expected).abs() <= rounding_bound(x, weight, bias, truth)).all()
    assert sum(gemm_calls) > len(gemm_calls) / 2


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(3, 8, 3, padding="same"),
        nn.Conv2d(3, 8, 4, padding="same"),
        nn.Conv2d(3, 8, (3, 2), (2, 1), (1, 0), bias=False),
        nn.Conv2d(3, 8, 1, 2),
        nn.Conv2d(3, 8, 3, padding=1, padding_mode="reflect"),
        nn.ConvTranspose2d(3, 8, 3, 2),
    ],
    ids=str,
)
def test_captured_layers_match_torch(layer, gemm_calls):
    model = nn.Sequential(layer, nn.ReLU()).double().eval()
    x = torch.randn(7, 3, 9, 8, dtype=torch.float64)
    network = as_network(model, [x[0]])
    op = next(node.op for node in network.nodes if node.op.title.startswith("conv"))
    values = x
    for node in network.nodes[1:]:
        if node.op is op:
            break
        values = node.op.evaluate(values)
    gemm_calls.clear()
    out = op.evaluate(values)
    assert gemm_calls == [not isinstance(layer, nn.ConvTranspose2d)]
    with torch.no_grad():
        expected = layer(x)
        size = float(x.abs().max() * layer.weight.abs().max() * layer.weight[:1].numel()) + 1
        assert (out - expected).abs().max() <= 2 * (layer.weight[:1].numel() + 1) * EPS * size
    assert op.linear(values).shape == out.shape


def test_a_sweep_and_its_gradients_do_not_change(gemm_calls, monkeypatch):
    torch.manual_seed(0)
    body = (nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 1), nn.ReLU(), nn.Conv2d(6, 4, 3, 2, 1, groups=2), nn.ReLU())
    model = nn.Sequential(*body, nn.Flatten(), nn.LazyLinear(3)).double()
    start, end = torch.randn(2, 2, 8, 7, dtype=torch.float64)
    model(start[None])
    line = xl.restrict(model.eval(), start, end, engine="dense")
    attributions = IntegratedGradients(model).attribute(end[None], start[None], target=1)
    assert any(gemm_calls)
    monkeypatch.setattr(gemm, "GEMM_DEVICES", frozenset())
    plain = xl.restrict(model, start, end, engine="dense")
    assert (line.alphas - plain.alphas).abs().max() < 1e-12
    assert torch.equal(line.origin_table, plain.origin_table)
    expected = IntegratedGradients(model).attribute(end[None], start[None], target=1)
    assert (attributions - expected).abs().max() < 1e-12


def test_convolutions_that_gain_nothing_are_left_to_torch(monkeypatch):
    x, weight = torch.randn(2, 4, 9, 9, dtype=torch.float64), torch.randn(64, 4, 3, 3, dtype=torch.float64)
    settings = convolution_settings(2, 1, (0, 0), 1, 1)
    assert gemm.convolve_by_gemm(x, weight, None, settings) is None  # a CPU
    monkeypatch.setattr(gemm, "GEMM_DEVICES", frozenset({"cpu"}))
    assert gemm.convolve_by_gemm(x, weight, None, settings) is None  # few multiplications
    monkeypatch.setattr(gemm, "MIN_MULTIPLICATIONS", 0)
    assert gemm.convolve_by_gemm(x, weight, None, settings) is not None
    assert gemm.convolve_by_gemm(x, weight[:12], None, settings) is None  # few output channels
    assert (
        gemm.convolve_by_gemm(x, weight[:, :, :1, :1], None, settings) is None
    )  # 1x1: torch uses a matrix product itself
    assert gemm.convolve_by_gemm(x.float(), weight.float(), None, settings) is None
    assert gemm.convolve_by_gemm(x.clone().requires_grad_(), weight, None, settings) is None
    monkeypatch.setattr(gemm, "MAX_UNFOLDED_ELEMENTS", 4 * 9 * 49 - 1)
    assert gemm.convolve_by_gemm(x, weight, None, settings) is None  # a single point exceeds the buffer
