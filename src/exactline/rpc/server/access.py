"""Who may call: bearer tokens, compared in constant time, and addresses that only the local machine can reach."""

from __future__ import annotations

import hmac
import ipaddress
import os
import stat
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import grpc

from ...errors import ArgumentError, FileError
from ..status import REQUEST_ID_KEY
from .clients import ClientUsage
from .log import Log, ServerCounters

MAX_REQUEST_ID_CHARS = 64
MIN_TOKEN_CHARS, MAX_TOKEN_CHARS = 16, 4096
OTHERS_MAY_READ = stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP  # of the mode of a file
COMMON_NAME = "x509_common_name"  # of a client's certificate, in gRPC's authentication context


def read_tokens(path: Path) -> tuple[bytes, ...]:
    """Read tokens from a file, one per line; empty lines and lines that begin with # are skipped.

    Raises FileError if the file cannot be read, ArgumentError if it holds no token or one that is easy to guess, or
    if other users may read or change it.
    """
    try:
        with path.open(encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            lines = file.read().splitlines()
    except (OSError, ValueError) as problem:
        raise FileError("The token file cannot be read.", where="--token-file", hint="Give a text file.") from problem
    if stat.S_ISREG(mode) and mode & OTHERS_MAY_READ:
        raise ArgumentError(
            f"Other users may read or change the token file: its mode is {stat.S_IMODE(mode):o}.",
            where="--token-file",
            hint="Protect it with: chmod 600",
        )
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


def find_request_id(metadata: Any) -> str:
    """Return the id that the client gave a call in its metadata, if it is short, else a new one."""
    for key, value in metadata or ():
        if key == REQUEST_ID_KEY and isinstance(value, str) and len(value) <= MAX_REQUEST_ID_CHARS:
            return value
    return uuid.uuid4().hex[:16]


class Access:
    """Knows the clients of the server: by token, by certificate, or by connection where there are neither."""

    def __init__(self, tokens: Sequence[bytes] = ()) -> None:
        self._credentials: list[tuple[bytes, ClientUsage]] = []
        self._named: dict[str, ClientUsage] = {}  # by name of a certificate
        self._connections: WeakValueDictionary[str, ClientUsage] = WeakValueDictionary()
        self.replace_tokens(tokens)

    def replace_tokens(self, tokens: Sequence[bytes]) -> None:
        """Accept these tokens from now on; clients whose token stays keep what they use."""
        known = dict(self._credentials)
        used = {client.name for client in known.values()}
        free = (f"token {n}" for n in range(1, len(tokens) + len(used) + 1) if f"token {n}" not in used)
        credentials = [b"Bearer " + token for token in tokens]
        self._credentials = [
            (c, known[c] if c in known else ClientUsage(next(free), has_quota=True)) for c in credentials
        ]

    @property
    def token_count(self) -> int:
        """How many tokens are accepted; with 0, calls need none."""
        return len(self._credentials)

    def find_token(self, metadata: Any) -> ClientUsage | None:
        """Return the client whose token the metadata of a call carry."""
        given = b""
        for key, value in metadata or ():
            if key == "authorization":
                given = value if isinstance(value, bytes) else value.encode("utf-8", "replace")
        found: ClientUsage | None = None
        for credential, client in self._credentials:  # compares with all of them, so that the time reveals nothing
            if hmac.compare_digest(given, credential):
                found = client
        return found

    def find_peer(self, context: Any) -> ClientUsage:
        """Return the client of a call without a token."""
        names = context.auth_context().get(COMMON_NAME, ())
        if names:
            name = f"certificate {names[0].decode('utf-8', 'replace')[:100]}"
            return self._named.setdefault(name, ClientUsage(name, has_quota=True))
        peer = context.peer()
        client = self._connections.get(peer)
        if client is None:
            client = self._connections[peer] = ClientUsage(peer)
        return client


class Gate(grpc.GenericRpcHandler):
    """The way in for all calls: refuses those without a token, and finds the handlers of the others.

    Args:
        access: who may call.
        find_handler: returns the gRPC handler of a path for a client, None if there is none; the client is None where
            it is known only from the connection.
        log: where refused calls are written.
        counters: where they are counted.
    """

    def __init__(
        self,
        access: Access,
        find_handler: Callable[[str, ClientUsage | None], Any],
        log: Log,
        counters: ServerCounters,
    ) -> None:
        self.access, self.log, self.counters = access, log, counters
        self._find_handler = find_handler
        self._refusal = grpc.stream_stream_rpc_method_handler(self._refuse)

    def service(self, handler_call_details: Any) -> Any:
        """Return the handler of a call, or one that refuses it; None leaves it to other handlers."""
        client = None
        if self.access.token_count:
            client = self.access.find_token(handler_call_details.invocation_metadata)
            if client is None:
                return self._refusal
        return self._find_handler(handler_call_details.method, client)

    async def _refuse(self, _: Any, context: Any) -> None:
        self.counters.refused_tokens += 1
        self.log("refused", "warning", code="UNAUTHENTICATED", peer=context.peer())
        await context.abort(grpc.StatusCode.UNAUTHENTICATED, "The token is missing or wrong.")
