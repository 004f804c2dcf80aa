"""The falsifier on the ACAS Xu benchmark of VNN-COMP, next to plain random sampling.

    EXACTLINE_DATA=... python benchmarks/falsify.py [--properties 2,7] [--networks 2_1] [--seconds 5] [--samples 1e7]

Properties 1 to 4 are asked of all 45 networks, 5 to 10 of one each. Every sat was confirmed by onnxruntime (the table
says so where another program had to do). Sampling draws uniform points of the boxes until one of them is a violation;
where the falsifier found none, no samples are drawn unless --all is given.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import exactline as xl
from exactline.formats import load_network
from exactline.verification.falsifier import FalsifierResult
from exactline.verification.flatten import FlatNetwork
from exactline.verification.property import Property
from exactline.verification.vnnlib import read_vnnlib

ALL = [f"{a}_{b}" for a in range(1, 6) for b in range(1, 10)]
ONE = {5: "1_1", 6: "1_1", 7: "1_9", 8: "2_9", 9: "3_3", 10: "4_5"}
AT_ONCE = 50_000


@dataclass(frozen=True)
class Sampled:
    """How many evaluations plain sampling took, and whether it found anything."""

    points: int
    found: bool
    seconds: float

    def __str__(self) -> str:
        return f"{self.points:,}" if self.found else f"none in {self.points:,}"


def instances(properties: list[int], networks: list[str]) -> list[tuple[int, str]]:
    """The pairs that the benchmark asks for."""
    wanted = [(p, n) for p in properties for n in ([ONE[p]] if p in ONE else ALL)]
    return [(p, n) for p, n in wanted if n in networks]


def sampled(network: xl.Network, asked: Property, most: int, seed: int = 0) -> Sampled:
    """Uniform points of the boxes, in turn, until one of them breaks the property."""
    flat, began = FlatNetwork(network, torch.device("cpu")), time.perf_counter()
    generator = torch.Generator().manual_seed(seed)
    boxes, points, turn = asked.disjuncts_by_box(), 0, 0
    while points < most:
        box, places = boxes[turn % len(boxes)]
        count, turn = min(AT_ONCE, most - points), turn + 1
        x = box.lower + box.width * torch.rand(count, asked.inputs, generator=generator, dtype=torch.float64)
        with torch.no_grad():
            y = flat(x)
        hits = torch.stack([asked.disjuncts[p].holds(x, y) for p in places]).any(0)
        if bool(hits.any()):
            return Sampled(points + int(hits.int().argmax()) + 1, True, time.perf_counter() - began)
        points += count
    return Sampled(points, False, time.perf_counter() - began)


def row(p: int, n: str, seed: int, found: FalsifierResult, samples: Sampled | None) -> list[str]:
    """One line of the table."""
    cells = [
        str(p),
        n,
        str(seed),
        found.answer if found.strict or not found else "sat (tolerance)",
        f"{found.seconds:.2f}",
    ]
    cells += [f"{found.lines:,}", f"{found.pieces:,}", f"{found.margin:.3g}"]
    return [*cells, "" if samples is None else str(samples), "" if samples is None else f"{samples.seconds:.1f}"]


def main() -> None:
    """Ask everything, print one table and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--properties", default="1,2,3,4,5,6,7,8,9,10")
    parser.add_argument("--networks", default=",".join(ALL))
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--samples", type=float, default=1e7)
    parser.add_argument("--seeds", type=int, default=1, help="ask each so often, with other random numbers")
    parser.add_argument("--all", action="store_true", help="draw samples where nothing was found, too")
    options = parser.parse_args()
    folder = os.environ.get("EXACTLINE_DATA")
    if not folder:
        raise SystemExit("EXACTLINE_DATA is not set: no published networks to search")
    acas = Path(folder) / "acasxu"
    table = Table(title=f"ACAS Xu, at most {options.seconds:g} s each", title_justify="left")
    for name in ("property", "network", "seed", "answer", "seconds", "lines", "pieces", "smallest margin"):
        table.add_column(name, justify="left" if name == "answer" else "right")
    table.add_column("samples for the same", justify="right")
    table.add_column("their seconds", justify="right")
    counts: dict[int, list[int]] = {}
    programs: set[str] = set()
    asked = instances([int(p) for p in options.properties.split(",")], options.networks.split(","))
    for p, n, seed in ((p, n, s) for p, n in asked for s in range(options.seeds)):
        path, rule = acas / "onnx" / f"ACASXU_run2a_{n}_batch_2000.onnx", acas / "vnnlib" / f"prop_{p}.vnnlib"
        found = xl.falsify(path, rule, seconds=options.seconds, seed=seed)
        drawn = found or options.all
        samples = sampled(load_network(path), read_vnnlib(rule), int(options.samples), seed) if drawn else None
        table.add_row(*row(p, n, seed, found, samples))
        seen = counts.setdefault(p, [0, 0])
        seen[0], seen[1] = seen[0] + bool(found), seen[1] + 1
        programs.add(found.replayed_by)
    console = Console(width=160)
    console.print(table)
    console.print("; ".join(f"property {p}: {a} of {b} sat" for p, (a, b) in counts.items()), highlight=False)
    console.print(f"confirmed by {', '.join(sorted(programs))}", highlight=False)


if __name__ == "__main__":
    main()
