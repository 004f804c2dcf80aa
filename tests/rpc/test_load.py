"""Load tests: many clients, some calls malformed, some cancelled; no wrong answer and no leak."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pytest

from exactline.rpc.client.models import ServerStats
from exactline.rpc.client.sync import Client
from tests.rpc.client_threads import ClientThreads
from tests.rpc.mixed_calls import MixedCalls
from tests.rpc.server_process import ServerProcess, start_server, wait_until

MIB = 1 << 20
CLIENTS = 32


class LoadTest(ClientThreads):
    """Clients in threads, each with its own connection, and the seconds that their calls take."""

    max_join_seconds = 120.0

    def __init__(self, server: ServerProcess, calls: MixedCalls, clients: int) -> None:
        super().__init__(clients)
        self.server, self.calls = server, calls
        self.outcomes: Counter[str] = Counter()
        self.seconds: list[float] = []

    def run_client(self, number: int) -> None:
        chance = random.Random(number)
        with Client(self.server.address, timeout=120) as client:
            while not self.done.is_set():
                began = time.monotonic()
                try:
                    outcome = self.calls.run_one(client, chance)
                except Exception as problem:  # noqa: BLE001 the test reports it
                    outcome = f"{type(problem).__name__}: {problem}"
                with self.lock:
                    self.outcomes[outcome] += 1
                    if outcome == "right":
                        self.seconds.append(time.monotonic() - began)


def unexpected_outcomes(load: LoadTest) -> dict[str, int]:
    expected = ("right", "refused", "cancelled")
    return {outcome: count for outcome, count in load.outcomes.items() if outcome not in expected}


def measure_resources(server: ServerProcess) -> tuple[float, float, int]:
    """Return the MiB of all processes together, shared pages once, those of the server alone, and its open files."""
    total = 0
    for process in (server.process, *server.children()):
        try:
            total += process.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return total / MIB, server.process.memory_full_info().uss / MIB, server.process.num_fds()


@pytest.mark.slow
def test_four_clients_for_a_few_seconds(server: ServerProcess, folder: Path):
    """All kinds of calls of the long test occur, and no other outcome."""
    calls = MixedCalls(folder)
    with LoadTest(server, calls, 4) as load:
        wait_until(lambda: load.outcomes["right"] > 20 and load.outcomes["refused"] and load.outcomes["cancelled"])
    assert unexpected_outcomes(load) == {}
    with Client(server.address) as client:
        wait_until(lambda: client.stats().busy == 0 and client.stats().workers == 2)


@pytest.mark.slow
def test_thirty_two_clients_for_five_minutes(folder: Path, tmp_path: Path):
    seconds = float(os.environ.get("EXACTLINE_LOAD_SECONDS", "300"))
    calls = MixedCalls(folder)
    samples: list[tuple[float, float, float, int]] = []
    with start_server(models=folder, temporary=tmp_path) as server:
        began = time.monotonic()
        with LoadTest(server, calls, CLIENTS) as load:
            while (now := time.monotonic() - began) < seconds:
                samples.append((now, *measure_resources(server)))
                time.sleep(min(2.0, seconds / 50))
        with Client(server.address) as client:
            wait_until(lambda: client.stats().busy == 0 and client.stats().workers == 2)
            stats = client.stats()
            first = np.array([row[1:] for row in samples if 0.4 * seconds <= row[0] < 0.55 * seconds])
            last = np.array([row[1:] for row in samples if row[0] >= 0.85 * seconds])
            print(_summarize(load, seconds, np.median(first, 0), np.median(last, 0), stats))
            wait_until(lambda: client.stats().in_flight == 1)
        wait_until(lambda: len(server.children()) == 3)  # the fork server and two workers
        assert list(tmp_path.iterdir()) == []  # no temporary file
        everyone = server.children()
    wait_until(lambda: not any(process.is_running() for process in everyone))
    grown = np.median(last, 0) / np.median(first, 0)
    total = sum(load.outcomes.values())
    assert unexpected_outcomes(load) == {}
    assert load.outcomes["refused"] > 0.05 * total
    assert load.outcomes["cancelled"] > 0.02 * total
    assert abs(grown[0] - 1) < 0.1
    assert grown[1] < 1.1
    assert stats.workers_died == 0


def _summarize(load: LoadTest, seconds: float, first: np.ndarray, last: np.ndarray, stats: ServerStats) -> str:
    total = sum(load.outcomes.values())
    p50, p99 = np.percentile(load.seconds, [50, 99]) * 1000
    return (
        f"\n{CLIENTS} clients, {seconds:.0f} s: {total:,} calls, {total / seconds:.1f} a second, {dict(load.outcomes)};"
        f" p50 {p50:.0f} ms, p99 {p99:.0f} ms; memory {first[0]:.0f} MiB then {last[0]:.0f}, the server's own"
        f" {first[1]:.0f} then {last[1]:.0f}, open files {first[2]:.0f} then {last[2]:.0f};"
        f" {stats.workers_killed} workers killed, {stats.workers_died} died, {stats.calls_retried} calls retried"
    )
