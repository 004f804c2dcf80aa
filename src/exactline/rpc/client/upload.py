"""The smaller calls: uploads in pieces, counters, and whether a server is well."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ...formats.open_file import opened
from ..protos.exactline.v1 import exactline_pb2 as pb
from ..server.service import NAME
from .connection import Way

PIECE = 1 << 20  # bytes of a file in one message
HEALTH = "/grpc.health.v1.Health/Check"


@dataclass(frozen=True)
class Stats:
    """What a server has done since it started, and how it is now."""

    uptime_seconds: float
    calls: dict[str, int]  # "Restrict OK" and so on: how many ended so
    lines: int
    breaks: int
    in_flight: int
    queued: int
    workers: int
    busy: int
    pids: tuple[int, ...]
    workers_forked: int
    workers_killed: int
    workers_died: int
    calls_retried: int
    models_cached: int
    bytes_cached: int
    cache_hits: int
    cache_misses: int
    uploads: int
    upload_bytes: int
    refused_tokens: int
    version: str

    @classmethod
    def of(cls, found: pb.StatsResponse) -> Stats:
        """Out of a message."""
        told: dict[str, Any] = {f.name: getattr(found, f.name) for f in fields(cls)}
        told["calls"], told["pids"] = dict(found.calls), tuple(found.pids)
        return cls(**told)


def source(model: str | Path | bytes, ending: str) -> tuple[bytes, str]:
    """The bytes of a model and the ending of its name."""
    if isinstance(model, bytes):
        return model, ending
    path = Path(model)
    return opened(path), Path(path.name.removesuffix(".gz")).suffix.lower()


def pieces(data: bytes, ending: str, digest: str) -> Iterator[bytes]:
    """A file as messages."""
    for at in range(0, max(1, len(data)), PIECE):
        first = {"ending": ending, "sha256": digest} if at == 0 else {}
        yield pb.UploadModelRequest(data=data[at : at + PIECE], **first).SerializeToString()


def health_request() -> bytes:
    """Ask whether the service is well."""
    from grpc_health.v1 import health_pb2

    return health_pb2.HealthCheckRequest(service=NAME).SerializeToString()


def is_healthy(answer: bytes) -> bool:
    """Whether it said yes."""
    from grpc_health.v1 import health_pb2

    found = health_pb2.HealthCheckResponse.FromString(answer)
    return found.status == health_pb2.HealthCheckResponse.SERVING


def health_check(channel: Any, way: Way) -> bool:
    """Ask the health service."""
    call = channel.unary_unary(HEALTH)
    return is_healthy(call(health_request(), timeout=way.timeout or 5.0, metadata=way.metadata()))
