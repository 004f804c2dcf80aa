"""A pool of worker processes: calls wait for a worker in turn; a call that ends early loses its worker.

    pool = WorkerPool(workers=2, limits=Limits())
    await pool.start()
    worker = await pool.acquire(client, model)        # waits in the queue
    ...                                               # see WorkerCall
    pool.release(client, worker, reusable=True)

Clients take turns: one that queues many calls does not delay the first call of another.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections import OrderedDict, deque
from dataclasses import asdict, dataclass, field

from ...errors import ServiceError
from ..limits import Limits
from .clients import ClientUsage
from .ipc import ModelKey
from .process import ForkServer, WorkerProcess

RETRY_SECONDS = 0.2  # between two attempts to fork a worker
MAX_EMPTY_SECONDS = 2.0  # without a worker that a usable pool may be: replacing one takes some hundredths


@dataclass
class PoolCounters:
    """Events since the start."""

    forked: int = 0
    killed: int = 0  # by the pool, because a call was cancelled or expired
    died: int = 0  # for any other reason
    retried: int = 0


@dataclass
class PoolStats:
    """The state of the pool at one moment."""

    workers: int
    busy: int
    queued: int
    pids: tuple[int, ...]
    cache: dict[str, int]  # summed over all workers
    counters: PoolCounters = field(default_factory=PoolCounters)


@dataclass(eq=False)
class _Waiter:
    """A call that waits for a worker."""

    client: ClientUsage
    model: ModelKey | None
    worker: asyncio.Future[WorkerProcess]


class WorkerPool:
    """Worker processes, and the calls that run on them or wait for one."""

    def __init__(
        self, workers: int, limits: Limits, *, device: str = "cpu", threads: int = 1, client_workers: int = 0
    ) -> None:
        self.size, self.limits, self.client_workers = workers, limits, client_workers or workers
        self.counters = PoolCounters()
        tracebacks = bool(os.environ.get("EXACTLINE_TRACEBACK"))
        self._forkserver = ForkServer(
            {"limits": asdict(limits), "device": device, "threads": threads, "tracebacks": tracebacks}
        )
        self._all: list[WorkerProcess] = []
        self._idle: list[WorkerProcess] = []  # the most recently used last
        self._waiting: OrderedDict[ClientUsage, deque[_Waiter]] = OrderedDict()  # the next client first
        self._queued = 0
        self._closing = False
        self._empty_since = -math.inf  # the pool has had no worker
        self._refill_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Fork the workers; returns when all of them exist."""
        await asyncio.to_thread(self._forkserver.start)
        await self._refill()

    @property
    def is_usable(self) -> bool:
        """Whether there is a worker, idle or busy, or was one a moment ago, and the pool is not closing."""
        return not self._closing and (bool(self._all) or time.monotonic() - self._empty_since < MAX_EMPTY_SECONDS)

    async def acquire(self, client: ClientUsage, model: ModelKey | None = None) -> WorkerProcess:
        """Wait for a worker; the caller must release it.

        Raises LimitError if too many calls wait, ServiceError while the server shuts down.
        """
        self._check_open()
        if self._queued >= self.limits.queue_length and not self._has_worker_for(client):
            raise self.limits.error("queue_length", f"All workers are busy and {self._queued} calls wait.")
        waiter = _Waiter(client, model, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(client, deque()).append(waiter)
        self._queued += 1
        self._dispatch()
        try:
            return await waiter.worker
        except asyncio.CancelledError:
            if waiter.worker.done() and not waiter.worker.cancelled() and waiter.worker.exception() is None:
                self.release(client, waiter.worker.result(), reusable=True)
            else:
                self._forget(waiter)
            raise

    def release(self, client: ClientUsage, worker: WorkerProcess, *, reusable: bool) -> None:
        """Take a worker back; one that is not reusable is killed and replaced."""
        client.workers -= 1
        if reusable and not self._closing and not worker.lost:
            self._idle.append(worker)
            self._dispatch()
        else:
            self._discard(worker)

    def stats(self) -> PoolStats:
        """Return the current state of the pool."""
        cache = {"models": 0, "bytes": 0, "hits": 0, "misses": 0}
        for worker in self._all:
            cache = {name: count + int(worker.cache_counters.get(name, 0)) for name, count in cache.items()}
        return PoolStats(
            workers=len(self._all),
            busy=len(self._all) - len(self._idle),
            queued=self._queued,
            pids=tuple(worker.pid for worker in self._all),
            cache=cache,
            counters=self.counters,
        )

    async def close(self) -> None:
        """Refuse all calls and end all workers."""
        self._closing = True
        for waiters in self._waiting.values():
            for waiter in waiters:
                if not waiter.worker.done():
                    waiter.worker.set_exception(_closing_error())
        self._waiting.clear()
        self._queued = 0
        for worker in list(self._all):
            self._discard(worker)
        await asyncio.to_thread(self._forkserver.close)
        if self._refill_task is not None:
            await self._refill_task

    def _check_open(self) -> None:
        if self._closing:
            raise _closing_error()

    def _has_worker_for(self, client: ClientUsage) -> bool:
        return bool(self._idle) and not self._waiting and self._is_below_quota(client)

    def _is_below_quota(self, client: ClientUsage) -> bool:
        return not client.has_quota or client.workers < self.client_workers

    def _dispatch(self) -> None:
        """Give idle workers to waiting calls, one client after another."""
        if self._waiting:
            for worker in [w for w in self._idle if w.has_died()]:
                self._on_lost(worker)
        for client in list(self._waiting):
            if not self._idle:
                return
            waiters = self._waiting[client]
            while waiters and waiters[0].worker.done():  # cancelled
                waiters.popleft()
            if not waiters or not self._is_below_quota(client):
                if not waiters:
                    del self._waiting[client]
                continue
            waiter = waiters.popleft()
            self._queued -= 1
            client.workers += 1
            waiter.worker.set_result(self._select_worker(waiter.model))
            if waiters:
                self._waiting.move_to_end(client)
            else:
                del self._waiting[client]
        if self._idle and any(self._is_below_quota(client) for client in self._waiting):
            self._dispatch()

    def _select_worker(self, model: ModelKey | None) -> WorkerProcess:
        """Take an idle worker that has the model, or else the most recently used one."""
        i = next((i for i, w in enumerate(self._idle) if model in w.sent_models), len(self._idle) - 1)
        return self._idle.pop(i)

    def _forget(self, waiter: _Waiter) -> None:
        waiters = self._waiting.get(waiter.client)
        if waiters is not None and waiter in waiters:
            waiters.remove(waiter)
            self._queued -= 1
            if not waiters:
                del self._waiting[waiter.client]

    def _discard(self, worker: WorkerProcess) -> None:
        if worker in self._all:
            self._all.remove(worker)
            if not self._all:
                self._empty_since = time.monotonic()
        if worker in self._idle:
            self._idle.remove(worker)
        worker.close()
        self._start_refill()

    def _on_lost(self, worker: WorkerProcess) -> None:
        """Replace an idle worker that has died; a busy one is replaced when its call releases it."""
        if worker in self._idle:
            self.counters.died += 1
            self._discard(worker)

    def _start_refill(self) -> None:
        if not self._closing and (self._refill_task is None or self._refill_task.done()):
            self._refill_task = asyncio.get_running_loop().create_task(self._refill())

    async def _refill(self) -> None:
        """Fork workers until there are as many as there should be."""
        loop = asyncio.get_running_loop()
        while not self._closing and len(self._all) < self.size:
            forked = await asyncio.to_thread(self._forkserver.fork)
            if forked is None:
                await asyncio.sleep(0 if self._closing else RETRY_SECONDS)
                continue
            ours, pid = forked
            if self._closing:
                ours.close()
                return
            worker = WorkerProcess(pid, ours, self._on_lost)
            await loop.create_connection(lambda worker=worker: worker, sock=ours)
            self.counters.forked += 1
            self._all.append(worker)
            self._idle.insert(0, worker)
            self._dispatch()


def _closing_error() -> ServiceError:
    return ServiceError("The server is shutting down.", where="queue", hint="Try again later.")
