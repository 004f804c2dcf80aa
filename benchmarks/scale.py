"""Many lines on one and on two Ray workers: rates and their ratio, bytes stored, and the driver's time.

    python benchmarks/scale.py                  # rates, ratios and sizes
    python benchmarks/scale.py --costs FILE     # also the seconds of each batch, for scripts/simulate_scale.py

With EXACTLINE_DATA the network is ACAS Xu 1_1; without, a random one of its shape. The runs with one and with two
workers alternate; the machine should have two idle cores.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from shapes import acas, acas_shape
from torch import Tensor

import exactline as xl
from exactline.lines import Lines
from exactline.network import Network, as_network
from exactline.scale.jobs import Job

LINES = 20_000
ROUNDS = 3
MIN_SPEEDUP = 1.6  # of two workers over one
BATCH_LINES = 128
MAX_BATCHES = 100  # whose cost is measured


def make_example() -> tuple[str, Network, Tensor, Tensor]:
    """The name of the network, the network, and the starts and ends of the lines."""
    generator = torch.Generator().manual_seed(0)
    starts, ends = torch.rand(2, LINES, 5, dtype=torch.float64, generator=generator) - 0.5
    torch.manual_seed(0)
    network = acas("1_1")
    if network is not None:
        low = torch.tensor([0.0, -3.14, -3.14, 100.0, 0.0], dtype=torch.float64)
        high = torch.tensor([60_000.0, 3.14, 3.14, 1200.0, 1200.0], dtype=torch.float64)
        starts, ends = (low + (side + 0.5) * (high - low) for side in (starts, ends))
        return "ACAS Xu 1_1", network, starts, ends
    # ends so far apart that a line has about as many breaks as one through an ACAS Xu network
    return "5-50x6-5, random", as_network(acas_shape().eval(), [torch.zeros(5)]), 8 * starts, 8 * ends


def measure_run(
    network: Network, starts: Tensor, ends: Tensor, folder: Path, **options: Any
) -> tuple[float, float, int]:
    """Lines per second from the first finished task to the last, seconds of the driver, and bytes stored."""
    seen: list[tuple[float, int]] = []
    began = time.process_time()
    store = xl.scale.run(
        network,
        zip(starts, ends, strict=True),
        out=folder,
        progress=lambda now: seen.append((time.perf_counter(), now.done)),
        **options,
    )
    spent = time.process_time() - began
    size = sum(record.file.bytes for record in store.index.records.values())
    shutil.rmtree(folder)
    (first, before), (last, after) = seen[0], seen[-1]
    return (after - before) / (last - first), spent, size


def main() -> None:
    """Print a table of rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--costs", type=Path, help="a file for the measured costs, as JSON")
    arguments = parser.parse_args()
    name, network, starts, ends = make_example()
    torch.set_num_threads(1)
    table = Table(title=f"{LINES:,} lines, {name}, torch {torch.__version__}", title_justify="left")
    for column in ("backend", "lines per second", "driver, s", "MB stored"):
        table.add_column(column, justify="left" if column == "backend" else "right")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "store"
        found = {"local": [measure_run(network, starts, ends, folder)]}
        for workers in ray_workers():
            found.setdefault(f"Ray, {workers}", []).append(
                measure_run(network, starts, ends, folder, backend="ray", workers=workers)
            )
    best = {key: max(rows) for key, rows in found.items()}
    for key, (rate, spent, size) in best.items():
        table.add_row(key, f"{rate:,.0f}", f"{spent:.2f}", f"{size / 1e6:.1f}")
    console = Console(width=max(Console().width, 110))
    console.print(table)
    console.print(f"two workers over one: {best['Ray, 2'][0] / best['Ray, 1'][0]:.2f}, at least {MIN_SPEEDUP}")
    if arguments.costs is not None:
        arguments.costs.write_text(json.dumps(measure_costs(network, starts, ends)))


def ray_workers() -> Iterator[int]:
    """One worker and two in turn, on a cluster of two."""
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        for _ in range(ROUNDS):
            yield from (1, 2)
    finally:
        ray.shutdown()


def measure_costs(network: Network, starts: Tensor, ends: Tensor) -> dict[str, Any]:
    """Processor seconds and lengths of single batches, as a worker computes them."""
    job, rows = Job("restrict"), list[dict[str, float]]()
    for first in range(0, min(len(starts), BATCH_LINES * MAX_BATCHES), BATCH_LINES):
        part = slice(first, first + BATCH_LINES)
        lines = Lines((starts[part],), (ends[part],))
        began = time.process_time()
        breaks = job.compute(network, lines).breaks
        spent = time.process_time() - began
        length = float(torch.linalg.vector_norm(ends[part] - starts[part], dim=1).sum())
        rows.append({"seconds": spent, "length": length, "breaks": breaks, "lines": len(lines)})
    return {"block": BATCH_LINES, "rows": rows}


if __name__ == "__main__":
    main()
