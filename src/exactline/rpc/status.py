"""The gRPC status of every error, and how an error travels from the server to the client."""

from __future__ import annotations

import json
from typing import Any

import grpc

from ..errors import ERRORS, AccessError, ExactlineError, LimitError, MissingError, ServiceError, UnsupportedError

Code = grpc.StatusCode
STATUS_BY_ERROR_CODE = {
    "exactline": Code.INTERNAL,
    "line": Code.INVALID_ARGUMENT,
    "plane": Code.INVALID_ARGUMENT,
    "argument": Code.INVALID_ARGUMENT,
    "capture": Code.INVALID_ARGUMENT,
    "training-mode": Code.INVALID_ARGUMENT,
    "unsupported": Code.INVALID_ARGUMENT,
    "number": Code.INVALID_ARGUMENT,
    "missing": Code.FAILED_PRECONDITION,
    "file": Code.INVALID_ARGUMENT,
    "service": Code.UNAVAILABLE,
    "access": Code.PERMISSION_DENIED,
    "limit": Code.RESOURCE_EXHAUSTED,
    "unknown-model": Code.NOT_FOUND,
    "unknown-service": Code.NOT_FOUND,
    "late": Code.DEADLINE_EXCEEDED,
    "internal": Code.INTERNAL,
}
ERROR_METADATA_KEY = "exactline-error-bin"  # trailing metadata that carries the fields of an error
REQUEST_ID_KEY = "x-request-id"  # metadata of a call, given by the client or by the server, and in its log
MAX_FIELD_CHARS = 1500  # of one field of an error: the size of headers is limited
MAX_LISTED_NODES = 20  # unsupported operators that an error lists
MAX_NODE_CHARS = 100  # of one of them
_ERROR_TYPES: dict[str, type[ExactlineError]] = {kind.code: kind for kind in ERRORS} | {"late": LimitError}


class UnknownModelError(MissingError):
    """The server has no model of this name."""

    code = "unknown-model"


class UnknownServiceError(MissingError):
    """The server has no service of this name."""

    code = "unknown-service"


def encode_error(fields: dict[str, Any]) -> tuple[grpc.StatusCode, str, bytes]:
    """Return the status of an error, its message, and its fields for the trailing metadata."""
    code = str(fields.get("code", "internal"))
    if code not in STATUS_BY_ERROR_CODE or code == "internal":
        fields = {
            "code": "exactline",
            "problem": f"The server has an internal error: {fields.get('problem', 'unknown')!s:.80}",
            "hint": "Report it to the operator of the server.",
        }
    texts = {name: str(fields.get(name, ""))[:MAX_FIELD_CHARS] for name in ("code", "problem", "where", "hint")}
    nodes = [str(node)[:MAX_NODE_CHARS] for node in fields.get("nodes", [])[:MAX_LISTED_NODES]]
    message = f"{texts['problem']} ({texts['where']})" if texts["where"] else texts["problem"]
    numbers = {"reached": int(fields["reached"])} if "reached" in fields else {}
    data = json.dumps(texts | {"nodes": nodes} | numbers).encode()
    return STATUS_BY_ERROR_CODE.get(code, Code.INTERNAL), message, data


def decode_error(error: grpc.RpcError, where: str) -> ExactlineError:
    """Return the exception that a client raises for a failed call."""
    call: Any = error  # the error of a call is also the call, of the sync and of the asyncio API
    code, has_details = status_code(error), hasattr(error, "trailing_metadata")
    details = str(call.details() or "") if has_details else str(error)
    metadata: Any = (call.trailing_metadata() or ()) if has_details else ()
    for key, value in metadata:
        if key == ERROR_METADATA_KEY:
            return _decode_error_fields(value, code)
    if code in (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED):
        return AccessError(details or "The server refuses the call.", where=where, hint="Give the server's token.")
    if code == Code.RESOURCE_EXHAUSTED:
        return LimitError(details, where=where, hint="Ask for less at a time.")
    if code == Code.DEADLINE_EXCEEDED:
        return LimitError("The call exceeded its deadline.", where=where, hint="Allow more time, or ask for less.")
    if code == Code.UNIMPLEMENTED:
        return ServiceError("The server does not know this call.", where=where, hint="Is it an exactline server?")
    return ServiceError(
        f"{code.name}: {details}", where=where, hint="Is the server running, and do both sides agree on TLS?"
    )


def status_code(error: grpc.RpcError) -> grpc.StatusCode:
    """Return the status of a failed call."""
    call: Any = error
    code = call.code() if hasattr(error, "code") else None
    return code if isinstance(code, grpc.StatusCode) else Code.UNKNOWN


def _decode_error_fields(data: Any, code: grpc.StatusCode) -> ExactlineError:
    """Rebuild the error that the server raised."""
    try:
        fields = json.loads(data)
        problem, where, hint = (str(fields[name]) for name in ("problem", "where", "hint"))
        nodes, reached = tuple(map(str, fields["nodes"])), fields.get("reached")
        kind = _ERROR_TYPES.get(str(fields["code"]), MissingError if code == Code.NOT_FOUND else ServiceError)
    except (ValueError, KeyError, TypeError):
        return ServiceError(f"{code.name}: the server's error cannot be decoded.", hint="Is it an exactline server?")
    if issubclass(kind, UnsupportedError):
        return kind(problem, nodes=nodes, where=where, hint=hint)
    if issubclass(kind, LimitError):
        return kind(problem, where=where, hint=hint, reached=reached if isinstance(reached, int) else None)
    return kind(problem, where=where, hint=hint)
