"""The door every call comes through: limits on calls, deadlines, errors as statuses, one line of log each."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from ...errors import ExactlineError, ServiceError
from ..limits import Limits, refuse
from ..status import KEY, status_of
from .call import Call, Cancelled, Expired, Refused
from .ipc import Job, Model, facts_of
from .log import Log, Tally
from .pool import Pool

Function = Callable[[Any, "Visit"], Iterator[bytes]]  # of a request, or of an iterator of its messages, as bytes


class Visit:
    """One call, as the function that answers it sees it."""

    def __init__(self, door: Door, context: grpc.ServicerContext) -> None:
        self.door, self.context = door, context
        self.facts: dict[str, Any] = {}  # for the log: lines, breaks
        cap, theirs = door.limits.seconds, context.time_remaining()
        self.capped = theirs is None or theirs >= cap  # whether the server's own limit ends the call first
        self.deadline = time.monotonic() + (cap if theirs is None else min(theirs, cap))

    @property
    def limits(self) -> Limits:
        return self.door.limits

    def answers(self, job: Job, fetch: Callable[[Model], bytes] | None = None) -> Iterator[bytes]:
        """What a worker says to a job, message by message; facts for the log come with the last."""
        with self.call(job, fetch) as call:
            yield from call

    @contextmanager
    def call(self, job: Job, fetch: Callable[[Model], bytes] | None = None) -> Generator[Call]:
        """A call of the pool that ends with this one, whether it is cancelled, late or done."""
        call = self.door.pool.call(job, max(0.0, self.deadline - time.monotonic()), fetch=fetch)
        call.stuck = self.context.cancel
        if not self.context.add_callback(call.cancel):
            raise Cancelled("cancelled before it began")
        try:
            yield call
        finally:
            call.close()
            self.facts |= call.facts


class Door:
    """Makes handlers for gRPC out of functions of bytes."""

    def __init__(self, pool: Pool, limits: Limits, log: Log) -> None:
        self.pool, self.limits, self.log = pool, limits, log
        self.tally = Tally()

    def one_to_one(self, method: str, function: Function) -> grpc.RpcMethodHandler[bytes, bytes]:
        """A request, an answer."""
        return grpc.unary_unary_rpc_method_handler(self._single(method, function))

    def one_to_many(self, method: str, function: Function) -> grpc.RpcMethodHandler[bytes, bytes]:
        """A request, a stream of answers."""
        return grpc.unary_stream_rpc_method_handler(self._stream(method, function))

    def many_to_one(self, method: str, function: Function) -> grpc.RpcMethodHandler[bytes, bytes]:
        """A stream of requests, an answer."""
        return grpc.stream_unary_rpc_method_handler(self._single(method, function))

    def many_to_many(self, method: str, function: Function) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Streams both ways."""
        return grpc.stream_stream_rpc_method_handler(self._stream(method, function))

    def _single(self, method: str, function: Function) -> Callable[[Any, grpc.ServicerContext], bytes]:
        def answer(request: Any, context: grpc.ServicerContext) -> bytes:
            (found,) = self._visited(method, function, request, context)
            return found

        return answer

    def _stream(self, method: str, function: Function) -> Callable[[Any, grpc.ServicerContext], Iterator[bytes]]:
        def answer(request: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
            return self._visited(method, function, request, context)

        return answer

    def _visited(self, method: str, function: Function, request: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
        """Answer a call; whatever goes wrong ends it with a status and nothing else."""
        began = time.monotonic()
        visit = Visit(self, context)
        code = grpc.StatusCode.CANCELLED  # unless something else is known
        fault: dict[str, Any] = {}
        try:
            with self._counted():
                yield from function(request, visit)
            code = grpc.StatusCode.OK
        except GeneratorExit:
            raise
        except Exception as problem:  # noqa: BLE001 a call that fails must never take the server along
            facts = self._facts(problem, visit)
            if facts["code"] == "internal":
                if os.environ.get("EXACTLINE_TRACEBACK"):
                    traceback.print_exc()
                fault = {"fault": facts["problem"]}
            code, message, parts = status_of(facts)
            context.set_trailing_metadata(((KEY, parts),))
            context.abort(code, message)
        finally:
            self._told(method, code, time.monotonic() - began, visit, fault)

    @contextmanager
    def _counted(self) -> Generator[None]:
        tally = self.tally
        with tally.counting:
            tally.in_flight += 1
            many = tally.in_flight > self.limits.concurrent_calls
        try:
            if many:
                raise refuse("concurrent_calls", self.limits, "Too many calls are under way.")
            yield
        finally:
            with tally.counting:
                tally.in_flight -= 1

    def _facts(self, problem: Exception, visit: Visit) -> dict[str, Any]:
        if isinstance(problem, Refused):
            return problem.facts
        if isinstance(problem, ExactlineError):
            return facts_of(problem)
        if isinstance(problem, Expired):
            if visit.capped:
                return facts_of(refuse("seconds", self.limits, "The call takes too long."))
            return {"code": "late", "problem": "The call's own deadline has passed.", "where": "", "hint": ""}
        if isinstance(problem, Cancelled):
            return facts_of(ServiceError("The call was cancelled.", where="server", hint="Try again."))
        return {"code": "internal", "problem": type(problem).__name__}

    def _told(self, method: str, code: grpc.StatusCode, seconds: float, visit: Visit, fault: dict[str, Any]) -> None:
        lines, breaks = (int(visit.facts.get(name, 0)) for name in ("lines", "breaks"))
        self.tally.ended(method, code.name, lines, breaks)
        known = {"lines": lines, "breaks": breaks} if lines or breaks else {}
        told = {"method": method, "code": code.name, "seconds": round(seconds, 4), "peer": visit.context.peer()}
        self.log("call", **told, **known, **fault)
