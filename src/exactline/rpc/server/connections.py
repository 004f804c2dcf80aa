"""Connections of the server as the system sees them: while there are as many as allowed, idle ones are closed.

gRPC refuses connections above its limit and closes none before, so that one client could keep all others out with
connections that it does not use. It has no function to close a connection either: the socket is shut down below it,
as if the client had left.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from urllib.parse import unquote

DESCRIPTORS = Path("/proc/self/fd")
MIN_IDLE_SECONDS = 1.0  # before a connection is closed: a client needs a moment for its first call
ROOM_DIVISOR = 8  # of the limit: how many are closed at a time
Peer = tuple[str, int]  # address and port of a client


class Connections:
    """Closes idle connections when there are as many as allowed.

    Args:
        max_connections: how many are allowed.
    """

    def __init__(self, max_connections: int) -> None:
        self.max_connections = max_connections
        self._first_seen: dict[Peer, float] = {}
        self._last_call: dict[Peer, float] = {}  # when a call of the connection ended

    def note_call(self, peer: str, now: float) -> None:
        """Note that a call of a connection has ended."""
        if (known := parse_peer(peer)) in self._first_seen:
            self._last_call[known] = now

    def make_room(self, port: int, busy: set[Peer], waiting: set[Peer], now: float) -> int:
        """Close idle connections to a port if there are as many as allowed; returns how many.

        Those that never made a call are closed first, then those whose last call ended first, and in the end those
        with calls that wait for their clients.

        Args:
            port: of the server.
            busy: connections that are not idle.
            waiting: connections with calls that wait for their clients.
            now: the time.
        """
        with contextlib.ExitStack() as stack:
            found = {peer: stack.enter_context(connection) for peer, connection in _list_connections(port)}
            self._first_seen = {peer: self._first_seen.get(peer, now) for peer in found}
            self._last_call = {peer: then for peer, then in self._last_call.items() if peer in found}
            if len(found) < self.max_connections:
                return 0
            since = self._first_seen | self._last_call
            idle = [peer for peer in found if peer not in busy and now - since[peer] >= MIN_IDLE_SECONDS]
            idle.sort(key=lambda peer: (peer in waiting, peer in self._last_call, since[peer]))
            closed = idle[: max(1, self.max_connections // ROOM_DIVISOR)]
            for peer in closed:
                with contextlib.suppress(OSError):
                    found[peer].shutdown(socket.SHUT_RDWR)
            return len(closed)


def parse_peer(peer: str) -> Peer:
    """Return address and port of gRPC's name of a client.

    >>> parse_peer("ipv4:127.0.0.1:50"), parse_peer("ipv6:%5B::1%5D:50"), parse_peer("unix:")
    (('127.0.0.1', 50), ('::1', 50), ('', 0))
    """
    address, _, port = unquote(peer).partition(":")[2].rpartition(":")
    return (address.strip("[]"), int(port)) if address and port.isdigit() else ("", 0)


def _list_connections(port: int) -> Iterator[tuple[Peer, socket.socket]]:
    """Yield the client and a copy of the socket of each connection to a port; nothing where the system has no list."""
    try:
        names = os.listdir(DESCRIPTORS)  # noqa: PTH208 numbers, not paths
    except OSError:
        return
    for name in names:
        with contextlib.suppress(OSError, ValueError):
            if not os.readlink(DESCRIPTORS / name).startswith("socket:"):  # noqa: PTH115 no path either
                continue
            copy = socket.socket(fileno=os.dup(int(name)))
            try:
                is_ours = copy.family in (socket.AF_INET, socket.AF_INET6) and copy.getsockname()[1] == port
                peer = _normalize(copy.getpeername()) if is_ours else None
            except OSError:
                peer = None  # it listens, or the client has left
            if peer is None:
                copy.close()
            else:
                yield peer, copy


def _normalize(address: tuple[str, int]) -> Peer:
    """Return address and port; IPv4 addresses of a socket for both kinds are written as such."""
    ip = ip_address(address[0].partition("%")[0])
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return str(mapped or ip), address[1]
