"""The job of a worker about networks of any kind: one line as polynomials, to a tolerance."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from ...errors import ArgumentError
from ...smooth.api import DEFAULT_TOL, MAX_EVALUATIONS, ToleranceWarning, approximate
from ...smooth.approximation import Approximation
from ...smooth.storage import ARRAYS
from ..codec import WIRE_DTYPES, decode_point, unwrap_single
from ..protos.exactline.v1 import exactline_pb2 as pb
from .encode import ProgressSender, encode_arrays
from .worker import JobContext


def handle_approximate(context: JobContext) -> Iterator[bytes]:
    """Send the polynomials of one line."""
    request = context.parse(pb.ApproximateRequest)
    network = context.any_network()
    starts, ends = decode_point(request.starts, "starts"), decode_point(request.ends, "ends")
    if any(not t.dim() or len(t) != 1 for t in (*starts, *ends)):
        raise ArgumentError(
            "An approximation takes exactly one line.", where="starts, ends", hint="Give arrays of shape (1, *in)."
        )
    start, end = (unwrap_single(tuple(t[0] for t in side)) for side in (starts, ends))
    report = ProgressSender(context.send_message, request.options.progress)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ToleranceWarning)  # the client compares the error with the tolerance itself
        curve = approximate(network, start, end, **_decode_options(request), device=context.device, progress=report)
    context.counters |= {"lines": 1, "breaks": len(curve.breakpoints)}
    arrays = {name: getattr(curve, name) for name in ARRAYS}
    yield _encode_head(arrays, curve)
    yield from encode_arrays(list(arrays.values()), context.limits.answer_bytes)
    yield _encode_tail(curve)


def _decode_options(request: pb.ApproximateRequest) -> dict[str, Any]:
    """Return the options of a request as keyword arguments of the library."""
    output = request.WhichOneof("output")
    limit = request.max_evaluations if request.HasField("max_evaluations") else MAX_EVALUATIONS
    return {
        "tol": request.tol if request.HasField("tol") else DEFAULT_TOL,
        "certified": request.certified,
        "max_evaluations": limit or None,
        "seconds": request.options.seconds if request.options.HasField("seconds") else None,
        "memory": request.options.memory if request.options.HasField("memory") else None,
        "output": None if output is None else getattr(request, output),
    }


def _encode_head(arrays: dict[str, Tensor], curve: Approximation) -> bytes:
    fields = [pb.Field(name=name, dtype=WIRE_DTYPES[a.dtype], shape=a.shape[1:]) for name, a in arrays.items()]
    head = pb.Head(
        fields=fields,
        several_inputs=curve.several_inputs,
        several_outputs=curve.several_outputs,
        output_shapes=[pb.Shape(dims=shape) for shape in curve.output_shapes],
        lines=1,
    )
    return pb.Answer(head=head).SerializeToString()


def _encode_tail(curve: Approximation) -> bytes:
    facts = pb.CurveFacts(
        status=curve.status,
        tol=curve.tol,
        evaluations=curve.evaluations,
        source=curve.source,
        output_names=curve.output_names,
    )
    tail = pb.Tail(seconds=curve.seconds, stopped=curve.stopped, error=curve.error, curve=facts)
    return pb.Answer(tail=tail).SerializeToString()
