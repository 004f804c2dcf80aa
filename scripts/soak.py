"""Run the service under load for some minutes: mixed, malformed, slow and cancelled calls, and killed workers.

python scripts/soak.py                          # 32 clients, 600 seconds, 50 workers killed
python scripts/soak.py --seconds 180 --kills 15

Every answer is compared with the library's. It ends with status 1 if an answer is wrong, a call ends in a way that it
should not, memory or open files grow, or a client waits for minutes while others are answered.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import grpc
import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))
from exactline.rpc.client.sync import Client
from tests.rpc import legacy_wire as wire
from tests.rpc.client_threads import ClientThreads
from tests.rpc.mixed_calls import MixedCalls
from tests.rpc.nnet_files import write_nnet_files
from tests.rpc.server_process import ServerProcess, start_server, wait_until

MIB = 1 << 20
SLOW_SHARE = 0.04  # of all calls
EXPECTED = ("right", "refused", "cancelled", "slow", "lost")
MAX_GROWTH = 1.15  # of memory, from the middle of the run to its end
MAX_WAIT_SECONDS = 120.0  # for any one call


class Soak(ClientThreads):
    """Clients in threads, each with its own connection."""

    max_join_seconds = 180.0

    def __init__(self, server: ServerProcess, calls: MixedCalls, clients: int) -> None:
        super().__init__(clients)
        self.server, self.calls = server, calls
        self.outcomes: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.calls_by_client: Counter[int] = Counter()

    def run_client(self, number: int) -> None:
        """Make random calls until the end."""
        chance = random.Random(number)
        with Client(self.server.address, timeout=300) as client:
            while not self.done.is_set():
                began = time.monotonic()
                try:
                    slow = chance.random() < SLOW_SHARE
                    outcome = self._call_slowly(client, chance) if slow else self.calls.run_one(client, chance)
                except Exception as problem:  # noqa: BLE001 the report shows it
                    lost = "worker that ran this job was lost" in str(problem)
                    outcome = "lost" if lost else f"{type(problem).__name__}: {problem}"
                with self.lock:
                    self.outcomes[outcome] += 1
                    if outcome == "right":
                        self.seconds.append(time.monotonic() - began)
                        self.calls_by_client[number] += 1

    def _call_slowly(self, client: Client, chance: random.Random) -> str:
        """Send nothing for a while, or read slowly."""
        if chance.random() < 0.5:
            with grpc.insecure_channel(client.connection.target) as channel:
                call = channel.stream_stream(wire.METHOD)(iter(threading.Event().wait, None), timeout=1.0)
                with contextlib.suppress(grpc.RpcError):
                    next(call)
                return "slow" if call.code() == grpc.StatusCode.DEADLINE_EXCEEDED else f"silent, and {call.code()}"
        pieces = 0
        for part in client.sweep("tent15", [0.0], [1.0], memory=1 << 22):
            pieces += len(part)
            time.sleep(0.05)
        return "slow" if pieces == 2**15 else "wrong answer: a slow sweep"


def main() -> None:
    """Run, print a summary, and end with status 1 if something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--kills", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models = write_nnet_files(Path(folder))
        with start_server(models=models) as server:
            problems = _run(server, MixedCalls(models), options)
            children = server.children()
        if any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children):
            problems.append("a process is left over")
    print("no problem" if not problems else "\n".join(problems))
    raise SystemExit(bool(problems))


def _run(server: ServerProcess, calls: MixedCalls, options: argparse.Namespace) -> list[str]:
    samples: list[tuple[float, float, float, int]] = []
    chance, kills, began = random.Random(0), 0, time.monotonic()
    with Soak(server, calls, options.clients) as soak:
        while (now := time.monotonic() - began) < options.seconds:
            samples.append((now, *_measure(server)))
            if now > (kills + 0.5) * options.seconds / options.kills and kills < options.kills:
                kills += _kill_worker(server, chance)
            time.sleep(min(1.0, options.seconds / 100))
    with Client(server.address) as client:
        wait_until(lambda: client.stats().busy == 0 and client.stats().workers == 2 and client.stats().in_flight == 1)
        stats = client.stats()
    first = np.median([row[1:] for row in samples if 0.4 * options.seconds <= row[0] < 0.55 * options.seconds], 0)
    last = np.median([row[1:] for row in samples if row[0] >= 0.85 * options.seconds], 0)
    total, (p50, p99) = sum(soak.outcomes.values()), np.percentile(soak.seconds, [50, 99])
    least, most = min(soak.calls_by_client.values()), max(soak.calls_by_client.values())
    print(
        f"{options.clients} clients, {options.seconds:.0f} s, {kills} workers killed: {total:,} calls,"
        f" {total / options.seconds:.1f} a second\noutcomes: {dict(soak.outcomes)}\n"
        f"p50 {1000 * p50:.0f} ms, p99 {1000 * p99:.0f} ms, longest {max(soak.seconds):.1f} s;"
        f" right answers of one client: {least} to {most}\n"
        f"memory of all processes {first[0]:.0f} MiB, then {last[0]:.0f};"
        f" of the front {first[1]:.0f}, then {last[1]:.0f}; open files {first[2]:.0f}, then {last[2]:.0f}\n"
        f"workers forked {stats.workers_forked}, killed {stats.workers_killed}, died {stats.workers_died};"
        f" calls retried {stats.calls_retried}"
    )
    unexpected = {outcome: count for outcome, count in soak.outcomes.items() if outcome not in EXPECTED}
    checks = {
        f"unexpected outcomes: {unexpected}": bool(unexpected),
        "more calls were lost than workers killed": soak.outcomes["lost"] > kills,
        "memory grows": last[0] > MAX_GROWTH * first[0] or last[1] > MAX_GROWTH * first[1],
        "open files grow": last[2] > first[2] + 2 * options.clients,
        "a call waited too long": max(soak.seconds) > MAX_WAIT_SECONDS,
        "a client was starved": least < most / 4 or len(soak.calls_by_client) < options.clients,
        "too few workers were killed": kills < options.kills,
    }
    return [problem for problem, is_wrong in checks.items() if is_wrong]


def _measure(server: ServerProcess) -> tuple[float, float, int]:
    """Return the MiB of all processes, shared pages once, those of the front, and its open files."""
    total = 0
    for process in (server.process, *server.children()):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.memory_full_info().pss
    return total / MIB, server.process.memory_full_info().uss / MIB, server.process.num_fds()


def _kill_worker(server: ServerProcess, chance: random.Random) -> bool:
    workers = server.workers()
    if not workers:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(chance.choice(workers).pid, signal.SIGKILL)
        return True
    return False


if __name__ == "__main__":
    main()
