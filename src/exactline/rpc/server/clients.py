"""Clients of the server and what each of them uses: a token is one client, without tokens a connection is."""

from __future__ import annotations

from dataclasses import dataclass

from ..limits import Limits


@dataclass(eq=False)
class ClientUsage:
    """What one client uses at the moment."""

    name: str  # for the log: a number of a token, or an address
    has_quota: bool = False  # clients without a token share the server's own limits
    calls: int = 0  # running or queued
    workers: int = 0
    bytes: int = 0  # of messages and uploads in transit


class ByteBudget:
    """Counts the bytes that the front holds, and refuses what would exceed the limit."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.held = limits, 0

    def add(self, client: ClientUsage, count: int) -> None:
        """Count some bytes, whatever the limit; `remove` them in the end."""
        self.held += count
        client.bytes += count

    def remove(self, client: ClientUsage, count: int) -> None:
        """Count some bytes as released."""
        self.held -= count
        client.bytes -= count

    def check(self, client: ClientUsage) -> None:
        """Raise LimitError if the bytes of all clients or of this one exceed their limit."""
        if self.held > self.limits.front_bytes:
            raise self.limits.error("front_bytes", "The messages of all calls need too much memory.")
        if client.has_quota and client.bytes > self.limits.client_bytes:
            raise self.limits.error("client_bytes", "The messages of this client need too much memory.")
