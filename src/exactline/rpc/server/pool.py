"""A pool of worker processes: calls wait for one in order, and a cancelled or late call ends its worker.

    pool = Pool(workers=2, limits=Limits()).start()
    call = pool.call(Job("restrict", request, model), seconds=60)   # nothing happens yet
    for message in call: ...                                        # waits in the queue, then streams; bounded memory
    call.facts                                                      # what the worker says of the job: lines, breaks
    call.cancel()                                                   # from any thread: the worker is killed, not asked

Errors are those of ``exactline.errors`` (what the worker refused, a LimitError for the queue and the time) and
``Lost`` where the worker died; a job whose worker died before it said anything is done once more by another.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from ...errors import ServiceError
from ..limits import Limits, refuse
from .call import Call, Cancelled, Expired
from .ipc import Job, Model
from .process import Nursery, Worker

BEAT = 0.1  # seconds between two looks at what is idle or late


@dataclass
class Counts:
    """What happened since the start."""

    forked: int = 0
    killed: int = 0  # by us: cancelled or late
    died: int = 0  # of their own, or by somebody else's hand
    retried: int = 0


@dataclass
class PoolStats:
    """The pool at one moment."""

    workers: int
    busy: int
    queued: int
    pids: tuple[int, ...]
    cache: dict[str, int]  # of all workers together
    counts: Counts = field(default_factory=Counts)


class Pool:
    """Workers, and the calls that run on them or wait for one."""

    def __init__(self, workers: int, limits: Limits, *, device: str = "cpu", threads: int = 1) -> None:
        self.size, self.limits = workers, limits
        self.counts = Counts()
        self._nursery = Nursery({"limits": limits.as_dict(), "device": device, "threads": threads})
        self._changed = threading.Condition()
        self._idle: list[Worker] = []  # the last was used last
        self._all: list[Worker] = []
        self._waiting: deque[Call] = deque()
        self._running: set[Call] = set()
        self._closing = False
        self._keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)

    def start(self) -> Pool:
        """Fork the workers; back when all are there."""
        self._nursery.start()
        self._refill()
        self._keeper.start()
        return self

    def call(self, job: Job, seconds: float, *, fetch: Callable[[Model], bytes] | None = None) -> Call:
        """A call that has yet to begin; ``fetch`` gives the bytes of a model that a worker does not have."""
        return Call(self, job, time.monotonic() + seconds, fetch)

    def take(self, call: Call) -> Worker:
        """Wait for a worker, first come first served."""
        with self._changed:
            if not self._idle or self._waiting:
                self._queue(call)
            try:
                while not (self._alive() and (not self._waiting or self._waiting[0] is call)):
                    self._may_wait(call)
                    self._changed.wait(min(1.0, max(0.0, call.deadline - time.monotonic())))
                self._may_wait(call)
                self._running.add(call)
                return self._best(call.job.model)
            finally:
                if call in self._waiting:
                    self._waiting.remove(call)
                self._changed.notify_all()

    def _queue(self, call: Call) -> None:
        if len(self._waiting) >= self.limits.queue_length:
            raise refuse("queue_length", self.limits, f"All workers are busy and {len(self._waiting)} calls wait.")
        self._waiting.append(call)

    def _may_wait(self, call: Call) -> None:
        if self._closing:
            raise ServiceError("The server is ending.", where="queue", hint="Try again in a while.")
        if call.cancelled:
            raise Cancelled("cancelled while waiting")
        if time.monotonic() >= call.deadline:
            raise Expired("waited for a worker until the end of its time")

    def _alive(self) -> bool:
        """Whether a worker is idle; those that died meanwhile are left to the past."""
        for worker in [w for w in self._idle if w.gone()]:
            self._idle.remove(worker)
            self._lose(worker)
            self.counts.died += 1
        return bool(self._idle)

    def _best(self, model: Model | None) -> Worker:
        """An idle worker that has the model at hand, or the one that was used last."""
        place = next((i for i, w in enumerate(self._idle) if model in w.models), len(self._idle) - 1)
        return self._idle.pop(place)

    def give(self, call: Call, worker: Worker, *, fit: bool) -> None:
        """A worker back from a call; one that is not fit for another is killed and replaced."""
        with self._changed:
            self._running.discard(call)
            if fit and not self._closing:
                self._idle.append(worker)
            else:
                self._lose(worker)
            self._changed.notify_all()

    def _lose(self, worker: Worker) -> None:
        if worker in self._all:
            self._all.remove(worker)
        worker.end()

    def nudge(self) -> None:
        """Let whoever waits look again whether it still should."""
        with self._changed:
            self._changed.notify_all()

    def stats(self) -> PoolStats:
        """How the pool is now."""
        with self._changed:
            cache = {"models": 0, "bytes": 0, "hits": 0, "misses": 0}
            for worker in self._all:
                cache = {name: count + int(worker.cache.get(name, 0)) for name, count in cache.items()}
            pids = tuple(worker.pid for worker in self._all)
            return PoolStats(len(self._all), len(self._running), len(self._waiting), pids, cache, self.counts)

    def close(self) -> None:
        """End all workers, and with them whatever they do."""
        with self._changed:
            self._closing = True
            calls = list(self._running)
            self._changed.notify_all()
        for call in calls:
            call.cancel()
        self._keeper.join()
        with self._changed:
            for worker in self._idle:
                self._lose(worker)
            self._idle.clear()
        self._nursery.close()

    def _keep(self) -> None:
        """Until the end: workers that are gone are replaced, calls that are late are ended."""
        while True:
            with self._changed:
                if self._closing:
                    return
                self._changed.wait(BEAT)
                self._alive()
                late = [c for c in self._running if time.monotonic() > c.deadline + BEAT]
            for call in late:
                call.expire()
            self._refill()

    def _refill(self) -> None:
        while not self._closing and len(self._all) < self.size:
            worker = self._nursery.fork()
            if worker is None:
                return  # the nursery was lost and starts again; the next beat tries once more
            with self._changed:
                self.counts.forked += 1
                self._all.append(worker)
                self._idle.insert(0, worker)
                self._changed.notify_all()
