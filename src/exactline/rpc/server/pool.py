"""A pool of worker processes: calls wait for a worker in order; a cancelled or expired call kills its worker.

    pool = WorkerPool(workers=2, limits=Limits()).start()
    call = pool.new_call(WorkerJob("restrict", request, model), seconds=60)   # nothing happens yet
    for message in call: ...                              # waits in the queue, then streams in bounded memory
    call.counters                                         # what the worker counted: lines, breaks
    call.cancel()                                         # from any thread: kills the worker

A call raises the errors of ``exactline.errors`` (LimitError for the queue), JobFailed for an error of the worker,
CallExpired, CallCancelled, and WorkerLost if the worker died. A job whose worker died before its first message is run
once more by another worker.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from ...errors import ServiceError
from ..limits import Limits
from .call import CallCancelled, CallExpired, WorkerCall
from .ipc import ModelKey, WorkerJob
from .process import ForkServer, WorkerProcess

SUPERVISION_SECONDS = 0.1  # between two checks for dead workers and expired calls


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


class WorkerPool:
    """Worker processes, and the calls that run on them or wait for one."""

    def __init__(self, workers: int, limits: Limits, *, device: str = "cpu", threads: int = 1) -> None:
        self.size, self.limits = workers, limits
        self.counters = PoolCounters()
        self._forkserver = ForkServer({"limits": asdict(limits), "device": device, "threads": threads})
        self._changed = threading.Condition()
        self._idle: list[WorkerProcess] = []  # the most recently used last
        self._all: list[WorkerProcess] = []
        self._waiting: deque[WorkerCall] = deque()
        self._running: set[WorkerCall] = set()
        self._closing = False
        self._supervisor = threading.Thread(target=self._supervise, name="supervisor", daemon=True)

    def start(self) -> WorkerPool:
        """Fork the workers; returns when all of them exist."""
        self._forkserver.start()
        self._refill()
        self._supervisor.start()
        return self

    def new_call(
        self, job: WorkerJob, seconds: float, *, fetch: Callable[[ModelKey], bytes] | None = None
    ) -> WorkerCall:
        """Create a call that has not begun; ``fetch`` returns the file of a model that a worker does not have."""
        return WorkerCall(self, job, time.monotonic() + seconds, fetch)

    def acquire_worker(self, call: WorkerCall) -> WorkerProcess:
        """Wait for a worker, first come, first served."""
        with self._changed:
            if not self._idle or self._waiting:
                self._enqueue(call)
            try:
                while not (self._has_idle_worker() and (not self._waiting or self._waiting[0] is call)):
                    self._check_waiting(call)
                    self._changed.wait(min(1.0, max(0.0, call.deadline - time.monotonic())))
                self._check_waiting(call)
                self._running.add(call)
                return self._select_worker(call.job.model)
            finally:
                if call in self._waiting:
                    self._waiting.remove(call)
                self._changed.notify_all()

    def _enqueue(self, call: WorkerCall) -> None:
        if len(self._waiting) >= self.limits.queue_length:
            raise self.limits.error("queue_length", f"All workers are busy and {len(self._waiting)} calls wait.")
        self._waiting.append(call)

    def _check_waiting(self, call: WorkerCall) -> None:
        """Raise if a call must not wait any longer."""
        if self._closing:
            raise ServiceError("The server is shutting down.", where="queue", hint="Try again later.")
        if call.cancelled:
            raise CallCancelled("cancelled while waiting")
        if time.monotonic() >= call.deadline:
            raise CallExpired("the deadline passed while the call waited for a worker")

    def _has_idle_worker(self) -> bool:
        """Whether a worker is idle; discards idle workers that have died."""
        for worker in [w for w in self._idle if w.has_died()]:
            self._idle.remove(worker)
            self._discard(worker)
            self.counters.died += 1
        return bool(self._idle)

    def _select_worker(self, model: ModelKey | None) -> WorkerProcess:
        """Take an idle worker that has the model, or else the most recently used one."""
        i = next((i for i, w in enumerate(self._idle) if model in w.sent_models), len(self._idle) - 1)
        return self._idle.pop(i)

    def release_worker(self, call: WorkerCall, worker: WorkerProcess, *, reusable: bool) -> None:
        """Take a worker back from a call; one that is not reusable is killed and replaced."""
        with self._changed:
            self._running.discard(call)
            if reusable and not self._closing:
                self._idle.append(worker)
            else:
                self._discard(worker)
            self._changed.notify_all()

    def _discard(self, worker: WorkerProcess) -> None:
        if worker in self._all:
            self._all.remove(worker)
        worker.close()

    def wake_waiting(self) -> None:
        """Let waiting calls check whether they were cancelled."""
        with self._changed:
            self._changed.notify_all()

    def stats(self) -> PoolStats:
        """Return the current state of the pool."""
        with self._changed:
            cache = {"models": 0, "bytes": 0, "hits": 0, "misses": 0}
            for worker in self._all:
                cache = {name: count + int(worker.cache_counters.get(name, 0)) for name, count in cache.items()}
            return PoolStats(
                workers=len(self._all),
                busy=len(self._running),
                queued=len(self._waiting),
                pids=tuple(worker.pid for worker in self._all),
                cache=cache,
                counters=self.counters,
            )

    def close(self) -> None:
        """Cancel all calls and end all workers."""
        with self._changed:
            self._closing = True
            calls = list(self._running)
            self._changed.notify_all()
        for call in calls:
            call.cancel()
        self._supervisor.join()
        with self._changed:
            for worker in self._idle:
                self._discard(worker)
            self._idle.clear()
        self._forkserver.close()

    def _supervise(self) -> None:
        """Replace dead workers and end expired calls, until the pool closes."""
        while True:
            with self._changed:
                if self._closing:
                    return
                self._changed.wait(SUPERVISION_SECONDS)
                self._has_idle_worker()
                expired = [c for c in self._running if time.monotonic() > c.deadline + SUPERVISION_SECONDS]
            for call in expired:
                call.expire()
            self._refill()

    def _refill(self) -> None:
        while not self._closing and len(self._all) < self.size:
            worker = self._forkserver.fork()
            if worker is None:
                return  # the fork server restarts; the supervisor tries again
            with self._changed:
                self.counters.forked += 1
                self._all.append(worker)
                self._idle.insert(0, worker)
                self._changed.notify_all()
