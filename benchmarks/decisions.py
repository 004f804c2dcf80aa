"""Decisions of many lines against the restriction of the same lines, as a ratio in one run.

    python benchmarks/decisions.py

The lines are the paper's 100 distance lines: around an ownship, from distance 0 to the edge of a box. With
EXACTLINE_DATA the networks are ACAS Xu 1_1 and 2_3; without, a random network of their shape. Every time is the best
of several runs after a warm-up; calls that are compared take turns.
"""

from __future__ import annotations

import os
from math import cos, pi, sin
from pathlib import Path

import torch
from bench import best, mlp
from rich.console import Console
from rich.table import Table
from torch import Tensor

import exactline as xl
from exactline.network import Network, as_network

MOST = 3.0  # times the restriction
RUNS = 7
LINES = 100
BOX = (-6000.0, 10000.0, -6000.0, 6000.0)  # x and y around the ownship, feet


def networks() -> dict[str, Network]:
    """Published networks where they are at hand."""
    torch.manual_seed(0)
    found = {"5-50x6-5, random": as_network(mlp(5, 50, 50, 50, 50, 50, 50, 5).eval(), [torch.zeros(5)])}
    if folder := os.environ.get("EXACTLINE_DATA"):
        for number in ("1_1", "2_3"):
            path = next(Path(folder, "acasxu", "nnet").glob(f"*_{number}_*.nnet"))
            found[f"ACAS Xu {number}"] = xl.load(path)
    return found


def distance_lines() -> tuple[Tensor, Tensor]:  # each (lines, 5)
    """From the ownship to the edge of the box, in all directions."""
    thetas = torch.linspace(-pi, pi, LINES, dtype=torch.float64).tolist()
    starts = torch.tensor([[0.0, theta, -pi, 150.0, 150.0] for theta in thetas], dtype=torch.float64)
    ends = starts.clone()
    ends[:, 0] = torch.tensor([edge(theta) for theta in thetas], dtype=torch.float64)
    return starts, ends


def edge(theta: float) -> float:
    """How far the edge of the box is in one direction."""
    x, y = cos(theta), sin(theta)
    left, right, low, high = BOX
    across = (right if x > 0 else left) / x if x else float("inf")
    return min(across, (high if y > 0 else low) / y if y else float("inf"))


def main() -> None:
    """One row for each network."""
    title = f"decisions of {LINES} lines, torch {torch.__version__}, {torch.get_num_threads()} threads, {RUNS} runs"
    table = Table(title=title, title_justify="left")
    for name in ("network", "pieces", "intervals", "decisions, s", "restrict_many, s", "ratio", "at most"):
        table.add_column(name, justify="left" if name == "network" else "right")
    starts, ends = distance_lines()
    for name, network in networks().items():
        scale = 1.0 if name.startswith("ACAS") else 1e-3  # of feet, for a network that knows none
        first, last = starts * scale, ends * scale
        lines = xl.restrict_many(network, first, last)
        decided = lines.decisions(order="min")

        def restrict(network: Network = network, first: Tensor = first, last: Tensor = last) -> object:
            return xl.restrict_many(network, first, last)

        def decide(lines: xl.Restrictions = lines) -> object:
            return lines.decisions(order="min")

        ours, sweep = best([decide, restrict], RUNS)
        counts = f"{int(lines.pieces.sum()):,}", f"{len(decided.table.starts):,}"
        table.add_row(name, *counts, f"{ours:.4f}", f"{sweep:.4f}", f"{ours / sweep:.2f}", f"{MOST}")
    Console(width=max(Console().width, 110)).print(table)


if __name__ == "__main__":
    main()
