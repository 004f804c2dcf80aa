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
from tests.rpc import raw, wire
from tests.rpc.old_networks import small
from tests.rpc.running import Running, until

DEADLINE = 0.2
FREED = 0.5  # seconds after the deadline
SOON = 1 << 20  # bytes of a sweep whose first part comes soon


def test_a_deadline_on_a_long_job_frees_its_worker(server: Running):
    """200 ms on a job of many minutes; how long its worker lives on, five times."""
    lives = []
    with Client(server.address) as watcher, Client(server.address, timeout=DEADLINE) as client:
        watcher.restrict("tent4", [0.0], [1.0])
        for _ in range(5):
            until(lambda: watcher.stats().workers == 2)
            before = set(watcher.stats().pids)
            began = time.monotonic()
            with pytest.raises(LimitError, match=r"deadline|longer than it may"):
                client.restrict("tent30", [0.0], [1.0])
            until(lambda: any(not psutil.pid_exists(pid) for pid in before), 10)  # noqa: B023
            lives.append(time.monotonic() - began - DEADLINE)
            until(lambda: watcher.stats().busy == 0, 10)
    print(f"workers live on {', '.join(f'{life * 1000:.0f}' for life in lives)} ms after a deadline of 200 ms")
    assert statistics.median(lives) < FREED


def test_a_deadline_in_the_old_protocol_too(server: Running):
    rng = np.random.default_rng(1)
    layers = [wire.dense(small(rng, 2, 256), small(rng, 256)), wire.relu()]
    for _ in range(14):
        layers += [wire.dense(small(rng, 256, 256), small(rng, 256)), wire.relu()]
    messages = [*map(wire.layer, layers), wire.plane(wire.polytope(100 * small(rng, 3, 2)), dims=2)]
    with Client(server.address) as watcher:
        code, _ = raw.refusal(server.address, messages, timeout=0.6)
        ended = time.monotonic()
        assert code.name == "DEADLINE_EXCEEDED"
        until(lambda: watcher.stats().busy == 0 and watcher.stats().in_flight == 1, 10)  # its own call is one
        assert time.monotonic() - ended < 4 * FREED


def test_a_deadline_holds_in_the_queue_too(server: Running):
    """Both workers are at long jobs; who waits for one is told in time, and waits no longer."""
    done = threading.Event()

    def hog() -> None:
        with Client(server.address, timeout=30) as client:
            for _ in client.sweep("tent30", [0.0], [1.0], memory=SOON):
                if done.is_set():
                    return

    hogs = [threading.Thread(target=hog) for _ in range(2)]
    for thread in hogs:
        thread.start()
    with Client(server.address) as watcher, Client(server.address, timeout=DEADLINE) as client:
        until(lambda: watcher.stats().busy == 2)
        began = time.monotonic()
        with pytest.raises(LimitError):
            client.restrict("tent4", [0.0], [1.0])
        assert time.monotonic() - began < DEADLINE + FREED
        until(lambda: watcher.stats().queued == 0, 2)
        assert watcher.stats().busy == 2
        done.set()
        for thread in hogs:
            thread.join()
        until(lambda: watcher.stats().busy == 0 and watcher.stats().workers == 2, 10)


def test_a_sweep_that_is_closed_ends_its_work(server: Running):
    with Client(server.address) as client:
        until(lambda: client.stats().workers == 2)
        parts = client.sweep("tent30", [0.0], [1.0], memory=SOON)
        assert float(next(parts).alphas[0]) == 0.0
        parts.close()
        began = time.monotonic()
        until(lambda: client.stats().busy == 0, 10)
        assert time.monotonic() - began < 4 * FREED


def test_a_client_that_does_not_read_is_ended_by_its_deadline(server: Running):
    """It takes one part and then nothing: the worker waits for it, and is freed when the time is over."""
    with Client(server.address) as watcher, Client(server.address, timeout=3.0) as client:
        parts = client.sweep("tent30", [0.0], [1.0], memory=SOON)
        next(parts)
        until(lambda: watcher.stats().busy == 0, 10)
        with pytest.raises(LimitError):
            list(parts)
