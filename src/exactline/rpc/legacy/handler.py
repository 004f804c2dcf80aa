"""The gRPC handler of the legacy protocol: passes a client's messages on to a worker while there are any."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import grpc

from ...errors import ArgumentError
from .. import LEGACY_SERVICE_NAME
from ..server.call import CallCancelled, CallExpired, WorkerCall, WorkerLost
from ..server.interceptor import CallContext, Interceptor
from ..server.ipc import WorkerJob

TRANSFORM_JOB = WorkerJob("transform")
IDLE_SECONDS = 0.5  # without a message, after which the worker is released
MAX_BUFFERED_MESSAGES = 1  # read while a worker handles the one before


def create_handler(interceptor: Interceptor) -> grpc.GenericRpcHandler:
    """Return the handler of the service's only method, for a gRPC server."""
    methods = {"Transform": interceptor.stream_stream("Transform", transform)}
    return grpc.method_handlers_generic_handler(LEGACY_SERVICE_NAME, methods)


def transform(requests: Iterator[bytes], context: CallContext) -> Iterator[bytes]:
    """Yield the responses to the lines and polytopes of a call, in order."""
    reader = _RequestReader(requests)
    session = _WorkerSession(context)
    try:
        while True:
            try:
                data = reader.next(min(IDLE_SECONDS, context.deadline - time.monotonic()))
            except queue.Empty:
                if time.monotonic() >= context.deadline:
                    raise CallExpired("the deadline of the call has passed") from None
                session.release()
                continue
            if data is None:
                session.release()
                return
            context.limits.check("legacy_message_bytes", len(data), "bytes in one message")
            response = session.send(data)
            if response:
                yield response
    finally:
        reader.close()
        session.close()


class _WorkerSession:
    """Sends the messages of one call to a worker; a new worker is sent the layers again."""

    def __init__(self, context: CallContext) -> None:
        self.context = context
        self.layers: list[bytes] = []
        self.layer_bytes = self.answered = 0  # answered counts lines and polytopes
        self.counters = {"lines": 0, "breaks": 0}
        self._call: WorkerCall | None = None
        self._stack = ExitStack()

    def send(self, data: bytes) -> bytes:
        """Return the response to a message, empty for a layer; if the worker is lost, another one is tried once."""
        try:
            response = self._ask_worker(data)
        except WorkerLost:
            self._close_call()
            self.context.interceptor.pool.counters.retried += 1
            response = self._ask_worker(data)
        if response:
            self.answered += 1
            self.context.limits.check("lines_per_call", self.answered, "lines and polytopes")
        elif self.answered:  # a worker that has taken over the call cannot know
            raise ArgumentError(
                "A layer comes after a line or a polytope.", where="the call", hint="Send all layers first."
            )
        else:
            self.layer_bytes += len(data)
            self.context.limits.check("legacy_call_bytes", self.layer_bytes, "bytes in all layers")
            self.layers.append(data)
        return response

    def release(self) -> None:
        """Let the worker finish its job, so that other calls can use it."""
        call = self._call
        if call is None:
            return
        try:
            call.finish_input()
            while call.receive() is not None:
                pass
        except WorkerLost:
            pass  # it had nothing left to do
        self._close_call()

    def close(self) -> None:
        """End the job, whatever happened, and report the counters."""
        self._close_call()
        self.context.counters |= self.counters

    def _ask_worker(self, data: bytes) -> bytes:
        call = self._call
        if call is None:
            call = self._call = self._stack.enter_context(self.context.open_call(TRANSFORM_JOB))
            call.start()
            for layer in self.layers:
                call.send_input(layer)
                call.receive()
        call.send_input(data)
        response = call.receive()
        if response is None:
            raise WorkerLost
        return response

    def _close_call(self) -> None:
        call, self._call = self._call, None
        self._stack.close()
        if call is not None:
            for name in self.counters:
                self.counters[name] += int(call.counters.get(name, 0))


class _RequestReader:
    """Reads a client's messages in a thread, so that waiting for the next one can time out."""

    def __init__(self, requests: Iterator[bytes]) -> None:
        self._queue: queue.Queue[bytes | None] = queue.Queue(MAX_BUFFERED_MESSAGES)
        self._closed, self._client_gone = threading.Event(), threading.Event()
        threading.Thread(target=self._read, args=(requests,), name="reader", daemon=True).start()

    def next(self, seconds: float) -> bytes | None:
        """Return the next message, or None at the end.

        Raises queue.Empty after so many seconds, CallCancelled if the client is gone.
        """
        data = self._queue.get(timeout=max(0.0, seconds))
        if data is None and self._client_gone.is_set():
            raise CallCancelled("the client is gone")
        return data

    def close(self) -> None:
        """Stop reading."""
        self._closed.set()

    def _read(self, requests: Iterator[bytes]) -> None:
        try:
            for data in requests:
                if not self._put(data):
                    return
        except Exception:  # noqa: BLE001 grpc has no documented type for a client that is gone
            self._client_gone.set()
        self._put(None)

    def _put(self, data: bytes | None) -> bool:
        while not self._closed.is_set():
            try:
                self._queue.put(data, timeout=IDLE_SECONDS)
                return True
            except queue.Full:
                continue
        return False
