"""Every limit of the service in one place; what is beyond one is refused with the limit's name."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from ..errors import ArgumentError, LimitError

MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """How much one call, one worker and the whole server may take."""

    message_bytes: int = 64 * MIB  # of one message of a request
    old_message_bytes: int = 128 * MIB  # of one message of the older protocol, either way: what its clients allow
    old_call_bytes: int = 512 * MIB  # of all layers of one call of the older protocol
    answer_bytes: int = 2 * MIB  # of arrays in one message of an answer
    concurrent_calls: int = 64  # running and waiting, all clients together
    queue_length: int = 32  # calls that wait for a worker
    streams: int = 128  # calls of one connection
    lines_per_call: int = 100_000
    breaks_per_line: int = 10_000_000  # the ends of the line are breaks too
    polygons_per_plane: int = 5_000_000
    layers: int = 100_000  # of one network of the older protocol
    seconds: float = 600.0  # of one call, waiting included
    upload_bytes: int = 128 * MIB  # of one uploaded model
    uploads_bytes: int = 1024 * MIB  # of all uploaded models that are kept; those not used for longest go
    model_bytes: int = 512 * MIB  # of one file of --models
    cache_bytes: int = 1024 * MIB  # of the models that one worker keeps ready; those not used for longest go
    worker_bytes: int = 8192 * MIB  # of memory of one worker
    drain_seconds: float = 30.0  # for calls in flight when the server is told to end
    connection_seconds: float = 3600.0  # the age at which a connection is asked to renew itself

    def within(self, name: str, count: float, what: str) -> None:
        """Refuse what is more than a limit allows.

        >>> Limits(lines_per_call=10).within("lines_per_call", 10, "lines")
        """
        if count > getattr(self, name):
            raise refuse(name, self, f"There are {count:,} {what}.")

    def as_dict(self) -> dict[str, Any]:
        """The limits as plain values."""
        return asdict(self)

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise ArgumentError(
                    f"The limit {field.name} is {getattr(self, field.name)!r}.",
                    where=f"limit {field.name}",
                    hint="Give a number above 0.",
                )


def refuse(name: str, limits: Limits, told: str) -> LimitError:
    """The error for what is beyond a limit.

    >>> print(refuse("lines_per_call", Limits(lines_per_call=10), "There are 11 lines."))
    There are 11 lines. The limit lines_per_call is 10.
      where: limit lines_per_call
      try:   Ask for less in one call, or let whoever runs the server raise it.
    """
    return LimitError(
        f"{told} The limit {name} is {getattr(limits, name):,}.",
        where=f"limit {name}",
        hint="Ask for less in one call, or let whoever runs the server raise it.",
    )
