"""The overhead of the service: the legacy protocol, small calls of its own, and one call with many lines.

    python benchmarks/serve.py

The server runs in processes of its own with one worker (two for small calls); everything has one thread. All times of a
row are taken in one run, in turn, and each is the best of several; ratios hardly depend on how busy the machine is.

* Legacy protocol: messages made beforehand are sent in one call. Its time is compared with the library's own time for
  the same lines swept together plus that of a plain echo of the same messages by a server that does nothing else:
  at most twice that sum.
* Small calls: the processor time of one call, front and worker together, divided by the library's: at most 2, for
  1, 8 and 32 clients; the 99th percentile of the latency is at most four times the median.
* Many lines in one call, through a client: at most 10 ms beyond the library's time.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import psutil
import torch
from decisions import networks
from shapes import distances
from timing import best, table

import exactline as xl
from exactline.formats import load_network
from exactline.network import Network
from exactline.rpc.client import requests
from exactline.rpc.client.sync import Client
from exactline.rpc.legacy.transform import TransformSession
from exactline.rpc.limits import Limits
from exactline.rpc.server.front import END
from exactline.rpc.server.log import Log
from exactline.rpc.server.server import Server, Settings

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.rpc import legacy_wire as wire

RUNS = 5
MAX_RATIO = 2.0
MAX_OVERHEAD_SECONDS = 0.010
MANY_LINES = 100
ROUNDS, ROUND_CALLS = 8, 96  # of small calls
MAX_REGIONS = 3785  # that are classified, as many as the paper's tool was measured with
CHANNEL_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def main() -> None:
    """Print one table for each kind of call."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        by_name = networks()
        for i, network in enumerate(by_name.values()):
            network.save(Path(folder) / f"{i}.onnx")
        print(f"torch {torch.__version__}, one thread, best of {RUNS}")
        with start_process(_serve, folder, 1) as (address, _), start_process(_echo) as (echo, _):
            rows = [[name, *_measure_legacy(address, echo, *call)] for name, call in legacy_calls().items()]
            print("\nlegacy protocol; the ratio is at most", MAX_RATIO)
            print(table(("call", "messages", "library, s", "echo, s", "service, s", "ratio"), rows))
            rows = [[name, *_measure_many(address, str(i), Path(folder))] for i, name in enumerate(by_name)]
            print(f"\n{MANY_LINES} lines in one call; at most {1000 * MAX_OVERHEAD_SECONDS:.0f} ms overhead")
            print(table(("network", "library, s", "client, s", "overhead, ms"), rows))
        with start_process(_serve, folder, 2) as (address, server):
            rows = [_measure_small(address, server, Path(folder), clients) for clients in (1, 8, 32)]
            headings = ("clients", "library, ms", "front, ms", "workers, ms", "ratio", "calls/s", "p50, ms", "p99, ms")
            print("\nsmall calls, one line each; the ratio of processor times is at most", MAX_RATIO)
            print(table((*headings, "p99 / p50"), rows))


@contextmanager
def start_process(run: Callable[..., None], *arguments: Any) -> Generator[tuple[str, psutil.Process]]:
    """Run a server in a process of its own; yields its address and the process."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=run, args=(theirs, *arguments))
    process.start()
    try:
        yield ours.recv(), psutil.Process(process.pid)
    finally:
        ours.send(None)
        process.join()


def _serve(pipe: Any, folder: str, workers: int) -> None:
    with (
        Path("/dev/null").open("w") as log,
        Server(Settings(port=0, models=Path(folder), workers=workers, threads=1), Log(log)) as server,
    ):
        pipe.send(server.address)
        pipe.recv()


def _echo(pipe: Any) -> None:
    """Send every message back: what no server in this language can be faster than."""
    import asyncio

    async def answer(_: Any, context: Any) -> None:
        while (message := await context.read()) is not END:
            await context.write(message)

    async def run() -> None:
        server = grpc.aio.server(options=CHANNEL_OPTIONS)
        handler = grpc.stream_stream_rpc_method_handler(answer)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("echo.Echo", {"Echo": handler}),))
        pipe.send(f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}")
        await server.start()
        await asyncio.to_thread(pipe.recv)
        await server.stop(0)

    asyncio.run(run())


def legacy_calls() -> dict[str, tuple[list[bytes], list[bytes]]]:
    """Return the layers and the queries of calls: those that the paper's tool was measured with."""
    rng = np.random.default_rng(0)
    acas, mnist = _dense_layers(rng, 5, *[50] * 6, 5), _dense_layers(rng, 784, *[256] * 4, 10)
    triangle = rng.normal(size=(3, 5)).astype(np.float32)
    plane = wire.plane(wire.polytope(triangle), dims=5)
    session = TransformSession(Limits())
    whole: Any = wire.decode_response(next(session.answer([*map(wire.layer, acas), plane]))[1])
    regions = [wire.plane(wire.polytope(values, shares), dims=5) for values, shares in whole.pieces[:MAX_REGIONS]]
    return {
        "100 lines, ACAS shape": (acas, _lines(rng, 5, 100)),
        "10 lines, ACAS shape": (acas, _lines(rng, 5, 10)),
        "100 classified lines": ([*acas, wire.argmax()], _lines(rng, 5, 100)),
        "10 lines, 784-256x4": (mnist, _lines(rng, 784, 10)),
        "3 lines, 784-1024x4": (_dense_layers(rng, 784, *[1024] * 4, 10), _lines(rng, 784, 3)),
        "a triangle, ACAS shape": (acas, [plane]),
        f"{len(regions):,} regions classified": ([wire.argmax()], regions),
    }


def _dense_layers(rng: np.random.Generator, *sizes: int) -> list[bytes]:
    layers: list[bytes] = []
    for i, (n, m) in enumerate(pairwise(sizes)):
        layers += [wire.relu()] if i else []
        layers.append(wire.dense(rng.normal(size=(n, m)) / n**0.5, 0.1 * rng.normal(size=m)))
    return layers


def _lines(rng: np.random.Generator, size: int, count: int) -> list[bytes]:
    return [wire.line(*rng.normal(size=(2, size))) for _ in range(count)]


def _measure_legacy(address: str, echo: str, layers: list[bytes], queries: list[bytes]) -> list[str]:
    """Measure one call; the library's time is that of its own functions on the parsed messages."""
    prepared = TransformSession(Limits())
    list(prepared.answer([*map(wire.layer, layers), queries[0]]))
    parsed = [q for i, m in enumerate(queries) if (q := prepared.read_message(i, m)) is not None]
    messages = [*map(wire.layer, layers), *queries]

    def call(target: str, path: str) -> list[bytes]:
        with grpc.insecure_channel(target, CHANNEL_OPTIONS) as channel:  # clients open a channel for every call
            return list(channel.stream_stream(path)(iter(messages)))

    answers = call(address, wire.METHOD)
    if len(answers) != len(queries):
        raise SystemExit("the service gave another number of answers")
    compute = lambda: prepared.compute(parsed)  # noqa: E731
    library, echoed, service = best(
        [compute, lambda: call(echo, "/echo.Echo/Echo"), lambda: call(address, wire.METHOD)], RUNS
    )
    ratio = service / (library + echoed)
    return [f"{len(messages):,}", *(f"{t:.4f}" for t in (library, echoed, service)), f"{ratio:.2f}"]


def _measure_many(address: str, name: str, folder: Path) -> list[str]:
    """Measure many lines in one call."""
    starts, ends = (1e-3 * side for side in distances(MANY_LINES, 5))
    network = load_network(folder / f"{name}.onnx")
    with Client(address) as client:
        found = client.restrict_many(name, starts, ends)
        if not torch.equal(found.alphas, xl.restrict_many(network, starts, ends).alphas):
            raise SystemExit("the service and the library give different answers")
        library, service = best(
            [
                lambda: xl.restrict_many(network, starts, ends),
                lambda: client.restrict_many(name, starts, ends),
            ],
            RUNS,
        )
    return [f"{library:.4f}", f"{service:.4f}", f"{1000 * (service - library):.1f}"]


def _measure_small(address: str, server: psutil.Process, folder: Path, clients: int) -> list[str]:
    """Measure calls with one line each from several clients at once, in turn with the library."""
    start, end = (1e-3 * side[0] for side in distances(2, 5))
    network, data = load_network(folder / "0.onnx"), requests.restrict("0", start, end).data
    processes = [server, *(worker for child in server.children() for worker in child.children())]
    seconds: list[float] = []

    def run(channel: grpc.Channel, calls: int) -> None:
        method: Any = channel.unary_stream("/exactline.v1.Exactline/Restrict")
        for _ in range(calls):
            began = time.perf_counter()
            list(method(data))
            seconds.append(time.perf_counter() - began)

    channels = [grpc.insecure_channel(address, [("number", n), *CHANNEL_OPTIONS]) for n in range(clients)]
    for channel in channels:
        run(channel, max(1, 32 // clients))
    seconds.clear()
    library, used, wall = [], [], 0.0
    for _ in range(ROUNDS):
        library.append(_library_milliseconds(network, start, end))
        cpu, began = _cpu_milliseconds(processes), time.perf_counter()
        threads = [threading.Thread(target=run, args=(channel, ROUND_CALLS // clients)) for channel in channels]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wall += time.perf_counter() - began
        used.append((_cpu_milliseconds(processes) - cpu) / (ROUND_CALLS // clients * clients))
    for channel in channels:
        channel.close()
    least = used[int(np.argmin([sum(entry) for entry in used]))]
    p50, p99 = 1000 * np.percentile(seconds, [50, 99])
    return [
        str(clients),
        *(f"{value:.2f}" for value in (min(library), least[0], sum(least[1:]), sum(least) / min(library))),
        *(f"{value:.0f}" for value in (len(seconds) / wall, p50, p99)),
        f"{p99 / p50:.1f}",
    ]


def _cpu_milliseconds(processes: list[psutil.Process]) -> Any:
    """Return the processor time of each process, (processes,)."""
    return np.array([1000 * sum(process.cpu_times()[:2]) for process in processes])


def _library_milliseconds(network: Network, start: Any, end: Any) -> float:
    """Return the processor time of the same line in the library."""
    began = time.process_time()
    for _ in range(ROUND_CALLS // 4):
        xl.restrict(network, start, end)
    return 1000 * (time.process_time() - began) / (ROUND_CALLS // 4)


if __name__ == "__main__":
    main()
