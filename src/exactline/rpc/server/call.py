"""One call of the worker pool: waits for a worker, streams its messages, and can be ended from any thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...errors import ServiceError
from . import ipc
from .ipc import ModelKey, WorkerJob
from .process import WorkerProcess

if TYPE_CHECKING:
    from .pool import WorkerPool

MAX_FRAME_BYTES = 256 << 20  # of one frame from a worker
MAX_ATTEMPTS = 8  # workers that a call may try, including those that were dead already


class CallCancelled(Exception):
    """The client does not wait for the answer any more."""


class CallExpired(Exception):
    """The call has reached its deadline."""


class JobFailed(Exception):
    """The worker ended the job with an error; `error` holds its code and its parts."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("problem", "")))
        self.error = error


class WorkerLost(ServiceError):
    """The worker died while it ran the job."""

    def __init__(self) -> None:
        super().__init__("The worker that ran this job was lost.", where="server", hint="Try again.")


class WorkerCall:
    """A job, the worker that runs it, and the messages that come back."""

    def __init__(
        self, pool: WorkerPool, job: WorkerJob, deadline: float, fetch: Callable[[ModelKey], bytes] | None
    ) -> None:
        self.pool, self.job, self.deadline = pool, job, deadline  # the deadline is a time of time.monotonic
        self.counters: dict[str, Any] = {}  # lines and breaks of the job, known when it ends
        self.cancelled = self.expired = False
        self.on_unread: Callable[[], object] | None = None  # called if the client does not read that the call expired
        self._fetch = fetch
        self._accepted = False
        self._worker: WorkerProcess | None = None
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[bytes]:
        accepted = 0  # workers that accepted the job; one that was dead before does not count
        for remaining in range(MAX_ATTEMPTS - 1, -1, -1):
            silent, self._accepted = True, False
            try:
                self.start()
                while (message := self.receive()) is not None:
                    silent = False
                    yield message
                return
            except WorkerLost:
                accepted += self._accepted
                if not silent or accepted > 1 or not remaining or self.cancelled or self.expired:
                    raise
                self.pool.counters.retried += 1
            finally:
                self.close()

    def start(self) -> None:
        """Wait for a worker and send it the job. Call this only to send more input; otherwise iterate."""
        worker = self.pool.acquire_worker(self)
        with self._lock:
            self._worker = worker
        if self.cancelled:
            self.close()
            raise CallCancelled("cancelled")
        self._send_frame(self.job.encode())

    def send_input(self, data: bytes) -> None:
        """Send more input for the job."""
        self._send_frame(ipc.INPUT + data)

    def finish_input(self) -> None:
        """Tell the worker that there is no more input."""
        self._send_frame(ipc.END_OF_INPUT)

    def receive(self) -> bytes | None:
        """Return the next message, or None at the end of the job."""
        while True:
            frame = self._receive_frame()
            kind = frame[:1]
            if kind == ipc.MESSAGE:
                return frame[1:]
            if kind == ipc.ACCEPTED:
                self._accepted = True
                continue
            worker = self._worker
            if worker is None:
                raise WorkerLost
            if kind == ipc.NEED_MODEL and self.job.model is not None and self._fetch is not None:
                self.send_input(self._fetch(self.job.model))
                worker.sent_models.add(self.job.model)
                continue
            try:
                fields = ipc.decode_json(frame)
            except ValueError:
                raise WorkerLost from None
            if kind == ipc.DONE:
                self.counters, worker.cache_counters = fields, fields.pop("cache", {})
                self._release(reusable=True)
                return None
            self.counters = fields.pop("counters", {})
            self._release(reusable=kind == ipc.FAILED and fields.get("where") != "limit worker_bytes")
            raise JobFailed(fields)

    def cancel(self) -> None:
        """End the call and kill its worker; may be called from any thread, repeatedly, and after the end."""
        self.cancelled = True
        with self._lock:
            if self._worker is not None:
                self._worker.kill()
        self.pool.wake_waiting()

    def expire(self) -> None:
        """Kill the worker because the deadline has passed; the second time, call ``on_unread`` too."""
        with self._lock:
            if self._worker is None:
                return
            again, self.expired = self.expired, True
            self._worker.kill()
        if again and self.on_unread is not None:
            self.on_unread()

    def close(self) -> None:
        """Release the worker; it is killed unless the job has ended."""
        self._release(reusable=False)

    def _release(self, *, reusable: bool) -> None:
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            killed = self.cancelled or self.expired
            if not reusable:
                self.pool.counters.killed += killed
                self.pool.counters.died += not killed
            self.pool.release_worker(self, worker, reusable=reusable and not killed)

    def _send_frame(self, frame: bytes) -> None:
        try:
            if self._worker is None:
                raise WorkerLost
            self._worker.connection.send_bytes(frame)
        except OSError:
            raise self._explain_disconnect() from None

    def _receive_frame(self) -> bytes:
        worker = self._worker
        if worker is None:
            raise WorkerLost
        try:
            if not worker.connection.poll(max(0.0, self.deadline - time.monotonic())):
                self.expired = True
                raise self._explain_disconnect()
            return worker.connection.recv_bytes(MAX_FRAME_BYTES)
        except (OSError, EOFError):
            raise self._explain_disconnect() from None

    def _explain_disconnect(self) -> Exception:
        """Return the exception that says why the worker is gone."""
        if self.cancelled:
            return CallCancelled("cancelled")
        if self.expired or time.monotonic() >= self.deadline:
            self.expired = True
            return CallExpired("the deadline of the call has passed")
        return WorkerLost()
