"""The legacy protocol in the front: passes a client's messages on to a worker, and its answers back, in order."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque

from ...errors import ExactlineError
from ..server.call import WorkerCall, WorkerLost
from ..server.front import Call
from ..server.ipc import NUMBER_BYTES, WorkerJob

IDLE_SECONDS = 0.5  # without anything to do, after which the worker is released
MAX_UNSENT_BYTES = 1 << 20  # of messages that a worker has not taken, above which the client is not read
MAX_UNSENT_MESSAGES = 1024
MAX_LOSSES = 2  # workers that a message may lose


async def transform(call: Call) -> None:
    """Answer the lines and polytopes of a call."""
    session = _Session(call)
    reader = asyncio.create_task(session.read_messages())
    try:
        await session.answer()
    finally:
        await _cancel(reader)


class _Session:
    """The messages of one call, and the worker that has them; another worker is sent the layers again.

    Messages are not parsed here. The worker says which of them it has answered: those before, without an answer of
    their own, were layers.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        self.layers: list[bytes] = []
        self.answered = 0  # lines and polytopes
        self.counters = {"lines": 0, "breaks": 0}
        self._unsent: deque[bytes] = deque([self._check(call.first_message)])
        self._unsent_bytes = len(call.first_message)
        self._pending: deque[bytes] = deque()  # sent to the worker, which has not said what they are
        self._first_pending = 0  # the number of the first one among all inputs of the worker's job
        self._ended = False
        self._changed, self._taken = asyncio.Event(), asyncio.Event()

    async def read_messages(self) -> None:
        """Read the client's messages until the last one; an error ends the call."""
        try:
            while (message := await self.call.read()) is not None:
                self._unsent.append(self._check(message))
                self._unsent_bytes += len(message)
                self._changed.set()
                while self._unsent_bytes > MAX_UNSENT_BYTES or len(self._unsent) > MAX_UNSENT_MESSAGES:
                    self._taken.clear()
                    await self._taken.wait()
        except ExactlineError as problem:
            self.call.end(problem)
        self._ended = True
        self._changed.set()

    def _check(self, message: bytes) -> bytes:
        self.call.limits.check("legacy_message_bytes", len(message), "bytes in one message")
        return message

    async def answer(self) -> None:
        """Answer all messages; between them the call has no worker."""
        losses, call = 0, self.call
        try:
            while await self._wait_for_message():
                call.admit()
                answered = self.answered
                try:
                    await self._work()
                except WorkerLost:
                    losses = 1 if self.answered > answered else losses + 1
                    if losses >= MAX_LOSSES:
                        raise
                    call.front.pool.counters.retried += 1
                    self._unsent.extendleft(reversed(self._pending))
                    self._unsent_bytes += sum(map(len, self._pending))
                    self._pending.clear()
        finally:
            call.counters |= self.counters

    async def _wait_for_message(self) -> bool:
        """Wait until there is a message to send; returns False after the last one."""
        while not self._unsent:
            if self._ended:
                return False
            self.call.pause()
            self.call.set_end("idle", "idle_seconds", self.call.limits.idle_seconds)
            self._changed.clear()
            await self._changed.wait()
        self.call.set_end("idle")
        return True

    async def _work(self) -> None:
        """Let a worker answer messages until there is nothing to do."""
        payload = json.dumps({"answered": self.answered, "layers": len(self.layers)}).encode()
        worker_call = WorkerCall(self.call.front.pool, self.call.client, WorkerJob("transform", payload))
        sender: asyncio.Task[None] | None = None
        try:
            await worker_call.start()
            self._first_pending = len(self.layers)
            sender = asyncio.create_task(self._send_messages(worker_call))
            while (answer := await worker_call.receive()) is not None:
                message = answer[NUMBER_BYTES:]
                self._settle(int.from_bytes(answer[:NUMBER_BYTES], "little"), is_layer=not message)
                if message:
                    await self.call.write(message)
        finally:
            if sender is not None:
                await _cancel(sender)
            worker_call.close()
            self.call.queue_seconds += worker_call.queue_seconds
            for name in self.counters:
                self.counters[name] += int(worker_call.counters.get(name, 0))

    async def _send_messages(self, worker_call: WorkerCall) -> None:
        """Send the layers again, then messages as they come; tells the worker when it has nothing left to do."""
        with contextlib.suppress(WorkerLost):  # the receiver of its answers notices
            for layer in self.layers:
                await worker_call.send_input(layer)
            while self._unsent or not self._ended:
                if self._unsent:
                    message = self._unsent.popleft()
                    self._unsent_bytes -= len(message)
                    self._pending.append(message)
                    self._taken.set()
                    await worker_call.send_input(message)
                    continue
                self._changed.clear()
                try:
                    async with asyncio.timeout(IDLE_SECONDS):
                        await self._changed.wait()
                except TimeoutError:
                    if not self._pending:
                        break
            await worker_call.finish_input()

    def _settle(self, number: int, *, is_layer: bool) -> None:
        """Note that the worker has taken all messages up to a number, of which the last may have an answer."""
        while self._pending and self._first_pending <= number:
            message = self._pending.popleft()
            if is_layer or self._first_pending < number:
                self.layers.append(message)
            else:
                self.answered += 1
                self.call.drop(len(message))
            self._first_pending += 1


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
