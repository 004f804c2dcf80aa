"""Our own service, call by call: what a client asks is looked at here, and done by a worker."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from ...errors import AccessError, ArgumentError, LineError
from ..protos.exactline.v1 import exactline_pb2 as pb
from .interceptor import Door, Visit
from .ipc import Job, Model
from .store import ENDINGS, Store

NAME = "exactline.v1.Exactline"


@dataclass(frozen=True)
class Service:
    """The methods, each a function of a request and the visit it came with."""

    door: Door
    store: Store
    allow_upload: bool

    def handler(self) -> grpc.GenericRpcHandler:
        """All methods, for a gRPC server."""
        door = self.door
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "ListModels": door.one_to_one("ListModels", self.list_models),
            "DescribeModel": door.one_to_one("DescribeModel", self.describe_model),
            "UploadModel": door.many_to_one("UploadModel", self.upload_model),
            "Stats": door.one_to_one("Stats", self.stats),
            "Restrict": self._question("Restrict", "restrict", pb.RestrictRequest),
            "Sweep": self._question("Sweep", "sweep", pb.RestrictRequest),
            "Decide": self._question("Decide", "decide", pb.DecideRequest),
            "Attribute": self._question("Attribute", "attribute", pb.AttributeRequest),
            "Plane": self._question("Plane", "plane", pb.PlaneRequest),
        }
        return grpc.method_handlers_generic_handler(NAME, methods)

    def _question(self, method: str, kind: str, message: Any) -> grpc.RpcMethodHandler[Any, Any]:
        """A question that a worker answers: looked at as far as limits and the model go, and handed on as it is."""

        def ask(request: bytes, visit: Visit) -> Iterator[bytes]:
            asked = parsed(message, request, visit)
            options: pb.Options = asked.options
            visit.limits.within("lines_per_call", _lines(asked), "lines")
            model = self.store.model(options.model.name, options.model.bare, options.model.shape)
            del asked
            yield from visit.answers(Job(kind, request, model), self.store.data)

        return self.door.one_to_many(method, ask)

    def list_models(self, request: bytes, visit: Visit) -> Iterator[bytes]:
        """All models there are."""
        parsed(pb.ListModelsRequest, request, visit)
        entries = [
            pb.ModelEntry(name=e.name, sha256=e.sha256, bytes=e.bytes, uploaded=e.uploaded)
            for e in self.store.entries()
        ]
        yield pb.ListModelsResponse(models=entries).SerializeToString()

    def describe_model(self, request: bytes, visit: Visit) -> Iterator[bytes]:
        """One model, layer by layer."""
        asked = parsed(pb.DescribeModelRequest, request, visit).model
        model = self.store.model(asked.name, asked.bare, asked.shape)
        yield from visit.answers(Job("describe", asked.name.encode(), model), self.store.data)

    def upload_model(self, requests: Iterator[bytes], visit: Visit) -> Iterator[bytes]:
        """A file, piece by piece; it is kept once a worker has read it."""
        if not self.allow_upload:
            raise AccessError(
                "This server takes no models.", where="UploadModel", hint="Let whoever runs it give --allow-upload."
            )
        data, ending, digest = self._received(requests, visit)
        found = hashlib.sha256(data).hexdigest()
        if digest and not hmac.compare_digest(digest.lower().removeprefix("sha256:").encode(), found.encode()):
            raise ArgumentError("The digest is not that of the file.", where="sha256", hint="Send it again.")
        model = Model(found, ENDINGS.get(ending or ".onnx", ending))
        fetch: Callable[[Model], bytes] = lambda _: data  # noqa: E731
        answers = list(visit.answers(Job("describe", f"sha256:{found}".encode(), model), fetch))
        self.store.add(data, model.ending, found)
        yield from answers

    def _received(self, requests: Iterator[bytes], visit: Visit) -> tuple[bytes, str, str]:
        whole = bytearray()
        ending = digest = ""
        for request in requests:
            piece = parsed(pb.UploadModelRequest, request, visit)
            ending, digest = ending or piece.ending, digest or piece.sha256
            visit.limits.within("upload_bytes", len(whole) + len(piece.data), "bytes in the model's file")
            whole += piece.data
        return bytes(whole), ending, digest

    def stats(self, request: bytes, visit: Visit) -> Iterator[bytes]:
        """What was done so far, and how things are."""
        parsed(pb.StatsRequest, request, visit)
        tally, pool = self.door.tally, self.door.pool.stats()
        uploads, held = self.store.uploads
        with tally.counting:
            calls, lines, breaks = dict(tally.calls), tally.lines, tally.breaks
        yield pb.StatsResponse(
            uptime_seconds=time.monotonic() - tally.began,
            calls=calls,
            lines=lines,
            breaks=breaks,
            in_flight=tally.in_flight,
            queued=pool.queued,
            workers=pool.workers,
            busy=pool.busy,
            pids=pool.pids,
            workers_forked=pool.counts.forked,
            workers_killed=pool.counts.killed,
            workers_died=pool.counts.died,
            calls_retried=pool.counts.retried,
            models_cached=pool.cache["models"],
            bytes_cached=pool.cache["bytes"],
            cache_hits=pool.cache["hits"],
            cache_misses=pool.cache["misses"],
            uploads=uploads,
            upload_bytes=held,
            refused_tokens=tally.refused_tokens,
            version=version("exactline"),
        ).SerializeToString()


def parsed(message: Any, request: bytes, visit: Visit) -> Any:
    """A message out of its bytes, refused where there are too many or they are not one."""
    visit.limits.within("message_bytes", len(request), "bytes in the message")
    try:
        return message.FromString(request)
    except DecodeError:
        raise ArgumentError(
            f"The bytes are no {message.DESCRIPTOR.name}.", where="request", hint="See exactline.proto."
        ) from None


def _lines(asked: Any) -> int:
    """How many lines or examples a question is about, by what it says itself; workers look closer."""
    if isinstance(asked, pb.PlaneRequest):
        return 1
    points = asked.inputs if isinstance(asked, pb.AttributeRequest) else asked.starts
    shapes = [list(array.shape) for array in points.inputs]
    if not shapes or any(not shape for shape in shapes):
        raise LineError("The number of lines is missing.", where="request", hint="Give arrays of shape (lines, *in).")
    return max(shape[0] for shape in shapes)
