"""What every call passes through: its first message, limits, deadlines, errors as statuses, one line in the log.

All methods are streams to gRPC, so that the front itself decides how long to wait for a message. Requests stay bytes
here: workers parse them. One task supervises all calls: it ends those that exceed the time of what they are doing, and
those that are receiving messages while the process needs more memory than the limit allows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from ...budget import release_free_memory
from ...errors import ArgumentError, ExactlineError, LimitError
from ..limits import MIB, Limits
from ..status import ERROR_METADATA_KEY, REQUEST_ID_KEY, encode_error
from .access import find_request_id
from .call import Fetch, WorkerCall, describe_error
from .clients import ByteBudget, ClientUsage
from .connections import Connections, Peer, parse_peer
from .ipc import WorkerJob, error_fields
from .log import Log, ServerCounters
from .memory import allocated_bytes, resident_bytes
from .metrics import Metrics
from .pool import WorkerPool

SUPERVISION_SECONDS = 0.1  # between two checks of all calls
CONNECTION_SECONDS = 1.0  # between two looks at the connections
STATUS_SECONDS = 1.0  # for a client that does not read to take the status
COPIES = 2  # of a message that gRPC delivers, for a moment: its own and ours
MAX_ENDED_AT_ONCE = 8  # calls that lose their memory between two checks
RELEASE_SECONDS = 2.0  # between two looks at memory that was freed and not given back to the system
MAX_FREE_MEMORY_BYTES = 64 * MIB  # that is not given back
METHODS_WITHOUT_MESSAGE = ("Transform",)  # which may end without a message
MAX_FREE_BYTES = 4096  # of a message of the health service
END: Any = getattr(grpc.aio, "EOF")  # noqa: B009 after the last message; grpc's stubs do not know it
Handler = Callable[["Call"], Awaitable[None]]


class ClientGone(Exception):
    """The client does not wait for the answer any more."""


class Call:
    """A gRPC call and what its handler needs to answer it."""

    def __init__(self, front: Front, method: str, context: Any, client: ClientUsage, is_free: bool = False) -> None:
        self.front, self.method, self.context, self.client, self.is_free = front, method, context, client, is_free
        self.counters: dict[str, Any] = {}  # lines and breaks, for the log
        self.queue_seconds = 0.0
        self.request_id = find_request_id(context.invocation_metadata())
        self.first_message = b""
        self.began = time.monotonic()
        self.is_admitted = False  # counted as a call that runs or waits for a worker
        self.reading_since: float | None = None  # while it waits for a message
        self.held = 0  # bytes of the front's memory
        self.error: dict[str, Any] | None = None  # why the server ends the call
        self.outcome: grpc.StatusCode | None = None  # of a call that ends without a status
        # the limit that ends each activity, and when
        self._ends: dict[str, tuple[str, float]] = {"call": ("call_seconds", self.began + front.limits.call_seconds)}
        self._task = asyncio.current_task()

    @property
    def limits(self) -> Limits:
        """The limits of the server."""
        return self.front.limits

    async def read(self, limit: str = "", seconds: float = 0.0) -> bytes | None:
        """Return the next message, None after the last one.

        Args:
            limit: the limit that ends the call if the message takes too long; "" for none but that of the call.
            seconds: how long that is.
        """
        self.reading_since = time.monotonic()
        self.set_end("read", limit, seconds)
        message = await self.context.read()
        self.reading_since = None
        self.set_end("read")
        if message is END:
            return None
        self.hold(len(message))
        return message

    async def write(self, message: bytes) -> None:
        """Send a message to the client; the call ends if the client does not read it in time."""
        self.set_end("write", "write_seconds", self.limits.write_seconds + len(message) / MIB)
        try:
            await self.context.write(message)
        except (grpc.RpcError, grpc.aio.BaseError) as problem:
            raise ClientGone from problem
        self.set_end("write")

    def set_end(self, activity: str, limit: str = "", seconds: float = 0.0) -> None:
        """End the call after so many seconds, with the error of a limit, unless the activity ends before."""
        if limit:
            self._ends[activity] = (limit, time.monotonic() + seconds)
        else:
            self._ends.pop(activity, None)

    def hold(self, count: int) -> None:
        """Count some bytes as held by this call.

        Raises LimitError if there are too many.
        """
        if self.is_free and count <= MAX_FREE_BYTES:
            return
        self.held += count
        self.front.budget.add(self.client, count)
        self.front.make_room(self)
        self.front.budget.check(self.client)

    def drop(self, count: int) -> None:
        """Count some bytes as not held any more."""
        self.held -= count
        self.front.budget.remove(self.client, count)

    def admit(self) -> None:
        """Count the call as one that runs or waits for a worker.

        Raises LimitError if there are too many.
        """
        if not self.is_admitted:
            self.front.admit(self)

    def pause(self) -> None:
        """Count the call as one that waits for its client."""
        if self.is_admitted:
            self.front.dismiss(self)

    async def run_job(
        self, job: WorkerJob, fetch: Fetch | None = None, send: Callable[[bytes], Awaitable[None]] | None = None
    ) -> None:
        """Run a job on a worker and send its messages to the client; ``fetch`` returns the file of a model."""
        call = WorkerCall(self.front.pool, self.client, job, fetch)
        try:
            await call.run(send or self.write)
        finally:
            self.counters |= call.counters
            self.queue_seconds += call.queue_seconds

    def check_time(self, now: float) -> None:
        """End the call if what it is doing takes too long."""
        for limit, end in self._ends.values():
            if now > end:
                self.end(self.limits.error(limit, LATE_PROBLEMS[limit]))
                return

    def end(self, error: ExactlineError) -> None:
        """End the call with an error."""
        if self.error is None and self._task is not None:
            self.error = error_fields(error)
            self._task.cancel()


LATE_PROBLEMS = {
    "call_seconds": "The call takes too long.",
    "first_message_seconds": "The first message has not arrived.",
    "idle_seconds": "The next message has not arrived.",
    "upload_seconds": "The upload takes too long.",
    "write_seconds": "The client does not read its answer.",
}


class Front:
    """Makes gRPC handlers of functions that answer calls, and supervises the calls."""

    def __init__(self, pool: WorkerPool, limits: Limits, log: Log, metrics: Metrics | None = None) -> None:
        self.pool, self.limits, self.log, self.metrics = pool, limits, log, metrics
        self.counters, self.budget = ServerCounters(), ByteBudget(limits)
        self.stored_bytes: Callable[[], int] = lambda: 0  # of uploads that are kept
        self.connections: Connections | None = None  # of a server that listens on a port
        self.port = 0
        self._calls: dict[Call, None] = {}  # the oldest first
        self._base_bytes = self._base_resident = 0  # of the process before the first call

    def bind(
        self,
        method: str,
        handler: Handler,
        client: ClientUsage | Callable[[Any], ClientUsage],
        *,
        is_free: bool = False,
    ) -> Any:
        """Return the gRPC handler of one call of a client, or of the client that a function finds for it.

        Args:
            method: its name in log and metrics.
            handler: answers the call.
            client: who calls.
            is_free: whether it counts against no limit on calls and memory, if its messages are small.
        """

        async def serve(_: Any, context: Any) -> None:
            usage = client if isinstance(client, ClientUsage) else client(context)
            await self._serve(Call(self, method, context, usage, is_free), handler)

        return grpc.stream_stream_rpc_method_handler(serve)

    async def _serve(self, call: Call, handler: Handler) -> None:
        """Answer a call; an error ends the call with a status and has no other effect."""
        self._calls[call] = None
        code, error = grpc.StatusCode.CANCELLED, None
        try:
            code, error = await self._answer(call, handler)
        finally:
            self._forget(call)
            self._record(call, code, error)
        if error is not None:
            await self._send_status(call, error)

    async def _answer(self, call: Call, handler: Handler) -> tuple[grpc.StatusCode, dict[str, Any] | None]:
        """Answer a call; returns its status, and the fields of an error that is still to be sent.

        Raises CancelledError if the client is gone.
        """
        remaining = call.context.time_remaining()
        call.context.set_trailing_metadata(((REQUEST_ID_KEY, call.request_id),))
        try:
            await self._handle(call, handler)
            return grpc.StatusCode.OK, None
        except asyncio.CancelledError:
            if call.error is None:
                late = remaining is not None and time.monotonic() - call.began >= remaining
                call.outcome = grpc.StatusCode.DEADLINE_EXCEEDED if late else grpc.StatusCode.CANCELLED
                raise
            fields = call.error
        except ClientGone:
            raise asyncio.CancelledError from None
        except Exception as problem:  # noqa: BLE001 a call that fails must not end the server
            fields = describe_error(problem)
        if trace := fields.pop("traceback", ""):
            self.log("traceback", "debug", request=call.request_id, traceback=trace)
        return encode_error(fields)[0], fields

    async def _handle(self, call: Call, handler: Handler) -> None:
        """Wait for the first message, admit the call, and answer it."""
        limits = self.limits
        if len(self._calls) - self.counters.in_flight > limits.waiting_calls:
            self._end_oldest_waiting()
        first = await call.read("first_message_seconds", limits.first_message_seconds)
        if first is None:
            await self._end_without_message(call)
            return
        call.first_message = first
        if not call.is_free:
            call.admit()
        await handler(call)

    async def _end_without_message(self, call: Call) -> None:
        """End a call whose client has sent nothing and will send nothing.

        Raises ArgumentError unless the method takes any number of messages, CancelledError if the client is gone.
        """
        await asyncio.sleep(0)  # the end of a call that was reset arrives after the end of its messages
        if call.context.cancelled():
            raise ClientGone
        if call.method not in METHODS_WITHOUT_MESSAGE:
            raise ArgumentError("The call has no message.", where="request", hint="Send one request message.")

    async def _send_status(self, call: Call, fields: dict[str, Any]) -> None:
        """End the call with the status of an error; one whose client does not read is reset."""
        code, message, metadata = encode_error(fields)
        trailers = ((REQUEST_ID_KEY, call.request_id), (ERROR_METADATA_KEY, metadata))
        task = asyncio.current_task()
        while task is not None and task.cancelling():
            task.uncancel()
        try:
            async with asyncio.timeout(STATUS_SECONDS):
                await call.context.abort(code, message, trailers)
        except (TimeoutError, grpc.aio.InternalError, grpc.aio.UsageError):
            raise asyncio.CancelledError from None  # gRPC resets a call that ends without a status

    def admit(self, call: Call) -> None:
        """Count a call as running; see `Call.admit`."""
        limits, client = self.limits, call.client
        if self.counters.in_flight >= limits.concurrent_calls:
            raise limits.error("concurrent_calls", "Too many calls are in flight.")
        if client.has_quota and client.calls >= limits.client_calls:
            raise limits.error("client_calls", "Too many calls of this client are in flight.")
        self.counters.in_flight += 1
        client.calls += 1
        call.is_admitted = True

    def dismiss(self, call: Call) -> None:
        """Count a call as not running any more."""
        self.counters.in_flight -= 1
        call.client.calls -= 1
        call.is_admitted = False

    def make_room(self, call: Call) -> None:
        """End calls that hold memory while they wait for their clients, the oldest first, if memory is short."""
        for other in list(self._calls):
            if self.budget.held <= self.limits.front_bytes:
                return
            if other is not call and other.held and other.reading_since is not None and not other.is_admitted:
                other.end(self._memory_error())
                other.drop(other.held)

    async def supervise(self) -> None:
        """End calls that take too long or too much memory, until cancelled."""
        self._base_bytes, self._base_resident = allocated_bytes(), resident_bytes()
        released_at = connections_at = time.monotonic()
        while True:
            await asyncio.sleep(SUPERVISION_SECONDS)
            now = time.monotonic()
            try:
                for call in list(self._calls):
                    call.check_time(now)
                self._limit_memory(now)
                if now - connections_at > CONNECTION_SECONDS:
                    connections_at = now
                    self._limit_connections(now)
                if now - released_at > RELEASE_SECONDS:
                    released_at = now
                    await self._release_free_memory()
            except Exception as problem:  # noqa: BLE001 nobody else would end calls
                self.log("supervisor", "error", fault=type(problem).__name__)

    def _limit_connections(self, now: float) -> None:
        """Close idle connections if there are as many as allowed."""
        if self.connections is None:
            return
        waiting, busy = set[Peer](), set[Peer]()
        for call in self._calls:
            is_waiting = call.reading_since is not None and not call.is_admitted
            (waiting if is_waiting else busy).add(parse_peer(call.context.peer()))
        if count := self.connections.make_room(self.port, busy, waiting, now):
            self.log("connections", "warning", closed=count, problem="There are as many connections as allowed.")

    async def _release_free_memory(self) -> None:
        used = allocated_bytes() - self._base_bytes
        if resident_bytes() - self._base_resident - used > MAX_FREE_MEMORY_BYTES:
            await asyncio.to_thread(release_free_memory)

    def _limit_memory(self, now: float) -> None:
        """End the calls that have received messages for longest if the process needs too much memory."""
        used = allocated_bytes() - self._base_bytes - self.stored_bytes()
        if used <= COPIES * self.limits.front_bytes:
            return
        readers = [call for call in self._calls if call.reading_since is not None]
        readers.sort(key=lambda call: call.reading_since or now)
        for call in readers[:MAX_ENDED_AT_ONCE]:
            call.end(self._memory_error())

    def _end_oldest_waiting(self) -> None:
        for call in self._calls:
            if call.reading_since is not None and not call.is_admitted and call.error is None:
                call.end(self.limits.error("waiting_calls", "Too many calls wait for their clients."))
                return

    def _memory_error(self) -> LimitError:
        return self.limits.error("front_bytes", "The messages of all calls need too much memory.")

    def _forget(self, call: Call) -> None:
        self._calls.pop(call, None)
        if self.connections is not None:
            self.connections.note_call(call.context.peer(), time.monotonic())
        call.pause()
        call.drop(call.held)

    def _record(self, call: Call, code: grpc.StatusCode, error: dict[str, Any] | None) -> None:
        """Count a call that has ended, and log it."""
        code = call.outcome or code
        fault = {"fault": str(error["problem"])} if error is not None and error["code"] == "internal" else {}
        seconds = time.monotonic() - call.began
        lines, breaks = (int(call.counters.get(name, 0)) for name in ("lines", "breaks"))
        self.counters.record_call(call.method, code.name, lines, breaks)
        if self.metrics is not None:
            self.metrics.record_call(call.method, code.name, seconds, call.queue_seconds)
        counts = {"lines": lines, "breaks": breaks} if lines or breaks else {}
        self.log(
            "call",
            "error" if fault else "debug" if call.is_free else "info",
            method=call.method,
            code=code.name,
            seconds=round(seconds, 4),
            queued=round(call.queue_seconds, 4),
            peer=call.context.peer(),
            client=call.client.name,
            request=call.request_id,
            **counts,
            **fault,
        )
