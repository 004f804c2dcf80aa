"""Time of a restriction against one plain batched forward over the same points, both in float64.

    python benchmarks/bench.py [CASE ...]

Every time is the best of several runs after a warm-up, in this process; memory is the peak of a process of its own.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import exactline as xl

MIB = 2**20


@dataclass(frozen=True)
class Case:
    """One network and one or many lines through it; ``draw`` makes their random ends."""

    name: str
    network: Callable[[], nn.Module]
    shape: tuple[int, ...]
    draw: Callable[..., Tensor] = torch.rand
    lines: int = 1
    runs: int = 5
    batch: int | None = None  # points of a plain forward at a time; None: all at once
    most: float | None = None  # the ratio we hold ourselves to
    memory: bool = False  # measure the peak as well

    def ends(self) -> tuple[Tensor, Tensor]:  # each (lines, *shape)
        """Starts and ends."""
        torch.manual_seed(1)
        starts, ends = self.draw(2, self.lines, *self.shape, dtype=torch.float64)
        return starts, ends

    def model(self) -> nn.Module:
        """The network with torch's own random start."""
        torch.manual_seed(0)
        return self.network().eval()

    def restrict(self, model: nn.Module) -> Sequence[xl.Restriction]:
        """All lines in one call."""
        starts, ends = self.ends()
        if self.lines == 1:
            return [xl.restrict(model, starts[0], ends[0])]
        return xl.restrict_many(model, starts, ends)


def mlp(*widths: int) -> nn.Module:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def box(*shape: int, dtype: torch.dtype) -> Tensor:
    """Points of a wide box."""
    return torch.rand(*shape, dtype=dtype) * 8 - 4


def conv_big() -> nn.Module:
    """The shape of the CIFAR network convBig: 62,464 ReLU units."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 1, 1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 4, 2, 1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, 1, 1),
        nn.ReLU(),
        nn.Conv2d(64, 64, 4, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        mlp(4096, 512, 512, 10),
    )


CASES = {
    case.name: case
    for case in (
        Case("784-1024x4-10", lambda: mlp(784, *[1024] * 4, 10), (784,), most=1.2),
        # ends so far apart that a line has about as many breaks as one through an ACAS Xu network
        Case("5-50x6-5, 100 lines", lambda: mlp(5, *[50] * 6, 5), (5,), box, lines=100, runs=20, most=4.0),
        Case("convBig", conv_big, (3, 32, 32), torch.randn, runs=1, batch=256, memory=True),
    )
}


def best(calls: Sequence[Callable[[], object]], runs: int) -> list[float]:
    """Fewest seconds of each call; they take turns, so that a busy moment of the machine hits all alike."""
    if runs > 1:  # a single run is taken as it is, several follow a warm-up
        for call in calls:
            call()
    fewest = [float("inf")] * len(calls)
    for _ in range(runs):
        for place, call in enumerate(calls):
            start = perf_counter()
            call()
            fewest[place] = min(fewest[place], perf_counter() - start)
    return fewest


def points_of(case: Case, lines: Sequence[xl.Restriction]) -> Tensor:  # (points, *shape)
    """The points of all lines, as one batch."""
    parts: list[Tensor] = []
    for start, end, line in zip(*case.ends(), lines, strict=True):
        alphas = line.alphas.view(-1, *[1] * len(case.shape))
        parts.append(start + alphas * (end - start))
    return torch.cat(parts)


def forward(case: Case, model: nn.Module, points: Tensor) -> Callable[[], None]:
    """A plain forward over all points in float64."""
    plain = deepcopy(model).double()

    def call() -> None:
        with torch.inference_mode():
            for part in points.split(case.batch or len(points)):
                plain(part)

    return call


def peak_mib(case: Case) -> float:
    """Peak memory of a process that restricts once and does nothing else."""
    command = [sys.executable, __file__, "--peak", case.name]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_peak(case: Case) -> None:
    """Restrict once, then print this process's peak resident memory in MiB."""
    case.restrict(case.model())
    unit = 1 if sys.platform == "darwin" else 1024  # macOS counts bytes, Linux KiB
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MIB)


def measure(case: Case) -> list[str]:
    """One row of the table."""
    model = case.model()
    start = case.ends()[0][0]
    xl.restrict(model, start, start)  # captures the network, so that the clock does not see it
    clock = perf_counter()
    lines = case.restrict(model)
    ours = perf_counter() - clock
    breaks = sum(len(line.alphas) for line in lines)
    plain_call = forward(case, model, points_of(case, lines))
    if case.runs == 1:
        (plain,) = best([plain_call], 1)
    else:
        ours, plain = best([lambda: case.restrict(model), plain_call], case.runs)
    return [
        case.name,
        f"{breaks:,}",
        str(case.runs),
        f"{ours:.4f}",
        f"{plain:.4f}",
        f"{ours / plain:.2f}",
        "" if case.most is None else f"{case.most}",
        f"{peak_mib(case):,.0f}" if case.memory else "",
    ]


def main() -> None:
    """Measure the cases asked for and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="*", help=f"which to measure: {', '.join(CASES)} (default: all)")
    parser.add_argument("--peak", metavar="CASE", choices=[*CASES], help="print the peak memory of one case in MiB")
    chosen = parser.parse_args()
    if chosen.peak:
        print_peak(CASES[chosen.peak])
        return
    if unknown := {*chosen.case} - {*CASES}:
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    title = f"torch {torch.__version__}, {torch.get_num_threads()} threads"
    table = Table(title=title, title_justify="left")
    for name in ("network", "breaks", "runs", "restrict, s", "forward, s", "ratio", "at most", "peak, MiB"):
        table.add_column(name, justify="left" if name == "network" else "right")
    for name in chosen.case or CASES:
        table.add_row(*measure(CASES[name]))
    Console(width=max(Console().width, 110)).print(table)


if __name__ == "__main__":
    main()
