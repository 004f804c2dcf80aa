"""Who may call: bearer tokens, compared in constant time, and addresses that only the local machine can reach."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from ...errors import ArgumentError, FileError
from .log import Log, ServerCounters

MIN_TOKEN_CHARS, MAX_TOKEN_CHARS = 16, 4096


def read_tokens(path: Path) -> tuple[bytes, ...]:
    """Read tokens from a file, one per line; empty lines and lines that begin with # are skipped.

    Raises FileError if the file cannot be read, ArgumentError if it holds no token or one that is easy to guess.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as problem:
        raise FileError("The token file cannot be read.", where="--token-file", hint="Give a text file.") from problem
    tokens = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not tokens:
        raise ArgumentError("The file holds no token.", where="--token-file", hint="Write one token per line.")
    if any(not MIN_TOKEN_CHARS <= len(token) <= MAX_TOKEN_CHARS or not token.isascii() for token in tokens):
        raise ArgumentError(
            f"A token has fewer than {MIN_TOKEN_CHARS} characters, more than {MAX_TOKEN_CHARS}, or is not ASCII.",
            where="--token-file",
            hint="Make one with: openssl rand -hex 32",
        )
    return tuple(token.encode() for token in tokens)


def is_loopback(host: str) -> bool:
    """Whether only the local machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class TokenInterceptor(grpc.ServerInterceptor):
    """Refuses every call, whatever its method, that does not carry ``authorization: Bearer <token>``."""

    def __init__(self, tokens: Sequence[bytes], log: Log, counters: ServerCounters) -> None:
        self.tokens, self.log, self.counters = tokens, log, counters
        self._refusal = grpc.stream_stream_rpc_method_handler(self._refuse)

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Any],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Return the handler of the call, or one that refuses it."""
        credential = b""
        for key, value in handler_call_details.invocation_metadata or ():
            if key == "authorization":
                credential = value if isinstance(value, bytes) else value.encode("utf-8", "replace")
        return continuation(handler_call_details) if self._is_known(credential) else self._refusal

    def _is_known(self, credential: bytes) -> bool:
        known = False
        for token in self.tokens:  # compares with all of them, so that the time reveals nothing
            known |= hmac.compare_digest(credential, b"Bearer " + token)
        return known

    def _refuse(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        with self.counters.lock:
            self.counters.refused_tokens += 1
        self.log("refused", code="UNAUTHENTICATED", peer=context.peer())
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "The token is missing or wrong.")
        yield from ()
