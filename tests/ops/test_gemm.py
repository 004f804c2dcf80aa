"""Convolutions by products are torch's convolutions, to rounding."""

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
def anywhere(monkeypatch) -> list[bool]:
    """Every convolution is tried by products, however small; which were made so."""
    made: list[bool] = []
    convolved = gemm.convolve_by_gemm

    def watched(*args):
        found = convolved(*args)
        made.append(found is not None)
        return found

    for name, value in {"GEMM_DEVICES": frozenset({"cpu"}), "MIN_OUTPUT_CHANNELS": 1, "MIN_MULTIPLICATIONS": 0, "convolved": watched}.items():
        monkeypatch.setattr(gemm, name, value)
    return made


def settings(spatial: int, stride: int, padding: tuple[int, int], dilation: int, groups: int) -> dict[str, object]:
    before, after = padding
    sizes = {"stride": stride, "padding": before, "padding_end": after, "dilation": dilation}
    return {k: [v] * spatial for k, v in sizes.items()} | {"groups": groups, "transposed": False}


def bound(x: Tensor, weight: Tensor, bias: Tensor | None, truth) -> Tensor:
    """Both ways round every product and every sum at most once."""
    terms = weight[:1].numel() + 1
    return 2 * terms * EPS * truth(x.abs(), weight.abs(), None if bias is None else bias.abs())


@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("biased", [False, True])
def test_every_setting(spatial, biased, anywhere, monkeypatch):
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
            found = gemm.convolve_by_gemm(values, weight, bias, settings(spatial, stride, padding, dilation, groups))
            wanted = truth(x, weight, bias)
            if found is not None:
                assert found.shape == wanted.shape
                assert found.is_contiguous()
                assert ((found - wanted).abs() <= bound(x, weight, bias, truth)).all()
    assert sum(anywhere) > len(anywhere) / 2


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
def test_as_a_network_reads_it(layer, anywhere):
    model = nn.Sequential(layer, nn.ReLU()).double().eval()
    x = torch.randn(7, 3, 9, 8, dtype=torch.float64)
    network = as_network(model, [x[0]])
    op = next(node.op for node in network.nodes if node.op.title.startswith("conv"))
    values = x
    for node in network.nodes[1:]:
        if node.op is op:
            break
        values = node.op.evaluate(values)
    anywhere.clear()
    made = op.evaluate(values)
    assert anywhere == [not isinstance(layer, nn.ConvTranspose2d)]
    with torch.no_grad():
        assert (made - layer(x)).abs().max() < 1e-14
    assert op.linear(values).shape == made.shape


def test_a_sweep_and_its_gradients(anywhere, monkeypatch):
    torch.manual_seed(0)
    body = (nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 1), nn.ReLU(), nn.Conv2d(6, 4, 3, 2, 1, groups=2), nn.ReLU())
    model = nn.Sequential(*body, nn.Flatten(), nn.LazyLinear(3)).double()
    start, end = torch.randn(2, 2, 8, 7, dtype=torch.float64)
    model(start[None])
    line = xl.restrict(model.eval(), start, end, engine="dense")
    found = IntegratedGradients(model).attribute(end[None], start[None], target=1)
    assert any(anywhere)
    monkeypatch.setattr(gemm, "GEMM_DEVICES", frozenset())
    plain = xl.restrict(model, start, end, engine="dense")
    assert (line.alphas - plain.alphas).abs().max() < 1e-12
    assert torch.equal(line.origin_table, plain.origin_table)
    wanted = IntegratedGradients(model).attribute(end[None], start[None], target=1)
    assert (found - wanted).abs().max() < 1e-12


def test_what_is_left_to_torch(monkeypatch):
    x, weight = torch.randn(2, 4, 9, 9, dtype=torch.float64), torch.randn(64, 4, 3, 3, dtype=torch.float64)
    known = settings(2, 1, (0, 0), 1, 1)
    assert gemm.convolve_by_gemm(x, weight, None, known) is None  # a processor
    monkeypatch.setattr(gemm, "GEMM_DEVICES", frozenset({"cpu"}))
    assert gemm.convolve_by_gemm(x, weight, None, known) is None  # little work
    monkeypatch.setattr(gemm, "MIN_MULTIPLICATIONS", 0)
    assert gemm.convolve_by_gemm(x, weight, None, known) is not None
    assert gemm.convolve_by_gemm(x, weight[:12], None, known) is None  # few outputs
    assert gemm.convolve_by_gemm(x, weight[:, :, :1, :1], None, known) is None  # a product already
    assert gemm.convolve_by_gemm(x.float(), weight.float(), None, known) is None
    assert gemm.convolve_by_gemm(x.clone().requires_grad_(), weight, None, known) is None
    monkeypatch.setattr(gemm, "MAX_UNFOLDED_ELEMENTS", 4 * 9 * 49 - 1)
    assert gemm.convolve_by_gemm(x, weight, None, known) is None  # a single point is too large
