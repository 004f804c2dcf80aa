"""The way to a server: its address, credentials and token, and how long to try again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from ...errors import ArgumentError, FileError
from ..server.access import is_loopback
from ..server.service import NAME
from ..status import code_of

FIRST, LONGEST = 0.1, 5.0  # seconds before the second try, and between two at most
SINGLE = "SingleThreadedUnaryStream"
MOST = 64 << 20  # bytes of one message of an answer; ours are smaller, and this is no place to be strict


@dataclass(frozen=True)
class Way:
    """Where the server is, and how to speak with it."""

    target: str
    token: str | None = field(default=None, repr=False)
    tls: Any = None  # None, True for the system's authorities, a path to those to trust, or grpc credentials
    certificate: tuple[Path, Path] | None = None  # a client's own and its key, where the server asks for one
    insecure: bool = False
    timeout: float | None = None
    retries: int = 7

    def __post_init__(self) -> None:
        if not isinstance(self.target, str) or not self.target:
            raise ArgumentError("A server's address is a text.", where="argument target", hint='Give "host:port".')
        local = is_loopback(self.target.rpartition(":")[0]) or self.target.startswith("unix:")
        if self.token is not None and not (self.tls or local or self.insecure):
            raise ArgumentError(
                "The token would travel in the open, for all to read.",
                where="argument token",
                hint="Give tls=; or insecure=True where the network itself is safe.",
            )

    def credentials(self) -> grpc.ChannelCredentials | None:
        """For a channel; None for one without TLS."""
        if not self.tls:
            if self.certificate is not None:
                raise ArgumentError("A certificate needs TLS.", where="argument certificate", hint="Give tls= too.")
            return None
        if isinstance(self.tls, grpc.ChannelCredentials):
            return self.tls
        roots = None if self.tls is True else _read(Path(self.tls), "argument tls")
        own = (None, None)
        if self.certificate is not None:
            own = tuple(_read(Path(path), "argument certificate") for path in self.certificate)
        return grpc.ssl_channel_credentials(roots, own[1], own[0])

    def options(self) -> list[tuple[str, Any]]:
        """Of a channel."""
        local = is_loopback(self.target.rpartition(":")[0])
        return [
            (SINGLE, 1),  # answers are read by whoever waits for them, not by a thread of their own
            ("grpc.max_receive_message_length", MOST),
            ("grpc.max_send_message_length", -1),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2000),
            *([("grpc.enable_http_proxy", 0)] if local else []),
        ]

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """That goes with each call."""
        return () if self.token is None else (("authorization", f"Bearer {self.token}"),)

    def pauses(self) -> Iterator[float]:
        """Seconds to wait before each further try: twice as long every time, and never in step with others."""
        for attempt in range(self.retries):
            yield min(LONGEST, FIRST * 2**attempt) * random.uniform(0.5, 1.5)


def path_of(method: str) -> str:
    """What gRPC calls a method."""
    return f"/{NAME}/{method}"


def unavailable(error: grpc.RpcError) -> bool:
    """Whether it may help to try again; a certificate that is not trusted will not be later either."""
    told: Any = error
    return code_of(error) == grpc.StatusCode.UNAVAILABLE and "handshake failed" not in str(told.details()).lower()


def _read(path: Path, where: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise FileError(f"{path} cannot be read: {problem.strerror}.", where=where, hint="Give PEM files.") from problem
