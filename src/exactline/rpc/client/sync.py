"""The blocking client."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar, Unpack

import grpc

from ...decide.intervals import Decisions, ManyDecisions
from ...errors import ExactlineError
from ...lines import PointLike
from ...progress import ProgressCallback, progress_reporter
from ...results.plane import PlaneRestriction
from ...results.restriction import Restriction
from ...results.restrictions import Restrictions
from ...smooth.approximation import Approximation
from . import keywords, requests
from .approximate import approximate
from .connection import Connection
from .decode import AnswerReader
from .models import ModelDescription, ModelEntry, ServerStats, read_upload
from .requests import HEALTH_PATH, HEALTH_SECONDS, StreamRequest, UnaryRequest

Result = TypeVar("Result")
IMMEDIATE_SECONDS = 0.02  # a server that answers within this time was connected all along


class Client:
    """Calls the library's functions on a server: the same arguments but for ``device``, the same results.

    Results come without the network. Methods that need it raise MissingError; pass the network to
    ``line.with_network(exactline.load(path))`` to use them.

    Args:
        target: the address of the server, "host:port".
        token: sent with every call; needs ``tls`` unless the server is on the same machine.
        tls: True to trust the system's certificate authorities, a path to those to trust, or credentials of grpc.
        certificate: paths of a client certificate and its key, if the server asks for one.
        insecure: True allows a token without TLS.
        timeout: seconds for each call; by default only the server's limit applies.
        retries: how often to try a call again while the server cannot be reached, 7 by default; the pauses double.

    >>> import io, tempfile, exactline as xl
    >>> from exactline.rpc.server.log import Log
    >>> from exactline.rpc.server.server import Server, Settings
    >>> folder = Path(tempfile.mkdtemp())
    >>> start, end = xl.zoo.loan_line()
    >>> xl.network.as_network(xl.zoo.loan_network(), [start]).save(folder / "loan.onnx")
    >>> with Server(Settings(port=0, models=folder, workers=1), Log(io.StringIO())) as server:
    ...     with Client(server.address) as client:
    ...         len(client.restrict("loan", start, end))
    3

    Every call raises what the library would raise; ServiceError, AccessError or LimitError if the server refuses it.
    """

    def __init__(self, target: str, **options: Unpack[keywords.ConnectionKeywords]) -> None:
        self.connection = Connection(target, **options)
        self._channel: grpc.Channel = self.connection.open_channel(grpc)

    def restrict(
        self, model: Any, start: PointLike, end: PointLike, **options: Unpack[keywords.RemoteRestrictKeywords]
    ) -> Restriction:
        """Compute every break of a model on the line from start to end: see `exactline.restrict`.

        Args:
            model: a name that `models` lists, "sha256:" and a digest, or a RemoteModel, ModelEntry or ModelDescription.
            start: (*in), or a tuple of such if the model takes several inputs.
            end: likewise.
            **options: those of `exactline.restrict` without device, output and record; and errors, True to have the
                estimated errors with the answer: otherwise ``line.errors`` makes a second call for them.
        """
        return self._run(requests.restrict(model, start, end, **options))

    def restrict_many(
        self, model: Any, starts: PointLike, ends: PointLike, **options: Unpack[keywords.RemoteRestrictKeywords]
    ) -> Restrictions:
        """Restrict a model to many lines in one call: see `exactline.restrict_many`.

        Args:
            model: as in `restrict`.
            starts: (lines, *in), or a tuple of such if the model takes several inputs.
            ends: likewise.
            **options: those of `exactline.restrict_many` without device, output and record.
        """
        return self._run(requests.restrict_many(model, starts, ends, **options))

    def sweep(
        self, model: Any, start: PointLike, end: PointLike, **options: Unpack[keywords.RemoteSweepKeywords]
    ) -> Iterator[Restriction]:
        """Stream a line in parts, as soon as the server knows them, in bounded memory: see `exactline.sweep`.

        The server waits while you do not take the next part. Closing the iterator ends the work on the server.

        Args:
            model: as in `restrict`.
            start: (*in), or a tuple of such if the model takes several inputs.
            end: likewise.
            **options: those of `exactline.sweep` without device, output and record.
        """
        return self._stream_parts(requests.sweep(model, start, end, **options))

    def decide(
        self,
        model: Any,
        start: PointLike,
        end: PointLike,
        order: str = "max",
        top: int = 1,
        **options: Unpack[keywords.RemoteDecideKeywords],
    ) -> Decisions:
        """Find which output is largest at every point of a line: see `Restriction.decisions`.

        Args:
            model: as in `restrict`.
            start: (*in), or a tuple of such if the model takes several inputs.
            end: likewise.
            order: "max", or "min" for the smallest output.
            top: how many outputs to rank.
            **options: output, which chooses one of several outputs, and those of `restrict`.
        """
        return self._run(requests.decide(model, start, end, order, top, **options))

    def decide_many(
        self,
        model: Any,
        starts: PointLike,
        ends: PointLike,
        order: str = "max",
        top: int = 1,
        **options: Unpack[keywords.RemoteDecideKeywords],
    ) -> ManyDecisions:
        """Find which output is largest at every point of many lines, in one call: see `Restrictions.decisions`.

        Args:
            model: as in `restrict`.
            starts: (lines, *in), or a tuple of such if the model takes several inputs.
            ends: likewise.
            order: as in `decide`.
            top: as in `decide`.
            **options: as in `decide`.
        """
        return self._run(requests.decide_many(model, starts, ends, order, top, **options))

    def approximate(
        self, model: Any, start: PointLike, end: PointLike, **options: Unpack[keywords.RemoteApproximateKeywords]
    ) -> Approximation:
        """Follow any network along the line from start to end, to a tolerance: see `exactline.approximate`.

        Args:
            model: as in `restrict`.
            start: (*in), or a tuple of such if the model takes several inputs.
            end: likewise.
            **options: those of `exactline.approximate` without device.
        """
        return self._run(approximate(model, start, end, **options))

    def attribute(
        self,
        model: Any,
        inputs: Any,
        baselines: Any = None,
        target: Any = None,
        **options: Unpack[keywords.RemoteAttributeKeywords],
    ) -> Any:
        """Compute exact integrated gradients: see `exactline.attr.IntegratedGradients.attribute`.

        Args:
            model: as in `restrict`.
            inputs: (n, *in), or a tuple of such if the model takes several inputs.
            baselines: numbers or tensors (n, *in) or (1, *in); by default 0.
            target: the index of an output, or a list of one for each example.
            **options: multiply_by_inputs (default True), return_convergence_delta, return_report (appends an
                AttributionReport), memory and progress.
        """
        return self._run(requests.attribute(model, inputs, baselines, target, **options))

    def plane(self, model: Any, vertices: Any, **options: Unpack[keywords.RemotePlaneKeywords]) -> PlaneRestriction:
        """Compute all polygons of a plane: see `exactline.restrict_plane`.

        Args:
            model: as in `restrict`.
            vertices: (corners, *in), the corners of a convex polygon in order.
            **options: those of `exactline.restrict_plane` without device and output.
        """
        return self._run(requests.plane(model, vertices, **options))

    def grid(
        self,
        model: Any,
        base: Any,
        axes: Any = (0, 1),
        box: Any = ((0.0, 1.0), (0.0, 1.0)),
        **options: Unpack[keywords.RemotePlaneKeywords],
    ) -> PlaneRestriction:
        """Compute all polygons of a plane in which two features vary: see `exactline.grid`.

        Args:
            model: as in `restrict`.
            base: (*in), the values of the other features.
            axes: the positions of the two features.
            box: low and high of each.
            **options: those of `exactline.grid` without device and output.
        """
        return self._run(requests.grid(model, base, axes, box, **options))

    def models(self) -> list[ModelEntry]:
        """List the models of the server."""
        return self._call(requests.list_models())

    def describe(self, model: Any) -> ModelDescription:
        """Describe a model: its shapes, units and layers.

        Args:
            model: as in `restrict`.
        """
        return self._call(requests.describe_model(model))

    def upload(self, model: str | Path | bytes, suffix: str = ".onnx") -> ModelDescription:
        """Upload a model to a server that allows it; the description can be given as a model.

        Args:
            model: the path of a file, or its bytes.
            suffix: the format of bytes: ".onnx", ".nnet" or ".eran".
        """
        return self._call(requests.upload_model(read_upload(model, suffix)))

    def stats(self) -> ServerStats:
        """Return what the server has done since it started, and its current state."""
        return self._call(requests.server_stats())

    def health(self) -> bool:
        """Whether the server can be reached and takes calls."""
        request = requests.check_health()
        try:
            return request.decode(request.bind(self._channel)(**self.connection.call_options(HEALTH_SECONDS)))
        except (grpc.RpcError, ExactlineError):
            return False

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, request: UnaryRequest[Result]) -> Result:
        return self._retry(lambda: request.decode(request.bind(self._channel)(**self.connection.call_options())))

    def _run(self, request: StreamRequest[Result]) -> Result:
        """Return the whole answer; if the server is lost before its end, ask again from the beginning."""
        if request.errors is not None:
            request.errors.run = self._run
        with progress_reporter(request.progress) as report:
            return self._retry(lambda: self._read_answer(request, report))

    def _read_answer(self, request: StreamRequest[Result], report: ProgressCallback | None) -> Result:
        reader = AnswerReader(report)
        for message in self._stream(request):
            reader.add(message)
        return request.decode(reader)

    def _stream(self, request: StreamRequest[Any]) -> Iterator[bytes]:
        call: Any = request.bind(self._channel)(**self.connection.call_options())
        try:
            yield from call
        finally:
            call.cancel()

    def _stream_parts(self, request: StreamRequest[Restriction]) -> Iterator[Restriction]:
        """Yield the parts of a sweep; tries again only before the first part."""
        pauses = self.connection.retry_pauses()
        while True:
            reader, yielded = AnswerReader(), False
            try:
                for message in self._stream(request):
                    reader.add(message)
                    if reader.part_end is not None:
                        yielded = True
                        yield request.decode(reader)
                reader.require_tail()
                return
            except grpc.RpcError as error:
                self._wait(self.connection.next_pause(error, pauses, may_retry=not yielded))

    def _retry(self, attempt: Callable[[], Result]) -> Result:
        """Make attempts until the server answers or the retries are used up."""
        pauses = self.connection.retry_pauses()
        while True:
            try:
                return attempt()
            except grpc.RpcError as error:
                self._wait(self.connection.next_pause(error, pauses))

    def _wait(self, seconds: float) -> None:
        """Wait before the next attempt, or until the server can be reached again.

        gRPC hardly reconnects while no call is made, so this makes one that waits for the connection. It does not use
        grpc.channel_ready_future, whose thread raises an error if the channel is closed soon after.
        """
        began = time.monotonic()
        health_check: Any = self._channel.unary_unary(HEALTH_PATH)
        options = self.connection.call_options() | {"timeout": seconds}
        with contextlib.suppress(grpc.RpcError):
            health_check(b"", wait_for_ready=True, **options)
        if time.monotonic() - began < IMMEDIATE_SECONDS:  # the connection was not the problem
            time.sleep(seconds)
