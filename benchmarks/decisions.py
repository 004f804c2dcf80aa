"""Decisions of many lines against the restriction of the same lines, as a ratio in one run.

    python benchmarks/decisions.py

The lines are the paper's 100 distance lines: around an ownship, from distance 0 to the edge of a box. With
EXACTLINE_DATA the networks are ACAS Xu 1_1 and 2_3; without, a random network of their shape. Every time is the best
of several runs after a warm-up; calls that are compared take turns.
"""

from __future__ import annotations

import torch
from rich.console import Console
from rich.table import Table
from shapes import acas, acas_shape, distances
from timing import best
from torch import Tensor

import exactline as xl
from exactline.network import Network, as_network

MOST = 3.0  # times the restriction
RUNS = 7
LINES = 100


def networks() -> dict[str, Network]:
    """Published networks where they are at hand."""
    torch.manual_seed(0)
    found = {"5-50x6-5, random": as_network(acas_shape().eval(), [torch.zeros(5)])}
    for number in ("1_1", "2_3"):
        if (network := acas(number)) is not None:
            found[f"ACAS Xu {number}"] = network
    return found


def main() -> None:
    """One row for each network."""
    title = f"decisions of {LINES} lines, torch {torch.__version__}, {torch.get_num_threads()} threads, {RUNS} runs"
    table = Table(title=title, title_justify="left")
    for name in ("network", "pieces", "intervals", "decisions, s", "restrict_many, s", "ratio", "at most"):
        table.add_column(name, justify="left" if name == "network" else "right")
    starts, ends = distances(LINES, 5)
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
