"""Reads the wire format of protobuf without building Python objects for it: spans, counts, one level at a time.

A message of 20 MB can hold ten million empty messages, each of which would become an object. These functions visit
fields one by one, so that a limit on their number is noticed before memory is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from ..errors import ArgumentError
from .limits import Limits

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5  # wire types
MAX_VARINT_BYTES = 10
VARINT_BITS = 64


class WireError(ValueError):
    """The bytes are not a message."""


def read_fields(data: Any) -> Iterator[tuple[int, int, Any]]:
    """Yield number, wire type and value of every field: an int for a varint, else a memoryview of its bytes.

    >>> [(number, value) for number, _, value in read_fields(bytes([1 << 3, 5, 2 << 3, 7]))]
    [(1, 5), (2, 7)]

    Raises WireError.
    """
    view = memoryview(data)
    at, size = 0, len(view)
    while at < size:
        tag = view[at]
        at += 1
        if tag > 0x7F:
            tag, at = _read_varint(view, at - 1)
        kind = tag & 7
        if kind == VARINT:
            value, at = _read_varint(view, at)
            yield tag >> 3, kind, value
            continue
        if kind == LENGTH:
            length, at = _read_varint(view, at)
        elif kind in (FIXED32, FIXED64):
            length = 4 if kind == FIXED32 else 8
        else:
            raise WireError("a group")
        if at + length > size or not tag >> 3:
            raise WireError("a field is cut off or has no number")
        yield tag >> 3, kind, view[at : at + length]
        at += length


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    """Return a varint and the position after it."""
    value = 0
    for i in range(MAX_VARINT_BYTES):
        if at + i >= len(view):
            raise WireError("a number is cut off")
        byte = view[at + i]
        value |= (byte & 0x7F) << (7 * i)
        if byte < 0x80:
            return value & ((1 << VARINT_BITS) - 1), at + i + 1
    raise WireError("a number is too long")


def find_field(data: Any, number: int, max_fields: int) -> memoryview:
    """Return the bytes of the first field of a number among so many fields; empty if there is none.

    Raises WireError.
    """
    for i, (found, kind, value) in enumerate(read_fields(data)):
        if found == number and kind == LENGTH:
            return value
        if i >= max_fields:
            break
    return memoryview(b"")


def count_numbers(packed: Any) -> int:
    """Return how many varints packed bytes hold.

    >>> count_numbers(bytes([1, 0x80, 1, 5]))
    3
    """
    return int(np.count_nonzero(np.frombuffer(packed, np.uint8) < 0x80))


@cache
def _nested_fields(descriptor: Any) -> dict[int, Any]:
    """Return the fields of a message that hold messages, by number, and None for those of repeated whole numbers."""
    nested: dict[int, Any] = {}
    for field in descriptor.fields:
        if field.message_type is not None:
            nested[field.number] = field.message_type
        elif field.is_repeated and field.cpp_type not in (
            field.CPPTYPE_FLOAT,
            field.CPPTYPE_DOUBLE,
            field.CPPTYPE_STRING,
        ):
            nested[field.number] = None
    return nested


def check_field_count(data: bytes, descriptor: Any, limits: Limits) -> None:
    """Check that a message and those inside it have no more fields and repeated whole numbers than the limit.

    Raises LimitError, WireError.
    """
    count = 0
    pending: list[tuple[Any, dict[int, Any]]] = [(data, _nested_fields(descriptor))]
    while pending:
        part, nested = pending.pop()
        for number, kind, value in read_fields(part):
            count += 1
            if kind == LENGTH and number in nested:
                if nested[number] is None:
                    count += count_numbers(value)
                else:
                    pending.append((value, _nested_fields(nested[number])))
            if count > limits.fields_per_message:
                raise limits.error("fields_per_message", f"The message has {count:,} fields or more.")


def parse_message(message_type: Any, data: bytes, limits: Limits) -> Any:
    """Parse a request whose number of fields is within the limit.

    Raises LimitError, ArgumentError if the bytes are not such a message.
    """
    try:
        check_field_count(data, message_type.DESCRIPTOR, limits)
        return message_type.FromString(data)
    except (WireError, DecodeError):
        raise ArgumentError(
            f"The request is not a valid {message_type.DESCRIPTOR.name}.", where="request", hint="See exactline.proto."
        ) from None
