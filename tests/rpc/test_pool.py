"""The pool: workers in processes of their own, a queue in order, and nothing left over."""

from __future__ import annotations

import os
import signal
import threading
import time

import psutil
import pytest

from exactline.errors import LimitError
from exactline.rpc.limits import Limits
from exactline.rpc.server.call import Cancelled, Expired, Lost
from exactline.rpc.server.ipc import Job, Model
from exactline.rpc.server.pool import Pool
from tests.rpc.running import until


@pytest.fixture(scope="module")
def pool():
    others = nurseries()  # a server that other tests share has one as well
    found = Pool(2, Limits(queue_length=2)).start()
    yield found
    found.close()
    until(lambda: nurseries() <= others, 10)


def nurseries() -> set[int]:
    """Processes under this one that bear workers."""
    found = set()
    for process in psutil.Process().children(recursive=True):
        try:
            if "nursery" in " ".join(process.cmdline()):
                found.add(process.pid)
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.fixture(autouse=True)
def _whole(pool):
    until(lambda: pool.stats().workers == 2 and pool.stats().busy == 0, 10)


def nap(pool, seconds, limit=30.0):
    return pool.call(Job("nap", str(seconds).encode()), limit)


def in_background(call):
    """Take what a call says, in a thread; where it ends in an error, that is what it said."""
    said: list[object] = []

    def take() -> None:
        try:
            said.extend(call)
        except Exception as problem:  # noqa: BLE001 it is looked at
            said.append(problem)

    thread = threading.Thread(target=take)
    thread.start()
    return thread, said


def test_jobs_are_done(pool):
    assert list(nap(pool, 0)) == [b"slept"]


def test_jobs_travel_as_they_are():
    model = Model("ab", ".nnet", False, (3, 4))
    for job in (Job("nap"), Job("restrict", bytes(range(256)), model), Job("x", b"J", Model("c"))):
        assert Job.unpacked(job.packed()) == job


def test_a_cancelled_call_ends_its_worker_and_the_pool_is_whole_again(pool):
    before, killed = set(pool.stats().pids), pool.counts.killed
    call = nap(pool, 60)
    thread, said = in_background(call)
    until(lambda: pool.stats().busy == 1)
    call.cancel()
    thread.join(5)
    assert isinstance(said[0], Cancelled)
    until(lambda: pool.stats().workers == 2 and set(pool.stats().pids) != before, 5)
    assert pool.counts.killed == killed + 1
    (gone,) = before - set(pool.stats().pids)
    until(lambda: not psutil.pid_exists(gone), 5)


def test_a_late_call_ends_in_time(pool):
    began = time.monotonic()
    with pytest.raises(Expired):
        list(nap(pool, 60, limit=0.2))
    assert time.monotonic() - began < 2


def test_a_call_is_cancelled_before_it_begins_and_while_it_waits(pool):
    call = nap(pool, 0)
    call.cancel()
    with pytest.raises(Cancelled):
        list(call)
    hogs = [nap(pool, 60) for _ in range(2)]
    threads = [in_background(hog)[0] for hog in hogs]
    until(lambda: pool.stats().busy == 2)
    waiting = nap(pool, 0)
    thread, said = in_background(waiting)
    until(lambda: pool.stats().queued == 1)
    waiting.cancel()
    thread.join(5)
    assert isinstance(said[0], Cancelled)
    assert pool.stats().queued == 0
    for hog in hogs:
        hog.cancel()
    for hog in threads:
        hog.join(5)


def test_the_queue_is_bounded_and_in_order(pool):
    hogs = [nap(pool, 60) for _ in range(2)]
    threads = [in_background(hog)[0] for hog in hogs]
    until(lambda: pool.stats().busy == 2)
    waiting = []
    for _ in range(2):
        waiting.append(in_background(nap(pool, 0)))
        until(lambda: pool.stats().queued == len(waiting))
    with pytest.raises(LimitError, match="queue_length is 2"):
        list(nap(pool, 0))
    for hog in hogs:
        hog.cancel()
    for thread, said in waiting:
        thread.join(10)
        assert said == [b"slept"]
    for thread in threads:
        thread.join(5)


def test_a_worker_that_dies_before_it_says_anything_is_replaced_and_its_job_done_by_another(pool):
    retried = pool.counts.retried
    thread, said = in_background(nap(pool, 0.5))
    until(lambda: pool.stats().busy == 1)
    time.sleep(0.1)
    busy = pool.stats().pids
    for pid in busy:
        if psutil.Process(pid).num_ctx_switches().voluntary:
            os.kill(pid, signal.SIGKILL)
    thread.join(20)
    assert said == [b"slept"]
    assert pool.counts.retried > retried


def test_a_job_that_kills_its_workers_is_given_up(pool):
    began = threading.Event()
    call = nap(pool, 30)
    thread, said = in_background(call)

    def kill() -> None:
        while not began.is_set():
            for pid in pool.stats().pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.3)

    killer = threading.Thread(target=kill)
    killer.start()
    thread.join(30)
    began.set()
    killer.join()
    assert isinstance(said[0], Lost)


def test_unknown_frames_and_errors_of_a_worker_end_the_job_only(pool):
    from exactline.rpc.server.call import Refused

    with pytest.raises(Refused) as caught:
        list(pool.call(Job("nap", b"not a number"), 10))
    assert caught.value.facts == {"code": "internal", "problem": "ValueError"}
    with pytest.raises(Refused) as caught:
        list(pool.call(Job("restrict", b"\xff", Model("00")), 10, fetch=lambda model: b"not a model"))
    assert caught.value.facts["code"] in ("internal", "file")
    assert list(nap(pool, 0)) == [b"slept"]


@pytest.mark.slow
def test_the_nursery_is_started_again_where_somebody_kills_it(pool):
    nursery = next(p for p in psutil.Process().children() if "exactline.rpc.server.forkserver" in " ".join(p.cmdline()))
    nursery.kill()
    os.kill(pool.stats().pids[0], signal.SIGKILL)
    assert list(nap(pool, 0)) == [b"slept"]  # the other one is still there
    until(lambda: pool.stats().workers == 2, 60)
    assert list(nap(pool, 0)) == [b"slept"]
