"""What the first call on a published architecture costs beyond a later one, each in a process of its own.

    python benchmarks/captures.py [NAME ...]

"first call" is the time that the first call of a process takes beyond a later one: the capture, the plans of both
engines, and whatever torch imports for them. "by torch.export" is that time where the module is traced by torch.export,
as one is that calls other functions than the common ones; "exporter" is the part of it in which torch imports its
exporter and traces a first linear layer. Processor time of one thread; the network is in float64, at 64 x 64 pixels.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import torch
from architectures import ARCHITECTURES, build, input_size
from timing import Clock, table
from torch import nn

import exactline as xl
from exactline.network import capture

MOST = 3.0  # seconds that a first call may take
COLUMNS = ("network", "first call, s", "at most", "by torch.export, s", "of it exporter, s")


def measure(name: str, exports: bool) -> tuple[float, float]:
    """Seconds of the first call beyond a later one, and of torch's exporter, in this process."""
    torch.set_num_threads(1)
    clock = Clock(processor=True)
    size = input_size(name)
    model, point = build(name).double(), torch.zeros(3, size, size, dtype=torch.float64)
    laps = [clock()]
    if exports:
        capture.read_calls = lambda *_: None
        torch.export.export(nn.Linear(2, 2), (torch.zeros(1, 2),))
    laps.append(clock())
    for _ in range(2):
        xl.restrict(model, point, point)
        laps.append(clock())
    start, exporter, first, later = laps
    return (first - start) - (later - first), exporter - start


def measure_apart(name: str, way: str) -> tuple[float, float]:
    """Seconds of the first call beyond a later one, and of torch's exporter, in a new process."""
    command = [sys.executable, __file__, way, name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    call, exporter = map(float, done.stdout.split())
    return call, exporter


def main() -> None:
    """Measure the architectures asked for: each row as it comes, and one table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(ARCHITECTURES), metavar="NAME")
    parser.add_argument("--here", metavar="NAME", help="measure one architecture in this process")
    parser.add_argument("--exported-here", metavar="NAME", help="the same, traced by torch.export")
    options = parser.parse_args()
    if options.here or options.exported_here:
        print(*measure(options.here or options.exported_here, bool(options.exported_here)))
        return
    rows = list[list[str]]()
    for name in options.names:
        call, _ = measure_apart(name, "--here")
        exported, exporter = measure_apart(name, "--exported-here")
        rows.append([name, f"{call:.2f}", f"{MOST:g}", f"{exported:.2f}", f"{exporter:.2f}"])
        print(*rows[-1], sep="\t", flush=True)
    print(table(COLUMNS, rows))


if __name__ == "__main__":
    main()
