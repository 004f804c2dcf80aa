"""The methods of the service exactline.v1.Exactline: finds the model of each request and hands it to a worker."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version

from google.protobuf.message import DecodeError

from ...errors import AccessError, ArgumentError, ServiceError
from .. import LEGACY_SERVICE_NAME, SERVICE_NAME
from ..legacy.handler import transform
from ..protos.exactline.v1 import exactline_pb2 as pb
from ..status import UnknownModelError
from ..wire import LENGTH, WireError, find_field, read_fields
from .front import Call, Handler
from .ipc import ModelKey, WorkerJob
from .store import FORMAT_SUFFIXES, ModelStore, is_digest

JOB_METHODS = {  # the kind of job that answers each method; its request has Options, with the model, as field 1
    "Restrict": "restrict",
    "Sweep": "sweep",
    "Decide": "decide",
    "Attribute": "attribute",
    "Approximate": "approximate",
    "Plane": "plane",
}
VERSION = version("exactline")
MAX_SCANNED_FIELDS = 64  # among which the options of a request and the model in them must be
MAX_MODEL_BYTES = 16_384  # of the message that names a model
MAX_LOOKUPS = 3  # of a model whose file is replaced between its lookup and its use
MAX_UPLOAD_FIELDS = 16  # of one message of an upload


class ExactlineService:
    """The methods of the service; each takes a Call and answers it."""

    def __init__(self, store: ModelStore, allow_upload: bool) -> None:
        self.store, self.allow_upload = store, allow_upload

    def handlers(self) -> dict[str, tuple[str, Handler]]:
        """Return the name and the handler of every method, by path; the legacy protocol included."""
        methods: dict[str, Handler] = {
            "ListModels": self.list_models,
            "DescribeModel": self.describe_model,
            "UploadModel": self.upload_model,
            "Stats": self.stats,
        }
        methods |= {method: self._job_handler(kind) for method, kind in JOB_METHODS.items()}
        paths = {f"/{SERVICE_NAME}/{method}": (method, handler) for method, handler in methods.items()}
        return paths | {f"/{LEGACY_SERVICE_NAME}/Transform": ("Transform", transform)}

    def _job_handler(self, kind: str) -> Handler:
        """Return a handler that finds the model and passes the request on to a worker, as bytes."""

        async def handle(call: Call) -> None:
            data = _check_size(call)
            await self._run_job(call, kind, data, _parse_reference(_find_model(data)))

        return handle

    async def _run_job(self, call: Call, kind: str, payload: bytes, reference: pb.ModelRef) -> None:
        """Run a job on a model; one whose file is replaced meanwhile is looked up again.

        Raises ServiceError if the file changes all the time, UnknownModelError.
        """
        for _ in range(MAX_LOOKUPS):
            model = await self._resolve(reference)
            try:
                await call.run_job(WorkerJob(kind, payload, model), self._reader(call))
                return
            except UnknownModelError:  # the worker asks for the file before it answers anything
                if is_digest(reference.name):
                    raise
        raise ServiceError(
            "The model's file changes while it is read.", where=f"model {reference.name!r}", hint="Try again."
        )

    async def _resolve(self, model: pb.ModelRef) -> ModelKey:
        normalize, shape = not model.skip_normalization, tuple(model.shape)
        found = self.store.find_unchanged(model.name, normalize=normalize, shape=shape)
        return found or await asyncio.to_thread(self.store.resolve, model.name, normalize=normalize, shape=shape)

    def _reader(self, call: Call) -> Callable[[ModelKey], Awaitable[bytes]]:
        """Return a function that reads the file of a model, which counts as held by the call."""

        async def read(model: ModelKey) -> bytes:
            data = await asyncio.to_thread(self.store.read, model)
            call.hold(len(data))
            return data

        return read

    async def list_models(self, call: Call) -> None:
        """List all models."""
        _check_fields(_check_size(call))
        models = await asyncio.to_thread(self.store.list_models)
        entries = [pb.ModelEntry(name=m.name, sha256=m.sha256, bytes=m.bytes, uploaded=m.uploaded) for m in models]
        await call.write(pb.ListModelsResponse(models=entries).SerializeToString())

    async def describe_model(self, call: Call) -> None:
        """Describe one model and its layers."""
        model = _parse_reference(_find_part(_check_size(call)))
        await self._run_job(call, "describe", model.name.encode(), model)

    async def upload_model(self, call: Call) -> None:
        """Receive a file in pieces; it is stored once a worker has read it."""
        if not self.allow_upload:
            raise AccessError(
                "This server accepts no uploads.",
                where="UploadModel",
                hint="Ask the operator to start it with --allow-upload.",
            )
        call.pause()  # until the file is here
        data, suffix, expected = await _read_upload(call)
        call.admit()
        digest = (await asyncio.to_thread(hashlib.sha256, data)).hexdigest()
        if expected and not hmac.compare_digest(expected.lower().removeprefix("sha256:").encode(), digest.encode()):
            raise ArgumentError(
                "The file does not have the digest sent with it.", where="sha256", hint="Send it again."
            )
        model = ModelKey(digest, FORMAT_SUFFIXES.get(suffix or ".onnx", suffix))
        answers: list[bytes] = []

        async def keep(answer: bytes) -> None:
            answers.append(answer)

        async def fetch(_: ModelKey) -> bytes:
            return data

        await call.run_job(WorkerJob("describe", f"sha256:{digest}".encode(), model), fetch, keep)
        self.store.add_upload(data, model.suffix, digest, call.client.name if call.client.has_quota else "")
        for answer in answers:
            await call.write(answer)

    async def stats(self, call: Call) -> None:
        """Report counts since the start and the current state."""
        _check_fields(_check_size(call))
        counters, pool = call.front.counters, call.front.pool.stats()
        uploads, upload_bytes = self.store.uploads
        response = pb.StatsResponse(
            uptime_seconds=time.monotonic() - counters.started_at,
            calls=dict(counters.calls),
            lines=counters.lines,
            breaks=counters.breaks,
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
            version=VERSION,
        )
        await call.write(response.SerializeToString())


def _check_size(call: Call) -> bytes:
    """Return the request of a call.

    Raises LimitError if it has too many bytes.
    """
    call.limits.check("message_bytes", len(call.first_message), "bytes in the message")
    return call.first_message


def _find_model(data: bytes) -> memoryview:
    """Return the bytes of the model that a request names in its options."""
    return _find_part(_find_part(data))


def _find_part(data: bytes | memoryview) -> memoryview:
    try:
        return find_field(data, 1, MAX_SCANNED_FIELDS)
    except WireError:
        raise _request_error() from None


def _parse_reference(data: memoryview) -> pb.ModelRef:
    if len(data) > MAX_MODEL_BYTES:
        raise ArgumentError("The name of the model is too long.", where="model", hint="See exactline.proto.")
    try:
        return pb.ModelRef.FromString(bytes(data))
    except DecodeError:
        raise _request_error() from None


def _check_fields(data: bytes) -> None:
    """Check that a request without data is a message; what it holds is ignored."""
    try:
        for count, _ in enumerate(read_fields(data)):
            if count >= MAX_SCANNED_FIELDS:
                break
    except WireError:
        raise _request_error() from None


async def _read_upload(call: Call) -> tuple[bytes, str, str]:
    """Return the bytes of an upload, the suffix of its file name, and its digest, each "" if not sent."""
    call.set_end("upload", "upload_seconds", call.limits.upload_seconds)
    content = bytearray()
    texts = {2: "", 3: ""}  # by field number: suffix and digest
    message: bytes | None = call.first_message
    while message is not None:
        try:
            for count, (number, kind, value) in enumerate(read_fields(message)):
                if kind == LENGTH and number == 1:
                    content += value
                elif kind == LENGTH and number in texts:
                    texts[number] = texts[number] or bytes(value[:MAX_MODEL_BYTES]).decode()
                if count >= MAX_UPLOAD_FIELDS:
                    raise _request_error()
        except (WireError, UnicodeDecodeError):
            raise _request_error() from None
        call.limits.check("upload_bytes", len(content), "bytes in the model's file")
        if call.client.has_quota:
            call.limits.check("client_upload_bytes", len(content), "bytes in the model's file")
        call.limits.check("message_bytes", len(message), "bytes in the message")
        message = await call.read("idle_seconds", call.limits.idle_seconds)
    call.set_end("upload")
    call.hold(len(content))
    data = bytes(content)
    call.drop(len(content))
    return data, texts[2], texts[3]


def _request_error() -> ArgumentError:
    return ArgumentError("The request is not a valid message.", where="request", hint="See exactline.proto.")
