"""One job on a worker of the pool: waits for a worker, passes its messages on, and tries another if it is lost."""

from __future__ import annotations

import asyncio
import os
import time
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from ...errors import ExactlineError, FileError, LimitError, MissingError
from . import ipc
from .clients import ClientUsage
from .ipc import ModelKey, WorkerJob, error_fields
from .pool import WorkerPool
from .process import WorkerLost as WorkerLost
from .process import WorkerProcess

MAX_ATTEMPTS = 8  # workers that a call may try, including those that were dead already
Fetch = Callable[[ModelKey], Awaitable[bytes]]


class JobFailed(Exception):
    """The worker ended the job with an error; `error` holds its code and its parts."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(str(error.get("problem", "")))
        self.error = error


def describe_error(problem: Exception) -> dict[str, Any]:
    """Return the fields of the error with which a call ends."""
    if isinstance(problem, JobFailed):
        return problem.error
    if isinstance(problem, ExactlineError):
        return error_fields(problem)
    fields = {"code": "internal", "problem": type(problem).__name__}
    if os.environ.get("EXACTLINE_TRACEBACK"):
        fields["traceback"] = traceback.format_exc()
    return fields


class WorkerCall:
    """A job and the worker that runs it; leaving it in any way but the end of the job kills the worker."""

    def __init__(self, pool: WorkerPool, client: ClientUsage, job: WorkerJob, fetch: Fetch | None = None) -> None:
        self.pool, self.client, self.job = pool, client, job
        self.counters: dict[str, Any] = {}  # lines and breaks of the job, known when it ends
        self.queue_seconds = 0.0  # spent waiting for workers
        self._fetch = fetch
        self._worker: WorkerProcess | None = None
        self._is_sent = False
        self._fetch_error: ExactlineError | None = None  # why the worker did not get the file of its model

    async def run(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Run the job and pass every message on.

        Raises JobFailed, LimitError, and WorkerLost if the worker is lost after the first message, or twice.
        """
        accepted = 0  # workers that began the job
        for remaining in range(MAX_ATTEMPTS - 1, -1, -1):
            silent = True
            try:
                await self.start()
                while (message := await self.receive()) is not None:
                    silent = False
                    await send(message)
                return
            except WorkerLost:
                accepted += self._has_read_job()
                if not silent or accepted > 1 or not remaining:
                    raise
                self.pool.counters.retried += 1
            finally:
                self.close()

    async def start(self) -> None:
        """Wait for a worker and send it the job. Call this only to send more input; otherwise `run`."""
        began = time.monotonic()
        self._is_sent = False
        self._worker = await self.pool.acquire(self.client, self.job.model)
        self.queue_seconds += time.monotonic() - began
        await self._worker.send(ipc.JOB, *self.job.encode())
        self._is_sent = True

    async def send_input(self, data: bytes) -> None:
        """Send more input for the job."""
        await self._require_worker().send(ipc.INPUT, data)

    async def finish_input(self) -> None:
        """Tell the worker that there is no more input."""
        await self._require_worker().send(ipc.END_OF_INPUT)

    async def receive(self) -> bytes | None:
        """Return the next message, or None at the end of the job; an answer begins with the number of its input."""
        worker = self._require_worker()
        while True:
            kind, data = await worker.receive()
            if kind in (ipc.MESSAGE, ipc.ANSWER):
                return data
            if kind == ipc.NEED_MODEL:
                await self._send_model(worker)
                continue
            try:
                fields = ipc.decode_json(data)
            except ValueError:
                raise WorkerLost from None
            if kind == ipc.DONE:
                self.counters, worker.cache_counters = fields, fields.pop("cache", {})
                self._release(reusable=True)
                return None
            self.counters = fields.pop("counters", {})
            if self._fetch_error is not None:
                self._release(reusable=kind == ipc.FAILED)
                raise self._fetch_error
            self._release(reusable=kind == ipc.FAILED and bool(fields.pop("reusable", False)))
            raise JobFailed(fields)

    async def _send_model(self, worker: WorkerProcess) -> None:
        """Send the worker the file of its model; if there is none, the worker ends the job and stays usable."""
        model, fetch = self.job.model, self._fetch
        try:
            if model is None or fetch is None:
                raise WorkerLost
            await worker.send(ipc.INPUT, await fetch(model))
            worker.sent_models.add(model)
        except (FileError, MissingError, LimitError) as problem:
            self._fetch_error = problem
            await worker.send(ipc.END_OF_INPUT)

    def close(self) -> None:
        """Release the worker; it is killed unless the job has ended."""
        self._release(reusable=False)

    def _has_read_job(self) -> bool:
        """Whether the lost worker had read the job, and so may have been lost because of it."""
        return self._is_sent and self._worker is not None and not self._worker.left_input_unread

    def _require_worker(self) -> WorkerProcess:
        if self._worker is None:
            raise WorkerLost
        return self._worker

    def _release(self, *, reusable: bool) -> None:
        worker, self._worker = self._worker, None
        if worker is None:
            return
        if not reusable:
            task = asyncio.current_task()
            killed = not worker.lost or (task is not None and task.cancelling() > 0)
            self.pool.counters.killed += killed
            self.pool.counters.died += not killed
        self.pool.release(self.client, worker, reusable=reusable)
