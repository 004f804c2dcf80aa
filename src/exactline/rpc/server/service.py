"""The service exactline.v1.Exactline: checks each request against the limits and hands it to a worker."""

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
from .. import SERVICE_NAME
from ..protos.exactline.v1 import exactline_pb2 as pb
from .interceptor import CallContext, Interceptor
from .ipc import ModelKey, WorkerJob
from .store import FORMAT_SUFFIXES, ModelStore


@dataclass(frozen=True)
class ExactlineService:
    """The methods of the service; each takes a request and its CallContext and yields messages."""

    interceptor: Interceptor
    store: ModelStore
    allow_upload: bool

    def create_handler(self) -> grpc.GenericRpcHandler:
        """Return the handler of all methods, for a gRPC server."""
        unary_unary = self.interceptor.unary_unary
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "ListModels": unary_unary("ListModels", self.list_models),
            "DescribeModel": unary_unary("DescribeModel", self.describe_model),
            "UploadModel": self.interceptor.stream_unary("UploadModel", self.upload_model),
            "Stats": unary_unary("Stats", self.stats),
            "Restrict": self._job_handler("Restrict", "restrict", pb.RestrictRequest),
            "Sweep": self._job_handler("Sweep", "sweep", pb.RestrictRequest),
            "Decide": self._job_handler("Decide", "decide", pb.DecideRequest),
            "Attribute": self._job_handler("Attribute", "attribute", pb.AttributeRequest),
            "Plane": self._job_handler("Plane", "plane", pb.PlaneRequest),
        }
        return grpc.method_handlers_generic_handler(SERVICE_NAME, methods)

    def _job_handler(self, method: str, kind: str, message_type: Any) -> grpc.RpcMethodHandler[Any, Any]:
        """Return a handler that checks the limits, finds the model, and passes the request on to a worker."""

        def handle(data: bytes, context: CallContext) -> Iterator[bytes]:
            request = parse_request(message_type, data, context)
            options: pb.Options = request.options
            context.limits.check("lines_per_call", _count_lines(request), "lines")
            model = self._resolve(options.model)
            del request
            yield from context.run_job(WorkerJob(kind, data, model), self.store.read)

        return self.interceptor.unary_stream(method, handle)

    def _resolve(self, model: pb.ModelRef) -> ModelKey:
        return self.store.resolve(model.name, normalize=not model.skip_normalization, shape=model.shape)

    def list_models(self, data: bytes, context: CallContext) -> Iterator[bytes]:
        """List all models."""
        parse_request(pb.ListModelsRequest, data, context)
        entries = [
            pb.ModelEntry(name=m.name, sha256=m.sha256, bytes=m.bytes, uploaded=m.uploaded)
            for m in self.store.list_models()
        ]
        yield pb.ListModelsResponse(models=entries).SerializeToString()

    def describe_model(self, data: bytes, context: CallContext) -> Iterator[bytes]:
        """Describe one model and its layers."""
        model = parse_request(pb.DescribeModelRequest, data, context).model
        yield from context.run_job(WorkerJob("describe", model.name.encode(), self._resolve(model)), self.store.read)

    def upload_model(self, requests: Iterator[bytes], context: CallContext) -> Iterator[bytes]:
        """Receive a file in pieces; it is stored once a worker has read it."""
        if not self.allow_upload:
            raise AccessError(
                "This server accepts no uploads.",
                where="UploadModel",
                hint="Ask the operator to start it with --allow-upload.",
            )
        data, suffix, expected = self._read_upload(requests, context)
        digest = hashlib.sha256(data).hexdigest()
        if expected and not hmac.compare_digest(expected.lower().removeprefix("sha256:").encode(), digest.encode()):
            raise ArgumentError(
                "The file does not have the digest sent with it.", where="sha256", hint="Send it again."
            )
        model = ModelKey(digest, FORMAT_SUFFIXES.get(suffix or ".onnx", suffix))
        fetch: Callable[[ModelKey], bytes] = lambda _: data  # noqa: E731
        answers = list(context.run_job(WorkerJob("describe", f"sha256:{digest}".encode(), model), fetch))
        self.store.add_upload(data, model.suffix, digest)
        yield from answers

    def _read_upload(self, requests: Iterator[bytes], context: CallContext) -> tuple[bytes, str, str]:
        """Return the bytes of an upload, the suffix of its file name, and its digest, each "" if not sent."""
        content = bytearray()
        suffix = digest = ""
        for data in requests:
            piece = parse_request(pb.UploadModelRequest, data, context)
            suffix, digest = suffix or piece.suffix, digest or piece.sha256
            context.limits.check("upload_bytes", len(content) + len(piece.data), "bytes in the model's file")
            content += piece.data
        return bytes(content), suffix, digest

    def stats(self, data: bytes, context: CallContext) -> Iterator[bytes]:
        """Report counts since the start and the current state."""
        parse_request(pb.StatsRequest, data, context)
        counters, pool = self.interceptor.counters, self.interceptor.pool.stats()
        uploads, upload_bytes = self.store.uploads
        with counters.lock:
            calls, lines, breaks = dict(counters.calls), counters.lines, counters.breaks
        yield pb.StatsResponse(
            uptime_seconds=time.monotonic() - counters.started_at,
            calls=calls,
            lines=lines,
            breaks=breaks,
            in_flight=counters.in_flight,
            queued=pool.queued,
            workers=pool.workers,
            busy=pool.busy,
            pids=pool.pids,
            workers_forked=pool.counters.forked,
            workers_killed=pool.counters.killed,
            workers_died=pool.counters.died,
            calls_retried=pool.counters.retried,
            models_cached=pool.cache["models"],
            bytes_cached=pool.cache["bytes"],
            cache_hits=pool.cache["hits"],
            cache_misses=pool.cache["misses"],
            uploads=uploads,
            upload_bytes=upload_bytes,
            refused_tokens=counters.refused_tokens,
            version=version("exactline"),
        ).SerializeToString()


def parse_request(message_type: Any, data: bytes, context: CallContext) -> Any:
    """Parse a request.

    Raises LimitError if it has too many bytes, ArgumentError if they are not such a message.
    """
    context.limits.check("message_bytes", len(data), "bytes in the message")
    try:
        return message_type.FromString(data)
    except DecodeError:
        raise ArgumentError(
            f"The request is not a valid {message_type.DESCRIPTOR.name}.", where="request", hint="See exactline.proto."
        ) from None


def _count_lines(request: Any) -> int:
    """Return how many lines or examples a request claims to have; the worker checks the arrays themselves."""
    if isinstance(request, pb.PlaneRequest):
        return 1
    points = request.inputs if isinstance(request, pb.AttributeRequest) else request.starts
    shapes = [list(array.shape) for array in points.inputs]
    if not shapes or any(not shape for shape in shapes):
        raise LineError("The number of lines is missing.", where="request", hint="Give arrays of shape (lines, *in).")
    return max(shape[0] for shape in shapes)
