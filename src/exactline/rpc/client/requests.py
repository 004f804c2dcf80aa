"""Questions as a user asks them, as the messages of a request and what to make of the answer."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from ...attr.inputs import asked
from ...attr.integrated_gradients import AttributionReport, as_given
from ...decide.intervals import Decisions, ManyDecisions
from ...engines.polygons.polygon_input import check_polygon
from ...errors import ArgumentError, LineError, PlaneError
from ...lines import Lines, PointLike, as_lines, as_points
from ...results.plane import PlaneRestriction
from ...results.restriction import Restriction
from ...results.restrictions import Restrictions
from ..codec import KINDS, array_of, point_of
from ..protos.exactline.v1 import exactline_pb2 as pb
from . import results
from .decode import Reader
from .models import reference

Result = TypeVar("Result")
KNOWN = ("dtype", "memory", "values", "rewrite", "until", "max_breaks", "seconds", "engine")
USUAL: dict[str, Any] = {"dtype": torch.float64, "values": True, "rewrite": True, "until": None, "engine": "auto"}


@dataclass(frozen=True)
class Question(Generic[Result]):
    """A request, and how its answer is read."""

    method: str
    request: bytes
    made: Callable[[Reader], Result]


def _options(model: Any, given: dict[str, Any], progress: Any) -> tuple[pb.Options, dict[str, Any]]:
    """The library's options as a message, and those that a result remembers."""
    chosen = USUAL | given
    if odd := sorted(set(chosen) - set(KNOWN)):
        raise ArgumentError(f"There is no option {odd[0]}.", where=odd[0], hint=f"There are {', '.join(KNOWN)}.")
    if chosen["dtype"] not in (torch.float64, torch.float32):
        raise ArgumentError(
            f"dtype must be torch.float64 or torch.float32, not {chosen['dtype']}.",
            where="argument dtype",
            hint="float64 is the default.",
        )
    made = pb.Options(
        model=reference(model),
        dtype=KINDS[chosen["dtype"]],
        no_values=not chosen["values"],
        no_rewrite=not chosen["rewrite"],
        progress=progress is not False,
        engine=str(chosen["engine"]),
    )
    for name in ("memory", "max_breaks", "seconds", "until"):
        if (value := chosen.get(name)) is not None:
            try:
                setattr(made, name, operator.index(value) if name in ("memory", "max_breaks") else value)
            except (TypeError, ValueError) as problem:
                raise ArgumentError(
                    f"{name} must not be {value!r}.", where=f"argument {name}", hint="Leave it out for no limit."
                ) from problem
    return made, chosen


def restrict(model: Any, Q: PointLike, R: PointLike, progress: Any, given: dict[str, Any]) -> Question[Restriction]:
    """One line."""
    lines = as_lines(Q, R, ("Q", "R"), many=False)
    request, chosen = _lines_request(model, lines, progress, given)
    return Question("Restrict", request, lambda reader: results.lines_of(reader, lines, chosen)[0])


def restrict_many(
    model: Any, starts: PointLike, ends: PointLike, progress: Any, given: dict[str, Any]
) -> Question[Restrictions]:
    """Many lines."""
    lines = as_lines(starts, ends, ("starts", "ends"), many=True)
    request, chosen = _lines_request(model, lines, progress, given)
    return Question("Restrict", request, lambda reader: results.lines_of(reader, lines, chosen))


def sweep(model: Any, Q: PointLike, R: PointLike, given: dict[str, Any]) -> Question[Restriction]:
    """One line in parts; the question makes one of them."""
    lines = as_lines(Q, R, ("Q", "R"), many=False)
    request, chosen = _lines_request(model, lines, False, given)
    return Question("Sweep", request, lambda reader: results.part_of(reader, lines, chosen))


def _lines_request(model: Any, lines: Lines, progress: Any, given: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    options, chosen = _options(model, given, progress)
    starts, ends = point_of(lines.starts), point_of(lines.ends)
    return pb.RestrictRequest(options=options, starts=starts, ends=ends).SerializeToString(), chosen


def _decide_request(
    model: Any,
    lines: Lines,
    order: str,
    top: int,
    output: int | None,
    progress: Any,
    given: dict[str, Any],
    *,
    one: bool,
) -> bytes:
    options, _ = _options(model, given, progress)
    try:
        return pb.DecideRequest(
            options=options,
            starts=point_of(lines.starts),
            ends=point_of(lines.ends),
            order=order,
            top=operator.index(top),
            output=output,
            one_line=one,
        ).SerializeToString()
    except (TypeError, ValueError) as problem:
        raise ArgumentError(
            "order, top or output is not what it should be.",
            where="arguments order, top, output",
            hint='Give "max" or "min", and whole numbers.',
        ) from problem


def decide_one(
    model: Any,
    Q: PointLike,
    R: PointLike,
    order: str,
    top: int,
    output: int | None,
    progress: Any,
    given: dict[str, Any],
) -> Question[Decisions]:
    """Which output leads on a line."""
    lines, chosen = as_lines(Q, R, ("Q", "R"), many=False), USUAL | given
    request = _decide_request(model, lines, order, top, output, progress, given, one=True)
    return Question("Decide", request, lambda reader: results.decisions_of(reader, lines, chosen, order, top))


def decide_many(
    model: Any,
    starts: PointLike,
    ends: PointLike,
    order: str,
    top: int,
    output: int | None,
    progress: Any,
    given: dict[str, Any],
) -> Question[ManyDecisions]:
    """The same on many."""
    lines, chosen = as_lines(starts, ends, ("starts", "ends"), many=True), USUAL | given
    request = _decide_request(model, lines, order, top, output, progress, given, one=False)
    return Question("Decide", request, lambda reader: results.many_decisions_of(reader, lines, chosen, order, top))


def attribute(
    model: Any,
    inputs: Any,
    baselines: Any,
    target: Any,
    multiply_by_inputs: bool,
    wanted: tuple[bool, bool],  # the delta, the report
    progress: Any,
    memory: int | None,
) -> Question[Any]:
    """Integrated gradients."""
    call = asked(inputs, baselines, None, "cpu")
    options, _ = _options(model, {"memory": memory}, progress)
    targets, each = _targets(target, len(call.lines))
    request = pb.AttributeRequest(
        options=options,
        inputs=point_of(call.lines.ends),
        baselines=point_of(call.lines.starts),
        targets=targets,
        one_each=each,
        gradients=not multiply_by_inputs,
        delta=wanted[0],
    )

    def made(reader: Reader) -> Any:
        tail = reader.whole()
        count = len(call.lines)
        found = as_given(call, reader.group("attribution", count))
        delta = call.given_back(reader.array("delta", count).to(torch.float64))
        report = AttributionReport(tail.pieces, tail.stuck, reader.array("hanging", count))
        extra = (*((delta,) if wanted[0] else ()), *((report,) if wanted[1] else ()))
        return (found, *extra) if extra else found

    return Question("Attribute", request.SerializeToString(), made)


def _targets(target: Any, count: int) -> tuple[list[pb.Index], bool]:
    """Targets as messages, and whether there is one for each example."""
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
    several = isinstance(target, list)
    return [_index(t, "target") for t in (target if several else [target])], several


def _index(value: Any, name: str) -> pb.Index:
    places = value if isinstance(value, (tuple, list)) else (value,)
    try:
        if any(isinstance(i, bool) for i in places):
            raise TypeError
        return pb.Index(places=[operator.index(i) for i in places])
    except (TypeError, ValueError):
        raise ArgumentError(
            f"{name} {value!r} is not a whole number or a tuple of them.",
            where=f"argument {name}",
            hint="Give an int, or a tuple of ints where there are more dims.",
        ) from None


def plane(model: Any, vertices: Any, progress: Any, given: dict[str, Any]) -> Question[PlaneRestriction]:
    """A polygon of a plane."""
    check_polygon(vertices)  # what cannot be one need not travel
    options, chosen = _options(model, given, progress)
    request = pb.PlaneRequest(options=options, vertices=point_of(as_points(vertices, "vertices")))
    return Question("Plane", request.SerializeToString(), lambda reader: results.plane_of(reader, chosen))


def grid(
    model: Any, base: Any, axes: Any, box: Any, progress: Any, given: dict[str, Any]
) -> Question[PlaneRestriction]:
    """Two features of an input, varied over a box."""
    if isinstance(base, tuple):
        raise PlaneError("A grid needs a network of one input.", where="argument base", hint="Ask client.plane.")
    try:
        (a, b), (c, d) = box
        bounds = [float(bound) for bound in (a, b, c, d)]
        first, second = axes
    except (TypeError, ValueError) as problem:
        raise PlaneError(
            "axes must be two positions and box two ranges.",
            where="arguments axes, box",
            hint="Give such as axes=(0, 1), box=((0, 1), (0, 1)).",
        ) from problem
    try:
        start = as_points(base, "base")[0]
    except LineError as problem:
        raise PlaneError(problem.problem, where=problem.where, hint=problem.hint) from problem
    options, chosen = _options(model, given, progress)
    around = pb.Grid(base=array_of(start), axes=[_index(first, "axes"), _index(second, "axes")], bounds=bounds)
    request = pb.PlaneRequest(options=options, grid=around)
    return Question("Plane", request.SerializeToString(), lambda reader: results.plane_of(reader, chosen))
