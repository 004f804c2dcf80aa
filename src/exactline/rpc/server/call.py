"""One call on its way through the pool: waits for a worker, streams its messages, can be ended from any thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...errors import ServiceError
from . import ipc as frames
from .ipc import Job, Model
from .process import Worker

if TYPE_CHECKING:
    from .pool import Pool

FRAME = 256 << 20  # bytes of one frame from a worker, at most
TRIES = 8


class Cancelled(Exception):
    """Nobody waits for the answer any more."""


class Expired(Exception):
    """The time of the call is over."""


class Refused(Exception):
    """The worker ended the job with an error, told in plain facts."""

    def __init__(self, facts: dict[str, Any]) -> None:
        super().__init__(str(facts.get("problem", "")))
        self.facts = facts


class Lost(ServiceError):
    """The worker that did the job died."""

    def __init__(self) -> None:
        super().__init__("The worker that did this job was lost.", where="server", hint="Try again.")


class Call:
    """A job, the worker that does it, and the messages that come back."""

    def __init__(self, pool: Pool, job: Job, deadline: float, fetch: Callable[[Model], bytes] | None) -> None:
        self.pool, self.job, self.deadline = pool, job, deadline  # the deadline is on time.monotonic's clock
        self.facts: dict[str, Any] = {}  # what the worker said of the job at its end
        self.cancelled = self.expired = False
        self.stuck: Callable[[], object] | None = None  # called where the client does not even read that it is late
        self._fetch = fetch
        self._taken = False
        self._worker: Worker | None = None
        self._state = threading.Lock()

    def __iter__(self) -> Iterator[bytes]:
        began = 0  # workers that took the job; one that was dead before that is no try
        for left in range(TRIES - 1, -1, -1):
            silent, self._taken = True, False
            try:
                self.begin()
                while (message := self.receive()) is not None:
                    silent = False
                    yield message
                return
            except Lost:
                began += self._taken
                if not silent or began > 1 or not left or self.cancelled or self.expired:
                    raise
                self.pool.counts.retried += 1
            finally:
                self.close()

    def begin(self) -> None:
        """Wait for a worker and give it the job; for those who send more input, otherwise just iterate."""
        worker = self.pool.take(self)
        with self._state:
            self._worker = worker
        if self.cancelled:
            self.close()
            raise Cancelled("cancelled")
        self._say(self.job.packed())

    def send(self, data: bytes) -> None:
        """More input for the job."""
        self._say(frames.DATA + data)

    def finish(self) -> None:
        """There is no more input."""
        self._say(frames.NO_MORE)

    def receive(self) -> bytes | None:
        """The next message, or None at the end of the job."""
        while True:
            frame = self._heard()
            kind = frame[:1]
            if kind == frames.MESSAGE:
                return frame[1:]
            if kind == frames.TAKEN:
                self._taken = True
                continue
            worker = self._worker
            if worker is None:
                raise Lost
            if kind == frames.NEED and self.job.model is not None and self._fetch is not None:
                self.send(self._fetch(self.job.model))
                worker.models.add(self.job.model)
                continue
            try:
                told = frames.told(frame)
            except ValueError:
                raise Lost from None
            if kind == frames.END:
                self.facts, worker.cache = told, told.pop("cache", {})
                self._back(fit=True)
                return None
            self.facts = told.pop("facts", {})
            self._back(fit=kind == frames.ERROR and told.get("where") != "limit worker_bytes")
            raise Refused(told)

    def cancel(self) -> None:
        """End the call and its worker; from any thread, any number of times, also when it is over."""
        self.cancelled = True
        with self._state:
            if self._worker is not None:
                self._worker.kill()
        self.pool.nudge()

    def expire(self) -> None:
        """End the call because its time is over; where nobody reads its messages, ``stuck`` is called too."""
        with self._state:
            if self._worker is None:
                return
            again, self.expired = self.expired, True
            self._worker.kill()
        if again and self.stuck is not None:
            self.stuck()

    def close(self) -> None:
        """Let the worker go; it is killed unless the job was done."""
        self._back(fit=False)

    def _back(self, *, fit: bool) -> None:
        with self._state:
            worker, self._worker = self._worker, None
        if worker is not None:
            ours = self.cancelled or self.expired
            if not fit:
                self.pool.counts.killed += ours
                self.pool.counts.died += not ours
            self.pool.give(self, worker, fit=fit and not ours)

    def _say(self, frame: bytes) -> None:
        try:
            if self._worker is None:
                raise Lost
            self._worker.connection.send_bytes(frame)
        except OSError:
            raise self._why() from None

    def _heard(self) -> bytes:
        worker = self._worker
        if worker is None:
            raise Lost
        try:
            if not worker.connection.poll(max(0.0, self.deadline - time.monotonic())):
                self.expired = True
                raise self._why()
            return worker.connection.recv_bytes(FRAME)
        except (OSError, EOFError):
            raise self._why() from None

    def _why(self) -> Exception:
        """Why there is no worker any more."""
        if self.cancelled:
            return Cancelled("cancelled")
        if self.expired or time.monotonic() >= self.deadline:
            self.expired = True
            return Expired("the time of the call is over")
        return Lost()
