"""The old protocol written by hand from its field numbers: bytes out, bytes in, no generated code."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np

METHOD = "/syrenn_server.SyReNNTransformer/Transform"
VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5  # wire types
CHANNELS, FLAT = 1, 2


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def uint(number: int, value: int) -> bytes:
    return varint(number << 3 | VARINT) + varint(value)


def double(number: int, value: float) -> bytes:
    return varint(number << 3 | EIGHT) + struct.pack("<d", value)


def inner(number: int, data: bytes) -> bytes:
    return varint(number << 3 | BYTES) + varint(len(data)) + data


def floats(number: int, values: object) -> bytes:
    return inner(number, np.asarray(values, dtype="<f4").tobytes())


# ---- layers


def dense(weights: object, biases: object) -> bytes:  # (in, out), (out,)
    return inner(1, floats(1, weights) + floats(2, biases))


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
        return b"".join(uint(i, size) for i, size in enumerate(sizes, 1))


def conv(window: Window, filters: object, biases: object) -> bytes:  # (height, width, in, out), (out,)
    return inner(2, inner(1, window.message()) + floats(9, filters) + floats(10, biases))


def relu() -> bytes:
    return inner(3, b"")


def normalize(means: object, deviations: object) -> bytes:
    return inner(4, floats(1, means) + floats(2, deviations))


def max_pool(window: Window) -> bytes:
    return inner(5, inner(1, window.message()))


def average_pool(window: Window) -> bytes:
    return inner(6, inner(1, window.message()))


def concat(layers: list[bytes], along: int) -> bytes:
    return inner(7, b"".join(inner(1, layer) for layer in layers) + uint(2, along))


def hard_tanh() -> bytes:
    return inner(8, b"")


def argmax() -> bytes:
    return inner(9, b"")


# ---- requests


def layer(data: bytes) -> bytes:
    return inner(1, data)


def endpoint(point: object, ratio: float) -> bytes:
    return inner(1, floats(1, point) + double(2, ratio))


def line(start: object, end: object, *, post: bool = True) -> bytes:
    return inner(2, endpoint(start, 0.0) + endpoint(end, 1.0)) + (uint(7, 1) if post else b"")


def polytope(vertices: object, combinations: object = None) -> bytes:
    points = np.asarray(vertices, dtype=np.float32)
    mixing = np.eye(len(points)) if combinations is None else combinations
    return inner(1, floats(1, points) + floats(2, mixing) + uint(3, len(points)))


def plane(*polytopes: bytes, dims: int, subspace: int = 2) -> bytes:
    return inner(3, b"".join(polytopes) + uint(2, dims) + uint(3, subspace))


# ---- answers


def fields(data: bytes) -> list[tuple[int, object]]:
    """Field numbers and values of a message, in order."""
    found: list[tuple[int, object]] = []
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7 == VARINT:
            value, at = _varint(data, at)
        elif tag & 7 == EIGHT:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif tag & 7 == BYTES:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            raise ValueError(f"wire type {tag & 7}")
        found.append((tag >> 3, value))
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _all(message: bytes, number: int) -> list:
    return [value for n, value in fields(message) if n == number]


def _one(message: bytes, number: int, default: object) -> object:
    found = _all(message, number)
    return found[-1] if found else default


def _floats(message: bytes, number: int) -> np.ndarray:
    return np.frombuffer(b"".join(_all(message, number)), dtype="<f4")


@dataclass(frozen=True)
class Line:
    ratios: np.ndarray  # (n,) float64
    values: np.ndarray  # (n, out) float32; out is 0 where no values were wanted


@dataclass(frozen=True)
class Plane:
    pieces: list[tuple[np.ndarray, np.ndarray]]  # values (k, out) and combinations (k, vertices), float32
    dims: int
    subspace: int


def answer(data: bytes) -> Line | Plane:
    ((kind, message),) = fields(data)
    if kind == 1:
        ends = _all(message, 1)
        return Line(
            np.array([_one(end, 2, 0.0) for end in ends]),
            np.stack([_floats(end, 1) for end in ends]),
        )
    pieces = []
    for piece in _all(message, 1):
        count = _one(piece, 3, 0)
        pieces.append((_floats(piece, 1).reshape(count, -1), _floats(piece, 2).reshape(count, -1)))
    return Plane(pieces, _one(message, 2, 0), _one(message, 3, 0))
