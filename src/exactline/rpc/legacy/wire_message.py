"""Messages of the legacy protocol read from their bytes: floats as arrays, and nothing that was not asked for."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from ...errors import ArgumentError
from ..limits import Limits
from ..wire import FIXED32, FIXED64, LENGTH, VARINT, WireError, read_fields

UINT32_MASK = (1 << 32) - 1


class FieldCounter:
    """Counts the fields of a request as they are read.

    Raises LimitError when there are more than the limit.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits, self.count = limits, 0

    def add(self) -> None:
        """Count one more field."""
        self.count += 1
        if self.count > self.limits.fields_per_message:
            raise self.limits.error("fields_per_message", f"The message has {self.count:,} fields or more.")


class WireMessage:
    """A message with the attributes of its descriptor, like one that protobuf parses.

    Numbers have the last value on the wire, messages of one field are merged, and repeated floats are arrays
    of float32, packed or not. A repeated field of messages is a list.
    """

    def __init__(self, data: Any, descriptor: Any, counter: FieldCounter) -> None:
        self._descriptor, self._counter = descriptor, counter
        self._values: dict[int, list[tuple[int, Any]]] = {}  # wire type and value, by number
        self._last_of_oneof: dict[str, str] = {}
        known = descriptor.fields_by_number
        for number, kind, value in _read_checked(data):
            counter.add()
            field = known.get(number)
            if field is not None:
                self._values.setdefault(number, []).append((kind, value))
                if field.containing_oneof is not None:
                    self._last_of_oneof[field.containing_oneof.name] = field.name

    def WhichOneof(self, name: str) -> str | None:
        """Return the field of a oneof that came last, None if there is none."""
        return self._last_of_oneof.get(name)

    def __getattr__(self, name: str) -> Any:
        field = self._descriptor.fields_by_name.get(name)
        if field is None:
            raise AttributeError(name)
        value = self._read(field)
        setattr(self, name, value)
        return value

    def _read(self, field: Any) -> Any:
        found = self._values.get(field.number, [])
        if field.message_type is not None:
            parts = [value for kind, value in found if kind == LENGTH]
            if field.is_repeated:
                return [WireMessage(part, field.message_type, self._counter) for part in parts]
            return WireMessage(parts[0] if len(parts) == 1 else b"".join(parts), field.message_type, self._counter)
        if field.is_repeated:  # floats: the protocol has no other repeated numbers
            parts = [value for kind, value in found if kind in (LENGTH, FIXED32)]
            data = parts[0] if len(parts) == 1 else b"".join(parts)
            if len(data) % 4:
                raise _decode_error()
            return np.frombuffer(data, "<f4").astype(np.float32, copy=False)
        if field.cpp_type == field.CPPTYPE_DOUBLE:
            return next((struct.unpack("<d", v)[0] for kind, v in reversed(found) if kind == FIXED64), 0.0)
        number = next((v for kind, v in reversed(found) if kind == VARINT), 0)
        return bool(number) if field.cpp_type == field.CPPTYPE_BOOL else number & UINT32_MASK


def _read_checked(data: Any) -> Any:
    try:
        yield from read_fields(data)
    except WireError:
        raise _decode_error() from None


def _decode_error() -> ArgumentError:
    return ArgumentError(
        "A message cannot be decoded.", where="the call", hint="Send messages of syrenn_server.TransformRequest."
    )
