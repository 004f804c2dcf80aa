"""The client for programs that do something else while they wait."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Self, TypeVar

import grpc
import grpc.aio

from ...decide.intervals import Decisions, ManyDecisions
from ...errors import ExactlineError
from ...lines import PointLike
from ...progress import ProgressCallback, progress_reporter
from ...results.plane import PlaneRestriction
from ...results.restriction import Restriction
from ...results.restrictions import Restrictions
from ..protos.exactline.v1 import exactline_pb2 as pb
from ..status import error_of
from . import requests as asking
from .connection import Way, path_of, unavailable
from .decode import Reader
from .models import Entry, Model, model_of, reference
from .requests import Question
from .upload import HEALTH, Stats, health_request, is_healthy, pieces, source

Result = TypeVar("Result")


class AsyncClient:
    """`Client` with calls to be awaited; make it where an event loop runs. Options are those of `Client`'s calls."""

    def __init__(
        self,
        target: str,
        *,
        token: str | None = None,
        tls: Any = None,
        certificate: tuple[Path, Path] | None = None,
        insecure: bool = False,
        timeout: float | None = None,
        retries: int = 7,
    ) -> None:
        self.way = Way(target, token, tls, certificate, insecure, timeout, retries)
        credentials, options = self.way.credentials(), self.way.options()
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(target, options)
        else:
            self._channel = grpc.aio.secure_channel(target, credentials, options)

    async def restrict(
        self, model: Any, Q: PointLike, R: PointLike, *, progress: bool | ProgressCallback = False, **options: Any
    ) -> Restriction:
        """See `Client.restrict`."""
        return await self._ask(asking.restrict(model, Q, R, progress, options), progress)

    async def restrict_many(
        self,
        model: Any,
        starts: PointLike,
        ends: PointLike,
        *,
        progress: bool | ProgressCallback = False,
        **options: Any,
    ) -> Restrictions:
        """See `Client.restrict_many`."""
        return await self._ask(asking.restrict_many(model, starts, ends, progress, options), progress)

    async def sweep(self, model: Any, Q: PointLike, R: PointLike, **options: Any) -> AsyncIterator[Restriction]:
        """See `Client.sweep`; to be used with ``async for``."""
        question = asking.sweep(model, Q, R, options)
        pauses = self.way.pauses()
        while True:
            reader, given = Reader(), 0
            try:
                async for message in self._stream(question):
                    reader.take(message)
                    if reader.part is not None:
                        given += 1
                        yield question.made(reader)
                reader.whole()
                return
            except grpc.RpcError as error:
                pause = next(pauses, None)
                if given or pause is None or not unavailable(error):
                    raise error_of(error, self.way.target) from None
                await asyncio.sleep(pause)

    async def decide(
        self,
        model: Any,
        Q: PointLike,
        R: PointLike,
        order: str = "max",
        top: int = 1,
        *,
        output: int | None = None,
        progress: bool | ProgressCallback = False,
        **options: Any,
    ) -> Decisions:
        """See `Client.decide`."""
        return await self._ask(asking.decide_one(model, Q, R, order, top, output, progress, options), progress)

    async def decide_many(
        self,
        model: Any,
        starts: PointLike,
        ends: PointLike,
        order: str = "max",
        top: int = 1,
        *,
        output: int | None = None,
        progress: bool | ProgressCallback = False,
        **options: Any,
    ) -> ManyDecisions:
        """See `Client.decide_many`."""
        question = asking.decide_many(model, starts, ends, order, top, output, progress, options)
        return await self._ask(question, progress)

    async def attribute(
        self,
        model: Any,
        inputs: Any,
        baselines: Any = None,
        target: Any = None,
        *,
        multiply_by_inputs: bool = True,
        return_convergence_delta: bool = False,
        return_report: bool = False,
        memory: int | None = None,
        progress: bool | ProgressCallback = False,
    ) -> Any:
        """See `Client.attribute`."""
        wanted = (return_convergence_delta, return_report)
        question = asking.attribute(model, inputs, baselines, target, multiply_by_inputs, wanted, progress, memory)
        return await self._ask(question, progress)

    async def plane(
        self, model: Any, vertices: Any, *, progress: bool | ProgressCallback = False, **options: Any
    ) -> PlaneRestriction:
        """See `Client.plane`."""
        return await self._ask(asking.plane(model, vertices, progress, options), progress)

    async def grid(
        self,
        model: Any,
        base: Any,
        axes: Any = (0, 1),
        box: Any = ((0.0, 1.0), (0.0, 1.0)),
        *,
        progress: bool | ProgressCallback = False,
        **options: Any,
    ) -> PlaneRestriction:
        """See `Client.grid`."""
        return await self._ask(asking.grid(model, base, axes, box, progress, options), progress)

    async def models(self) -> list[Entry]:
        """See `Client.models`."""
        found = await self._single("ListModels", pb.ListModelsRequest(), pb.ListModelsResponse)
        return [Entry(e.name, e.sha256, e.bytes, e.uploaded) for e in found.models]

    async def describe(self, model: Any) -> Model:
        """See `Client.describe`."""
        request = pb.DescribeModelRequest(model=reference(model))
        return model_of(await self._single("DescribeModel", request, pb.Model))

    async def upload(self, model: str | Path | bytes, ending: str = ".onnx") -> Model:
        """See `Client.upload`."""
        data, kind = await asyncio.to_thread(source, model, ending)
        digest = hashlib.sha256(data).hexdigest()
        call: Any = self._channel.stream_unary(path_of("UploadModel"))

        async def attempt() -> Model:
            answer = await call(pieces(data, kind, digest), timeout=self.way.timeout, metadata=self.way.metadata())
            return model_of(pb.Model.FromString(answer))

        return await self._tried(attempt)

    async def stats(self) -> Stats:
        """See `Client.stats`."""
        return Stats.of(await self._single("Stats", pb.StatsRequest(), pb.StatsResponse))

    async def health(self) -> bool:
        """See `Client.health`."""
        call: Any = self._channel.unary_unary(HEALTH)
        try:
            found = await call(health_request(), timeout=self.way.timeout or 5.0, metadata=self.way.metadata())
            return is_healthy(found)
        except (grpc.RpcError, ExactlineError):
            return False

    async def close(self) -> None:
        """Hang up."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _ask(self, question: Question[Result], progress: bool | ProgressCallback) -> Result:
        with progress_reporter(progress) as report:

            async def attempt() -> Result:
                reader = Reader(report)
                async for message in self._stream(question):
                    reader.take(message)
                return question.made(reader)

            return await self._tried(attempt)

    async def _stream(self, question: Question[Any]) -> AsyncIterator[bytes]:
        method: Any = self._channel.unary_stream(path_of(question.method))
        call: Any = method(question.request, timeout=self.way.timeout, metadata=self.way.metadata())
        try:
            async for message in call:
                yield message
        finally:
            call.cancel()

    async def _single(self, method: str, request: Any, message: Any) -> Any:
        call: Any = self._channel.unary_unary(path_of(method))

        async def attempt() -> Any:
            answer = await call(request.SerializeToString(), timeout=self.way.timeout, metadata=self.way.metadata())
            return message.FromString(answer)

        return await self._tried(attempt)

    async def _tried(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        pauses = self.way.pauses()
        while True:
            try:
                return await attempt()
            except grpc.RpcError as error:
                pause = next(pauses, None)
                if pause is None or not unavailable(error):
                    raise error_of(error, self.way.target) from None
                await asyncio.sleep(pause)
