"""The client for programs that wait for their answers."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

import grpc
import torch

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
from .upload import Stats, health_check, pieces, source

Result = TypeVar("Result")
AT_ONCE = 0.02  # seconds


class Client:
    """A server's calls as the library's functions: same arguments, same results.

    ``target`` is "host:port". ``tls`` is True for the system's certificate authorities, a path to those to trust, or
    credentials made with grpc; ``certificate`` is a pair of paths, for servers that ask for one. What comes back has
    no network along: whatever needs it raises MissingError, and ``line.with_network(exactline.load(path))`` brings it.
    Calls are tried again, ``retries`` times and longer and longer apart, while the server cannot be reached.

    Every call raises what the library would, and ServiceError, AccessError or LimitError for what a server refuses.
    """

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
            self._channel = grpc.insecure_channel(target, options)
        else:
            self._channel = grpc.secure_channel(target, credentials, options)

    def restrict(
        self,
        model: Any,
        Q: PointLike,
        R: PointLike,
        *,
        dtype: torch.dtype = torch.float64,
        memory: int | None = None,
        values: bool = True,
        progress: bool | ProgressCallback = False,
        rewrite: bool = True,
        until: str | None = None,
        max_breaks: int | None = None,
        seconds: float | None = None,
        engine: str = "auto",
    ) -> Restriction:
        """Every break of a model on the line from Q to R: see `exactline.api`."""
        given = _given(dtype, memory, values, rewrite, until, max_breaks, seconds, engine)
        return self._ask(asking.restrict(model, Q, R, progress, given), progress)

    def restrict_many(
        self,
        model: Any,
        starts: PointLike,
        ends: PointLike,
        *,
        dtype: torch.dtype = torch.float64,
        memory: int | None = None,
        values: bool = True,
        progress: bool | ProgressCallback = False,
        rewrite: bool = True,
        until: str | None = None,
        max_breaks: int | None = None,
        seconds: float | None = None,
        engine: str = "auto",
    ) -> Restrictions:
        """Many lines in one call: see `exactline.restrict_many`."""
        given = _given(dtype, memory, values, rewrite, until, max_breaks, seconds, engine)
        return self._ask(asking.restrict_many(model, starts, ends, progress, given), progress)

    def sweep(
        self,
        model: Any,
        Q: PointLike,
        R: PointLike,
        *,
        dtype: torch.dtype = torch.float64,
        memory: int | None = None,
        values: bool = True,
        rewrite: bool = True,
        until: str | None = None,
        seconds: float | None = None,
        engine: str = "auto",
    ) -> Iterator[Restriction]:
        """The line in parts, as soon as the server knows them and in bounded memory: see `exactline.engines`.

        A part that nobody takes keeps the server waiting; closing the iterator ends its work.
        """
        given = _given(dtype, memory, values, rewrite, until, None, seconds, engine)
        return self._parts(asking.sweep(model, Q, R, given))

    def decide(
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
        """Which output leads on every point of a line: see `Restriction.decisions`; options are those of restrict."""
        return self._ask(asking.decide_one(model, Q, R, order, top, output, progress, options), progress)

    def decide_many(
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
        """The same for many lines in one call: see `Restrictions.decisions`."""
        return self._ask(asking.decide_many(model, starts, ends, order, top, output, progress, options), progress)

    def attribute(
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
        """Exact integrated gradients: see `exactline.attr.IntegratedGradients.attribute`.

        With ``return_report`` an AttributionReport comes last.
        """
        wanted = (return_convergence_delta, return_report)
        question = asking.attribute(model, inputs, baselines, target, multiply_by_inputs, wanted, progress, memory)
        return self._ask(question, progress)

    def plane(
        self, model: Any, vertices: Any, *, progress: bool | ProgressCallback = False, **options: Any
    ) -> PlaneRestriction:
        """All polygons of a plane: see `exactline.restrict_plane`, whose options these are."""
        return self._ask(asking.plane(model, vertices, progress, options), progress)

    def grid(
        self,
        model: Any,
        base: Any,
        axes: Any = (0, 1),
        box: Any = ((0.0, 1.0), (0.0, 1.0)),
        *,
        progress: bool | ProgressCallback = False,
        **options: Any,
    ) -> PlaneRestriction:
        """Two features varied over a box: see `exactline.grid`."""
        return self._ask(asking.grid(model, base, axes, box, progress, options), progress)

    def models(self) -> list[Entry]:
        """The models the server has."""
        found = self._single("ListModels", pb.ListModelsRequest(), pb.ListModelsResponse)
        return [Entry(e.name, e.sha256, e.bytes, e.uploaded) for e in found.models]

    def describe(self, model: Any) -> Model:
        """A model's shapes, units and layers."""
        return model_of(self._single("DescribeModel", pb.DescribeModelRequest(model=reference(model)), pb.Model))

    def upload(self, model: str | Path | bytes, ending: str = ".onnx") -> Model:
        """Send a model's file, or its bytes; what comes back can be asked about."""
        data, kind = source(model, ending)
        digest = hashlib.sha256(data).hexdigest()
        call = self._channel.stream_unary(path_of("UploadModel"))
        return model_of(self._tried(lambda: _read(pb.Model, self._called(call, pieces(data, kind, digest)))))

    def stats(self) -> Stats:
        """What the server has done so far, and how it is."""
        return Stats.of(self._single("Stats", pb.StatsRequest(), pb.StatsResponse))

    def health(self) -> bool:
        """Whether the server is there and takes calls."""
        try:
            return health_check(self._channel, self.way)
        except (grpc.RpcError, ExactlineError):
            return False

    def close(self) -> None:
        """Hang up."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ask(self, question: Question[Result], progress: bool | ProgressCallback) -> Result:
        """The whole answer; where it breaks off because the server is gone, it is asked for once more."""
        with progress_reporter(progress) as report:
            return self._tried(lambda: self._answered(question, report))

    def _answered(self, question: Question[Result], report: ProgressCallback | None) -> Result:
        reader = Reader(report)
        for message in self._stream(question):
            reader.take(message)
        return question.made(reader)

    def _stream(self, question: Question[Any]) -> Iterator[bytes]:
        method = self._channel.unary_stream(path_of(question.method))
        call: Any = method(question.request, timeout=self.way.timeout, metadata=self.way.metadata())
        try:
            yield from call
        finally:
            call.cancel()

    def _parts(self, question: Question[Restriction]) -> Iterator[Restriction]:
        pauses = self.way.pauses()
        while True:
            reader, given = Reader(), 0
            try:
                for message in self._stream(question):
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
                self._rest(pause)

    def _single(self, method: str, request: Any, message: type[Result]) -> Result:
        call = self._channel.unary_unary(path_of(method))
        return self._tried(lambda: _read(message, self._called(call, request.SerializeToString())))

    def _called(self, call: Any, request: Any) -> bytes:
        return call(request, timeout=self.way.timeout, metadata=self.way.metadata())

    def _rest(self, seconds: float) -> None:
        """Wait before the next try, and look out for the server meanwhile: gRPC hardly does while nobody asks."""
        began = time.monotonic()
        try:
            grpc.channel_ready_future(self._channel).result(seconds)
        except grpc.FutureTimeoutError:
            return
        if time.monotonic() - began < AT_ONCE:  # the way was open all along: it was something else
            time.sleep(seconds)

    def _tried(self, attempt: Callable[[], Result]) -> Result:
        """Try until the server answers, or for long enough."""
        pauses = self.way.pauses()
        while True:
            try:
                return attempt()
            except grpc.RpcError as error:
                pause = next(pauses, None)
                if pause is None or not unavailable(error):
                    raise error_of(error, self.way.target) from None
                self._rest(pause)


def _read(message: Any, data: bytes) -> Any:
    return message.FromString(data)


def _given(
    dtype: torch.dtype,
    memory: int | None,
    values: bool,
    rewrite: bool,
    until: str | None,
    max_breaks: int | None,
    seconds: float | None,
    engine: str,
) -> dict[str, Any]:
    given = {"dtype": dtype, "memory": memory, "values": values, "rewrite": rewrite, "until": until}
    return given | {"max_breaks": max_breaks, "seconds": seconds, "engine": engine}
