"""Published architectures at their real input size: restriction and exact gradients against plain forward passes.

    python benchmarks/real_lines.py [NAME ...] [--device cuda] [--size 224] [--noise 0.01] [--max-breaks N]
                                    [--seconds 60] [--gradients]

The line adds noise to an image of noise; with `--noise 0` it runs from black to that image. Everything is in float64.
"forwards" is the ratio of a restriction to the model itself, in batches, at as many points; "gradients" the time of
exact integrated gradients of one class along the same line. A GPU is waited for, a CPU counts processor time of one
thread; first calls (capture) are apart.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from architectures import ARCHITECTURES, build, input_size
from timing import Clock, table
from torch import Tensor, nn

import exactline as xl

COLUMNS = ("network", "pieces", "first call, s", "restrict, s", "forward, s", "forwards", "gradients, s", "how")
BATCH, FORWARD_BATCHES = 64, 4


def line_of(size: int, noise: float, device: str) -> tuple[Tensor, Tensor]:
    """The end points of a line: an image of noise with more noise, or black to that image."""
    random = torch.Generator().manual_seed(1)
    image = torch.rand(3, size, size, generator=random, dtype=torch.float64)
    moved = image + noise * torch.randn(image.shape, generator=random, dtype=torch.float64)
    start, end = (image, moved) if noise else (torch.zeros_like(image), image)
    return start.to(device), end.to(device)


def seconds_per_point(model: nn.Module, point: Tensor, clock: Clock, batch_size: int = BATCH) -> float:
    """Seconds of the model's own forward pass at one of many points."""
    batch = point.expand(batch_size, *point.shape).contiguous()
    with torch.no_grad():
        model(batch)
        began = clock()
        for _ in range(FORWARD_BATCHES):
            model(batch)
    return (clock() - began) / (FORWARD_BATCHES * batch_size)


def measure(name: str, options: argparse.Namespace) -> list[str]:
    """One row of the table."""
    clock = Clock(options.device, processor=options.device == "cpu")
    size = input_size(name, options.size)
    model = build(name, size=size).double().to(options.device)
    start, end = line_of(size, options.noise, options.device)
    limits: dict[str, Any] = {"seconds": options.seconds, "max_breaks": options.max_breaks}

    def timed(call: Any) -> tuple[float, Any]:
        began = clock()
        answer = call()
        return clock() - began, answer

    first, _ = timed(lambda: xl.restrict(model, start, torch.lerp(start, end, 0.01), max_breaks=50))
    took, line = timed(lambda: xl.restrict(model, start, end, **limits))
    forward = seconds_per_point(model, start, clock, BATCH if options.device != "cpu" else 16) * len(line.alphas)
    ratio = f"{took / forward:.2f}" if forward else "-"  # no break may have been found in time
    gradients = "-"
    if options.gradients and len(line.alphas):
        reached = torch.lerp(start, end, float(line.alphas[-1]))
        explain = xl.attr.IntegratedGradients(model)
        spent, _ = timed(lambda: explain.attribute(reached[None], baselines=start[None], target=0))
        gradients = f"{spent:.1f}"
    numbers = [f"{len(line):,}", f"{first:.1f}", f"{took:.2f}", f"{forward:.2f}", ratio, gradients]
    return [name, *numbers, line.engine.partition(";")[2].strip(" )") or line.engine]


def main() -> None:
    """Measure the architectures asked for: each row as it comes, and one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(ARCHITECTURES), metavar="NAME")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--noise", type=float, default=0.01)
    parser.add_argument("--max-breaks", type=int)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--gradients", action="store_true")
    options = parser.parse_args()
    if options.device == "cpu":
        torch.set_num_threads(1)
    rows = list[list[str]]()
    for name in options.names:
        rows.append(measure(name, options))
        print(*rows[-1], sep="\t", flush=True)
    print(table(COLUMNS, rows))


if __name__ == "__main__":
    main()
