"""Shapes that are found quickly while tracing are those that torch finds, and its own table stays as it was."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import nn
from torch._decomp import decomposition_table

from exactline.network import capture
from exactline.network.capture import export_module
from exactline.network.quick_shapes import QUICK_SHAPES


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_graphs_are_those_of_torch(dtype, monkeypatch):
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.LeakyReLU(0.1), nn.ReLU6()]
    model = nn.Sequential(*layers, nn.BatchNorm2d(4, affine=False)).to(dtype).eval()
    originals = dict(decomposition_table)
    quick = export_module(model, [torch.zeros(2, 8, 8)])
    assert decomposition_table == originals
    assert set(QUICK_SHAPES) <= set(originals)
    monkeypatch.setattr(capture, "use_quick_shapes", contextlib.nullcontext)
    slow = export_module(model, [torch.zeros(2, 8, 8)])
    assert str(quick.graph) == str(slow.graph)
    for one, two in zip(quick.graph.nodes, slow.graph.nodes, strict=True):
        for a, b in zip(_tensors(one), _tensors(two), strict=True):
            assert (str(a.shape), a.dtype, str(a.stride())) == (str(b.shape), b.dtype, str(b.stride()))


def _tensors(node):
    value = node.meta.get("val")
    return [value] if isinstance(value, torch.Tensor) else []
