"""Answers come as they are found, in bounded memory on both sides."""

from __future__ import annotations

import threading
import time

import numpy as np
import psutil
import pytest

from exactline.rpc.client.sync import Client
from tests.rpc.running import Running, until

MIB = 1 << 20


class Peak:
    """The largest memory of some processes while it runs."""

    def __init__(self, *processes: psutil.Process) -> None:
        self.processes, self.most = processes, 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Peak:
        self.start = self._now()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    @property
    def more(self) -> int:
        return max(0, self.most - self.start)

    def _now(self) -> int:
        total = 0
        for process in self.processes:
            try:
                total += process.memory_full_info().uss
            except psutil.NoSuchProcess:
                continue
        return total

    def _watch(self) -> None:
        while not self._done.wait(0.2):
            self.most = max(self.most, self._now())


@pytest.mark.parametrize("depth", [15, pytest.param(20, marks=pytest.mark.slow)])
def test_a_million_breaks_stream_through_in_bounded_memory(server: Running, depth: int):
    """A tent's breaks are known, 48 bytes each; none is missing, and nobody ever holds them all."""
    with Client(server.address) as client:
        client.restrict("tent4", [0.0], [1.0])
        until(lambda: client.stats().workers == 2)
        base, count, first = _spent(server), 0, 0.0
        with Peak(server.process) as middle, Peak(psutil.Process()) as here, Peak(*server.workers()) as there:
            for part in client.sweep(f"tent{depth}", [0.0], [1.0], memory=MIB if depth < 20 else 4 * MIB):
                if not count:
                    first = _spent(server) - base
                alphas = part.alphas.numpy()
                number = np.arange(count, count + len(alphas))
                assert np.array_equal(alphas, number / 2**depth)
                assert np.array_equal(part.values[:, 0].numpy(), number % 2)
                count += len(alphas) - 1
        total = _spent(server) - base
    assert count == 2**depth
    peaks = {"client": here, "server": middle, "workers": there}
    print(
        f"{count + 1:,} breaks; at the first part {first:.2f} of {total:.2f} s of work were done; MiB more than before:"
    )
    print(", ".join(f"{name} {peak.more / MIB:.0f}" for name, peak in peaks.items()))
    assert first < total if depth < 20 else first <= total / 2  # the first part came before the last was computed
    assert middle.more < 32 * MIB  # the answer has 48 MiB
    assert here.more < 32 * MIB
    assert there.more < 96 * MIB


def test_a_client_that_does_not_read_makes_the_worker_wait(server: Running):
    """What is not read is not computed: the worker stands still, and goes on when somebody reads."""
    with Client(server.address) as client:
        until(lambda: client.stats().workers == 2)
        parts = client.sweep("tent30", [0.0], [1.0], memory=4 * MIB)
        next(parts)
        until(lambda: _spent(server) == _spent(server, 0.3), 20)
        before = _spent(server)
        assert client.stats().busy == 1
        while _spent(server) == before:  # what was on its way is read first
            next(parts)
        parts.close()
        until(lambda: client.stats().busy == 0, 10)


def _spent(server: Running, after: float = 0.0) -> float:
    """Seconds of processor time of the workers there are."""
    time.sleep(after)
    return sum(worker.cpu_times().user for worker in server.workers())
