"""The requests of both clients: checks the arguments, encodes the message, and knows how to decode the answer."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, Unpack

import torch
from torch import Tensor

from ...attr.inputs import parse_call
from ...attr.report import AttributionReport
from ...decide.intervals import Decisions, ManyDecisions
from ...engines.polygons.polygon_input import check_polygon
from ...errors import ArgumentError, LineError, PlaneError
from ...lines import Lines, PointLike, as_lines, as_points
from ...options import RestrictOptions
from ...progress import ProgressCallback
from ...results.plane import PlaneRestriction
from ...results.restriction import Restriction
from ...results.restrictions import Restrictions
from .. import SERVICE_NAME
from ..codec import WIRE_DTYPES, encode_array, encode_point
from ..protos.exactline.v1 import exactline_pb2 as pb
from .decode import AnswerReader
from .keywords import RemoteDecideKeywords, RemotePlaneKeywords, RemoteRestrictKeywords, RemoteSweepKeywords
from .models import (
    ModelDescription,
    ModelEntry,
    ModelUpload,
    ServerStats,
    decode_description,
    decode_entries,
    decode_stats,
    encode_reference,
)
from .remote_errors import ErrorsLater
from .results import (
    decode_decisions,
    decode_errors,
    decode_lines,
    decode_many_decisions,
    decode_part,
    decode_plane_answer,
)

Result = TypeVar("Result")
HEALTH_PATH = "/grpc.health.v1.Health/Check"
HEALTH_SECONDS = 5.0  # for the health service to answer, unless the client has a timeout


@dataclass(frozen=True)
class UnaryRequest(Generic[Result]):
    """A request that one message answers."""

    path: str
    data: bytes | Iterable[bytes]  # several messages are streamed
    decode: Callable[[bytes], Result]

    def bind(self, channel: Any) -> Callable[..., Any]:
        """Return the call of the request on a channel of grpc or grpc.aio, for one attempt."""
        if isinstance(self.data, bytes):
            return partial(channel.unary_unary(self.path), self.data)
        return partial(channel.stream_unary(self.path), iter(self.data))


@dataclass(frozen=True)
class StreamRequest(Generic[Result]):
    """A request that a stream of messages answers."""

    path: str
    data: bytes
    decode: Callable[[AnswerReader], Result]
    progress: bool | ProgressCallback = False
    errors: ErrorsLater | None = None  # the request for estimated errors, which the answer may make later

    def bind(self, channel: Any) -> Callable[..., Any]:
        """Return the call of the request on a channel of grpc or grpc.aio."""
        return partial(channel.unary_stream(self.path), self.data)


def _method_path(method: str) -> str:
    return f"/{SERVICE_NAME}/{method}"


def _encode_options(model: Any, options: RestrictOptions, *, errors: bool = True) -> pb.Options:
    if not (options.until is None or isinstance(options.until, str)):
        raise ArgumentError(
            f"until must be a string, not {options.until!r}.",
            where="argument until",
            hint="Give the name of a submodule.",
        )
    return pb.Options(
        model=encode_reference(model),
        dtype=WIRE_DTYPES[options.dtype],
        memory=options.memory,
        no_values=not options.values,
        no_rewrite=not options.rewrite,
        until=options.until,
        max_breaks=options.max_breaks,
        seconds=options.seconds,
        progress=options.progress is not False,
        engine=options.engine,
        no_errors=not errors,
        joined=True,
    )


def _split_errors(options: Any) -> tuple[dict[str, Any], bool]:
    """Return the options of the library, and whether the estimated errors are wanted at once."""
    rest: dict[str, Any] = dict(options)
    errors = rest.pop("errors", False)
    if not isinstance(errors, bool):
        raise ArgumentError(
            f"errors must be True or False, not {errors!r}.", where="argument errors", hint="Give errors=True."
        )
    return rest, errors


def restrict(
    model: Any, start: PointLike, end: PointLike, **options: Unpack[RemoteRestrictKeywords]
) -> StreamRequest[Restriction]:
    """Request the breaks of one line."""
    lines = as_lines(start, end, ("start", "end"), many=False)
    rest, errors = _split_errors(options)
    checked = RestrictOptions.check(model, rest, RemoteRestrictKeywords)
    message = _lines_message(model, lines, checked, errors)
    later = _request_errors("Restrict", message)
    decode: Callable[[AnswerReader], Restriction] = lambda reader: decode_lines(reader, lines, checked, later)[0]  # noqa: E731
    return StreamRequest(_method_path("Restrict"), message.SerializeToString(), decode, checked.progress, later)


def restrict_many(
    model: Any, starts: PointLike, ends: PointLike, **options: Unpack[RemoteRestrictKeywords]
) -> StreamRequest[Restrictions]:
    """Request the breaks of many lines."""
    lines = as_lines(starts, ends, ("starts", "ends"), many=True)
    rest, errors = _split_errors(options)
    checked = RestrictOptions.check(model, rest, RemoteRestrictKeywords)
    message = _lines_message(model, lines, checked, errors)
    later = _request_errors("Restrict", message)
    decode: Callable[[AnswerReader], Restrictions] = lambda reader: decode_lines(reader, lines, checked, later)  # noqa: E731
    return StreamRequest(_method_path("Restrict"), message.SerializeToString(), decode, checked.progress, later)


def sweep(
    model: Any, start: PointLike, end: PointLike, **options: Unpack[RemoteSweepKeywords]
) -> StreamRequest[Restriction]:
    """Request one line in parts; the request decodes one part at a time."""
    lines = as_lines(start, end, ("start", "end"), many=False)
    checked = RestrictOptions.check(model, options, RemoteSweepKeywords)
    data = _lines_message(model, lines, checked, errors=True).SerializeToString()
    return StreamRequest(_method_path("Sweep"), data, lambda reader: decode_part(reader, lines, checked))


def _lines_message(model: Any, lines: Lines, options: RestrictOptions, errors: bool) -> pb.RestrictRequest:
    return pb.RestrictRequest(
        options=_encode_options(model, options, errors=errors),
        starts=encode_point(lines.starts),
        ends=encode_point(lines.ends),
    )


def _request_errors(method: str, message: Any) -> ErrorsLater:
    """Return the request for the errors of an answer, which is made when they are needed."""

    def create() -> StreamRequest[Tensor]:
        again = type(message)()
        again.CopyFrom(message)
        again.options.no_errors, again.options.progress = False, False
        return StreamRequest(_method_path(method), again.SerializeToString(), decode_errors)

    return ErrorsLater(create)


def decide(
    model: Any, start: PointLike, end: PointLike, order: str, top: int, **options: Unpack[RemoteDecideKeywords]
) -> StreamRequest[Decisions]:
    """Request which output is largest where, on one line."""
    lines = as_lines(start, end, ("start", "end"), many=False)
    return _decide_request(model, lines, order, top, options, decode_decisions)


def decide_many(
    model: Any, starts: PointLike, ends: PointLike, order: str, top: int, **options: Unpack[RemoteDecideKeywords]
) -> StreamRequest[ManyDecisions]:
    """Request which output is largest where, on many lines."""
    lines = as_lines(starts, ends, ("starts", "ends"), many=True)
    return _decide_request(model, lines, order, top, options, decode_many_decisions)


def _decide_request(
    model: Any,
    lines: Lines,
    order: str,
    top: int,
    options: RemoteDecideKeywords,
    decode: Callable[[AnswerReader, Lines, RestrictOptions, ErrorsLater, str, int], Result],
) -> StreamRequest[Result]:
    rest, errors = _split_errors(options)
    rest.pop("output", None)
    checked = RestrictOptions.check(model, rest, RemoteRestrictKeywords)
    try:
        message = pb.DecideRequest(
            options=_encode_options(model, checked, errors=errors),
            starts=encode_point(lines.starts),
            ends=encode_point(lines.ends),
            order=order,
            top=operator.index(top),
            output=options.get("output"),
            one_line=decode is decode_decisions,
        )
    except (TypeError, ValueError) as problem:
        raise ArgumentError(
            "order, top or output has a wrong type or value.",
            where="arguments order, top, output",
            hint='Give "max" or "min", and whole numbers.',
        ) from problem
    later = _request_errors("Decide", message)
    return StreamRequest(
        _method_path("Decide"),
        message.SerializeToString(),
        lambda reader: decode(reader, lines, checked, later, order, top),
        checked.progress,
        later,
    )


def attribute(
    model: Any,
    inputs: Any,  # (n, *in), or a tuple of such
    baselines: Any,  # numbers or tensors (n, *in) or (1, *in); a tuple for several inputs
    target: Any,
    *,
    multiply_by_inputs: bool = True,
    return_convergence_delta: bool = False,
    return_report: bool = False,
    memory: int | None = None,
    progress: bool | ProgressCallback = False,
) -> StreamRequest[Any]:
    """Request integrated gradients."""
    call = parse_call(inputs, baselines, None, "cpu")
    count = len(call.lines)
    checked = RestrictOptions.check(model, {"memory": memory, "progress": progress}, RemoteRestrictKeywords)
    targets, per_example = _encode_targets(target, count)
    message = pb.AttributeRequest(
        options=_encode_options(model, checked),
        inputs=encode_point(call.lines.ends),
        baselines=encode_point(call.lines.starts),
        targets=targets,
        target_per_example=per_example,
        gradients_only=not multiply_by_inputs,
        delta=return_convergence_delta,
    )

    def decode(reader: AnswerReader) -> Any:
        tail = reader.require_tail()
        answer: list[Any] = [call.shape_like_inputs(reader.arrays("attribution", count))]
        delta = call.cast_like_input(reader.array("delta", count).to(torch.float64))
        report = AttributionReport(tail.pieces, tail.attribution_ambiguous, reader.array("hanging", count))
        answer += [delta] if return_convergence_delta else []
        answer += [report] if return_report else []
        return tuple(answer) if len(answer) > 1 else answer[0]

    return StreamRequest(_method_path("Attribute"), message.SerializeToString(), decode, progress)


def _encode_targets(target: Any, count: int) -> tuple[list[pb.Index], bool]:
    """Convert targets to messages; also returns whether there is one for each example."""
    if isinstance(target, Tensor):
        if target.numel() != 1 and tuple(target.shape) != (count,):
            raise ArgumentError(
                f"target has shape {tuple(target.shape)}, for {count} examples.",
                where="argument target",
                hint="Give one number for each example.",
            )
        target = target.item() if target.numel() == 1 else target.tolist()
    if target is None:
        return [], False
    per_example = isinstance(target, list)
    return [_encode_index(t, "target") for t in (target if per_example else [target])], per_example


def _encode_index(value: Any, name: str) -> pb.Index:
    indices = value if isinstance(value, (tuple, list)) else (value,)
    try:
        if any(isinstance(i, bool) for i in indices):
            raise TypeError
        return pb.Index(indices=[operator.index(i) for i in indices])
    except (TypeError, ValueError):
        raise ArgumentError(
            f"{name} {value!r} is not a whole number or a tuple of them.",
            where=f"argument {name}",
            hint="Give an int, or a tuple of ints, one for each dimension.",
        ) from None


def plane(
    model: Any,
    vertices: Any,  # (corners, *in), or a tuple of such
    **options: Unpack[RemotePlaneKeywords],
) -> StreamRequest[PlaneRestriction]:
    """Request the polygons of a plane."""
    check_polygon(vertices)  # refuses a bad polygon without a call
    checked = RestrictOptions.check(model, options, RemotePlaneKeywords)
    message = pb.PlaneRequest(
        options=_encode_options(model, checked),
        vertices=encode_point(as_points(vertices, "vertices")),
        max_polygons=checked.max_polygons,
    )
    return _plane_request(message, checked)


def grid(
    model: Any,
    base: Any,  # (*in)
    axes: Any,
    box: Any,
    **options: Unpack[RemotePlaneKeywords],
) -> StreamRequest[PlaneRestriction]:
    """Request the polygons of a plane in which two features of an input vary over a box."""
    if isinstance(base, tuple):
        raise PlaneError("A grid needs a network of one input.", where="argument base", hint="Call client.plane.")
    try:
        (low1, high1), (low2, high2) = box
        bounds = [float(bound) for bound in (low1, high1, low2, high2)]
        first, second = axes
    except (TypeError, ValueError) as problem:
        raise PlaneError(
            "axes must be two positions and box two ranges.",
            where="arguments axes, box",
            hint="Give for example axes=(0, 1), box=((0, 1), (0, 1)).",
        ) from problem
    try:
        point = as_points(base, "base")[0]
    except LineError as problem:
        raise PlaneError(problem.problem, where=problem.where, hint=problem.hint) from problem
    checked = RestrictOptions.check(model, options, RemotePlaneKeywords)
    message = pb.PlaneRequest(
        options=_encode_options(model, checked),
        grid=pb.Grid(
            base=encode_array(point),
            axes=[_encode_index(first, "axes"), _encode_index(second, "axes")],
            bounds=bounds,
        ),
        max_polygons=checked.max_polygons,
    )
    return _plane_request(message, checked)


def _plane_request(message: pb.PlaneRequest, options: RestrictOptions) -> StreamRequest[PlaneRestriction]:
    return StreamRequest(
        _method_path("Plane"),
        message.SerializeToString(),
        lambda reader: decode_plane_answer(reader, options),
        options.progress,
    )


def list_models() -> UnaryRequest[list[ModelEntry]]:
    """Request the list of the server's models."""
    return UnaryRequest(_method_path("ListModels"), pb.ListModelsRequest().SerializeToString(), decode_entries)


def describe_model(model: Any) -> UnaryRequest[ModelDescription]:
    """Request the description of a model."""
    message = pb.DescribeModelRequest(model=encode_reference(model))
    return UnaryRequest(_method_path("DescribeModel"), message.SerializeToString(), decode_description)


def upload_model(upload: ModelUpload) -> UnaryRequest[ModelDescription]:
    """Send the file of a model."""
    return UnaryRequest(_method_path("UploadModel"), upload, decode_description)


def server_stats() -> UnaryRequest[ServerStats]:
    """Request the statistics of the server."""
    return UnaryRequest(_method_path("Stats"), pb.StatsRequest().SerializeToString(), decode_stats)


def check_health() -> UnaryRequest[bool]:
    """Ask gRPC's health service whether the server takes calls."""
    from grpc_health.v1 import health_pb2

    def decode(data: bytes) -> bool:
        return health_pb2.HealthCheckResponse.FromString(data).status == health_pb2.HealthCheckResponse.SERVING

    request = health_pb2.HealthCheckRequest(service=SERVICE_NAME)
    return UnaryRequest(HEALTH_PATH, request.SerializeToString(), decode)
