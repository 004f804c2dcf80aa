"""The frames between the server and its workers: one byte that says the kind, then data; nothing is ever executed.

Workers parse what strangers send, so the server accepts nothing from them but frames of known kinds that hold messages
or JSON.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from ...errors import ExactlineError, UnsupportedError

JOB, INPUT, END_OF_INPUT = b"J", b"D", b"Z"  # to a worker: a job, more input for it, the end of that input
ACCEPTED, NEED_MODEL = b"T", b"N"  # from a worker: the job has begun, the file of the model is needed,
MESSAGE, DONE, FAILED = b"M", b"E", b"X"  # a message for the client, the end of the job, its end by an error
HEADER_LENGTH_BYTES = 4


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

    def encode(self) -> bytes:
        """Return the job as one frame."""
        header = json.dumps({"kind": self.kind, "model": self.model and asdict(self.model)}).encode()
        return b"".join([JOB, len(header).to_bytes(HEADER_LENGTH_BYTES, "little"), header, self.payload])

    @classmethod
    def decode(cls, frame: bytes) -> WorkerJob:
        """Return the job in a frame."""
        begin = 1 + HEADER_LENGTH_BYTES
        end = begin + int.from_bytes(frame[1:begin], "little")
        header = json.loads(frame[begin:end])
        model = header["model"]
        if model is not None:
            model = ModelKey(**(model | {"shape": model["shape"] and tuple(model["shape"])}))
        return cls(header["kind"], frame[end:], model)


def encode_json(kind: bytes, fields: dict[str, Any]) -> bytes:
    """Return a frame of a kind that holds JSON."""
    return kind + json.dumps(fields).encode()


def decode_json(frame: bytes) -> dict[str, Any]:
    """Return the JSON of a frame.

    Raises ValueError if it holds none.
    """
    fields = json.loads(frame[1:])
    return fields if isinstance(fields, dict) else {}


def error_fields(error: ExactlineError) -> dict[str, Any]:
    """Return the code and the parts of an error as plain values."""
    fields: dict[str, Any] = {"code": error.code, "problem": error.problem, "where": error.where, "hint": error.hint}
    return fields | ({"nodes": list(error.nodes)} if isinstance(error, UnsupportedError) else {})
