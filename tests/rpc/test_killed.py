"""Workers, what forks them and the server itself are killed: one call is lost at most, and all is whole again."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import exactline as xl
from exactline.errors import ServiceError
from exactline.rpc.client.sync import Client
from tests.rpc import raw, wire
from tests.rpc.running import Running, running, until
from tests.rpc.threads import Threads

WHOLE = 2.0  # seconds until the pool has all its workers again


class Load(Threads):
    """Clients that ask all the time, compare each answer with the library's, and never try again by themselves."""

    def __init__(self, server: Running, folder: Path, clients: int) -> None:
        super().__init__(clients)
        rng = np.random.default_rng(0)
        self.server = server
        self.lines = rng.normal(size=(2, 8, 5))
        self.truth = xl.restrict_many(xl.load(folder / "acas.nnet"), *self.lines)
        self.right = self.wrong = self.lost = 0
        self.odd: list[str] = []

    def live(self, number: int) -> None:
        with Client(self.server.address, retries=0, timeout=60) as client:
            while not self.done.is_set():
                try:
                    right = self._old() if number % 4 == 3 else self._same(client)
                    with self.counting:
                        self.right += right
                        self.wrong += not right
                except Exception as error:  # noqa: BLE001 of whatever kind, it is looked at
                    lost = "worker that did this job was lost" in str(error)
                    with self.counting:
                        self.lost += lost
                        if not lost:
                            self.odd.append(repr(error))

    def _same(self, client: Client) -> bool:
        found = client.restrict_many("acas", *self.lines)
        return bool((found.alphas == self.truth.alphas).all() and (found.values == self.truth.values).all())

    def _old(self) -> bool:
        messages = [wire.layer(wire.dense([[1, -1]], [0, 0.5])), wire.layer(wire.relu()), wire.line([-1], [1])]
        with raw.opened(self.server.address, messages) as call:
            found = [wire.answer(data) for data in call]
            return found[0].ratios.tolist() == [0.0, 0.5, 0.75, 1.0]


def slaughter(server: Running, folder: Path, times: int, clients: int) -> tuple[Load, list[float]]:
    """Kill a worker again and again while clients ask, and see how long until all workers are there."""
    waits = []
    chance = random.Random(1)
    with Client(server.address) as watcher, Load(server, folder, clients) as load:
        until(lambda: load.right > 2)
        for _ in range(times):
            victim = chance.choice(watcher.stats().pids)
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
            waits.append(until(lambda: _whole(watcher, victim), 30))  # noqa: B023
            count = load.right
            until(lambda: load.right > count)  # noqa: B023 others go on
            time.sleep(chance.uniform(0, 0.1))
        before = load.right
        until(lambda: load.right > before + 4)
    return load, waits


def _whole(watcher: Client, victim: int) -> bool:
    stats = watcher.stats()
    return stats.workers == 2 and victim not in stats.pids


def _told(load: Load, waits: list[float]) -> str:
    return (
        f"{len(waits)} workers killed: {load.right} calls right, {load.wrong} wrong, {load.lost} lost; whole again"
        f" after {np.median(waits) * 1000:.0f} ms (at most {max(waits) * 1000:.0f})"
    )


def test_a_killed_worker_costs_one_call_at_most(server: Running, folder: Path):
    load, waits = slaughter(server, folder, 4, 4)
    print(_told(load, waits))
    assert (load.wrong, load.odd) == (0, [])
    assert load.lost <= 4
    assert np.median(waits) < WHOLE


@pytest.mark.slow
def test_fifty_workers_killed_in_a_row_under_load(folder: Path):
    with running(models=folder) as server:
        load, waits = slaughter(server, folder, 50, 8)
    print(_told(load, waits))
    assert (load.wrong, load.odd) == (0, [])
    assert load.lost <= 50
    assert max(waits) < WHOLE


def test_a_worker_that_dies_twice_at_the_same_job_is_not_given_it_again(server: Running):
    """Nothing was said yet, so that the job is done once more; then the caller is told."""
    with Client(server.address) as watcher, Client(server.address, retries=0, timeout=60) as client:
        until(lambda: watcher.stats().workers == 2 and watcher.stats().busy == 0)
        before = watcher.stats()
        found: list[str] = []

        def ask() -> None:
            try:
                client.restrict("tent30", [0.0], [1.0])
            except ServiceError as error:
                found.append(str(error))

        thread = threading.Thread(target=ask)
        thread.start()
        while thread.is_alive():
            for worker in server.workers():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if worker.pid not in before.pids or worker.cpu_times().user > 0.02:
                        worker.kill()
            time.sleep(0.02)
        assert "lost" in found[0]
        assert watcher.stats().calls_retried > before.calls_retried
        until(lambda: watcher.stats().workers == 2)
        assert len(client.restrict("tent4", [0.0], [1.0])) == 16


@pytest.mark.slow
def test_the_process_that_forks_workers_is_replaced_too(server: Running):
    (nursery,) = server.process.children()
    with Client(server.address) as client:
        nursery.kill()
        for worker in client.stats().pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        assert len(client.restrict("tent4", [0.0], [1.0])) == 16
        until(lambda: client.stats().workers == 2)
        assert server.process.children()[0].pid != nursery.pid


@pytest.mark.slow
def test_clients_recover_when_the_server_is_killed_and_started_again(folder: Path):
    """SIGKILL in the middle of a call: its workers end with it, and clients find the next server by trying again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    answers: list[int] = []
    problems: list[str] = []
    waits: list[float] = []
    done = threading.Event()

    def ask(address: str) -> None:
        with Client(address, retries=12) as client:
            while not done.is_set():
                try:
                    answers.append(len(client.restrict("tent4", [0.0], [1.0])))
                except xl.ExactlineError as error:
                    problems.append(str(error))

    threads = [threading.Thread(target=ask, args=(f"127.0.0.1:{port}",)) for _ in range(4)]
    for round_ in range(3):
        with running(models=folder, port=port) as server:
            if not round_:
                for thread in threads:
                    thread.start()
            count = len(answers)
            waits.append(until(lambda: len(answers) > count))  # noqa: B023
            until(lambda: len(answers) > count + 20)  # noqa: B023
            children = server.children()
            if round_ < 2:
                server.process.kill()
                until(lambda: not any(child.is_running() for child in children), 5)  # noqa: B023
            else:
                done.set()
                for thread in threads:
                    thread.join(60)
    assert set(answers) == {16}
    assert problems == []
    print(f"clients were back {', '.join(f'{wait:.1f}' for wait in waits[1:])} s after the server was")
