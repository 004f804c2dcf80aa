"""The request for a curve: any network on one line, to a tolerance."""

from __future__ import annotations

import warnings
from typing import Any, Unpack

from ...errors import ArgumentError, ServiceError
from ...lines import Lines, PointLike, as_lines
from ...smooth.api import ApproximateOptions, ToleranceWarning, explain_tolerance
from ...smooth.approximation import Approximation
from ...smooth.storage import ARRAYS, find_problem
from .. import SERVICE_NAME
from ..codec import encode_point
from ..protos.exactline.v1 import exactline_pb2 as pb
from .decode import AnswerReader
from .keywords import RemoteApproximateKeywords
from .models import encode_reference
from .requests import StreamRequest


def approximate(
    model: Any, start: PointLike, end: PointLike, **options: Unpack[RemoteApproximateKeywords]
) -> StreamRequest[Approximation]:
    """Request the polynomials of one line."""
    lines = as_lines(start, end, ("start", "end"), many=False)
    checked = ApproximateOptions.check(options, RemoteApproximateKeywords)
    try:
        message = pb.ApproximateRequest(
            options=pb.Options(
                model=encode_reference(model),
                memory=checked.memory,
                seconds=checked.seconds,
                progress=checked.progress is not False,
            ),
            starts=encode_point(lines.starts),
            ends=encode_point(lines.ends),
            tol=checked.tol,
            certified=checked.certified,
            max_evaluations=checked.max_evaluations or 0,
            output_name=checked.output if isinstance(checked.output, str) else None,
            output_index=None if isinstance(checked.output, str) else checked.output,
        )
    except (TypeError, ValueError) as problem:
        raise ArgumentError(
            "An option has a wrong type or value.", where="options", hint="See exactline.approximate."
        ) from problem
    return StreamRequest(
        f"/{SERVICE_NAME}/Approximate",
        message.SerializeToString(),
        lambda reader: decode_curve(reader, lines),
        checked.progress,
    )


def decode_curve(reader: AnswerReader, lines: Lines) -> Approximation:
    """Decode a curve, and warn if it has not reached its tolerance; raises ServiceError for a malformed answer."""
    tail = reader.require_tail()
    status: Any = tail.curve.status
    curve = Approximation(
        **{name: reader.array(name) for name in ARRAYS},
        lines=lines,
        status=status,
        tol=tail.curve.tol,
        output_shapes=tuple(reader.output_shapes()),
        evaluations=tail.curve.evaluations,
        seconds=tail.seconds,
        stopped=tail.stopped,
        several_inputs=reader.head.several_inputs,
        several_outputs=reader.head.several_outputs,
        output_names=tuple(tail.curve.output_names),
        source=tail.curve.source,
    )
    if problem := find_problem(curve):
        raise ServiceError(
            f"The server's answer is not a valid curve: {problem}.",
            where="answer",
            hint="Do client and server have the same version?",
        )
    if curve.error > curve.tol:
        warnings.warn(explain_tolerance(curve), ToleranceWarning, stacklevel=2)
    return curve
