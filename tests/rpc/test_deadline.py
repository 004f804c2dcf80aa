"""Deadlines and cancellations stop the work, not only the answer."""

from __future__ import annotations

import statistics
import threading
import time

import numpy as np
import psutil
import pytest

from exactline.errors import LimitError
from exactline.rpc.client.sync import Client
from tests.rpc import legacy_client
from tests.rpc import legacy_wire as wire
from tests.rpc.legacy_networks import float32_normal
from tests.rpc.server_process import ServerProcess, wait_until

DEADLINE_SECONDS = 0.2
MAX_RELEASE_SECONDS = 5.0  # after the deadline, on a loaded machine; the jobs would take many minutes
SMALL_MEMORY = 1 << 20  # bytes of a sweep, so that its first part comes soon


def test_a_deadline_on_a_long_job_frees_its_worker(server: ServerProcess):
    """Five jobs of many minutes with a deadline of 200 ms."""
    delays = []
    with Client(server.address) as watcher, Client(server.address, timeout=DEADLINE_SECONDS) as client:
        watcher.restrict("tent4", [0.0], [1.0])
        for _ in range(5):
            wait_until(lambda: watcher.stats().workers == 2)
            before = set(watcher.stats().pids)
            began = time.monotonic()
            with pytest.raises(LimitError, match="deadline"):
                client.restrict("tent30", [0.0], [1.0])
            wait_until(lambda: any(not psutil.pid_exists(pid) for pid in before))  # noqa: B023
            delays.append(time.monotonic() - began - DEADLINE_SECONDS)
            wait_until(lambda: watcher.stats().busy == 0)
    print(f"workers end {', '.join(f'{delay * 1000:.0f}' for delay in delays)} ms after a deadline of 200 ms")
    assert statistics.median(delays) < MAX_RELEASE_SECONDS


def test_a_deadline_holds_in_the_legacy_protocol(server: ServerProcess):
    rng = np.random.default_rng(1)
    layers = [wire.dense(float32_normal(rng, 2, 256), float32_normal(rng, 256)), wire.relu()]
    for _ in range(14):
        layers += [wire.dense(float32_normal(rng, 256, 256), float32_normal(rng, 256)), wire.relu()]
    messages = [*map(wire.layer, layers), wire.plane(wire.polytope(100 * float32_normal(rng, 3, 2)), dims=2)]
    with Client(server.address) as watcher:
        code, _ = legacy_client.failure(server.address, messages, timeout=0.6)
        assert code.name == "DEADLINE_EXCEEDED"
        wait_until(lambda: watcher.stats().busy == 0 and watcher.stats().in_flight == 1)  # the call that asks


def test_a_deadline_holds_in_the_queue(server: ServerProcess):
    """Both workers run long jobs; a call that waits for one fails at its deadline."""
    done = threading.Event()

    def hog() -> None:
        with Client(server.address, timeout=120) as client:
            for _ in client.sweep("tent30", [0.0], [1.0], memory=SMALL_MEMORY):
                if done.is_set():
                    return

    hogs = [threading.Thread(target=hog) for _ in range(2)]
    for thread in hogs:
        thread.start()
    with Client(server.address) as watcher, Client(server.address, timeout=DEADLINE_SECONDS) as client:
        wait_until(lambda: watcher.stats().busy == 2)
        began = time.monotonic()
        with pytest.raises(LimitError):
            client.restrict("tent4", [0.0], [1.0])
        assert time.monotonic() - began < DEADLINE_SECONDS + MAX_RELEASE_SECONDS
        wait_until(lambda: watcher.stats().queued == 0)
        assert watcher.stats().busy == 2
        done.set()
        for thread in hogs:
            thread.join()
        wait_until(lambda: watcher.stats().busy == 0 and watcher.stats().workers == 2)


def test_closing_a_sweep_ends_its_work(server: ServerProcess):
    with Client(server.address) as client:
        wait_until(lambda: client.stats().workers == 2)
        parts = client.sweep("tent30", [0.0], [1.0], memory=SMALL_MEMORY)
        assert float(next(parts).alphas[0]) == 0.0
        parts.close()
        wait_until(lambda: client.stats().busy == 0)


def test_a_client_that_does_not_read_is_ended_by_its_deadline(server: ServerProcess):
    """It reads one part and then nothing: the worker waits, and is released at the deadline."""
    with Client(server.address) as watcher, Client(server.address, timeout=5.0) as client:
        parts = client.sweep("tent30", [0.0], [1.0], memory=SMALL_MEMORY)
        next(parts)
        wait_until(lambda: watcher.stats().busy == 0, 20)  # sooner than write_seconds
        with pytest.raises(LimitError):
            list(parts)
