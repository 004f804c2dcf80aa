"""The legacy protocol encoded and decoded by hand from its field numbers, without generated code."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

METHOD = "/syrenn_server.SyReNNTransformer/Transform"
VARINT_TYPE, FIXED64_TYPE, BYTES_TYPE, FIXED32_TYPE = 0, 1, 2, 5  # wire types
ALONG_CHANNELS, ALONG_FLAT = 1, 2


def encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def encode_uint(number: int, value: int) -> bytes:
    return encode_varint(number << 3 | VARINT_TYPE) + encode_varint(value)


def encode_double(number: int, value: float) -> bytes:
    return encode_varint(number << 3 | FIXED64_TYPE) + struct.pack("<d", value)


def encode_message(number: int, data: bytes) -> bytes:
    return encode_varint(number << 3 | BYTES_TYPE) + encode_varint(len(data)) + data


def encode_floats(number: int, values: object) -> bytes:
    return encode_message(number, np.asarray(values, dtype="<f4").tobytes())


# ---- layers


def dense(weights: object, biases: object) -> bytes:  # (in, out), (out,)
    return encode_message(1, encode_floats(1, weights) + encode_floats(2, biases))


@dataclass(frozen=True)
class Window:
    height: int
    width: int
    channels: int
    kernel: tuple[int, int]
    out: int = 0
    stride: tuple[int, int] = (1, 1)
    pad: tuple[int, int] = (0, 0)

    def message(self) -> bytes:
        sizes = (self.height, self.width, self.channels, *self.kernel, self.out, *self.stride, *self.pad)
        return b"".join(encode_uint(i, size) for i, size in enumerate(sizes, 1))


def conv(window: Window, filters: object, biases: object) -> bytes:  # (height, width, in, out), (out,)
    return encode_message(
        2, encode_message(1, window.message()) + encode_floats(9, filters) + encode_floats(10, biases)
    )


def relu() -> bytes:
    return encode_message(3, b"")


def normalize(means: object, deviations: object) -> bytes:
    return encode_message(4, encode_floats(1, means) + encode_floats(2, deviations))


def max_pool(window: Window) -> bytes:
    return encode_message(5, encode_message(1, window.message()))


def average_pool(window: Window) -> bytes:
    return encode_message(6, encode_message(1, window.message()))


def concat(layers: list[bytes], along: int) -> bytes:
    return encode_message(7, b"".join(encode_message(1, layer) for layer in layers) + encode_uint(2, along))


def hard_tanh() -> bytes:
    return encode_message(8, b"")


def argmax() -> bytes:
    return encode_message(9, b"")


# ---- requests


def layer(data: bytes) -> bytes:
    return encode_message(1, data)


def encode_endpoint(point: object, ratio: float) -> bytes:
    return encode_message(1, encode_floats(1, point) + encode_double(2, ratio))


def line(start: object, end: object, *, post: bool = True) -> bytes:
    return encode_message(2, encode_endpoint(start, 0.0) + encode_endpoint(end, 1.0)) + (
        encode_uint(7, 1) if post else b""
    )


def polytope(vertices: object, combinations: object = None) -> bytes:
    points = np.asarray(vertices, dtype=np.float32)
    mixing = np.eye(len(points)) if combinations is None else combinations
    return encode_message(1, encode_floats(1, points) + encode_floats(2, mixing) + encode_uint(3, len(points)))


def plane(*polytopes: bytes, dims: int, subspace: int = 2) -> bytes:
    return encode_message(3, b"".join(polytopes) + encode_uint(2, dims) + encode_uint(3, subspace))


# ---- responses


def decode_fields(data: bytes) -> list[tuple[int, object]]:
    """Return the field numbers and values of a message, in order."""
    found: list[tuple[int, object]] = []
    at = 0
    while at < len(data):
        tag, at = decode_varint(data, at)
        if tag & 7 == VARINT_TYPE:
            value, at = decode_varint(data, at)
        elif tag & 7 == FIXED64_TYPE:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif tag & 7 == BYTES_TYPE:
            size, at = decode_varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            raise ValueError(f"wire type {tag & 7}")
        found.append((tag >> 3, value))
    return found


def decode_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _field_values(message: bytes, number: int) -> list:
    return [value for n, value in decode_fields(message) if n == number]


def _last_value(message: bytes, number: int, default: object) -> object:
    found = _field_values(message, number)
    return found[-1] if found else default


def _decode_floats(message: bytes, number: int) -> np.ndarray:
    return np.frombuffer(b"".join(_field_values(message, number)), dtype="<f4")


@dataclass(frozen=True)
class DecodedLine:
    ratios: np.ndarray  # (n,) float64
    values: np.ndarray  # (n, out) float32; out is 0 unless values were requested


@dataclass(frozen=True)
class DecodedPlane:
    pieces: list[tuple[np.ndarray, np.ndarray]]  # values (k, out) and combinations (k, vertices), float32
    dims: int
    subspace: int


def decode_response(data: bytes) -> DecodedLine | DecodedPlane:
    ((kind, message),) = decode_fields(data)
    if kind == 1:
        ends = _field_values(message, 1)
        return DecodedLine(
            np.array([_last_value(end, 2, 0.0) for end in ends]),
            np.stack([_decode_floats(end, 1) for end in ends]),
        )
    pieces = []
    for piece in _field_values(message, 1):
        count = _last_value(piece, 3, 0)
        pieces.append((_decode_floats(piece, 1).reshape(count, -1), _decode_floats(piece, 2).reshape(count, -1)))
    return DecodedPlane(pieces, _last_value(message, 2, 0), _last_value(message, 3, 0))
