"""The limits of the service. A call that exceeds one is refused with the name of the limit."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ..errors import ArgumentError, LimitError

MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """How much one call, one worker and the whole server may use."""

    message_bytes: int = 64 * MIB  # of one request message
    legacy_message_bytes: int = 128 * MIB  # of one request or answer of the legacy protocol; its clients' own limit
    legacy_call_bytes: int = 512 * MIB  # of all layers of one legacy call
    answer_bytes: int = 2 * MIB  # of arrays in one answer message
    concurrent_calls: int = 64  # running or queued, of all clients
    queue_length: int = 32  # calls that wait for a worker
    calls_per_connection: int = 128
    lines_per_call: int = 100_000
    breaks_per_line: int = 10_000_000  # including both ends of the line
    polygons_per_plane: int = 5_000_000
    legacy_layers: int = 100_000  # of one network of the legacy protocol
    call_seconds: float = 600.0  # of one call, including the time in the queue
    upload_bytes: int = 128 * MIB  # of one uploaded model
    stored_upload_bytes: int = 1024 * MIB  # of all stored uploads; the least recently used are dropped
    model_bytes: int = 512 * MIB  # of one file of --models
    cache_bytes: int = 1024 * MIB  # of the networks that one worker caches; the least recently used are dropped
    worker_bytes: int = 8192 * MIB  # of the memory of one worker
    drain_seconds: float = 30.0  # for calls in flight when the server shuts down
    connection_seconds: float = 3600.0  # after which a client must reconnect

    def check(self, name: str, count: float, what: str) -> None:
        """Raise LimitError if a count exceeds a limit.

        >>> Limits(lines_per_call=10).check("lines_per_call", 10, "lines")
        """
        if count > getattr(self, name):
            raise self.error(name, f"There are {count:,} {what}.")

    def error(self, name: str, problem: str) -> LimitError:
        """Create the error for a limit that is exceeded.

        >>> print(Limits(lines_per_call=10).error("lines_per_call", "There are 11 lines."))
        There are 11 lines. The limit lines_per_call is 10.
          where: limit lines_per_call
          try:   Ask for less in one call, or ask the operator of the server to raise the limit.
        """
        return LimitError(
            f"{problem} The limit {name} is {getattr(self, name):,}.",
            where=f"limit {name}",
            hint="Ask for less in one call, or ask the operator of the server to raise the limit.",
        )

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise ArgumentError(
                    f"The limit {field.name} is {getattr(self, field.name)!r}.",
                    where=f"limit {field.name}",
                    hint="Give a number above 0.",
                )
