"""What every call passes through: limits on calls, deadlines, errors as statuses, one line in the log."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from ...errors import ExactlineError, ServiceError
from ..limits import Limits
from ..status import ERROR_METADATA_KEY, encode_error
from .call import CallCancelled, CallExpired, JobFailed, WorkerCall
from .ipc import ModelKey, WorkerJob, error_fields
from .log import Log, ServerCounters
from .pool import WorkerPool

Handler = Callable[[Any, "CallContext"], Iterator[bytes]]  # of the request's bytes, or an iterator of its messages


class CallContext:
    """A gRPC call and what its handler needs to answer it."""

    def __init__(self, interceptor: Interceptor, grpc_context: grpc.ServicerContext) -> None:
        self.interceptor, self.grpc_context = interceptor, grpc_context
        self.counters: dict[str, Any] = {}  # lines and breaks, for the log
        limit, remaining = interceptor.limits.call_seconds, grpc_context.time_remaining()
        self.ends_by_server_limit = remaining is None or remaining >= limit  # rather than by the client's deadline
        self.deadline = time.monotonic() + (limit if remaining is None else min(remaining, limit))

    @property
    def limits(self) -> Limits:
        """The limits of the server."""
        return self.interceptor.limits

    def run_job(self, job: WorkerJob, fetch: Callable[[ModelKey], bytes] | None = None) -> Iterator[bytes]:
        """Run a job on a worker and yield its messages; ``fetch`` returns the file of a model."""
        with self.open_call(job, fetch) as call:
            yield from call

    @contextmanager
    def open_call(self, job: WorkerJob, fetch: Callable[[ModelKey], bytes] | None = None) -> Generator[WorkerCall]:
        """Create a call of the pool that ends when this call is cancelled, expires or is done."""
        call = self.interceptor.pool.new_call(job, max(0.0, self.deadline - time.monotonic()), fetch=fetch)
        call.on_unread = self.grpc_context.cancel
        if not self.grpc_context.add_callback(call.cancel):
            raise CallCancelled("cancelled before it began")
        try:
            yield call
        finally:
            call.close()
            self.counters |= call.counters


class Interceptor:
    """Makes gRPC method handlers of functions from bytes to bytes."""

    def __init__(self, pool: WorkerPool, limits: Limits, log: Log) -> None:
        self.pool, self.limits, self.log = pool, limits, log
        self.counters = ServerCounters()

    def unary_unary(self, method: str, handler: Handler) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Wrap a handler of one request that gives one answer."""
        return grpc.unary_unary_rpc_method_handler(self._answer_once(method, handler))

    def unary_stream(self, method: str, handler: Handler) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Wrap a handler of one request that gives a stream of answers."""
        return grpc.unary_stream_rpc_method_handler(self._answer_stream(method, handler))

    def stream_unary(self, method: str, handler: Handler) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Wrap a handler of a stream of requests that gives one answer."""
        return grpc.stream_unary_rpc_method_handler(self._answer_once(method, handler))

    def stream_stream(self, method: str, handler: Handler) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Wrap a handler of a stream of requests that gives a stream of answers."""
        return grpc.stream_stream_rpc_method_handler(self._answer_stream(method, handler))

    def _answer_once(self, method: str, handler: Handler) -> Callable[[Any, grpc.ServicerContext], bytes]:
        def answer(request: Any, grpc_context: grpc.ServicerContext) -> bytes:
            (message,) = self._answer(method, handler, request, grpc_context)
            return message

        return answer

    def _answer_stream(self, method: str, handler: Handler) -> Callable[[Any, grpc.ServicerContext], Iterator[bytes]]:
        def answer(request: Any, grpc_context: grpc.ServicerContext) -> Iterator[bytes]:
            return self._answer(method, handler, request, grpc_context)

        return answer

    def _answer(
        self, method: str, handler: Handler, request: Any, grpc_context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        """Answer a call; an error ends the call with a status and has no other effect."""
        began = time.monotonic()
        context = CallContext(self, grpc_context)
        code = grpc.StatusCode.CANCELLED  # unless the call ends in another way
        fault: dict[str, Any] = {}
        try:
            with self._count_call():
                yield from handler(request, context)
            code = grpc.StatusCode.OK
        except GeneratorExit:
            raise
        except Exception as problem:  # noqa: BLE001 a call that fails must not end the server
            fields = self._error_fields(problem, context)
            if fields["code"] == "internal":
                if os.environ.get("EXACTLINE_TRACEBACK"):
                    traceback.print_exc()
                fault = {"fault": fields["problem"]}
            code, message, metadata = encode_error(fields)
            grpc_context.set_trailing_metadata(((ERROR_METADATA_KEY, metadata),))
            grpc_context.abort(code, message)
        finally:
            self._record(method, code, time.monotonic() - began, context, fault)

    @contextmanager
    def _count_call(self) -> Generator[None]:
        """Count a call as in flight, or refuse it if there are too many."""
        counters = self.counters
        with counters.lock:
            counters.in_flight += 1
            too_many = counters.in_flight > self.limits.concurrent_calls
        try:
            if too_many:
                raise self.limits.error("concurrent_calls", "Too many calls are in flight.")
            yield
        finally:
            with counters.lock:
                counters.in_flight -= 1

    def _error_fields(self, problem: Exception, context: CallContext) -> dict[str, Any]:
        if isinstance(problem, JobFailed):
            return problem.error
        if isinstance(problem, ExactlineError):
            return error_fields(problem)
        if isinstance(problem, CallExpired):
            if context.ends_by_server_limit:
                return error_fields(self.limits.error("call_seconds", "The call takes too long."))
            return {"code": "late", "problem": "The call's own deadline has passed.", "where": "", "hint": ""}
        if isinstance(problem, CallCancelled):
            return error_fields(ServiceError("The call was cancelled.", where="server", hint="Try again."))
        return {"code": "internal", "problem": type(problem).__name__}

    def _record(
        self, method: str, code: grpc.StatusCode, seconds: float, context: CallContext, fault: dict[str, Any]
    ) -> None:
        """Count a call that has ended, and log it."""
        lines, breaks = (int(context.counters.get(name, 0)) for name in ("lines", "breaks"))
        self.counters.record_call(method, code.name, lines, breaks)
        counts = {"lines": lines, "breaks": breaks} if lines or breaks else {}
        peer = context.grpc_context.peer()
        self.log("call", method=method, code=code.name, seconds=round(seconds, 4), peer=peer, **counts, **fault)
