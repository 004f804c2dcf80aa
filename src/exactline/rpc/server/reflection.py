"""gRPC's reflection service, which lists the methods of the server; off unless the operator wants it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any

from google.protobuf.message import DecodeError

from ...errors import ArgumentError
from ...optional import require_package
from .. import LEGACY_SERVICE_NAME, SERVICE_NAME
from .front import Call, Handler
from .health import HEALTH_SERVICE_NAME

MAX_REQUEST_BYTES = 4096


def reflection_handlers() -> dict[str, tuple[str, Handler]]:
    """Return the name and the handler of the service's only method, by path.

    Raises MissingError without grpcio-reflection.
    """
    with require_package(
        "The server needs grpcio-reflection.", where="--reflection", hint='pip install "exactline[serve]"'
    ):
        import_module("grpc_health.v1.health_pb2")  # reflection finds services whose code is imported
        from grpc_reflection.v1alpha import reflection, reflection_pb2

    import_module("exactline.rpc.protos.syrenn_server_pb2")
    names = (SERVICE_NAME, LEGACY_SERVICE_NAME, HEALTH_SERVICE_NAME, reflection.SERVICE_NAME)
    servicer: Any = reflection.aio.ReflectionServicer(names)

    async def read_requests(call: Call) -> AsyncIterator[Any]:
        message: bytes | None = call.first_message
        while message is not None:
            if len(message) > MAX_REQUEST_BYTES:
                raise ArgumentError("The request is too long.", where="request", hint="Ask for one name.")
            try:
                yield reflection_pb2.ServerReflectionRequest.FromString(message)
            except DecodeError:
                raise ArgumentError("The request is not valid.", where="request", hint="Ask for one name.") from None
            message = await call.read("idle_seconds", call.limits.idle_seconds)

    async def answer(call: Call) -> None:
        async for response in servicer.ServerReflectionInfo(read_requests(call), None):
            await call.write(response.SerializeToString())

    return {f"/{reflection.SERVICE_NAME}/ServerReflectionInfo": ("Reflection", answer)}
