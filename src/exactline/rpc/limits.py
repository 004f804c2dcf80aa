"""The limits of the service. A call that exceeds one is refused with the name of the limit."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isfinite

from ..errors import ArgumentError, LimitError

MIB = 1 << 20
MIN_WORKER_BYTES = 64 * MIB  # below this a worker cannot run the smallest job
AUTOMATIC = ("client_workers",)  # limits that may be 0, which stands for a choice of the server


@dataclass(frozen=True)
class Limits:
    """How much one call, one worker and the whole server may use."""

    front_bytes: int = 1024 * MIB  # of all messages, layers and uploads that the front process holds, for all calls
    message_bytes: int = 64 * MIB  # of one request message
    legacy_message_bytes: int = 128 * MIB  # of one request or answer of the legacy protocol; its clients' own limit
    legacy_call_bytes: int = 512 * MIB  # of all layers of one legacy call
    answer_bytes: int = 2 * MIB  # of arrays in one answer message
    fields_per_message: int = 400_000  # fields of one request, those of messages inside it included
    concurrent_calls: int = 64  # running or queued, of all clients
    waiting_calls: int = 1000  # calls that have sent nothing yet or pause; beyond it the oldest of them is ended
    queue_length: int = 32  # calls that wait for a worker
    calls_per_connection: int = 128
    connections: int = 512  # of all clients; more are refused, and idle ones closed
    client_calls: int = 32  # running or queued, of one token
    client_workers: int = 0  # that run calls of one token; 0 for all but one if there are several tokens
    client_bytes: int = 512 * MIB  # of front_bytes, for one token
    client_upload_bytes: int = 512 * MIB  # of stored_upload_bytes, for one token
    lines_per_call: int = 100_000
    breaks_per_line: int = 10_000_000  # including both ends of the line
    polygons_per_plane: int = 5_000_000
    corners_per_plane: int = 1024  # of the polygon that a plane is restricted to
    legacy_layers: int = 100_000  # of one network of the legacy protocol
    call_seconds: float = 600.0  # of one call, including the time in the queue
    first_message_seconds: float = 10.0  # until the first message of a call has arrived
    idle_seconds: float = 60.0  # between two messages of a call of the legacy protocol
    upload_seconds: float = 120.0  # of one upload until its last message has arrived
    write_seconds: float = 30.0  # for a client to read one message, and one second more for each MiB of it
    upload_bytes: int = 128 * MIB  # of one uploaded model
    stored_upload_bytes: int = 1024 * MIB  # of all stored uploads; the least recently used are dropped
    model_bytes: int = 512 * MIB  # of one file of --models
    cache_bytes: int = 1024 * MIB  # of the networks that one worker caches; the least recently used are dropped
    worker_bytes: int = 8192 * MIB  # of the memory of one worker
    drain_seconds: float = 30.0  # for calls in flight when the server shuts down
    connection_seconds: float = 3600.0  # after which a client must reconnect
    connection_idle_seconds: float = 300.0  # without a call, after which a connection is closed
    keepalive_seconds: float = 60.0  # between two pings of a silent connection; one that does not answer is closed

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
            value = getattr(self, field.name)
            if not (value > 0 or (value == 0 and field.name in AUTOMATIC)) or not isfinite(value):
                raise ArgumentError(
                    f"The limit {field.name} is {value!r}.",
                    where=f"limit {field.name}",
                    hint="Give a finite number above 0.",
                )
        if self.worker_bytes < MIN_WORKER_BYTES:
            raise ArgumentError(
                f"The limit worker_bytes is {self.worker_bytes:,}, too little for any job.",
                where="limit worker_bytes",
                hint=f"Give at least {MIN_WORKER_BYTES:,}.",
            )
