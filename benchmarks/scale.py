"""Many lines on one worker of Ray and on two, as a ratio in one run; what the store costs, and the driver.

    python benchmarks/scale.py                  # rates, ratios and sizes
    python benchmarks/scale.py --costs FILE     # the seconds of each block too, for scripts/simulate_scale.py

With EXACTLINE_DATA the network is ACAS Xu 1_1; without, a random one of its shape. The two runs on Ray take turns,
on workers that have computed something before; the machine should have two idle cores.
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
LEAST = 1.6  # times the rate of one worker


def given() -> tuple[str, Network, Tensor, Tensor]:
    """The network, and both ends of the lines."""
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


def timed(network: Network, starts: Tensor, ends: Tensor, folder: Path, **options: Any) -> tuple[float, float, int]:
    """Lines a second from the first batch that is back to the last, seconds of the driver itself, and bytes stored."""
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
    """A table of rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--costs", type=Path, help="write measured costs here, as JSON")
    wish = parser.parse_args()
    name, network, starts, ends = given()
    torch.set_num_threads(1)
    table = Table(title=f"{LINES:,} lines, {name}, torch {torch.__version__}", title_justify="left")
    for column in ("engine", "lines a second", "driver, s", "MB stored"):
        table.add_column(column, justify="left" if column == "engine" else "right")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "store"
        found = {"local": [timed(network, starts, ends, folder)]}
        for workers in on_ray():
            found.setdefault(f"Ray, {workers}", []).append(
                timed(network, starts, ends, folder, engine="ray", workers=workers)
            )
    best = {key: max(rows) for key, rows in found.items()}
    for key, (rate, spent, size) in best.items():
        table.add_row(key, f"{rate:,.0f}", f"{spent:.2f}", f"{size / 1e6:.1f}")
    console = Console(width=max(Console().width, 110))
    console.print(table)
    console.print(f"two workers over one: {best['Ray, 2'][0] / best['Ray, 1'][0]:.2f}, at least {LEAST}")
    if wish.costs is not None:
        wish.costs.write_text(json.dumps(costs(network, starts, ends)))


def on_ray() -> Iterator[int]:
    """One worker and two by turns, on a cluster of two."""
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        for _ in range(ROUNDS):
            yield from (1, 2)
    finally:
        ray.shutdown()


def costs(network: Network, starts: Tensor, ends: Tensor, block: int = 128, most: int = 100) -> dict[str, Any]:
    """Processor seconds and lengths of single blocks, as a worker meets them."""
    job, rows = Job("restrict"), list[dict[str, float]]()
    for first in range(0, min(len(starts), block * most), block):
        part = slice(first, first + block)
        lines = Lines((starts[part],), (ends[part],))
        began = time.process_time()
        _, breaks, _ = job.compute(network, lines)
        spent = time.process_time() - began
        length = float(torch.linalg.vector_norm(ends[part] - starts[part], dim=1).sum())
        rows.append({"seconds": spent, "length": length, "breaks": breaks, "lines": len(lines)})
    return {"block": block, "rows": rows}


if __name__ == "__main__":
    main()
