"""A client that speaks HTTP/2 by hand, to send what no gRPC library would: half of a message, and then nothing."""

from __future__ import annotations

import contextlib
import itertools
import socket
import struct
from collections.abc import Iterable
from types import TracebackType

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9  # frame types
END_HEADERS, ACK = 4, 1
MAX_FRAME_BYTES = 16_384
FIRST_WINDOW = 65_535


class HalfSender:
    """A connection on which calls send the beginning of a large message, as far as the server lets them."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), 10)
        self.socket.settimeout(0.05)
        self.socket.sendall(PREFACE + _frame(SETTINGS, 0, 0, b""))
        self.connection_window, self.initial_window = FIRST_WINDOW, FIRST_WINDOW
        self.windows: dict[int, int] = {}  # by call
        self.unsent: dict[int, int] = {}  # bytes of each call that are still to be sent
        self._received = b""

    def __enter__(self) -> HalfSender:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.socket.close()

    def begin(self, path: str, message_bytes: int, sent_bytes: int) -> None:
        """Begin a call whose message has so many bytes, of which only some will be sent."""
        stream = 2 * len(self.windows) + 1
        self.socket.sendall(_frame(HEADERS, END_HEADERS, stream, encode_headers(path)))
        self.windows[stream] = self.initial_window
        self._send(stream, b"\x00" + struct.pack(">I", message_bytes))
        self.unsent[stream] = sent_bytes

    def send_all(self, rounds: int = 400) -> int:
        """Send what the windows allow, until all is sent or the server does not allow more; returns the bytes sent."""
        total, quiet = 0, 0
        for _ in range(rounds):
            sent = 0
            for stream, left in self.unsent.items():
                size = min(left, self.windows[stream], self.connection_window)
                for at in range(0, size, MAX_FRAME_BYTES):
                    self._send(stream, bytes(min(MAX_FRAME_BYTES, size - at)))
                self.unsent[stream] -= size
                sent += size
            total += sent
            quiet = 0 if sent else quiet + 1
            self._receive()
            if quiet > 20 or not any(self.unsent.values()):
                break
        return total

    def _send(self, stream: int, data: bytes) -> None:
        self.windows[stream] -= len(data)
        self.connection_window -= len(data)
        self.socket.settimeout(10)
        self.socket.sendall(_frame(DATA, 0, stream, data))
        self.socket.settimeout(0.05)

    def _receive(self) -> None:
        try:
            self._received += self.socket.recv(1 << 16)
        except TimeoutError:
            return
        while len(self._received) >= 9:
            length = int.from_bytes(self._received[:3], "big")
            if len(self._received) < 9 + length:
                return
            kind, flags, stream = self._received[3], self._received[4], struct.unpack(">I", self._received[5:9])[0]
            data, self._received = self._received[9 : 9 + length], self._received[9 + length :]
            self._handle(kind, flags, stream, data)

    def _handle(self, kind: int, flags: int, stream: int, data: bytes) -> None:
        if kind == WINDOW_UPDATE:
            (size,) = struct.unpack(">I", data)
            if stream:
                self.windows[stream] = self.windows.get(stream, 0) + size
            else:
                self.connection_window += size
        elif kind == SETTINGS and not flags & ACK:
            for at in range(0, len(data), 6):
                name, value = struct.unpack(">HI", data[at : at + 6])
                if name == 4:  # the initial window
                    for known in self.windows:
                        self.windows[known] += value - self.initial_window
                    self.initial_window = value
            self.socket.sendall(_frame(SETTINGS, ACK, 0, b""))
        elif kind == PING and not flags & ACK:
            self.socket.sendall(_frame(PING, ACK, 0, data))


def encode_headers(path: str) -> bytes:
    """Return the headers of a call."""
    headers = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "x", "te": "trailers"}
    headers["content-type"] = "application/grpc"
    return b"".join(b"\x00" + _text(name) + _text(value) for name, value in headers.items())


def flood(address: str, frames: Iterable[bytes]) -> int:
    """Send frames on one connection until the server closes it; returns how many there were."""
    host, port = address.rsplit(":", 1)
    count = 0
    with socket.create_connection((host, int(port)), 30) as connection, contextlib.suppress(OSError):
        connection.sendall(PREFACE + _frame(SETTINGS, 0, 0, b""))
        for frame in frames:
            connection.sendall(frame)
            count += 1
            connection.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                while connection.recv(1 << 16):
                    pass
            connection.settimeout(30)
    return count


def floods(path: str) -> dict[str, Iterable[bytes]]:
    """Return frames that cost a client little: many of each kind."""
    headers, padding = encode_headers(path), b"\x00" + _text("x-padding") + _text("a" * 100)
    resets = (
        _frame(HEADERS, END_HEADERS, stream, headers) + _frame(RST_STREAM, 0, stream, bytes(4))
        for stream in range(1, 2000, 2)
    )
    return {
        "calls that are reset at once": resets,
        "pings": (_frame(PING, 0, 0, bytes(8)) for _ in range(3000)),
        "settings": (_frame(SETTINGS, 0, 0, b"") for _ in range(3000)),
        "headers without end": itertools.chain(
            [_frame(HEADERS, 0, 1, headers)], (_frame(CONTINUATION, 0, 1, 100 * padding) for _ in range(500))
        ),
        "empty data": itertools.chain(
            [_frame(HEADERS, END_HEADERS, 1, headers)], (_frame(DATA, 0, 1, b"") for _ in range(3000))
        ),
        "garbage": [b"\xff" * 5000],
    }


def _frame(kind: int, flags: int, stream: int, data: bytes) -> bytes:
    return len(data).to_bytes(3, "big") + bytes([kind, flags]) + struct.pack(">I", stream) + data


def _text(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()
