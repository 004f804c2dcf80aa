"""Convolutions in blocks of points and in strips are torch's own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from exactline.ops import gemm

SETTINGS = [
    {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1},
    {"stride": [2, 3], "padding": [0, 2], "dilation": [2, 1], "groups": 2},
    {"stride": [3, 1], "padding": [2, 0], "dilation": [1, 2], "groups": 4},
]


@pytest.mark.parametrize("keywords", SETTINGS)
@pytest.mark.parametrize("strips", [False, True])
@pytest.mark.parametrize("dims", [1, 2])
def test_blocks_and_strips_are_the_convolution(keywords, strips, dims, monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(gemm, "MAX_CPU_BLOCK_BYTES", 1)
    monkeypatch.setattr(gemm, "MAX_CPU_POINT_BYTES", 1 << 9 if strips else 1 << 30)
    function = F.conv2d if dims == 2 else F.conv1d
    keywords = {k: v if k == "groups" else v[:dims] for k, v in keywords.items()}
    x, bias = torch.randn(11, 4, *(17, 19)[:dims], dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    weight = torch.randn(8, 4 // keywords["groups"], *(3, 4)[:dims], dtype=torch.float64)
    settings = {**keywords, "padding_end": keywords["padding"], "transposed": False}
    expected = function(x, weight, bias, **keywords)
    found = gemm.convolve_in_blocks(function, x, weight, bias, keywords=keywords, settings=settings)
    assert (found - expected).abs().max() <= 1e-13
