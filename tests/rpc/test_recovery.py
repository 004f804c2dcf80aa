"""Recovery after workers, the fork server or the server itself are killed: at most one call is lost for each."""

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
from tests.rpc import legacy_client
from tests.rpc import legacy_wire as wire
from tests.rpc.client_threads import ClientThreads
from tests.rpc.server_process import ServerProcess, start_server, wait_until

MAX_REPLACEMENT_SECONDS = 2.0  # until the pool has all its workers again


class Load(ClientThreads):
    """Clients that make calls without retries and compare each answer with the library's."""

    def __init__(self, server: ServerProcess, folder: Path, clients: int) -> None:
        super().__init__(clients)
        rng = np.random.default_rng(0)
        self.server = server
        self.lines = rng.normal(size=(2, 8, 5))
        self.truth = xl.restrict_many(xl.load(folder / "acas.nnet"), *self.lines)
        self.right = self.wrong = self.lost = 0
        self.unexpected: list[str] = []

    def run_client(self, number: int) -> None:
        with Client(self.server.address, retries=0, timeout=60) as client:
            while not self.done.is_set():
                try:
                    right = self._check_legacy() if number % 4 == 3 else self._check_restrict_many(client)
                    with self.lock:
                        self.right += right
                        self.wrong += not right
                except Exception as error:  # noqa: BLE001 the test checks it
                    lost = "worker that ran this job was lost" in str(error)
                    with self.lock:
                        self.lost += lost
                        if not lost:
                            self.unexpected.append(repr(error))

    def _check_restrict_many(self, client: Client) -> bool:
        found = client.restrict_many("acas", *self.lines)
        return bool((found.alphas == self.truth.alphas).all() and (found.values == self.truth.values).all())

    def _check_legacy(self) -> bool:
        messages = [wire.layer(wire.dense([[1, -1]], [0, 0.5])), wire.layer(wire.relu()), wire.line([-1], [1])]
        with legacy_client.open_call(self.server.address, messages) as call:
            found = [wire.decode_response(data) for data in call]
            return found[0].ratios.tolist() == [0.0, 0.5, 0.75, 1.0]


def kill_workers(server: ServerProcess, folder: Path, times: int, clients: int) -> tuple[Load, list[float]]:
    """Kill workers one by one while clients make calls; returns the seconds until each was replaced."""
    waits = []
    chance = random.Random(1)
    with Client(server.address) as watcher, Load(server, folder, clients) as load:
        wait_until(lambda: load.right > 2)
        for _ in range(times):
            victim = chance.choice(watcher.stats().pids)
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
            waits.append(wait_until(lambda: _is_replaced(watcher, victim)))  # noqa: B023
            count = load.right
            wait_until(lambda: load.right > count)  # noqa: B023 other calls are answered
            time.sleep(chance.uniform(0, 0.1))
        before = load.right
        wait_until(lambda: load.right > before + 4)
    return load, waits


def _is_replaced(watcher: Client, victim: int) -> bool:
    stats = watcher.stats()
    return stats.workers == 2 and victim not in stats.pids


def _summarize(load: Load, waits: list[float]) -> str:
    return (
        f"{len(waits)} workers killed: {load.right} calls right, {load.wrong} wrong, {load.lost} lost; replaced"
        f" after {np.median(waits) * 1000:.0f} ms (at most {max(waits) * 1000:.0f})"
    )


def test_a_killed_worker_costs_one_call_at_most(server: ServerProcess, folder: Path):
    load, waits = kill_workers(server, folder, 4, 4)
    print(_summarize(load, waits))
    assert (load.wrong, load.unexpected) == (0, [])
    assert load.lost <= 4
    assert np.median(waits) < 10 * MAX_REPLACEMENT_SECONDS  # on a loaded machine


@pytest.mark.slow
def test_fifty_workers_killed_in_a_row_under_load(folder: Path):
    with start_server(models=folder) as server:
        load, waits = kill_workers(server, folder, 50, 8)
    print(_summarize(load, waits))
    assert (load.wrong, load.unexpected) == (0, [])
    assert load.lost <= 50
    assert max(waits) < MAX_REPLACEMENT_SECONDS


def test_a_job_whose_worker_dies_twice_is_not_run_again(server: ServerProcess):
    """There was no message yet, so the job is run once more; then the call fails."""
    with Client(server.address) as watcher, Client(server.address, retries=0, timeout=60) as client:
        wait_until(lambda: watcher.stats().workers == 2 and watcher.stats().busy == 0)
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
        wait_until(lambda: watcher.stats().workers == 2)
        assert len(client.restrict("tent4", [0.0], [1.0])) == 16


@pytest.mark.slow
def test_a_fork_server_that_dies_is_replaced(server: ServerProcess):
    (fork_server,) = server.process.children()
    with Client(server.address) as client:
        fork_server.kill()
        for worker in client.stats().pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
        assert len(client.restrict("tent4", [0.0], [1.0])) == 16
        wait_until(lambda: client.stats().workers == 2)
        assert server.process.children()[0].pid != fork_server.pid


@pytest.mark.slow
def test_clients_recover_when_the_server_is_killed_and_restarted(folder: Path):
    """SIGKILL in the middle of a call: the workers end too, and retries reach the next server."""
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
        with start_server(models=folder, port=port) as server:
            if not round_:
                for thread in threads:
                    thread.start()
            count = len(answers)
            waits.append(wait_until(lambda: len(answers) > count))  # noqa: B023
            wait_until(lambda: len(answers) > count + 20)  # noqa: B023
            children = server.children()
            if round_ < 2:
                server.process.kill()
                wait_until(lambda: not any(child.is_running() for child in children))  # noqa: B023
            else:
                done.set()
                for thread in threads:
                    thread.join(60)
    assert set(answers) == {16}
    assert problems == []
    print(f"clients were back {', '.join(f'{wait:.1f}' for wait in waits[1:])} s after the server was")
