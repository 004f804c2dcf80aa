"""Published architectures end to end: the cost of a restriction, and the share of it that error estimates take.

    python benchmarks/shares.py [NAME ...] [--statistics random|batch|both] [--lines short|long|both] [--draws 3]

A short line moves every pixel by 0.001 of noise; a long one connects two images of noise and is ended after 600 breaks.
Of each kind several are drawn, since what ties on one line may not on another; a row has the smallest and the largest
figure. Processor time of one thread, after a first call, which captures and plans. "forwards" is the ratio to the model
itself in float64, in batches of 16, at as many points; "fixed cost" that of a line without breaks to the model at one
point. "error estimates" is the share of everything that only rounding makes necessary: error estimates with the values
they need, the filter's thresholds, refinement of values near a knot, decisions on ties, and counts of ambiguous units.
It leaves out values that the sweep uses as well. A row is printed as soon as its network is measured.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pkgutil import resolve_name
from typing import Any
from unittest.mock import patch

import torch
from architectures import ARCHITECTURES, build, input_size
from torch import Tensor, nn

import exactline as xl
from exactline.network import Network, as_network

MAX_BREAKS = 600
FORWARD_POINTS, FORWARD_BATCH = 32, 16
REPEATS = 3  # of lines that take less than a second: their median counts
# The error model, as functions by module and name; what they call counts with them.
ERROR_MODEL = (
    "numerics.point_errors:PointErrors.__init__",
    "numerics.point_errors:PointErrors.advance_to",
    "numerics.point_errors:PointErrors.select",
    "numerics.point_errors:PointErrors.drop_first",
    "numerics.point_errors:PointErrors.insert",
    "numerics.static_filter:StaticFilter.threshold",
    "engines.dense.error_model:PointErrorBounds.__init__",
    "engines.dense.error_model:PointErrorBounds.bound",
    "ops.pointwise:_Values.snap",
    "ops.pointwise:_Values.find_ambiguous",
    "ops.maximum:Maximum._find_ambiguous",
    "ops.maximum:Maximum._find_ties",
    "ops.window_lines:_refine_ties",
    "engines.patches.error_oracle:ErrorOracle.sample",
    "engines.patches.error_oracle:ErrorOracle.end_bounds",
    "engines.patches.error_oracle:ErrorOracle.margins_by_pixel",
    "engines.patches.error_oracle:ErrorOracle.classify",
    "engines.patches.error_oracle:ErrorOracle.refine",
    "engines.patches.error_oracle:ErrorOracle.require_clear_at",
    "engines.patches.pointwise:refine_sides",
    "engines.patches.maxpool:_MaximumEvaluation._refine_leaders",
    "engines.patches.ties:TieResolver.place",
    "engines.patches.ties:TieResolver.check_drift",
    "engines.ambiguity:_PieceErrors.__init__",
    "engines.ambiguity:_PieceErrors.find",
    "engines.ambiguity:_PieceErrors.count",
)
SHARED_VALUES = ("numerics.point_errors:PointErrors._evaluate_kept",)  # computed for the sweep as well
HEAD = ("network", "statistics", "line", "pieces", "seconds", "forwards", "fixed cost", "error estimates", "how")


class Stopwatch:
    """The processor time spent in functions; calls of one inside another count once."""

    def __init__(self) -> None:
        self.spent, self.depth, self.began = 0.0, 0, 0.0

    def measured(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with its time counted."""

        def call(*args: Any, **keywords: Any) -> Any:
            if not self.depth:
                self.began = time.process_time()
            self.depth += 1
            try:
                return function(*args, **keywords)
            finally:
                self.depth -= 1
                if not self.depth:
                    self.spent += time.process_time() - self.began

        return call


@contextmanager
def time_in(functions: tuple[str, ...]) -> Generator[Stopwatch]:
    """Count the time spent in methods and functions, given by module and name."""
    stopwatch, patches = Stopwatch(), list[Any]()
    for function in functions:
        module, _, path = function.partition(":")
        names = path.split(".")
        owner, name = resolve_name(f"exactline.{module}:{'.'.join(names[:-1])}"), names[-1]
        measured = stopwatch.measured(getattr(owner, name))
        is_static = isinstance(vars(owner)[name], staticmethod)
        patches.append(patch.object(owner, name, staticmethod(measured) if is_static else measured))
    for one in patches:
        one.start()
    try:
        yield stopwatch
    finally:
        for one in patches:
            one.stop()


def line_of(kind: str, size: int, draw: int = 0) -> tuple[Tensor, Tensor]:
    """The end points of a line."""
    random = torch.Generator().manual_seed(1 + draw)
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


def fixed_cost(model: nn.Module, network: Network, start: Tensor) -> float:
    """The cost of a line without breaks, in forward passes at one point."""
    noise = torch.randn(start.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    times = list[float]()
    for _ in range(5):
        began = time.process_time()
        xl.restrict(network, start, start + 1e-7 * noise)
        times.append(time.process_time() - began)
    return min(times) / min(seconds_per_point(model, start, 1) for _ in range(3))


def restrict(network: Network, start: Tensor, end: Tensor, seconds: float) -> tuple[float, float, xl.Restriction]:
    """Processor time of a restriction, the share of its error estimates, and the line."""
    began = time.process_time()
    with time_in(ERROR_MODEL) as estimates, time_in(SHARED_VALUES) as values:
        line = xl.restrict(network, start, end, max_breaks=MAX_BREAKS, seconds=seconds)
    took = time.process_time() - began
    return took, (estimates.spent - values.spent) / took, line


def measure(name: str, statistics: str, kinds: list[str], options: argparse.Namespace) -> Iterator[list[str]]:
    """The rows of one network."""
    model = build(name, statistics).double()
    start = line_of("short", input_size(name))[0]
    network = as_network(model, [start])
    fixed = fixed_cost(model, network, start)
    for kind in kinds:
        start, end = line_of(kind, input_size(name))
        for share, engine in ((0.1, "dense"), (1e-4, "patches")):  # they plan
            xl.restrict(network, start, start + share * (end - start), engine=engine, max_breaks=20)
        drawn = [measure_line(model, network, kind, draw, options.seconds) for draw in range(options.draws)]
        pieces, seconds, forwards, shares, engines = zip(*drawn, strict=True)
        cells = [span(pieces, ",d"), span(seconds, ".2f"), span(forwards, ".2f"), f"{fixed:.0f}", span(shares, ".0%")]
        yield [name, statistics, kind, *cells, " / ".join(dict.fromkeys(engines))]


def measure_line(
    model: nn.Module, network: Network, kind: str, draw: int, seconds: float
) -> tuple[int, float, float, float, str]:
    """Pieces, seconds and forwards of one line, the share of error estimates, and what chose the engine."""
    start, end = line_of(kind, network.nodes[network.inputs[0]].shape[-1], draw)
    forwards = [seconds_per_point(model, start)]
    found = [restrict(network, start, end, seconds)]
    while found[0][0] < 1.0 and len(found) < REPEATS:
        found.append(restrict(network, start, end, seconds))
    forwards += [seconds_per_point(model, start) for _ in range(2)]
    took, share, line = sorted(found, key=lambda f: f[0])[len(found) // 2]
    ratio = took / (sorted(forwards)[1] * len(line.alphas))
    engine = line.engine.partition(";")[2].strip(" )") or line.engine
    return len(line), took, ratio, share, engine


def span(numbers: Sequence[float], form: str) -> str:
    """The smallest and the largest number, or one if they look alike."""
    return " to ".join(dict.fromkeys(format(n, form) for n in (min(numbers), max(numbers))))


def main() -> None:
    """Measure the architectures asked for and print one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(ARCHITECTURES), metavar="NAME")
    parser.add_argument("--statistics", choices=("random", "batch", "both"), default="both")
    parser.add_argument("--lines", choices=("short", "long", "both"), default="both")
    parser.add_argument("--draws", type=int, default=3, help="lines of each kind")
    parser.add_argument("--seconds", type=float, default=1200.0, help="for each line")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}", flush=True)
    for name in options.names:
        for statistics in ("random", "batch") if options.statistics == "both" else (options.statistics,):
            kinds = ["long", "short"] if options.lines == "both" else [options.lines]
            for row in measure(name, statistics, kinds, options):
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
