"""The server's part of the old protocol: hands a client's messages to a worker, while there are any."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import grpc

from ...errors import ArgumentError
from ..server.call import Call, Cancelled, Expired, Lost
from ..server.interceptor import Door, Visit
from ..server.ipc import Job

NAME = "syrenn_server.SyReNNTransformer"
JOB = Job("transform")
PAUSE = 0.5  # seconds without a message after which the worker is let go
AHEAD = 1  # messages that are read while a worker is at the one before


def handler(door: Door) -> grpc.GenericRpcHandler:
    """The one method there is, for a gRPC server."""
    return grpc.method_handlers_generic_handler(NAME, {"Transform": door.many_to_many("Transform", transform)})


def transform(requests: Iterator[bytes], visit: Visit) -> Iterator[bytes]:
    """The answers to the lines and polytopes of a call, in order."""
    inbox = _Inbox(requests)
    talk = _Talk(visit)
    try:
        while True:
            try:
                data = inbox.next(min(PAUSE, visit.deadline - time.monotonic()))
            except queue.Empty:
                if time.monotonic() >= visit.deadline:
                    raise Expired("the time of the call is over") from None
                talk.rest()
                continue
            if data is None:
                talk.rest()
                return
            visit.limits.within("old_message_bytes", len(data), "bytes in one message")
            answer = talk.said(data)
            if answer:
                yield answer
    finally:
        inbox.close()
        talk.close()


class _Talk:
    """What is said to a worker: the network again where it is another one, then message by message."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit
        self.layers: list[bytes] = []
        self.kept = self.answered = 0  # bytes of them, and how many lines and polytopes
        self.facts = {"lines": 0, "breaks": 0}
        self._call: Call | None = None
        self._stack = ExitStack()

    def said(self, data: bytes) -> bytes:
        """The answer to one message, empty for a layer; where the worker is lost, another one is asked once."""
        for left in (True, False):
            try:
                answer = self._asked(data)
                break
            except Lost:
                self._drop()
                if not left:
                    raise
                self.visit.door.pool.counts.retried += 1
        else:
            raise Lost
        if answer:
            self.answered += 1
            self.visit.limits.within("lines_per_call", self.answered, "lines and polytopes")
        elif self.answered:  # a worker that is new to the call cannot know
            raise ArgumentError(
                "A layer comes after a line or a polytope.", where="the call", hint="Send all layers first."
            )
        else:
            self.kept += len(data)
            self.visit.limits.within("old_call_bytes", self.kept, "bytes in all layers")
            self.layers.append(data)
        return answer

    def rest(self) -> None:
        """Let the worker go; it has done its job."""
        call = self._call
        if call is None:
            return
        try:
            call.finish()
            while call.receive() is not None:
                pass
        except Lost:
            pass  # nothing was asked of it any more
        self._drop()

    def close(self) -> None:
        """Whatever happened, no worker is kept."""
        self._drop()
        self.visit.facts |= self.facts

    def _asked(self, data: bytes) -> bytes:
        call = self._call
        if call is None:
            call = self._call = self._stack.enter_context(self.visit.call(JOB))
            call.begin()
            for layer in self.layers:
                call.send(layer)
                call.receive()
        call.send(data)
        answer = call.receive()
        if answer is None:
            raise Lost
        return answer

    def _drop(self) -> None:
        call, self._call = self._call, None
        self._stack.close()
        if call is not None:
            for name in self.facts:
                self.facts[name] += int(call.facts.get(name, 0))


class _Inbox:
    """A client's messages, read by a thread, so that one can stop waiting for the next."""

    def __init__(self, requests: Iterator[bytes]) -> None:
        self._queue: queue.Queue[bytes | None] = queue.Queue(AHEAD)
        self._closed, self._gone = threading.Event(), threading.Event()
        threading.Thread(target=self._read, args=(requests,), name="reader", daemon=True).start()

    def next(self, seconds: float) -> bytes | None:
        """The next message, or None at the end; raises queue.Empty after so many seconds."""
        data = self._queue.get(timeout=max(0.0, seconds))
        if data is None and self._gone.is_set():
            raise Cancelled("the client is gone")
        return data

    def close(self) -> None:
        """Read no more."""
        self._closed.set()

    def _read(self, requests: Iterator[bytes]) -> None:
        try:
            for data in requests:
                if not self._put(data):
                    return
        except Exception:  # noqa: BLE001 whatever grpc says of it, the client is gone
            self._gone.set()
        self._put(None)

    def _put(self, data: bytes | None) -> bool:
        while not self._closed.is_set():
            try:
                self._queue.put(data, timeout=PAUSE)
                return True
            except queue.Full:
                continue
        return False
