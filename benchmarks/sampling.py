"""captum's error on published architectures, with as many steps as fit into the time of exact integrated gradients.

    python benchmarks/sampling.py [NAME ...] [--max-breaks 600]

The line connects two images of noise and ends after the given number of breaks, halfway to the next one. Weights and
inputs are in float32, as scripts have them. Processor time of one thread, of calls after a first one. Errors are
relative, in the sum of absolute differences; captum uses its default rule.
"""

from __future__ import annotations

import argparse
from typing import Any

import captum.attr
import torch
from architectures import ARCHITECTURES, build, input_size
from shares import line_of
from timing import Clock, table
from torch import Tensor

import exactline as xl

TARGET = 0
STEPS = 50  # captum's default
BATCH = 16  # captum's internal_batch_size
WARM_UP = 1e-3  # of the line, for the capture
COLUMNS = ("network", "pieces", "exact, s", "captum 50, s", "error of 50", "steps in the same time", "their error")


def measure(name: str, max_breaks: int) -> list[str]:
    """One row of the table."""
    clock = Clock(processor=True)
    model = build(name)
    start, end = (side.float() for side in line_of("long", input_size(name)))
    last_breaks = xl.restrict(model, start, end, max_breaks=max_breaks + 1).alphas[-2:]
    end = torch.lerp(start, end, float(last_breaks.mean()))
    exact, sampled = xl.attr.IntegratedGradients(model), captum.attr.IntegratedGradients(model)

    def timed(method: Any, inputs: Tensor, **options: Any) -> tuple[float, Tensor]:
        began = clock()
        found = method.attribute(inputs[None], start[None], target=TARGET, **options)
        return clock() - began, found.detach()

    timed(exact, torch.lerp(start, end, WARM_UP))
    seconds, truth = timed(exact, end)
    timed(sampled, end, n_steps=BATCH)
    default_seconds, default = timed(sampled, end, n_steps=STEPS, internal_batch_size=BATCH)
    steps = max(1, round(seconds / default_seconds * STEPS))
    _, same_time = timed(sampled, end, n_steps=steps, internal_batch_size=BATCH)
    errors = [float((found - truth).abs().sum() / truth.abs().sum()) for found in (default, same_time)]
    if exact.report is None:
        raise RuntimeError("an attribution leaves no report")
    numbers = [f"{exact.report.pieces:,}", f"{seconds:.2f}", f"{default_seconds:.2f}", f"{errors[0]:.1e}"]
    return [name, *numbers, f"{steps:,}", f"{errors[1]:.1e}"]


def main() -> None:
    """Measure the architectures asked for: each row as it comes, and one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(ARCHITECTURES), metavar="NAME")
    parser.add_argument("--max-breaks", type=int, default=600)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = list[list[str]]()
    for name in options.names:
        rows.append(measure(name, options.max_breaks))
        print(*rows[-1], sep="\t", flush=True)
    print(table(COLUMNS, rows))


if __name__ == "__main__":
    main()
