"""Thirty-two clients for minutes on end, some malformed, some cancelled: no wrong answer, nothing leaks."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pytest

from exactline.rpc.client.sync import Client
from exactline.rpc.client.upload import Stats
from tests.rpc.load import Calls
from tests.rpc.running import Running, running, until
from tests.rpc.threads import Threads

MIB = 1 << 20
CLIENTS = 32


class Crowd(Threads):
    """Clients, each a thread with a connection of its own, and how long their calls take."""

    patience = 120.0

    def __init__(self, server: Running, calls: Calls, clients: int) -> None:
        super().__init__(clients)
        self.server, self.calls = server, calls
        self.seen: Counter[str] = Counter()
        self.seconds: list[float] = []

    def live(self, number: int) -> None:
        chance = random.Random(number)
        with Client(self.server.address, timeout=120) as client:
            while not self.done.is_set():
                began = time.monotonic()
                try:
                    what = self.calls.ask(client, chance)
                except Exception as problem:  # noqa: BLE001 whatever it is, it should not be
                    what = f"{type(problem).__name__}: {problem}"
                with self.counting:
                    self.seen[what] += 1
                    if what == "right":
                        self.seconds.append(time.monotonic() - began)


def trouble(crowd: Crowd) -> dict[str, int]:
    return {what: count for what, count in crowd.seen.items() if what not in ("right", "refused", "cancelled")}


def held(server: Running) -> tuple[float, float, int]:
    """MiB of all processes together (shared pages once), of the server's own, and its open files."""
    total = 0
    for process in (server.process, *server.children()):
        try:
            total += process.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return total / MIB, server.process.memory_full_info().uss / MIB, server.process.num_fds()


@pytest.mark.slow
def test_a_crowd_for_a_few_seconds(server: Running, folder: Path):
    """The slow test's calls, once through: right, refused and cancelled ones all occur, and nothing else."""
    calls = Calls(folder)
    with Crowd(server, calls, 4) as crowd:
        until(lambda: crowd.seen["right"] > 20 and crowd.seen["refused"] and crowd.seen["cancelled"])
    assert trouble(crowd) == {}
    with Client(server.address) as client:
        until(lambda: client.stats().busy == 0 and client.stats().workers == 2)


@pytest.mark.slow
def test_thirty_two_clients_for_five_minutes(folder: Path, tmp_path: Path):
    seconds = float(os.environ.get("EXACTLINE_LOAD_SECONDS", "300"))
    calls = Calls(folder)
    samples: list[tuple[float, float, float, int]] = []
    with running(models=folder, temporary=tmp_path) as server:
        began = time.monotonic()
        with Crowd(server, calls, CLIENTS) as crowd:
            while (now := time.monotonic() - began) < seconds:
                samples.append((now, *held(server)))
                time.sleep(min(2.0, seconds / 50))
        with Client(server.address) as client:
            until(lambda: client.stats().busy == 0 and client.stats().workers == 2)
            stats = client.stats()
            first = np.array([row[1:] for row in samples if 0.4 * seconds <= row[0] < 0.55 * seconds])
            last = np.array([row[1:] for row in samples if row[0] >= 0.85 * seconds])
            print(_told(crowd, seconds, np.median(first, 0), np.median(last, 0), stats))
            until(lambda: client.stats().in_flight == 1, 10)
        until(lambda: len(server.children()) == 3, 10)  # what forks, and two workers
        assert list(tmp_path.iterdir()) == []  # no temporary file
        everyone = server.children()
    until(lambda: not any(process.is_running() for process in everyone), 10)
    grown = np.median(last, 0) / np.median(first, 0)
    total = sum(crowd.seen.values())
    assert trouble(crowd) == {}
    assert crowd.seen["refused"] > 0.05 * total
    assert crowd.seen["cancelled"] > 0.02 * total
    assert abs(grown[0] - 1) < 0.1
    assert grown[1] < 1.1
    assert stats.workers_died == 0


def _told(crowd: Crowd, seconds: float, first: np.ndarray, last: np.ndarray, stats: Stats) -> str:
    total = sum(crowd.seen.values())
    p50, p99 = np.percentile(crowd.seconds, [50, 99]) * 1000
    return (
        f"\n{CLIENTS} clients, {seconds:.0f} s: {total:,} calls, {total / seconds:.1f} a second, {dict(crowd.seen)};"
        f" p50 {p50:.0f} ms, p99 {p99:.0f} ms; memory {first[0]:.0f} MiB then {last[0]:.0f}, the server's own"
        f" {first[1]:.0f} then {last[1]:.0f}, open files {first[2]:.0f} then {last[2]:.0f};"
        f" {stats.workers_killed} workers killed, {stats.workers_died} died, {stats.calls_retried} calls done again"
    )
