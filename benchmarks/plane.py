"""Planes: pieces, seconds and microseconds for each piece; how time grows with pieces and width.

    python benchmarks/plane.py [--device cuda]

Every time is the best of several runs after a warm-up. The first two networks are those whose times by the C++
successor of the paper's tool, in float32 on two cores, are known: 0.12 s for 3,535 pieces and 0.14 s for 4,834. Their
triangles are ours. With EXACTLINE_DATA the whole polar map of ACAS Xu 1_1 is cut too.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from math import pi
from pathlib import Path
from time import perf_counter

import torch
from rich.console import Console
from rich.table import Table
from shapes import mlp
from torch import Tensor, nn

import exactline as xl

RUNS = 5
KNOWN = {"5-50x6-5": (0.12, 3535), "784-64x3-10": (0.14, 4834)}  # seconds, pieces: C++, float32, two cores
MOST = 3.0  # times the C++ tool's time for each piece, in float64 on a CPU
BASE = [0.0, 0.0, -pi, 150.0, 150.0]  # rho, theta, psi and both speeds


@dataclass(frozen=True)
class Case:
    """One network and one polygon."""

    name: str
    make: Callable[[str], xl.PlaneRestriction]  # device -> the answer
    width: int
    runs: int = RUNS


def triangle(model: nn.Module, size: float, inputs: int) -> Callable[[str], xl.PlaneRestriction]:
    """A random triangle."""
    torch.manual_seed(1)
    corners = torch.randn(3, inputs, dtype=torch.float64) * size
    return lambda device: xl.restrict_plane(model, corners, device=device)


def square(model: nn.Module, size: float) -> Callable[[str], xl.PlaneRestriction]:
    """A square around the origin of two inputs."""
    corners = torch.tensor([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]]) * size
    return lambda device: xl.restrict_plane(model, corners, device=device)


def bent(*widths: int) -> nn.Module:
    """A network with many pieces near the origin."""
    torch.manual_seed(0)
    model = mlp(*widths)
    for layer in model.children():
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.normal_(layer.bias, 0.0, 0.3)
    return model.eval()


def cases() -> list[Case]:
    """Known networks, a family that grows, and ACAS Xu where it is at hand."""
    torch.manual_seed(0)
    acas_like, image_like = mlp(5, 50, 50, 50, 50, 50, 50, 5).eval(), mlp(784, 64, 64, 64, 10).eval()
    found = [
        Case("5-50x6-5", triangle(acas_like, 4.0, 5), 50),
        Case("784-64x3-10", triangle(image_like, 12.0, 784), 64),
        *(Case(f"2-{w}x4-4", square(bent(2, w, w, w, w, 4), 3.0), w, 3) for w in (16, 32, 64, 128)),
    ]
    if folder := os.environ.get("EXACTLINE_DATA"):
        network = xl.load(next(Path(folder, "acasxu", "nnet").glob("*_1_1_*.nnet")))
        for far in (12000.0, 60760.0):
            box = ((0.0, far), (-pi, pi))
            name = f"ACAS Xu 1_1, rho to {far:,.0f}, all theta"
            found.append(Case(name, lambda d, box=box: xl.grid(network, BASE, axes=(0, 1), box=box, device=d), 50, 1))
    return found


def timed(case: Case, device: str) -> tuple[float, xl.PlaneRestriction]:
    """The best of several runs, and the answer."""
    plane = case.make(device)
    best = float("inf")
    for _ in range(case.runs):
        began = perf_counter()
        plane = case.make(device)
        best = min(best, perf_counter() - began)
    return best, plane


def compared(name: str, seconds: float, pieces: int) -> str:
    """Our time for each piece against the C++ tool's, where that is known."""
    if name not in KNOWN:
        return ""
    theirs, count = KNOWN[name]
    ratio = (seconds / pieces) / (theirs / count)
    return f"{ratio:.2f} (at most {MOST:g})"


def check_total(plane: xl.PlaneRestriction) -> float:
    """How far the areas are from the whole."""
    shares: Tensor = plane.shares
    return abs(float(shares.sum()) - 1)


def main() -> None:
    """One row for each network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    device = parser.parse_args().device
    table = Table(title=f"Planes in float64 on {device}, {torch.get_num_threads()} threads")
    for head in ("network", "pieces", "seconds", "us / piece", "ns / piece / width", "to C++ float32", "area off"):
        table.add_column(head, justify="left" if head == "network" else "right")
    for case in cases():
        seconds, plane = timed(case, device)
        each = seconds / len(plane)
        table.add_row(
            case.name,
            f"{len(plane):,}",
            f"{seconds:.3f}",
            f"{each * 1e6:.1f}",
            f"{each / case.width * 1e9:.0f}",
            compared(case.name, seconds, len(plane)),
            f"{check_total(plane):.0e}",
        )
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
