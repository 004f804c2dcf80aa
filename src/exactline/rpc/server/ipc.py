"""The frames between the front process and its workers: a length, one byte that says the kind, then data.

Workers parse what strangers send, so the front accepts nothing from them but frames of known kinds that hold messages
or JSON; nothing is ever executed.
"""

from __future__ import annotations

import json
import os
import select
import socket
from dataclasses import asdict, dataclass
from typing import Any

from ...errors import ExactlineError, LimitError, UnsupportedError

JOB, INPUT, END_OF_INPUT = b"J", b"D", b"Z"  # to a worker: a job, more input for it, the end of that input
NEED_MODEL = b"N"  # from a worker: the file of the model is needed,
MESSAGE, DONE, FAILED = b"M", b"E", b"X"  # a message for the client, the end of the job, its end by an error
ANSWER = b"A"  # the answer to one of several inputs: the number of the input, then the message
LENGTH_BYTES, NUMBER_BYTES = 4, 8
HEADER_BYTES = LENGTH_BYTES + 1
MAX_FRAME_BYTES = 640 << 20  # of one frame: the file of a model is the largest
RECEIVE_BYTES = 1 << 18  # of one receive call


@dataclass(frozen=True)
class ModelKey:
    """Which network a job is about and how to read its file; a worker asks for the file if it does not have it."""

    sha256: str
    suffix: str = ".onnx"  # of the file's name: its format
    normalize: bool = True  # see exactline.load
    shape: tuple[int, ...] | None = None  # of one point, for files that leave it open


@dataclass(frozen=True)
class WorkerJob:
    """The kind of a job, the model it is about, and the client's request."""

    kind: str  # a key of exactline.rpc.server.worker.JOB_HANDLERS
    payload: bytes = b""
    model: ModelKey | None = None

    def encode(self) -> tuple[bytes, bytes]:
        """Return the job as the parts of one frame."""
        header = json.dumps({"kind": self.kind, "model": self.model and asdict(self.model)}).encode()
        return len(header).to_bytes(LENGTH_BYTES, "little") + header, self.payload

    @classmethod
    def decode(cls, data: bytes) -> WorkerJob:
        """Return the job in the data of a frame."""
        end = LENGTH_BYTES + int.from_bytes(data[:LENGTH_BYTES], "little")
        header = json.loads(data[LENGTH_BYTES:end])
        model = header["model"]
        if model is not None:
            model = ModelKey(**(model | {"shape": model["shape"] and tuple(model["shape"])}))
        return cls(header["kind"], data[end:], model)


def encode_frame(kind: bytes, *parts: bytes) -> list[bytes]:
    """Return a frame as pieces of bytes.

    >>> b"".join(encode_frame(MESSAGE, b"ab", b"c"))
    b'\\x03\\x00\\x00\\x00Mabc'
    """
    return [sum(map(len, parts)).to_bytes(LENGTH_BYTES, "little") + kind, *parts]


def encode_json(fields: dict[str, Any]) -> bytes:
    """Return plain values as the data of a frame."""
    return json.dumps(fields).encode()


def decode_json(data: bytes) -> dict[str, Any]:
    """Return the plain values of a frame.

    Raises ValueError if it holds none.
    """
    fields = json.loads(data)
    return fields if isinstance(fields, dict) else {}


def error_fields(error: ExactlineError) -> dict[str, Any]:
    """Return the code and the parts of an error as plain values."""
    fields: dict[str, Any] = {"code": error.code, "problem": error.problem, "where": error.where, "hint": error.hint}
    if isinstance(error, UnsupportedError):
        fields["nodes"] = list(error.nodes)
    if isinstance(error, LimitError) and error.reached is not None:
        fields["reached"] = error.reached
    return fields


class FrameSocket:
    """A worker's end of the socket to the front; the process ends when the front is gone."""

    def __init__(self, fd: int) -> None:
        self.socket = socket.socket(fileno=fd)
        self.socket.setblocking(True)
        self._received = bytearray()
        self._unsent: list[bytes] = []
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)

    def receive(self) -> tuple[bytes, bytes]:
        """Wait for the next frame; returns its kind and data."""
        header = self._take(HEADER_BYTES)
        return header[LENGTH_BYTES:], self._take(int.from_bytes(header[:LENGTH_BYTES], "little"))

    def has_input(self, seconds: float = 0.0) -> bool:
        """Whether something has been received, or is within so many seconds."""
        return bool(self._received) or bool(self._poll.poll(1000 * seconds))

    def hold(self, kind: bytes, *parts: bytes) -> None:
        """Prepare a frame that is sent together with the next one."""
        self._unsent += encode_frame(kind, *parts)

    def send(self, kind: bytes, *parts: bytes) -> None:
        """Send a frame; blocks while the front does not read because the client does not."""
        self.hold(kind, *parts)
        self.flush()

    def flush(self) -> None:
        """Send what is held."""
        frames, self._unsent = self._unsent, []
        if frames:
            self.socket.sendall(b"".join(frames) if len(frames) > 1 else frames[0])

    def _take(self, count: int) -> bytes:
        received = self._received
        while len(received) < count:
            try:
                data = self.socket.recv(max(RECEIVE_BYTES, min(count - len(received), 4 * RECEIVE_BYTES)))
            except OSError:
                data = b""
            if not data:
                os._exit(0)  # the front is gone
            received += data
        taken = bytes(memoryview(received)[:count])
        del received[:count]
        return taken
