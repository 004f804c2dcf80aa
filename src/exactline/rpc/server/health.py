"""gRPC's health service, answered without a worker, a queue or a limit on calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ...errors import ArgumentError
from .. import LEGACY_SERVICE_NAME, SERVICE_NAME
from ..status import UnknownServiceError
from ..wire import WireError, find_field
from .front import Call, Handler

HEALTH_SERVICE_NAME = "grpc.health.v1.Health"
SERVED_NAMES = ("", SERVICE_NAME, LEGACY_SERVICE_NAME)
SERVING, NOT_SERVING, SERVICE_UNKNOWN = b"\x08\x01", b"\x08\x02", b"\x08\x03"  # HealthCheckResponse messages
POLL_SECONDS = 0.5  # between two looks at the state for those that watch it
MAX_WATCHERS = 64
MAX_NAME_FIELDS = 8


class Health:
    """Answers whether the server can take calls.

    Args:
        is_ready: whether it can at the moment.
    """

    def __init__(self, is_ready: Callable[[], bool]) -> None:
        self.is_ready = is_ready
        self._watchers = 0

    def handlers(self) -> dict[str, tuple[str, Handler]]:
        """Return the name and the handler of every method, by path."""
        methods: dict[str, Handler] = {"Check": self.check, "Watch": self.watch}
        return {f"/{HEALTH_SERVICE_NAME}/{name}": (f"Health.{name}", handler) for name, handler in methods.items()}

    async def check(self, call: Call) -> None:
        """Answer whether a service can be called.

        Raises UnknownServiceError if there is no such service.
        """
        state = self._state(_read_name(call))
        if state == SERVICE_UNKNOWN:
            raise UnknownServiceError("There is no such service.", where="service", hint=f"Ask for {SERVICE_NAME}.")
        await call.write(state)

    async def watch(self, call: Call) -> None:
        """Answer whenever the state of a service changes."""
        name = _read_name(call)
        if self._watchers >= MAX_WATCHERS:
            raise call.limits.error("waiting_calls", "Too many clients watch the state.")
        self._watchers += 1
        last = b""
        try:
            while True:
                if (state := self._state(name)) != last:
                    await call.write(state)
                    last = state
                await asyncio.sleep(POLL_SECONDS)
        finally:
            self._watchers -= 1

    def _state(self, name: str) -> bytes:
        if name not in SERVED_NAMES:
            return SERVICE_UNKNOWN
        return SERVING if self.is_ready() else NOT_SERVING


def _read_name(call: Call) -> str:
    try:
        return bytes(find_field(call.first_message, 1, MAX_NAME_FIELDS)).decode()
    except (WireError, UnicodeDecodeError):
        raise ArgumentError("The request is not a HealthCheckRequest.", where="request", hint="") from None
