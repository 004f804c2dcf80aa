"""A client of the old protocol as one would write it today: a channel for each call, bytes by hand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from tests.rpc import wire
from tests.rpc.wire import Line, Plane

MOST = 128 << 20
OPTIONS = [("grpc.max_receive_message_length", MOST), ("grpc.max_send_message_length", MOST)]


@contextmanager
def opened(address: str, messages: Iterable[bytes], timeout: float | None = 60.0) -> Iterator[Any]:
    """A call under way, whose answers are bytes."""
    with grpc.insecure_channel(address, options=OPTIONS) as channel:
        yield channel.stream_stream(wire.METHOD)(iter(messages), timeout=timeout)


def asked(address: str, layers: list[bytes], *questions: bytes, timeout: float | None = 60.0) -> list[Line | Plane]:
    """The answers to some questions about a network."""
    with opened(address, [*map(wire.layer, layers), *questions], timeout) as call:
        return [wire.answer(data) for data in call]


def refusal(address: str, messages: Iterable[bytes], timeout: float | None = 60.0) -> tuple[grpc.StatusCode, str]:
    """The status that a call ends with."""
    with opened(address, messages, timeout) as call:
        try:
            for _ in call:
                pass
        except grpc.RpcError:
            pass
        return call.code(), call.details()
