"""Certified curves of the vision transformer of VNN-COMP 2023 (ibp_3_3_8), which mixes softmax and ReLU.

    EXACTLINE_DATA=FOLDER python benchmarks/certified_vision.py [STEP ...]

Lines lead from a random image to one in which every pixel is changed by STEP, up or down at random. Times are processor
seconds of one thread, without tracing.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import onnx
import torch
from onnx import numpy_helper
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from exactline.smooth.certified import certify_curve, record_values

FILE = Path("vnncomp", "2026r_vit_2023", "ibp_3_3_8.onnx")

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
        """The name of a buffer for a tensor of the file."""
        return "b" + name.replace(".", "_").replace("::", "_")

    def get(self, name: str) -> Tensor:
        """A tensor of the file."""
        return getattr(self, self.rename(name))

    def normalize(self, x: Tensor, name: str) -> Tensor:  # (n, channels, ...)
        """BatchNorm with stored statistics."""
        mean, var, weight, bias = (self.get(f"{name}.{k}") for k in ("running_mean", "running_var", "weight", "bias"))
        return nn.functional.batch_norm(x, mean, var, weight, bias, training=False, eps=EPS)

    def forward(self, x: Tensor) -> Tensor:  # (n, 3, 32, 32)
        """Logits, (n, 10)."""
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

    def attend(self, hidden: Tensor, layer: int, number: int) -> Tensor:  # (n, 17, 48)
        """Attention of one layer."""
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


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", type=float, nargs="*", default=[0.001, 0.05, 0.2])
    steps: list[float] = parser.parse_args().steps
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = VisionTransformer(Path(os.environ["EXACTLINE_DATA"]) / FILE).double().eval()
    start = torch.rand(3, 32, 32, dtype=torch.float64)
    tape = record_values(model, [start])
    table = Table("step", "status", "kinks", "pieces", "bound", "rounding", "s")
    for step in steps:
        end = start + step * torch.randn(3, 32, 32, dtype=torch.float64).sign()
        began = time.process_time()
        curve = certify_curve(tape, start, end, 1e-6)
        seconds = time.process_time() - began
        kinks = sum(len(piece.coefficients) == 1 for piece in curve.pieces)
        figures = (f"{curve.error:.0e}", f"{curve.rounding_error:.0e}", f"{seconds:.1f}")
        table.add_row(f"{step:g}", curve.status, str(kinks), str(len(curve.pieces)), *figures)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
