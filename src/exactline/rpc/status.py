"""One table between our errors and gRPC's statuses, and how an error travels from a server to a client."""

from __future__ import annotations

import json
from typing import Any

import grpc

from ..errors import ERRORS, AccessError, ExactlineError, LimitError, MissingError, ServiceError, UnsupportedError

Code = grpc.StatusCode
STATUS = {  # by the code of an error
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
    "late": Code.DEADLINE_EXCEEDED,
    "internal": Code.INTERNAL,
}
KEY = "exactline-error-bin"  # of the trailing metadata that carries an error's parts
PART = 1500  # characters of one part of an error: headers have little room
NODES = 20  # refused operators that are named
_KINDS: dict[str, type[ExactlineError]] = {kind.code: kind for kind in ERRORS} | {"late": LimitError}


class UnknownModel(MissingError):
    """The server has no such model."""

    code = "unknown-model"


def status_of(facts: dict[str, Any]) -> tuple[grpc.StatusCode, str, bytes]:
    """The status of an error, its message, and its parts for the trailing metadata."""
    code = str(facts.get("code", "internal"))
    if code not in STATUS or code == "internal":
        facts = {
            "code": "exactline",
            "problem": f"Something went wrong on the server that should not: {facts.get('problem', 'unknown')!s:.80}",
            "hint": "Tell whoever runs it.",
        }
    kept = {name: str(facts.get(name, ""))[:PART] for name in ("code", "problem", "where", "hint")}
    nodes = [str(node)[:100] for node in facts.get("nodes", [])[:NODES]]
    message = f"{kept['problem']} ({kept['where']})" if kept["where"] else kept["problem"]
    return STATUS.get(code, Code.INTERNAL), message, json.dumps(kept | {"nodes": nodes}).encode()


def error_of(error: grpc.RpcError, where: str) -> ExactlineError:
    """What a client raises for what a server answered."""
    told: Any = error  # of a call that waits or of one that does not: both tell the same
    code, known = code_of(error), hasattr(error, "trailing_metadata")
    details = str(told.details() or "") if known else str(error)
    metadata: Any = (told.trailing_metadata() or ()) if known else ()
    for key, value in metadata:
        if key == KEY:
            return _told(value, code)
    if code in (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED):
        return AccessError(details or "The server refuses the call.", where=where, hint="Give the server's token.")
    if code == Code.RESOURCE_EXHAUSTED:
        return LimitError(details, where=where, hint="Ask for less at a time.")
    if code == Code.DEADLINE_EXCEEDED:
        return LimitError("The call took longer than it may.", where=where, hint="Allow it more time, or ask for less.")
    if code == Code.UNIMPLEMENTED:
        return ServiceError("The server does not know this call.", where=where, hint="Is it an exactline server?")
    return ServiceError(f"{code.name}: {details}", where=where, hint="Is the server running, and is TLS as it expects?")


def code_of(error: grpc.RpcError) -> grpc.StatusCode:
    """The status of a failed call."""
    told: Any = error
    found = told.code() if hasattr(error, "code") else None
    return found if isinstance(found, grpc.StatusCode) else Code.UNKNOWN


def _told(value: Any, code: grpc.StatusCode) -> ExactlineError:
    """The error that was raised on the server, part by part."""
    try:
        facts = json.loads(value)
        problem, where, hint = (str(facts[name]) for name in ("problem", "where", "hint"))
        nodes = tuple(map(str, facts["nodes"]))
        kind = _KINDS.get(str(facts["code"]), MissingError if code == Code.NOT_FOUND else ServiceError)
    except (ValueError, KeyError, TypeError):
        return ServiceError(f"{code.name}: the server's error cannot be read.", hint="Is it an exactline server?")
    if issubclass(kind, UnsupportedError):
        return kind(problem, nodes=nodes, where=where, hint=hint)
    return kind(problem, where=where, hint=hint)
