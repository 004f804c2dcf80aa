"""The overhead of the service: 100 lines in one call, through a client on loopback and in the library.

    python benchmarks/serve.py

The lines are the paper's 100 distance lines. With EXACTLINE_DATA the networks are ACAS Xu 1_1 and 2_3; without it, a
random network of their shape. Every time is the best of several runs after a warm-up; the calls alternate. Library and
worker have one thread each. The last column is the processor time of all processes beyond that of the library, on
average: on a busy machine it is more reliable than the clock.
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from time import process_time

import psutil
import torch
from decisions import networks
from shapes import distances
from timing import best, table
from torch import Tensor

import exactline as xl
from exactline.formats import load_network
from exactline.network import Network
from exactline.rpc.client.sync import Client
from exactline.rpc.server.log import Log
from exactline.rpc.server.server import Server, Settings

MAX_OVERHEAD_SECONDS = 0.010
RUNS = 25
LINES = 100
HEADINGS = (
    *("network", "breaks", "KiB", "library, s", "client, s"),
    *("overhead, ms", "allowed, ms", "processor overhead, ms"),
)


def main() -> None:
    """Print a table with one row for each network."""
    torch.set_num_threads(1)
    starts, ends = distances(LINES, 5)
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        by_name = networks()
        for i, network in enumerate(by_name.values()):
            network.save(Path(folder) / f"{i}.onnx")
        settings = Settings(port=0, models=Path(folder), workers=1, threads=1)
        with Server(settings, Log(io.StringIO())) as server, Client(server.address) as client:
            for i, name in enumerate(by_name):
                scale = 1.0 if name.startswith("ACAS") else 1e-3  # the random network has no units of feet
                local = load_network(Path(folder) / f"{i}.onnx")
                rows.append([name, *_measure(server, client, str(i), local, (starts * scale, ends * scale))])
    print(f"{LINES} lines in one call, torch {torch.__version__}, one thread, {RUNS} runs")
    print(table(HEADINGS, rows))


def _measure(server: Server, client: Client, name: str, network: Network, ends: tuple[Tensor, Tensor]) -> list[str]:
    """Measure one network; returns its row of the table without the name."""
    found = client.restrict_many(name, *ends)
    if not torch.equal(found.alphas, xl.restrict_many(network, *ends).alphas):
        raise SystemExit("the service and the library give different answers")
    values = found.breaks.values or ()
    size = sum(
        t.numel() * t.element_size() for t in (found.alphas, found.breaks.origins, found.breaks.ambiguous, *values)
    )
    calls = [lambda: xl.restrict_many(network, *ends), lambda: client.restrict_many(name, *ends)]
    library, service = best(calls, RUNS)
    (worker,) = map(psutil.Process, server.pool.stats().pids)
    processor_seconds: list[float] = []
    for call in calls:
        began = process_time() + sum(worker.cpu_times()[:2])
        for _ in range(RUNS):
            call()
        processor_seconds.append((process_time() + sum(worker.cpu_times()[:2]) - began) / RUNS)
    return [
        f"{len(found.alphas):,}",
        f"{size / 1024:,.0f}",
        f"{library:.4f}",
        f"{service:.4f}",
        f"{1000 * (service - library):.1f}",
        f"{1000 * MAX_OVERHEAD_SECONDS:.0f}",
        f"{1000 * (processor_seconds[1] - processor_seconds[0]):.1f}",
    ]


if __name__ == "__main__":
    main()
