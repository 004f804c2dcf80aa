"""The worker pool: clients take turns, cancelled calls, lost workers, and no process left over."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable

import psutil
import pytest

from exactline.errors import LimitError
from exactline.rpc.limits import Limits
from exactline.rpc.server import forkserver
from exactline.rpc.server.call import JobFailed, WorkerCall, WorkerLost
from exactline.rpc.server.clients import ClientUsage
from exactline.rpc.server.ipc import LENGTH_BYTES, ModelKey, WorkerJob
from exactline.rpc.server.pool import WorkerPool
from tests.rpc.nnet_files import tent_layers, write_nnet
from tests.rpc.server_process import wait_until

FORK_SERVER_MODULE = "exactline.rpc.server.forkserver"


class PoolRunner:
    """A pool, and an event loop in which the tests use it."""

    def __init__(self, **limits: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.pool = WorkerPool(2, Limits(queue_length=2, **limits), client_workers=1)
        self.client = ClientUsage("one")
        self.run(self.pool.start())

    def run(self, work: Awaitable[object], seconds: float = 60.0) -> object:
        return self.loop.run_until_complete(asyncio.wait_for(work, seconds))

    def close(self) -> None:
        self.run(self.pool.close())
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()

    async def sleep(self, seconds: float, client: ClientUsage | None = None) -> list[bytes]:
        """Run a job that sleeps; returns its messages."""
        messages: list[bytes] = []

        async def keep(message: bytes) -> None:
            messages.append(message)

        job = WorkerJob("sleep", str(seconds).encode())
        await WorkerCall(self.pool, client or self.client, job).run(keep)
        return messages

    async def until(self, condition: Callable[[], object], seconds: float = 20.0) -> None:
        began = time.monotonic()
        while not condition():
            assert time.monotonic() - began < seconds
            await asyncio.sleep(0.01)


@pytest.fixture(scope="module")
def shared():
    others = fork_servers()  # a server that other tests share has one too
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EXACTLINE_TRACEBACK", "1")  # workers may write no file; tracebacks are sent with the error
        found = PoolRunner()
        yield found
        found.close()
    wait_until(lambda: fork_servers() <= others)


@pytest.fixture
def runner(shared):
    shared.run(shared.until(lambda: shared.pool.stats().workers == 2 and shared.pool.stats().busy == 0))
    return shared


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


def test_a_job_is_run(runner):
    assert runner.run(runner.sleep(0)) == [b"slept"]


def test_decoding_a_job_inverts_encoding():
    model = ModelKey("ab", ".nnet", False, (3, 4))
    for job in (
        WorkerJob("sleep"),
        WorkerJob("restrict", bytes(range(256)), model),
        WorkerJob("x", b"J", ModelKey("c")),
    ):
        assert WorkerJob.decode(b"".join(job.encode())) == job
        assert int.from_bytes(job.encode()[0][:LENGTH_BYTES], "little") == len(job.encode()[0]) - LENGTH_BYTES


def test_a_cancelled_call_ends_its_worker_which_is_replaced(runner):
    pool = runner.pool
    before, killed = set(pool.stats().pids), pool.counters.killed

    async def cancel() -> None:
        task = asyncio.create_task(runner.sleep(60))
        await runner.until(lambda: pool.stats().busy == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await runner.until(lambda: pool.stats().workers == 2 and set(pool.stats().pids) != before)

    runner.run(cancel())
    assert pool.counters.killed == killed + 1
    (gone,) = before - set(pool.stats().pids)
    wait_until(lambda: not psutil.pid_exists(gone))


def test_a_call_can_be_cancelled_while_it_waits(runner):
    pool = runner.pool

    async def cancel() -> None:
        hogs = [asyncio.create_task(runner.sleep(60)) for _ in range(2)]
        await runner.until(lambda: pool.stats().busy == 2)
        waiting = asyncio.create_task(runner.sleep(0))
        await runner.until(lambda: pool.stats().queued == 1)
        waiting.cancel()
        await runner.until(lambda: pool.stats().queued == 0)
        for hog in hogs:
            hog.cancel()
        await asyncio.gather(waiting, *hogs, return_exceptions=True)

    runner.run(cancel())


def test_the_queue_is_bounded_and_in_order(runner):
    pool, ended = runner.pool, []

    async def ask(number: int) -> None:
        await runner.sleep(0)
        ended.append(number)

    async def fill() -> None:
        hogs = [asyncio.create_task(runner.sleep(60)) for _ in range(2)]
        await runner.until(lambda: pool.stats().busy == 2)
        waiting = [asyncio.create_task(ask(number)) for number in range(2)]
        await runner.until(lambda: pool.stats().queued == 2)
        with pytest.raises(LimitError, match="queue_length is 2"):
            await runner.sleep(0)
        hogs[0].cancel()
        await asyncio.gather(*waiting)
        hogs[1].cancel()
        await asyncio.gather(*hogs, return_exceptions=True)

    runner.run(fill())
    assert ended == [0, 1]


def test_clients_take_turns_and_one_with_a_quota_does_not_get_all_workers(runner):
    pool, ended = runner.pool, []
    greedy, other = ClientUsage("greedy", has_quota=True), ClientUsage("other", has_quota=True)

    async def ask(client: ClientUsage) -> None:
        await runner.sleep(0.05, client)
        ended.append(client.name)

    async def fill() -> None:
        hog = asyncio.create_task(runner.sleep(60, greedy))
        await runner.until(lambda: pool.stats().busy == 1)
        queued = [asyncio.create_task(ask(greedy))]
        await asyncio.sleep(0.3)
        assert (pool.stats().busy, pool.stats().queued, greedy.workers) == (1, 1, 1)  # the second worker stays free
        await ask(other)
        hog.cancel()
        await asyncio.gather(hog, *queued, return_exceptions=True)

    runner.run(fill())
    assert ended == ["other", "greedy"]
    assert greedy.workers == other.workers == 0


def test_a_job_whose_worker_dies_before_its_first_message_is_run_by_another(runner, tmp_path):
    """The worker is killed when it asks for its model, so it has read the job and answered nothing."""
    pool = runner.pool
    retried, messages, killed = pool.counters.retried, [], []
    write_nnet(tmp_path / "tent4.nnet", tent_layers(4))

    async def fetch(_: ModelKey) -> bytes:
        if not killed:
            killed.append(find_busy_last(pool)[-1])
            os.kill(killed[0], signal.SIGKILL)
            await runner.until(lambda: has_ended(killed[0]))
        return (tmp_path / "tent4.nnet").read_bytes()

    async def keep(message: bytes) -> None:
        messages.append(message)

    job = WorkerJob("describe", b"tent4", ModelKey("ab" * 32, ".nnet"))
    runner.run(WorkerCall(pool, runner.client, job, fetch).run(keep))
    assert len(messages) == 1
    assert pool.counters.retried == retried + 1
    assert killed[0] not in pool.stats().pids


def test_a_worker_that_dies_before_it_reads_the_job_counts_as_no_attempt(runner):
    """Both workers are suspended, so that each has the job and has not read it when it is killed."""
    pool = runner.pool
    retried, pids = pool.counters.retried, pool.stats().pids

    async def kill() -> list[bytes]:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        await runner.until(lambda: all(psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in pids))
        task = asyncio.create_task(runner.sleep(0))
        for number in (1, 2):
            await runner.until(lambda: pool.stats().busy == 1)
            os.kill(find_busy_last(pool)[-1], signal.SIGKILL)
            await runner.until(lambda: pool.counters.retried == retried + number)  # noqa: B023
        return await task

    assert runner.run(kill()) == [b"slept"]


def find_busy_last(pool: WorkerPool) -> list[int]:
    """Return the ids of the workers, those that are idle first."""
    idle = [worker.pid for worker in pool._idle]
    return sorted(pool.stats().pids, key=lambda pid: pid not in idle)


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_job_whose_workers_keep_dying_fails(runner):
    pool = runner.pool

    async def kill() -> None:
        task = asyncio.create_task(runner.sleep(30))
        while not task.done():
            for pid in pool.stats().pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            await asyncio.sleep(0.3)
        with pytest.raises(WorkerLost):
            await task

    runner.run(kill())


def test_errors_of_a_worker_end_only_the_job(runner):
    async def ignore(_: bytes) -> None:
        pass

    async def fetch(_: ModelKey) -> bytes:
        return b"not a model"

    with pytest.raises(JobFailed) as caught:
        runner.run(WorkerCall(runner.pool, runner.client, WorkerJob("sleep", b"not a number")).run(ignore))
    assert (caught.value.error["code"], caught.value.error["problem"]) == ("internal", "ValueError")
    assert caught.value.error["traceback"].startswith("Traceback")
    pids = runner.pool.stats().pids
    job = WorkerJob("restrict", b"\xff", ModelKey("00"))
    with pytest.raises(JobFailed) as caught:
        runner.run(WorkerCall(runner.pool, runner.client, job, fetch).run(ignore))
    assert caught.value.error["code"] == "argument"
    assert runner.run(runner.sleep(0)) == [b"slept"]
    assert set(runner.pool.stats().pids) == set(pids)


def test_a_read_only_file_system_has_a_temporary_folder_in_name(monkeypatch):
    """In a container with --read-only no file can be written; libraries that ask for the folder need its name only."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/nowhere"])
    with pytest.raises(FileNotFoundError):
        tempfile.gettempdir()
    forkserver._choose_temporary_folder()
    assert tempfile.gettempdir() == "/tmp"


@pytest.mark.slow
def test_a_fork_server_that_dies_is_restarted(runner):
    pool = runner.pool
    fork_server = next(p for p in psutil.Process().children() if FORK_SERVER_MODULE in p.cmdline())
    fork_server.kill()
    os.kill(pool.stats().pids[0], signal.SIGKILL)
    assert runner.run(runner.sleep(0)) == [b"slept"]  # on the other worker
    runner.run(runner.until(lambda: pool.stats().workers == 2, 60))
    assert runner.run(runner.sleep(0)) == [b"slept"]
