"""What the first call on a published architecture costs beyond a later one, each in a process of its own.

    python benchmarks/captures.py [NAME ...]

"exporter" is the time in which torch imports its exporter and traces a first linear layer, which is torch's own and
passes once in a process; "capture" that of the capture and the plans of both engines; "together" what the first call
of a process costs beyond a later one. Processor time of one thread; the network is in float64, at 64 x 64 pixels.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from itertools import pairwise

import torch
from architectures import ARCHITECTURES, build, input_size
from timing import Clock, table
from torch import nn

import exactline as xl

MOST = 3.0  # seconds that a capture may take
COLUMNS = ("network", "exporter, s", "capture, s", "together, s", "at most")


def measure(name: str) -> tuple[float, float]:
    """Seconds of torch's exporter and of the capture, in this process."""
    torch.set_num_threads(1)
    clock = Clock(processor=True)
    size = input_size(name)
    model, point = build(name).double(), torch.zeros(3, size, size, dtype=torch.float64)
    laps = [clock()]
    torch.export.export(nn.Linear(2, 2), (torch.zeros(1, 2),))
    laps.append(clock())
    for _ in range(2):
        xl.restrict(model, point, point)
        laps.append(clock())
    exporter, first, later = (after - before for before, after in pairwise(laps))
    return exporter, first - later


def measure_apart(name: str) -> tuple[float, float]:
    """Seconds of torch's exporter and of the capture, in a new process."""
    command = [sys.executable, __file__, "--here", name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    exporter, capture = map(float, done.stdout.split())
    return exporter, capture


def main() -> None:
    """Measure the architectures asked for: each row as it comes, and one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(ARCHITECTURES), metavar="NAME")
    parser.add_argument("--here", metavar="NAME", help="measure one architecture in this process")
    options = parser.parse_args()
    if options.here:
        print(*measure(options.here))
        return
    rows = list[list[str]]()
    for name in options.names:
        exporter, capture = measure_apart(name)
        rows.append([name, *(f"{s:.2f}" for s in (exporter, capture, exporter + capture)), f"{MOST:g}"])
        print(*rows[-1], sep="\t", flush=True)
    print(table(COLUMNS, rows))


if __name__ == "__main__":
    main()
