"""How a client reaches its server: address, credentials and token, and when to try a call again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from ...errors import ArgumentError, FileError
from ..server.access import is_loopback
from ..status import decode_error, status_code

FIRST_RETRY_SECONDS, MAX_RETRY_SECONDS = 0.1, 5.0  # before the second attempt, and between later ones
SINGLE_THREADED_STREAM = "SingleThreadedUnaryStream"  # the caller reads answers itself, without a thread for each call
MAX_MESSAGE_BYTES = 64 << 20  # of one answer message; a server sends far less


@dataclass(frozen=True)
class Connection:
    """Where the server is, and how to talk to it; see `ConnectionKeywords` for the fields."""

    target: str
    token: str | None = field(default=None, repr=False)
    tls: Any = None
    certificate: tuple[Path, Path] | None = None
    insecure: bool = False
    timeout: float | None = None
    retries: int = 7

    def __post_init__(self) -> None:
        if not isinstance(self.target, str) or not self.target:
            raise ArgumentError("The target must be a string.", where="argument target", hint='Give "host:port".')
        local = self._is_local() or self.target.startswith("unix:")
        if self.token is not None and not (self.tls or local or self.insecure):
            raise ArgumentError(
                "Without TLS the token would be sent unencrypted.",
                where="argument token",
                hint="Give tls=; or insecure=True if the network itself is safe.",
            )

    def _is_local(self) -> bool:
        return is_loopback(self.target.rpartition(":")[0])

    def open_channel(self, api: Any) -> Any:
        """Open a channel with the functions of a module, grpc or grpc.aio."""
        credentials = self._read_credentials()
        options = [
            (SINGLE_THREADED_STREAM, 1),
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.max_send_message_length", -1),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2000),
            *([("grpc.enable_http_proxy", 0)] if self._is_local() else []),
        ]
        if credentials is None:
            return api.insecure_channel(self.target, options)
        return api.secure_channel(self.target, credentials, options)

    def _read_credentials(self) -> grpc.ChannelCredentials | None:
        """Return the credentials of a channel; None for one without TLS."""
        if not self.tls:
            if self.certificate is not None:
                raise ArgumentError("A certificate needs TLS.", where="argument certificate", hint="Give tls= too.")
            return None
        if isinstance(self.tls, grpc.ChannelCredentials):
            return self.tls
        roots = None if self.tls is True else _read_pem(Path(self.tls), "argument tls")
        certificate = key = None
        if self.certificate is not None:
            certificate, key = (_read_pem(Path(path), "argument certificate") for path in self.certificate)
        return grpc.ssl_channel_credentials(roots, key, certificate)

    def call_options(self, default_timeout: float | None = None) -> dict[str, Any]:
        """Return the keyword arguments of every call: its timeout, and the token."""
        metadata = () if self.token is None else (("authorization", f"Bearer {self.token}"),)
        return {"timeout": default_timeout if self.timeout is None else self.timeout, "metadata": metadata}

    def retry_pauses(self) -> Iterator[float]:
        """Yield the seconds to wait before each retry: they double, up to a limit, with random jitter."""
        for attempt in range(self.retries):
            yield min(MAX_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2**attempt) * random.uniform(0.5, 1.5)

    def next_pause(self, error: grpc.RpcError, pauses: Iterator[float], *, may_retry: bool = True) -> float:
        """Return the seconds to wait before trying a failed call again.

        Raises the library's error for the failure if the call must not be tried again.
        """
        pause = next(pauses, None)
        if not may_retry or pause is None or not is_unavailable(error):
            raise decode_error(error, self.target) from None
        return pause


def is_unavailable(error: grpc.RpcError) -> bool:
    """Whether another attempt may succeed; a certificate that is not trusted will not be later either."""
    call: Any = error
    return status_code(error) == grpc.StatusCode.UNAVAILABLE and "handshake failed" not in str(call.details()).lower()


def _read_pem(path: Path, where: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as problem:
        raise FileError(f"{path} cannot be read: {problem.strerror}.", where=where, hint="Give PEM files.") from problem
