"""What the service costs above the library: the same 100 lines through a client on loopback, in one run.

    python benchmarks/serve.py

The lines are the paper's 100 distance lines. With EXACTLINE_DATA the networks are ACAS Xu 1_1 and 2_3; without, a
random network of their shape. Every time is the best of several runs after a warm-up; calls that are compared take
turns. Library and worker have one thread each. The last column is what all processes together compute more than the
library, on average: on a busy machine it tells more than the clock does.
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
from exactline.network import Network
from exactline.rpc.client.sync import Client
from exactline.rpc.server.log import Log
from exactline.rpc.server.server import Server, Settings

MOST = 0.010  # seconds above the library
RUNS = 25
LINES = 100
HEAD = ("network", "breaks", "KiB", "library, s", "client, s", "above, ms", "at most, ms", "processor above, ms")


def main() -> None:
    """One row for each network."""
    torch.set_num_threads(1)
    starts, ends = distances(LINES, 5)
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        known = networks()
        for place, network in enumerate(known.values()):
            network.save(Path(folder) / f"{place}.onnx")
        settings = Settings(port=0, models=Path(folder), workers=1, threads=1)
        with Server(settings, Log(io.StringIO())) as server, Client(server.address) as client:
            for place, name in enumerate(known):
                scale = 1.0 if name.startswith("ACAS") else 1e-3  # of feet, for a network that knows none
                local = xl.load(Path(folder) / f"{place}.onnx")
                rows.append([name, *_measured(server, client, str(place), local, (starts * scale, ends * scale))])
    print(f"{LINES} lines in one call, torch {torch.__version__}, one thread, {RUNS} runs")
    print(table(HEAD, rows))


def _measured(server: Server, client: Client, name: str, network: Network, ends: tuple[Tensor, Tensor]) -> list[str]:
    found = client.restrict_many(name, *ends)
    if not torch.equal(found.alphas, xl.restrict_many(network, *ends).alphas):
        raise SystemExit("the service answers otherwise than the library")
    values = found.breaks.values or ()
    size = sum(
        t.numel() * t.element_size() for t in (found.alphas, found.breaks.origins, found.breaks.ambiguous, *values)
    )
    calls = [lambda: xl.restrict_many(network, *ends), lambda: client.restrict_many(name, *ends)]
    library, service = best(calls, RUNS)
    (worker,) = map(psutil.Process, server.pool.stats().pids)
    spent: list[float] = []
    for call in calls:
        began = process_time() + sum(worker.cpu_times()[:2])
        for _ in range(RUNS):
            call()
        spent.append((process_time() + sum(worker.cpu_times()[:2]) - began) / RUNS)
    return [
        f"{len(found.alphas):,}",
        f"{size / 1024:,.0f}",
        f"{library:.4f}",
        f"{service:.4f}",
        f"{1000 * (service - library):.1f}",
        f"{1000 * MOST:.0f}",
        f"{1000 * (spent[1] - spent[0]):.1f}",
    ]


if __name__ == "__main__":
    main()
