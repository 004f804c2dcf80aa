"""A client repeats a call while the server cannot be reached, but never after the caller has received a part."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import torch

from exactline.errors import LimitError, ServiceError
from exactline.rpc import SERVICE_NAME
from exactline.rpc.client.aio import AsyncClient
from exactline.rpc.client.connection import FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS, Connection
from exactline.rpc.client.sync import Client
from exactline.rpc.codec import WIRE_DTYPES
from exactline.rpc.protos.exactline.v1 import exactline_pb2 as pb
from exactline.rpc.server.encode import encode_breaks, encode_part_end, encode_tail

HEAD_AND_ROWS, FIRST_PART = 2, 3  # messages of an answer
HOLD_SECONDS = 60.0  # before a test that never lets its server fail is given up


def make_answer() -> list[bytes]:
    """The messages of a server for a line without a break inside."""
    arrays = {
        "alphas": torch.tensor([0.0, 1.0], dtype=torch.float64),
        "births": torch.tensor([[-1, 0, 0]] * 2),
        "doubts": torch.tensor([0, 0]),
    }
    fields = [pb.Field(name=n, dtype=WIRE_DTYPES[a.dtype], shape=a.shape[1:]) for n, a in arrays.items()]
    head = pb.Answer(head=pb.Head(fields=fields, names=["x", "y"], outputs=[1], output_shapes=[pb.Shape()], lines=1))
    rows = encode_breaks(list(arrays.values()), torch.tensor([0, 0]), 1 << 20)
    return [head.SerializeToString(), *rows, encode_part_end(0.0, "", 0.0, "dense"), encode_tail(engine="dense")]


class FlakyServer:
    """A server whose first calls fail with a status after some messages; later calls are answered.

    gRPC drops messages that the client has not read when the status arrives. A server with ``hold`` therefore fails
    only after the test has received what it waits for and sets ``may_fail``.
    """

    def __init__(
        self, failures: int, code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE, after: int = 0, *, hold: bool = False
    ) -> None:
        self.failures, self.code, self.after = failures, code, after
        self.calls = 0
        self.may_fail = threading.Event()
        if not hold:
            self.may_fail.set()
        self.server = grpc.server(ThreadPoolExecutor(4))
        handler = grpc.unary_stream_rpc_method_handler(self.respond)
        methods = dict.fromkeys(("Restrict", "Sweep"), handler)
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_NAME, methods),))
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"

    def respond(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        self.calls += 1
        messages = make_answer()
        if self.calls <= self.failures:
            yield from messages[: self.after]
            self.may_fail.wait(HOLD_SECONDS)
            context.abort(self.code, "not now")
        yield from messages

    def __enter__(self) -> FlakyServer:
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.may_fail.set()
        self.server.stop(0).wait()


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.every(2)
def test_an_answer_that_breaks_off_is_requested_again(after):
    with FlakyServer(2, after=after) as server, Client(server.address) as client:
        line = client.restrict("any", [0.0], [1.0], values=False)
        assert line.alphas.tolist() == [0.0, 1.0]
        assert server.calls == 3


def test_other_failures_are_raised_at_once():
    with FlakyServer(9, grpc.StatusCode.RESOURCE_EXHAUSTED) as server, Client(server.address) as client:
        with pytest.raises(LimitError, match="not now"):
            client.restrict("any", [0.0], [1.0], values=False)
        assert server.calls == 1


def test_the_number_of_retries_is_limited():
    with FlakyServer(9) as server, Client(server.address, retries=2) as client:
        with pytest.raises(ServiceError, match="not now"):
            client.restrict("any", [0.0], [1.0], values=False)
        assert server.calls == 3


def test_a_sweep_is_tried_again_before_its_first_part():
    with FlakyServer(1, after=HEAD_AND_ROWS) as server, Client(server.address) as client:
        assert len(list(client.sweep("any", [0.0], [1.0], values=False))) == 1
        assert server.calls == 2


def test_a_sweep_is_not_tried_again_after_its_first_part():
    with FlakyServer(1, after=FIRST_PART, hold=True) as server, Client(server.address) as client:
        parts = client.sweep("any", [0.0], [1.0], values=False)
        assert next(parts).alphas.tolist() == [0.0, 1.0]
        server.may_fail.set()
        with pytest.raises(ServiceError, match="not now"):
            next(parts)
        assert server.calls == 1


def test_a_sweep_of_the_async_client_is_not_tried_again_after_its_first_part():
    async def sweep(server: FlakyServer) -> None:
        async with AsyncClient(server.address) as client:
            parts = client.sweep("any", [0.0], [1.0], values=False)
            assert (await anext(parts)).alphas.tolist() == [0.0, 1.0]
            server.may_fail.set()
            with pytest.raises(ServiceError, match="not now"):
                await anext(parts)

    with FlakyServer(1, after=FIRST_PART, hold=True) as server:
        asyncio.run(sweep(server))
        assert server.calls == 1


def test_an_answer_without_its_tail_is_refused():
    class TruncatingServer(FlakyServer):
        def respond(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            yield from make_answer()[:HEAD_AND_ROWS]

    with TruncatingServer(0) as server, Client(server.address) as client:
        with pytest.raises(ServiceError, match="malformed or incomplete"):
            client.restrict("any", [0.0], [1.0], values=False)
        with pytest.raises(ServiceError, match="malformed or incomplete"):
            list(client.sweep("any", [0.0], [1.0], values=False))


def test_the_async_client_tries_again_too():
    async def restrict(address):
        async with AsyncClient(address) as client:
            line = await client.restrict("any", [0.0], [1.0], values=False)
            return line.alphas.tolist()

    with FlakyServer(2) as server:
        assert asyncio.run(restrict(server.address)) == [0.0, 1.0]
        assert server.calls == 3


def test_pauses_between_retries_double_up_to_a_limit_with_jitter():
    connection = Connection("127.0.0.1:1", retries=12)
    several = [list(connection.retry_pauses()) for _ in range(50)]
    for attempt, pauses in enumerate(zip(*several, strict=True)):
        usual = min(MAX_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2**attempt)
        assert all(0.5 * usual <= pause <= 1.5 * usual for pause in pauses)
        assert len(set(pauses)) > 40
