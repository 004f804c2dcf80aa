"""The asyncio client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

import grpc
import grpc.aio

from ...decide.intervals import Decisions, ManyDecisions
from ...errors import ExactlineError
from ...lines import PointLike
from ...progress import progress_reporter
from ...results.plane import PlaneRestriction
from ...results.restriction import Restriction
from ...results.restrictions import Restrictions
from ...smooth.approximation import Approximation
from . import keywords, requests
from .approximate import approximate
from .connection import Connection
from .decode import AnswerReader
from .models import ModelDescription, ModelEntry, ServerStats, read_upload
from .requests import HEALTH_SECONDS, StreamRequest, UnaryRequest

Result = TypeVar("Result")


class AsyncClient:
    """`Client` with methods to await; create it in a running event loop.

    Results come with their estimated errors, unless a call has errors=False: they could not be awaited later.

    Args:
        target: the address of the server, "host:port".
        **options: those of `Client`.

    >>> async def count_pieces(address: str) -> list[int]:
    ...     async with AsyncClient(address) as client:
    ...         calls = [client.restrict("loan", [20.0, 30.0], end) for end in ([30.0, 50.0], [30.0, 60.0])]
    ...         return [len(line) for line in await asyncio.gather(*calls)]
    """

    def __init__(self, target: str, **options: Unpack[keywords.ConnectionKeywords]) -> None:
        self.connection = Connection(target, **options)
        self._channel: grpc.aio.Channel = self.connection.open_channel(grpc.aio)

    async def restrict(
        self, model: Any, start: PointLike, end: PointLike, **options: Unpack[keywords.RemoteRestrictKeywords]
    ) -> Restriction:
        """See `Client.restrict`."""
        return await self._run(requests.restrict(model, start, end, **_with_errors(options)))

    async def restrict_many(
        self, model: Any, starts: PointLike, ends: PointLike, **options: Unpack[keywords.RemoteRestrictKeywords]
    ) -> Restrictions:
        """See `Client.restrict_many`."""
        return await self._run(requests.restrict_many(model, starts, ends, **_with_errors(options)))

    async def sweep(
        self, model: Any, start: PointLike, end: PointLike, **options: Unpack[keywords.RemoteSweepKeywords]
    ) -> AsyncIterator[Restriction]:
        """See `Client.sweep`; use it with ``async for``."""
        request = requests.sweep(model, start, end, **options)
        pauses = self.connection.retry_pauses()
        while True:
            reader, yielded = AnswerReader(), False
            try:
                async for message in self._stream(request):
                    reader.add(message)
                    if reader.part_end is not None:
                        yielded = True
                        yield request.decode(reader)
                reader.require_tail()
                return
            except grpc.RpcError as error:
                await asyncio.sleep(self.connection.next_pause(error, pauses, may_retry=not yielded))

    async def decide(
        self,
        model: Any,
        start: PointLike,
        end: PointLike,
        order: str = "max",
        top: int = 1,
        **options: Unpack[keywords.RemoteDecideKeywords],
    ) -> Decisions:
        """See `Client.decide`."""
        return await self._run(requests.decide(model, start, end, order, top, **_with_errors(options)))

    async def decide_many(
        self,
        model: Any,
        starts: PointLike,
        ends: PointLike,
        order: str = "max",
        top: int = 1,
        **options: Unpack[keywords.RemoteDecideKeywords],
    ) -> ManyDecisions:
        """See `Client.decide_many`."""
        return await self._run(requests.decide_many(model, starts, ends, order, top, **_with_errors(options)))

    async def approximate(
        self, model: Any, start: PointLike, end: PointLike, **options: Unpack[keywords.RemoteApproximateKeywords]
    ) -> Approximation:
        """See `Client.approximate`."""
        return await self._run(approximate(model, start, end, **options))

    async def attribute(
        self,
        model: Any,
        inputs: Any,
        baselines: Any = None,
        target: Any = None,
        **options: Unpack[keywords.RemoteAttributeKeywords],
    ) -> Any:
        """See `Client.attribute`."""
        return await self._run(requests.attribute(model, inputs, baselines, target, **options))

    async def plane(
        self, model: Any, vertices: Any, **options: Unpack[keywords.RemotePlaneKeywords]
    ) -> PlaneRestriction:
        """See `Client.plane`."""
        return await self._run(requests.plane(model, vertices, **options))

    async def grid(
        self,
        model: Any,
        base: Any,
        axes: Any = (0, 1),
        box: Any = ((0.0, 1.0), (0.0, 1.0)),
        **options: Unpack[keywords.RemotePlaneKeywords],
    ) -> PlaneRestriction:
        """See `Client.grid`."""
        return await self._run(requests.grid(model, base, axes, box, **options))

    async def models(self) -> list[ModelEntry]:
        """See `Client.models`."""
        return await self._call(requests.list_models())

    async def describe(self, model: Any) -> ModelDescription:
        """See `Client.describe`."""
        return await self._call(requests.describe_model(model))

    async def upload(self, model: str | Path | bytes, suffix: str = ".onnx") -> ModelDescription:
        """See `Client.upload`."""
        return await self._call(requests.upload_model(await asyncio.to_thread(read_upload, model, suffix)))

    async def stats(self) -> ServerStats:
        """See `Client.stats`."""
        return await self._call(requests.server_stats())

    async def health(self) -> bool:
        """See `Client.health`."""
        request = requests.check_health()
        try:
            return request.decode(await request.bind(self._channel)(**self.connection.call_options(HEALTH_SECONDS)))
        except (grpc.RpcError, ExactlineError):
            return False

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _call(self, request: UnaryRequest[Result]) -> Result:
        async def attempt() -> Result:
            return request.decode(await request.bind(self._channel)(**self.connection.call_options()))

        return await self._retry(attempt)

    async def _run(self, request: StreamRequest[Result]) -> Result:
        """Return the whole answer; if the server is lost before its end, ask again from the beginning."""
        with progress_reporter(request.progress) as report:

            async def attempt() -> Result:
                reader = AnswerReader(report)
                async for message in self._stream(request):
                    reader.add(message)
                return request.decode(reader)

            return await self._retry(attempt)

    async def _stream(self, request: StreamRequest[Any]) -> AsyncIterator[bytes]:
        call: Any = request.bind(self._channel)(**self.connection.call_options())
        try:
            async for message in call:
                yield message
        finally:
            call.cancel()

    async def _retry(self, attempt: Callable[[], Awaitable[Result]]) -> Result:
        """Make attempts until the server answers or the retries are used up."""
        pauses = self.connection.retry_pauses()
        while True:
            try:
                return await attempt()
            except grpc.RpcError as error:
                await asyncio.sleep(self.connection.next_pause(error, pauses))


def _with_errors(options: Any) -> Any:
    return {"errors": True} | options
