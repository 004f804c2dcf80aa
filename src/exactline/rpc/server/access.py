"""Who may call: tokens, compared in constant time, and addresses that only the same machine reaches."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from ...errors import ArgumentError, FileError
from .log import Log, Tally

SHORTEST, LONGEST = 16, 4096  # characters of a token


def read_tokens(path: Path) -> tuple[bytes, ...]:
    """The tokens of a file, one a line; empty lines and those that begin with # do not count.

    Raises FileError where it cannot be read, ArgumentError where it holds none or one that is easily guessed.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as problem:
        raise FileError(
            "The file of tokens cannot be read.", where="--token-file", hint="Give a text file."
        ) from problem
    tokens = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if not tokens:
        raise ArgumentError("The file holds no token.", where="--token-file", hint="Write one token a line.")
    if any(not SHORTEST <= len(token) <= LONGEST or not token.isascii() for token in tokens):
        raise ArgumentError(
            f"A token has fewer than {SHORTEST} characters, too many, or some that are not ASCII.",
            where="--token-file",
            hint="Make one with: openssl rand -hex 32",
        )
    return tuple(token.encode() for token in tokens)


def is_loopback(host: str) -> bool:
    """Whether an address is reached from the same machine only.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class TokenGuard(grpc.ServerInterceptor):
    """Lets calls in that bring ``authorization: Bearer <token>``, whatever they call; others learn nothing more."""

    def __init__(self, tokens: Sequence[bytes], log: Log, tally: Tally) -> None:
        self.tokens, self.log, self.tally = tokens, log, tally
        self._refusal = grpc.stream_stream_rpc_method_handler(self._refuse)

    def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Any],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        """Go on, or refuse."""
        given = b""
        for key, value in handler_call_details.invocation_metadata or ():
            if key == "authorization":
                given = value if isinstance(value, bytes) else value.encode("utf-8", "replace")
        return continuation(handler_call_details) if self._known(given) else self._refusal

    def _known(self, given: bytes) -> bool:
        found = False
        for token in self.tokens:  # all of them, so that the time tells nothing
            found |= hmac.compare_digest(given, b"Bearer " + token)
        return found

    def _refuse(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Iterator[Any]:
        with self.tally.counting:
            self.tally.refused_tokens += 1
        self.log("refused", code="UNAUTHENTICATED", peer=context.peer())
        context.abort(grpc.StatusCode.UNAUTHENTICATED, "The token is missing or wrong.")
        yield from ()
