"""Published architectures end to end: the cost of a restriction, and the share of it that error estimates take.

    python benchmarks/shares.py [NAME ...] [--statistics random|batch] [--lines short|long] [--seconds 120]

A short line moves every pixel by 0.001 of noise; a long one connects two images of noise and is ended after 600 breaks.
Processor time of one thread, without the capture. "forwards" is the ratio to the model itself in float64, in batches of
16, at as many points; "fixed cost" that of a line without breaks to the model at one point.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from typing import Any

import torch
from architectures import ARCHITECTURES, build, input_size
from timing import table
from torch import Tensor, nn

import exactline as xl
from exactline.network import as_network

Stats = dict[tuple[str, int, str], tuple[int, int, float, float, Any]]  # file, line, name: calls, own, cumulative time

MAX_BREAKS = 600
FORWARD_POINTS, FORWARD_BATCH = 32, 16
ERROR_ESTIMATES = {  # functions by file
    "point_errors.py": {"advance_to"},
    "error_oracle.py": {"require_clear_at"},
}
SHARED_VALUES = {"point_errors.py": {"_evaluate_kept"}}  # values that error estimates compute for the sweep


def line_of(kind: str, size: int) -> tuple[Tensor, Tensor]:
    """The end points of a line."""
    random = torch.Generator().manual_seed(1)
    start, noise = (torch.rand(3, size, size, generator=random, dtype=torch.float64) for _ in range(2))
    return start, noise if kind == "long" else start + 0.001 * (noise - 0.5)


def seconds_per_point(model: nn.Module, point: Tensor, batch_size: int = FORWARD_BATCH) -> float:
    """Processor time of the model's own forward pass."""
    batch = point.expand(batch_size, *point.shape).contiguous()
    with torch.no_grad():
        model(batch)
        began = time.process_time()
        for _ in range(FORWARD_POINTS // batch_size):
            model(batch)
    return (time.process_time() - began) / FORWARD_POINTS


def fixed_cost(model: nn.Module, start: Tensor) -> float:
    """The cost of a line without breaks, in forward passes at one point."""
    noise = torch.randn(start.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    network, times = as_network(model, [start]), list[float]()
    for _ in range(5):
        began = time.process_time()
        xl.restrict(network, start, start + 1e-7 * noise)
        times.append(time.process_time() - began)
    return min(times) / min(seconds_per_point(model, start, 1) for _ in range(3))


def profile(model: nn.Module, start: Tensor, end: Tensor, **options: Any) -> tuple[float, Stats, xl.Restriction]:
    """Restrict a model; returns the processor time, the time of every function, and the line."""
    profiler = cProfile.Profile(time.process_time)
    began = time.process_time()
    line = profiler.runcall(xl.restrict, model, start, end, **options)
    took = time.process_time() - began
    return took, pstats.Stats(profiler).stats, line  # pyright: ignore[reportAttributeAccessIssue]


def spent_in(stats: Stats, functions: dict[str, set[str]]) -> float:
    """The time spent in functions, given by file."""
    return sum(
        cumulative
        for (path, _, function), (_, _, _, cumulative, _) in stats.items()
        if function in functions.get(path.rpartition("/")[2], ())
    )


def measure(name: str, statistics: str, kind: str, seconds: float) -> list[str]:
    """One row of the table."""
    model = build(name, statistics).double()
    start, end = line_of(kind, input_size(name))
    xl.restrict(model, start, start + 0.1 * (end - start), max_breaks=20, seconds=seconds)  # captures
    began = time.process_time()
    line = xl.restrict(model, start, end, max_breaks=MAX_BREAKS, seconds=seconds)
    took = time.process_time() - began
    ratio = took / (seconds_per_point(model, start) * len(line.alphas))
    total, stats, _ = profile(model, start, end, max_breaks=MAX_BREAKS, seconds=seconds)
    share = (spent_in(stats, ERROR_ESTIMATES) - spent_in(stats, SHARED_VALUES)) / total
    fixed = fixed_cost(model, start)
    cells = [f"{len(line):,}", f"{took:.1f}", f"{ratio:.2f}", f"{fixed:.0f}", f"{share:.0%}"]
    return [name, *cells, line.engine.partition(";")[2].strip(" )") or line.engine]


def main() -> None:
    """Measure the architectures asked for and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(ARCHITECTURES), metavar="NAME")
    parser.add_argument("--statistics", choices=("random", "batch"), default="random")
    parser.add_argument("--lines", choices=("short", "long"), default="short")
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    columns = ("network", "pieces", "seconds", "forwards", "fixed cost", "error estimates", "how")
    rows = [measure(name, options.statistics, options.lines, options.seconds) for name in options.names]
    print(table(columns, rows))


if __name__ == "__main__":
    main()
