"""What the server and a worker say to each other: a letter, then bytes; nothing in it is ever run.

A worker has read what strangers sent, so that the server takes only messages, JSON and these letters from it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from ...errors import ExactlineError, UnsupportedError

JOB, DATA, NO_MORE = b"J", b"D", b"Z"  # to a worker: a job, more input for it, the end of that input
TAKEN, NEED = b"T", b"N"  # from it: the job is begun, the model's file is needed,
MESSAGE, END, ERROR = b"M", b"E", b"X"  # a message for the client, the end of the job, an end by an error
LENGTH = 4  # bytes that say how long the head of a job is


@dataclass(frozen=True)
class Model:
    """Which network a job is about; its file is sent when a worker asks for it."""

    sha256: str
    ending: str = ".onnx"  # of a file's name: the format
    normalize: bool = True  # see exactline.load
    shape: tuple[int, ...] | None = None  # of one point, for files that leave it open


@dataclass(frozen=True)
class Job:
    """One piece of work: what kind, about which model, and the client's own bytes."""

    kind: str  # a name in serve.worker.WORK
    payload: bytes = b""
    model: Model | None = None

    def packed(self) -> bytes:
        """As one frame."""
        head = json.dumps({"kind": self.kind, "model": self.model and asdict(self.model)}).encode()
        return b"".join([JOB, len(head).to_bytes(LENGTH, "little"), head, self.payload])

    @classmethod
    def unpacked(cls, frame: bytes) -> Job:
        """Out of a frame."""
        stop = 1 + LENGTH + int.from_bytes(frame[1 : 1 + LENGTH], "little")
        head = json.loads(frame[1 + LENGTH : stop])
        model = head["model"]
        if model is not None:
            model = Model(**(model | {"shape": model["shape"] and tuple(model["shape"])}))
        return cls(head["kind"], frame[stop:], model)


def facts(kind: bytes, told: dict[str, Any]) -> bytes:
    """A frame of plain facts."""
    return kind + json.dumps(told).encode()


def told(frame: bytes) -> dict[str, Any]:
    """The facts of a frame."""
    found = json.loads(frame[1:])
    return found if isinstance(found, dict) else {}


def facts_of(error: ExactlineError) -> dict[str, Any]:
    """An error of ours in plain values."""
    parts: dict[str, Any] = {"code": error.code, "problem": error.problem, "where": error.where, "hint": error.hint}
    return parts | ({"nodes": list(error.nodes)} if isinstance(error, UnsupportedError) else {})
