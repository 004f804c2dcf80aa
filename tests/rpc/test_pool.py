"""The worker pool: a queue in order, cancelled and expired calls, lost workers, and no process left over."""

from __future__ import annotations

import os
import signal
import threading
import time

import psutil
import pytest

from exactline.errors import LimitError
from exactline.rpc.limits import Limits
from exactline.rpc.server.call import CallCancelled, CallExpired, JobFailed, WorkerLost
from exactline.rpc.server.ipc import ModelKey, WorkerJob
from exactline.rpc.server.pool import WorkerPool
from tests.rpc.server_process import wait_until

FORK_SERVER_MODULE = "exactline.rpc.server.forkserver"


@pytest.fixture(scope="module")
def pool():
    others = fork_servers()  # a server that other tests share has one too
    found = WorkerPool(2, Limits(queue_length=2)).start()
    yield found
    found.close()
    wait_until(lambda: fork_servers() <= others, 10)


def fork_servers() -> set[int]:
    """Return the ids of the descendants of this process that fork workers."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        try:
            if FORK_SERVER_MODULE in process.cmdline():
                found.add(process.pid)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.fixture(autouse=True)
def _wait_for_workers(pool):
    wait_until(lambda: pool.stats().workers == 2 and pool.stats().busy == 0, 10)


def sleep_call(pool, seconds, limit=30.0):
    return pool.new_call(WorkerJob("sleep", str(seconds).encode()), limit)


def run_in_background(call):
    """Run a call in a thread; returns the thread and a list of the messages, the last one the error if it fails."""
    messages: list[object] = []

    def run() -> None:
        try:
            messages.extend(call)
        except Exception as problem:  # noqa: BLE001 the test checks it
            messages.append(problem)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, messages


def test_a_job_is_run(pool):
    assert list(sleep_call(pool, 0)) == [b"slept"]


def test_decoding_a_job_inverts_encoding():
    model = ModelKey("ab", ".nnet", False, (3, 4))
    for job in (
        WorkerJob("sleep"),
        WorkerJob("restrict", bytes(range(256)), model),
        WorkerJob("x", b"J", ModelKey("c")),
    ):
        assert WorkerJob.decode(job.encode()) == job


def test_a_cancelled_call_ends_its_worker_which_is_replaced(pool):
    before, killed = set(pool.stats().pids), pool.counters.killed
    call = sleep_call(pool, 60)
    thread, messages = run_in_background(call)
    wait_until(lambda: pool.stats().busy == 1)
    call.cancel()
    thread.join(5)
    assert isinstance(messages[0], CallCancelled)
    wait_until(lambda: pool.stats().workers == 2 and set(pool.stats().pids) != before, 5)
    assert pool.counters.killed == killed + 1
    (gone,) = before - set(pool.stats().pids)
    wait_until(lambda: not psutil.pid_exists(gone), 5)


def test_a_call_ends_at_its_deadline(pool):
    began = time.monotonic()
    with pytest.raises(CallExpired):
        list(sleep_call(pool, 60, limit=0.2))
    assert time.monotonic() - began < 2


def test_a_call_can_be_cancelled_before_it_begins_and_while_it_waits(pool):
    call = sleep_call(pool, 0)
    call.cancel()
    with pytest.raises(CallCancelled):
        list(call)
    hogs = [sleep_call(pool, 60) for _ in range(2)]
    threads = [run_in_background(hog)[0] for hog in hogs]
    wait_until(lambda: pool.stats().busy == 2)
    waiting = sleep_call(pool, 0)
    thread, messages = run_in_background(waiting)
    wait_until(lambda: pool.stats().queued == 1)
    waiting.cancel()
    thread.join(5)
    assert isinstance(messages[0], CallCancelled)
    assert pool.stats().queued == 0
    for hog in hogs:
        hog.cancel()
    for hog in threads:
        hog.join(5)


def test_the_queue_is_bounded_and_in_order(pool):
    hogs = [sleep_call(pool, 60) for _ in range(2)]
    threads = [run_in_background(hog)[0] for hog in hogs]
    wait_until(lambda: pool.stats().busy == 2)
    waiting = []
    for _ in range(2):
        waiting.append(run_in_background(sleep_call(pool, 0)))
        wait_until(lambda: pool.stats().queued == len(waiting))
    with pytest.raises(LimitError, match="queue_length is 2"):
        list(sleep_call(pool, 0))
    for hog in hogs:
        hog.cancel()
    for thread, messages in waiting:
        thread.join(10)
        assert messages == [b"slept"]
    for thread in threads:
        thread.join(5)


def test_a_job_whose_worker_dies_before_its_first_message_is_run_by_another(pool):
    retried = pool.counters.retried
    thread, messages = run_in_background(sleep_call(pool, 0.5))
    wait_until(lambda: pool.stats().busy == 1)
    time.sleep(0.1)
    busy = pool.stats().pids
    for pid in busy:
        if psutil.Process(pid).num_ctx_switches().voluntary:
            os.kill(pid, signal.SIGKILL)
    thread.join(20)
    assert messages == [b"slept"]
    assert pool.counters.retried > retried


def test_a_job_whose_workers_keep_dying_fails(pool):
    done = threading.Event()
    call = sleep_call(pool, 30)
    thread, messages = run_in_background(call)

    def kill() -> None:
        while not done.is_set():
            for pid in pool.stats().pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.3)

    killer = threading.Thread(target=kill)
    killer.start()
    thread.join(30)
    done.set()
    killer.join()
    assert isinstance(messages[0], WorkerLost)


def test_errors_of_a_worker_end_only_the_job(pool):
    with pytest.raises(JobFailed) as caught:
        list(pool.new_call(WorkerJob("sleep", b"not a number"), 10))
    assert caught.value.error == {"code": "internal", "problem": "ValueError"}
    with pytest.raises(JobFailed) as caught:
        list(pool.new_call(WorkerJob("restrict", b"\xff", ModelKey("00")), 10, fetch=lambda model: b"not a model"))
    assert caught.value.error["code"] in ("internal", "file")
    assert list(sleep_call(pool, 0)) == [b"slept"]


@pytest.mark.slow
def test_a_fork_server_that_dies_is_restarted(pool):
    fork_server = next(p for p in psutil.Process().children() if FORK_SERVER_MODULE in p.cmdline())
    fork_server.kill()
    os.kill(pool.stats().pids[0], signal.SIGKILL)
    assert list(sleep_call(pool, 0)) == [b"slept"]  # on the other worker
    wait_until(lambda: pool.stats().workers == 2, 60)
    assert list(sleep_call(pool, 0)) == [b"slept"]
