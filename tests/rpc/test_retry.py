"""A client tries again while a server cannot be reached, and only while nothing was given to whoever asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import torch

from exactline.errors import LimitError, ServiceError
from exactline.rpc.client.aio import AsyncClient
from exactline.rpc.client.connection import LONGEST, Way
from exactline.rpc.client.sync import Client
from exactline.rpc.protos.exactline.v1 import exactline_pb2 as pb
from exactline.rpc.server import writer
from exactline.rpc.server.service import NAME
from exactline.rpc.server.writer import Column

COLUMNS = [Column("alphas", torch.float64), Column("births", torch.int64, (3,)), Column("doubts", torch.int64)]


def answer() -> list[bytes]:
    """A line without a break inside, as a server would tell it."""
    tensors = [torch.tensor([0.0, 1.0], dtype=torch.float64), torch.tensor([[-1, 0, 0]] * 2), torch.tensor([0, 0])]
    fields = [pb.Field(name=c.name, dtype=kind, shape=c.shape) for c, kind in zip(COLUMNS, (1, 3, 3), strict=True)]
    head = pb.Answer(head=pb.Head(fields=fields, names=["x", "y"], outputs=[1], output_shapes=[pb.Shape()], lines=1))
    rows = list(writer.breaks(COLUMNS, tensors, torch.tensor([0, 0]), 1 << 20))
    return [head.SerializeToString(), *rows, writer.part_end(0.0, "", 0.0, "dense"), writer.tail(engine="dense")]


class Shaky:
    """A server that fails so often, with a status, after so many messages, and then answers."""

    def __init__(self, failures: int, code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE, after: int = 0) -> None:
        self.failures, self.code, self.after = failures, code, after
        self.calls = 0
        self.server = grpc.server(ThreadPoolExecutor(4))
        handler = grpc.unary_stream_rpc_method_handler(self.told)
        methods = dict.fromkeys(("Restrict", "Sweep"), handler)
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(NAME, methods),))
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"

    def told(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        self.calls += 1
        messages = answer()
        if self.calls <= self.failures:
            yield from messages[: self.after]
            context.abort(self.code, "not now")
        yield from messages

    def __enter__(self) -> Shaky:
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop(0).wait()


@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_answer_that_breaks_off_is_asked_for_again(after):
    with Shaky(2, after=after) as server, Client(server.address) as client:
        line = client.restrict("any", [0.0], [1.0], values=False)
        assert line.alphas.tolist() == [0.0, 1.0]
        assert server.calls == 3


def test_other_failures_are_told_at_once():
    with Shaky(9, grpc.StatusCode.RESOURCE_EXHAUSTED) as server, Client(server.address) as client:
        with pytest.raises(LimitError, match="not now"):
            client.restrict("any", [0.0], [1.0], values=False)
        assert server.calls == 1


def test_there_is_an_end_to_trying():
    with Shaky(9) as server, Client(server.address, retries=2) as client:
        with pytest.raises(ServiceError, match="not now"):
            client.restrict("any", [0.0], [1.0], values=False)
        assert server.calls == 3


def test_a_sweep_is_tried_again_only_before_its_first_part():
    with Shaky(1, after=2) as server, Client(server.address) as client:
        assert len(list(client.sweep("any", [0.0], [1.0], values=False))) == 1
        assert server.calls == 2
    with Shaky(1, after=3) as server, Client(server.address) as client:
        parts = client.sweep("any", [0.0], [1.0], values=False)
        assert next(parts).alphas.tolist() == [0.0, 1.0]
        with pytest.raises(ServiceError, match="not now"):
            next(parts)
        assert server.calls == 1


def test_an_answer_without_its_end_is_none():
    class Short(Shaky):
        def told(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
            yield from answer()[:2]

    with Short(0) as server, Client(server.address) as client:
        with pytest.raises(ServiceError, match="not what it should be"):
            client.restrict("any", [0.0], [1.0], values=False)
        with pytest.raises(ServiceError, match="not what it should be"):
            list(client.sweep("any", [0.0], [1.0], values=False))


def test_those_who_do_not_wait_try_again_too():
    async def ask(address):
        async with AsyncClient(address) as client:
            line = await client.restrict("any", [0.0], [1.0], values=False)
            return line.alphas.tolist()

    with Shaky(2) as server:
        assert asyncio.run(ask(server.address)) == [0.0, 1.0]
        assert server.calls == 3


def test_pauses_grow_are_bounded_and_never_in_step():
    way = Way("127.0.0.1:1", retries=12)
    several = [list(way.pauses()) for _ in range(50)]
    for place, pauses in enumerate(zip(*several, strict=True)):
        usual = min(LONGEST, 0.1 * 2**place)
        assert all(0.5 * usual <= pause <= 1.5 * usual for pause in pauses)
        assert len(set(pauses)) > 40
