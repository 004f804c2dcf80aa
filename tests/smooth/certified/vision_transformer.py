"""The vision transformer of VNN-COMP 2023 (ibp_3_3_8) as a torch module: attention with softmax, ReLU, BatchNorm."""

from __future__ import annotations

from pathlib import Path

import onnx
import torch
from onnx import numpy_helper
from torch import Tensor, nn

HEADS = 3
FIRST_WEIGHTS = (293, 310, 327)  # of the query of each layer: key, value, output and MLP follow
EPS = 9.999999747378752e-06


class VisionTransformer(nn.Module):
    """Three layers of width 48 on 17 tokens of a 32x32 image."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        stored = onnx.load(str(path)).graph.initializer
        for item in stored:
            self.register_buffer(self.rename(item.name), torch.tensor(numpy_helper.to_array(item)))

    @staticmethod
    def rename(name: str) -> str:
        return "b" + name.replace(".", "_").replace("::", "_")

    def get(self, name: str) -> Tensor:
        return getattr(self, self.rename(name))

    def normalize(self, x: Tensor, name: str) -> Tensor:  # (n, channels, ...)
        stats = (self.get(f"{name}.{k}") for k in ("running_mean", "running_var", "weight", "bias"))
        return nn.functional.batch_norm(x, *stats, training=False, eps=EPS)

    def forward(self, x: Tensor) -> Tensor:
        patches = nn.functional.conv2d(x, self.get("0.projection.weight"), self.get("0.projection.bias"), stride=8)
        first = self.get("0.cls_token").expand(len(x), 1, 48)
        hidden = torch.cat((first, patches.flatten(2).transpose(1, 2)), 1) + self.get("0.positions")
        for layer, number in enumerate(FIRST_WEIGHTS):
            hidden = hidden + self.attend(hidden, layer, number)
            mixed = self.normalize(hidden.transpose(1, 2), f"1.{layer}.1.fn.0.norm").transpose(1, 2)
            one, two = (self.get(f"onnx::MatMul_{number + k}") for k in (15, 16))
            inner = torch.relu(mixed @ one + self.get(f"1.{layer}.1.fn.1.0.bias"))
            hidden = hidden + inner @ two + self.get(f"1.{layer}.1.fn.1.3.bias")
        pooled = self.normalize(hidden.mean(1), "2.1")
        return pooled @ self.get("2.2.weight").T + self.get("2.2.bias")

    def attend(self, hidden: Tensor, layer: int, number: int) -> Tensor:
        mixed = self.normalize(hidden.transpose(1, 2), f"1.{layer}.0.fn.0.norm").transpose(1, 2)
        parts = ("query", "key", "value")
        q, k, v = (
            (mixed @ self.get(f"onnx::MatMul_{number + i}") + self.get(f"1.{layer}.0.fn.1.{part}.bias"))
            .view(len(hidden), 17, HEADS, 16)
            .transpose(1, 2)
            for i, part in enumerate(parts)
        )
        weights = torch.softmax(q @ k.transpose(2, 3) / 4, -1)
        out = (weights @ v).transpose(1, 2).reshape(len(hidden), 17, 48)
        return out @ self.get(f"onnx::MatMul_{number + 14}") + self.get(f"1.{layer}.0.fn.1.out.bias")
