"""A client of the legacy protocol: a channel for each call, bytes without generated code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from tests.rpc import legacy_wire as wire
from tests.rpc.legacy_wire import DecodedLine, DecodedPlane

MAX_MESSAGE_BYTES = 128 << 20
OPTIONS = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES), ("grpc.max_send_message_length", MAX_MESSAGE_BYTES)]


@contextmanager
def open_call(address: str, messages: Iterable[bytes], timeout: float | None = 60.0) -> Iterator[Any]:
    """Start a call, whose responses are bytes."""
    with grpc.insecure_channel(address, options=OPTIONS) as channel:
        yield channel.stream_stream(wire.METHOD)(iter(messages), timeout=timeout)


def query(
    address: str, layers: list[bytes], *queries: bytes, timeout: float | None = 60.0
) -> list[DecodedLine | DecodedPlane]:
    """Return the responses to some lines and planes for a network."""
    with open_call(address, [*map(wire.layer, layers), *queries], timeout) as call:
        return [wire.decode_response(data) for data in call]


def failure(address: str, messages: Iterable[bytes], timeout: float | None = 60.0) -> tuple[grpc.StatusCode, str]:
    """Return the status and the details that a call ends with."""
    with open_call(address, messages, timeout) as call:
        try:
            for _ in call:
                pass
        except grpc.RpcError:
            pass
        return call.code(), call.details()
