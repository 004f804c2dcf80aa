"""Answers of the legacy protocol as bytes, built from arrays without an object for each endpoint or polytope."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...arrays import Floats, Ints
from ...errors import NumberError

FLOAT32_MAX = float(np.finfo(np.float32).max)
LENGTH_TAG, DOUBLE_TAG, VARINT_TAG = 2, 1, 0  # wire types
FLOAT_BYTES, DOUBLE_BYTES = 4, 8
MAX_ENCODED_BYTES = 64 << 20  # of rows that are encoded together


def encode_line(
    ratios: Floats,  # (n,)
    values: Any,  # (n, out) in float32, or None
) -> bytes:
    """Return a TransformResponse with a line: an endpoint for each ratio, with its values if there are any."""
    count = 0 if values is None else values.shape[1]
    packed = b"" if values is None or not count else _field_header(1, count * FLOAT_BYTES)
    coordinates = len(packed) + count * FLOAT_BYTES
    with_ratio = _endpoint_rows(ratios, values, packed, coordinates, True)
    if len(ratios) and ratios[0] == 0.0:  # protobuf leaves a ratio of 0 out
        first = _endpoint_rows(ratios[:1], None if values is None else values[:1], packed, coordinates, False)
        size = with_ratio.shape[1]
        body = first.tobytes() + with_ratio.tobytes()[size:]
    else:
        body = with_ratio.tobytes()
    return _field_header(1, len(body)) + body


def _endpoint_rows(ratios: Floats, values: Any, packed: bytes, coordinates: int, has_ratio: bool) -> Any:
    """Return endpoints as rows of bytes, (n, bytes of one)."""
    size = coordinates + (1 + DOUBLE_BYTES) * has_ratio
    header = _field_header(1, size)
    rows = np.empty((len(ratios), len(header) + size), np.uint8)
    rows[:, : len(header)] = np.frombuffer(header, np.uint8)
    at = len(header)
    if packed:
        rows[:, at : at + len(packed)] = np.frombuffer(packed, np.uint8)
        rows[:, at + len(packed) : at + coordinates] = _as_bytes(values, "<f4")
    at += coordinates
    if has_ratio:
        rows[:, at] = 2 << 3 | DOUBLE_TAG
        rows[:, at + 1 :] = _as_bytes(ratios[:, None], "<f8")
    return rows


def encode_polytopes(
    values: Any,  # (corners, out) in float32
    combinations: Any,  # (corners, originals) in float32
    rings: Ints,  # corners of all polytopes, concatenated
    offsets: Ints,  # (polytopes + 1,) first entry of each polytope in rings
) -> bytes:
    """Return the field `polytopes` of an answer: values and combinations of the corners of each polytope."""
    sizes = np.diff(offsets)
    encoded: list[bytes] = [b""] * len(sizes)
    for size in np.unique(sizes).tolist():
        which = np.flatnonzero(sizes == size)
        row_bytes = size * FLOAT_BYTES * (values.shape[1] + combinations.shape[1])
        for part in np.array_split(which, max(1, len(which) * row_bytes // MAX_ENCODED_BYTES)):
            corners = rings[offsets[part][:, None] + np.arange(size)]  # (polytopes, size)
            rows = _polytope_rows(values[corners], combinations[corners], size)
            data, width = rows.tobytes(), rows.shape[1]
            for i, number in enumerate(part.tolist()):
                encoded[number] = data[i * width : (i + 1) * width]
    return b"".join(encoded)


def encode_polytope(
    values: Any,  # (corners, out) in float32
    combinations: Any,  # (corners, originals) in float32
) -> bytes:
    """Return one entry of the field `polytopes`: what `encode_polytopes` does, without its work for many."""
    body = b""
    for number, array in ((1, values), (2, combinations)):
        data = array.astype("<f4", copy=False).tobytes()
        body += _field_header(number, len(data)) + data if data else b""
    body += bytes([3 << 3 | VARINT_TAG]) + _varint(len(values))
    return _field_header(1, len(body)) + body


def _polytope_rows(values: Any, combinations: Any, size: int) -> Any:
    """Return polytopes of as many corners as rows of bytes, (polytopes, bytes of one)."""
    count = len(values)
    pieces: list[Any] = []
    for number, array in ((1, values), (2, combinations)):
        data = _as_bytes(array.reshape(count, -1), "<f4")
        if data.shape[1]:
            header = np.frombuffer(_field_header(number, data.shape[1]), np.uint8)
            pieces += [np.broadcast_to(header, (count, len(header))), data]
    corners = np.frombuffer(bytes([3 << 3 | VARINT_TAG]) + _varint(size), np.uint8)
    pieces.append(np.broadcast_to(corners, (count, len(corners))))
    header = np.frombuffer(_field_header(1, sum(piece.shape[1] for piece in pieces)), np.uint8)
    return np.concatenate([np.broadcast_to(header, (count, len(header))), *pieces], 1)


def encode_plane(polytopes: bytes, space_dimensions: int, subspace_dimensions: int) -> bytes:
    """Return a TransformResponse with polytopes that are encoded already."""
    body = polytopes
    for number, dims in ((2, space_dimensions), (3, subspace_dimensions)):
        if dims:
            body += bytes([number << 3 | VARINT_TAG]) + _varint(dims)
    return _field_header(2, len(body)) + body


def to_float32(values: Floats) -> Any:
    """Convert values to float32.

    Raises NumberError if one is too large for it.
    """
    if np.abs(values).max(initial=0.0) > FLOAT32_MAX:
        raise NumberError(
            "The network has values that float32 cannot hold.",
            where="the answer",
            hint="The legacy protocol has only float32; the service exactline.v1 has float64.",
        )
    return values.astype(np.float32)


def _as_bytes(array: Any, dtype: str) -> Any:
    """Return an array (n, m) as bytes, (n, m times bytes of one number)."""
    flat = np.ascontiguousarray(array, dtype=dtype)
    return flat.view(np.uint8).reshape(len(flat), -1) if flat.size else np.zeros((len(flat), 0), np.uint8)


def _field_header(number: int, length: int) -> bytes:
    return bytes([number << 3 | LENGTH_TAG]) + _varint(length)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])
