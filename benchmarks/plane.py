"""Planes: pieces, seconds and microseconds for each piece; how time grows with pieces and width.

    python benchmarks/plane.py [--device cuda] [--processor] [NAME ...]

Every time is the best of several runs after a warm-up, or of one run without. The first two networks are those whose
times by the C++ successor of the paper's tool, in float32 on two cores, are known: 0.12 s for 3,535 pieces and 0.14 s
for 4,834. Their triangles are ours. With EXACTLINE_DATA the whole polar map of ACAS Xu 1_1 is cut too, and with the
folder lowdim beside it two-level lattices, which are full of ties. The last line tells where a plane through an image
network stops at its limits. NAME is the beginning of a network's name.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from math import pi
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from shapes import conv_small, mlp
from timing import Clock
from torch import Tensor, nn

import exactline as xl
from exactline.errors import LimitError
from exactline.formats import load_network

RUNS = 5
KNOWN = {"5-50x6-5": (0.12, 3535), "784-64x3-10": (0.14, 4834)}  # seconds, pieces: C++, float32, two cores
MOST = 3.0  # times the C++ tool's time for each piece, in float64 on a CPU
AT_MOST = {  # seconds and microseconds a polygon that we hold ourselves to, with the extra fast on two cores
    "5-50x6-5": "5 us",
    "784-64x3-10": "5 us",
    "a million": "15 s",
    "tll N=16": "2 s",
    "tll N=32": "30 s",
}
LATTICES = ("16_0", "32_0")
LIMITS: tuple[dict[str, Any], ...] = ({"seconds": 5.0}, {"max_polygons": 100_000})  # of an image network's plane
BASE = [0.0, 0.0, -pi, 150.0, 150.0]  # rho, theta, psi and both speeds


@dataclass(frozen=True)
class Case:
    """One network and one polygon."""

    name: str
    make: Callable[[str], xl.PlaneRestriction]  # device -> the answer
    width: int
    runs: int = RUNS  # after a warm-up; a single run has none


def triangle(model: nn.Module, size: float, inputs: int) -> Callable[[str], xl.PlaneRestriction]:
    """A random triangle."""
    torch.manual_seed(1)
    corners = torch.randn(3, inputs, dtype=torch.float64) * size
    return lambda device: xl.restrict_plane(model, corners, device=device)


def square(model: nn.Module | xl.Network, size: float) -> Callable[[str], xl.PlaneRestriction]:
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
        Case("a million: 2-256x6-4", square(bent(2, *[256] * 6, 4), 3.0), 256, 1),
    ]
    if folder := os.environ.get("EXACTLINE_DATA"):
        found += lattices(Path(folder).parent / "lowdim")
        network = xl.load(next(Path(folder, "acasxu", "nnet").glob("*_1_1_*.nnet")))
        for far in (12000.0, 60760.0):
            box = ((0.0, far), (-pi, pi))
            name = f"ACAS Xu 1_1, rho to {far:,.0f}, all theta"
            found.append(Case(name, lambda d, box=box: xl.grid(network, BASE, axes=(0, 1), box=box, device=d), 50, 1))
    return found


def lattices(folder: Path) -> list[Case]:
    """Two-level lattices on the boxes of their properties, where the files are at hand."""
    files = [(name.partition("_")[0], folder / f"tll_N={name}.onnx.gz") for name in LATTICES]
    return [
        Case(f"tll N={size}", square(load_network(file), 2.0), int(size), 1) for size, file in files if file.exists()
    ]


def timed(case: Case, device: str, clock: Clock) -> tuple[float, xl.PlaneRestriction]:
    """The best of several runs, and the answer."""
    plane = case.make(device) if case.runs > 1 else None
    best = float("inf")
    for _ in range(case.runs):
        began = clock()
        plane = case.make(device)
        best = min(best, clock() - began)
    if plane is None:
        raise ValueError("there must be a run")
    return best, plane


def describe_limits(device: str, clock: Clock) -> str:
    """Where a plane through three images stops, on a network in which it has too many polygons."""
    torch.manual_seed(0)
    model, corners = conv_small().eval(), torch.rand(3, 3, 32, 32, dtype=torch.float64)
    answers = list[str]()
    for limit in LIMITS:
        began = clock()
        try:
            xl.restrict_plane(model, corners, device=device, **limit)
            reason = "finished"
        except LimitError as stopped:
            reason = stopped.problem
        answers.append(f"{limit}: {clock() - began:.1f} s. {reason}")
    return "convSmall through three images of noise\n" + "\n".join(answers)


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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to measure; everything by default")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--processor", action="store_true", help="processor time of one thread, for busy machines")
    options = parser.parse_args()
    device, clock = options.device, Clock(options.device, options.processor)
    if options.processor:
        torch.set_num_threads(1)
    table = Table(title=f"Planes in float64 on {device}, {torch.get_num_threads()} threads")
    for head in (
        "network",
        "pieces",
        "seconds",
        "us / piece",
        "ns / piece / width",
        "to C++ float32",
        "at most",
        "area off",
    ):
        table.add_column(head, justify="left" if head == "network" else "right")
    for case in cases():
        if options.names and not any(case.name.startswith(name) for name in options.names):
            continue
        seconds, plane = timed(case, device, clock)
        each = seconds / len(plane)
        table.add_row(
            case.name,
            f"{len(plane):,}",
            f"{seconds:.3f}",
            f"{each * 1e6:.1f}",
            f"{each / case.width * 1e9:.0f}",
            compared(case.name, seconds, len(plane)),
            AT_MOST.get(case.name.partition(":")[0], ""),
            f"{check_total(plane):.0e}",
        )
    Console(width=140).print(table)
    if not options.names:
        print(describe_limits(device, clock))


if __name__ == "__main__":
    main()
