"""Answers are streamed as they are computed, in bounded memory on both sides."""

from __future__ import annotations

import threading
import time

import numpy as np
import psutil
import pytest

from exactline.rpc.client.sync import Client
from tests.rpc.server_process import ServerProcess, wait_until

MIB = 1 << 20


class PeakMemory:
    """Measures the largest memory of some processes during a block."""

    def __init__(self, *processes: psutil.Process) -> None:
        self.processes, self.peak = processes, 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> PeakMemory:
        self.start = self._measure()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def increase(self) -> int:
        return max(0, self.peak - self.start)

    def _measure(self) -> int:
        total = 0
        for process in self.processes:
            try:
                total += process.memory_full_info().uss
            except psutil.NoSuchProcess:
                continue
        return total

    def _watch(self) -> None:
        while not self._done.wait(0.2):
            self.peak = max(self.peak, self._measure())


@pytest.mark.parametrize("depth", [15, pytest.param(20, marks=pytest.mark.slow)])
def test_a_million_breaks_are_streamed_in_bounded_memory(server: ServerProcess, depth: int):
    """The breaks of a tent map are known, 48 bytes each: none is missing, and no process ever holds them all."""
    with Client(server.address) as client:
        client.restrict("tent4", [0.0], [1.0])
        wait_until(lambda: client.stats().workers == 2)
        before, count, first = _seconds_by_worker(server), 0, 0.0
        with (
            PeakMemory(server.process) as front_end,
            PeakMemory(psutil.Process()) as here,
            PeakMemory(*server.workers()) as workers,
        ):
            for part in client.sweep(f"tent{depth}", [0.0], [1.0], memory=MIB if depth < 20 else 4 * MIB):
                if not count:
                    first = _seconds_since(server, before)
                alphas = part.alphas.numpy()
                number = np.arange(count, count + len(alphas))
                assert np.array_equal(alphas, number / 2**depth)
                assert np.array_equal(part.values[:, 0].numpy(), number % 2)
                count += len(alphas) - 1
        total = _seconds_since(server, before)
    assert count == 2**depth
    peaks = {"client": here, "server": front_end, "workers": workers}
    print(f"{count + 1:,} breaks; the first part after {first:.2f} of {total:.2f} s of work; MiB more than before:")
    print(", ".join(f"{name} {peak.increase / MIB:.0f}" for name, peak in peaks.items()))
    assert first < total if depth < 20 else first <= total / 2  # the first part arrived before the last was computed
    assert front_end.increase < 32 * MIB  # the answer has 48 MiB
    assert here.increase < 32 * MIB
    assert workers.increase < 96 * MIB


def test_a_client_that_does_not_read_makes_the_worker_wait(server: ServerProcess):
    """What is not read is not computed: the worker waits until the client reads on."""
    with Client(server.address) as client:
        wait_until(lambda: client.stats().workers == 2)
        parts = client.sweep("tent30", [0.0], [1.0], memory=4 * MIB)
        next(parts)
        wait_until(lambda: _worker_seconds(server) == _worker_seconds(server, 0.3))
        before = _worker_seconds(server)
        assert client.stats().busy == 1
        while _worker_seconds(server) == before:  # buffered parts are read first
            next(parts)
        parts.close()
        wait_until(lambda: client.stats().busy == 0)


def _worker_seconds(server: ServerProcess, after: float = 0.0) -> float:
    """Return the processor seconds of the workers."""
    time.sleep(after)
    return sum(_seconds_by_worker(server).values())


def _seconds_by_worker(server: ServerProcess) -> dict[int, float]:
    """Return the processor seconds of each worker by its process's number."""
    return {worker.pid: worker.cpu_times().user for worker in server.workers()}


def _seconds_since(server: ServerProcess, before: dict[int, float]) -> float:
    """Return the processor seconds of the workers since then; one that a cancelled call ends may be replaced."""
    return sum(seconds - before.get(pid, 0.0) for pid, seconds in _seconds_by_worker(server).items())
